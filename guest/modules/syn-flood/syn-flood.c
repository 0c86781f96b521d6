/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * syn-flood: change-point detection on SYN against FIN and RST packets, after H. Wang, D. Zhang, K. G. Shin, "Detecting SYN
 * flooding attacks", IEEE INFOCOM 2002. For each interval n, with K(n) a running mean of closed connections:
 *
 *     x(n) = (opened(n) - closed(n)) / K(n),    y(n) = max(0, y(n-1) + x(n) - a),    alarm: y(n) >= N
 *
 * opened: SYN and SYN-ACK (each direction of a connection opens with one of them and closes with one FIN), closed: FIN and a
 * share of RST. README.md lists the differences from the paper, with reasons.
 */
#include "weir.h"
#include "module.h"

/* Destinations are counted with Space-Saving (Metwally, Agrawal, El Abbadi, 2005) in sets of WAYS entries. */
enum { SETS = 256, WAYS = 4 };

/* Sources, destinations, and services (pairs of destination and port) of SYN packets are counted by linear counting (Whang,
 * Vander-Zanden, Taylor, 1990): the share of bits that stay 0 gives the number. Beyond 8 values a bit the number is cut. */
enum { SKETCH_BITS = 1 << 14 };
struct sketch {
    uint64_t words[SKETCH_BITS / 64];
};

/* An interval is that of a scan if the SYN packets go to at least SCAN_SERVICES services, with at most SCAN_SYNS to each on
 * average, and each source tries at least SCAN_SERVICES_PER_SOURCE of them. A flood sends many packets to each service, or has as
 * many forged sources as packets. */
#define SCAN_SERVICES 64.0
#define SCAN_SYNS 3.0
#define SCAN_SERVICES_PER_SOURCE 4.0

/* The cumulative sum stops at this many thresholds, so that an alarm ends at most LIMIT * N / a intervals after the flood. */
#define LIMIT 4.0

/* After this many empty intervals, y and K no longer change. It bounds the work on a gap. */
enum { EMPTY_INTERVALS_MAX = 4096 };

struct destination {
    struct weir_ip ip;
    uint64_t count; /* 0: free */
    uint64_t error;
};

static struct {
    uint64_t by_flags[8]; /* packets by FIN (1), SYN (2), RST (4) */
    uint64_t synack;
    uint8_t outermost_tunnel; /* of the last SYN packet in a tunnel; 0 without any */
} now_counts;

static struct destination destinations[SETS][WAYS];
/* The outer destination of the last SYN packet to each of them that was in a tunnel; a bit of the set says that there was one. */
static struct weir_ip tunnel_ends[SETS][WAYS];
static uint8_t has_tunnel[SETS];
static struct sketch source_sketch, destination_sketch, service_sketch;

static uint64_t interval_ns;
static double offset, threshold, past_weight, rst_share, least_mean;

static bool is_outer;

static bool any; /* true if this interval has packets; no time can mark that, as 0 is a legal time */

static uint8_t reported_severity; /* of the finding of this alarm; 0 without one */

static double mean; /* K before the floor; below 0: no interval yet */
static double cusum;

static inline void sketch_add(struct sketch *sketch, uint64_t hash)
{
    sketch->words[hash % (SKETCH_BITS / 64)] |= UINT64_C(1) << (hash >> 58);
}

/* Returns the estimated number of different values. */
static double sketch_count(const struct sketch *sketch)
{
    uint32_t ones = 0;
    for (uint32_t i = 0; i < SKETCH_BITS / 64; i++)
        ones += (uint32_t)__builtin_popcountll(sketch->words[i]);
    const uint32_t zeros = SKETCH_BITS - ones;
    /* At 8 values a bit, a share of e^-8 of the bits is 0. */
    return zeros < 6 ? SKETCH_BITS * 8.0 : -(double)SKETCH_BITS * weir_ln((double)zeros / SKETCH_BITS);
}

/* Notes where the tunnel of a SYN packet leads, as its outermost IP header describes it. */
static __attribute__((noinline)) void note_tunnel(uint32_t set, uint32_t way, const struct weir_packet *outer)
{
    tunnel_ends[set][way] = weir_dst(outer);
    has_tunnel[set] |= (uint8_t)(1u << way);
    now_counts.outermost_tunnel = weir_outermost_tunnel(outer);
}

/* Out of line, and by pointer: so that most packets pass without touching the shadow stack. `outer` is the packet as its outermost
 * IP header describes it. */
