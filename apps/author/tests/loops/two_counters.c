/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Two counters that approach each other by different steps. */
#include "weir.h"

uint16_t table[256], low, high;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint16_t a = low, b = high;
    // refused
    while (a != b) {
        if (table[a & 255] > p->dst_port)
            b--;
        else
            a++;
    }
    // end
    return table[a & 255] == p->dst_port ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(256, a != b) {
        if (table[a & 255] > p->dst_port)
            b--;
        else
            a++;
    }
*/
