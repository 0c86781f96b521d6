/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The server name in a TLS ClientHello, through session, ciphers and extensions: in middleboxes and traffic classifiers.
 */
#include "weir.h"
#include "module.h"

static const uint8_t *server_name(const uint8_t *data, uint32_t len, uint32_t *name_len)
{
    if (len < 43 || data[0] != 22 || data[5] != 1)
        return NULL;
    uint32_t at = 43;
    if (at + 1 > len)
        return NULL;
    at += 1u + data[at];
    if (at + 2 > len)
        return NULL;
    at += 2u + weir_be16(data + at);
    if (at + 1 > len)
        return NULL;
    at += 1u + data[at];
    if (at + 2 > len)
        return NULL;
    uint32_t end = at + 2 + weir_be16(data + at);
    at += 2;
    if (end > len)
        end = len;
    while (at + 4 <= end) {
        const uint16_t type = weir_be16(data + at), size = weir_be16(data + at + 2);
        at += 4;
        if (at + size > end)
            return NULL;
        if (type == 0) {
            if (size < 5)
                return NULL;
            *name_len = size - 5u;
            return data + at + 5;
        }
        at += size;
    }
    return NULL;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || p->dst_port != 443 || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    uint32_t len;
    const uint8_t *name = server_name(weir_payload(p), p->payload_len, &len);
    if (name == NULL)
        return WEIR_PASS;
    uint32_t dots = 0;
    for (uint32_t i = 0; i < len; i++)
        dots += name[i] == '.';
    return dots > 8 ? WEIR_DROP : WEIR_PASS;
}
