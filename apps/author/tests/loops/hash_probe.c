/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Linear probing until a slot is empty or has the key. */
#include "weir.h"

uint64_t keys[1024];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t slot = p->flow_hash & 1023;
    // refused
    while (keys[slot] != 0 && keys[slot] != p->flow_hash)
        slot = (slot + 1) & 1023;
    // end
    return keys[slot] != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < 1024 && keys[slot] != 0 && keys[slot] != p->flow_hash; i++)
        slot = (slot + 1) & 1023;
*/
