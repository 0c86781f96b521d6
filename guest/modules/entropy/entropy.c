/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * entropy: Shannon entropy of source and destination addresses and ports by interval, over packets, and its changes. After
 * A. Lakhina, M. Crovella, C. Diot, "Mining anomalies using traffic feature distributions", SIGCOMM 2005: floods, scans and the like
 * concentrate some of these distributions and disperse others.
 *
 * With counts c of N packets, H = log2 N - (sum of c log2 c) / N. Ports have an exact counter each. Addresses are counted in sets of WAYS
 * entries. An address keeps its place until the interval's end, so its count is exact. One that finds its set full is counted in a
 * cell that it shares with others. A cell with R packets adds 0 to the sum if all its packets have different addresses, and R log2 R
 * if all have the same: these are the bounds of H. The estimate between them takes the number of such addresses from the number of
 * empty cells (linear counting: K.-Y. Whang, B. Vander-Zanden, H. Taylor, 1990), and the same count for each.
 *
 * Changes are found by two cumulative sums of each entropy (E. Page, "Continuous inspection schemes", 1954), normalised by a running
 * mean and standard deviation, which stand still during a change.
 */
#include "weir.h"
#include "module.h"

enum { WAYS = 4, CELLS_PER_SET = 8 };

struct set {
    struct weir_ip ip[WAYS];
    uint64_t count[WAYS]; /* 0: free */
    uint64_t spare[4];
};

_Static_assert(sizeof(struct set) == 128, "two cache lines: one to search, one to count");

/* Counts of one kind of address. */
struct addresses {
    struct set *sets;
    uint64_t *cells;
    uint64_t beyond; /* packets in cells */
};

enum { PORTS = 65536 };
static struct addresses sources, destinations;
static uint64_t source_ports[PORTS], destination_ports[PORTS];
static uint64_t packets, port_packets;

static bool is_outer;
static bool any;            /* true from the first IP packet of the run on */
static uint64_t begin_hint; /* a time in the first interval */

/* ---- Counting ------------------------------------------------------------------------------------------------------- */

static inline uint32_t set_count(void)
{
    return (uint32_t)param_table_size() / WAYS;
}

static inline uint32_t cell_count(void)
{
    return set_count() * CELLS_PER_SET;
}

/* Counts a packet of an address that is not in its set. */
static __attribute__((noinline)) void add_new(struct addresses *a, struct set *set, uint64_t hash, uint64_t first, uint64_t last)
{
    for (uint32_t way = 0; way < WAYS; way++)
        if (set->count[way] == 0) {
            set->ip[way] = (struct weir_ip){ first, last };
            set->count[way] = 1;
            return;
        }
    a->cells[(uint32_t)((hash & 0xFFFFFFFF) * cell_count() >> 32)]++;
    a->beyond++;
}

static inline void add(struct addresses *a, struct weir_ip ip)
{
    const uint64_t hash = weir_hash64(ip.first, ip.last);
    struct set *set = &a->sets[(hash >> 32) * set_count() >> 32];
    for (uint32_t way = 0; way < WAYS; way++)
        if (set->ip[way].last == ip.last && set->ip[way].first == ip.first && set->count[way] != 0) {
            set->count[way]++;
            return;
        }
    add_new(a, set, hash, ip.first, ip.last);
}

static __attribute__((noinline)) void begin_run(uint64_t time)
{
    any = true;
    begin_hint = time;
}

static inline void count(const struct weir_packet *p)
{
    const uint32_t flags = p->flags;
    if (!(flags & (WEIR_IPV4 | WEIR_IPV6)))
        return;
    if (WEIR_UNLIKELY(!any))
        begin_run(p->ts_ns);
    packets++;
    add(&sources, weir_src(p));
    add(&destinations, weir_dst(p));
    /* Fragments have no ports: only the first one has any. */
    if ((flags & (WEIR_L4 | WEIR_FRAGMENT)) == WEIR_L4 && (flags & (WEIR_TCP | WEIR_UDP))) {
        port_packets++;
        source_ports[p->src_port]++;
        destination_ports[p->dst_port]++;
    }
}

static __attribute__((noinline)) void count_inner(const struct weir_packet *p)
{
    struct weir_packet room;
    count(weir_innermost(p, &room));
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        count_inner(p);
    else
        count(p);
    return WEIR_PASS;
}

/* ---- Entropies ------------------------------------------------------------------------------------------------------ */

