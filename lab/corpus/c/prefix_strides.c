/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Longest prefix match in a trie with a stride of 8 bits: in software routers.
 */
#include "weir.h"
#include "module.h"

enum { TABLES = 32, LEAF = 0x8000 };
static uint16_t table[TABLES][256];
static uint16_t used = 1;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (uint32_t i = 0; i < 24; i++) {
        const uint8_t byte[4] = { (uint8_t)(10 + i % 3), (uint8_t)(i * 7), (uint8_t)(i * 31), 0 };
        uint16_t at = 0;
        for (uint32_t level = 0; level < 2; level++) {
            uint16_t *entry = &table[at][byte[level]];
            if (*entry == 0 || (*entry & LEAF)) {
                if (used == TABLES)
                    return 0;
                *entry = used++;
            }
            at = *entry;
        }
        table[at][byte[2]] = (uint16_t)(LEAF | i);
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    const uint8_t *address = weir_l3(p) + 16;
    uint16_t entry = 0;
    for (int level = 0; level < 4; level++) {
        entry = table[entry][address[level]];
        if (entry == 0 || (entry & LEAF))
            break;
    }
    return entry == (LEAF | 5) ? WEIR_DROP : WEIR_PASS;
}
