/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* last-packets: the TCP packets before a reset, of all connections, as a flight recorder has them.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

WEIR_RING(recent, struct packets_row, 16)
static struct weir_bucket reports;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    struct packets_row row = {
        .time = p->ts_ns,
        .packet = p->number,
        .source_port = p->src_port,
        .destination_port = p->dst_port,
        .flags = p->tcp_flags,
    };
    weir_ip_src(p, row.source);
    weir_ip_dst(p, row.destination);
    recent_push(row);
    /* A token for each ns, so that a report costs an interval. */
    if ((p->tcp_flags & WEIR_TCP_RST) &&
        weir_bucket_take(&reports, p->ts_ns, WEIR_SECOND, (uint64_t)param_interval(), (uint64_t)param_interval())) {
        WEIR_RING_EACH(recent, r) {
            r->reset = p->number;
            emit_packets(r);
        }
    }
    return WEIR_PASS;
}
