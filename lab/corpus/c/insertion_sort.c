/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The median of the last gaps by insertion sort of a small array: in jitter and latency monitors.
 */
#include "weir.h"
#include "module.h"

enum { N = 16 };
static uint64_t gaps[N];
static uint32_t next;
static uint64_t last_ns;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    gaps[next] = p->ts_ns - last_ns;
    next = (next + 1) % N;
    last_ns = p->ts_ns;
    uint64_t sorted[N];
    for (int i = 0; i < N; i++) {
        int j = i;
        while (j > 0 && sorted[j - 1] > gaps[i]) {
            sorted[j] = sorted[j - 1];
            j--;
        }
        sorted[j] = gaps[i];
    }
    return sorted[N / 2] > 1000000000 ? WEIR_DROP : WEIR_PASS;
}