enum { SMALL = 1024 };
static double small_terms[SMALL]; /* c log2 c for small c */

static __attribute__((noinline)) double log2_of(double x)
{
    return weir_ln(x) * 1.4426950408889634074;
}

static inline double term(uint64_t count)
{
    return WEIR_LIKELY(count < SMALL) ? small_terms[count] : (double)count * log2_of((double)count);
}

struct entropy {
    double bits, lower, upper, normalised;
    uint64_t top_packets;
    struct weir_ip top; /* of addresses */
    uint16_t top_port;
};

/* The entropy for a sum of terms, never below 0, also after rounding. */
static double entropy_of(double sum, uint64_t total)
{
    if (total == 0)
        return 0;
    const double bits = log2_of((double)total) - sum / (double)total;
    return bits > 0 ? bits : 0;
}

static __attribute__((noinline)) void measure_addresses(struct addresses *a, struct entropy *e)
{
    const uint32_t sets = set_count(), cells = cell_count();
    double sum = 0, most = 0;
    uint32_t empty = 0;
    *e = (struct entropy){ 0 };
    for (uint32_t i = 0; i < sets; i++)
        for (uint32_t way = 0; way < WAYS; way++) {
            const uint64_t c = a->sets[i].count[way];
            sum += term(c);
            if (c > e->top_packets) {
                e->top_packets = c;
                e->top = a->sets[i].ip[way];
            }
        }
    e->bits = e->lower = e->upper = entropy_of(sum, packets);
    if (a->beyond != 0) {
        for (uint32_t i = 0; i < cells; i++) {
            most += term(a->cells[i]);
            empty += a->cells[i] == 0;
        }
        /* Without an empty cell, the estimate of the number is that for half of one. */
        const double share = (empty != 0 ? (double)empty : 0.5) / (double)cells, beyond = (double)a->beyond;
        double different = -(double)cells * weir_ln(share);
        different = different < 1 ? 1 : different > beyond ? beyond : different;
        const double even = beyond * log2_of(beyond / different);
        e->lower = entropy_of(sum + most, packets);
        e->bits = entropy_of(sum + (even < most ? even : most), packets);
        weir_fill(a->cells, 0, cells * sizeof *a->cells);
        a->beyond = 0;
    }
    weir_fill(a->sets, 0, sets * sizeof *a->sets);
    e->normalised = packets > 1 ? e->bits / log2_of((double)packets) : 0;
}

static __attribute__((noinline)) void measure_ports(uint64_t *ports, struct entropy *e)
{
    double sum = 0;
    *e = (struct entropy){ 0 };
    for (uint32_t i = 0; i < PORTS; i++) {
        const uint64_t c = ports[i];
        sum += term(c);
        if (c > e->top_packets) {
            e->top_packets = c;
            e->top_port = (uint16_t)i;
        }
    }
    weir_fill(ports, 0, PORTS * sizeof *ports);
    e->bits = e->lower = e->upper = entropy_of(sum, port_packets);
    const uint64_t values = port_packets < PORTS ? port_packets : PORTS;
    e->normalised = values > 1 ? e->bits / log2_of((double)values) : 0;
}

/* ---- The detector ---------------------------------------------------------------------------------------------------- */

enum { SRC, DST, SRC_PORT, DST_PORT, SERIES };

/* The sums stop at LIMIT thresholds. An entropy is normal within NORMAL standard deviations, and a part of the pattern of a change
 * beyond CLEAR ones. A change is over after CALM normal intervals. */
#define LIMIT 4.0
#define NORMAL 3.0
#define CLEAR 2.0
enum { CALM = 2 };

struct series {
    double mean, variance;
    double up, down;  /* cumulative sums */
    double deviation; /* of this interval, in standard deviations */
};

static struct series series[SERIES];
static uint64_t learned; /* intervals of the running means */
static bool is_changed;  /* true while a change lasts */
static uint64_t age;     /* intervals of the change */
static uint32_t calm;    /* normal intervals in it, up to now */

static void learn(struct series *s, double bits)
{
    /* Welford's method: mean and sum of squares; the last step makes it a variance. */
    const double difference = bits - s->mean;
    s->mean += difference / (double)(learned + 1);
    s->variance += difference * (bits - s->mean);
    if (learned + 1 == param_warmup())
        s->variance /= (double)learned;
}

