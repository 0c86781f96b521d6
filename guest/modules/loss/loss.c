/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * loss: retransmission, reordering, duplicate acknowledgements and zero windows of TCP connections, for IPv4 and IPv6. The rules are those of
 * Wireshark's analysis of sequence numbers ("TCP Analysis" in its User's Guide), without its list of segments, so that the state of a
 * connection has a constant size. README.md has all rules.
 *
 * Connections are in sets of WAYS entries. A set is found by the TOP bits of the flow hash, so that instances that share the flows by
 * those bits never share a set, and their rows do not depend on how many there are.
 */
#include "weir.h"
#include "module.h"

enum {
    WAYS = 8,
    SWEEP_SETS = 2048, /* sets that a tick looks at */
    REST = 16384, /* entries that a call of weir_rest looks at */
    SLICES = 64,       /* parts of the hash space with a limit of findings each */
};

#define TIME_BITS 40
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)
#define SECOND UINT64_C(1000000000)
#define FINDING_GAP (60 * SECOND)
/* A retransmission is fast if it follows the last duplicate acknowledgement within this time. */
#define FAST (20 * 1000 * 1000)
/* Without a handshake, a segment is out of order if it follows the highest one within this time. */
#define REORDERED (3 * 1000 * 1000)
/* A closed connection has ended after this time, in which its last packets still count. */
#define LINGER (5 * SECOND)

/* A set: a cache line. */
struct set {
    uint16_t tag[WAYS];  /* 16 bits of the flow hash */
    uint16_t seen[WAYS]; /* time of the last packet in units of 2^27 ns, shifted by one; the last bit: both ends were seen */
    uint32_t cell[WAYS]; /* number of the entry, from 1; above it 11 more bits of the flow hash. 0: free */
};
_Static_assert(sizeof(struct set) == 64, "a cache line");
enum { ENTRY_BITS = 21, ENTRY_MASK = (1 << ENTRY_BITS) - 1 };
/* An active connection whose both ends were seen keeps its entry for this time (a second) against new ones; one that is evicted within the
 * other time (ten seconds) counts as lost. Both in units of `seen`. */
enum { HELD = 8, ACTIVE = 75 };

/* Bits of `state` of a direction. */
enum { HAS_NEXT = 1, HAS_ACK = 2, KEEP_ALIVE = 4, WINDOW_PROBE = 8, HAS_ISN = 16, HAS_FIN = 32 };

/* What one end sent. Times have 40 bits: `low` and `high`. */
struct direction {
    uint32_t next; /* highest sequence number so far, plus one */
    uint32_t ack;  /* last acknowledgement number */
    uint32_t next_low, last_low; /* times of the segment with the highest number, and of the last packet */
    uint32_t packets, data_packets;
    uint16_t window;
    uint8_t next_high, last_high;
    uint8_t duplicates; /* duplicate acknowledgements in a row, at most 255 */
    uint8_t state;
    uint8_t headers[2]; /* around IP, for filters: of end 0 the numbers of VLAN tags and MPLS labels; of end 1 whether there is PPPoE, and the outermost tunnel */
};

enum { RETRANSMITTED, FAST_RETRANSMITTED, SPURIOUS, OUT_OF_ORDER, GAP, DUPLICATE_ACK, ZERO_WINDOW, EVENTS };

enum { HAS_CLIENT = 1, CLIENT = 2, HAS_SYN_TIME = 4, HAS_RTT = 8, WAS_RESET = 16, HAS_EVENTS = 32, HAS_VLAN = 64 };

/* A connection. The end with the lower port is end 0; with equal ports that with the lower address. */
struct connection {
    /* The first cache line is all that most packets need. */
    struct direction from[2];
    /* The second one counts events. */
    uint32_t events[2][EVENTS];
    uint32_t isn[2]; /* sequence numbers of the SYN packets */
    /* The third one has what rows need. */
    struct weir_ip ip[2];
    uint16_t port[2];
    uint16_t vlan;
    uint8_t tunnel;
    uint8_t state;
    uint32_t set;   /* number of its set; of a free entry the next free one */
    uint32_t check; /* upper half of the flow hash */
    uint64_t start; /* time of the first packet that the counts contain */
    uint64_t rtt;   /* of the handshake, with HAS_RTT; time of the last SYN, with HAS_SYN_TIME */
};
_Static_assert(sizeof(struct direction) == 32 && sizeof(struct connection) == 192, "three cache lines");

