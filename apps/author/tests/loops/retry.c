/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An attempt that is repeated until it succeeds. */
#include "weir.h"

uint32_t slots[1024], seed;

static bool claim(uint32_t slot) { return slots[slot]++ == 0; }

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t slot;
    // refused
    do {
        seed = seed * 1664525 + 1013904223;
        slot = seed >> 22;
    } while (!claim(slot));
    // end
    return slot > p->src_port ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    uint32_t tries = 0;
    do {
        seed = seed * 1664525 + 1013904223;
        slot = seed >> 22;
    } while (!claim(slot) && ++tries < 32);
*/
