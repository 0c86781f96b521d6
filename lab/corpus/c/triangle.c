/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * All pairs of the last samples: in correlation of flows.
 */
#include "weir.h"
#include "module.h"

enum { N = 24 };
static uint64_t seen[N];
static uint32_t count;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    seen[count++ % N] = p->flow_hash >> 40;
    uint32_t same = 0;
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t j = i + 1; j < N; j++)
            same += seen[i] == seen[j];
    return same > N * 4 ? WEIR_DROP : WEIR_PASS;
}
