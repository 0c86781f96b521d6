/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * scan: sources that try one port of many hosts (horizontal), many ports of one host (vertical), or many ports of many hosts
 * (block). As in J. Jung, V. Paxson, A. Berger, H. Balakrishnan, "Fast Portscan Detection Using Sequential Hypothesis Testing",
 * IEEE S&P 2004, only the first attempt for each pair of host and port counts, and success speaks against a scan.
 *
 * Different hosts, ports and pairs are counted by HyperLogLog (P. Flajolet and others, 2007) with 128 registers of four bits. The
 * estimate grows by the inverse of the probability of each change (E. Cohen, "All-Distances Sketches, Revisited", PODS 2014;
 * D. Ting, "Streamed Approximate Counting of Distinct Elements", KDD 2014). So each change has a weight, which is also
 * counted for the most frequent ports and hosts with Space-Saving (A. Metwally and others, 2005).
 *
 * A source gets an entry after ADMIT different pairs, which a table of small bitmaps counts: sources with fewer, such as the forged
 * ones of a flood, never evict another one.
 */
#include "weir.h"
#include "module.h"

enum method { NO_PROBE = -1, SYN_PROBE, FIN_PROBE, NULL_PROBE, XMAS_PROBE, UDP_PROBE, ECHO_PROBE };
enum kind { NO_SCAN, HORIZONTAL, VERTICAL, BLOCK };

enum {
    WAYS = 8,
    PORTS = 8, /* ports with counts of their own, for each source */
    HOSTS = 4,
    ADMIT = 5,
    CELL_BITS = 17,
    VICTIM_BITS = 10,
    VICTIM_SCANNERS = 16, /* so many vertical scanners of one host at once are forged: a flood to random ports */
    FLOW_BITS = 16,
    FLOW_WAYS = 4,
    FLOW_PACKETS = 4,      /* a UDP flow with so many packets of its client is no probe, even without an answer */
    PROBE_BYTES = 512,     /* a UDP packet with a longer payload is no probe */
    FINDINGS = 32,         /* at once; then one for each second */
    CHANGES_MIN = 6,       /* changes of the sketch that an estimate for a port or host needs: one alone can have a large weight */
    PORT_NUMBER_MIN = 3,   /* ports of a block scan, at least; also hosts */
    TRACEROUTE_FIRST = 33434,
    TRACEROUTE_LAST = 33689,
};

#define SECOND UINT64_C(1000000000)

/* With more attempts for each pair, and some, a source insists: a program that wants a service, or a flood. */
#define PACKETS_PER_PAIR 3.0
#define PACKETS_FREE 16.0
/* A scan of many ports has at least this many pairs for each host and each port. */
#define BLOCK_SPREAD 2.5
/* With so many pairs for each port, the ports were chosen, and are not those of peers. */
#define PAIRS_PER_PORT 8.0
/* Without any pattern of hosts and ports, so many of so many attempts fail. */
#define RANDOM_FAILED 0.95
#define RANDOM_PAIRS 200.0
/* The port or host of a scan has at least this share of all failed attempts of its source. */
#define SHARE 0.4
/* The same for UDP if no answer was seen for ANSWERS_NS, so that success is unknown. */
#define SHARE_ONE_WAY 0.8
#define ANSWERS_NS (60 * SECOND)
/* An attempt is settled after this time: the answer would have come. */
#define SETTLE_NS SECOND
/* A vertical scan is reported after this time, when all sources of a flood would have shown. */
#define HOLD_NS (2 * SECOND)
#define FLOODED UINT64_MAX
#define VICTIM_NS (60 * SECOND)

enum { TRIED, ANSWERED, REFUSED, ABORTED, HOST_NUMBER, PORT_NUMBER, SKETCHES };

/* What a sketch counts, as an estimate, and the share of the registers' probability that is used up. */
struct count {
    double number;
    uint32_t used; /* of WHOLE */
};
enum { REGISTER_MAX = 15, REGISTERS = 128, WHOLE = REGISTERS << REGISTER_MAX };

struct port_count {
    double tried, error, answered;
    uint32_t packets, changes;
    uint32_t port; /* port + 1; 0: free */
};

struct host_count {
    struct weir_ip ip;
    double tried, error, answered; /* tried 0: free */
    uint32_t packets, changes;
};

/* Estimates of a scan. */
struct verdict {
    double hosts, ports, pairs, answered;
    struct weir_ip host; /* of a vertical scan */
    uint16_t port;       /* of a horizontal scan */
    uint8_t kind;
};

struct source {
    struct weir_ip ip;
    uint64_t first_ns, last_ns;
    uint64_t mark_ns;               /* `marked` is the number of pairs at this time, `settled` at an earlier one */
    double marked, settled;
    uint64_t packets;
    uint64_t held_ns;               /* of a vertical scan that waits to be reported; 0 for none, FLOODED for part of a flood */
    struct verdict reported;        /* of the last row; kind NO_SCAN before the first one */
    struct count counts[SKETCHES];
    uint8_t method;
    uint8_t found;                  /* bit for each enum kind with a finding */
    uint8_t tunnel;
    uint8_t vlan_count, mpls_count;
    uint16_t vlan_tci;
    uint32_t flags;
    struct weir_ip outer_src, outer_dst; /* of the last attempt, in a tunnel */
    struct port_count ports[PORTS];
    struct host_count hosts[HOSTS];
    uint8_t sketches[SKETCHES][REGISTERS / 2];
};

