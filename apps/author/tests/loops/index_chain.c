/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A chain of indices in an array. */
#include "weir.h"

uint16_t next[1024], ports[1024];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (uint32_t i = p->src_port & 1023; i != 0; i = next[i & 1023])
        if (ports[i & 1023] == p->dst_port)
            found = true;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_FOR(1024, uint32_t i = p->src_port & 1023; i != 0; i = next[i & 1023])
        if (ports[i & 1023] == p->dst_port)
            found = true;
*/
