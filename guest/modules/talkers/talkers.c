/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * talkers: the hosts, prefixes, ports and pairs of hosts with most bytes and packets in each interval.
 *
 * A packet is added to its flow in a small table of exact counts. Only a flow that loses its place there, or that is left at the
 * interval's end, is added to its ports and to its pair. In the same way a pair hands its counts on to its two hosts, and a host to
 * its prefix, so that most packets change one cache line. No step loses or adds a packet.
 *
 * Ports have an exact counter each. Pairs, hosts and prefixes are counted by Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi,
 * "Efficient computation of frequent and top-k elements in data streams", ICDT 2005), within sets of WAYS entries: a new key takes
 * the place of the one with the lowest score. The score is bytes + SCORE_BYTES * packets, so that one table keeps the heavy ones
 * of both. A set keeps, for bytes and for packets, the highest count that it ever evicted. A key without a place has at most that
 * much; it is the error of a key that gets a place. So count - error <= truth <= count holds for each row.
 */
#include "weir.h"
#include "module.h"

enum { WAYS = 4, TOP_MAX = 100 };

/* The bytes that a packet counts for in a score, about the mean size of packets: bytes and packets have the same weight. */
enum { SCORE_BYTES = 512 };

/* ---- Tables of pairs, hosts and prefixes --------------------------------------------------------------------------- */

/* What a search reads of a set: a cache line. */
struct set {
    uint32_t tag[WAYS]; /* bits of the hash; 0: free */
    uint64_t score[WAYS];
    uint64_t floor_bytes; /* the most bytes and packets that a key without a place can have */
    uint64_t floor_packets;
};

struct entry {
    struct weir_ip ip;
    union {
        struct weir_ip peer;                                  /* of a pair */
        struct { uint64_t prefix_bytes, prefix_packets; };    /* of a host: the part of its counts that goes to its prefix */
    };
    uint64_t bytes, packets; /* since the key has its place: exact */
    uint64_t error_bytes, error_packets;
};

_Static_assert(sizeof(struct set) == 64 && sizeof(struct entry) == 64, "a cache line each");

struct table {
    struct set *sets;
    struct entry *entries; /* WAYS for each set */
    uint64_t floor_bytes;  /* the highest ones of all sets */
    uint64_t floor_packets;
};

static struct table pairs, hosts, prefixes;

/* Of each of the three tables. A constant of the running module. */
static inline uint32_t sets_of_table(void)
{
    return (uint32_t)param_table_size() / WAYS;
}

/* Returns the set of a hash: its upper half, scaled to the number of sets. */
static inline uint32_t set_of(uint64_t hash)
{
    return (uint32_t)((hash >> 32) * sets_of_table() >> 32);
}

static bool is_outer;

/* Masks of prefixes, as words in memory order. */
static struct weir_ip v4_mask, v6_mask;

static uint64_t total_bytes, total_packets; /* of the flows that were handed on in this interval */

static inline bool same_ip(struct weir_ip a, struct weir_ip b)
{
    return ((a.first ^ b.first) | (a.last ^ b.last)) == 0;
}

static inline struct weir_ip prefix_of(struct weir_ip ip)
{
    const struct weir_ip mask = weir_ip_is_v4(ip) ? v4_mask : v6_mask;
    return (struct weir_ip){ ip.first & mask.first, ip.last & mask.last };
}

static inline uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the key's way in a set, or WAYS. `peer` is NULL but for pairs. Without branches up to the comparison of the whole key. */
static inline uint32_t find(const struct set *set, const struct entry *first, uint32_t tag, struct weir_ip ip, const struct weir_ip *peer)
{
    uint32_t same = 0;
    for (uint32_t way = 0; way < WAYS; way++)
        same |= (uint32_t)(set->tag[way] == tag) << way;
    for (uint32_t tries = 0; tries < WAYS && same != 0; tries++, same &= same - 1) {
        const uint32_t way = (uint32_t)__builtin_ctz(same);
        if (WEIR_LIKELY(same_ip(first[way].ip, ip) && (peer == NULL || same_ip(first[way].peer, *peer))))
            return way;
    }
    return WAYS;
}

/* Returns the way with the lowest score. */
static inline uint32_t lowest(const struct set *set)
{
    _Static_assert(WAYS == 4, "two rounds");
    const uint32_t a = set->score[1] < set->score[0], b = 2 + (set->score[3] < set->score[2]);
    return set->score[b] < set->score[a] ? b : a;
}

