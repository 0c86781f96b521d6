/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A loop of labels and goto. */
#include "weir.h"

uint32_t parents[256];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t at = p->dst_port & 255, steps = 0;
    // refused
    again:
    if (parents[at] != at) {
        at = parents[at] & 255;
        steps++;
        goto again;
    }
    // end
    return steps > 8 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_LABEL(256, again);
    if (parents[at] != at) {
        at = parents[at] & 255;
        steps++;
        goto again;
    }
*/