struct keys {
    uint64_t key[WAYS]; /* 0: free */
};

static struct keys *sets;
static struct source *sources; /* WAYS for each set */
static uint32_t set_mask;

/* Sources without an entry: 16 bits of the key, and a bitmap of pairs. A packet of another source takes one bit away. */
static uint64_t cells[1 << CELL_BITS];

/* Connections whose SYN came from a source with an entry, and that have had no ACK since: one bit for each, by the flow hash. */
enum { WATCH_BITS = 17 };
static uint64_t watch[1 << (WATCH_BITS - 6)];

/* UDP flows: bits of the flow hash, and the state below. */
enum { FLOW_PACKETS_MASK = 3, FLOW_SIDE = 4, FLOW_DONE = 8, FLOW_STATE = 15 };
struct flow_set {
    uint64_t flow[FLOW_WAYS];
};
static struct flow_set flows[1 << FLOW_BITS];

/* Hosts of which a vertical scan is suspected, and a bitmap of its sources. */
struct victim {
    uint64_t key, begin_ns, sources;
};
static struct victim victims[1 << VICTIM_BITS];

static bool is_outer;
static uint64_t last_answer_ns;     /* of UDP; 0 for none */
static uint32_t stealth_sources;    /* entries of probes without SYN, ever made */
static uint32_t findings_left = FINDINGS, findings_refused;
static uint32_t sweep_at;
static bool is_rehearsal;           /* at the stop: sources are judged, and not reported yet */

static inline uint64_t hash_ip(struct weir_ip ip, uint64_t seed)
{
    return weir_hash_end(weir_hash_add(weir_hash_add(seed, ip.first), ip.last));
}

static inline uint64_t source_key(struct weir_ip ip, uint32_t method)
{
    return hash_ip(ip, method + 1) | 1;
}

static inline uint64_t pair_hash(struct weir_ip ip, uint16_t port)
{
    return hash_ip(ip, (uint64_t)port << 32 | 0x5CA9);
}

static inline uint64_t since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

/* Adds a value. Returns the weight of the change; 0 if the sketch has not changed. */
static double add(struct source *s, uint32_t sketch, uint64_t hash)
{
    struct count *count = &s->counts[sketch];
    const uint32_t index = (uint32_t)(hash >> 57), shift = (index & 1) * 4;
    const uint32_t rank = 1 + (uint32_t)__builtin_clzll(hash << 7 | UINT64_C(1) << (64 - REGISTER_MAX));
    uint8_t *pair = &s->sketches[sketch][index / 2];
    const uint32_t old = *pair >> shift & 15;
    if (rank <= old)
        return 0;
    *pair = (uint8_t)(*pair + ((rank - old) << shift));
    const double weight = (double)WHOLE / (double)(WHOLE - count->used);
    count->used += (1u << (REGISTER_MAX - old)) - (1u << (REGISTER_MAX - rank));
    count->number += weight;
    return weight;
}

static struct source *find(struct weir_ip ip, uint32_t method)
{
    const uint64_t key = source_key(ip, method);
    const uint32_t set = (uint32_t)(key >> 8) & set_mask;
    for (uint32_t way = 0; way < WAYS; way++) {
        struct source *s = &sources[(size_t)set * WAYS + way];
        if (sets[set].key[way] == key && s->ip.first == ip.first && s->ip.last == ip.last)
            return s;
    }
    return NULL;
}

/* ---- Decision ------------------------------------------------------------------------------------------------------ */

static inline bool is_stealth(uint32_t method) { return method >= FIN_PROBE && method <= XMAS_PROBE; }

/* True if success speaks against a scan. An answer to an echo request does not, and one to a probe without SYN is a refusal. */
static inline bool has_success(uint32_t method) { return method == SYN_PROBE || method == UDP_PROBE; }

static inline double above_0(double x) { return x > 0 ? x : 0; }

static inline bool insists(uint64_t packets, double pairs) { return (double)packets > PACKETS_PER_PAIR * pairs + PACKETS_FREE; }

static inline double failed_of(double tried, double answered, double recent)
{
    return above_0(tried - above_0(answered) - recent);
}

static bool is_well_known_one_way(uint32_t port) { return port == 53 || port == 123 || port == 443; }

