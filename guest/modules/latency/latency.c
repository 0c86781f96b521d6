/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * latency: round-trip times of TCP connections, continuously and in both directions, for IPv4 and IPv6. A packet with data that passes the
 * capture point is marked with its time; the first packet of the other end that answers it gives a sample, the round-trip time
 * between the capture point and that end.
 *
 * With the time stamps option (RFC 7323) the mark is the packet's TSval, and its echo (TSecr) the answer, as in pping (K. Nichols,
 * "Listening to the network: leveraging network flow telemetry for security and operations", 2017). Otherwise the mark is the sequence
 * number after the segment, and the answer the first acknowledgement that covers it. By Karn's rule (P. Karn, C. Partridge, SIGCOMM 1987)
 * retransmitted segments give no sample. README.md has all rules.
 *
 * Connections are in sets of WAYS entries. A set is found by the TOP bits of the flow hash, so that instances that share the flows by
 * those bits never share a set, and their rows do not depend on how many there are.
 */
#include "weir.h"
#include "module.h"

enum {
    WAYS = 8,
    MARKS = 3,              /* pending marks of a direction */
    SWEEP_SETS = 2048,      /* sets whose ended intervals a tick reports */
    REST = 16384,           /* entries that a call of weir_rest looks at */
    SLICES = 64,            /* parts of the hash space with a limit of findings each */
    FINDING_SAMPLES = 3,    /* samples that an interval must have for a finding */
    TS_HEADER = 0x0101080A, /* the usual options: two NOP, and the time stamps */
};

#define TIME_BITS 40
#define TIME_MASK ((UINT64_C(1) << TIME_BITS) - 1)
#define SECOND UINT64_C(1000000000)
#define FINDING_GAP (60 * SECOND)
/* A rise by less may be that of delayed acknowledgements. */
#define FINDING_RISE (250 * 1000 * 1000)

/* A set: a cache line. For a packet of a connection that is in no entry, nothing else is read. */
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

/* Bits of `state` of a direction. The lowest MARKS bits tell which marks are pending. */
enum { MARKED = (1 << MARKS) - 1, HAS_NEXT = 8, TIMESTAMPS = 16, HAS_FIN = 32 };

/* What one end sends. */
struct direction {
    uint32_t next;        /* highest sequence number so far, plus one; with TIMESTAMPS the highest TSval */
    uint32_t mark[MARKS]; /* acknowledgement number or TSecr that answers */
    uint32_t low[MARKS];  /* time of the mark: lower 32 bits */
    uint8_t high[MARKS];  /* the 8 bits above */
    uint8_t state;
};

enum { BY_SEQUENCE = 1, BY_TIMESTAMP = 2, HAS_CLIENT = 4, CLIENT = 8, WAS_FOUND = 16 };

/* A connection. The end with the lower port is end 0; with equal ports that with the lower address. */
struct connection {
    /* The first cache line is all that most packets need. */
    struct direction from[2];
    /* The second one has the samples of an interval. Index 0: round trips to end 0. */
    uint64_t end; /* of the interval */
    uint64_t least[2], last[2];
    uint32_t count[2];
    uint32_t base[2]; /* least round-trip time of earlier intervals in us; 0: none */
    uint32_t check;   /* upper half of the flow hash */
    uint32_t state;
    /* The third one has what rows need. */
    struct weir_ip ip[2];
    uint16_t port[2];
    uint16_t vlan;
    uint8_t tunnel, outermost; /* the innermost tunnel, and the one that filters see */
    bool has_vlan;
    uint32_t set;       /* number of its set */
    uint32_t next_free; /* of the list of free entries */
    uint8_t spare[12];
};
_Static_assert(sizeof(struct connection) == 192 && offsetof(struct connection, end) == 64, "three cache lines");

static struct set *sets;
/* Entries are handed out in order, so that few connections touch little memory. */
static struct connection *connections;
static uint32_t connections_begun, first_free; /* entries that were ever used; a free one of them, from 1, or 0 */
static uint32_t *evicted;  /* one for each set */
static uint64_t *pending;  /* a bit for each set: some interval of it is not reported yet */
static uint32_t set_shift, sweep_at, sweep_left; /* the next word of `pending` to look at, and how many */
static uint64_t sweep_end;                      /* the interval's end that the sweep is for */
static uint64_t finding_time[SLICES]; /* of the last finding, plus one */
static bool is_outer;
static uint8_t outermost_tunnel; /* of the packet; valid in a tunnel */