/* Gives a key the place of another one, whose counts have been handed on. */
static inline void replace(struct table *table, struct set *set, struct entry *e, uint32_t way, uint32_t tag, struct weir_ip ip)
{
    if (WEIR_LIKELY(set->tag[way] != 0)) {
        set->floor_bytes = max64(set->floor_bytes, e->bytes + e->error_bytes);
        set->floor_packets = max64(set->floor_packets, e->packets + e->error_packets);
        table->floor_bytes = max64(table->floor_bytes, set->floor_bytes);
        table->floor_packets = max64(table->floor_packets, set->floor_packets);
    }
    set->tag[way] = tag;
    *e = (struct entry){ .ip = ip, .error_bytes = set->floor_bytes, .error_packets = set->floor_packets };
}

static inline void add(struct set *set, struct entry *e, uint32_t way, uint64_t bytes, uint64_t packets)
{
    set->score[way] += bytes + SCORE_BYTES * packets;
    e->bytes += bytes;
    e->packets += packets;
}

/* ---- Ports ---------------------------------------------------------------------------------------------------------- */

/* TCP's ports, UDP's, and one for packets without ports. */
enum { NO_PORT = 2 * 65536, PORTS };
static struct { uint64_t bytes, packets; } ports[PORTS];

/* ---- Counts on their way ----------------------------------------------------------------------------------------------- */

/* What leaves its place waits in a queue, and goes on after a batch of packets, or of entries at the interval's end. A queue is read
 * several times: at first only to read the lines of memory that it needs. These reads do not wait for each other, but branches that
 * depend on them would. With many keys this saves a quarter of the time. */
enum { FLOWS_PENDING = WEIR_BATCH_PACKETS, HOSTS_PENDING = 2 * FLOWS_PENDING };

struct pending {
    struct weir_ip ip, peer; /* the peer of a pair alone */
    uint64_t hash, bytes, packets;
    uint32_t port[2];
};

static struct pending pending_pairs[FLOWS_PENDING], pending_hosts[HOSTS_PENDING], pending_prefixes[HOSTS_PENDING];
static bool is_for_prefix[HOSTS_PENDING]; /* of pending hosts: false if the other host counts for the same prefix */
static uint32_t pairs_len, hosts_len, prefixes_len;
static uint32_t touched; /* keeps the compiler from leaving reads out */

static inline uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)hash | 1; /* 0: free */
}

/* Reads the sets of pending keys, and then the entries that they will probably change. */
static inline void touch(const struct table *table, const struct pending *pending, uint32_t len, uint32_t most)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < most && i < len; i++)
        seen ^= table->sets[set_of(pending[i].hash)].tag[0];
    for (uint32_t i = 0; i < most && i < len; i++) {
        const uint32_t number = set_of(pending[i].hash), tag = tag_of(pending[i].hash);
        const struct set *set = &table->sets[number];
        uint32_t way = lowest(set);
        for (uint32_t other = 0; other < WAYS; other++)
            way = set->tag[other] == tag ? other : way;
        seen ^= (uint32_t)table->entries[(size_t)number * WAYS + way].ip.last;
    }
    touched ^= seen;
}

static __attribute__((noinline)) void add_to_prefix(const struct pending *q)
{
    const uint32_t number = set_of(q->hash), tag = tag_of(q->hash);
    struct set *set = &prefixes.sets[number];
    struct entry *first = &prefixes.entries[(size_t)number * WAYS];
    uint32_t way = find(set, first, tag, q->ip, NULL);
    if (way == WAYS) {
        way = lowest(set);
        replace(&prefixes, set, &first[way], way, tag, q->ip);
    }
    add(set, &first[way], way, q->bytes, q->packets);
}

/* Hands a host's counts on to its prefix. There is room: a queue of prefixes takes as many as one of hosts causes. */
static __attribute__((noinline)) void leave_host(const struct entry *e)
{
    if (e->prefix_packets == 0)
        return;
    struct pending *q = &pending_prefixes[prefixes_len++ % HOSTS_PENDING];
    q->ip = prefix_of(e->ip);
    q->hash = weir_hash64(q->ip.first, q->ip.last);
    q->bytes = e->prefix_bytes;
    q->packets = e->prefix_packets;
}

static __attribute__((noinline)) void add_to_host(const struct pending *q, bool is_for_its_prefix)
{
    const uint32_t number = set_of(q->hash), tag = tag_of(q->hash);
    struct set *set = &hosts.sets[number];
    struct entry *first = &hosts.entries[(size_t)number * WAYS];
    uint32_t way = find(set, first, tag, q->ip, NULL);
    if (way == WAYS) {
        way = lowest(set);
        if (WEIR_LIKELY(set->tag[way] != 0))
            leave_host(&first[way]);
        replace(&hosts, set, &first[way], way, tag, q->ip);
    }
    add(set, &first[way], way, q->bytes, q->packets);
    const uint64_t mask = is_for_its_prefix ? ~(uint64_t)0 : 0;
    first[way].prefix_bytes += q->bytes & mask;
    first[way].prefix_packets += q->packets & mask;
}

