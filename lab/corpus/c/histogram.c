/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A histogram with logarithmic buckets and its percentile: in latency and size monitors.
 */
#include "weir.h"
#include "module.h"

static uint64_t buckets[33];
static uint64_t total;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    buckets[p->wire_len == 0 ? 0 : 32 - __builtin_clz(p->wire_len)]++;
    total++;
    uint64_t below = 0;
    int bucket = 0;
    while (below * 10 < total * 9 && bucket < 33)
        below += buckets[bucket++];
    return bucket > 12 ? WEIR_DROP : WEIR_PASS;
}
