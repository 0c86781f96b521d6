/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* arp-spoofing: reports IPv4 addresses whose Ethernet address changes in ARP packets (RFC 826). An attacker who answers for a
 * gateway causes such changes; so does an address that moves to another machine.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { ARP = 0x0806, ARP_BYTES = 28 };

struct address {
    uint32_t ipv4;
    uint16_t vlan; /* the same addresses may be in use in several VLANs */
} WEIR_KEY;
struct owner {
    uint64_t last_ns;
    uint8_t mac[6];
};
WEIR_MAP(owners, struct address, struct owner, 16384)

static __attribute__((noinline)) void report(const struct weir_packet *p, const struct owner *before, const uint8_t *mac, const uint8_t *ipv4)
{
    struct changes_row row = {
        .time = p->ts_ns,
        .before = weir_string(before->mac, 6),
        .after = weir_string(mac, 6),
        .age = p->ts_ns > before->last_ns ? (int64_t)(p->ts_ns - before->last_ns) : 0,
        .vlan = p->flags & WEIR_VLAN ? weir_vlan(p) : 0,
    };
    weir_ip_store(row.address, weir_ip_v4(ipv4));
    emit_changes(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* ARP begins behind the Ethernet header and its tags. */
    const uint32_t at = 14 + 4 * (uint32_t)p->vlan_count;
    if (p->ether_type != ARP || p->link_type != 1 || at + ARP_BYTES > p->cap_len)
        return WEIR_PASS;
    const uint8_t *arp = weir_bytes(p) + at;
    if (weir_be32(arp) != 0x00010800 || weir_be16(arp + 4) != 0x0604) /* Ethernet and IPv4 */
        return WEIR_PASS;
    const uint8_t *mac = arp + 8, *ipv4 = arp + 14;
    if (weir_le32(ipv4) == 0) /* a probe by a host without an address (RFC 5227) */
        return WEIR_PASS;
    const struct address address = { weir_le32(ipv4), p->flags & WEIR_VLAN ? weir_vlan(p) : 0 };
    struct owner *owner = owners_add(address);
    if (owner->last_ns != 0 && !weir_equal(owner->mac, mac, 6))
        report(p, owner, mac, ipv4);
    owner->last_ns = p->ts_ns;
    weir_copy(owner->mac, mac, 6);
    return WEIR_PASS;
}
