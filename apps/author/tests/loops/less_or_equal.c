/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A limit that is included, and can be the largest number. */
#include "weir.h"

uint32_t last;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t hash = 0;
    // refused
    for (uint32_t i = 0; i <= last; i++)
        hash = (hash ^ i) * 16777619 ^ p->src_port;
    // end
    return hash > 1000 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i <= last && i < 64; i++)
        hash = (hash ^ i) * 16777619 ^ p->src_port;
*/
