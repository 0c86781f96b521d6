/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The Toeplitz hash of receive-side scaling over addresses and ports, computed bit by bit.
 */
#include "weir.h"
#include "module.h"

static const uint8_t key[40] = {
    0x5a, 0x6d, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
    0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static uint32_t toeplitz(const uint8_t *input, int len)
{
    uint32_t hash = 0, window = weir_be32(key);
    for (int i = 0; i < len; i++) {
        for (int bit = 7; bit >= 0; bit--) {
            if (input[i] & (1 << bit))
                hash ^= window;
            window = window << 1 | (key[i + 4] >> bit & 1);
        }
    }
    return hash;
}

static uint32_t packets_of[128];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    uint8_t tuple[12];
    weir_copy(tuple, weir_l3(p) + 12, 8);
    weir_copy(tuple + 8, weir_l4(p), 4);
    const uint32_t queue = toeplitz(tuple, sizeof tuple) & 127;
    return ++packets_of[queue] > 1000000 ? WEIR_DROP : WEIR_PASS;
}
