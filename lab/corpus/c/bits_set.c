/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The bits of a mask by clearing the lowest again and again: in rule matching by bit vectors.
 */
#include "weir.h"
#include "module.h"

static uint32_t hits[64];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint64_t rules = p->flow_hash & (p->flow_hash >> 7 | p->wire_len);
    while (rules) {
        hits[__builtin_ctzll(rules)]++;
        rules &= rules - 1;
    }
    return hits[63] > 100000 ? WEIR_DROP : WEIR_PASS;
}
