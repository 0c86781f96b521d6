/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Attributes whose length has 32 bits. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t attributes = 0;
    // refused
    for (uint32_t at = 0; at + 8 <= p->payload_len; at += 8 + weir_be32(bytes + at + 4))
        attributes++;
    // end
    return attributes > 8 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t at = 0; at + 8 <= p->payload_len;) {
        const uint32_t len = weir_be32(bytes + at + 4);
        if (len > p->payload_len - at - 8)
            break;
        at += 8 + len;
        attributes++;
    }
*/
