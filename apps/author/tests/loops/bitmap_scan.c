/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The first clear bit of a bitmap. */
#include "weir.h"

uint32_t bitmap[32];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t bit = 0;
    // refused
    while (bitmap[bit / 32] >> (bit % 32) & 1)
        bit++;
    // end
    bitmap[bit / 32] |= 1u << (bit % 32);
    return bit > p->ttl ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    while (bit < 1023 && (bitmap[bit / 32] >> (bit % 32) & 1))
        bit++;
*/