/* Decides about a source, by the attempts up to `settled`. */
static __attribute__((noinline)) void judge(const struct source *s, double settled, uint64_t now, struct verdict *v)
{
    const double hosts_least = (double)param_hosts(), ports_least = (double)param_ports(), share_failed = param_failed();
    const bool with_success = has_success(s->method);
    const double tried = s->counts[TRIED].number, recent = above_0(tried - settled);
    const double answered = with_success ? above_0(s->counts[ANSWERED].number - s->counts[ABORTED].number) : 0;
    *v = (struct verdict){ .kind = NO_SCAN };
    if (tried < (hosts_least < ports_least ? hosts_least : ports_least))
        return;

    /* Failed attempts: of the ports with counts, and of the others by their share of success. */
    double failed = 0, rest = tried, most_port = 0, most_host = 0;
    uint32_t port_at = 0, host_at = 0;
    for (uint32_t i = 0; i < PORTS; i++) {
        const struct port_count *c = &s->ports[i];
        const double of_port = failed_of(c->tried - c->error, with_success ? c->answered : 0, recent);
        failed += of_port;
        rest -= c->tried - c->error;
        if (of_port > most_port) {
            most_port = of_port;
            port_at = i;
        }
    }
    failed += above_0(rest) * above_0(1 - answered / tried);
    for (uint32_t i = 0; i < HOSTS; i++) {
        const struct host_count *c = &s->hosts[i];
        const double of_host = failed_of(c->tried - c->error, with_success ? c->answered : 0, recent);
        if (of_host > most_host) {
            most_host = of_host;
            host_at = i;
        }
    }

    const struct port_count *port = &s->ports[port_at];
    const struct host_count *host = &s->hosts[host_at];
    const double port_tried = port->tried - port->error, host_tried = host->tried - host->error;
    const double hosts = s->counts[HOST_NUMBER].number, ports = s->counts[PORT_NUMBER].number;
    const bool is_one_way = s->method == UDP_PROBE && (last_answer_ns == 0 || since(now, last_answer_ns) > ANSWERS_NS);
    const double share = is_one_way ? SHARE_ONE_WAY : SHARE;
    const double widest = hosts > ports ? hosts : ports;

    *v = (struct verdict){ .hosts = hosts, .ports = ports, .pairs = tried, .answered = answered };
    const double all_failed = failed_of(tried, answered, recent);
    const bool is_spread = tried >= BLOCK_SPREAD * widest
                           || (!is_one_way && tried >= PAIRS_PER_PORT * ports)
                           || (!is_one_way && with_success && tried >= RANDOM_PAIRS && all_failed >= RANDOM_FAILED * settled);
    const bool is_one_port = most_port >= SHARE * failed, is_one_host = most_host >= SHARE * failed;
    if (hosts >= PORT_NUMBER_MIN - 0.5 && ports >= PORT_NUMBER_MIN - 0.5 && !is_one_port && !is_one_host && is_spread
        && !insists(s->packets, tried) && all_failed >= hosts_least + ports_least && all_failed >= share_failed * (tried - recent)) {
        v->kind = BLOCK;
        return;
    }
    if (port->changes >= CHANGES_MIN && most_port >= hosts_least && most_port >= share_failed * (port_tried - recent) && most_port >= share * failed
        && !insists(port->packets, port_tried) && !(is_one_way && is_well_known_one_way(port->port - 1))) {
        *v = (struct verdict){ port_tried, 1, port_tried, above_0(port->answered), { 0, 0 }, (uint16_t)(port->port - 1), HORIZONTAL };
        if (!with_success)
            v->answered = s->method == ECHO_PROBE ? above_0(port->answered) : 0;
        return;
    }
    if (host->changes >= CHANGES_MIN && s->method != ECHO_PROBE && most_host >= ports_least && most_host >= share_failed * (host_tried - recent)
        && most_host >= share * failed && !insists(host->packets, host_tried))
        *v = (struct verdict){ 1, host_tried, host_tried, with_success ? above_0(host->answered) : 0, host->ip, 0, VERTICAL };
}

/* Notes that a source seems to scan the ports of a host. Returns true if so many do that it is a flood with forged addresses. */
static __attribute__((noinline)) bool is_flooded(const struct source *s, struct weir_ip host, uint64_t now)
{
    const uint64_t key = hash_ip(host, 0) | 1;
    struct victim *victim = &victims[key >> (64 - VICTIM_BITS)];
    if (victim->key != key || since(now, victim->begin_ns) > VICTIM_NS)
        *victim = (struct victim){ .key = key, .begin_ns = now };
    victim->sources |= UINT64_C(1) << (hash_ip(s->ip, 1) >> 58);
    /* Of 64 bits, 16 sources set 14 on average. */
    return __builtin_popcountll(victim->sources) >= VICTIM_SCANNERS - 2;
}

/* ---- Reports ------------------------------------------------------------------------------------------------------- */

static inline uint32_t rounded(double x) { return x < 4e9 ? (uint32_t)(x + 0.5) : UINT32_MAX; }

static struct weir_str method_name(uint32_t method)
{
    switch (method) {
    case SYN_PROBE: return weir_string("syn", 3);
    case FIN_PROBE: return weir_string("fin", 3);
    case NULL_PROBE: return weir_string("null", 4);
    case XMAS_PROBE: return weir_string("xmas", 4);
    case UDP_PROBE: return weir_string("udp", 3);
    default: return weir_string("echo", 4);
    }
}