static struct set *sets;
/* Entries are handed out in order, so that few connections touch little memory. */
static struct connection *connections;
static uint32_t connections_begun, first_free; /* entries that were ever used; a free one of them, from 1, or 0 */
static uint32_t *evicted;                      /* one for each set */
static uint32_t set_shift, sweep_at;
static uint64_t *occupied; /* a bit for each set: it may have entries */

/* A finding of each slice of the connections, at most one a minute: emitting it is put off, so that a tick with many rows is bounded. */
static struct finding {
    uint64_t time;          /* of the last one, plus one; 0: none yet */
    struct connection copy; /* what it is about */
    bool is_pending, is_window;
    uint8_t from;
} slices[SLICES];
static bool is_outer;
static uint8_t outermost_tunnel; /* of the packet; valid in a tunnel */

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    /* As many sets as the entries need, rounded up to a power of two. */
    const uint32_t set_bits = 64 - (uint32_t)__builtin_clzll((param_table_size() - 1) / WAYS);
    const uint32_t count = 1u << set_bits;
    set_shift = 64 - set_bits;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    connections = weir_alloc(count * WAYS * (uint32_t)sizeof *connections);
    evicted = weir_alloc(count * (uint32_t)sizeof *evicted);
    occupied = weir_alloc(count / 8);
    if (sets == NULL || connections == NULL || evicted == NULL || occupied == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

/* Returns the Community ID's length, computed from a connection's ends. */
static uint32_t community_id_of(const struct connection *c, uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    static uint8_t header[40];
    const bool is_v4 = weir_ip_is_v4(c->ip[0]) && weir_ip_is_v4(c->ip[1]);
    for (uint32_t end = 0; end < 2; end++) {
        uint8_t address[16];
        weir_ip_store(address, c->ip[end]);
        if (is_v4)
            weir_copy(header + 12 + 4 * end, address + 12, 4);
        else
            weir_copy(header + 8 + 16 * end, address, 16);
    }
    const struct weir_packet p = {
        .data = weir_string(header, sizeof header).ptr,
        .flags = (is_v4 ? WEIR_IPV4 : WEIR_IPV6) | WEIR_TCP | WEIR_L4,
        .src_port = c->port[0],
        .dst_port = c->port[1],
        .ip_proto = 6,
    };
    return weir_community_id(&p, 0, out);
}

/* Returns the number of the client's end. */
static inline uint32_t client_of(const struct connection *c)
{
    return (c->state & HAS_CLIENT) ? (c->state & CLIENT) != 0 : 1;
}

/* Returns a whole time from its lower bits; it is at most half of their range before or after `now`. */
static inline uint64_t whole(uint64_t now, uint32_t low, uint8_t high)
{
    const uint64_t behind = (now - ((uint64_t)high << 32 | low)) & TIME_MASK;
    return behind >> (TIME_BITS - 1) == 0 ? now - behind : now + ((TIME_MASK + 1) - behind);
}

/* Returns the time of a connection's last packet. */
static inline uint64_t last_of(const struct connection *c, uint64_t now)
{
    const struct direction *a = &c->from[0], *b = &c->from[1];
    const uint64_t first = whole(now, a->last_low, a->last_high), second = whole(now, b->last_low, b->last_high);
    if (b->packets == 0)
        return first;
    return a->packets == 0 || second > first ? second : first;
}

/* Returns the slice of a connection. It is part of its set's number: it does not depend on the number of instances. */
static inline struct finding *slice_of(uint32_t set) { return &slices[set >> (58 - set_shift) & (SLICES - 1)]; }

/* Reports what an operator should know about the packets of one end. */
static __attribute__((noinline)) void report_finding(struct finding *f)
{
    const struct connection *c = &f->copy;
    const uint32_t from = f->from;
    f->is_pending = false;
    const uint32_t server = 1 - client_of(c), packets = c->from[from].data_packets;
    const uint32_t again = c->events[from][RETRANSMITTED] - c->events[from][SPURIOUS];
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    if (f->is_window) {
        weir_add_ip(&text, c->ip[from]);
        WEIR_ADD(&text, " cannot keep up with ");
        weir_add_ip(&text, c->ip[1 - from]);
        WEIR_ADD(&text, ": it announced a zero window ");
        weir_add_number(&text, c->events[from][ZERO_WINDOW]);
        WEIR_ADD(&text, " times");
    } else {
        WEIR_ADD(&text, "Packets from ");
        weir_add_ip(&text, c->ip[from]);
        WEIR_ADD(&text, " to ");
        weir_add_ip(&text, c->ip[1 - from]);
        WEIR_ADD(&text, " get lost: ");
        weir_add_number(&text, again);
        WEIR_ADD(&text, " of ");
        weir_add_number(&text, packets);
        WEIR_ADD(&text, " were sent again");
    }
    WEIR_ADD(&text, " (the server's port is ");
    weir_add_number(&text, c->port[server]);
    WEIR_ADD(&text, ")");
    const struct weir_packet like = {
        .vlan_count = c->from[0].headers[0],
        .mpls_count = c->from[0].headers[1],
        .flags = c->from[1].headers[0] != 0 ? WEIR_PPPOE : 0,
    };
    weir_add_encapsulation(&filter, &like);
    if (c->tunnel != WEIR_TUNNEL_NONE) {
        weir_add_tunnel(&filter, c->from[1].headers[1]);
    } else {
        WEIR_ADD(&filter, "tcp port ");
        weir_add_number(&filter, c->port[0]);
        WEIR_ADD(&filter, " and port ");
        weir_add_number(&filter, c->port[1]);
        WEIR_ADD(&filter, " and host ");
        weir_add_ip(&filter, c->ip[0]);
        WEIR_ADD(&filter, " and host ");
        weir_add_ip(&filter, c->ip[1]);
    }
    const struct findings_row row = {
        .time = f->time - 1,
        .severity = f->is_window ? WEIR_INFORMATIONAL : WEIR_LOW,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("flows", 5),
    };
    emit_findings(&row);
}

static void emit_pending(uint32_t set)
{
    if (WEIR_UNLIKELY(slice_of(set)->is_pending))
        report_finding(slice_of(set));
}

/* Notes a finding about a connection's end, if there is one. */
static inline void find_faults(const struct connection *c, uint64_t time)
{
    struct finding *f = slice_of(c->set);
    if (f->time != 0 && time - (f->time - 1) < FINDING_GAP)
        return;
    for (uint32_t from = 0; from < 2; from++) {
        const uint32_t packets = c->from[from].data_packets, zero = c->events[from][ZERO_WINDOW];
        const uint32_t again = c->events[from][RETRANSMITTED] - c->events[from][SPURIOUS];
        const bool is_lossy = param_rate() > 0 && packets >= param_least() && again >= param_rate() * packets;
        const bool is_full = param_zero_windows() != 0 && zero >= param_zero_windows();
        if (is_lossy || is_full) {
            *f = (struct finding){ .time = time + 1, .copy = *c, .is_pending = true, .is_window = !is_lossy, .from = (uint8_t)from };
            return;
        }
    }
}

/* Reports a connection. False: the host takes no more rows. */
static __attribute__((noinline)) bool report(struct connection *c, uint64_t now, struct weir_str cause)
{
    const bool has_data = (c->from[0].data_packets | c->from[1].data_packets) != 0;
    if ((c->state & HAS_EVENTS) == 0 && !(param_all() && has_data))
        return true;
    const uint32_t client = client_of(c), server = 1 - client;
    const struct direction *a = &c->from[client], *b = &c->from[server];
    const uint32_t *a_events = c->events[client], *b_events = c->events[server];
    const uint64_t last = last_of(c, now);
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = community_id_of(c, community_id);
    struct flows_row row = {
        .time = last,
        .start_time = c->start,
        .src_port = c->port[client],
        .dst_port = c->port[server],
        .vlan = c->vlan,
        .has_vlan = (c->state & HAS_VLAN) != 0,
        .tunnel = weir_tunnel_name(c->tunnel),
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .handshake = (c->state & HAS_CLIENT) != 0,
        .cause = cause,
        .rtt_ns = (int64_t)c->rtt,
        .has_rtt_ns = (c->state & HAS_RTT) != 0,
        .client_packets = a->packets,
        .client_data_packets = a->data_packets,
        .client_retransmissions = a_events[RETRANSMITTED],
        .client_fast = a_events[FAST_RETRANSMITTED],
        .client_spurious = a_events[SPURIOUS],
        .client_reordered = a_events[OUT_OF_ORDER],
        .client_gaps = a_events[GAP],
        .client_duplicate_acks = a_events[DUPLICATE_ACK],
        .client_zero_windows = a_events[ZERO_WINDOW],
        .server_packets = b->packets,
        .server_data_packets = b->data_packets,
        .server_retransmissions = b_events[RETRANSMITTED],
        .server_fast = b_events[FAST_RETRANSMITTED],
        .server_spurious = b_events[SPURIOUS],
        .server_reordered = b_events[OUT_OF_ORDER],
        .server_gaps = b_events[GAP],
        .server_duplicate_acks = b_events[DUPLICATE_ACK],
        .server_zero_windows = b_events[ZERO_WINDOW],
        .evicted = evicted[c->set],
    };
    weir_ip_store(row.src, c->ip[client]);
    weir_ip_store(row.dst, c->ip[server]);
    if (emit_flows(&row) != WEIR_OK)
        return false;
    evicted[c->set] = 0;
    find_faults(c, last);
    return true;
}

/* ---- Table ------------------------------------------------------------------------------------------------------- */

static inline struct connection *entry_of(const struct set *set, uint32_t way) { return &connections[(set->cell[way] & ENTRY_MASK) - 1]; }

/* Gives an entry back, which was reported. */
static inline void give_up(struct set *set, uint32_t way)
{
    const uint32_t number = set->cell[way] & ENTRY_MASK;
    struct connection *c = &connections[number - 1];
    c->state = 0;
    c->set = first_free;
    first_free = number;
    set->cell[way] = 0;
    set->tag[way] = 0;
}

static inline uint16_t seen_at(uint64_t now) { return (uint16_t)(now >> 27 << 1); }

/* Makes an entry that of a packet's connection, without any history. */
static void reset(struct connection *c, const struct weir_packet *p, uint32_t set_number, uint32_t from)
{
    *c = (struct connection){ .check = (uint32_t)(p->flow_hash >> 32), .set = set_number, .start = p->ts_ns };
    c->ip[from] = weir_src(p);
    c->ip[1 - from] = weir_dst(p);
    c->port[from] = p->src_port;
    c->port[1 - from] = p->dst_port;
    c->vlan = weir_vlan(p);
    c->state |= (p->flags & WEIR_VLAN) ? HAS_VLAN : 0;
    c->from[0].headers[0] = p->vlan_count;
    c->from[0].headers[1] = p->mpls_count;
    c->from[1].headers[0] = (p->flags & WEIR_PPPOE) != 0;
    c->from[1].headers[1] = outermost_tunnel;
    c->tunnel = is_outer ? WEIR_TUNNEL_NONE : p->tunnel;
}

/* Begins an entry for a packet's connection. NULL: the set is full of active connections. */
static __attribute__((noinline)) struct connection *begin(const struct weir_packet *p, uint32_t set_number, uint32_t from)
{
    struct set *set = &sets[set_number];
    const uint16_t now = seen_at(p->ts_ns);
    /* A free way, else that of the longest silence among those whose other end was not seen, else among all. */
    uint32_t way = 0, best = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        const uint16_t silence = (uint16_t)((uint16_t)(now - (set->seen[i] & ~1u)) >> 1);
        const uint32_t age = silence < 0x4000 ? silence : 0; /* more: time stamps went back */
        const uint32_t rank = set->cell[i] == 0 ? 1u << 17 : (set->seen[i] & 1) == 0 ? age | 1u << 16 : age;
        if (i == 0 || rank > best) {
            way = i;
            best = rank;
        }
    }
    if ((best & 0xFFFF) < ACTIVE && best < 1u << 17)
        evicted[set_number]++;
    if (best < HELD)
        return NULL;
    if (set->cell[way] != 0) {
        report(entry_of(set, way), p->ts_ns, weir_string("evicted", 7));
        emit_pending(set_number);
        give_up(set, way);
    }
    uint32_t number = first_free;
    if (number != 0)
        first_free = connections[number - 1].set;
    else
        number = ++connections_begun;
    occupied[set_number / 64] |= UINT64_C(1) << (set_number % 64);
    set->tag[way] = (uint16_t)p->flow_hash;
    set->seen[way] = now;
    set->cell[way] = number | ((uint32_t)p->flow_hash >> 16) << ENTRY_BITS;
    struct connection *c = &connections[number - 1];
    reset(c, p, set_number, from);
    return c;
}

