/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * beacon: hosts that contact a service periodically, as malware does that asks for commands. For each source, destination and
 * port, the period is the median of the intervals between contacts, and the jitter their median absolute deviation, as in RITA
 * (Active Countermeasures, https://github.com/activecm/rita). Unlike there, an interval near a multiple of the period counts as one
 * with missed contacts. README.md defines the score.
 *
 * A contact is a TCP SYN, or the first UDP packet of a burst. A pair of host and service gets an entry with its third contact.
 * Earlier ones are in a table of their own, so that pairs with one or two contacts, as of floods and scans, evict no entry.
 */
#include "weir.h"
#include "module.h"

enum {
    WAYS = 8,
    INTERVALS = 64, /* of each pair, in a ring */
    CANDIDATE_BITS = 15,
    CANDIDATE_WAYS = 4,
    FLOW_BITS = 15,
    FLOW_WAYS = 4,
    MISSED_MAX = 8,      /* an interval of more periods is a pause */
    PORTS_MAX = 256,
    FINDINGS = 64,       /* at once; then one for each minute */
};

#define SECOND UINT64_C(1000000000)
/* Intervals are kept in units of 0.1 ms: up to five days. */
#define UNIT UINT64_C(100000)
/* A pair is worth this much more time in the table for each contact. */
#define WORTH_NS (60 * SECOND)
/* Deviations within so many jitters, or this share of the period, are regular; none beyond the larger share is. */
#define REGULAR_JITTERS 4.0
#define REGULAR_LEAST 0.02
#define REGULAR_MOST 0.35
/* So many of the intervals are of one period, without a missed contact. */
#define SINGLE_LEAST 0.5
/* Confidence: n intervals of one period count n / (n + DOUBT). */
#define DOUBT 2.0

struct pair {
    struct weir_ip src, dst;
    uint64_t first_ns, start_ns, seen_ns; /* first contact; last contact; last packet of it */
    uint64_t contacts, next_check;        /* the number of contacts at which the pair is judged again */
    uint32_t last_seq;                    /* of the last SYN, and its port: a repeated SYN is no contact */
    uint16_t last_port;
    uint16_t port;
    uint8_t protocol;
    uint8_t tunnel;
    uint8_t vlan_count, mpls_count;
    uint16_t vlan_tci;
    bool is_found;                        /* it has a finding */
    uint64_t reported_contacts;           /* of the last row; 0 for none */
    uint32_t flags;
    struct weir_ip outer_src, outer_dst;  /* of the last contact, in a tunnel */
    uint32_t intervals[INTERVALS];
};

struct keys {
    uint64_t key[WAYS]; /* 0: free */
};

/* A pair with one or two contacts. */
struct candidate {
    uint64_t key, start_ns, seen_ns;
    uint32_t interval; /* between its two contacts; 0: it has one */
    uint32_t syn;      /* hash of port and sequence number of the last SYN */
};

/* UDP flows: the flow hash with the initiator's side, and the time of its last packet. */
struct flow {
    uint64_t key, seen_ns;
};

static struct keys *sets;
static struct pair *pairs; /* WAYS for each set */
static uint32_t set_mask;
static struct candidate candidates[1 << CANDIDATE_BITS][CANDIDATE_WAYS];
static struct flow flows[1 << FLOW_BITS][FLOW_WAYS];
static uint64_t is_ignored[65536 / 64];
static bool is_outer;
static uint64_t findings_made; /* against the time since the first packet */
static uint64_t begin_ns;

static inline uint64_t since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

/* True for addresses of groups: multicast, broadcast, and the unspecified address. */
static bool is_group(struct weir_ip ip)
{
    if (!weir_ip_is_v4(ip))
        return (uint8_t)ip.first == 0xFF || (ip.first | ip.last) == 0;
    const uint32_t address = __builtin_bswap32((uint32_t)(ip.last >> 32));
    /* The broadcast address of a network is not known; it mostly ends in 255. */
    return address >> 28 == 14 || (address & 255) == 255 || address == 0;
}

/* True for addresses that are not of the Internet: RFC 1918, RFC 4193, link-local and loopback. */
static bool is_private(struct weir_ip ip)
{
    const uint32_t address = __builtin_bswap32((uint32_t)(ip.last >> 32));
    if (weir_ip_is_v4(ip))
        return address >> 24 == 10 || address >> 24 == 127 || address >> 20 == 0xAC1 || address >> 16 == 0xC0A8
               || address >> 16 == 0xA9FE;
    const uint32_t first = __builtin_bswap32((uint32_t)ip.first);
    return first >> 25 == 0xFC >> 1 || first >> 22 == 0xFE80 >> 6 || (ip.first == 0 && ip.last == UINT64_C(1) << 56);
}

/* ---- Estimates ------------------------------------------------------------------------------------------------------- */

/* Returns the number of this rank, from 0, of INTERVALS numbers. It finds one bit after the other by counting, whose work does not
 * depend on the numbers; a sort takes several times as long. */
static __attribute__((noinline)) uint32_t of_rank(const uint32_t *numbers, uint32_t rank)
{
    uint32_t found = 0;
    for (uint32_t bit = 32; bit-- > 0;) {
        const uint32_t next = found | 1u << bit;
        uint32_t less = 0;
        for (uint32_t i = 0; i < INTERVALS; i++)
            less += numbers[i] < next;
        found = less <= rank ? next : found;
    }
    return found;
}

struct estimate {
    double period, jitter; /* in units of UNIT */
    double regular, score;
    uint32_t missed;
};

/* Number of periods of an interval; 0 for none. */
static inline uint32_t multiple(uint32_t interval, double inverse_period)
{
    const double periods = (double)interval * inverse_period + 0.5;
    return periods < MISSED_MAX + 1 ? (uint32_t)periods : 0;
}

static inline double deviation(uint32_t interval, uint32_t number, double period)
{
    const double d = (double)interval - number * period;
    return d < 0 ? -d : d;
}

/* Estimates by a first guess of the period, from intervals in the order of time. */
static __attribute__((noinline)) void estimate(const uint32_t *intervals, uint32_t n, double guess, struct estimate *e)
{
    static const double inverse[MISSED_MAX + 1] = { 0, 1, 1.0 / 2, 1.0 / 3, 1.0 / 4, 1.0 / 5, 1.0 / 6, 1.0 / 7, 1.0 / 8 };
    static uint32_t numbers[INTERVALS];
    *e = (struct estimate){ .score = 0 };
    uint32_t used = 0;
    double inverse_period = 1 / guess;
    for (uint32_t i = 0; i < INTERVALS; i++) {
        const uint32_t number = i < n ? multiple(intervals[i], inverse_period) : 0;
        numbers[i] = number != 0 ? (uint32_t)((double)intervals[i] * inverse[number]) : UINT32_MAX;
        used += number != 0;
    }
    if (used == 0)
        return;
    const double period = of_rank(numbers, used / 2);
    if (period < 1)
        return;
    inverse_period = 1 / period;
    uint32_t singles = 0;
    used = 0;
    for (uint32_t i = 0; i < INTERVALS; i++) {
        const uint32_t number = i < n ? multiple(intervals[i], inverse_period) : 0;
        numbers[i] = number != 0 ? (uint32_t)(deviation(intervals[i], number, period) + 0.5) : UINT32_MAX;
        used += number != 0;
        singles += number == 1;
        e->missed += number != 0 ? number - 1 : 0;
    }
    if (used == 0 || singles < SINGLE_LEAST * n)
        return;
    const double jitter = of_rank(numbers, used / 2);
    double near = REGULAR_JITTERS * jitter;
    near = near < REGULAR_LEAST * period ? REGULAR_LEAST * period : near;
    near = near > REGULAR_MOST * period ? REGULAR_MOST * period : near;
    double regular = 0;
    uint32_t before = 0; /* the interval before, if it is irregular */
    for (uint32_t i = 0; i < INTERVALS && i < n; i++) {
        const uint32_t number = multiple(intervals[i], inverse_period);
        if (number != 0 && deviation(intervals[i], number, period) <= near) {
            regular++;
            before = 0;
        } else if (before != 0 && deviation(before + intervals[i], 1, period) <= near) {
            /* One more contact has divided a period in two: they count as one interval of two. */
            regular++;
            before = 0;
        } else {
            before = intervals[i];
        }
    }
    const double evenness = 1 - 2 * jitter / period;
    e->period = period;
    e->jitter = jitter;
    e->regular = regular / n;
    e->score = evenness > 0 ? evenness * e->regular * singles / (singles + DOUBT) : 0;
}

/* Estimates period, jitter and score of a pair. */
static __attribute__((noinline)) uint32_t judge(const struct pair *p, struct estimate *best)
{
    static uint32_t ordered[INTERVALS], numbers[INTERVALS];
    const uint64_t all = p->contacts - 1;
    const uint32_t n = all < INTERVALS ? (uint32_t)all : INTERVALS, first = all < INTERVALS ? 0 : (uint32_t)(all % INTERVALS);
    *best = (struct estimate){ .score = 0 };
    if (n < 4)
        return 0;
    for (uint32_t i = 0; i < INTERVALS; i++) {
        ordered[i] = i < n ? p->intervals[(first + i) % INTERVALS] : 0;
        numbers[i] = i < n ? ordered[i] : UINT32_MAX;
    }
    /* If nearly half of the intervals have missed contacts, additional ones make the median a multiple; the quartile is none. */
    for (uint32_t halves = 1; halves <= 2; halves++) {
        struct estimate e;
        const double guess = of_rank(numbers, n >> halves);
        if (guess < 1)
            continue;
        estimate(ordered, n, guess, &e);
        if (e.score > best->score)
            *best = e;
    }
    return n;
}

/* ---- Reports --------------------------------------------------------------------------------------------------------- */

/* Adds a time in s, with one decimal. */
static __attribute__((noinline)) void add_seconds(struct weir_text *text, double units)
{
    const uint64_t tenths = (uint64_t)(units * ((double)UNIT / 1e8) + 0.5);
    weir_add_number(text, tenths / 10);
    weir_add_byte(text, '.');
    weir_add_number(text, tenths % 10);
    WEIR_ADD(text, " s");
}

static __attribute__((noinline)) void emit_finding(const struct pair *p, const struct estimate *e, uint64_t now)
{
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    const bool is_tcp = p->protocol == 6, has_tunnel = p->tunnel != WEIR_TUNNEL_NONE;
    WEIR_ADD(&text, "Beacon from ");
    weir_add_ip(&text, p->src);
    WEIR_ADD(&text, " to ");
    weir_add_ip(&text, p->dst);
    if (is_tcp)
        WEIR_ADD(&text, ", TCP port ");
    else
        WEIR_ADD(&text, ", UDP port ");
    weir_add_number(&text, p->port);
    WEIR_ADD(&text, ": contact every ");
    add_seconds(&text, e->period);
    WEIR_ADD(&text, " with a jitter of ");
    add_seconds(&text, e->jitter);
    WEIR_ADD(&text, ", ");
    weir_add_number(&text, p->contacts);
    WEIR_ADD(&text, " times");
    const struct weir_packet encapsulation = { .flags = p->flags, .vlan_count = p->vlan_count, .mpls_count = p->mpls_count };
    weir_add_encapsulation(&filter, &encapsulation);
    /* A filter cannot look into a tunnel. */
    if (!has_tunnel) {
        if (is_tcp)
            WEIR_ADD(&filter, "tcp port ");
        else
            WEIR_ADD(&filter, "udp port ");
        weir_add_number(&filter, p->port);
        WEIR_ADD(&filter, " and ");
    }
    WEIR_ADD(&filter, "host ");
    weir_add_ip(&filter, has_tunnel ? p->outer_src : p->src);
    WEIR_ADD(&filter, " and host ");
    weir_add_ip(&filter, has_tunnel ? p->outer_dst : p->dst);
    const struct findings_row row = {
        .time = now,
        /* Within a site, monitoring is periodic as well. */
        .severity = is_private(p->dst) ? WEIR_LOW : WEIR_MEDIUM,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("beacons", 7),
    };
    emit_findings(&row);
}

/* Judges a pair, and emits a row if its score is high. */
static __attribute__((noinline)) void review(struct pair *p, uint64_t now)
{
    struct estimate e;
    const uint32_t n = judge(p, &e);
    if (e.score < param_score())
        return;
    struct beacons_row row = {
        .time = now,
        .first_time = p->first_ns,
        .last_time = p->start_ns,
        .dst_port = p->port,
        .protocol = p->protocol,
        .vlan = p->vlan_tci & 0xFFF,
        .has_vlan = (p->flags & WEIR_VLAN) != 0,
        .tunnel = weir_tunnel_name(p->tunnel),
        .contacts = p->contacts,
        .intervals = n,
        .missed = e.missed,
        .period_ns = (int64_t)(e.period * (double)UNIT),
        .jitter_ns = (uint64_t)(e.jitter * (double)UNIT),
        .regular = e.regular,
        .score = e.score,
    };
    weir_ip_store(row.src, p->src);
    weir_ip_store(row.dst, p->dst);
    emit_beacons(&row);
    p->reported_contacts = p->contacts;
    const bool is_lasting = since(p->start_ns, p->first_ns) >= (uint64_t)param_finding_time();
    if (e.score >= param_finding_score() && is_lasting && !p->is_found
        && findings_made < FINDINGS + since(now, begin_ns) / (60 * SECOND)) {
        p->is_found = true;
        findings_made++;
        emit_finding(p, &e, now);
    }
}

/* ---- Contacts -------------------------------------------------------------------------------------------------------- */

static inline uint32_t units(uint64_t ns)
{
    return ns / UNIT < UINT32_MAX ? (uint32_t)(ns / UNIT) : UINT32_MAX - 1;
}

/* Counts a contact of a pair without an entry. Returns the candidate if this is its third contact. */
static struct candidate *third_contact(uint64_t key, uint64_t now, uint32_t syn)
{
    struct candidate *set = candidates[key >> (64 - CANDIDATE_BITS)], *oldest = set;
    for (uint32_t way = 0; way < CANDIDATE_WAYS; way++) {
        struct candidate *c = &set[way];
        if (c->key == key) {
            if (since(now, c->seen_ns) < (uint64_t)param_burst() || (syn != 0 && syn == c->syn)) {
                c->seen_ns = now;
                return NULL;
            }
            if (c->interval != 0)
                return c;
            c->interval = units(since(now, c->start_ns)) | 1;
            c->start_ns = c->seen_ns = now;
            c->syn = syn;
            return NULL;
        }
        /* A pair with two contacts stays ten minutes longer. */
        const uint64_t worth = c->seen_ns + (c->interval != 0 ? 600 * SECOND : 0);
        if (worth < oldest->seen_ns + (oldest->interval != 0 ? 600 * SECOND : 0))
            oldest = c;
    }
    *oldest = (struct candidate){ .key = key, .start_ns = now, .seen_ns = now, .syn = syn };
    return NULL;
}

static struct pair *find(uint64_t key, struct weir_ip src, struct weir_ip dst)
{
    const uint32_t set = (uint32_t)(key >> 8) & set_mask;
    for (uint32_t way = 0; way < WAYS; way++) {
        struct pair *p = &pairs[(size_t)set * WAYS + way];
        if (sets[set].key[way] == key && p->src.first == src.first && p->src.last == src.last && p->dst.first == dst.first
            && p->dst.last == dst.last)
            return p;
    }
    return NULL;
}

/* Returns the entry for a new pair: a free one, or the one of least worth. A row is lost with it, but no more than one. */
static struct pair *new_pair(uint64_t key)
{
    const uint32_t set = (uint32_t)(key >> 8) & set_mask;
    struct pair *first = &pairs[(size_t)set * WAYS];
    uint32_t least = 0;
    uint64_t least_worth = UINT64_MAX;
    for (uint32_t way = 0; way < WAYS; way++) {
        const uint64_t contacts = first[way].contacts < 1024 ? first[way].contacts : 1024;
        const uint64_t worth = sets[set].key[way] == 0 ? 0 : first[way].seen_ns + contacts * WORTH_NS;
        if (worth < least_worth) {
            least = way;
            least_worth = worth;
        }
    }
    sets[set].key[least] = key;
    return &first[least];
}

/* Counts a contact. `p` is the packet as captured, `q` as the layer describes it. */
static __attribute__((noinline)) void contact(const struct weir_packet *p, const struct weir_packet *q)
{
    const struct weir_ip src = weir_src(q), dst = weir_dst(q);
    const uint64_t now = p->ts_ns;
    const uint16_t port = q->dst_port;
    if (is_ignored[port / 64] >> (port % 64) & 1 || is_group(dst))
        return;
    uint64_t hash = weir_hash_add(weir_hash_add((uint64_t)port << 8 | q->ip_proto, src.first), src.last);
    const uint64_t key = weir_hash_end(weir_hash_add(weir_hash_add(hash, dst.first), dst.last)) | 1;
    const bool is_tcp = (q->flags & WEIR_TCP) != 0;
    const uint32_t seq = is_tcp ? weir_tcp_seq(q) : 0;
    const uint32_t syn = is_tcp ? (uint32_t)weir_hash64(seq, q->src_port) | 1 : 0;
    struct pair *pair = find(key, src, dst);
    if (pair == NULL) {
        struct candidate *c = third_contact(key, now, syn);
        if (WEIR_LIKELY(c == NULL))
            return;
        pair = new_pair(key);
        const uint64_t first_ns = c->start_ns - c->interval * UNIT;
        *pair = (struct pair){ .src = src, .dst = dst, .first_ns = first_ns, .start_ns = c->start_ns, .seen_ns = c->seen_ns,
                               .contacts = 2, .port = port, .protocol = q->ip_proto };
        pair->intervals[0] = c->interval;
        *c = (struct candidate){ .key = 0 };
    } else {
        const bool is_repeated = is_tcp && pair->last_seq == seq && pair->last_port == q->src_port;
        if (since(now, pair->seen_ns) < (uint64_t)param_burst() || is_repeated) {
            pair->seen_ns = now;
            return;
        }
    }
    pair->intervals[(pair->contacts - 1) % INTERVALS] = units(since(now, pair->start_ns));
    pair->contacts++;
    pair->start_ns = pair->seen_ns = now;
    pair->last_seq = seq;
    pair->last_port = q->src_port;
    pair->tunnel = p == q ? WEIR_TUNNEL_NONE : p->tunnel;
    pair->flags = p->flags;
    pair->vlan_tci = p->vlan_tci;
    pair->vlan_count = p->vlan_count;
    pair->mpls_count = p->mpls_count;
    if (p != q) {
        pair->outer_src = weir_src(p);
        pair->outer_dst = weir_dst(p);
    }
    if (pair->contacts < (uint64_t)param_contacts() || pair->contacts < pair->next_check)
        return;
    review(pair, now);
    /* Sooner again while it is no beacon. */
    pair->next_check = pair->reported_contacts == pair->contacts ? 2 * pair->contacts : pair->contacts + pair->contacts / 4;
}

/* Returns true for the first UDP packet of a burst of its flow, from the side that began the flow. */
static __attribute__((noinline)) bool is_start(const struct weir_packet *q)
{
    const uint64_t now = q->ts_ns;
    const struct weir_ip src = weir_src(q), dst = weir_dst(q);
    const bool is_upper = q->src_port != q->dst_port ? q->src_port > q->dst_port
                          : src.first != dst.first   ? src.first > dst.first
                                                     : src.last > dst.last;
    const uint64_t key = (q->flow_hash & ~UINT64_C(3)) | 2 | is_upper;
    struct flow *set = flows[q->flow_hash >> (64 - FLOW_BITS)], *oldest = set;
    for (uint32_t way = 0; way < FLOW_WAYS; way++) {
        struct flow *f = &set[way];
        if ((f->key | 1) == (key | 1)) {
            const bool is_burst = since(now, f->seen_ns) < (uint64_t)param_burst();
            if (f->key != key)
                return false;
            f->seen_ns = now;
            return !is_burst;
        }
        if (f->seen_ns < oldest->seen_ns)
            oldest = f;
    }
    /* A packet of a server whose client was not seen begins the client's flow. */
    const bool is_answer = q->src_port < 1024 && q->dst_port >= 1024;
    *oldest = (struct flow){ .key = key ^ is_answer, .seen_ns = now };
    return !is_answer;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    static struct weir_packet room;
    const struct weir_packet *q = p;
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        q = weir_innermost(p, &room);
    if (begin_ns == 0)
        begin_ns = p->ts_ns;
    const bool is_syn = (q->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_ACK | WEIR_TCP_RST)) == WEIR_TCP_SYN;
    const bool is_udp = (q->flags & WEIR_UDP) != 0;
    if (WEIR_LIKELY(!is_syn && !is_udp) || (q->flags & WEIR_L4) == 0)
        return WEIR_PASS;
    if (is_udp && !is_start(q))
        return WEIR_PASS;
    contact(p, q);
    return WEIR_PASS;
}

