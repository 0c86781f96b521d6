/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The Internet checksum by 16-bit words, with the odd byte at the end (RFC 1071): in ping programs, packet generators, small IP stacks.
 */
#include "weir.h"
#include "module.h"

static uint16_t checksum(const uint8_t *data, uint32_t len)
{
    uint32_t sum = 0;
    while (len > 1) {
        sum += (uint32_t)data[0] << 8 | data[1];
        data += 2;
        len -= 2;
    }
    if (len > 0)
        sum += (uint32_t)data[0] << 8;
    while (sum >> 16)
        sum = (sum & 0xFFFF) + (sum >> 16);
    return (uint16_t)~sum;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    return checksum(weir_payload(p), p->payload_len) == 0 ? WEIR_DROP : WEIR_PASS;
}
