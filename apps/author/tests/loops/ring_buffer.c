/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A ring buffer, emptied up to its head. */
#include "weir.h"

uint32_t head, tail, total, lengths[256];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    lengths[head++ & 255] = p->wire_len;
    // refused
    while (tail != head)
        total += lengths[tail++ & 255];
    // end
    return total > 100000 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_WHILE(256, tail != head)
        total += lengths[tail++ & 255];
*/
