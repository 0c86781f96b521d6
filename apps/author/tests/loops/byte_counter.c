/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A counter of 8 bits with a limit of 16 bits. */
#include "weir.h"

uint16_t count;
uint32_t table[65536];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (uint8_t i = 0; i < count; i++)
        if (table[i] == p->flow_hash)
            found = true;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < count; i++)
        if (table[i] == p->flow_hash)
            found = true;
*/
