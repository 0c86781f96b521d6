/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Extension headers of IPv6, each of which names the next one. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_l3(p);
    uint32_t at = 40;
    uint8_t next = bytes[6];
    // refused
    while (next == 0 || next == 43 || next == 60) {
        next = bytes[at];
        at += (bytes[at + 1] + 1) * 8;
    }
    // end
    return next == 59 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(8, next == 0 || next == 43 || next == 60) {
        next = bytes[at];
        at += (bytes[at + 1] + 1) * 8;
    }
*/
