/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Findings over several messages. Instances of the module share the flows by the top bits of the flow hash, in SHARES shares, and a
 * finding may only follow from flows of one share. So each subject (a server, a domain, a victim) has a home share, chosen by its
 * hash: there its messages are counted over all flows, as a sample of one 64th of them, with a lower threshold. In other shares the
 * messages of each flow are counted alone. So a subject has one finding by its sample, and one for each flow that is conspicuous
 * alone; and findings do not depend on the number of instances.
 */
#ifndef DNS_FINDINGS_H
#define DNS_FINDINGS_H

#include "weir.h"
#include "module.h"
#include "transaction.h"

enum {
    SUBJECTS = 32,             /* in each share */
    SAMPLED = 8,               /* the threshold of a sample is an eighth of that of one flow */
    OUTCOMES_MIN = 16,         /* of a server, in the sample, before its failures are judged */
    LONG_NAME_BYTES = 32,      /* of the labels in front of the domain */
    LARGE_ANSWER_BYTES = 512,
    FINDINGS_PER_SHARE = 16,   /* in a run */
    DOMAIN_TEXT_BYTES = 80,
};
#define FINDINGS_WINDOW_NS INT64_C(60000000000)

struct subject {
    uint64_t begin_ns;
    uint64_t seen[2]; /* a bit for each hash of a name */
    uint32_t count, failed, slow;
    bool is_reported;
};
static uint64_t subject_keys[SHARES][SUBJECTS]; /* 0: free */
static struct subject subjects[SHARES][SUBJECTS];
static uint8_t findings_count[SHARES];

/* Returns the subject of a key; a new one takes the place of the one with the fewest events, or of one whose window is over. */
static __attribute__((noinline)) struct subject *subject_of(uint32_t share, uint64_t key, uint64_t now)
{
    share %= SHARES;
    key |= 1;
    uint64_t *keys = subject_keys[share];
    struct subject *first = subjects[share];
    uint32_t place = 0, fewest = UINT32_MAX;
    for (uint32_t i = 0; i < SUBJECTS; i++) {
        if (keys[i] == key) {
            if ((int64_t)(now - first[i].begin_ns) > FINDINGS_WINDOW_NS) {
                const bool is_reported = first[i].is_reported;
                first[i] = (struct subject){ .begin_ns = now, .is_reported = is_reported };
            }
            return &first[i];
        }
        const bool is_over = keys[i] == 0 || (int64_t)(now - first[i].begin_ns) > FINDINGS_WINDOW_NS;
        const uint32_t events = is_over ? 0 : first[i].count + 1;
        if (events < fewest) {
            fewest = events;
            place = i;
        }
    }
    keys[place] = key;
    first[place] = (struct subject){ .begin_ns = now };
    return &first[place];
}

static inline uint64_t ip_hash(struct weir_ip ip) { return weir_hash64(ip.first, ip.last); }

/* True in the share where a subject's flows are sampled. */
static inline bool is_home(const struct transaction *t, uint64_t subject) { return (subject >> (64 - SHARE_BITS)) == t->share; }

/* Returns a word with ASCII letters in lower case. */
static inline uint64_t lower8(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t low = word & (ones * 0x7F);
    const uint64_t is_letter = ((low + ones * (0x80 - 'A')) & ~(low + ones * (0x80 - 'Z' - 1)) & ~word) & (ones * 0x80);
    return word | is_letter >> 2;
}

/* The hash of a name from `from` on, without regard to case. The wire has zeros behind its end. */
static __attribute__((noinline)) uint64_t name_hash(const uint8_t *wire, uint32_t from, uint32_t len)
{
    uint64_t hash = 0;
    for (uint32_t i = from; i < len && i < NAME_BYTES; i += 8) {
        const uint32_t left = len - i;
        const uint64_t word = weir_le64(wire + i);
        hash = weir_hash_add(hash, lower8(left >= 8 ? word : word & ((UINT64_C(1) << 8 * left) - 1)));
    }
    return weir_hash_end(hash);
}

/* Texts of a finding. The longest has three addresses and a name. */
static uint8_t finding_text[512 + NAME_TEXT_BYTES], finding_filter[256];

/* Writes a name, or its first bytes. */
static __attribute__((noinline)) uint8_t *put_domain(uint8_t *to, const uint8_t *wire, uint32_t len)
{
    uint8_t *end = put_name(to, wire, len);
    return end - to > DOMAIN_TEXT_BYTES ? PUT(to + DOMAIN_TEXT_BYTES, "...") : end;
}

/* Emits a finding whose text ends at `text_end`: its filter selects the packets of the server's port, and those of the client if
 * it is given. A pcap filter looks behind VLAN tags, MPLS labels and PPPoE only if it names them. */
static __attribute__((noinline)) void emit_finding(const struct transaction *t, uint64_t now, const uint8_t *text_end, bool has_server,
                                                   bool has_client)
{
    uint8_t *count = &findings_count[t->share % SHARES];
    if (*count >= FINDINGS_PER_SHARE)
        return;
    ++*count;
    uint8_t *to = finding_filter;
    for (uint32_t i = 0; i < 4 && i < t->vlan_count; i++)
        to = PUT(to, "vlan and ");
    for (uint32_t i = 0; i < 4 && i < t->mpls_count; i++)
        to = PUT(to, "mpls and ");
    if (t->is_pppoe)
        to = PUT(to, "pppoes and ");
    to = put_small(PUT(to, "port "), t->server_port);
    if (has_server)
        to = put_ip(PUT(to, " and host "), t->server);
    if (has_client)
        to = put_ip(PUT(to, " and host "), t->client);
    const struct findings_row row = {
        .time = now,
        .severity = has_client ? WEIR_HIGH : WEIR_MEDIUM,
        .text = weir_string(finding_text, (uint32_t)(text_end - finding_text)),
        .filter = weir_string(finding_filter, (uint32_t)(to - finding_filter)),
        .evidence = weir_string("queries", 7),
    };
    emit_findings(&row);
}

