/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Type, length, value with 7 bits of type and 9 of length: in LLDP and other neighbour discovery.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (p->ether_type != 0x88CC || p->cap_len < 14)
        return WEIR_PASS;
    const uint8_t *at = weir_bytes(p) + 14;
    uint32_t left = p->cap_len - 14;
    uint32_t seen = 0;
    while (left >= 2) {
        const uint16_t head = weir_be16(at);
        const uint32_t type = head >> 9, len = head & 0x1FF;
        if (type == 0 || left < 2 + len)
            break;
        seen |= type < 32 ? 1u << type : 0;
        at += 2 + len;
        left -= 2 + len;
    }
    return (seen & 0xE) == 0xE ? WEIR_PASS : WEIR_DROP;
}
