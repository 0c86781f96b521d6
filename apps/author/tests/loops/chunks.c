/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Chunks of SCTP, whose lengths are rounded up to 4 bytes. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    uint32_t chunks = 0;
    // refused
    const uint8_t *end = at + p->payload_len;
    while (at + 4 <= end) { // loop
        at += (weir_be16(at + 2) + 3) & ~3;
        chunks++;
    }
    // end
    return chunks > 4 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i + 4 <= p->payload_len;) {
        const uint32_t len = (weir_be16(at + i + 2) + 3u) & ~3u;
        if (len == 0)
            break;
        i += len;
        chunks++;
    }
*/
