/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* vlan-counter: packets, bytes and hosts of each VLAN, by the outermost tag.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { UNTAGGED = 4096 };

WEIR_HLL(distinct, struct weir_ip, 6)

static struct {
    uint64_t last_ns, packets, bytes;
    struct distinct sources;
} vlans[UNTAGGED + 1];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint32_t vlan = p->flags & WEIR_VLAN ? weir_vlan(p) : UNTAGGED;
    vlans[vlan].last_ns = p->ts_ns;
    vlans[vlan].packets++;
    vlans[vlan].bytes += p->wire_len;
    if (weir_is_ip(p))
        distinct_add(&vlans[vlan].sources, weir_src(p));
    return WEIR_PASS;
}

static uint32_t vlan;

WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    (void)now;
    for (uint32_t i = 0; i < 512 && vlan <= UNTAGGED; i++, vlan++) {
        if (vlans[vlan].packets == 0)
            continue;
        const struct vlans_row row = {
            .time = vlans[vlan].last_ns,
            .has_vlan = vlan != UNTAGGED,
            .vlan = (uint16_t)vlan,
            .packets = vlans[vlan].packets,
            .bytes = vlans[vlan].bytes,
            .sources = (uint64_t)(distinct_count(&vlans[vlan].sources) + 0.5),
        };
        emit_vlans(&row);
    }
    return vlan <= UNTAGGED;
}
