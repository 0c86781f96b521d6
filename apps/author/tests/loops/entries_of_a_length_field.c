/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The entries of a table whose length the packet says, and which has to end within the packet. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    if (p->cap_len < 64)
        return WEIR_PASS;
    const uint32_t len = weir_be16(bytes + 16);
    if (len > p->cap_len - 18)
        return WEIR_PASS;
    for (uint32_t i = 0; i < len / 12; i++) // loop
        sum += bytes[18 + i * 12];
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (p->cap_len < 64)
        return WEIR_PASS;
    const uint32_t len = weir_be16(bytes + 16);
    if (len > p->cap_len - 18)
        return WEIR_PASS;
    WEIR_FOR(5461, uint32_t i = 0; i + 12 <= len; i += 12)
        sum += bytes[18 + i];
*/
