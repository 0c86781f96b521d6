/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ASN.1 elements with short and long lengths: in SNMP and LDAP monitors.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || (p->dst_port != 161 && p->src_port != 161) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *data = weir_payload(p);
    const uint32_t size = p->payload_len;
    uint32_t at = 0, elements = 0;
    while (at + 2 <= size) {
        const uint8_t tag = data[at++];
        uint32_t len = data[at++];
        if (len & 0x80) {
            uint32_t bytes = len & 0x7F;
            if (bytes == 0 || bytes > 4 || at + bytes > size)
                return WEIR_DROP;
            for (len = 0; bytes > 0; bytes--)
                len = len << 8 | data[at++];
        }
        elements++;
        if (tag & 0x20)
            continue;
        if (len > size - at)
            return WEIR_DROP;
        at += len;
    }
    return elements > 200 ? WEIR_DROP : WEIR_PASS;
}
