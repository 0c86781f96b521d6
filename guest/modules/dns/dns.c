/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * dns: queries of DNS (RFC 1035), mDNS (RFC 6762) and LLMNR (RFC 4795) joined with their answers, over UDP and TCP, IPv4 and IPv6.
 * A query and its answer have the same addresses, ports, protocol and identifier, the same name (without regard to case, because
 * clients randomise it: draft-vixie-dnsext-dns0x20) and the same type.
 *
 * Pending queries are in sets of WAYS entries. The upper bits of a set's number are those of the flow hash, so that instances that
 * share the flows by those bits never share a set. The lower bits come from a hash of flow and identifier, so that the
 * queries of one flow are in many sets.
 */
#include "weir.h"
#include "module.h"
#include "text.h"
#include "message.h"
#include "transaction.h"
#include "findings.h"
#include "stream.h"

enum { WAYS = 8, PORTS = 64, SWEPT_SETS = 1024, REST = 8192, PORT_MDNS = 5353, PORT_LLMNR = 5355, UDP_HEADER_BYTES = 8 };

/* The keys of a set: a cache line. */
struct keys {
    uint64_t key[WAYS]; /* hash of flow and identifier | 1; 0: free */
};

static struct keys *sets;
static struct transaction *table; /* WAYS for each set */
static uint32_t set_bits;         /* more than SHARE_BITS */
static uint32_t swept;            /* sets that the last ticks have swept */
static uint8_t is_port[65536 / 8];
static uint64_t port_filter;      /* bit n: a port with n in its lower six bits is in the list */
static bool is_outer;

/* Room for the message at hand. */
static struct message message;
static struct transaction now_asked;