/* What a packet tells. Functions out of line get a copy, so that it stays in registers where it is usual. */
struct segment {
    uint32_t seq, ack, len;
    uint32_t tsval, tsecr;
    bool has_ts;
};

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
    pending = weir_alloc(count / 8);
    if (sets == NULL || connections == NULL || evicted == NULL || pending == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

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

/* Reports the samples of an interval, which begins (or for a single sample is) at `time`. False: the host takes no more rows. */
static __attribute__((noinline)) bool report(struct connection *c, uint64_t time)
{
    const uint32_t client = client_of(c), server = 1 - client, by = c->state & (BY_SEQUENCE | BY_TIMESTAMP);
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = community_id_of(c, community_id);
    struct samples_row row = {
        .time = time,
        .src_port = c->port[client],
        .dst_port = c->port[server],
        .vlan = c->vlan,
        .has_vlan = c->has_vlan,
        .tunnel = weir_tunnel_name(c->tunnel),
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .handshake = (c->state & HAS_CLIENT) != 0,
        .method = by == BY_TIMESTAMP  ? weir_string("timestamp", 9)
                  : by == BY_SEQUENCE ? weir_string("sequence", 8)
                                      : weir_string("both", 4),
        .server_samples = c->count[server],
        .server_rtt_ns = (int64_t)c->least[server],
        .has_server_rtt_ns = c->count[server] != 0,
        .server_last_ns = (int64_t)c->last[server],
        .has_server_last_ns = c->count[server] != 0,
        .client_samples = c->count[client],
        .client_rtt_ns = (int64_t)c->least[client],
        .has_client_rtt_ns = c->count[client] != 0,
        .client_last_ns = (int64_t)c->last[client],
        .has_client_last_ns = c->count[client] != 0,
        .evicted = evicted[c->set],
    };
    weir_ip_store(row.src, c->ip[client]);
    weir_ip_store(row.dst, c->ip[server]);
    if (emit_samples(&row) != WEIR_OK)
        return false;
    evicted[c->set] = 0;
    return true;
}

/* Ends an interval, and forgets its samples. */
static inline void clear(struct connection *c)
{
    for (uint32_t end = 0; end < 2; end++) {
        const uint64_t us = c->least[end] / 1000;
        const uint32_t least = us == 0 ? 1 : us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
        if (c->count[end] != 0 && (c->base[end] == 0 || least < c->base[end]))
            c->base[end] = least;
    }
    c->count[0] = c->count[1] = 0;
    c->state &= ~(uint32_t)(BY_SEQUENCE | BY_TIMESTAMP);
}

static inline bool has_samples(const struct connection *c) { return (c->count[0] | c->count[1]) != 0; }

/* Reports what is left of a connection that is given up. */
static inline void flush(struct connection *c)
{
    const uint64_t interval = (uint64_t)param_interval();
    if (interval != 0 && has_samples(c))
        report(c, c->end - interval);
}

/* Reports that the round trips to an end take long. `base_us` is 0, or the time that they took before. */
static __attribute__((noinline)) void report_slow(const struct weir_packet *p, struct connection *c, uint32_t to, uint32_t base_us)
{
    /* The slice is part of the set's number: it does not depend on the number of instances. */
    uint64_t *last = &finding_time[c->set >> (58 - set_shift) & (SLICES - 1)];
    if (*last != 0 && p->ts_ns - (*last - 1) < FINDING_GAP)
        return;
    *last = p->ts_ns + 1;
    c->state |= WAS_FOUND;
    const uint32_t server = 1 - client_of(c);
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    WEIR_ADD(&text, "TCP round trips to ");
    weir_add_ip(&text, c->ip[to]);
    if (base_us != 0) {
        WEIR_ADD(&text, " rose from ");
        weir_add_number(&text, base_us / 1000);
        WEIR_ADD(&text, " ms to at least ");
    } else {
        WEIR_ADD(&text, " take at least ");
    }
    weir_add_number(&text, c->least[to] / 1000000);
    WEIR_ADD(&text, " ms; the other end is ");
    weir_add_ip(&text, c->ip[1 - to]);
    WEIR_ADD(&text, ", the server's port ");
    weir_add_number(&text, c->port[server]);
    weir_add_encapsulation(&filter, p);
    if (c->tunnel != WEIR_TUNNEL_NONE) {
        weir_add_tunnel(&filter, c->outermost);
    } else {
        WEIR_ADD(&filter, "tcp port ");
        weir_add_number(&filter, c->port[server]);
        WEIR_ADD(&filter, " and host ");
        weir_add_ip(&filter, c->ip[to]);
        WEIR_ADD(&filter, " and host ");
        weir_add_ip(&filter, c->ip[1 - to]);
    }
    const struct findings_row row = {
        .time = p->ts_ns,
        .severity = base_us != 0 ? WEIR_LOW : WEIR_INFORMATIONAL,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("samples", 7),
    };
    emit_findings(&row);
}

/* Reports a single sample as a row of its own. The interval's sums are kept for findings. */
static __attribute__((noinline)) void report_one(struct connection *c, uint32_t to, uint64_t rtt, uint32_t by, uint64_t now)
{
    const uint64_t least = c->least[to], last = c->last[to];
    const uint32_t count[2] = { c->count[0], c->count[1] }, state = c->state;
    c->count[to] = 1;
    c->count[1 - to] = 0;
    c->least[to] = c->last[to] = rtt;
    c->state = (c->state & ~(uint32_t)(BY_SEQUENCE | BY_TIMESTAMP)) | by;
    report(c, now);
    c->least[to] = least;
    c->last[to] = last;
    c->count[0] = count[0];
    c->count[1] = count[1];
    c->state = state;
}

/* Takes a sample: `to` is the end that answered. */
static void sample(const struct weir_packet *p, struct connection *c, uint32_t to, uint64_t rtt, uint32_t by)
{
    /* With another connection of the same bits in the set, this is no round trip. */
    if (WEIR_UNLIKELY(c->check != (uint32_t)(p->flow_hash >> 32)))
        return;
    const uint64_t interval = (uint64_t)param_interval(), length = interval != 0 ? interval : SECOND, now = p->ts_ns;
    if (interval == 0)
        report_one(c, to, rtt, by, now);
    if (now >= c->end || now + length < c->end - length) {
        flush(c);
        clear(c);
        c->end = now - now % length + length;
        if (interval != 0)
            pending[c->set / 64] |= UINT64_C(1) << (c->set % 64);
    }
    c->least[to] = c->count[to] == 0 || rtt < c->least[to] ? rtt : c->least[to];
    c->last[to] = rtt;
    c->state |= by;
    if (WEIR_UNLIKELY(++c->count[to] == FINDING_SAMPLES) && (c->state & WAS_FOUND) == 0) {
        const uint64_t least = c->least[to], slow = (uint64_t)param_slow(), base = (uint64_t)c->base[to] * 1000, rise = param_rise();
        if (rise != 0 && base != 0 && least >= base * rise && least - base >= FINDING_RISE)
            report_slow(p, c, to, c->base[to]);
        else if (slow != 0 && least >= slow)
            report_slow(p, c, to, 0);
    }
}

static inline struct connection *entry_of(const struct set *set, uint32_t way) { return &connections[(set->cell[way] & ENTRY_MASK) - 1]; }

/* Gives an entry back. */
static inline void give_up(struct set *set, uint32_t way)
{
    const uint32_t number = set->cell[way] & ENTRY_MASK;
    struct connection *c = &connections[number - 1];
    flush(c);
    c->next_free = first_free;
    first_free = number;
    set->cell[way] = 0;
    set->tag[way] = 0;
}

static inline uint16_t seen_at(uint64_t now) { return (uint16_t)(now >> 27 << 1); }

/* Begins an entry for a packet's connection. Returns its way, or WAYS: the set is full of active connections. */
static __attribute__((noinline)) uint32_t begin(const struct weir_packet *p, uint32_t set_number, uint32_t from)
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
        return WAYS;
    if (set->cell[way] != 0)
        give_up(set, way);
    uint32_t number = first_free;
    if (number != 0)
        first_free = connections[number - 1].next_free;
    else
        number = ++connections_begun;
    set->tag[way] = (uint16_t)p->flow_hash;
    set->seen[way] = now;
    set->cell[way] = number | ((uint32_t)p->flow_hash >> 16) << ENTRY_BITS;
    struct connection *c = &connections[number - 1];
    *c = (struct connection){ .check = (uint32_t)(p->flow_hash >> 32), .set = set_number };
    c->ip[from] = weir_src(p);
    c->ip[1 - from] = weir_dst(p);
    c->port[from] = p->src_port;
    c->port[1 - from] = p->dst_port;
    c->vlan = weir_vlan(p);
    c->has_vlan = (p->flags & WEIR_VLAN) != 0;
    c->tunnel = is_outer ? WEIR_TUNNEL_NONE : p->tunnel;
    c->outermost = outermost_tunnel;
    return way;
}