/* ---- Start and stop -------------------------------------------------------------------------------------------------- */

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    static uint64_t ports[PORTS_MAX];
    const uint32_t ports_len = (uint32_t)param_ignore_ports((uint8_t *)ports, sizeof ports);
    if (ports_len > sizeof ports) {
        WEIR_LOG(WEIR_ERROR, "ignore-ports: at most 256");
        return 1;
    }
    for (uint32_t i = 0; i < PORTS_MAX && i < ports_len / 8; i++)
        is_ignored[ports[i] / 64 % (65536 / 64)] |= UINT64_C(1) << (ports[i] % 64);
    /* Rounded down, so that the parameter is a limit of loops over the table. */
    const uint32_t set_bits = 63 - (uint32_t)__builtin_clzll((uint64_t)param_table_size() / WAYS);
    const uint32_t count = 1u << set_bits;
    set_mask = count - 1;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    pairs = weir_alloc(count * WAYS * (uint32_t)sizeof *pairs);
    if (sets == NULL || pairs == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    const uint32_t entries = (set_mask + 1) * WAYS;
    for (uint32_t at = 0; at < (uint32_t)param_table_size() && at < entries; at++) {
        struct pair *p = &pairs[at];
        if (sets[at / WAYS].key[at % WAYS] != 0 && p->contacts >= (uint64_t)param_contacts()
            && p->contacts != p->reported_contacts)
            review(p, now);
    }
}