static void add_method(struct weir_text *text, uint32_t method)
{
    switch (method) {
    case SYN_PROBE: WEIR_ADD(text, "SYN"); break;
    case FIN_PROBE: WEIR_ADD(text, "FIN"); break;
    case NULL_PROBE: WEIR_ADD(text, "NULL"); break;
    case XMAS_PROBE: WEIR_ADD(text, "Xmas"); break;
    case UDP_PROBE: WEIR_ADD(text, "UDP"); break;
    default: WEIR_ADD(text, "ICMP echo"); break;
    }
}

static void add_protocol(struct weir_text *text, const struct source *s)
{
    if (s->method == UDP_PROBE)
        WEIR_ADD(text, "udp");
    else if (s->method != ECHO_PROBE)
        WEIR_ADD(text, "tcp");
    else if (weir_ip_is_v4(s->ip))
        WEIR_ADD(text, "icmp");
    else
        WEIR_ADD(text, "icmp6");
}

static __attribute__((noinline)) void emit_finding(const struct source *s, const struct verdict *v, uint64_t now)
{
    if (findings_left == 0) {
        findings_refused++;
        return;
    }
    findings_left--;
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    if (v->kind == HORIZONTAL)
        WEIR_ADD(&text, "Horizontal ");
    else if (v->kind == VERTICAL)
        WEIR_ADD(&text, "Vertical ");
    else
        WEIR_ADD(&text, "Block ");
    add_method(&text, s->method);
    WEIR_ADD(&text, " scan from ");
    weir_add_ip(&text, s->ip);
    /* A filter cannot look into a tunnel. */
    const bool has_tunnel = s->tunnel != WEIR_TUNNEL_NONE;
    const struct weir_packet encapsulation = { .flags = s->flags, .vlan_count = s->vlan_count, .mpls_count = s->mpls_count };
    weir_add_encapsulation(&filter, &encapsulation);
    if (!has_tunnel) {
        add_protocol(&filter, s);
        WEIR_ADD(&filter, " and ");
    }
    WEIR_ADD(&filter, "src host ");
    weir_add_ip(&filter, has_tunnel ? s->outer_src : s->ip);
    if (has_tunnel) {
        WEIR_ADD(&filter, " and dst host ");
        weir_add_ip(&filter, s->outer_dst);
    }
    if (v->kind == HORIZONTAL) {
        WEIR_ADD(&text, " to about ");
        weir_add_number(&text, rounded(v->hosts));
        WEIR_ADD(&text, " hosts");
        if (s->method != ECHO_PROBE) {
            WEIR_ADD(&text, ", port ");
            weir_add_number(&text, v->port);
            if (!has_tunnel) {
                WEIR_ADD(&filter, " and dst port ");
                weir_add_number(&filter, v->port);
            }
        }
    } else if (v->kind == VERTICAL) {
        WEIR_ADD(&text, " of ");
        weir_add_ip(&text, v->host);
        WEIR_ADD(&text, ": about ");
        weir_add_number(&text, rounded(v->ports));
        WEIR_ADD(&text, " ports");
        if (!has_tunnel) {
            WEIR_ADD(&filter, " and dst host ");
            weir_add_ip(&filter, v->host);
        }
    } else {
        WEIR_ADD(&text, " of about ");
        weir_add_number(&text, rounded(v->hosts));
        WEIR_ADD(&text, " hosts and ");
        weir_add_number(&text, rounded(v->ports));
        WEIR_ADD(&text, " ports");
    }
    if (!is_stealth(s->method)) {
        WEIR_ADD(&text, "; about ");
        weir_add_number(&text, rounded(v->answered));
        WEIR_ADD(&text, " answered");
    }
    if (findings_refused != 0) {
        WEIR_ADD(&text, ". There are ");
        weir_add_number(&text, findings_refused);
        WEIR_ADD(&text, " more scans without a finding");
        findings_refused = 0;
    }
    const struct findings_row row = {
        .time = now,
        /* A scan that found something is worse than one that found nothing. */
        .severity = v->answered >= 1 ? WEIR_MEDIUM : WEIR_LOW,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("scans", 5),
    };
    emit_findings(&row);
}

static __attribute__((noinline)) void emit_scan(struct source *s, const struct verdict *v, uint64_t now, bool ended)
{
    static const uint8_t protocols[] = { 6, 6, 6, 6, 17, 1 };
    struct scans_row row = {
        .time = now,
        .first_time = s->first_ns,
        .last_time = s->last_ns,
        .has_dst = v->kind == VERTICAL,
        .has_dst_port = v->kind == HORIZONTAL && s->method != ECHO_PROBE,
        .dst_port = v->port,
        .protocol = s->method == ECHO_PROBE && !weir_ip_is_v4(s->ip) ? 58 : protocols[s->method % sizeof protocols],
        .vlan = s->vlan_tci & 0xFFF,
        .has_vlan = (s->flags & WEIR_VLAN) != 0,
        .tunnel = weir_tunnel_name(s->tunnel),
        .kind = v->kind == HORIZONTAL ? weir_string("horizontal", 10)
                : v->kind == VERTICAL ? weir_string("vertical", 8)
                                      : weir_string("block", 5),
        .method = method_name(s->method),
        .hosts = rounded(v->hosts),
        .ports = s->method == ECHO_PROBE ? 0 : rounded(v->ports),
        .services = rounded(v->pairs),
        .answered = rounded(v->answered),
        .refused = rounded(s->counts[REFUSED].number),
        .probe_packets = s->packets,
        .ended = ended,
    };
    weir_ip_store(row.src, s->ip);
    if (v->kind == VERTICAL)
        weir_ip_store(row.dst, v->host);
    emit_scans(&row);
    s->reported = *v;
}

