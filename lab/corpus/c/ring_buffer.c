/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A ring of time stamps from which old ones are taken: in rate limiters.
 */
#include "weir.h"
#include "module.h"

enum { SIZE = 128, WINDOW_NS = 1000000000 };
static uint64_t ring[SIZE];
static uint32_t head, tail;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    while (tail != head && p->ts_ns - ring[tail % SIZE] > WINDOW_NS)
        tail++;
    if (head - tail == SIZE)
        return WEIR_DROP;
    ring[head++ % SIZE] = p->ts_ns;
    return WEIR_PASS;
}
