/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A nested loop whose limit is in a table. */
#include "weir.h"

uint8_t groups;
uint32_t members[256];
uint16_t ports[256][32];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < members[g]; i++) // loop
            found |= ports[g][i] == p->dst_port;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t i = 0; i < members[g] && i < 32; i++)
            found |= ports[g][i] == p->dst_port;
*/