/* Judges a source, and reports a new scan, one that has grown tenfold, or the end of one. */
static __attribute__((noinline)) void review(struct source *s, double settled, uint64_t now, bool ended)
{
    struct verdict v;
    judge(s, settled, now, &v);
    if (v.kind == NO_SCAN) {
        if (s->reported.kind == NO_SCAN || !ended)
            return;
        /* Later success does not take a scan back. Its last row has the counts of the one before. */
        v = s->reported;
    }
    if (v.kind == VERTICAL && s->reported.kind == NO_SCAN) {
        const bool flooded = is_flooded(s, v.host, now);
        if (flooded)
            s->held_ns = FLOODED;
        else if (s->held_ns == 0)
            s->held_ns = now | 1;
        if (s->held_ns == FLOODED || (since(now, s->held_ns) < HOLD_NS && !ended))
            return;
    }
    if (is_rehearsal)
        return;
    const bool is_new = (s->found >> v.kind & 1) == 0;
    const bool has_grown = v.pairs >= 10 * s->reported.pairs;
    if (is_new || has_grown) {
        s->found |= (uint8_t)(1u << v.kind);
        emit_finding(s, &v, now);
    }
    if (is_new || has_grown || ended)
        emit_scan(s, &v, now, ended);
}

/* True if the timeout has ended a scan, or the window the count of a source that does not scan. */
static bool has_ended(const struct source *s, uint64_t now)
{
    return since(now, s->last_ns) >= (uint64_t)param_timeout()
           || (s->reported.kind == NO_SCAN && since(now, s->first_ns) >= (uint64_t)param_window());
}

/* ---- Attempts and answers -------------------------------------------------------------------------------------------- */

/* Counts a pair of a source without an entry. Returns true if the source has tried ADMIT pairs. */
static bool is_admitted(uint64_t key, uint64_t pair)
{
    enum { BITMAP = 48 };
    const uint64_t low = (UINT64_C(1) << BITMAP) - 1;
    uint64_t *cell = &cells[key >> (64 - CELL_BITS)];
    const uint64_t tag = (key << CELL_BITS) >> BITMAP;
    uint64_t bits = *cell & low;
    if (*cell >> BITMAP != tag) {
        bits &= bits - 1;
        if (bits != 0) {
            *cell = (*cell & ~low) | bits;
            return false;
        }
    }
    bits |= UINT64_C(1) << ((pair & 0xFFFFFFFF) * BITMAP >> 32);
    if (__builtin_popcountll(bits) >= ADMIT) {
        *cell = 0;
        return true;
    }
    *cell = tag << BITMAP | bits;
    return false;
}

/* Returns the entry for a new source: its own one that is over, a free one, or that of the fewest failed attempts, less one for each 8 s
 * without an attempt. */
static struct source *new_source(uint64_t key, struct weir_ip ip, uint32_t method, uint64_t now, const struct source *own)
{
    const uint32_t set = (uint32_t)(key >> 8) & set_mask;
    struct source *first = &sources[(size_t)set * WAYS];
    uint32_t least = 0;
    double least_worth = 0;
    for (uint32_t way = 0; way < WAYS; way++) {
        const struct source *s = &first[way];
        if (s == own || (own == NULL && sets[set].key[way] == 0)) {
            least = way;
            break;
        }
        const double success = has_success(s->method) ? s->counts[ANSWERED].number - s->counts[ABORTED].number : 0;
        const double worth = failed_of(s->counts[TRIED].number, success, 0) - (double)since(now, s->last_ns) / (8.0 * SECOND);
        if (way == 0 || worth < least_worth) {
            least = way;
            least_worth = worth;
        }
    }
    struct source *s = &first[least];
    if (sets[set].key[least] != 0)
        review(s, s->counts[TRIED].number, now, true);
    sets[set].key[least] = key;
    *s = (struct source){ .ip = ip, .first_ns = now, .mark_ns = now, .method = (uint8_t)method };
    stealth_sources += is_stealth(method);
    return s;
}

static void count_port(struct source *s, uint16_t port, double weight)
{
    const uint32_t key = port + 1u;
    uint32_t least = 0;
    for (uint32_t i = 0; i < PORTS; i++) {
        if (s->ports[i].port == key) {
            s->ports[i].tried += weight;
            s->ports[i].packets++;
            s->ports[i].changes += weight != 0;
            return;
        }
        if (s->ports[i].tried < s->ports[least].tried)
            least = i;
    }
    if (weight == 0)
        return;
    const double error = s->ports[least].tried;
    s->ports[least] = (struct port_count){ .tried = error + weight, .error = error, .packets = 1, .changes = 1, .port = key };
}

