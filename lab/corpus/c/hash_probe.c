/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An open hash table with linear probing until a slot is free: in programs that trust that there always is one.
 */
#include "weir.h"
#include "module.h"

enum { SLOTS = 1 << 12 };
static uint64_t keys[SLOTS];
static uint32_t used;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint64_t key = p->flow_hash | 1;
    uint32_t slot = (uint32_t)(key >> 20) % SLOTS;
    while (keys[slot] != 0 && keys[slot] != key)
        slot = (slot + 1) % SLOTS;
    if (keys[slot] == 0) {
        if (used >= SLOTS - 1)
            return WEIR_DROP;
        keys[slot] = key;
        used++;
    }
    return WEIR_PASS;
}
