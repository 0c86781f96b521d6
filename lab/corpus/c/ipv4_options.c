/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The walk over IPv4 options for source routes: in filters at the edge of a network.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    const uint8_t *ip = weir_l3(p);
    int left = (ip[0] & 15) * 4 - 20;
    const uint8_t *option = ip + 20;
    while (left > 0) {
        int len;
        if (option[0] == 0)
            break;
        if (option[0] == 1) {
            len = 1;
        } else {
            if (left < 2)
                break;
            len = option[1];
            if (len < 2 || len > left)
                break;
        }
        if (option[0] == 131 || option[0] == 137)
            return WEIR_DROP;
        option += len;
        left -= len;
    }
    return WEIR_PASS;
}
