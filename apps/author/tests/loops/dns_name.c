/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A name in a DNS message, with compression. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t at = 12, labels = 0;
    // refused
    while (bytes[at] != 0) {
        if (bytes[at] >= 192) {
            at = weir_be16(bytes + at) & 0x3FFF;
        } else {
            at += bytes[at] + 1;
            labels++;
        }
    }
    // end
    return labels > 10 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(128, at < p->payload_len && bytes[at] != 0) {
        if (bytes[at] >= 192) {
            at = weir_be16(bytes + at) & 0x3FFF;
        } else {
            at += bytes[at] + 1;
            labels++;
        }
    }
*/