/* Traffic within a prefix counts for its prefix once: with one of the two hosts. There is room, as in leave_host. */
static inline void hand_to_host(struct weir_ip ip, uint64_t bytes, uint64_t packets, bool is_for_its_prefix)
{
    const uint32_t i = hosts_len++ % HOSTS_PENDING;
    struct pending *q = &pending_hosts[i];
    q->ip = ip;
    q->hash = weir_hash64(ip.first, ip.last);
    q->bytes = bytes;
    q->packets = packets;
    is_for_prefix[i] = is_for_its_prefix;
}

/* Hands a pair's counts on to its hosts. */
static __attribute__((noinline)) void leave_pair(const struct entry *e)
{
    hand_to_host(e->ip, e->bytes, e->packets, true);
    if (!same_ip(e->ip, e->peer))
        hand_to_host(e->peer, e->bytes, e->packets, !same_ip(prefix_of(e->ip), prefix_of(e->peer)));
}

static __attribute__((noinline)) void add_to_pair(const struct pending *q)
{
    const uint32_t number = set_of(q->hash), tag = tag_of(q->hash);
    struct set *set = &pairs.sets[number];
    struct entry *first = &pairs.entries[(size_t)number * WAYS];
    uint32_t way = find(set, first, tag, q->ip, &q->peer);
    if (way == WAYS) {
        way = lowest(set);
        if (WEIR_LIKELY(set->tag[way] != 0))
            leave_pair(&first[way]);
        replace(&pairs, set, &first[way], way, tag, q->ip);
        first[way].peer = q->peer;
    }
    add(set, &first[way], way, q->bytes, q->packets);
}

static __attribute__((noinline)) void settle_prefixes(void)
{
    touch(&prefixes, pending_prefixes, prefixes_len, HOSTS_PENDING);
    for (uint32_t i = 0; i < HOSTS_PENDING && i < prefixes_len; i++)
        add_to_prefix(&pending_prefixes[i]);
    prefixes_len = 0;
}

static __attribute__((noinline)) void settle_hosts(void)
{
    touch(&hosts, pending_hosts, hosts_len, HOSTS_PENDING);
    for (uint32_t i = 0; i < HOSTS_PENDING && i < hosts_len; i++)
        add_to_host(&pending_hosts[i], is_for_prefix[i]);
    hosts_len = 0;
    if (prefixes_len != 0)
        settle_prefixes();
}

/* Adds the flows that have left their places to their ports and pairs, and what leaves its place there to hosts and prefixes. */
static __attribute__((noinline)) void settle(void)
{
    for (uint32_t i = 0; i < FLOWS_PENDING && i < pairs_len; i++)
        for (uint32_t end = 0; end < 2; end++) {
            const struct pending *q = &pending_pairs[i];
            ports[q->port[end]].bytes += q->bytes;
            ports[q->port[end]].packets += q->packets;
        }
    touch(&pairs, pending_pairs, pairs_len, FLOWS_PENDING);
    for (uint32_t i = 0; i < FLOWS_PENDING && i < pairs_len; i++)
        add_to_pair(&pending_pairs[i]);
    pairs_len = 0;
    if (hosts_len != 0)
        settle_hosts();
}

/* ---- Flows ---------------------------------------------------------------------------------------------------------- */

/* A flow in both directions. Its end with the lower address (as a word in memory order) is the first one. An entry keeps its
 * identity when its counts are handed on. */
struct flow {
    uint64_t addresses; /* IPv4: first | second << 32; IPv6: a hash, and the addresses are in `wide` */
    uint64_t kind;      /* flags of KIND_FLAGS | ports << 32; 0: free */
    uint64_t bytes, packets;
};

struct wide {
    struct weir_ip first, second;
};

enum { FLOW_SET_BITS = 14, FLOW_SETS = 1 << FLOW_SET_BITS, FLOW_WAYS = 2 };
enum { KIND_FLAGS = WEIR_IPV4 | WEIR_IPV6 | WEIR_TCP | WEIR_UDP };

static struct flow (*flows)[FLOW_WAYS]; /* a set is a cache line */
static struct wide (*wides)[FLOW_WAYS];

static bool any;            /* true from the first IP packet of the run on */
static uint64_t begin_hint; /* a time in the first interval */

