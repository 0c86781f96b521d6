/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * rtt: round-trip time of TCP connections from the client's SYN and its first ACK (FLAME, 3.1), for IPv4 and IPv6. The first
 * ACK carries the SYN's sequence number plus one. Where the SYN-ACK is seen too, its time splits the round trip.
 *
 * Pending handshakes are in sets of WAYS entries. A set is found by the TOP bits of the flow hash, so that instances that
 * share the flows by those bits never share a set, and their rows do not depend on how many there are.
 */
#include "weir.h"
#include "module.h"

enum { WAYS = 4 };

/* The keys of a set: half a cache line. For most packets nothing else is read. */
struct keys {
    uint64_t flow[WAYS]; /* flow hash | 1; 0: free */
};

struct handshake {
    uint64_t syn_ns;
    uint64_t synack_ns;
    uint64_t client;      /* the side that sent the SYN, by side() */
    uint32_t next;        /* sequence number of the client's first ACK */
    uint32_t synack_next; /* acknowledgement number of the client's first ACK, once the SYN-ACK was seen */
    uint16_t data_len;    /* bytes in the SYN (TCP Fast Open), which the server may accept or not */
    uint16_t syns;
    bool synack_seen;
};

static struct keys *sets;
static struct handshake *handshakes; /* WAYS for each set */
static uint32_t *evicted;            /* one for each set */
static uint32_t set_shift;
static bool is_outer;