static void step(struct series *s, double bits)
{
    const double drift = param_drift(), past = param_memory(), least = param_deviation(), most = LIMIT * param_threshold();
    const double difference = bits - s->mean;
    const double deviation = __builtin_sqrt(s->variance);
    const double z = difference / (deviation > least ? deviation : least);
    const double up = s->up + z - drift, down = s->down - z - drift;
    s->deviation = z;
    s->up = up < 0 ? 0 : up > most ? most : up;
    s->down = down < 0 ? 0 : down > most ? most : down;
    if (is_changed || z > NORMAL || z < -NORMAL)
        return;
    s->mean += (1 - past) * difference;
    s->variance = past * (s->variance + (1 - past) * difference * difference);
}

/* Forgets the sums; `is_new_normal`: also the means. */
static void end_change(bool is_new_normal)
{
    is_changed = false;
    for (uint32_t i = 0; i < SERIES; i++) {
        series[i].up = series[i].down = 0;
        if (is_new_normal)
            series[i].mean = series[i].variance = 0;
    }
    if (is_new_normal)
        learned = 0;
}

/* Takes one interval. Returns true if the sums say something. */
static bool detect(const struct entropy *e)
{
    if (learned < param_warmup()) {
        for (uint32_t i = 0; i < SERIES; i++)
            learn(&series[i], e[i].bits);
        learned++;
        return false;
    }
    bool is_high = false, is_normal = true;
    for (uint32_t i = 0; i < SERIES; i++) {
        struct series *s = &series[i];
        step(s, e[i].bits);
        is_high |= s->up >= param_threshold() || s->down >= param_threshold();
        is_normal &= s->deviation < NORMAL && s->deviation > -NORMAL;
    }
    if (!is_changed) {
        is_changed = is_high;
        age = calm = 0;
        return true;
    }
    age++;
    calm = is_normal ? calm + 1 : 0;
    if (calm >= CALM)
        end_change(false);
    else if (age >= param_hold())
        end_change(true);
    return true;
}

/* ---- Findings -------------------------------------------------------------------------------------------------------- */

/* The host of a change that is about one has at least this part of the packets: a twentieth. */
enum { SHARE = 20 };

enum change { OTHER, CONCENTRATION, HOST_SCAN, PORT_SCAN, REFLECTION, FLOOD };

static uint8_t reported_severity; /* of the findings of this change; 0 without one */

static struct weir_str name_of(enum change change)
{
    switch (change) {
    case FLOOD: return weir_string("flood", 5);
    case REFLECTION: return weir_string("reflection", 10);
    case PORT_SCAN: return weir_string("port-scan", 9);
    case HOST_SCAN: return weir_string("host-scan", 9);
    case CONCENTRATION: return weir_string("concentration", 13);
    default: return weir_string("other", 5);
    }
}

static inline bool is_dispersed(uint32_t i)
{
    return series[i].deviation >= CLEAR;
}

static inline bool is_concentrated(uint32_t i)
{
    return series[i].deviation <= -CLEAR;
}

/* The pattern of a change, as in the table of Lakhina et al. With fewer packets than half of those that the first receiver gets, the first
 * sender cannot have sent most of them: so there are many senders, also if their addresses are not dispersed more than usual. */
static enum change pattern(const struct entropy *e)
{
    const bool are_many_senders = e[SRC].top_packets < e[DST].top_packets / 2;
    if (is_concentrated(DST)) {
        if (is_concentrated(SRC))
            return is_dispersed(DST_PORT) ? PORT_SCAN : CONCENTRATION;
        if (is_concentrated(SRC_PORT) && are_many_senders)
            return REFLECTION;
        if (is_dispersed(SRC))
            return FLOOD;
        return is_dispersed(DST_PORT) && !are_many_senders ? PORT_SCAN : CONCENTRATION;
    }
    if (is_concentrated(SRC)) {
        if (is_dispersed(DST))
            return HOST_SCAN;
        return is_dispersed(DST_PORT) ? PORT_SCAN : CONCENTRATION;
    }
    return OTHER;
}

/* True if a change is about a sender. */
static bool is_of_sender(enum change change)
{
    return change == HOST_SCAN || (change != OTHER && !is_concentrated(DST));
}

/* The kind of a change. A host with a small share of the packets is no reason for it. */
static enum change classify(const struct entropy *e)
{
    const enum change change = pattern(e);
    const uint64_t most = e[is_of_sender(change) ? SRC : DST].top_packets;
    return most < packets / SHARE ? OTHER : change;
}