static bool start_ports(void)
{
    static uint64_t ports[PORTS];
    const int32_t len = param_ports((uint8_t *)ports, sizeof ports);
    if (len < 0 || (uint32_t)len > sizeof ports) {
        WEIR_LOG(WEIR_ERROR, "ports: at most 64");
        return false;
    }
    for (uint32_t i = 0; i < (uint32_t)len / 8 && i < PORTS; i++) {
        const uint32_t port = ports[i] & 65535;
        is_port[port / 8] |= (uint8_t)(1u << port % 8);
        port_filter |= UINT64_C(1) << port % 64;
    }
    return true;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    text_start();
    is_outer = param_layer() == PARAM_layer_outer;
    if (!start_ports())
        return 1;
    if (!start_streams()) {
        WEIR_LOG(WEIR_ERROR, "no memory for so many streams");
        return 1;
    }
    /* As many sets as the entries need, rounded up to a power of two. */
    set_bits = 64 - (uint32_t)__builtin_clzll((param_table_size() - 1) / WAYS);
    const uint32_t count = 1u << set_bits;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    table = weir_alloc(count * WAYS * (uint32_t)sizeof *table);
    if (sets == NULL || table == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* ---- The table of pending queries ------------------------------------------------------------------------------------- */

static inline bool has_timed_out(const struct transaction *t, uint64_t now) { return (int64_t)(now - t->last_ns) > param_timeout(); }

/* Ends an entry: a query that was not answered gets its row. */
static __attribute__((noinline)) void retire(struct transaction *t, uint64_t *key, uint64_t now)
{
    *key = 0;
    if (t->is_answered)
        return;
    emit_row(t, NULL, now);
    /* At the end of the run, others still wait. */
    if (has_timed_out(t, now))
        count_outcome(t, now, true, false);
}

static bool has_same_name(const struct transaction *t, const uint8_t *wire, uint32_t len)
{
    if (t->name_len != len)
        return false;
    /* Both have room for a last word, whose bytes behind the name do not count. */
    uint64_t differs = 0;
    uint32_t i = 0;
    for (; i + 8 <= len && i < NAME_BYTES; i += 8)
        differs |= lower8(weir_le64(t->name + i)) ^ lower8(weir_le64(wire + i));
    if (i < len)
        differs |= (lower8(weir_le64(t->name + i)) ^ lower8(weir_le64(wire + i))) << 8 * (8 - (len - i));
    return differs == 0;
}

static inline bool has_same_ends(const struct transaction *a, const struct transaction *b)
{
    const uint64_t addresses = (a->client.first ^ b->client.first) | (a->client.last ^ b->client.last) |
                               (a->server.first ^ b->server.first) | (a->server.last ^ b->server.last);
    return addresses == 0 && a->client_port == b->client_port && a->server_port == b->server_port && a->id == b->id &&
           a->is_tcp == b->is_tcp;
}

/* The entry that a message belongs to. Without a question, as in some refusals, the identifier alone decides. */
static __attribute__((noinline)) bool belongs(const struct transaction *entry, const struct transaction *t)
{
    return has_same_ends(entry, t) && (!t->has_question || (entry->type == t->type && has_same_name(entry, t->name, t->name_len)));
}

struct place {
    uint64_t *key;
    struct transaction *entry;
    uint64_t value; /* of the key */
};

static inline uint32_t set_of(const struct transaction *t, uint64_t key)
{
    const uint32_t low_bits = set_bits - SHARE_BITS;
    return (uint32_t)t->share << low_bits | (uint32_t)(key >> (64 - low_bits));
}

/* Finds the entry of a message. Queries that have timed out do not count, and are retired. */
static __attribute__((noinline)) struct place find(const struct transaction *t, uint64_t now)
{
    const uint64_t key = weir_hash64(t->flow, t->id) | 1;
    const uint32_t set = set_of(t, key);
    struct place place = { NULL, NULL, key };
    uint64_t *keys = sets[set].key;
    struct transaction *entries = &table[(size_t)set * WAYS];
    uint32_t found = WAYS;
    for (uint32_t way = 0; way < WAYS; way++)
        if (keys[way] == key && belongs(&entries[way], t))
            found = way;
    if (found == WAYS)
        return place;
    if (WEIR_UNLIKELY(has_timed_out(&entries[found], now))) {
        retire(&entries[found], &keys[found], now);
        return place;
    }
    return (struct place){ &keys[found], &entries[found], key };
}

/* Makes room for a query: a free entry, or an answered one, or the oldest. */
static __attribute__((noinline)) struct place new_place(const struct transaction *t, uint64_t key, uint64_t now)
{
    const uint32_t set = set_of(t, key);
    uint64_t *keys = sets[set].key;
    struct transaction *entries = &table[(size_t)set * WAYS];
    /* Free entries first, then answered and timed out ones, then the one that waits longest. */
    uint32_t best = 0;
    uint64_t best_rank = UINT64_MAX;
    for (uint32_t way = 0; way < WAYS; way++) {
        uint64_t rank = 0;
        if (keys[way] != 0)
            rank = entries[way].is_answered || has_timed_out(&entries[way], now) ? 1 : entries[way].last_ns | 2;
        if (rank < best_rank) {
            best_rank = rank;
            best = way;
        }
    }
    if (best_rank > 1)
        losses[t->share % SHARES].evicted++;
    else if (best_rank == 1)
        retire(&entries[best], &keys[best], now);
    keys[best] = key;
    return (struct place){ &keys[best], &entries[best], key };
}

/* ---- Messages ------------------------------------------------------------------------------------------------------------ */

/* Fills what a message alone says of a transaction. The ends are filled already. */
static __attribute__((noinline)) void describe(struct transaction *t, const struct message *m, uint64_t now)
{
    t->first_ns = t->last_ns = now;
    t->id = m->id;
    t->type = m->type;
    t->questions = m->questions;
    t->flags = m->flags;
    t->answers = m->answers;
    t->authorities = m->authorities;
    t->additionals = m->additionals;
    t->has_question = m->has_question;
    t->name_len = (uint8_t)(m->has_name ? m->name.len : 0);
    copy_name(t->name, m->name.wire, t->name_len);
    t->is_answered = false;
    t->packets = 0;
    t->query_bytes = 0;
    t->edns_bytes = 0;
    t->has_edns = t->dnssec_ok = t->is_cut = t->is_malformed = false;
}

static __attribute__((noinline)) void add_query(struct transaction *t, const struct message *m)
{
    t->packets += t->packets < UINT16_MAX;
    t->query_bytes += m->wire_len;
    t->is_asked = true;
    t->edns_bytes = m->edns_bytes;
    t->has_edns = m->has_edns;
    t->dnssec_ok = m->dnssec_ok;
    t->is_cut |= m->is_cut;
    t->is_malformed |= m->is_malformed;
}

static inline bool is_multicast(struct weir_ip ip)
{
    return weir_ip_is_v4(ip) ? (ip.last >> 32 & 0xF0) == 0xE0 : (ip.first & 0xFF) == 0xFF;
}

/* The packet or the event that a message comes from; the other one is NULL. */
struct source {
    const struct weir_packet *packet;
    const struct weir_stream *event;
};

/* Writes the Community ID of a transaction. */
static __attribute__((noinline)) void identify(struct transaction *t, const struct source *source)
{
    t->community_id_len = (uint8_t)(source->packet != NULL ? weir_community_id(source->packet, 0, t->community_id)
                                                          : weir_stream_community_id(source->event, 0, t->community_id));
}

static __attribute__((noinline)) void asked(struct transaction *t, const struct message *m, const struct source *source, uint64_t now)
{
    /* Answers to a query by multicast come from other addresses, so that they belong to other flows. */
    if (t->kind != KIND_DNS && (t->kind == KIND_MDNS || is_multicast(t->server))) {
        add_query(t, m);
        identify(t, source);
        emit_row(t, m, now);
        return;
    }
    struct place place = find(t, now);
    if (place.entry != NULL && !place.entry->is_answered) {
        place.entry->last_ns = now;
        add_query(place.entry, m);
        return;
    }
    if (place.entry == NULL)
        place = new_place(t, place.value, now);
    /* Otherwise the client asks again after the answer: a query of its own. */
    add_query(t, m);
    identify(t, source);
    *place.entry = *t;
    count_name(t, now);
}

static __attribute__((noinline)) void answered(struct transaction *t, const struct message *m, const struct source *source, uint64_t now)
{
    const struct place place = t->kind == KIND_MDNS ? (struct place){ NULL, NULL, 0 } : find(t, now);
    struct transaction *entry = place.entry;
    if (entry == NULL) {
        t->is_asked = false;
        identify(t, source);
        emit_row(t, m, now);
        count_name(t, now);
        count_unsolicited(t, m, now);
        return;
    }
    const bool is_first = !entry->is_answered;
    emit_row(entry, m, now);
    entry->is_answered = true;
    /* The query is counted; a repeated answer adds no packets. */
    entry->packets = 0;
    entry->query_bytes = 0;
    if (is_first)
        count_outcome(entry, now, m->code == 2, (int64_t)(now - entry->first_ns) >= param_slow());
}

/* Handles a message; its sender stands as the client. Returns false if it is no DNS. */
static __attribute__((noinline)) bool handle(struct transaction *t, struct message *m, const struct source *source, uint64_t now)
{
    if (!read_message(m)) {
        losses[t->share % SHARES].rejected++;
        return false;
    }
    if (is_answer(m->flags)) {
        const struct weir_ip ip = t->client;
        t->client = t->server;
        t->server = ip;
        const uint16_t port = t->client_port;
        t->client_port = t->server_port;
        t->server_port = port;
    }
    t->kind = t->client_port == PORT_MDNS || t->server_port == PORT_MDNS     ? KIND_MDNS
              : t->client_port == PORT_LLMNR || t->server_port == PORT_LLMNR ? KIND_LLMNR
                                                                             : KIND_DNS;
    describe(t, m, now);
    if (is_answer(m->flags))
        answered(t, m, source, now);
    else
        asked(t, m, source, now);
    return true;
}

static inline bool is_listed(uint16_t port) { return (is_port[port / 8] >> port % 8 & 1) != 0; }

static __attribute__((noinline)) void datagram(const struct weir_packet *p, const struct weir_packet *q)
{
    if (!is_listed(q->src_port) && !is_listed(q->dst_port))
        return;
    struct transaction *t = &now_asked;
    t->flow = q->flow_hash;
    t->share = (uint8_t)(q->flow_hash >> (64 - SHARE_BITS));
    t->client = weir_src(q);
    t->server = weir_dst(q);
    t->client_port = q->src_port;
    t->server_port = q->dst_port;
    t->vlan = weir_vlan(q);
    t->has_vlan = (q->flags & WEIR_VLAN) != 0;
    t->vlan_count = q->vlan_count;
    t->mpls_count = q->mpls_count;
    t->is_pppoe = (q->flags & WEIR_PPPOE) != 0;
    t->tunnel = is_outer ? WEIR_TUNNEL_NONE : p->tunnel;
    t->is_tcp = false;
    /* What the UDP header says, also if fewer bytes were captured or are in this fragment. */
    const uint32_t udp_len = weir_be16(weir_l4(q) + 4), wire_len = udp_len > UDP_HEADER_BYTES ? udp_len - UDP_HEADER_BYTES : 0;
    message.bytes = weir_payload(q);
    message.len = q->payload_len < wire_len ? q->payload_len : wire_len;
    message.wire_len = wire_len;
    const struct source source = { .packet = q };
    handle(t, &message, &source, p->ts_ns);
}

static inline bool is_candidate(const struct weir_packet *q)
{
    return (q->flags & (WEIR_UDP | WEIR_L4)) == (WEIR_UDP | WEIR_L4) &&
           ((port_filter >> q->src_port % 64 | port_filter >> q->dst_port % 64) & 1) != 0;
}

static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = is_outer ? p : weir_innermost(p, &room);
    if (is_candidate(q))
        datagram(p, q);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* TCP comes as streams, and carries no tunnels. So most packets end here. */
    if ((p->flags & WEIR_TCP) != 0)
        return WEIR_PASS;
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE))
        tunnelled(p);
    else if (is_candidate(p))
        datagram(p, p);
    return WEIR_PASS;
}