/* Returns the time stamps among other options, or NULL. */
static __attribute__((noinline)) const uint8_t *find_timestamps(const uint8_t *header, uint32_t header_len)
{
    for (uint32_t at = 20, steps = 0; steps < 40 && at + 1 < header_len; steps++) {
        const uint8_t kind = header[at], len = header[at + 1];
        if (kind == 0)
            return NULL;
        if (kind == 1) {
            at++;
            continue;
        }
        if (len < 2 || at + len > header_len)
            return NULL;
        if (kind == 8 && len == 10)
            return header + at + 2;
        at += len;
    }
    return NULL;
}

/* The bytes of a segment on the link, of which fewer may be captured. */
static __attribute__((noinline)) uint32_t length_on_link(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    const uint32_t total = (p->flags & WEIR_IPV4) ? weir_be16(ip + 2) : 40u + weir_be16(ip + 4);
    const uint32_t headers = (uint32_t)p->payload_offset - p->l3_offset;
    return total > headers && total - headers > p->payload_len ? total - headers : p->payload_len;
}

static inline void forget(struct direction *d, uint32_t i) { d->state &= (uint8_t)~(1u << i); }

static inline void add_mark(struct direction *d, uint32_t value, uint64_t now)
{
    const uint32_t unused = ~(uint32_t)d->state & MARKED;
    if (unused == 0)
        return;
    const uint32_t i = (uint32_t)__builtin_ctz(unused);
    d->mark[i] = value;
    d->low[i] = (uint32_t)now;
    d->high[i] = (uint8_t)(now >> 32);
    d->state |= (uint8_t)(1u << i);
}

