/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A work list that grows while it is processed. */
#include "weir.h"

uint32_t queue[256], queued;
uint8_t edges[256];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t i = 0;
    queue[0] = p->dst_port & 255, queued = 1;
    // refused
    for (; i < queued; i++)
        if (edges[queue[i & 255] & 255] != 0)
            queue[queued++ & 255] = edges[queue[i & 255] & 255];
    // end
    return i > 16 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (; i < queued && i < 256; i++)
        if (edges[queue[i & 255] & 255] != 0)
            queue[queued++ & 255] = edges[queue[i & 255] & 255];
*/