static void count_host(struct source *s, struct weir_ip ip, double weight)
{
    uint32_t least = 0;
    for (uint32_t i = 0; i < HOSTS; i++) {
        struct host_count *c = &s->hosts[i];
        if (c->tried != 0 && c->ip.first == ip.first && c->ip.last == ip.last) {
            c->tried += weight;
            c->packets++;
            c->changes += weight != 0;
            return;
        }
        if (c->tried < s->hosts[least].tried)
            least = i;
    }
    if (weight == 0)
        return;
    const double error = s->hosts[least].tried;
    s->hosts[least] = (struct host_count){ .ip = ip, .tried = error + weight, .error = error, .packets = 1, .changes = 1 };
}

/* True for addresses of groups, which are not scanned: multicast, broadcast, and the unspecified address. */
static bool is_group(struct weir_ip ip)
{
    if (!weir_ip_is_v4(ip))
        return (uint8_t)ip.first == 0xFF || (ip.first | ip.last) == 0;
    const uint32_t address = __builtin_bswap32((uint32_t)(ip.last >> 32));
    return address >> 28 == 14 || address == UINT32_MAX || address == 0;
}

static inline void watch_flow(uint64_t flow_hash)
{
    watch[flow_hash >> (64 - WATCH_BITS + 6)] |= UINT64_C(1) << (flow_hash >> (64 - WATCH_BITS) & 63);
}

static inline bool is_watched(uint64_t flow_hash)
{
    return watch[flow_hash >> (64 - WATCH_BITS + 6)] >> (flow_hash >> (64 - WATCH_BITS) & 63) & 1;
}

static inline void unwatch_flow(uint64_t flow_hash)
{
    watch[flow_hash >> (64 - WATCH_BITS + 6)] &= ~(UINT64_C(1) << (flow_hash >> (64 - WATCH_BITS) & 63));
}

/* Counts an attempt. `p` is the packet as captured, `q` as the layer describes it. */
static __attribute__((noinline)) void attempt(const struct weir_packet *p, const struct weir_packet *q, uint32_t method)
{
    const struct weir_ip src = weir_src(q), dst = weir_dst(q);
    const uint16_t port = method == ECHO_PROBE ? 0 : q->dst_port;
    const uint64_t now = p->ts_ns;
    if (is_group(dst))
        return;
    const uint64_t pair = pair_hash(dst, port);
    struct source *s = find(src, method);
    const bool is_over = s != NULL && has_ended(s, now);
    if (s == NULL || is_over) {
        const uint64_t key = source_key(src, method);
        if (WEIR_LIKELY(!is_over && !is_admitted(key, pair)))
            return;
        s = new_source(key, src, method, now, s);
    }
    s->packets++;
    s->last_ns = now;
    s->tunnel = p == q ? WEIR_TUNNEL_NONE : p->tunnel;
    s->flags = p->flags;
    s->vlan_tci = p->vlan_tci;
    s->vlan_count = p->vlan_count;
    s->mpls_count = p->mpls_count;
    if (p != q) {
        s->outer_src = weir_src(p);
        s->outer_dst = weir_dst(p);
    }
    if (method == SYN_PROBE)
        watch_flow(q->flow_hash);
    const bool is_mark = since(now, s->mark_ns) >= SETTLE_NS;
    if (is_mark) {
        s->settled = s->marked;
        s->marked = s->counts[TRIED].number;
        s->mark_ns = now;
    }
    const double weight = add(s, TRIED, pair);
    add(s, HOST_NUMBER, hash_ip(dst, 2));
    add(s, PORT_NUMBER, weir_hash64(port, 3));
    count_port(s, port, weight);
    count_host(s, dst, weight);
    if (is_mark)
        review(s, s->settled, now, false);
}

/* Counts an answer of a pair, or what its source did about it, if the source has an entry. */
static void answer(struct weir_ip source, uint32_t method, struct weir_ip host, uint16_t port, uint32_t sketch)
{
    struct source *s = find(source, method);
    if (s == NULL)
        return;
    const double weight = add(s, sketch, pair_hash(host, port));
    if (weight == 0 || sketch == REFUSED)
        return;
    const double change = sketch == ABORTED ? -weight : weight;
    for (uint32_t i = 0; i < PORTS; i++)
        if (s->ports[i].port == port + 1u)
            s->ports[i].answered += change;
    for (uint32_t i = 0; i < HOSTS; i++)
        if (s->hosts[i].tried != 0 && s->hosts[i].ip.first == host.first && s->hosts[i].ip.last == host.last)
            s->hosts[i].answered += change;
}

/* Handles the first ACK of a watched connection, of either side: its attempt had success. */
static __attribute__((noinline)) void connected(const struct weir_packet *q)
{
    unwatch_flow(q->flow_hash);
    if ((q->flags & WEIR_L4) == 0)
        return;
    /* The client acknowledges first. Another packet has no source with an entry, or is of one direction only. */
    answer(weir_src(q), SYN_PROBE, weir_dst(q), q->dst_port, ANSWERED);
}