/* Takes the marks of the other end that a packet answers, and the sample that follows. */
static inline void answer(const struct weir_packet *p, struct connection *c, uint32_t from, const struct segment *s)
{
    struct direction *d = &c->from[1 - from];
    const bool by_timestamp = (d->state & TIMESTAMPS) != 0;
    if (by_timestamp ? !s->has_ts : (p->tcp_flags & WEIR_TCP_ACK) == 0)
        return;
    const uint32_t value = by_timestamp ? s->tsecr : s->ack;
    /* Of several segments that one acknowledgement covers, the last one caused it. */
    uint32_t latest = MARKS, least_behind = UINT32_MAX;
    for (uint32_t i = 0; i < MARKS; i++) {
        const uint32_t behind = value - d->mark[i];
        if ((d->state >> i & 1) == 0 || behind > INT32_MAX)
            continue;
        forget(d, i);
        if (behind < least_behind) {
            least_behind = behind;
            latest = i;
        }
    }
    /* A later TSval is the echo of another packet. */
    if (latest == MARKS || (by_timestamp && least_behind != 0))
        return;
    const uint64_t time = (uint64_t)d->high[latest] << 32 | d->low[latest];
    const uint64_t rtt = (p->ts_ns - time) & TIME_MASK;
    /* Longer times are those of time stamps that went back. */
    if (rtt >> (TIME_BITS - 1) == 0)
        sample(p, c, from, rtt, by_timestamp ? BY_TIMESTAMP : BY_SEQUENCE);
}

