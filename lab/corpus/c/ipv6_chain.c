/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The chain of IPv6 extension headers: in every IPv6 stack.
 */
#include "weir.h"
#include "module.h"

enum { HEADERS_MAX = 8 };

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV6))
        return WEIR_PASS;
    const uint8_t *bytes = weir_bytes(p);
    uint32_t at = p->l3_offset + 40u;
    uint8_t next = bytes[p->l3_offset + 6];
    int headers = 0;
    while (next == 0 || next == 43 || next == 44 || next == 60 || next == 51) {
        if (++headers > HEADERS_MAX)
            return WEIR_DROP;
        if (at + 8 > p->cap_len)
            break;
        const uint8_t *header = bytes + at;
        if (next == 44)
            at += 8;
        else if (next == 51)
            at += ((uint32_t)header[1] + 2) * 4;
        else
            at += ((uint32_t)header[1] + 1) * 8;
        next = header[0];
    }
    return next == 59 ? WEIR_DROP : WEIR_PASS;
}