/* Returns the way of a flow in a set by all of its bits there, or WAYS. */
static __attribute__((noinline)) uint32_t find_slowly(const struct set *set, uint64_t hash)
{
    const uint32_t more = (uint32_t)hash >> 16 << ENTRY_BITS;
    for (uint32_t i = 0; i < WAYS; i++)
        if (set->tag[i] == (uint16_t)hash && set->cell[i] != 0 && ((set->cell[i] ^ more) >> ENTRY_BITS) == 0)
            return i;
    return WAYS;
}

/* Returns the way of a flow in a set, or WAYS. */
static inline uint32_t find(const struct set *set, uint64_t hash)
{
#ifdef __wasm_simd128__
    const v128_t same = wasm_i16x8_eq(wasm_v128_load(set->tag), wasm_i16x8_splat((int16_t)hash));
    const uint32_t ways = (uint32_t)wasm_i16x8_bitmask(same);
    if (ways == 0)
        return WAYS;
    const uint32_t way = (uint32_t)__builtin_ctz(ways), cell = set->cell[way];
    if (WEIR_LIKELY(cell != 0 && ((cell ^ (uint32_t)hash >> 16 << ENTRY_BITS) >> ENTRY_BITS) == 0))
        return way;
#endif
    return find_slowly(set, hash);
}