/* Marks what a packet sends, if it is new. */
static inline void send(const struct weir_packet *p, struct direction *d, const struct segment *s)
{
    const uint32_t flags = p->tcp_flags;
    const bool is_syn = (flags & WEIR_TCP_SYN) != 0;
    const uint32_t len = s->len + is_syn + ((flags & WEIR_TCP_FIN) != 0);
    if ((s->has_ts & !is_syn) != ((d->state & TIMESTAMPS) != 0)) {
        /* The handshake is measured by sequence numbers, since its first packet does not tell whether the other end uses time stamps. */
        if (!s->has_ts || is_syn)
            return;
        d->state = (d->state & HAS_FIN) | TIMESTAMPS;
    }
    d->state |= (flags & WEIR_TCP_FIN) ? HAS_FIN : 0;
    const bool has_next = (d->state & HAS_NEXT) != 0;
    if (d->state & TIMESTAMPS) {
        /* The echo of a TSval answers the first packet with it. A packet without data may be answered much later. */
        if (!has_next || (int32_t)(s->tsval - d->next) > 0) {
            d->next = s->tsval;
            d->state |= HAS_NEXT;
            if (len != 0)
                add_mark(d, s->tsval, p->ts_ns);
        }
        return;
    }
    const uint32_t end = s->seq + len, ahead = s->seq - d->next;
    if (len == 0) {
        /* Without data, a higher number tells of segments that were not captured. */
        d->next = has_next && (int32_t)ahead > 0 ? end : d->next;
        return;
    }
    if (!has_next || (int32_t)ahead >= 0) {
        /* Behind a gap, acknowledgements may wait for the missing segment. */
        if (!has_next || ahead == 0)
            add_mark(d, end, p->ts_ns);
        d->next = end;
        d->state |= HAS_NEXT;
        return;
    }
    /* Retransmitted: its acknowledgement, and those of later segments, tell no time (Karn). */
    for (uint32_t i = 0; i < MARKS; i++)
        if ((int32_t)(d->mark[i] - s->seq) > 0)
            forget(d, i);
    if ((int32_t)(end - d->next) > 0)
        d->next = end;
}

/* Ends 0 and 1 with equal ports are told apart by address. */
static __attribute__((noinline)) uint32_t end_by_address(const struct weir_packet *p)
{
    const struct weir_ip a = weir_src(p), b = weir_dst(p);
    return a.first != b.first ? a.first > b.first : a.last > b.last;
}

