/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A function in memory, called until it returns false. */
#include "weir.h"

bool (*step)(uint32_t *state);

static bool halve(uint32_t *state) { return (*state /= 2) != 0; }
static bool lower(uint32_t *state) { return (*state -= 1) != 0; }

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t state = p->wire_len;
    step = p->ttl > 64 ? halve : lower;
    // refused
    while (step(&state))
        ;
    // end
    return state > 8 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (p->ttl > 64)
        while (halve(&state))
            ;
    else
        while (lower(&state))
            ;
*/