/* ---- Packets ----------------------------------------------------------------------------------------------------- */

/* What a packet tells. Functions out of line get a copy, so that it stays in registers where it is usual. */
struct segment {
    uint32_t seq, ack, len;
    uint16_t window;
};

static inline bool is_below(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

static __attribute__((noinline)) void count(const struct weir_packet *p, struct connection *c, uint32_t from, uint32_t event)
{
    /* With another connection of the same bits in the set, sequence numbers have no order. */
    if (c->check != (uint32_t)(p->flow_hash >> 32))
        return;
    c->events[from][event]++;
    c->state |= HAS_EVENTS;
}

/* Tells retransmission, reordering and gaps apart. */
static void find_kind(const struct weir_packet *p, struct connection *c, uint32_t from, const struct segment *s)
{
    const struct direction *mine = &c->from[from], *other = &c->from[1 - from];
    const bool has_next = (mine->state & HAS_NEXT) != 0;
    const bool is_flagged = (p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_FIN)) != 0;
    if (has_next && is_below(mine->next, s->seq) && (p->tcp_flags & WEIR_TCP_RST) == 0)
        count(p, c, from, GAP);
    if (s->len == 0 && !is_flagged)
        return;
    if (s->len > 0 && (other->state & HAS_ACK) && !is_below(other->ack, s->seq + s->len)) {
        count(p, c, from, RETRANSMITTED);
        count(p, c, from, SPURIOUS);
        return;
    }
    /* One byte before the expected number may be the probe of a zero window, which is followed by more. */
    const bool is_again = has_next && is_below(s->seq, mine->next) && !(s->len > 1 && mine->next - 1 == s->seq);
    if (!is_again)
        return;
    const uint64_t since_ack = (p->ts_ns - ((uint64_t)other->last_high << 32 | other->last_low)) & TIME_MASK;
    if (other->duplicates >= 2 && other->ack == s->seq && since_ack < FAST) {
        count(p, c, from, RETRANSMITTED);
        count(p, c, from, FAST_RETRANSMITTED);
        return;
    }
    const uint64_t since_next = (p->ts_ns - ((uint64_t)mine->next_high << 32 | mine->next_low)) & TIME_MASK;
    const uint64_t most = (c->state & HAS_RTT) && c->rtt != 0 ? c->rtt : REORDERED;
    count(p, c, from, since_next < most && mine->next != s->seq + s->len + is_flagged ? OUT_OF_ORDER : RETRANSMITTED);
}