/* Handles TCP packets with SYN or RST, or without ACK. Returns the method of an attempt. */
static __attribute__((noinline)) int32_t tcp(const struct weir_packet *q)
{
    enum { CONTROL = WEIR_TCP_FIN | WEIR_TCP_SYN | WEIR_TCP_RST | WEIR_TCP_PSH | WEIR_TCP_ACK | WEIR_TCP_URG };
    if ((q->flags & WEIR_L4) == 0)
        return NO_PROBE;
    const uint32_t flags = q->tcp_flags & CONTROL;
    if (flags & WEIR_TCP_RST) {
        if (flags & WEIR_TCP_ACK) {
            /* RFC 9293, 3.10.7.1: the RST for a closed port has the sequence number 0. */
            if (weir_tcp_seq(q) != 0)
                return NO_PROBE;
            const struct weir_ip source = weir_dst(q), host = weir_src(q);
            answer(source, SYN_PROBE, host, q->src_port, REFUSED);
            for (uint32_t method = FIN_PROBE; stealth_sources != 0 && method <= XMAS_PROBE; method++)
                answer(source, method, host, q->src_port, REFUSED);
        } else if (is_watched(q->flow_hash)) {
            /* The source took back a connection that it had not acknowledged. */
            unwatch_flow(q->flow_hash);
            answer(weir_src(q), SYN_PROBE, weir_dst(q), q->dst_port, ABORTED);
        }
        return NO_PROBE;
    }
    if (flags & WEIR_TCP_SYN) {
        if ((flags & WEIR_TCP_ACK) == 0)
            return SYN_PROBE;
        answer(weir_dst(q), SYN_PROBE, weir_src(q), q->src_port, ANSWERED);
        return NO_PROBE;
    }
    return flags == 0 ? NULL_PROBE : flags == WEIR_TCP_FIN ? FIN_PROBE : XMAS_PROBE;
}

/* Returns a bit that differs between the two directions of a flow. */
static inline uint64_t side(const struct weir_packet *q)
{
    if (q->src_port != q->dst_port)
        return q->src_port > q->dst_port ? FLOW_SIDE : 0;
    const struct weir_ip src = weir_src(q), dst = weir_dst(q);
    return (src.first != dst.first ? src.first > dst.first : src.last > dst.last) ? FLOW_SIDE : 0;
}

/* Handles a UDP packet of a flow that is new, or has had no answer yet. Returns the method of an attempt. */
static __attribute__((noinline)) int32_t udp(const struct weir_packet *q)
{
    struct flow_set *set = &flows[q->flow_hash >> (64 - FLOW_BITS)];
    const uint64_t key = q->flow_hash << 4 & ~(uint64_t)FLOW_STATE;
    if ((q->flags & WEIR_L4) == 0)
        return NO_PROBE;
    for (uint32_t way = 0; way < FLOW_WAYS; way++) {
        uint64_t *flow = &set->flow[way];
        if ((*flow & ~(uint64_t)FLOW_STATE) != key || *flow == 0)
            continue;
        if ((*flow & FLOW_SIDE) != side(q)) {
            *flow |= FLOW_DONE;
            last_answer_ns = q->ts_ns;
            answer(weir_dst(q), UDP_PROBE, weir_src(q), q->src_port, ANSWERED);
        } else if ((*flow & FLOW_PACKETS_MASK) == FLOW_PACKETS - 1) {
            *flow |= FLOW_DONE;
            answer(weir_src(q), UDP_PROBE, weir_dst(q), q->dst_port, ANSWERED);
        } else {
            *flow += 1;
        }
        return NO_PROBE;
    }
    /* An answer to a packet that was not seen, and packets that are no probes. */
    const bool is_answer = (q->src_port < 1024 && q->dst_port >= 1024) || q->src_port == 67 || q->src_port == 547;
    const bool is_traceroute = q->dst_port >= TRACEROUTE_FIRST && q->dst_port <= TRACEROUTE_LAST;
    const bool is_probe = !is_answer && !is_traceroute && q->payload_len <= PROBE_BYTES;
    for (uint32_t way = FLOW_WAYS - 1; way > 0; way--)
        set->flow[way] = set->flow[way - 1];
    set->flow[0] = key | side(q) | (is_probe ? 1 : FLOW_DONE | 1);
    return is_probe ? UDP_PROBE : NO_PROBE;
}

/* True for a UDP flow that had an answer, or that is none of a probe. */
static inline bool is_done(uint64_t flow_hash)
{
    const uint64_t *flow = flows[flow_hash >> (64 - FLOW_BITS)].flow;
    const uint64_t key = (flow_hash << 4 & ~(uint64_t)FLOW_STATE) | FLOW_DONE, mask = ~(uint64_t)(FLOW_STATE & ~FLOW_DONE);
    return ((flow[0] & mask) == key) | ((flow[1] & mask) == key) | ((flow[2] & mask) == key) | ((flow[3] & mask) == key);
}

