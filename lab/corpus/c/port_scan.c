/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * How many ports a bitmap of a host has: in port scan detection.
 */
#include "weir.h"
#include "module.h"

enum { HOSTS = 64, WORDS = 32 };
static uint32_t ports[HOSTS][WORDS];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || !(p->tcp_flags & WEIR_TCP_SYN) || !(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    uint32_t *seen = ports[weir_be32(weir_l3(p) + 12) % HOSTS];
    seen[p->dst_port / 32 % WORDS] |= 1u << (p->dst_port % 32);
    int count = 0;
    for (int i = 0; i < WORDS; i++)
        for (uint32_t word = seen[i]; word != 0; word &= word - 1)
            count++;
    return count > 100 ? WEIR_DROP : WEIR_PASS;
}
