/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A compressed name of DNS, with a limit on jumps: in resolvers and DNS monitors.
 */
#include "weir.h"
#include "module.h"

enum { JUMPS_MAX = 16, NAME_MAX = 255 };

static int read_name(const uint8_t *message, uint32_t len, uint32_t at, char *name)
{
    int jumps = 0, out = 0;
    for (;;) {
        if (at >= len)
            return -1;
        const uint8_t label = message[at];
        if (label == 0)
            break;
        if ((label & 0xC0) == 0xC0) {
            if (at + 1 >= len || ++jumps > JUMPS_MAX)
                return -1;
            at = (uint32_t)(label & 0x3F) << 8 | message[at + 1];
            continue;
        }
        if ((label & 0xC0) != 0 || at + 1 + label > len || out + label + 1 > NAME_MAX)
            return -1;
        for (int i = 0; i < label; i++)
            name[out++] = (char)message[at + 1 + (uint32_t)i];
        name[out++] = '.';
        at += 1u + label;
    }
    name[out] = 0;
    return out;
}

static char name[NAME_MAX + 1];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || (p->src_port != 53 && p->dst_port != 53) || p->payload_len < 12)
        return WEIR_PASS;
    const int len = read_name(weir_payload(p), p->payload_len, 12, name);
    return len > 100 ? WEIR_DROP : WEIR_PASS;
}