static __attribute__((noinline)) void count_destination(const struct weir_packet *p, const struct weir_packet *outer)
{
    const struct weir_ip ip = weir_dst(p), source = weir_src(p);
    const uint64_t hash = weir_hash64(ip.first, ip.last);
    sketch_add(&source_sketch, weir_hash64(source.first, source.last));
    sketch_add(&destination_sketch, hash);
    sketch_add(&service_sketch, weir_hash64(hash, p->dst_port));
    const uint32_t number = (uint32_t)(hash % SETS);
    struct destination *set = destinations[number];
    uint32_t least = 0;
    for (uint32_t way = 0; way < WAYS; way++) {
        if (set[way].count != 0 && set[way].ip.first == ip.first && set[way].ip.last == ip.last) {
            set[way].count++;
            if (WEIR_UNLIKELY(p != outer))
                note_tunnel(number, way, outer);
            return;
        }
        if (set[way].count < set[least].count)
            least = way;
    }
    set[least].ip = ip;
    set[least].error = set[least].count;
    set[least].count++;
    has_tunnel[number] &= (uint8_t)~(1u << least);
    if (WEIR_UNLIKELY(p != outer))
        note_tunnel(number, least, outer);
}

static inline uint32_t counted_flags(const struct weir_packet *p) { return p->tcp_flags & (WEIR_TCP_FIN | WEIR_TCP_SYN | WEIR_TCP_RST); }

WEIR_INLINE void count(const struct weir_packet *p, const struct weir_packet *outer)
{
    const uint32_t flags = counted_flags(p);
    if ((p->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_ACK)) == (WEIR_TCP_SYN | WEIR_TCP_ACK)) {
        now_counts.synack++;
        return;
    }
    now_counts.by_flags[flags]++;
    if (flags & WEIR_TCP_SYN)
        count_destination(p, outer);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    if (counted_flags(q) != 0)
        count(q, p);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    any = true;
    /* A packet in a tunnel has no TCP flags outside: no tunnel is carried over TCP. */
    if (WEIR_UNLIKELY(counted_flags(p) != 0))
        count(p, p);
    else if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    return WEIR_PASS;
}

static bool before(const struct destination *a, const struct destination *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    /* Equal counts are ordered by address, so that the order is the same on every machine. */
    uint64_t a_first = __builtin_bswap64(a->ip.first), b_first = __builtin_bswap64(b->ip.first);
    if (a_first != b_first)
        return a_first < b_first;
    return __builtin_bswap64(a->ip.last) < __builtin_bswap64(b->ip.last);
}

static void report_top(uint64_t time)
{
    const uint32_t top_entries = (uint32_t)param_top();
    const struct destination *last = NULL;
    for (uint32_t rank = 1; rank <= top_entries; rank++) {
        const struct destination *best = NULL;
        for (uint32_t i = 0; i < SETS * WAYS; i++) {
            const struct destination *d = &destinations[0][0] + i;
            if (d->count != 0 && (last == NULL || before(last, d)) && (best == NULL || before(d, best)))
                best = d;
        }
        if (best == NULL)
            return;
        struct top_row row = { .time = time, .rank = rank, .syn_packets = best->count, .error_packets = best->error };
        weir_ip_store(row.dst, best->ip);
        emit_top(&row);
        last = best;
    }
}

/* Returns the destination of most SYN packets; one with a count of 0 without any. */
static const struct destination *top_destination(void)
{
    const struct destination *best = &destinations[0][0];
    for (uint32_t i = 1; i < SETS * WAYS; i++) {
        const struct destination *d = &destinations[0][0] + i;
        if (d->count != 0 && (best->count == 0 || before(d, best)))
            best = d;
    }
    return best;
}

/* Adds a filter for the SYN packets to a destination. A filter cannot look into a tunnel: it selects the packets to the tunnel's end. */
static void add_target(struct weir_text *filter, const struct destination *d, const struct weir_ip *tunnel_end)
{
    if (tunnel_end != NULL)
        WEIR_ADD(filter, "(");
    WEIR_ADD(filter, "tcp and dst host ");
    weir_add_ip(filter, d->ip);
    if (tunnel_end != NULL) {
        WEIR_ADD(filter, " or dst host ");
        weir_add_ip(filter, *tunnel_end);
        WEIR_ADD(filter, ")");
    }
}

/* Adds a filter for TCP packets, and for the tunnel of the last SYN packet that was in one. */
static void add_any_target(struct weir_text *filter)
{
    WEIR_ADD(filter, "tcp");
    if (now_counts.outermost_tunnel != WEIR_TUNNEL_NONE) {
        WEIR_ADD(filter, " or ");
        weir_add_tunnel(filter, now_counts.outermost_tunnel);
    }
}

