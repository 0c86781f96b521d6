/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The walk over TCP options for the maximum segment size: in firewalls that clamp it.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->tcp_flags & WEIR_TCP_SYN) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *tcp = weir_l4(p);
    const uint32_t header = (uint32_t)(tcp[12] >> 4) * 4;
    if (header < 20 || p->l4_offset + header > p->cap_len)
        return WEIR_PASS;
    uint32_t i = 20;
    while (i < header) {
        const uint8_t kind = tcp[i];
        if (kind == 0)
            break;
        if (kind == 1) {
            i++;
            continue;
        }
        if (i + 1 >= header)
            break;
        const uint8_t len = tcp[i + 1];
        if (len < 2 || i + len > header)
            break;
        if (kind == 2 && len == 4)
            return weir_be16(tcp + i + 2) > 1460 ? WEIR_DROP : WEIR_PASS;
        i += len;
    }
    return WEIR_PASS;
}