/* SYN, FIN, RST: ends of connections, which end is the client, and the handshake's round-trip time. */
static __attribute__((noinline)) void mark_ends(const struct weir_packet *p, struct connection *c, uint32_t from, struct segment copy)
{
    const struct segment *s = &copy;
    const uint32_t flags = p->tcp_flags;
    if (flags & WEIR_TCP_RST)
        c->state |= WAS_RESET;
    if (flags & WEIR_TCP_FIN)
        c->from[from].state |= HAS_FIN;
    if ((flags & WEIR_TCP_SYN) == 0)
        return;
    const bool is_client = (flags & WEIR_TCP_ACK) == 0;
    const bool is_same = (c->from[from].state & HAS_ISN) != 0 && c->isn[from] == s->seq;
    if (is_client && c->from[from].packets != 0 && !is_same) {
        /* The ports are used again. */
        report(c, p->ts_ns, weir_string("reused", 6));
        emit_pending(c->set);
        reset(c, p, c->set, from);
    }
    c->isn[from] = s->seq;
    c->from[from].state |= HAS_ISN;
    c->state = (uint8_t)((c->state & ~CLIENT) | HAS_CLIENT | ((from == 1) == is_client ? CLIENT : 0));
    if (is_client && (c->state & HAS_RTT) == 0) {
        c->rtt = p->ts_ns;
        c->state |= HAS_SYN_TIME;
    }
}

