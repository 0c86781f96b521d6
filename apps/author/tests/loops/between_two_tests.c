/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A range that ends at the first of two conditions, each with a side that moves. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    uint32_t low = 0, high = p->cap_len;
    while (low < high) { // loop
        if (bytes[low] < 128)
            low++;
        else
            high--;
        sum += bytes[low];
    }
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    uint32_t low = 0, high = p->cap_len;
    for (uint32_t left = p->cap_len; left > 0; left--) {
        if (bytes[low] < 128)
            low++;
        else
            high--;
        sum += bytes[low];
    }
*/
