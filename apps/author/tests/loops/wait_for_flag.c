/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A loop that waits for a flag. */
#include "weir.h"

volatile uint32_t ready;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    // refused
    while (ready == 0)
        ;
    // end
    return p->dst_port == 53 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (ready == 0)
        return WEIR_PASS;
*/
