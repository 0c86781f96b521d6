/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A counter of 64 bits, up to a time stamp. */
#include "weir.h"

uint64_t second;
uint8_t slots[60];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint64_t now = p->ts_ns / 1000000000;
    // refused
    do {
        slots[second % 60] = 0;
    } while (++second < now);
    // end
    return slots[p->dst_port % 60] != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint64_t i = 0; i < 60 && second + i < now; i++)
        slots[(second + i) % 60] = 0;
    second = now;
*/
