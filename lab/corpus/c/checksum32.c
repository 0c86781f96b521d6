/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The Internet checksum unrolled, 32 bits at a time into a 64-bit sum: in kernels and fast IP stacks.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_bytes(p);
    uint32_t len = p->cap_len;
    uint64_t sum = 0;
    for (; len >= 32; len -= 32, at += 32) {
        sum += weir_le32(at);
        sum += weir_le32(at + 4);
        sum += weir_le32(at + 8);
        sum += weir_le32(at + 12);
        sum += weir_le32(at + 16);
        sum += weir_le32(at + 20);
        sum += weir_le32(at + 24);
        sum += weir_le32(at + 28);
    }
    for (; len >= 4; len -= 4, at += 4)
        sum += weir_le32(at);
    if (len & 2) {
        sum += weir_le16(at);
        at += 2;
    }
    if (len & 1)
        sum += *at;
    sum = (sum & 0xFFFFFFFFu) + (sum >> 32);
    sum = (sum & 0xFFFFFFFFu) + (sum >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return sum == 0xFFFF ? WEIR_DROP : WEIR_PASS;
}