/* Reports that an alarm has begun, or that a scan has become a flood. */
static void report_alarm(const struct intervals_row *interval)
{
    const uint8_t severity = interval->scan ? WEIR_MEDIUM : WEIR_HIGH;
    /* The end of a scan tries too few services for a scan, and is no flood either. */
    const bool is_end_of_scan =
        reported_severity == WEIR_MEDIUM && (double)interval->syn_packets <= SCAN_SYNS * (double)interval->services;
    if (severity <= reported_severity || is_end_of_scan)
        return;
    reported_severity = severity;
    const struct destination *top = top_destination();
    /* If most packets were answers, the packets of an attack were not seen. */
    const bool is_one_target =
        interval->syn_packets >= interval->synack_packets && top->count - top->error > interval->syn_packets / 2;
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    if (interval->scan)
        WEIR_ADD(&text, "Port scan of ");
    else
        WEIR_ADD(&text, "SYN flood on ");
    if (is_one_target) {
        weir_add_ip(&text, top->ip);
        /* With and without a VLAN tag: behind the word "vlan", a filter looks behind a tag. */
        const uint32_t at = (uint32_t)(top - &destinations[0][0]);
        const struct weir_ip *end = (has_tunnel[at / WAYS] >> at % WAYS & 1) ? &tunnel_ends[0][0] + at : NULL;
        WEIR_ADD(&filter, "(");
        add_target(&filter, top, end);
        WEIR_ADD(&filter, ") or (vlan and ");
        add_target(&filter, top, end);
        WEIR_ADD(&filter, ")");
    } else {
        add_any_target(&filter);
        WEIR_ADD(&filter, " or (vlan and ");
        if (now_counts.outermost_tunnel != WEIR_TUNNEL_NONE)
            WEIR_ADD(&filter, "(");
        add_any_target(&filter);
        if (now_counts.outermost_tunnel != WEIR_TUNNEL_NONE)
            WEIR_ADD(&filter, ")");
        WEIR_ADD(&filter, ")");
        weir_add_number(&text, interval->destinations);
        WEIR_ADD(&text, " addresses");
    }
    WEIR_ADD(&text, ": ");
    weir_add_number(&text, interval->syn_packets);
    WEIR_ADD(&text, " SYN from about ");
    weir_add_number(&text, interval->sources);
    WEIR_ADD(&text, " addresses to about ");
    weir_add_number(&text, interval->services);
    WEIR_ADD(&text, " ports in ");
    weir_add_number(&text, interval_ns / 1000000);
    WEIR_ADD(&text, " ms; ");
    weir_add_number(&text, interval->fin_packets + interval->rst_packets);
    WEIR_ADD(&text, " FIN and RST");
    const struct findings_row row = {
        .time = interval->time,
        .severity = severity,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("intervals", 9),
    };
    emit_findings(&row);
}

/* Computes one step of the detector, from the past mean of closed connections and this interval's counts. */
static double step(double opened, double closed)
{
    mean = mean < 0 ? closed : past_weight * mean + (1.0 - past_weight) * closed;
    double divisor = mean > least_mean ? mean : least_mean;
    double x = (opened - closed) / divisor;
    double y = cusum + (x - offset);
    double most = LIMIT * threshold;
    cusum = y < 0 ? 0 : y > most ? most : y;
    if (cusum < threshold)
        reported_severity = 0; /* also in empty intervals */
    return x;
}

static void end_interval(uint64_t begin)
{
    const uint64_t *n = now_counts.by_flags;
    const uint64_t syn = n[2] + n[3] + n[6] + n[7], fin = n[1], rst = n[4] + n[5];
    struct intervals_row row = {
        .time = begin,
        .syn_packets = syn,
        .synack_packets = now_counts.synack,
        .fin_packets = fin,
        .rst_packets = rst,
    };
    if (syn != 0) {
        const double sources = sketch_count(&source_sketch), services = sketch_count(&service_sketch);
        row.sources = (uint32_t)(sources + 0.5);
        row.destinations = (uint32_t)(sketch_count(&destination_sketch) + 0.5);
        row.services = (uint32_t)(services + 0.5);
        row.scan = services >= SCAN_SERVICES && (double)syn <= SCAN_SYNS * services &&
                   services >= SCAN_SERVICES_PER_SOURCE * sources;
    }
    row.statistic = step((double)(syn + now_counts.synack), (double)fin + rst_share * (double)rst);
    row.mean_packets = mean > least_mean ? mean : least_mean;
    row.cusum = cusum;
    row.alarm = cusum >= threshold;
    emit_intervals(&row);
    if (row.alarm && syn != 0) {
        report_top(begin);
        /* While the sum only falls, the alarm is that of earlier intervals. */
        if (row.statistic > offset)
            report_alarm(&row);
    }
    if (syn != 0) {
        weir_fill(destinations, 0, sizeof destinations);
        weir_fill(has_tunnel, 0, sizeof has_tunnel);
        weir_fill(&source_sketch, 0, sizeof source_sketch);
        weir_fill(&destination_sketch, 0, sizeof destination_sketch);
        weir_fill(&service_sketch, 0, sizeof service_sketch);
    }
    weir_fill(&now_counts, 0, sizeof now_counts);
    any = false;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    interval_ns = (uint64_t)param_interval();
    offset = param_offset();
    threshold = param_threshold();
    past_weight = param_memory();
    rst_share = param_rst_share();
    least_mean = param_floor() * ((double)interval_ns / 1e9);
    mean = -1;
    return interval_ns == 0;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    uint64_t empty = periods;
    if (any) {
        end_interval(now - periods * interval_ns);
        empty--;
    }
    for (uint64_t i = 0; i < empty && i < EMPTY_INTERVALS_MAX; i++)
        step(0, 0);
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    if (any)
        end_interval(now - now % interval_ns);
}
