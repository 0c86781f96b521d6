/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A function over a tree, which calls itself. */
#include "weir.h"

struct node { struct node *left, *right; uint32_t port; };
struct node *root;

// refused
static uint32_t count(const struct node *n, uint32_t port)
{
    if (n == NULL)
        return 0;
    return count(n->left, port) + (n->port == port) + count(n->right, port); // loop
}
// end

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    return count(root, p->dst_port) > 1 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
static uint32_t count(const struct node *n, uint32_t port)
{
    const struct node *left_to_do[32];
    uint32_t depth = 0, found = 0;
    WEIR_WHILE(1024, n != NULL || depth > 0) {
        if (n == NULL)
            n = left_to_do[--depth];
        found += n->port == port;
        if (n->right != NULL && depth < 32)
            left_to_do[depth++] = n->right;
        n = n->left;
    }
    return found;
}
*/
