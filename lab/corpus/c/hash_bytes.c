/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Jenkins' one-at-a-time hash and FNV-1a over the flow's key and the payload: in flow tables and sampling.
 */
#include "weir.h"
#include "module.h"

static uint32_t one_at_a_time(const uint8_t *key, size_t len)
{
    uint32_t hash = 0;
    for (size_t i = 0; i < len; i++) {
        hash += key[i];
        hash += hash << 10;
        hash ^= hash >> 6;
    }
    hash += hash << 3;
    hash ^= hash >> 11;
    hash += hash << 15;
    return hash;
}

static uint32_t fnv1a(const uint8_t *begin, const uint8_t *end)
{
    uint32_t hash = 2166136261u;
    while (begin < end)
        hash = (hash ^ *begin++) * 16777619u;
    return hash;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    const uint8_t *all = weir_bytes(p);
    const uint32_t a = one_at_a_time(weir_l3(p) + 12, 8), b = fnv1a(all, all + p->cap_len);
    return ((a ^ b) & 1023) == 0 ? WEIR_DROP : WEIR_PASS;
}
