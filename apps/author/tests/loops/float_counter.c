/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A counter of type float. */
#include "weir.h"

float step;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t steps = 0;
    // refused
    for (float x = 0; x < 1; x += step)
        steps++;
    // end
    return steps > p->ttl ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < 1000 && (float)i * step < 1; i++)
        steps++;
*/