static uint8_t severity_of(enum change change)
{
    switch (change) {
    case FLOOD:
    case REFLECTION: return WEIR_HIGH;
    case PORT_SCAN:
    case HOST_SCAN: return WEIR_MEDIUM;
    default: return WEIR_LOW;
    }
}

static void add_percent(struct weir_text *text, uint64_t part, uint64_t whole)
{
    weir_add_number(text, whole == 0 ? 0 : (uint64_t)((double)part * 100 / (double)whole));
    WEIR_ADD(text, " %");
}

/* "destination addresses 6.3 to 4.1" */
static void add_series(struct weir_text *text, uint32_t i, const struct entropy *e, bool *is_first)
{
    if (!is_dispersed(i) && !is_concentrated(i))
        return;
    if (*is_first)
        WEIR_ADD(text, "; entropy in bits: ");
    else
        WEIR_ADD(text, ", ");
    *is_first = false;
    if (i == SRC || i == SRC_PORT)
        WEIR_ADD(text, "source ");
    else
        WEIR_ADD(text, "destination ");
    if (i == SRC || i == DST)
        WEIR_ADD(text, "addresses ");
    else
        WEIR_ADD(text, "ports ");
    const double values[2] = { series[i].mean, e[i].bits };
    for (uint32_t k = 0; k < 2; k++) {
        const uint64_t tenths = (uint64_t)(values[k] * 10 + 0.5);
        if (k == 1)
            WEIR_ADD(text, " to ");
        weir_add_number(text, tenths / 10);
        WEIR_ADD(text, ".");
        weir_add_number(text, tenths % 10);
    }
}

static void add_filter(struct weir_text *filter, bool is_source, struct weir_ip ip)
{
    if (is_source)
        WEIR_ADD(filter, "src host ");
    else
        WEIR_ADD(filter, "dst host ");
    weir_add_ip(filter, ip);
}

static __attribute__((noinline)) void report(uint64_t time, enum change change, const struct entropy *e)
{
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    /* The host that the change is about, if there is one. */
    const bool is_source = is_of_sender(change);
    const struct entropy *host = is_source ? &e[SRC] : &e[DST];
    const bool has_host = change != OTHER && host->top_packets != 0;
    switch (change) {
    case FLOOD: WEIR_ADD(&text, "Flood from many addresses to "); break;
    case REFLECTION: WEIR_ADD(&text, "Reflection attack on "); break;
    case PORT_SCAN:
        if (is_source)
            WEIR_ADD(&text, "Port scan by ");
        else
            WEIR_ADD(&text, "Port scan of ");
        break;
    case HOST_SCAN: WEIR_ADD(&text, "Scan of many addresses by "); break;
    case CONCENTRATION:
        if (is_source)
            WEIR_ADD(&text, "Traffic concentrated on the sender ");
        else
            WEIR_ADD(&text, "Traffic concentrated on the receiver ");
        break;
    default: WEIR_ADD(&text, "Traffic changed"); break;
    }
    if (has_host) {
        weir_add_ip(&text, host->top);
        WEIR_ADD(&text, ", ");
        add_percent(&text, host->top_packets, packets);
        WEIR_ADD(&text, " of packets");
        if (change == REFLECTION) {
            WEIR_ADD(&text, ", from port ");
            weir_add_number(&text, e[SRC_PORT].top_port);
        }
        /* With and without a VLAN tag: behind the word "vlan", a filter looks behind a tag. */
        WEIR_ADD(&filter, "(");
        add_filter(&filter, is_source, host->top);
        WEIR_ADD(&filter, ") or (vlan and ");
        add_filter(&filter, is_source, host->top);
        WEIR_ADD(&filter, ")");
    } else {
        WEIR_ADD(&filter, "ip or ip6 or (vlan and (ip or ip6))");
    }
    bool is_first = true;
    for (uint32_t i = 0; i < SERIES; i++)
        add_series(&text, i, e, &is_first);
    const struct findings_row row = {
        .time = time,
        .severity = severity_of(change),
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("intervals", 9),
    };
    emit_findings(&row);
    reported_severity = row.severity;
}

/* Reports a change, or that it is of a graver kind than it seemed. An attack may begin late in an interval, whose entropies then
 * hardly show its kind: so a change of no clear kind waits for the next interval, and is reported if it lasts. */
