/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Blocks of eight bytes, at least one, xored: in obfuscation and simple authenticators.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_bytes(p);
    int left = (int)p->cap_len;
    if (left < 8)
        return WEIR_PASS;
    uint64_t state = 0x0123456789ABCDEFu;
    do {
        state ^= weir_le64(at);
        state = state << 13 | state >> 51;
        at += 8;
        left -= 8;
    } while (left >= 8);
    return (state & 0xFFFF) == 0 ? WEIR_DROP : WEIR_PASS;
}
