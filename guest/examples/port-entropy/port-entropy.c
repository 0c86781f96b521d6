/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* port-entropy: entropy of destination ports in each interval. A scan of ports raises it, and a flood to one port lowers it.
 *
 * With the count c of each port and their sum n, the entropy is ln n - (sum of c ln c) / n, over ln 2. The sum is kept up to
 * date with each packet, so that no call goes through all ports with logarithms.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

static uint32_t counts[65536];
static uint64_t packets;
static uint32_t ports, top;
static double sum; /* of c ln c */

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & (WEIR_TCP | WEIR_UDP)) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint32_t before = counts[p->dst_port], after = before + 1;
    counts[p->dst_port] = after;
    packets++;
    sum += after * weir_ln(after);
    if (before == 0)
        ports++;
    else
        sum -= before * weir_ln(before);
    if (after > counts[top & 65535])
        top = p->dst_port;
    return WEIR_PASS;
}

static void report(uint64_t begin)
{
    if (packets == 0)
        return;
    const double entropy = (weir_ln((double)packets) - sum / (double)packets) / weir_ln(2);
    const struct ports_row row = {
        .time = begin,
        .packets = packets,
        .ports = ports,
        .entropy = entropy > 0 ? entropy : 0,
        .port = (uint16_t)top,
        .port_packets = counts[top & 65535],
    };
    emit_ports(&row);
    weir_fill(counts, 0, sizeof counts);
    packets = 0;
    ports = top = 0;
    sum = 0;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    report(now - periods * (uint64_t)param_interval());
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now - now % (uint64_t)param_interval());
}
