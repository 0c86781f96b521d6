/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * DHCP options behind their magic number: in relay agents and rogue server detection.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || p->payload_len < 240 || weir_be32(weir_payload(p) + 236) != 0x63825363)
        return WEIR_PASS;
    const uint8_t *o = weir_payload(p) + 240;
    const uint8_t *end = weir_payload(p) + p->payload_len;
    while (o < end && *o != 255) {
        if (*o == 0) {
            o++;
            continue;
        }
        if (o + 1 >= end || o + 2 + o[1] > end)
            return WEIR_DROP;
        if (o[0] == 53 && o[1] == 1 && o[2] == 2)
            return WEIR_DROP;
        o += 2 + o[1];
    }
    return WEIR_PASS;
}
