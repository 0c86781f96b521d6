/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Writes an address, a port and the packet's number as decimal text, as loggers do.
 */
#include "weir.h"
#include "module.h"

static char text[64];

static char *decimal(char *out, uint32_t value)
{
    char digits[10];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0)
        *out++ = digits[--n];
    return out;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    const uint8_t *address = weir_l3(p) + 12;
    char *out = text;
    for (int i = 0; i < 4; i++) {
        out = decimal(out, address[i]);
        *out++ = i < 3 ? '.' : ':';
    }
    out = decimal(out, p->src_port);
    *out++ = ' ';
    out = decimal(out, p->number);
    *out = 0;
    return out - text > 40 ? WEIR_DROP : WEIR_PASS;
}
