/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Bubble sort, until a pass swaps nothing. */
#include "weir.h"

uint32_t values[16];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    values[0] = p->wire_len;
    bool swapped;
    // refused
    do {
        swapped = false;
        for (uint32_t i = 0; i + 1 < 16; i++)
            if (values[i] > values[i + 1]) {
                const uint32_t value = values[i];
                values[i] = values[i + 1], values[i + 1] = value;
                swapped = true;
            }
    } while (swapped);
    // end
    return values[8] > 1000 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    swapped = true;
    for (uint32_t pass = 0; pass < 16 && swapped; pass++) {
        swapped = false;
        for (uint32_t i = 0; i + 1 < 16; i++)
            if (values[i] > values[i + 1]) {
                const uint32_t value = values[i];
                values[i] = values[i + 1], values[i + 1] = value;
                swapped = true;
            }
    }
*/
