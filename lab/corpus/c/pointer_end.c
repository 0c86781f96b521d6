/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * From one pointer to the other, which it meets: in code that was C++ once.
 */
#include "weir.h"
#include "module.h"

struct pair {
    uint16_t port;
    uint16_t mark;
};
static struct pair pairs[40];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    uint16_t port = 1;
    for (struct pair *it = pairs; it != pairs + 40; ++it) {
        it->port = port;
        it->mark = port % 3;
        port = (uint16_t)(port * 5 + 80);
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    for (const struct pair *it = pairs, *end = pairs + 40; it != end; ++it)
        if (it->port == p->dst_port)
            return it->mark == 0 ? WEIR_DROP : WEIR_PASS;
    return WEIR_PASS;
}