/* Handles an ICMP message about a packet that did not arrive. */
static void unreachable(const struct weir_packet *q)
{
    const uint32_t at = q->l4_offset + 8u;
    const uint8_t *ip = weir_bytes(q) + at;
    if (at + 28 > q->cap_len)
        return;
    struct weir_ip source, host;
    uint32_t protocol, header;
    if (ip[0] >> 4 == 4 && (q->flags & WEIR_IPV4)) {
        header = (ip[0] & 15) * 4u;
        protocol = ip[9];
        source = weir_ip_v4(ip + 12);
        host = weir_ip_v4(ip + 16);
    } else if (ip[0] >> 4 == 6 && (q->flags & WEIR_IPV6) && at + 44 <= q->cap_len) {
        header = 40;
        protocol = ip[6];
        source = weir_ip_v6(ip + 8);
        host = weir_ip_v6(ip + 24);
    } else {
        return;
    }
    if (header < 20 || at + header + 4 > q->cap_len)
        return;
    if (protocol == 6 || protocol == 17)
        answer(source, protocol == 6 ? SYN_PROBE : UDP_PROBE, host, weir_be16(ip + header + 2), REFUSED);
    else if (protocol == 1 || protocol == 58)
        answer(source, ECHO_PROBE, host, 0, REFUSED);
}

/* Handles an ICMP message. Returns the method of an attempt. */
static int32_t icmp(const struct weir_packet *q)
{
    if ((q->flags & WEIR_L4) == 0)
        return NO_PROBE;
    const bool is_v4 = (q->flags & WEIR_IPV4) != 0;
    const uint32_t type = weir_l4(q)[0];
    if (type == (is_v4 ? 8u : 128u))
        return ECHO_PROBE;
    if (type == (is_v4 ? 0u : 129u))
        answer(weir_dst(q), ECHO_PROBE, weir_src(q), 0, ANSWERED);
    else if (type == (is_v4 ? 3u : 1u))
        unreachable(q);
    return NO_PROBE;
}

/* Out of line, so that most packets pass by a short function. */
static __attribute__((noinline)) void handle(const struct weir_packet *p, const struct weir_packet *q)
{
    const int32_t method = q->flags & WEIR_TCP ? tcp(q) : q->flags & WEIR_UDP ? udp(q) : icmp(q);
    if (method != NO_PROBE)
        attempt(p, q, (uint32_t)method);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    static struct weir_packet room;
    const struct weir_packet *q = p;
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        q = weir_innermost(p, &room);
    if (WEIR_LIKELY((q->flags & WEIR_TCP) != 0)) {
        if (WEIR_LIKELY((q->tcp_flags & (WEIR_TCP_SYN | WEIR_TCP_RST | WEIR_TCP_ACK)) == WEIR_TCP_ACK)) {
            if (WEIR_UNLIKELY(is_watched(q->flow_hash)))
                connected(q);
            return WEIR_PASS;
        }
    } else if (q->flags & WEIR_UDP) {
        if (WEIR_LIKELY(is_done(q->flow_hash)))
            return WEIR_PASS;
    } else if ((q->flags & WEIR_ICMP) == 0) {
        return WEIR_PASS;
    }
    handle(p, q);
    return WEIR_PASS;
}

/* ---- Start, tick, stop ----------------------------------------------------------------------------------------------- */

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    /* Rounded down, so that the parameter is a limit of loops over the table. */
    const uint32_t set_bits = 63 - (uint32_t)__builtin_clzll((uint64_t)param_table_size() / WAYS);
    const uint32_t count = 1u << set_bits;
    set_mask = count - 1;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    sources = weir_alloc(count * WAYS * (uint32_t)sizeof *sources);
    if (sets == NULL || sources == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* Reports a source that is a scanner, and ends what is over. */
static void visit(uint32_t at, uint64_t now)
{
    uint64_t *key = &sets[at / WAYS & set_mask].key[at % WAYS];
    struct source *s = &sources[at & (set_mask * WAYS + WAYS - 1)];
    if (*key == 0)
        return;
    const uint64_t idle = since(now, s->last_ns);
    const bool ended = has_ended(s, now);
    /* Answers to the last attempts would have come by now. */
    const double settled = idle >= SETTLE_NS ? s->counts[TRIED].number : s->settled;
    review(s, settled, now, ended);
    if (ended)
        *key = 0;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    const uint64_t more = findings_left + periods;
    findings_left = more < FINDINGS ? (uint32_t)more : FINDINGS;
    /* A quarter of the entries. */
    for (uint32_t i = 0; i < (uint32_t)param_table_size() / 4; i++)
        visit(sweep_at++, now);
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    const uint32_t entries = (set_mask + 1) * WAYS;
    /* All victims of vertical scans are known before the first scan is reported. */
    for (uint32_t i = 0; i < 2 * (uint32_t)param_table_size() && i < 2 * entries; i++) {
        const uint32_t at = i & (entries - 1);
        is_rehearsal = i < entries;
        if (sets[at / WAYS].key[at % WAYS] != 0)
            review(&sources[at], sources[at].counts[TRIED].number, now, true);
    }
}
