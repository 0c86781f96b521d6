/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * memchr for the end of a line, again and again: in parsers of text protocols.
 */
#include "weir.h"
#include "module.h"

static const uint8_t *find(const uint8_t *s, uint8_t c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (s[i] == c)
            return s + i;
    return NULL;
}

static uint64_t lines;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *at = weir_payload(p), *end = at + p->payload_len;
    for (;;) {
        const uint8_t *newline = find(at, '\n', (uint32_t)(end - at));
        if (newline == NULL)
            break;
        lines++;
        at = newline + 1;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct seen_row row = { lines };
    emit_seen(&row);
}
