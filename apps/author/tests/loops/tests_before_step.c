/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Items with a type and a length, with all tests before the step. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    uint32_t at = 0;
    while (true) { // loop
        if (at + 2 > p->cap_len)
            break;
        const uint32_t step = bytes[at + 1];
        if (step < 2)
            break;
        if (at + step > p->cap_len)
            break;
        sum += bytes[at];
        at += step;
    }
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    uint32_t left = p->cap_len;
    while (left >= 2) {
        const uint8_t *item = bytes + (p->cap_len - left);
        const uint32_t step = item[1];
        if (step < 2 || step > left)
            break;
        sum += item[0];
        left -= step;
    }
*/