/* Returns an end of a connection as a word: exact for IPv4, a hash for IPv6. */
static inline uint64_t side(const struct weir_packet *p, bool source)
{
    const uint16_t port = source ? p->src_port : p->dst_port;
    const uint8_t *ip = weir_l3(p);
    if (p->flags & WEIR_IPV4)
        return (uint64_t)weir_le32(ip + (source ? 12 : 16)) << 16 | port;
    const uint8_t *address = ip + (source ? 8 : 24);
    return weir_hash_add(weir_hash_add(port, weir_le64(address)), weir_le64(address + 8));
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    /* As many sets as the entries need, rounded up to a power of two. */
    const uint32_t set_bits = 64 - (uint32_t)__builtin_clzll((param_table_size() - 1) / WAYS);
    const uint32_t count = 1u << set_bits;
    set_shift = 64 - set_bits;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    handshakes = weir_alloc(count * WAYS * (uint32_t)sizeof *handshakes);
    evicted = weir_alloc(count * (uint32_t)sizeof *evicted);
    if (sets == NULL || handshakes == NULL || evicted == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* Handles a SYN: a new handshake, or a repeated one. */
static void opened(const struct weir_packet *p, uint32_t set, uint64_t key)
{
    struct keys *keys = &sets[set];
    struct handshake *first = &handshakes[(size_t)set * WAYS];
    const uint64_t client = side(p, true);
    const uint16_t data_len = (uint16_t)(p->payload_len < 0xFFFF ? p->payload_len : 0xFFFF);
    const uint32_t next = weir_tcp_seq(p) + 1;

    uint32_t way = WAYS, spare = WAYS, oldest = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (keys->flow[i] == key)
            way = i;
        else if (keys->flow[i] == 0)
            spare = i;
        if (first[i].syn_ns < first[oldest].syn_ns)
            oldest = i;
    }
    uint16_t syns = 1;
    if (way < WAYS) {
        /* The same sequence number from the same side is a repeated SYN; otherwise the ports are reused. */
        if (first[way].next == next && first[way].client == client)
            syns = (uint16_t)(first[way].syns + (first[way].syns < 0xFFFF));
    } else if (spare < WAYS) {
        way = spare;
    } else {
        way = oldest;
        evicted[set]++;
    }
    keys->flow[way] = key;
    first[way] = (struct handshake){ .syn_ns = p->ts_ns, .client = client, .next = next, .data_len = data_len, .syns = syns };
}

/* Reports a handshake that took long. `outer` is the packet as its outermost IP header describes it. */
static __attribute__((noinline)) void report_slow(const struct weir_packet *p, const struct weir_packet *outer, const struct handshake *h,
                                                  int64_t rtt_ns)
{
    const struct weir_ip client = weir_src(p), server = weir_dst(p);
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    WEIR_ADD(&text, "Slow TCP handshake of ");
    weir_add_ip(&text, client);
    WEIR_ADD(&text, " with ");
    weir_add_ip(&text, server);
    WEIR_ADD(&text, ", port ");
    weir_add_number(&text, p->dst_port);
    WEIR_ADD(&text, ": ");
    weir_add_number(&text, (uint64_t)rtt_ns / 1000000);
    WEIR_ADD(&text, " ms, ");
    weir_add_number(&text, h->syns);
    WEIR_ADD(&text, " SYN");
    /* A filter cannot look into a tunnel. There it selects the packets between the tunnel's ends. */
    const bool is_plain = p == outer;
    weir_add_encapsulation(&filter, p);
    if (is_plain) {
        WEIR_ADD(&filter, "tcp port ");
        weir_add_number(&filter, p->dst_port);
        WEIR_ADD(&filter, " and ");
    }
    WEIR_ADD(&filter, "host ");
    weir_add_ip(&filter, is_plain ? client : weir_src(outer));
    WEIR_ADD(&filter, " and host ");
    weir_add_ip(&filter, is_plain ? server : weir_dst(outer));
    const struct findings_row row = {
        .time = p->ts_ns,
        /* A repeated SYN hints at loss or an overloaded server. */
        .severity = h->syns > 1 ? WEIR_LOW : WEIR_INFORMATIONAL,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("rtts", 4),
    };
    emit_findings(&row);
}

/* Handles any other packet of a flow whose handshake is pending. */
static void continued(const struct weir_packet *p, const struct weir_packet *outer, uint32_t set, uint32_t way)
{
    struct handshake *h = &handshakes[(size_t)set * WAYS + way];
    if (p->tcp_flags & WEIR_TCP_RST) {
        sets[set].flow[way] = 0;
        return;
    }
    const uint64_t from = side(p, true);
    const uint32_t seq = weir_tcp_seq(p), ack = weir_tcp_ack(p);
    if (p->tcp_flags & WEIR_TCP_SYN) {
        /* SYN-ACK: the first one after the last SYN counts, and it must acknowledge that SYN. */
        if (!h->synack_seen && from != h->client && ack - h->next <= h->data_len) {
            h->synack_ns = p->ts_ns;
            h->synack_next = seq + 1;
            h->synack_seen = true;
        }
        return;
    }
    if (from != h->client || seq - h->next > h->data_len || (h->synack_seen && ack != h->synack_next))
        return;

    const int64_t rtt_ns = (int64_t)(p->ts_ns - h->syn_ns), slow_ns = param_slow();
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = weir_community_id(p, 0, community_id);
    struct rtts_row row = {
        .time = p->ts_ns,
        .src_port = p->src_port,
        .dst_port = p->dst_port,
        .vlan = weir_vlan(p),
        .has_vlan = (p->flags & WEIR_VLAN) != 0,
        .tunnel = weir_tunnel_name(is_outer ? WEIR_TUNNEL_NONE : p->tunnel),
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .rtt_ns = rtt_ns,
        .server_rtt_ns = (int64_t)(h->synack_ns - h->syn_ns),
        .has_server_rtt_ns = h->synack_seen,
        .syn_packets = h->syns,
        .evicted = evicted[set],
    };
    weir_ip_src(p, row.src);
    weir_ip_dst(p, row.dst);
    emit_rtts(&row);
    if (slow_ns != 0 && rtt_ns >= slow_ns)
        report_slow(p, outer, h, rtt_ns);
    evicted[set] = 0;
    sets[set].flow[way] = 0;
}

/* Out of line, so that most packets pass by a short function. */
static __attribute__((noinline)) void handshake(const struct weir_packet *p, const struct weir_packet *outer)
{
    const uint64_t key = p->flow_hash | 1;
    const uint32_t set = (uint32_t)(p->flow_hash >> set_shift);
    if ((p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_ACK | WEIR_TCP_RST)) == WEIR_TCP_SYN) {
        opened(p, set, key);
        return;
    }
    for (uint32_t way = 0; way < WAYS; way++)
        if (sets[set].flow[way] == key) {
            continued(p, outer, set, way);
            return;
        }
}

/* Returns false for a packet that is in no handshake, whatever its flow. */
WEIR_INLINE bool packet(const struct weir_packet *p, const struct weir_packet *outer)
{
    const uint32_t tcp = p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_ACK | WEIR_TCP_RST);
    if (tcp == 0 || (p->flags & WEIR_L4) == 0)
        return false;
    const uint64_t key = p->flow_hash | 1;
    const uint64_t *flow = sets[p->flow_hash >> set_shift].flow;
    const bool pending = (flow[0] == key) | (flow[1] == key) | (flow[2] == key) | (flow[3] == key);
    if (WEIR_UNLIKELY(pending | (tcp == WEIR_TCP_SYN)))
        handshake(p, outer);
    return true;
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    packet(weir_innermost(p, &room), p);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* No tunnel is carried over TCP, so most packets need no test for one. */
    if (!packet(p, p) && WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    return WEIR_PASS;
}
