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
#include "weir_containers.h"

WEIR_STACK(count_calls, const struct node *, 64)

static uint32_t count(const struct node *n, uint32_t port)
{
    uint32_t found = 0;
    const struct node *call;
    count_calls_clear();
    count_calls_push(n);
    WEIR_WHILE(256, count_calls_pop(&call)) {
        if (call == NULL)
            continue;
        found += call->port == port;
        count_calls_push(call->right);
        count_calls_push(call->left);
    }
    return found;
}
*/