/* An opening packet tells which end is the client; another sequence number of it begins a new connection of the same ports. */
static __attribute__((noinline)) void opened(const struct weir_packet *p, struct connection *c, uint32_t from, struct segment copy)
{
    const struct segment *s = &copy;
    const bool is_client = (p->tcp_flags & WEIR_TCP_ACK) == 0;
    const struct direction *d = &c->from[from];
    const bool is_other = (d->state & TIMESTAMPS) != 0 || ((d->state & HAS_NEXT) != 0 && d->next != s->seq + 1 + s->len);
    if (is_client && is_other) {
        flush(c);
        weir_fill(c, 0, offsetof(struct connection, check));
        c->state = 0;
    }
    c->state = (c->state & ~(uint32_t)CLIENT) | HAS_CLIENT | ((from == 1) == is_client ? CLIENT : 0);
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

static inline void packet(const struct weir_packet *p, uint32_t set_number)
{
    const uint32_t flags = p->tcp_flags;
    struct set *set = &sets[set_number];
    uint32_t way = find(set, p->flow_hash);
    if (WEIR_UNLIKELY((flags & WEIR_TCP_SYN) != 0 && way < WAYS) && entry_of(set, way)->check != (uint32_t)(p->flow_hash >> 32)) {
        /* Another connection with the same bits in the set. */
        give_up(set, way);
        way = WAYS;
    }
    struct segment s = { .len = p->payload_len };
    if (WEIR_UNLIKELY((p->flags & WEIR_CUT) != 0 || p->tunnel != WEIR_TUNNEL_NONE))
        s.len = length_on_link(p);
    const uint32_t from = WEIR_LIKELY(p->src_port != p->dst_port) ? p->src_port > p->dst_port : end_by_address(p);
    struct connection *c;
    if (WEIR_LIKELY(way < WAYS)) {
        if (WEIR_UNLIKELY(flags & WEIR_TCP_RST)) {
            give_up(set, way);
            return;
        }
        c = entry_of(set, way);
        set->seen[way] = (uint16_t)(seen_at(p->ts_ns) | (set->seen[way] & 1) | (c->from[1 - from].state != 0));
    } else {
        if ((s.len == 0 && (flags & WEIR_TCP_SYN) == 0) || (flags & WEIR_TCP_RST))
            return;
        way = begin(p, set_number, from);
        if (way == WAYS)
            return;
        c = entry_of(set, way);
    }
    const uint8_t *header = weir_l4(p);
    s.seq = weir_be32(header + 4);
    s.ack = weir_be32(header + 8);
    const uint32_t header_len = (uint32_t)p->payload_offset - p->l4_offset;
    if (header_len > 20 && param_timestamps()) {
        const uint8_t *stamps = header + 24;
        if (WEIR_UNLIKELY(header_len < 32 || weir_be32(header + 20) != TS_HEADER))
            stamps = find_timestamps(header, header_len);
        if (stamps != NULL) {
            s.tsval = weir_be32(stamps);
            s.tsecr = weir_be32(stamps + 4);
            s.has_ts = true;
        }
    }
    if (WEIR_UNLIKELY(flags & WEIR_TCP_SYN))
        opened(p, c, from, s);
    if (c->from[1 - from].state & MARKED)
        answer(p, c, from, &s);
    send(p, &c->from[from], &s);
    if (WEIR_UNLIKELY(c->from[0].state & c->from[1].state & HAS_FIN) && ((c->from[0].state | c->from[1].state) & MARKED) == 0)
        give_up(set, way);
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

/* Reports the ended intervals of the sets of a word of `pending`. */
static void sweep(uint32_t word, uint64_t now, uint64_t interval)
{
    uint64_t left = 0;
    for (uint32_t bit = 0; bit < 64; bit++) {
        if ((pending[word] >> bit & 1) == 0)
            continue;
        const struct set *set = &sets[word * 64 + bit];
        for (uint32_t way = 0; way < WAYS; way++) {
            if (set->cell[way] == 0)
                continue;
            struct connection *c = entry_of(set, way);
            if (!has_samples(c))
                continue;
            if (c->end <= now && report(c, c->end - interval))
                clear(c);
            else
                left |= UINT64_C(1) << bit;
        }
    }
    pending[word] = left;
}

/* Goes through a part of the table, so that connections without further samples get their rows. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    const uint64_t interval = (uint64_t)param_interval();
    if (interval == 0)
        return;
    /* All intervals end at the same times, so the table needs a look after these only. */
    const uint32_t words = 1u << (64 - set_shift) >> 6;
    if (now < sweep_end - interval || now >= sweep_end) {
        sweep_end = now - now % interval + interval;
        sweep_left = words;
    }
    for (uint32_t i = 0; i < SWEEP_SETS / 64 && sweep_left > 0; i++, sweep_left--) {
        if (pending[sweep_at] != 0)
            sweep(sweep_at, now, interval);
        sweep_at = (sweep_at + 1) & (words - 1);
    }
}

/* Emits the last interval of connections, of a part of the table in each call. */
WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    static uint32_t next;
    (void)now;
    const uint64_t interval = (uint64_t)param_interval();
    const uint32_t cells = WAYS << (64 - set_shift);
    if (interval == 0)
        return 0;
    for (uint32_t i = 0; i < REST && next < cells; i++, next++) {
        const struct set *set = &sets[next / WAYS];
        if (set->cell[next % WAYS] == 0)
            continue;
        struct connection *c = entry_of(set, next % WAYS);
        if (has_samples(c))
            report(c, c->end - interval);
    }
    return next < cells;
}
