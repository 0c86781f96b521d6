/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The entries of a table in a packet, whose number is a quotient. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    for (uint32_t i = 0; i < p->cap_len / 12; i++)
        sum += bytes[i * 12];
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i + 12 <= p->cap_len; i += 12)
        sum += bytes[i];
*/