static void look_for_findings(uint64_t time, enum change change, const struct entropy *e)
{
    const uint8_t severity = severity_of(change);
    if (severity > reported_severity && (severity > WEIR_LOW || (age >= 1 && calm == 0)))
        report(time, change, e);
}

/* ---- The end of an interval ------------------------------------------------------------------------------------------- */

/* The larger sum, with the sign of its direction. */
static double change_of(uint32_t i)
{
    return series[i].up >= series[i].down ? series[i].up : -series[i].down;
}

/* `is_whole`: the capture covers all of the interval. */
static void end_interval(uint64_t time, bool is_whole)
{
    if (packets == 0)
        return;
    static struct entropy e[SERIES];
    measure_addresses(&sources, &e[SRC]);
    measure_addresses(&destinations, &e[DST]);
    measure_ports(source_ports, &e[SRC_PORT]);
    measure_ports(destination_ports, &e[DST_PORT]);
    const bool is_detected = is_whole && packets >= param_least_packets() && detect(e);
    enum change change = OTHER;
    if (!is_changed)
        reported_severity = 0;
    else if (is_detected)
        look_for_findings(time, change = classify(e), e);
    struct intervals_row row = {
        .time = time,
        .packets = packets,
        .port_packets = port_packets,
        .src_entropy = e[SRC].bits,
        .src_entropy_lower = e[SRC].lower,
        .src_entropy_upper = e[SRC].upper,
        .src_normalised = e[SRC].normalised,
        .src_change = change_of(SRC),
        .has_src_change = is_detected,
        .dst_entropy = e[DST].bits,
        .dst_entropy_lower = e[DST].lower,
        .dst_entropy_upper = e[DST].upper,
        .dst_normalised = e[DST].normalised,
        .dst_change = change_of(DST),
        .has_dst_change = is_detected,
        .src_port_entropy = e[SRC_PORT].bits,
        .src_port_normalised = e[SRC_PORT].normalised,
        .src_port_change = change_of(SRC_PORT),
        .has_src_port_change = is_detected,
        .dst_port_entropy = e[DST_PORT].bits,
        .dst_port_normalised = e[DST_PORT].normalised,
        .dst_port_change = change_of(DST_PORT),
        .has_dst_port_change = is_detected,
        .alarm = is_changed,
        .change = is_changed && is_detected ? name_of(change) : weir_string("", 0),
        .has_src = e[SRC].top_packets != 0,
        .src_packets = e[SRC].top_packets,
        .has_dst = e[DST].top_packets != 0,
        .dst_packets = e[DST].top_packets,
        .src_port = e[SRC_PORT].top_port,
        .has_src_port = port_packets != 0,
        .src_port_packets = e[SRC_PORT].top_packets,
        .dst_port = e[DST_PORT].top_port,
        .has_dst_port = port_packets != 0,
        .dst_port_packets = e[DST_PORT].top_packets,
    };
    weir_ip_store(row.src, e[SRC].top);
    weir_ip_store(row.dst, e[DST].top);
    emit_intervals(&row);
    packets = port_packets = 0;
}

/* ---- Entry points ---------------------------------------------------------------------------------------------------- */

static bool begin_addresses(struct addresses *a)
{
    a->sets = weir_alloc(set_count() * (uint32_t)sizeof *a->sets);
    a->cells = weir_alloc(cell_count() * (uint32_t)sizeof *a->cells);
    return a->sets != NULL && a->cells != NULL;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    for (uint32_t c = 1; c < SMALL; c++)
        small_terms[c] = c * log2_of(c);
    if (!begin_addresses(&sources) || !begin_addresses(&destinations)) {
        WEIR_LOG(WEIR_ERROR, "no memory for tables of this size");
        return 1;
    }
    return 0;
}

static bool is_first_over; /* the first interval, of which the capture may cover a part only */
static bool is_ticked;
static uint64_t last_tick; /* begin of the interval after the last tick */

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    if (any) {
        end_interval(now - periods * (uint64_t)param_interval(), is_first_over);
        is_first_over = true;
    }
    is_ticked = true;
    last_tick = now;
}

/* The last packet's time may lie before the interval, so the begin follows from the last tick, or from the first packet. */
WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    if (any)
        end_interval(is_ticked ? last_tick : begin_hint - begin_hint % (uint64_t)param_interval(), false);
}
