/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The longest prefix of an address in a trie. */
#include "weir.h"

struct node { struct node *child[2]; uint32_t next_hop; };
struct node *root;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t address = weir_be32(weir_l3(p) + 16), hop = 0;
    // refused
    for (const struct node *n = root; n != NULL; n = n->child[address >> 31], address <<= 1)
        hop = n->next_hop;
    // end
    return hop == 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    WEIR_FOR(33, const struct node *n = root; n != NULL; n = n->child[address >> 31], address <<= 1)
        hop = n->next_hop;
*/
