/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Euclid's algorithm. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t a = p->wire_len, b = p->src_port;
    // refused
    while (b != 0) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    // end
    return a == 1 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(48, b != 0) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
*/
