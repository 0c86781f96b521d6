/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The bytes from an offset on that a function has found. */
#include "weir.h"

static __attribute__((noinline)) uint32_t find(const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (bytes[i] == ':')
            return i;
    return len;
}

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    for (uint32_t i = find(bytes, p->cap_len); i < p->cap_len; i++)
        sum += bytes[i];
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = find(bytes, p->cap_len), left = p->cap_len; i < p->cap_len && left > 0; i++, left--)
        sum += bytes[i];
*/