/* Hands a flow's counts on to its ports and its pair. There is room: a batch has no more packets. */
static __attribute__((noinline)) void leave_flow(struct flow *f, const struct wide *wide)
{
    struct pending *q = &pending_pairs[pairs_len++ % FLOWS_PENDING];
    q->bytes = f->bytes;
    q->packets = f->packets;
    f->bytes = f->packets = 0;
    total_bytes += q->bytes;
    total_packets += q->packets;
    q->port[0] = q->port[1] = NO_PORT;
    if (f->kind & (WEIR_TCP | WEIR_UDP)) {
        const uint32_t base = (f->kind & WEIR_UDP) ? NO_PORT / 2 : 0;
        const uint16_t first = (uint16_t)(f->kind >> 32), second = (uint16_t)(f->kind >> 48);
        q->port[0] = base + first;
        if (first != second)
            q->port[1] = base + second;
    }
    if (f->kind & WEIR_IPV4) {
        q->ip = (struct weir_ip){ 0, f->addresses << 32 | 0xFFFF0000u };
        q->peer = (struct weir_ip){ 0, (f->addresses >> 32) << 32 | 0xFFFF0000u };
    } else {
        q->ip = wide->first;
        q->peer = wide->second;
    }
    q->hash = weir_hash_end(
        weir_hash_add(weir_hash_add(weir_hash_add(weir_hash_add(0, q->ip.last), q->peer.last), q->ip.first), q->peer.first));
}

/* Gives a flow a place: that of the flow with fewer packets in this interval. Returns its way. */
static __attribute__((noinline)) uint32_t new_flow(uint64_t time, uint32_t set, uint64_t addresses, uint64_t kind)
{
    struct flow *f = flows[set];
    const uint32_t way = f[1].packets < f[0].packets;
    if (f[way].packets != 0)
        leave_flow(&f[way], &wides[set][way]);
    f[way].addresses = addresses;
    f[way].kind = kind;
    if (WEIR_UNLIKELY(!any)) {
        any = true;
        begin_hint = time;
    }
    return way;
}

/* The flags and ports of a packet, as in struct flow. Fragments have no ports: only the first one has any. */
static inline uint64_t kind_of(const struct weir_packet *p, bool is_swapped)
{
    const uint32_t flags = p->flags;
    const uint32_t wire = weir_le32(&p->src_port), both = is_swapped ? wire << 16 | wire >> 16 : wire;
    const bool has_ports = (flags & (WEIR_L4 | WEIR_FRAGMENT)) == WEIR_L4;
    const uint64_t with_ports = (uint64_t)both << 32 | (flags & KIND_FLAGS);
    return has_ports ? with_ports : flags & (WEIR_IPV4 | WEIR_IPV6);
}

static __attribute__((noinline)) void count_v6(const struct weir_packet *p)
{
    const struct weir_ip src = weir_src(p), dst = weir_dst(p);
    const bool is_swapped = dst.first < src.first || (dst.first == src.first && dst.last < src.last);
    const struct wide ends = is_swapped ? (struct wide){ dst, src } : (struct wide){ src, dst };
    const uint64_t kind = kind_of(p, is_swapped), addresses = p->flow_hash;
    const uint32_t set = (uint32_t)(p->flow_hash >> (64 - FLOW_SET_BITS));
    struct flow *f = flows[set];
    struct wide *wide = wides[set];
    uint32_t way = 0;
    for (; way < FLOW_WAYS; way++)
        if (f[way].addresses == addresses && f[way].kind == kind && same_ip(wide[way].first, ends.first) &&
            same_ip(wide[way].second, ends.second))
            break;
    if (way == FLOW_WAYS) {
        way = new_flow(p->ts_ns, set, addresses, kind);
        wide[way] = ends;
    }
    f[way].bytes += p->wire_len;
    f[way].packets++;
}

static inline void count(const struct weir_packet *p)
{
    if (WEIR_UNLIKELY(!(p->flags & WEIR_IPV4))) {
        if (p->flags & WEIR_IPV6)
            count_v6(p);
        return;
    }
    const uint64_t wire = weir_le64(weir_l3(p) + 12), turned = wire << 32 | wire >> 32;
    const bool is_swapped = turned < wire;
    const uint64_t addresses = is_swapped ? turned : wire, kind = kind_of(p, is_swapped);
    const uint32_t set = (uint32_t)(p->flow_hash >> (64 - FLOW_SET_BITS));
    struct flow *f = flows[set];
    if (f->addresses != addresses || f->kind != kind) {
        f++;
        if (f->addresses != addresses || f->kind != kind)
            f = flows[set] + new_flow(p->ts_ns, set, addresses, kind);
    }
    f->bytes += p->wire_len;
    f->packets++;
}

static __attribute__((noinline)) void count_inner(const struct weir_packet *p)
{
    struct weir_packet room;
    count(weir_innermost(p, &room));
}

