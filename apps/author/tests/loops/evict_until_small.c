/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Eviction, until a count in memory is small enough. */
#include "weir.h"

uint32_t used, used_max, oldest;
uint8_t states[4096];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    // refused
    while (used > used_max) {
        used -= states[oldest & 4095];
        states[oldest++ & 4095] = 0;
    }
    // end
    used += states[p->flow_hash & 4095];
    return used > used_max ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(4096, used > used_max) {
        used -= states[oldest & 4095];
        states[oldest++ & 4095] = 0;
    }
*/
