/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The lines of an HTTP header, compared with a name whatever the case: in web filters and proxies.
 */
#include "weir.h"
#include "module.h"

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    static const char name[] = "x-forwarded-for:";
    if (!(p->flags & WEIR_TCP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *text = weir_payload(p);
    const uint32_t len = p->payload_len;
    uint32_t line = 0;
    while (line < len) {
        uint32_t end = line;
        while (end < len && text[end] != '\r')
            end++;
        if (end == line)
            break;
        uint32_t i = 0;
        while (i < sizeof name - 1 && line + i < end && lower(text[line + i]) == (uint8_t)name[i])
            i++;
        if (i == sizeof name - 1)
            return WEIR_DROP;
        line = end + 2;
    }
    return WEIR_PASS;
}
