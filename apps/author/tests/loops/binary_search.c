/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A binary search. */
#include "weir.h"

uint32_t count;
uint16_t ports[4096];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t low = 0, high = count;
    // refused
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ports[middle] < p->dst_port)
            low = middle + 1;
        else
            high = middle;
    }
    // end
    return ports[low] == p->dst_port ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(13, low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (ports[middle] < p->dst_port)
            low = middle + 1;
        else
            high = middle;
    }
*/
