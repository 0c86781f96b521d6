/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Bytes as hexadecimal text, sixteen a line: in packet loggers.
 */
#include "weir.h"
#include "module.h"

static char text[16 * 3 + 1];
static uint64_t zeros;

static void line(const uint8_t *bytes, uint32_t n)
{
    static const char digit[] = "0123456789abcdef";
    char *out = text;
    for (uint32_t i = 0; i < n; i++) {
        *out++ = digit[bytes[i] >> 4];
        *out++ = digit[bytes[i] & 15];
        *out++ = ' ';
    }
    *out = 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    for (uint32_t at = 0; at < p->cap_len; at += 16) {
        const uint32_t n = p->cap_len - at < 16 ? p->cap_len - at : 16;
        line(bytes + at, n);
        zeros += text[0] == '0';
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct seen_row row = { zeros };
    emit_seen(&row);
}
