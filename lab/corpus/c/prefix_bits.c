/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Longest prefix match in a binary trie, a bit at a time: in routing daemons and simple routers.
 */
#include "weir.h"
#include "module.h"

enum { NODES = 1024 };
struct node {
    uint16_t child[2];
    uint16_t route;
};
static struct node nodes[NODES];
static uint16_t used = 1;

static void insert(uint32_t prefix, int bits, uint16_t route)
{
    uint16_t node = 0;
    for (int i = 0; i < bits; i++) {
        const int bit = prefix >> (31 - i) & 1;
        if (nodes[node].child[bit] == 0) {
            if (used == NODES)
                return;
            nodes[node].child[bit] = used++;
        }
        node = nodes[node].child[bit];
    }
    nodes[node].route = route;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (uint32_t i = 1; i < 64; i++)
        insert(i * 0x01020304u, 8 + (int)(i % 25), (uint16_t)i);
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    uint32_t address = weir_be32(weir_l3(p) + 16);
    uint16_t node = 0, best = 0;
    do {
        if (nodes[node].route != 0)
            best = nodes[node].route;
        node = nodes[node].child[address >> 31];
        address <<= 1;
    } while (node != 0);
    return best == 63 ? WEIR_DROP : WEIR_PASS;
}