/* Two passes over the packets of a batch: the first one only reads the sets of their flows, so that these reads do not wait for each
 * other. With many flows, that halves the time. What has left its place then
 * goes on together. */
WEIR_EXPORT(weir_batch) uint64_t weir_batch(const struct weir_packet *descriptors, uint64_t mask)
{
    const struct weir_packet *p;
    uint64_t seen = 0;
    WEIR_EACH(p, descriptors, mask)
        seen ^= flows[p->flow_hash >> (64 - FLOW_SET_BITS)]->addresses;
    touched ^= (uint32_t)seen;
    WEIR_EACH(p, descriptors, mask) {
        if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
            count_inner(p);
        else
            count(p);
    }
    if (pairs_len != 0)
        settle();
    return 0;
}

/* ---- The highest counts -------------------------------------------------------------------------------------------- */

/* The highest counts so far, as a heap with the lowest one first. It begins with counts of 0, which stand for no entry. */
struct ranking {
    uint64_t count[TOP_MAX];
    uint32_t index[TOP_MAX];
};

static struct ranking by_bytes, by_packets;

/* Moves the first element of a heap of `len` down to its place. */
static inline void sift(struct ranking *r, uint32_t len)
{
    enum { DEPTH = 7 };
    _Static_assert(TOP_MAX < 1 << DEPTH, "depth of the heap");
    const uint64_t count = r->count[0];
    const uint32_t index = r->index[0];
    uint32_t at = 0;
    for (uint32_t depth = 0; depth < DEPTH; depth++) {
        uint32_t child = 2 * at + 1;
        if (child >= len)
            break;
        if (child + 1 < len && r->count[child + 1] < r->count[child])
            child++;
        if (r->count[child] >= count)
            break;
        r->count[at] = r->count[child];
        r->index[at] = r->index[child];
        at = child;
    }
    r->count[at] = count;
    r->index[at] = index;
}

static __attribute__((noinline)) void insert(struct ranking *r, uint32_t len, uint64_t count, uint32_t index)
{
    r->count[0] = count;
    r->index[0] = index;
    sift(r, len);
}

static inline void offer(struct ranking *r, uint32_t len, uint64_t count, uint32_t index)
{
    if (WEIR_UNLIKELY(count > r->count[0]))
        insert(r, len, count, index);
}

/* Sorts a heap, the highest count first. */
static __attribute__((noinline)) void sort(struct ranking *r, uint32_t len)
{
    for (uint32_t last = TOP_MAX - 1; last > 0; last--) {
        if (last >= len)
            continue;
        const uint64_t count = r->count[last];
        const uint32_t index = r->index[last];
        r->count[last] = r->count[0];
        r->index[last] = r->index[0];
        r->count[0] = count;
        r->index[0] = index;
        sift(r, last);
    }
}

/* Returns the place of an entry, from 1; 0 for none. */
static inline uint32_t rank_in(const struct ranking *r, uint32_t len, uint32_t index)
{
    for (uint32_t i = 0; i < TOP_MAX && i < len; i++)
        if (r->index[i] == index && r->count[i] != 0)
            return i + 1;
    return 0;
}

/* ---- Findings -------------------------------------------------------------------------------------------------------- */

/* Of a ranking, only the first entries are candidates. */
enum { SUBJECTS = 64, FINDINGS_PER_INTERVAL = 2, CANDIDATES = 10, COVERED_MAX = 4 * CANDIDATES };

/* A pair, or a host with itself as its peer, that was a finding. */
struct subject {
    struct weir_ip ip, peer;
    uint64_t time; /* begin of the last interval in which it had its share */
    bool is_used;
};

static struct subject subjects[SUBJECTS];

/* The findings of this interval, reported at its end in one place. */
struct finding {
    struct weir_ip ip, peer;
    uint64_t bytes, packets;
    uint32_t percent;
    bool is_pair, is_of_bytes;
};

static struct finding found[FINDINGS_PER_INTERVAL];
static uint32_t found_len;

/* Returns true if the subject is to be reported, and remembers it. */
static __attribute__((noinline)) bool is_news(struct weir_ip ip, struct weir_ip peer, uint64_t time)
{
    const uint64_t quiet_ns = (uint64_t)param_quiet();
    struct subject *oldest = subjects;
    for (uint32_t i = 0; i < SUBJECTS; i++) {
        struct subject *s = &subjects[i];
        if (s->is_used && same_ip(s->ip, ip) && same_ip(s->peer, peer)) {
            const uint64_t since = time - s->time;
            s->time = time;
            return since > quiet_ns + (uint64_t)param_interval() && found_len < FINDINGS_PER_INTERVAL;
        }
        if (oldest->is_used && (!s->is_used || s->time < oldest->time))
            oldest = s;
    }
    if (found_len >= FINDINGS_PER_INTERVAL)
        return false;
    *oldest = (struct subject){ ip, peer, time, true };
    return true;
}

