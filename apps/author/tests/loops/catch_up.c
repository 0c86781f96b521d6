/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A time that catches up with the packet's. */
#include "weir.h"

uint64_t next, period, ticks;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    // refused
    while (next <= p->ts_ns) {
        next += period;
        ticks++;
    }
    // end
    return ticks > 100 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    if (next <= p->ts_ns && period != 0) {
        const uint64_t missed = (p->ts_ns - next) / period + 1;
        next += missed * period;
        ticks += missed;
    }
*/
