/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Options of a type, a length and a value, where the length can be 0. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t options = 0;
    // refused
    for (uint32_t at = 0; at + 2 <= p->payload_len; at += bytes[at + 1])
        options++;
    // end
    return options > 8 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    uint32_t left = p->payload_len;
    while (left >= 2) {
        const uint32_t len = bytes[1];
        if (len < 2 || len > left)
            break;
        options++;
        bytes += len;
        left -= len;
    }
*/
