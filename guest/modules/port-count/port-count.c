/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * port-count: UDP packets and bytes for a list of ports, to them and from them (Diet-OKE, section 5, counts packets for Doom and
 * Sun RPC). Of a fragmented datagram the first fragment has ports and is counted, with its own bytes.
 */
#include "weir.h"
#include "module.h"

enum { PORTS_MAX = 4096, TO = 0, FROM = 1 };

struct tally {
    uint64_t packets, bytes;
};

static uint16_t slot_of[65536]; /* 0: not in the list */
static uint16_t port_of[PORTS_MAX + 1];
static struct tally now_count[PORTS_MAX + 1][2], total[PORTS_MAX + 1][2];
static uint8_t list[(PORTS_MAX + 1) * 8];
static uint32_t ports; /* slots 1 ..= ports are in use */
static uint64_t interval_ns;
static bool is_outer;
static bool any; /* whether this interval has packets */

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    interval_ns = (uint64_t)param_interval();
    const uint32_t bytes = (uint32_t)param_ports(list, sizeof list);
    if (bytes > PORTS_MAX * 8) {
        WEIR_LOG(WEIR_ERROR, "ports: at most 4096 can be counted");
        return 1;
    }
    for (uint32_t at = 0; at + 8 <= bytes; at += 8) {
        const uint64_t port = weir_le64(list + at);
        if (port > 65535) {
            WEIR_LOG(WEIR_ERROR, "ports: a port is 0 to 65535");
            return 1;
        }
        if (slot_of[port] == 0) {
            slot_of[port] = (uint16_t)++ports;
            port_of[ports] = (uint16_t)port;
        }
    }
    return interval_ns == 0;
}

/* Slots in use: `ports`, which is at most the length of the list, and that is a constant. */
static inline uint32_t slots(void)
{
    const uint32_t listed = param_ports(NULL, 0) / 8;
    return ports < listed ? ports : listed;
}

static inline void add(uint32_t slot, uint32_t side, uint32_t bytes)
{
    struct tally *count = &now_count[slot][side];
    count->packets++;
    count->bytes += bytes;
    any = true;
}

WEIR_INLINE void count(const struct weir_packet *p)
{
    if ((p->flags & (WEIR_UDP | WEIR_L4)) != (WEIR_UDP | WEIR_L4))
        return;
    const uint32_t to = slot_of[p->dst_port], from = slot_of[p->src_port];
    if (to != 0)
        add(to, TO, p->wire_len);
    if (from != 0)
        add(from, FROM, p->wire_len);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    count(weir_innermost(p, &room));
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    else
        count(p);
    return WEIR_PASS;
}

static void end_interval(uint64_t begin)
{
    if (!any)
        return;
    const uint32_t last = slots();
    for (uint32_t slot = 1; slot <= last; slot++) {
        struct tally *to = &now_count[slot][TO], *from = &now_count[slot][FROM];
        if ((to->packets | from->packets) == 0)
            continue;
        const struct counts_row row = { begin, port_of[slot], to->packets, to->bytes, from->packets, from->bytes };
        emit_counts(&row);
        for (uint32_t side = TO; side <= FROM; side++) {
            total[slot][side].packets += now_count[slot][side].packets;
            total[slot][side].bytes += now_count[slot][side].bytes;
            now_count[slot][side] = (struct tally){ 0, 0 };
        }
    }
    any = false;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    end_interval(now - periods * interval_ns);
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    end_interval(now - now % interval_ns);
    const uint32_t last = slots();
    for (uint32_t slot = 1; slot <= last; slot++) {
        const struct tally *to = &total[slot][TO], *from = &total[slot][FROM];
        const struct totals_row row = { port_of[slot], to->packets, to->bytes, from->packets, from->bytes };
        emit_totals(&row);
    }
}