/* True if a is the lower address. */
static bool is_lower(struct weir_ip a, struct weir_ip b)
{
    const uint64_t a_first = __builtin_bswap64(a.first), b_first = __builtin_bswap64(b.first);
    return a_first != b_first ? a_first < b_first : __builtin_bswap64(a.last) < __builtin_bswap64(b.last);
}

static void add_hosts(struct weir_text *text, struct weir_ip ip, const struct weir_ip *peer)
{
    WEIR_ADD(text, "host ");
    weir_add_ip(text, ip);
    if (peer != NULL) {
        WEIR_ADD(text, " and host ");
        weir_add_ip(text, *peer);
    }
}

static __attribute__((noinline)) void report(const struct finding *f, uint64_t time)
{
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    const bool is_swapped = f->is_pair && is_lower(f->peer, f->ip);
    const struct weir_ip ip = is_swapped ? f->peer : f->ip, other = is_swapped ? f->ip : f->peer, *peer = f->is_pair ? &other : NULL;
    weir_add_ip(&text, ip);
    if (f->is_pair) {
        WEIR_ADD(&text, " and ");
        weir_add_ip(&text, other);
        WEIR_ADD(&text, " exchanged ");
    } else {
        WEIR_ADD(&text, " sent and received ");
    }
    weir_add_number(&text, f->percent);
    if (f->is_of_bytes)
        WEIR_ADD(&text, " % of all bytes in ");
    else
        WEIR_ADD(&text, " % of all packets in ");
    weir_add_number(&text, (uint64_t)param_interval() / 1000000);
    WEIR_ADD(&text, " ms: ");
    weir_add_number(&text, f->bytes);
    WEIR_ADD(&text, " bytes in ");
    weir_add_number(&text, f->packets);
    WEIR_ADD(&text, " packets");
    /* With and without a VLAN tag: behind the word "vlan", a filter looks behind a tag. */
    WEIR_ADD(&filter, "(");
    add_hosts(&filter, ip, peer);
    WEIR_ADD(&filter, ") or (vlan and ");
    add_hosts(&filter, ip, peer);
    WEIR_ADD(&filter, ")");
    const struct findings_row row = {
        .time = time,
        .severity = WEIR_INFORMATIONAL,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("top", 3),
    };
    emit_findings(&row);
}

/* Hosts of pairs that have their share: the pair says more than its hosts. */
static struct weir_ip covered[COVERED_MAX];
static uint32_t covered_len;

static bool is_covered(struct weir_ip ip)
{
    for (uint32_t i = 0; i < COVERED_MAX && i < covered_len; i++)
        if (same_ip(covered[i], ip))
            return true;
    return false;
}

static void cover(struct weir_ip ip)
{
    if (covered_len < COVERED_MAX)
        covered[covered_len++] = ip;
}

/* Looks for entries of a ranking that have their share for certain. */
static __attribute__((noinline)) void look_for_findings(const struct table *table, const struct ranking *r, bool is_pair, uint64_t time,
                                                         bool is_of_bytes)
{
    const double share = param_share();
    const double least_bytes = (double)param_rate() / 8 * ((double)param_interval() / 1e9);
    if (share <= 0 || (double)total_bytes < least_bytes)
        return;
    const uint32_t len = (uint32_t)param_top();
    const uint64_t total = is_of_bytes ? total_bytes : total_packets;
    for (uint32_t i = 0; i < CANDIDATES && i < len && r->count[i] != 0; i++) {
        const struct entry *e = &table->entries[r->index[i]];
        const uint64_t certain = is_of_bytes ? e->bytes : e->packets;
        if ((double)certain < share * (double)total)
            continue;
        if (is_pair) {
            cover(e->ip);
            cover(e->peer);
        } else if (is_covered(e->ip)) {
            continue;
        }
        const struct weir_ip peer = is_pair ? e->peer : e->ip;
        if (is_news(e->ip, peer, time) && found_len < FINDINGS_PER_INTERVAL)
            found[found_len++] = (struct finding){
                .ip = e->ip,
                .peer = peer,
                .bytes = e->bytes,
                .packets = e->packets,
                .percent = (uint32_t)((double)certain * 100 / (double)total),
                .is_pair = is_pair,
                .is_of_bytes = is_of_bytes,
            };
    }
}

/* ---- The end of an interval ----------------------------------------------------------------------------------------- */

enum kind { HOST, PREFIX, PORT, PAIR };

