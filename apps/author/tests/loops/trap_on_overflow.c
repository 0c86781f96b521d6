/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Items with a length, and a check that the offset does not overflow. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    uint32_t at = 0;
    while (at < p->cap_len) { // loop
        sum += bytes[at];
        uint32_t next;
        if (__builtin_add_overflow(at, 1u + bytes[at], &next))
            __builtin_trap();
        at = next;
    }
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    uint32_t left = p->cap_len;
    while (left > 0) {
        sum += bytes[p->cap_len - left];
        const uint32_t step = 1u + bytes[p->cap_len - left];
        if (step >= left)
            break;
        left -= step;
    }
*/