static bool stream_message(const struct weir_stream *event, const uint8_t *bytes, uint32_t len, uint32_t wire_len)
{
    struct transaction *t = &now_asked;
    const bool from_client = event->direction == 0;
    const struct weir_ip client = { weir_le64(event->client), weir_le64(event->client + 8) };
    const struct weir_ip server = { weir_le64(event->server), weir_le64(event->server + 8) };
    t->flow = event->flow_hash;
    t->share = (uint8_t)share_of(event);
    t->client = from_client ? client : server;
    t->server = from_client ? server : client;
    t->client_port = from_client ? event->client_port : event->server_port;
    t->server_port = from_client ? event->server_port : event->client_port;
    t->vlan = event->vlan_tci & 0xFFF;
    t->has_vlan = event->vlan_tci != 0;
    t->vlan_count = t->has_vlan;
    t->mpls_count = 0;
    t->is_pppoe = false;
    t->tunnel = event->tunnel;
    t->is_tcp = true;
    message.bytes = bytes;
    message.len = len;
    message.wire_len = wire_len;
    const struct source source = { .event = event };
    return handle(t, &message, &source, event->ts_ns);
}

WEIR_EXPORT(weir_stream) int32_t weir_stream(const struct weir_stream *event)
{
    if (!is_listed(event->client_port) && !is_listed(event->server_port))
        return WEIR_STREAM_IGNORE;
    return stream_event(event);
}

/* ---- Time ------------------------------------------------------------------------------------------------------------ */

/* Retires what has timed out in a part of the table. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    const uint32_t mask = (1u << set_bits) - 1;
    for (uint32_t i = 0; i < SWEPT_SETS; i++) {
        const uint32_t set = (swept + i) & mask;
        for (uint32_t way = 0; way < WAYS; way++) {
            uint64_t *key = &sets[set].key[way];
            struct transaction *entry = &table[(size_t)set * WAYS + way];
            if (*key != 0 && has_timed_out(entry, now))
                retire(entry, key, now);
        }
    }
    swept += SWEPT_SETS;
}

/* Emits the queries that are pending at the end, of a part of the table in each call. */
WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    static uint32_t next;
    const uint32_t entries = WAYS << set_bits;
    for (uint32_t i = 0; i < REST && next < entries; i++, next++) {
        uint64_t *key = &sets[next / WAYS].key[next % WAYS];
        if (*key != 0 && !table[next].is_answered)
            retire(&table[next], key, now);
    }
    return next < entries;
}