static void fill_row(struct top_row *row, enum kind kind, uint32_t index)
{
    if (kind == PORT) {
        row->kind = weir_string("port", 4);
        row->protocol = index < NO_PORT / 2 ? 6 : 17;
        row->port = (uint16_t)index;
        row->has_protocol = row->has_port = true;
        row->bytes = ports[index].bytes;
        row->packets = ports[index].packets;
        return;
    }
    const struct entry *e = kind == HOST ? &hosts.entries[index] : kind == PREFIX ? &prefixes.entries[index] : &pairs.entries[index];
    row->bytes = e->bytes + e->error_bytes;
    row->error_bytes = e->error_bytes;
    row->packets = e->packets + e->error_packets;
    row->error_packets = e->error_packets;
    row->has_src = true;
    if (kind == PAIR) {
        const bool is_swapped = is_lower(e->peer, e->ip);
        row->kind = weir_string("pair", 4);
        row->has_dst = true;
        weir_ip_store(row->src, is_swapped ? e->peer : e->ip);
        weir_ip_store(row->dst, is_swapped ? e->ip : e->peer);
        return;
    }
    weir_ip_store(row->src, e->ip);
    row->kind = weir_string("host", 4);
    if (kind == PREFIX) {
        row->kind = weir_string("prefix", 6);
        row->prefix_length = (uint8_t)(weir_ip_is_v4(e->ip) ? param_prefix_v4() : param_prefix_v6());
        row->has_prefix_length = true;
    }
}

static __attribute__((noinline)) void emit_row(uint64_t time, enum kind kind, uint32_t index, uint32_t bytes_rank, uint32_t packets_rank)
{
    struct top_row row = {
        .time = time,
        .bytes_rank = bytes_rank,
        .has_bytes_rank = bytes_rank != 0,
        .packets_rank = packets_rank,
        .has_packets_rank = packets_rank != 0,
    };
    fill_row(&row, kind, index);
    emit_top(&row);
}

/* Sorts the two rankings and emits a row for each entry in them: in the order of bytes, then of packets. */
static __attribute__((noinline)) void emit_rankings(uint64_t time, enum kind kind)
{
    const uint32_t len = (uint32_t)param_top();
    sort(&by_bytes, len);
    sort(&by_packets, len);
    for (uint32_t i = 0; i < TOP_MAX && i < len && by_bytes.count[i] != 0; i++)
        emit_row(time, kind, by_bytes.index[i], i + 1, rank_in(&by_packets, len, by_bytes.index[i]));
    for (uint32_t i = 0; i < TOP_MAX && i < len && by_packets.count[i] != 0; i++)
        if (rank_in(&by_bytes, len, by_packets.index[i]) == 0)
            emit_row(time, kind, by_packets.index[i], 0, i + 1);
}

static void clear_rankings(void)
{
    weir_fill(&by_bytes, 0, sizeof by_bytes);
    weir_fill(&by_packets, 0, sizeof by_packets);
}

/* Ranks the entries of a table. */
static __attribute__((noinline)) void rank(const struct table *table)
{
    const uint32_t len = (uint32_t)param_top(), count = sets_of_table() * WAYS;
    clear_rankings();
    for (uint32_t i = 0; i < count; i++) {
        if (table->sets[i / WAYS].tag[i % WAYS] == 0)
            continue;
        const struct entry *e = &table->entries[i];
        offer(&by_bytes, len, e->bytes + e->error_bytes, i);
        offer(&by_packets, len, e->packets + e->error_packets, i);
    }
}

/* The most that an entry without a row can have: that of the last place, or that of a key without an entry. */
static void unlisted(const struct table *table, uint64_t *bytes, uint64_t *packets)
{
    const uint32_t last = (uint32_t)param_top() - 1;
    *bytes = max64(table->floor_bytes, by_bytes.count[last]);
    *packets = max64(table->floor_packets, by_packets.count[last]);
}

static void clear(struct table *table)
{
    weir_fill(table->sets, 0, sets_of_table() * sizeof *table->sets);
    table->floor_bytes = table->floor_packets = 0;
}

static __attribute__((noinline)) void end_flows(void)
{
    struct flow *const all = (struct flow *)flows;
    struct wide *const all_wide = (struct wide *)wides;
    for (uint32_t begin = 0; begin < FLOW_SETS * FLOW_WAYS; begin += FLOWS_PENDING) {
        for (uint32_t i = 0; i < FLOWS_PENDING; i++)
            if (all[begin + i].packets != 0)
                leave_flow(&all[begin + i], &all_wide[begin + i]);
        settle();
    }
}

