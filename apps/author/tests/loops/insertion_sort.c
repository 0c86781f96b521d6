/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Insertion of a value into a sorted array, whose length is in memory. */
#include "weir.h"

uint32_t values[64], count;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t i = count;
    // refused
    while (i > 0 && values[i - 1] > p->wire_len) {
        values[i] = values[i - 1];
        i--;
    }
    // end
    values[i] = p->wire_len;
    return i == 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (i > 63)
        i = 63;
    while (i > 0 && values[i - 1] > p->wire_len) {
        values[i] = values[i - 1];
        i--;
    }
*/
