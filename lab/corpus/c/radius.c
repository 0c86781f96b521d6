/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * RADIUS attributes up to the length in the header: in access servers and accounting.
 */
#include "weir.h"
#include "module.h"

static uint64_t users;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || p->dst_port != 1812 || p->payload_len < 20)
        return WEIR_PASS;
    const uint8_t *radius = weir_payload(p);
    const uint16_t length = weir_be16(radius + 2);
    if (length < 20 || length > p->payload_len)
        return WEIR_DROP;
    for (uint16_t at = 20; at + 2 <= length;) {
        const uint8_t type = radius[at], len = radius[at + 1];
        if (len < 2)
            return WEIR_DROP;
        if (type == 1)
            users++;
        at += len;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct seen_row row = { users };
    emit_seen(&row);
}
