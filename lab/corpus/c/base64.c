/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Base64 of the first part of a payload: in exporters of payload samples.
 */
#include "weir.h"
#include "module.h"

enum { SAMPLE = 96 };
static char text[(SAMPLE + 2) / 3 * 4 + 1];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    static const char letter[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *in = weir_payload(p);
    size_t len = p->payload_len > SAMPLE ? SAMPLE : p->payload_len;
    char *out = text;
    while (len >= 3) {
        *out++ = letter[in[0] >> 2];
        *out++ = letter[(in[0] & 3) << 4 | in[1] >> 4];
        *out++ = letter[(in[1] & 15) << 2 | in[2] >> 6];
        *out++ = letter[in[2] & 63];
        in += 3;
        len -= 3;
    }
    if (len > 0) {
        *out++ = letter[in[0] >> 2];
        if (len == 1) {
            *out++ = letter[(in[0] & 3) << 4];
            *out++ = '=';
        } else {
            *out++ = letter[(in[0] & 3) << 4 | in[1] >> 4];
            *out++ = letter[(in[1] & 15) << 2];
        }
        *out++ = '=';
    }
    *out = 0;
    return text[0] == '/' ? WEIR_DROP : WEIR_PASS;
}
