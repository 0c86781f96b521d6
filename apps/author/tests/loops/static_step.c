/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A step in a static variable. */
#include "weir.h"

uint32_t step;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t sum = 0;
    // refused
    for (uint32_t i = 0; i < p->payload_len; i += step)
        sum += bytes[i];
    // end
    return sum == 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    const uint32_t stride = step < 1 ? 1 : step > 255 ? 255 : step;
    for (uint32_t i = 0; i < p->payload_len; i += stride)
        sum += bytes[i];
*/
