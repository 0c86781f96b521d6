/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A counter that is doubled, and may begin at 0. */
#include "weir.h"

uint32_t first;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t bucket = 0;
    // refused
    for (uint32_t size = first; size < p->wire_len; size *= 2)
        bucket++;
    // end
    return bucket > 4 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_FOR(32, uint32_t size = first; size < p->wire_len; size *= 2)
        bucket++;
*/
