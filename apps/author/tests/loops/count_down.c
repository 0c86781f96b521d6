/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A count in memory, counted down to 0. */
#include "weir.h"

uint32_t rounds;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t hash = p->src_port;
    // refused
    for (uint32_t i = rounds; i != 0; i--)
        hash = (hash ^ i) * 16777619;
    // end
    return hash > 1000 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = rounds < 64 ? rounds : 64; i != 0; i--)
        hash = (hash ^ i) * 16777619;
*/
