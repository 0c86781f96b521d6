/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An open hash table with linear probing that gives up after a while: in flow tables of monitors.
 */
#include "weir.h"
#include "module.h"

enum { SLOTS = 1 << 12, PROBES = 16 };
struct flow {
    uint64_t key;
    uint64_t packets;
};
static struct flow flows[SLOTS];
static uint64_t full;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint64_t key = p->flow_hash | 1;
    uint32_t slot = (uint32_t)(key >> 20) & (SLOTS - 1);
    for (int probe = 0; probe < PROBES; probe++) {
        struct flow *flow = &flows[slot];
        if (flow->key == key || flow->key == 0) {
            flow->key = key;
            flow->packets++;
            return WEIR_PASS;
        }
        slot = (slot + 1) & (SLOTS - 1);
    }
    full++;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    uint64_t packets = full;
    for (uint32_t i = 0; i < SLOTS; i++)
        packets += flows[i].packets;
    const struct seen_row row = { packets };
    emit_seen(&row);
}
