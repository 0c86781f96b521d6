/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* bytes-per-host: packets and bytes that each host sends and receives. A host that loses its place in the table is reported
 * at once, so that the sums over all rows are exact.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

struct traffic {
    uint64_t last_ns, sent_packets, sent_bytes, received_packets, received_bytes;
};
WEIR_MAP(hosts, struct weir_ip, struct traffic, 65536)
/* A newer version of the module goes on with these hosts. */
WEIR_STATE(hosts, hosts_map)

static __attribute__((noinline)) void report(const struct hosts_entry *e)
{
    struct hosts_row row = {
        .time = e->value.last_ns,
        .sent_packets = e->value.sent_packets,
        .sent_bytes = e->value.sent_bytes,
        .received_packets = e->value.received_packets,
        .received_bytes = e->value.received_bytes,
    };
    weir_ip_store(row.host, e->key);
    emit_hosts(&row);
}

static struct traffic *traffic_of(struct weir_ip host, uint64_t now)
{
    struct traffic *t = hosts_add(host);
    if (hosts_evicted() != NULL)
        report(hosts_evicted());
    t->last_ns = now;
    return t;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ip(p))
        return WEIR_PASS;
    struct traffic *source = traffic_of(weir_src(p), p->ts_ns);
    source->sent_packets++;
    source->sent_bytes += p->wire_len;
    struct traffic *destination = traffic_of(weir_dst(p), p->ts_ns);
    destination->received_packets++;
    destination->received_bytes += p->wire_len;
    return WEIR_PASS;
}

static uint32_t position;

WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    (void)now;
    WEIR_MAP_PART(hosts, position, 4096, e) {
        report(e);
    }
    return position < hosts_SLOTS;
}
