/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Options of a TCP header. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_l4(p);
    const uint32_t end = p->payload_offset - p->l4_offset;
    uint32_t at = 20, mss = 0;
    // refused
    while (at < end && bytes[at] != 0) {
        if (bytes[at] == 2)
            mss = weir_be16(bytes + at + 2);
        at += bytes[at] == 1 ? 1 : bytes[at + 1];
    }
    // end
    return mss > 1460 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    while (at < end && at < 60 && bytes[at] != 0) {
        if (bytes[at] == 2)
            mss = weir_be16(bytes + at + 2);
        const uint32_t len = bytes[at] == 1 ? 1 : bytes[at + 1];
        if (len == 0)
            break;
        at += len;
    }
*/
