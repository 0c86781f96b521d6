/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Items with a length, which is tested before the step. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    uint32_t at = 0;
    while (at < p->cap_len) { // loop
        uint32_t step = bytes[at];
        if (step == 0)
            step = 1;
        sum += step;
        at += step;
    }
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t at = 0, next = 0; at < p->cap_len; at++) {
        if (at != next)
            continue;
        next += bytes[at] == 0 ? 1 : bytes[at];
        sum += next - at;
    }
*/