/* The client's first packet after its SYN completes the handshake. */
static __attribute__((noinline)) void complete(const struct weir_packet *p, struct connection *c, uint32_t from, struct segment copy)
{
    const struct segment *s = &copy;
    if (from != client_of(c) || s->seq != c->isn[from] + 1)
        return;
    c->state &= (uint8_t)~HAS_SYN_TIME;
    if (p->ts_ns >= c->rtt) {
        c->rtt = p->ts_ns - c->rtt;
        c->state |= HAS_RTT;
    }
}

/* Any packet, by all rules. */
static __attribute__((noinline)) void analyse(const struct weir_packet *p, struct connection *c, uint32_t from, struct segment copy)
{
    const struct segment *s = &copy;
    struct direction *mine = &c->from[from];
    const struct direction *other = &c->from[1 - from];
    const uint32_t ends = p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_FIN | WEIR_TCP_RST);
    const uint32_t next = s->seq + s->len + ((ends & (WEIR_TCP_SYN | WEIR_TCP_FIN)) != 0);
    const bool has_next = (mine->state & HAS_NEXT) != 0, is_next = has_next && s->seq == mine->next;
    uint8_t state = mine->state & (uint8_t)~(KEEP_ALIVE | WINDOW_PROBE);
    if (s->len == 1 && is_next && other->window == 0 && other->packets != 0) {
        state |= WINDOW_PROBE;
    } else {
        if (s->window == 0 && ends == 0)
            count(p, c, from, ZERO_WINDOW);
        if (s->len <= 1 && has_next && s->seq == mine->next - 1 && ends == 0)
            state |= KEEP_ALIVE;
        if (s->len == 0 && is_next && s->ack == mine->ack && s->window == mine->window && s->window != 0 && ends == 0 &&
            (other->state & KEEP_ALIVE) == 0) {
            mine->duplicates = (uint8_t)(mine->duplicates + (mine->duplicates < UINT8_MAX));
            count(p, c, from, DUPLICATE_ACK);
        }
    }
    if (s->ack != mine->ack)
        mine->duplicates = 0;
    if ((state & KEEP_ALIVE) == 0)
        find_kind(p, c, from, s);
    if ((!has_next || is_below(mine->next, next)) && (state & WINDOW_PROBE) == 0) {
        mine->next = next;
        mine->next_low = (uint32_t)p->ts_ns;
        mine->next_high = (uint8_t)(p->ts_ns >> 32);
        state |= HAS_NEXT;
    }
    mine->state = (uint8_t)((state & ~HAS_ACK) | ((p->tcp_flags & WEIR_TCP_ACK) ? HAS_ACK : 0));
    mine->window = s->window;
    mine->ack = s->ack;
    mine->last_low = (uint32_t)p->ts_ns;
    mine->last_high = (uint8_t)(p->ts_ns >> 32);
    mine->packets++;
    mine->data_packets += s->len != 0;
}

