/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A string copied up to n bytes, and trimmed: in banner grabbing and syslog.
 */
#include "weir.h"
#include "module.h"

static char banner[80];

static void copy(char *to, const char *from, size_t room, size_t len)
{
    size_t i;
    for (i = 0; i < room - 1 && i < len && from[i] != 0; i++)
        to[i] = from[i] < ' ' ? '.' : from[i];
    to[i] = 0;
    while (i > 0 && to[i - 1] == ' ')
        to[--i] = 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || p->src_port != 22 || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    copy(banner, (const char *)weir_payload(p), sizeof banner, p->payload_len);
    return banner[0] == 'S' ? WEIR_PASS : WEIR_DROP;
}