static __attribute__((noinline)) void end_pairs(void)
{
    const uint32_t count = sets_of_table() * WAYS;
    for (uint32_t begin = 0; begin < count; begin += FLOWS_PENDING) {
        for (uint32_t i = 0; i < FLOWS_PENDING; i++)
            if (begin + i < count && pairs.sets[(begin + i) / WAYS].tag[i % WAYS] != 0)
                leave_pair(&pairs.entries[begin + i]);
        settle_hosts();
    }
    clear(&pairs);
}

static __attribute__((noinline)) void end_hosts(void)
{
    const uint32_t count = sets_of_table() * WAYS;
    for (uint32_t begin = 0; begin < count; begin += HOSTS_PENDING) {
        for (uint32_t i = 0; i < HOSTS_PENDING; i++)
            if (begin + i < count && hosts.sets[(begin + i) / WAYS].tag[i % WAYS] != 0)
                leave_host(&hosts.entries[begin + i]);
        settle_prefixes();
    }
    clear(&hosts);
}

static __attribute__((noinline)) void rank_ports(void)
{
    const uint32_t len = (uint32_t)param_top();
    clear_rankings();
    for (uint32_t i = 0; i < NO_PORT; i++) {
        if (ports[i].packets == 0)
            continue;
        offer(&by_bytes, len, ports[i].bytes, i);
        offer(&by_packets, len, ports[i].packets, i);
    }
}

static void end_interval(uint64_t time)
{
    end_flows();
    if (total_packets == 0)
        return;
    struct intervals_row row = { .time = time, .bytes = total_bytes, .packets = total_packets };
    found_len = covered_len = 0;

    rank(&pairs);
    emit_rankings(time, PAIR);
    unlisted(&pairs, &row.pair_unlisted_bytes, &row.pair_unlisted_packets);
    look_for_findings(&pairs, &by_bytes, true, time, true);
    look_for_findings(&pairs, &by_packets, true, time, false);
    end_pairs();

    rank(&hosts);
    emit_rankings(time, HOST);
    unlisted(&hosts, &row.host_unlisted_bytes, &row.host_unlisted_packets);
    look_for_findings(&hosts, &by_bytes, false, time, true);
    look_for_findings(&hosts, &by_packets, false, time, false);
    end_hosts();

    rank(&prefixes);
    emit_rankings(time, PREFIX);
    unlisted(&prefixes, &row.prefix_unlisted_bytes, &row.prefix_unlisted_packets);
    clear(&prefixes);

    rank_ports();
    emit_rankings(time, PORT);
    const uint32_t last = (uint32_t)param_top() - 1;
    row.port_unlisted_bytes = by_bytes.count[last];
    row.port_unlisted_packets = by_packets.count[last];
    weir_fill(ports, 0, sizeof ports);

    for (uint32_t i = 0; i < FINDINGS_PER_INTERVAL && i < found_len; i++)
        report(&found[i], time);
    emit_intervals(&row);
    total_bytes = total_packets = 0;
}

/* ---- Entry points ---------------------------------------------------------------------------------------------------- */

static struct weir_ip mask_of(uint32_t bits)
{
    const uint64_t high = bits == 0 ? 0 : bits >= 64 ? ~(uint64_t)0 : ~(uint64_t)0 << (64 - bits);
    const uint64_t low = bits <= 64 ? 0 : ~(uint64_t)0 << (128 - bits);
    return (struct weir_ip){ __builtin_bswap64(high), __builtin_bswap64(low) };
}

static bool begin_table(struct table *table)
{
    const uint32_t sets = sets_of_table();
    table->sets = weir_alloc(sets * (uint32_t)sizeof *table->sets);
    table->entries = weir_alloc(sets * WAYS * (uint32_t)sizeof *table->entries);
    return table->sets != NULL && table->entries != NULL;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    v4_mask = mask_of(96 + (uint32_t)param_prefix_v4());
    v6_mask = mask_of((uint32_t)param_prefix_v6());
    flows = weir_alloc(FLOW_SETS * sizeof *flows);
    wides = weir_alloc(FLOW_SETS * sizeof *wides);
    if (flows == NULL || wides == NULL || !begin_table(&pairs) || !begin_table(&hosts) || !begin_table(&prefixes)) {
        WEIR_LOG(WEIR_ERROR, "no memory for tables of this size");
        return 1;
    }
    return 0;
}

static bool is_ticked;
static uint64_t last_tick; /* begin of the interval after the last tick */

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    if (any)
        end_interval(now - periods * (uint64_t)param_interval());
    is_ticked = true;
    last_tick = now;
}

/* The last packet's time may lie before the interval, so the begin follows from the last tick, or from the first packet. */
WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    if (any)
        end_interval(is_ticked ? last_tick : begin_hint - begin_hint % (uint64_t)param_interval());
}
