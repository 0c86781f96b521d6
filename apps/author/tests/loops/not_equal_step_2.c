/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A counter that goes up by 2 until it is equal to its end. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t sum = 0;
    // refused
    for (uint32_t i = 0; i != p->payload_len; i += 2)
        sum += weir_be16(bytes + i);
    // end
    return sum == 0xFFFF ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i + 1 < p->payload_len; i += 2)
        sum += weir_be16(bytes + i);
*/
