/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* port-scans: hosts that try to open TCP connections to many destinations, each a host and a port.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

struct destination {
    struct weir_ip host;
    uint16_t port;
} WEIR_KEY;
WEIR_HLL(destinations, struct destination, 8)

struct source {
    uint64_t first_ns, attempts;
    bool is_reported;
    struct destinations tried;
};
WEIR_MAP(sources, struct weir_ip, struct source, 16384)

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    weir_seed(param_seed());
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if ((p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_ACK)) != WEIR_TCP_SYN)
        return WEIR_PASS;
    struct source *s = sources_add(weir_src(p));
    if (s->attempts++ == 0)
        s->first_ns = p->ts_ns;
    const struct destination destination = { weir_dst(p), p->dst_port };
    if (!destinations_add(&s->tried, destination) || s->is_reported)
        return WEIR_PASS;
    const double count = destinations_count(&s->tried);
    if (count < (double)param_threshold())
        return WEIR_PASS;
    s->is_reported = true;
    struct scans_row row = {
        .time = p->ts_ns,
        .first = s->first_ns,
        .attempts = s->attempts,
        .destinations = (uint64_t)(count + 0.5),
    };
    weir_ip_src(p, row.source);
    emit_scans(&row);
    return WEIR_PASS;
}
