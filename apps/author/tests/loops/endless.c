/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A loop without an exit, after a failure. */
#include "weir.h"

volatile uint32_t failures;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    // refused
    if (p->flags & WEIR_MALFORMED)
        for (;;) // loop
            failures++;
    // end
    return failures > 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (p->flags & WEIR_MALFORMED)
        failures++;
*/
