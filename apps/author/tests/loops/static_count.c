/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A limit in a static variable. */
#include "weir.h"

uint32_t count;
uint16_t ports[256];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (uint32_t i = 0; i < count; i++)
        if (ports[i] == p->dst_port)
            found = true;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < count && i < 256; i++)
        if (ports[i] == p->dst_port)
            found = true;
*/