/* The usual packets: the next data, or an acknowledgement with a new number. True if there is more to look at. */
static inline bool is_unusual(const struct weir_packet *p, struct connection *c, uint32_t from, const struct segment *s)
{
    struct direction *mine = &c->from[from];
    const struct direction *other = &c->from[1 - from];
    const uint32_t next = s->seq + s->len;
    const bool has_data = s->len != 0;
    const uint32_t odd_flags = (p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_FIN | WEIR_TCP_RST | WEIR_TCP_ACK)) ^ WEIR_TCP_ACK;
    const uint32_t odd = (s->seq ^ mine->next) | odd_flags | (uint32_t)(s->window == 0) | (~(uint32_t)mine->state & HAS_NEXT) |
                         ((uint32_t)(s->len == 1) & (uint32_t)(other->window == 0)) | ((uint32_t)!has_data & (uint32_t)(s->ack == mine->ack)) |
                         ((uint32_t)has_data & (uint32_t)!is_below(other->ack, next) & (uint32_t)((other->state & HAS_ACK) != 0));
    if (odd != 0)
        return true;
    const uint32_t now_low = (uint32_t)p->ts_ns;
    const uint8_t now_high = (uint8_t)(p->ts_ns >> 32);
    mine->duplicates = s->ack == mine->ack ? mine->duplicates : 0;
    mine->next = next;
    mine->next_low = has_data ? now_low : mine->next_low;
    mine->next_high = has_data ? now_high : mine->next_high;
    mine->last_low = now_low;
    mine->last_high = now_high;
    mine->state = (uint8_t)((mine->state & ~(KEEP_ALIVE | WINDOW_PROBE)) | HAS_ACK);
    mine->window = s->window;
    mine->ack = s->ack;
    mine->packets++;
    mine->data_packets += has_data;
    return false;
}

/* The bytes of a segment on the link, of which fewer may be captured. */
static __attribute__((noinline)) uint32_t length_on_link(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    const uint32_t total = (p->flags & WEIR_IPV4) ? weir_be16(ip + 2) : 40u + weir_be16(ip + 4);
    const uint32_t headers = (uint32_t)p->payload_offset - p->l3_offset;
    return total > headers && total - headers > p->payload_len ? total - headers : p->payload_len;
}

/* Ends 0 and 1 with equal ports are told apart by address. */
static __attribute__((noinline)) uint32_t end_by_address(const struct weir_packet *p)
{
    const struct weir_ip a = weir_src(p), b = weir_dst(p);
    return a.first != b.first ? a.first > b.first : a.last > b.last;
}

static inline void packet(const struct weir_packet *p, uint32_t set_number)
{
    const uint32_t flags = p->tcp_flags;
    struct set *set = &sets[set_number];
    uint32_t way = find(set, p->flow_hash);
    if (WEIR_UNLIKELY((flags & WEIR_TCP_SYN) != 0 && way < WAYS) && entry_of(set, way)->check != (uint32_t)(p->flow_hash >> 32)) {
        /* Another connection with the same bits in the set. */
        report(entry_of(set, way), p->ts_ns, weir_string("evicted", 7));
        emit_pending(set_number);
        give_up(set, way);
        way = WAYS;
    }
    const uint32_t from = WEIR_LIKELY(p->src_port != p->dst_port) ? p->src_port > p->dst_port : end_by_address(p);
    struct connection *c;
    if (WEIR_LIKELY(way < WAYS)) {
        c = entry_of(set, way);
        set->seen[way] = (uint16_t)(seen_at(p->ts_ns) | (set->seen[way] & 1) | (c->from[1 - from].packets != 0));
    } else {
        c = begin(p, set_number, from);
        if (c == NULL)
            return;
    }
    const uint8_t *header = weir_l4(p);
    const struct segment s = {
        .seq = weir_be32(header + 4),
        .ack = weir_be32(header + 8),
        .len = WEIR_UNLIKELY((p->flags & WEIR_CUT) != 0 || p->tunnel != WEIR_TUNNEL_NONE) ? length_on_link(p) : p->payload_len,
        .window = weir_be16(header + 14),
    };
    if (WEIR_UNLIKELY(flags & (WEIR_TCP_SYN | WEIR_TCP_FIN | WEIR_TCP_RST)))
        mark_ends(p, c, from, s);
    else if (WEIR_UNLIKELY(c->state & HAS_SYN_TIME) && (flags & WEIR_TCP_ACK) != 0)
        complete(p, c, from, s);
    if (is_unusual(p, c, from, &s))
        analyse(p, c, from, s);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    outermost_tunnel = weir_outermost_tunnel(p);
    if ((q->flags & (WEIR_TCP | WEIR_L4)) == (WEIR_TCP | WEIR_L4))
        packet(q, (uint32_t)(q->flow_hash >> set_shift));
}

