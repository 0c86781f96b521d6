/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An end pointer in a static variable. */
#include "weir.h"

uint16_t ports[256], *ports_end;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (const uint16_t *at = ports; at < ports_end; at++)
        if (*at == p->dst_port)
            found = true;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (const uint16_t *at = ports; at < ports_end && at < ports + 256; at++)
        if (*at == p->dst_port)
            found = true;
*/
