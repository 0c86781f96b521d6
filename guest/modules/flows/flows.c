/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * flows: bidirectional flows with active and idle timeout (RFC 5470, RFC 5103), TCP states and histories by the rules of Zeek
 * (scripts/base/protocols/conn/main.zeek and TCPSessionAdapter.cc of https://github.com/zeek/zeek), retransmissions, and times of
 * handshakes as in the module rtt.
 *
 * The table consists of sets of WAYS entries, in 64 parts. The TOP bits of the flow hash choose the part. So instances that share the
 * flows by those bits never share a set, and rows do not depend on the number of instances. A flow can be in one of two sets of its
 * part, so that the table can be nearly full. A byte of the hash for each entry finds it in its set; addresses, protocol and
 * ports are then compared, so flows with equal hashes stay apart. What most packets need is in two cache lines: that of the set, and
 * that of the flow.
 */
#include "weir.h"
#include "module.h"
#include "flow.h"
#include "tcp.h"

enum {
    WAYS = 12,
    PARTS = 64, /* parts of the table: the six upper bits of the flow hash choose the instance */
    SWEEP = 1366, /* sets that a tick looks at: 16,392 entries */
    REST = 16384, /* entries that a call of weir_rest looks at */
    ICMP = 1,
    TCP = 6,
    UDP = 17,
    ICMP_V6 = 58,
    SCTP = 132,
    NO_NEXT_HEADER = 59,
};

#define LINGER_NS INT64_C(5000000000) /* tcp_close_delay of Zeek */

enum { NONE = 0, FREE = 0xFFFF /* kind of a place without a flow */ };

/* A set: a cache line that says where its flows are. */
struct set {
    uint8_t tags[16]; /* a byte of the hash of each flow; 0: free. The last four are not used. */
    uint32_t entries[WAYS];
};

_Static_assert(sizeof(struct set) == 64, "one cache line");

static struct set *sets;
/* Flows lie in the order in which they came, so a few flows are in few pages of memory. */
static struct flow *flows;
static struct detail *details;
static uint32_t flow_count;  /* places that were ever used; the place NONE has no flow */
static uint32_t first_free;  /* a place that is free again; the next one is in its `ends` */
static uint32_t set_count, part_sets, sweep_next;
static int64_t active_ns;
static bool is_outer;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    active_ns = param_active() != 0 ? param_active() : INT64_MAX;
    part_sets = (uint32_t)((param_table_size() + PARTS * WAYS - 1) / (PARTS * WAYS));
    set_count = part_sets * PARTS;
    sets = weir_alloc(set_count * (uint32_t)sizeof *sets);
    flows = weir_alloc((set_count * WAYS + 1) * (uint32_t)sizeof *flows);
    details = weir_alloc((set_count * WAYS + 1) * (uint32_t)sizeof *details);
    if (sets == NULL || flows == NULL || details == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    flows[NONE].kind = FREE;
    flow_count = NONE + 1;
    return 0;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Writes the Community ID of a flow: that of a packet that is put together from the flow. Returns its length, or 0. */
static uint32_t community_id(const struct flow *f, const struct detail *d, uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    enum { L4_AT = 40 };
    static uint8_t packet[L4_AT + 8];
    const bool is_v6 = (f->kind & IS_V6) != 0;
    uint8_t ends[2][16];
    weir_ip_store(ends[0], d->src);
    weir_ip_store(ends[1], d->dst);
    if (is_v6) {
        weir_copy(packet + 8, ends[0], 16);
        weir_copy(packet + 24, ends[1], 16);
    } else {
        weir_copy(packet + 12, ends[0] + 12, 4);
        weir_copy(packet + 16, ends[1] + 12, 4);
    }
    const uint8_t protocol = (uint8_t)f->kind;
    const uint16_t src_port = (uint16_t)f->ports, dst_port = (uint16_t)(f->ports >> 16);
    if (protocol == SCTP) {
        packet[L4_AT] = (uint8_t)(src_port >> 8);
        packet[L4_AT + 1] = (uint8_t)src_port;
        packet[L4_AT + 2] = (uint8_t)(dst_port >> 8);
        packet[L4_AT + 3] = (uint8_t)dst_port;
    } else {
        packet[L4_AT] = (uint8_t)src_port;
        packet[L4_AT + 1] = (uint8_t)dst_port;
    }
    const struct weir_packet p = {
        .data = weir_string(packet, sizeof packet).ptr,
        .cap_len = sizeof packet,
        .flags = (is_v6 ? WEIR_IPV6 : WEIR_IPV4) | ((f->kind & HAS_PORTS) ? WEIR_L4 : 0),
        .l4_offset = L4_AT,
        .payload_len = 4,
        .src_port = src_port,
        .dst_port = dst_port,
        .ip_proto = protocol,
    };
    return weir_community_id(&p, 0, out);
}

enum reason { END, IDLE, ACTIVE, REUSED, EVICTED, STOP };

static struct weir_str reason_name(enum reason reason)
{
    switch (reason) {
    case END: return weir_string("end", 3);
    case IDLE: return weir_string("idle", 4);
    case ACTIVE: return weir_string("active", 6);
    case REUSED: return weir_string("reused", 6);
    case EVICTED: return weir_string("evicted", 7);
    default: return weir_string("stop", 4);
    }
}

/* Emits the row of a flow; false if the host takes no more rows of this call. */
static __attribute__((noinline)) bool report(uint32_t entry, enum reason reason)
{
    const struct flow *f = &flows[entry];
    const struct detail *d = &details[entry];
    uint8_t id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = community_id(f, d, id);
    const bool has_ports = (f->kind & HAS_PORTS) != 0;
    /* Fragments and cut headers give no TCP state. */
    const bool is_tcp = (uint8_t)f->kind == TCP && d->history_len != 0;
    struct closed_row row = {
        .time = f->last_ns,
        .start_time = f->start_ns,
        .duration_ns = (int64_t)(f->last_ns - f->start_ns),
        .src_port = (uint16_t)f->ports,
        .has_src_port = has_ports,
        .dst_port = (uint16_t)(f->ports >> 16),
        .has_dst_port = has_ports,
        .protocol = (uint8_t)f->kind,
        .vlan = d->vlan,
        .has_vlan = (d->flags & HAS_VLAN) != 0,
        .tunnel = weir_tunnel_name(d->tunnel),
        .has_community_id = id_len != 0,
        .source_packets = f->packets[0],
        .source_bytes = f->bytes[0],
        .destination_packets = f->packets[1],
        .destination_bytes = f->bytes[1],
        .has_conn_state = is_tcp,
        .has_history = is_tcp,
        .source_retransmitted_packets = d->retransmitted[0],
        .has_source_retransmitted_packets = is_tcp,
        .destination_retransmitted_packets = d->retransmitted[1],
        .has_destination_retransmitted_packets = is_tcp,
        .rtt_ns = d->rtt_ns,
        .has_rtt_ns = (d->flags & HAS_RTT) != 0,
        .server_rtt_ns = d->server_rtt_ns,
        .has_server_rtt_ns = (d->flags & HAS_SERVER_RTT) != 0,
        .reason = reason_name(reason),
    };
    /* An address in a null field would differ between instances, and so would the order of rows of a tick, which weir sorts by their bytes. */
    if (id_len != 0)
        row.community_id = weir_string(id, id_len);
    if (is_tcp) {
        row.conn_state = conn_state(d);
        row.history = weir_string(d->history, d->history_len);
    }
    weir_ip_store(row.src, d->src);
    weir_ip_store(row.dst, d->dst);
    return emit_closed(&row) != WEIR_FULL;
}

/* True if a flow is over at a time. Time that goes backwards ends nothing. */
static inline bool is_over(const struct flow *f, uint64_t now)
{
    const int64_t quiet = (int64_t)(now - f->last_ns);
    return quiet > param_idle() || ((f->bits & ENDED) && quiet > LINGER_NS);
}

static inline enum reason over_reason(const struct flow *f)
{
    return (f->bits & ENDED) ? END : IDLE;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

/* What distinguishes a flow. */
struct identity {
    uint64_t ends;
    uint32_t ports;
    uint32_t kind;
};

static inline uint8_t tag_of(uint64_t hash)
{
    const uint8_t low = (uint8_t)hash;
    return low != 0 ? low : 1;
}

/* Returns the identity of a packet. */
static struct identity identify(const struct weir_packet *p)
{
    const uint8_t protocol = p->ip_proto;
    const uint8_t *ip = weir_l3(p);
    struct identity id = { .kind = protocol, .ports = p->src_port | (uint32_t)p->dst_port << 16 };
    if (p->flags & WEIR_IPV6) {
        id.kind |= IS_V6;
    } else {
        id.ends = weir_le64(ip + 12);
    }
    if (p->flags & WEIR_FRAGMENT) {
        /* Later fragments have no ports, and the first one may come after them. */
        id.kind |= IS_FRAGMENT;
        id.ports = 0;
    } else if (protocol == TCP || protocol == UDP) {
        if ((p->flags & WEIR_L4) || id.ports != 0)
            id.kind |= HAS_PORTS;
    } else if ((protocol == ICMP || protocol == ICMP_V6 || protocol == SCTP) && (p->flags & WEIR_L4) && p->l4_offset + 4u <= p->cap_len) {
        const uint8_t *header = weir_l4(p);
        id.kind |= HAS_PORTS;
        if (protocol == SCTP) {
            id.ports = weir_be16(header) | (uint32_t)weir_be16(header + 2) << 16;
        } else {
            const int32_t counterpart = weir_icmp_counterpart(protocol == ICMP_V6, header[0]);
            if (counterpart < 0)
                id.kind |= IS_ONE_WAY;
            id.ports = header[0] | (counterpart < 0 ? header[1] : (uint32_t)counterpart) << 16;
        }
    }
    return id;
}

/* Returns the ways of a set with a tag, as bits. */
static inline uint32_t ways_with(const struct set *set, uint8_t tag)
{
    return weir_same16(weir_load16(set->tags), weir_splat16(tag)) & ((1 << WAYS) - 1);
}

/* Returns a set of the part that the upper bits of the hash choose, by other bits of it. */
static inline uint32_t set_of(uint64_t hash, uint32_t bits)
{
    return (uint32_t)(hash >> 58) * part_sets + (uint32_t)((uint64_t)bits * part_sets >> 32);
}

/* The two sets in which a flow may be. */
static inline uint32_t first_set(uint64_t hash) { return set_of(hash, (uint32_t)(hash >> 26)); }
static inline uint32_t second_set(uint64_t hash) { return set_of(hash, (uint32_t)hash); }

static inline bool has_ends(const struct detail *d, struct weir_ip src, struct weir_ip dst)
{
    return ((d->src.first ^ src.first) | (d->src.last ^ src.last) | (d->dst.first ^ dst.first) | (d->dst.last ^ dst.last)) == 0;
}

/* Finds a flow in a set. Returns its entry and the side that sent the packet as entry * 2 + side; -1 if the flow is not there. */
static int64_t find(const struct weir_packet *p, const struct set *set, const struct identity *id)
{
    const uint64_t back = id->ends << 32 | id->ends >> 32;
    const uint32_t back_ports = id->ports << 16 | id->ports >> 16;
    uint32_t ways = ways_with(set, tag_of(p->flow_hash));
    WEIR_WHILE(WAYS, ways != 0) {
        const uint32_t entry = set->entries[__builtin_ctz(ways)];
        const struct flow *f = &flows[entry];
        ways &= ways - 1;
        if (f->kind != id->kind)
            continue;
        bool is_same = (f->ends == id->ends) & (f->ports == id->ports);
        bool is_back = (f->ends == back) & (f->ports == back_ports) & !(id->kind & IS_ONE_WAY);
        if (!(is_same | is_back))
            continue;
        if (id->kind & IS_V6) {
            const struct weir_ip src = weir_src(p), dst = weir_dst(p);
            is_same &= has_ends(&details[entry], src, dst);
            is_back &= has_ends(&details[entry], dst, src);
            if (!(is_same | is_back))
                continue;
        }
        return (int64_t)entry * 2 + !is_same;
    }
    return -1;
}

/* Begins a flow with its first packet. Returns the side of the packet. */
static uint32_t begin(const struct weir_packet *p, uint32_t entry, const struct identity *id)
{
    struct flow *f = &flows[entry];
    struct detail *d = &details[entry];
    const uint32_t syn_ack = WEIR_TCP_SYN | WEIR_TCP_ACK;
    const bool is_answer = (p->tcp_flags & syn_ack) == syn_ack && (p->flags & WEIR_L4) && !(id->kind & IS_FRAGMENT);
    const struct weir_ip src = weir_src(p), dst = weir_dst(p);
    *f = (struct flow){
        .last_ns = p->ts_ns,
        .start_ns = p->ts_ns,
        .ends = is_answer ? id->ends << 32 | id->ends >> 32 : id->ends,
        .ports = is_answer ? id->ports << 16 | id->ports >> 16 : id->ports,
        .kind = (uint16_t)id->kind,
    };
    *d = (struct detail){
        .src = is_answer ? dst : src,
        .dst = is_answer ? src : dst,
        .vlan = weir_vlan(p),
        .flags = (p->flags & WEIR_VLAN) ? HAS_VLAN : 0,
        .tunnel = is_outer ? 0 : p->tunnel,
    };
    if (is_answer)
        add_letter(d, 0, '^');
    return is_answer;
}

/* Finds a place for a new flow: a free one; else that of a flow that is over, or that has ended, or that was quiet for the longest time. */
static __attribute__((noinline)) uint32_t place(const struct weir_packet *p, struct set *first, struct set *second)
{
    /* The second set is used once the first one is half full: most flows are then found at once, and a table may be nearly full. */
    const uint32_t first_ways = ways_with(first, 0), second_ways = ways_with(second, 0);
    const uint32_t first_room = (uint32_t)__builtin_popcount(first_ways);
    const bool is_first = first_room >= WAYS / 2 || first_room >= (uint32_t)__builtin_popcount(second_ways);
    struct set *set = is_first ? first : second;
    const uint32_t free = is_first ? first_ways : second_ways;
    const uint8_t tag = tag_of(p->flow_hash);
    if (WEIR_LIKELY(free != 0)) {
        const uint32_t way = (uint32_t)__builtin_ctz(free);
        uint32_t entry = flow_count;
        if (first_free != NONE) {
            entry = first_free;
            first_free = (uint32_t)flows[entry].ends;
        } else {
            flow_count++;
        }
        set->tags[way] = tag;
        set->entries[way] = entry;
        return entry;
    }
    uint32_t way = 0;
    bool way_ended = false;
    uint64_t way_last_ns = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        const struct flow *f = &flows[set->entries[i]];
        const bool ended = (f->bits & ENDED) != 0;
        if (i == 0 || ended > way_ended || (ended == way_ended && f->last_ns < way_last_ns)) {
            way = i;
            way_ended = ended;
            way_last_ns = f->last_ns;
        }
    }
    const uint32_t entry = set->entries[way];
    const struct flow *f = &flows[entry];
    report(entry, way_ended || is_over(f, p->ts_ns) ? over_reason(f) : EVICTED);
    set->tags[way] = tag;
    return entry;
}

/* Ends a flow before its next packet if it is over, gets a row for `active`, or a new connection uses its addresses and ports.
 * Returns the side of the packet. */
static uint32_t turn(const struct weir_packet *p, uint32_t entry, uint32_t side, const struct identity *id)
{
    struct flow *f = &flows[entry];
    struct detail *d = &details[entry];
    const bool has_segment = (uint8_t)id->kind == TCP && (p->flags & WEIR_L4) && !(id->kind & IS_FRAGMENT);
    if (is_over(f, p->ts_ns)) {
        report(entry, over_reason(f));
        return begin(p, entry, id);
    }
    if (has_segment && (p->tcp_flags & WEIR_TCP_SYN) && is_reuse(d, p)) {
        report(entry, (f->bits & ENDED) ? END : REUSED);
        return begin(p, entry, id);
    }
    const uint32_t most = f->packets[0] > f->packets[1] ? f->packets[0] : f->packets[1];
    if ((int64_t)(p->ts_ns - f->start_ns) >= active_ns || most == UINT32_MAX) {
        report(entry, ACTIVE);
        f->start_ns = p->ts_ns;
        f->packets[0] = f->packets[1] = 0;
        f->bytes[0] = f->bytes[1] = 0;
        d->retransmitted[0] = d->retransmitted[1] = 0;
    }
    return side;
}

/* Counts any packet. `hash` chooses the set. */
static void count(const struct weir_packet *p, uint64_t hash)
{
    struct set *first = &sets[first_set(hash)], *second = &sets[second_set(hash)];
    const struct identity id = identify(p);
    const uint8_t *ip = weir_l3(p);
    uint32_t len = weir_be16(ip + ((p->flags & WEIR_IPV4) ? 2 : 4));
    if (len == 0 && ((p->flags & WEIR_IPV4) || ip[6] != NO_NEXT_HEADER))
        len = p->wire_len - p->l3_offset; /* left to the network card, or a jumbogram */
    else if (p->flags & WEIR_IPV6)
        len += 40;

    int64_t found = find(p, first, &id);
    if (found < 0)
        found = find(p, second, &id);
    uint32_t entry, side;
    struct flow *f;
    if (found >= 0) {
        entry = (uint32_t)(found >> 1);
        side = turn(p, entry, (uint32_t)found & 1, &id);
        f = &flows[entry];
        f->last_ns = p->ts_ns > f->last_ns ? p->ts_ns : f->last_ns;
    } else {
        entry = place(p, first, second);
        side = begin(p, entry, &id);
        f = &flows[entry];
    }
    f->packets[side]++;
    f->bytes[side] += len;
    if ((p->flags & (WEIR_TCP | WEIR_L4 | WEIR_FRAGMENT)) != (WEIR_TCP | WEIR_L4))
        return;
    const uint32_t headers = (uint32_t)p->payload_offset - p->l3_offset;
    track(p, f, &details[entry], side, len > headers ? len - headers : 0);
}

/* Counts a packet of the usual kind in a flow that is there, if nothing but counts and the next sequence number change. */
static inline __attribute__((always_inline)) bool count_plain(const struct weir_packet *p, uint32_t entry, bool is_v6)
{
    const uint32_t is_tcp = (p->flags & WEIR_TCP) != 0;
    const uint8_t *ip = weir_l3(p);
    struct flow *f = &flows[entry];
    const uint32_t ports = weir_le32(&p->src_port), back_ports = ports << 16 | ports >> 16;
    uint32_t is_same = f->ports == ports, is_back = f->ports == back_ports;
    if (is_v6) {
        const struct weir_ip src = weir_ip_v6(ip + 8), dst = weir_ip_v6(ip + 24);
        is_same &= has_ends(&details[entry], src, dst);
        is_back &= has_ends(&details[entry], dst, src);
    } else {
        const uint64_t ends = weir_le64(ip + 12), back = ends << 32 | ends >> 32;
        is_same &= f->ends == ends;
        is_back &= f->ends == back;
    }
    const uint32_t length = weir_be16(ip + (is_v6 ? 4 : 2)), len = length + (is_v6 ? 40 : 0);
    const uint32_t side = is_same ^ 1, kind = p->ip_proto | (uint32_t)HAS_PORTS | (is_v6 ? IS_V6 : 0), headers = (uint32_t)p->payload_offset - p->l3_offset;
    const uint32_t payload = len > headers ? len - headers : 0, seq = weir_be32(weir_l4(p) + 4), next = f->next[side];
    const int64_t quiet = (int64_t)(p->ts_ns - f->last_ns);
    const uint32_t is_known = (is_same | is_back) & (f->kind == kind) & (quiet <= param_idle())
        & ((int64_t)(p->ts_ns - f->start_ns) < active_ns) & (f->packets[side] != UINT32_MAX) & (length != 0);
    const uint32_t is_quick = (uint32_t)(f->bits >> (2 * side + (payload != 0))) & ((p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_FIN | WEIR_TCP_RST)) == 0)
        & ((payload == 0) | ((int32_t)(seq - next) >= 0)) & ((f->bits & ENDED) == 0);
    if (WEIR_UNLIKELY((is_known & (is_quick | (is_tcp ^ 1))) == 0))
        return false;
    f->last_ns = quiet > 0 ? p->ts_ns : f->last_ns;
    f->packets[side]++;
    f->bytes[side] += len;
    const uint32_t end = seq + payload;
    f->next[side] = (is_tcp & ((int32_t)(end - next) > 0)) ? end : next;
    return true;
}

/* Counts a packet that count_plain does not. */
static __attribute__((noinline)) void count_other(const struct weir_packet *p)
{
    if (!weir_is_ip(p))
        return;
    if (p->tunnel == WEIR_TUNNEL_NONE || is_outer) {
        count(p, p->flow_hash);
        return;
    }
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    count(q, q->flow_hash);
}

/* Reads the sets of a group of packets ahead, and then their flows. */
static __attribute__((noinline)) void read_group_ahead(const struct weir_packet *group)
{
    for (uint32_t i = 0; i < WEIR_GROUP; i++)
        weir_read_ahead(&sets[first_set(group[i].flow_hash)]);
    for (uint32_t i = 0; i < WEIR_GROUP; i++) {
        const struct set *set = &sets[first_set(group[i].flow_hash)];
        const uint32_t ways = ways_with(set, tag_of(group[i].flow_hash)) | 1 << (WAYS - 1);
        weir_read_ahead(&flows[set->entries[__builtin_ctz(ways)]]);
    }
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const struct weir_packet *group = weir_new_group(p);
    if (WEIR_UNLIKELY(group != NULL))
        read_group_ahead(group);
    const uint8_t tag = tag_of(p->flow_hash);
    const struct set *set = &sets[first_set(p->flow_hash)];
    uint32_t ways = ways_with(set, tag);
    if (WEIR_UNLIKELY(ways == 0)) {
        set = &sets[second_set(p->flow_hash)];
        ways = ways_with(set, tag);
    }
    const uint32_t entry = ways != 0 ? set->entries[__builtin_ctz(ways)] : NONE;
    const uint32_t layers = p->flags & (WEIR_IPV4 | WEIR_IPV6 | WEIR_L4 | WEIR_FRAGMENT);
    const bool is_plain = (p->flags & (WEIR_TCP | WEIR_UDP)) && (p->tunnel == WEIR_TUNNEL_NONE || is_outer);
    bool is_counted = false;
    if (is_plain && layers == (WEIR_IPV4 | WEIR_L4))
        is_counted = count_plain(p, entry, false);
    else if (is_plain && layers == (WEIR_IPV6 | WEIR_L4))
        is_counted = count_plain(p, entry, true);
    if (WEIR_UNLIKELY(!is_counted))
        count_other(p);
    return WEIR_PASS;
}

/* Emits the flows that are over, in a part of the table. Packets find out themselves; this is for flows without further packets. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    for (uint32_t i = 0; i < SWEEP && i < set_count; i++) {
        struct set *set = &sets[sweep_next];
        sweep_next = sweep_next + 1 < set_count ? sweep_next + 1 : 0;
        if (ways_with(set, 0) == (1 << WAYS) - 1)
            continue;
        for (uint32_t way = 0; way < WAYS; way++) {
            const uint32_t entry = set->entries[way];
            if (set->tags[way] != 0 && is_over(&flows[entry], now)) {
                report(entry, over_reason(&flows[entry]));
                set->tags[way] = 0;
                flows[entry].kind = FREE;
                flows[entry].ends = first_free;
                first_free = entry;
            }
        }
    }
}

/* Emits the flows that are left at the end, of a part of the table in each call. */
WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    static uint32_t next;
    const uint32_t places = set_count * WAYS;
    for (uint32_t i = 0; i < REST && next < places; i++, next++) {
        const struct set *set = &sets[next / WAYS];
        const uint32_t entry = set->entries[next % WAYS];
        if (set->tags[next % WAYS] == 0)
            continue;
        const struct flow *f = &flows[entry];
        report(entry, (f->bits & ENDED) || is_over(f, now) ? over_reason(f) : STOP);
    }
    return next < places;
}
