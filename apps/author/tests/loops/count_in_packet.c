/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A count of 32 bits in the packet. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t sum = 0;
    // refused
    for (uint32_t i = 0; i < weir_be32(bytes); i++)
        sum += bytes[4 + i];
    // end
    return sum == 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    const uint32_t count = weir_be32(bytes);
    for (uint32_t i = 0; i < count && i + 4 < p->payload_len; i++)
        sum += bytes[4 + i];
*/