/* Reads the sets of a group of packets ahead, and then their connections. */
static __attribute__((noinline)) void read_group_ahead(const struct weir_packet *group)
{
    for (uint32_t i = 0; i < WEIR_GROUP; i++)
        weir_read_ahead(&sets[group[i].flow_hash >> set_shift]);
    for (uint32_t i = 0; i < WEIR_GROUP; i++) {
        const struct set *set = &sets[group[i].flow_hash >> set_shift];
        const uint32_t way = find(set, group[i].flow_hash);
        if (way < WAYS)
            weir_read_ahead(entry_of(set, way));
    }
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const struct weir_packet *group = weir_new_group(p);
    if (WEIR_UNLIKELY(group != NULL))
        read_group_ahead(group);
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    else if ((p->flags & (WEIR_TCP | WEIR_L4)) == (WEIR_TCP | WEIR_L4))
        packet(p, (uint32_t)(p->flow_hash >> set_shift));
    return WEIR_PASS;
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void check_end(struct set *set, uint32_t way, uint64_t now)
{
    struct connection *c = entry_of(set, way);
    const uint64_t last = last_of(c, now), silence = last < now ? now - last : 0, idle = (uint64_t)param_idle();
    const bool is_closed = (c->state & WAS_RESET) != 0 || (c->from[0].state & c->from[1].state & HAS_FIN) != 0;
    if (is_closed && silence >= LINGER) {
        if (report(c, now, weir_string("closed", 6)))
            give_up(set, way);
    } else if (silence >= idle) {
        if (report(c, now, weir_string("idle", 4)))
            give_up(set, way);
    } else if (now > c->start && now - c->start >= (uint64_t)param_active()) {
        if (!report(c, now, weir_string("active", 6)))
            return;
        c->start = now;
        c->state &= (uint8_t)~HAS_EVENTS;
        weir_fill(c->events, 0, sizeof c->events);
        for (uint32_t from = 0; from < 2; from++)
            c->from[from].packets = c->from[from].data_packets = 0;
    }
}

/* Looks for ended connections in the sets of a word of `occupied`. */
static void sweep(uint32_t word, uint64_t now)
{
    uint64_t left = 0;
    for (uint32_t bit = 0; bit < 64; bit++) {
        if ((occupied[word] >> bit & 1) == 0)
            continue;
        struct set *set = &sets[word * 64 + bit];
        for (uint32_t way = 0; way < WAYS; way++) {
            if (set->cell[way] != 0)
                check_end(set, way, now);
            if (set->cell[way] != 0)
                left |= UINT64_C(1) << bit;
        }
    }
    occupied[word] = left;
}

static void emit_all_pending(void)
{
    for (uint32_t i = 0; i < SLICES; i++)
        if (slices[i].is_pending)
            report_finding(&slices[i]);
}

/* Looks for ended connections in a part of the table. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    const uint32_t words = 1u << (64 - set_shift) >> 6;
    for (uint32_t i = 0; i < SWEEP_SETS / 64 && i < words; i++) {
        if (occupied[sweep_at] != 0)
            sweep(sweep_at, now);
        sweep_at = (sweep_at + 1) & (words - 1);
    }
    emit_all_pending();
}

/* Emits the connections that are left at the end, of a part of the table in each call. */
WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    static uint32_t next;
    const uint32_t cells = WAYS << (64 - set_shift);
    for (uint32_t i = 0; i < REST && next < cells; i++, next++) {
        const struct set *set = &sets[next / WAYS];
        if (set->cell[next % WAYS] == 0)
            continue;
        struct connection *c = entry_of(set, next % WAYS);
        if ((c->state & HAS_EVENTS) != 0 || param_all())
            report(c, now, weir_string("stop", 4));
    }
    if (next < cells)
        return 1;
    emit_all_pending();
    return 0;
}