/* Counts the outcome of a query: answered or not. */
static __attribute__((noinline)) void judge_server(const struct transaction *t, uint64_t now, bool is_failed, bool is_slow)
{
    const double share = param_failing();
    struct subject *s = subject_of(t->share, ip_hash(t->server) ^ 2, now);
    s->count++;
    s->failed += is_failed;
    s->slow += is_slow;
    if (s->is_reported || s->count < OUTCOMES_MIN)
        return;
    const uint32_t worse = s->failed > s->slow ? s->failed : s->slow;
    if (worse < share * s->count)
        return;
    s->is_reported = true;
    uint8_t *to = put_ip(PUT(finding_text, "DNS server "), t->server);
    to = s->failed >= s->slow ? PUT(to, " fails: SERVFAIL or no answer for ") : PUT(to, " is slow: late answers to ");
    to = put_number(PUT(put_number(to, worse), " of "), s->count);
    emit_finding(t, now, PUT(to, " sampled queries within a minute"), true, false);
}

static inline void count_outcome(const struct transaction *t, uint64_t now, bool is_failed, bool is_slow)
{
    if (WEIR_UNLIKELY(is_home(t, ip_hash(t->server))) && param_failing() > 0)
        judge_server(t, now, is_failed, is_slow);
}

/* Returns the offset of the domain that a name belongs to: its last two labels, or three under a short second-level label of a
 * country, as in example.co.uk. 0 for a name that has no more labels, or that is a reverse name. */
static __attribute__((noinline)) uint32_t domain_of(const uint8_t *wire, uint32_t len)
{
    uint32_t last[4] = { 0 }; /* the last labels, the latest first */
    uint32_t at = 0;
    for (uint32_t labels = 0; labels < LABELS_MAX && at < len && wire[at] != 0; labels++) {
        last[3] = last[2];
        last[2] = last[1];
        last[1] = last[0];
        last[0] = at;
        at += 1u + wire[at];
    }
    const uint32_t top = last[0];
    if (wire[top] == 4 && (weir_le32(wire + top + 1) | 0x20202020u) == weir_le32("arpa"))
        return 0;
    return wire[top] == 2 && wire[last[1]] <= 3 ? last[2] : last[1];
}

/* Counts a query for a long name. */
static __attribute__((noinline)) void judge_name(const struct transaction *t, uint64_t now)
{
    const uint32_t domain = domain_of(t->name, t->name_len);
    if (domain < LONG_NAME_BYTES)
        return;
    const uint64_t subject = name_hash(t->name, domain, t->name_len);
    const bool is_sample = is_home(t, subject);
    struct subject *s = subject_of(t->share, is_sample ? subject ^ 4 : subject ^ t->flow, now);
    const uint64_t bit = name_hash(t->name, 0, t->name_len) % 128;
    const uint64_t mask = UINT64_C(1) << bit % 64;
    s->count += (s->seen[bit / 64] & mask) == 0;
    s->seen[bit / 64] |= mask;
    const uint32_t names = (uint32_t)param_tunnel_names(), sampled = (names + SAMPLED - 1) / SAMPLED;
    if (s->is_reported || s->count < (is_sample ? sampled : names))
        return;
    s->is_reported = true;
    uint8_t *to = put_domain(PUT(finding_text, "Suspected DNS tunnel under "), t->name + domain, t->name_len - domain);
    to = put_ip(PUT(put_ip(PUT(to, ": "), t->client), " asked "), t->server);
    to = put_number(PUT(to, " for "), s->count);
    to = PUT(to, " different long names within a minute");
    if (is_sample)
        to = PUT(to, ", with other flows, in a sample of one 64th of all flows");
    emit_finding(t, now, to, true, true);
}

static inline void count_name(const struct transaction *t, uint64_t now)
{
    if (WEIR_UNLIKELY(t->name_len > LONG_NAME_BYTES + 4) && param_tunnel_names() != 0 && t->kind == KIND_DNS)
        judge_name(t, now);
}

/* Counts a large answer without query. All answers of an attack have the same name, those that a resolver gets have many. */
static __attribute__((noinline)) void judge_unsolicited(const struct transaction *t, uint64_t now)
{
    const uint64_t subject = weir_hash64(ip_hash(t->client), name_hash(t->name, 0, t->name_len) ^ t->type);
    const bool is_sample = is_home(t, subject);
    /* Flows from a server's port to many ports are one attack, too. */
    struct subject *s = subject_of(t->share, is_sample ? subject ^ 8 : subject ^ ip_hash(t->server), now);
    s->count++;
    const uint32_t packets = (uint32_t)param_reflected(), sampled = (packets + SAMPLED - 1) / SAMPLED;
    if (s->is_reported || s->count < (is_sample ? sampled : packets))
        return;
    s->is_reported = true;
    uint8_t *to = put_ip(PUT(finding_text, "DNS amplification: "), t->client);
    to = put_domain(PUT(to, " gets large answers without queries for "), t->name, t->name_len);
    to = put_ip(PUT(to, " from "), t->server);
    emit_finding(t, now, is_sample ? PUT(to, " and other servers") : to, !is_sample, true);
}

static inline void count_unsolicited(const struct transaction *t, const struct message *m, uint64_t now)
{
    if (WEIR_UNLIKELY(m->wire_len >= LARGE_ANSWER_BYTES) && param_reflected() != 0 && t->kind == KIND_DNS && !t->is_tcp)
        judge_unsolicited(t, now);
}

#endif
