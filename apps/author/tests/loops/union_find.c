/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The representative of a set, with path compression. */
#include "weir.h"

uint32_t parents[65536];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t at = p->src_port;
    // refused
    while (parents[at] != at) {
        parents[at] = parents[parents[at] & 65535];
        at = parents[at] & 65535;
    }
    // end
    return at == p->dst_port ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(64, parents[at] != at) {
        parents[at] = parents[parents[at] & 65535];
        at = parents[at] & 65535;
    }
*/
