/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * quic: connections of QUIC (RFC 9000, RFC 9001, RFC 9369; drafts from 23 on), from the packets with a long header, for IPv4 and IPv6.
 * Initial packets of the client are decrypted with the keys that every observer can compute, and the ClientHello in them is read: SNI, ALPN,
 * and the fingerprint JA4 (FoxIO). A connection has a row only if an Initial packet had a valid tag, or if, with an unknown
 * version, the server answered with the client's connection identifiers.
 *
 * Connections are in sets of WAYS entries. A set is found by the TOP bits of the flow hash, so that instances that share the flows by those
 * bits never share a set. The key in a set is a hash of the flow and of the identifier that the client chose, which each packet of the
 * handshake carries. A ClientHello in parts is put together in one of CONTEXTS buffers, which are in sets of the same kind.
 */
#include "weir.h"
#include "module.h"
#include "initial.h"
#include "hello.h"

enum {
    WAYS = 4,
    CONTEXT_SETS = 512,
    CONTEXT_SET_BITS = 9,
    SWEPT_SETS = 1024,   /* by a tick */
    REST = 8192,         /* entries that a call of weir_rest looks at */
    COALESCED = 2,       /* packets of a datagram that are looked at */
    CLIENT_BYTES = 1200, /* the least that a client's first datagram has (RFC 9000, 14.1) */
    CID_BYTES_MIN = 8,   /* the least that a client's first destination connection identifier has (RFC 9000, 7.2) */
    FINDINGS = 1000,     /* of an instance in a run */
};

struct keys {
    uint64_t key[WAYS]; /* hash | 1; 0: free */
};

struct connection {
    uint64_t first_ns, last_ns, answer_ns;
    uint64_t bytes[2];           /* by side: client, server */
    uint32_t packets[2];
    struct weir_ip ends[2];
    uint16_t ports[2];
    uint32_t version;
    uint16_t vlan;
    uint8_t tunnel;
    bool has_vlan;
    bool is_certain;             /* there is a row */
    bool is_answered;
    bool is_retried;
    bool is_negotiated;
    bool is_read;                /* no more of the ClientHello is read */
    enum kind kind;
    bool has_server;
    struct cid original;         /* destination of the first Initial packet */
    struct cid secret;           /* that of the keys: the same, or the one of a Retry packet */
    struct cid client, server;
    uint8_t community_id_len;
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    struct hello hello;
};

struct context_place {
    uint64_t key;
    uint64_t last_ns;
};

/* A place in the table. */
struct place {
    uint64_t *key;
    struct connection *connection;
    bool is_opened; /* an Initial packet of the datagram had a valid tag */
};

/* A datagram. */
struct sight {
    const struct weir_packet *packet; /* innermost */
    uint64_t now;
    uint32_t len; /* of the captured payload */
    uint32_t wire_len;
    struct header header;
};

static struct keys *sets;
static struct connection *connections; /* WAYS for each set */
static struct context_place *context_places; /* WAYS for each set of contexts */
static struct context *contexts;
static uint32_t set_bits, swept, findings_left = FINDINGS;
static uint32_t refused; /* rows that the host did not take */
static bool is_outer;
static uint64_t unknown_versions; /* a bit by a hash of each version with an unknown number that had an entry */

static struct sight sight;
static struct initial_keys initial_keys;
static uint8_t plain_room[INITIAL_BYTES + 2 * MARGIN];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    /* As many sets as the entries need, rounded up to a power of two. */
    set_bits = 64 - (uint32_t)__builtin_clzll((param_table_size() - 1) / WAYS);
    const uint32_t count = 1u << set_bits;
    sets = weir_alloc(count * (uint32_t)sizeof *sets);
    connections = weir_alloc(count * WAYS * (uint32_t)sizeof *connections);
    context_places = weir_alloc(CONTEXT_SETS * WAYS * (uint32_t)sizeof *context_places);
    contexts = weir_alloc(CONTEXT_SETS * WAYS * (uint32_t)sizeof *contexts);
    if (sets == NULL || connections == NULL || context_places == NULL || contexts == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* ---- Rows ---------------------------------------------------------------------------------------------------------------- */

struct cid_text {
    uint8_t digits[2 * CID_BYTES];
};

static struct weir_str cid_text(struct cid_text *text, const struct cid *cid)
{
    for (uint32_t i = 0; i < CID_BYTES; i++) {
        text->digits[2 * i] = ja4_digit(cid->bytes[i] >> 4);
        text->digits[2 * i + 1] = ja4_digit(cid->bytes[i]);
    }
    return weir_string(text->digits, 2 * least(cid->len, CID_BYTES));
}

static struct weir_str version_text(uint8_t text[10], uint32_t version)
{
    uint32_t len = 10;
    if (version == 1 || kind_of(version) == KIND_2) {
        text[0] = version == 1 ? '1' : '2';
        len = 1;
    } else if (kind_of(version) != KIND_UNKNOWN) {
        weir_copy(text, "draft-", 6);
        text[6] = (uint8_t)('0' + (version & 0xFF) / 10);
        text[7] = (uint8_t)('0' + (version & 0xFF) % 10);
        len = 8;
    } else {
        text[0] = '0';
        text[1] = 'x';
        for (uint32_t i = 0; i < 8; i++)
            text[2 + i] = ja4_digit(version >> (28 - 4 * i));
    }
    return weir_string(text, len);
}

/* Frees an entry, after its row. */
static __attribute__((noinline)) void retire(uint64_t *key, const struct connection *c, struct weir_str end)
{
    static struct cid_text original, client, server;
    static uint8_t version[10];
    *key = 0;
    if (!c->is_certain)
        return;
    struct connections_row row = {
        .time = c->first_ns,
        .src_port = c->ports[0],
        .dst_port = c->ports[1],
        .vlan = c->vlan,
        .has_vlan = c->has_vlan,
        .community_id = weir_string(c->community_id, c->community_id_len),
        .has_community_id = c->community_id_len != 0,
        .tunnel = weir_tunnel_name(c->tunnel),
        .version = version_text(version, c->version),
        .server_name = weir_string(c->hello.name, c->hello.name_len),
        .has_server_name = c->hello.has_name,
        .alpn = weir_string(c->hello.alpn, c->hello.alpn_len),
        .has_alpn = c->hello.has_alpn,
        .ja4 = weir_string(c->hello.ja4, JA4_BYTES),
        .has_ja4 = c->hello.has_ja4,
        .dcid = cid_text(&original, &c->original),
        .scid = cid_text(&client, &c->client),
        .server_cid = cid_text(&server, &c->server),
        .has_server_cid = c->has_server,
        .retry = c->is_retried,
        .version_negotiation = c->is_negotiated,
        .latency_ns = (int64_t)(c->answer_ns - c->first_ns),
        .has_latency_ns = c->is_answered,
        .src_packets = c->packets[0],
        .src_bytes = c->bytes[0],
        .dst_packets = c->packets[1],
        .dst_bytes = c->bytes[1],
        .end = end,
    };
    weir_ip_store(row.src, c->ends[0]);
    weir_ip_store(row.dst, c->ends[1]);
    if (emit_connections(&row) < 0)
        refused++;
}

/* Reports a ClientHello whose parts contradict each other. */
static __attribute__((noinline)) void report_conflict(const struct connection *c)
{
    if (findings_left == 0)
        return;
    findings_left--;
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    WEIR_ADD(&text, "The ClientHello of ");
    weir_add_ip(&text, c->ends[0]);
    WEIR_ADD(&text, " to ");
    weir_add_ip(&text, c->ends[1]);
    WEIR_ADD(&text, ", UDP port ");
    weir_add_number(&text, c->ports[1]);
    WEIR_ADD(&text, ", has contradicting CRYPTO frames: it may hide a server name");
    weir_add_encapsulation(&filter, sight.packet);
    WEIR_ADD(&filter, "udp port ");
    weir_add_number(&filter, c->ports[0]);
    WEIR_ADD(&filter, " and udp port ");
    weir_add_number(&filter, c->ports[1]);
    WEIR_ADD(&filter, " and host ");
    weir_add_ip(&filter, c->ends[0]);
    WEIR_ADD(&filter, " and host ");
    weir_add_ip(&filter, c->ends[1]);
    const struct findings_row row = {
        .time = sight.now,
        .severity = WEIR_MEDIUM,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("connections", 11),
    };
    emit_findings(&row);
}

/* ---- The table ----------------------------------------------------------------------------------------------------------- */

static inline uint64_t key_of(const struct cid *client)
{
    uint64_t hash = weir_hash_add(sight.packet->flow_hash, client->len);
    hash = weir_hash_add(hash, weir_le64(client->bytes));
    hash = weir_hash_add(hash, weir_le64(client->bytes + 8));
    return weir_hash_end(weir_hash_add(hash, weir_le32(client->bytes + 16))) | 1;
}

static inline uint32_t set_of(void) { return (uint32_t)(sight.packet->flow_hash >> (64 - set_bits)); }

/* Finds the connection whose client chose the identifier `client`; `from`: the side that sent the packet. */
static __attribute__((noinline)) struct place find(const struct cid *client, uint32_t from)
{
    const uint64_t key = key_of(client);
    const uint32_t set = set_of();
    const struct weir_ip src = weir_src(sight.packet), dst = weir_dst(sight.packet);
    for (uint32_t way = 0; way < WAYS; way++) {
        struct connection *c = &connections[(size_t)set * WAYS + way];
        const struct weir_ip client_ip = from == 0 ? src : dst;
        if (sets[set].key[way] == key && cid_equal(&c->client, client) && c->ends[0].first == client_ip.first &&
            c->ends[0].last == client_ip.last && c->ports[0] == (from == 0 ? sight.packet->src_port : sight.packet->dst_port))
            return (struct place){ &sets[set].key[way], c, false };
    }
    return (struct place){ NULL, NULL, false };
}

static inline uint64_t version_bit(uint32_t version) { return UINT64_C(1) << (version * 0x9E3779B1u >> 26); }

/* Makes an entry for the packet's connection, whose client sent it. */
static __attribute__((noinline)) struct place begin(uint8_t tunnel)
{
    const struct weir_packet *q = sight.packet;
    const struct header *h = &sight.header;
    const uint32_t set = set_of();
    /* Free entries first, then those without a row, then the oldest. */
    uint32_t best = 0;
    uint64_t best_rank = UINT64_MAX;
    for (uint32_t way = 0; way < WAYS; way++) {
        const struct connection *c = &connections[(size_t)set * WAYS + way];
        const uint64_t rank = sets[set].key[way] == 0 ? 0 : !c->is_certain ? 1 : c->last_ns | 2;
        if (rank < best_rank) {
            best_rank = rank;
            best = way;
        }
    }
    const struct place place = { &sets[set].key[best], &connections[(size_t)set * WAYS + best], false };
    if (*place.key != 0)
        retire(place.key, place.connection, weir_string("evicted", 7));
    struct connection *c = place.connection;
    *c = (struct connection){
        .first_ns = sight.now,
        .ends = { weir_src(q), weir_dst(q) },
        .ports = { q->src_port, q->dst_port },
        .version = h->version,
        .kind = h->kind,
        .vlan = weir_vlan(q),
        .tunnel = tunnel,
        .has_vlan = (q->flags & WEIR_VLAN) != 0,
        .original = h->destination,
        .secret = h->destination,
        .client = h->source,
    };
    c->community_id_len = (uint8_t)weir_community_id(q, 0, c->community_id);
    *place.key = key_of(&h->source);
    if (kind_of(h->version) == KIND_UNKNOWN)
        unknown_versions |= version_bit(h->version);
    return place;
}

static inline void count(struct connection *c, uint32_t from)
{
    c->packets[from] += c->packets[from] < UINT32_MAX;
    c->bytes[from] += sight.wire_len;
    c->last_ns = sight.now;
}

/* ---- The ClientHello ------------------------------------------------------------------------------------------------------- */

/* Finds the buffer of a connection, or takes the oldest one of its set. */
static __attribute__((noinline)) uint32_t context_of(uint64_t key)
{
    const uint32_t first = (uint32_t)(sight.packet->flow_hash >> (64 - CONTEXT_SET_BITS)) * WAYS;
    uint32_t best = first;
    for (uint32_t at = first; at < first + WAYS; at++) {
        if (context_places[at].key == key) {
            context_places[at].last_ns = sight.now;
            return at;
        }
        /* A free one has time 0. */
        if (context_places[at].last_ns < context_places[best].last_ns)
            best = at;
    }
    context_places[best] = (struct context_place){ key, sight.now };
    weir_fill(contexts[best].have, 0, sizeof contexts[best].have);
    return best;
}

static inline void forget_context(uint64_t key)
{
    const uint32_t first = (uint32_t)(sight.packet->flow_hash >> (64 - CONTEXT_SET_BITS)) * WAYS;
    for (uint32_t at = first; at < first + WAYS; at++)
        if (context_places[at].key == key)
            context_places[at] = (struct context_place){ 0, 0 };
}

/* Adds the frames of an opened packet. */
static __attribute__((noinline)) enum progress add_frames(uint64_t key, uint32_t len)
{
    return read_frames(&contexts[context_of(key)], plain_room + MARGIN, least(len, INITIAL_BYTES));
}

/* Reads the ClientHello, which is complete. */
static __attribute__((noinline)) void read_complete(struct connection *c, uint64_t key)
{
    const uint8_t *bytes = contexts[context_of(key)].bytes;
    const uint32_t message = 4 + (weir_be32(bytes) & 0xFFFFFF);
    read_hello(&c->hello, bytes, least(message, HELLO_BYTES), message <= HELLO_BYTES);
}

/* Reads the Initial packets of a datagram of the client, with keys from `secret`. Without a connection, or if it `renews`, the first packet
 * with a valid tag begins one. Returns the place of the connection. */
static __attribute__((noinline)) struct place read_packets(struct place place, bool renews, const struct cid *secret, uint8_t tunnel)
{
    const struct header first = sight.header;
    if (!derive_keys(&initial_keys, first.kind, secret))
        return place;
    const uint8_t *bytes = first.bytes;
    uint32_t left = first.len;
    enum progress progress = PROGRESS_OPEN;
    static struct header h;
    h = first;
    for (uint32_t i = 0; i < COALESCED; i++) {
        uint32_t number_at, end;
        if (h.version != first.version || h.type != TYPE_INITIAL || !cid_equal(&h.destination, &first.destination) ||
            !cid_equal(&h.source, &first.source) || !find_number(&h, &number_at, &end))
            break;
        const uint32_t len = open_initial(&h, number_at, end, &initial_keys, plain_room + MARGIN);
        if (len != 0 && (place.connection == NULL || renews)) {
            if (place.connection != NULL) {
                forget_context(*place.key);
                retire(place.key, place.connection, weir_string("reused", 6));
            }
            place = begin(tunnel);
            forget_context(*place.key);
            place.connection->is_certain = true;
            renews = false;
        }
        place.is_opened |= len != 0;
        if (len != 0 && progress == PROGRESS_OPEN)
            progress = add_frames(*place.key, len);
        left -= end;
        bytes += end;
        if (!read_header(&h, bytes, left))
            break;
    }
    if (progress == PROGRESS_OPEN)
        return place;
    struct connection *c = place.connection;
    if (progress == PROGRESS_COMPLETE)
        read_complete(c, *place.key);
    else if (progress == PROGRESS_CONFLICT)
        report_conflict(c);
    c->is_read = true;
    forget_context(*place.key);
    return place;
}

/* ---- Packets ------------------------------------------------------------------------------------------------------------- */

/* A packet of the client of a known connection. */
static __attribute__((noinline)) void from_client(struct place place, uint8_t tunnel)
{
    struct connection *c = place.connection;
    struct header *h = &sight.header;
    if (h->kind == KIND_UNKNOWN && h->version == c->version)
        h->kind = c->kind;
    const bool is_initial = h->kind != KIND_UNKNOWN && h->type == TYPE_INITIAL;
    const bool is_ours = cid_equal(&h->destination, &c->original) || cid_equal(&h->destination, &c->secret) ||
                         (c->has_server && cid_equal(&h->destination, &c->server));
    if (is_initial && c->is_negotiated && h->version != c->version && !c->has_server) {
        /* The next attempt, with a version that the server has. */
        forget_context(*place.key);
        if (!read_packets(place, false, &h->destination, tunnel).is_opened)
            return;
        c->version = h->version;
        c->kind = h->kind;
        c->original = c->secret = h->destination;
    } else if (is_initial && !is_ours) {
        /* Addresses and identifier of an earlier connection, whose client did not choose a new one. */
        place = read_packets(place, true, &h->destination, tunnel);
        if (!place.is_opened)
            return;
        c = place.connection;
    } else if (!is_ours && c->client.len == 0) {
        return; /* maybe of another connection; the server can have given this one more identifiers */
    } else if (is_initial && !c->is_read) {
        const struct cid secret = c->secret;
        read_packets(place, false, &secret, tunnel);
    }
    count(c, 0);
}

/* A packet of the server of a known connection. */
static __attribute__((noinline)) void from_server(struct connection *c)
{
    struct header *h = &sight.header;
    if (h->kind == KIND_UNKNOWN && h->version == c->version)
        h->kind = c->kind;
    if (h->version == 0) {
        /* Version Negotiation repeats both identifiers. */
        if (!cid_equal(&h->source, &c->original) || c->has_server)
            return;
        c->is_negotiated = true;
    } else if (h->kind == KIND_UNKNOWN) {
        if (h->version != c->version)
            return;
    } else if (h->type == TYPE_RETRY) {
        if (c->is_retried || c->has_server || !is_retry_of(h, &c->original))
            return;
        c->is_retried = true;
        c->secret = h->source;
    } else if (h->type == TYPE_0RTT) {
        return;
    }
    if (!c->is_answered) {
        c->answer_ns = sight.now;
        c->is_answered = true;
    }
    if (h->version != 0 && (h->kind == KIND_UNKNOWN || h->type != TYPE_RETRY) && !c->has_server) {
        c->server = h->source;
        c->has_server = true;
        c->version = h->version;
        c->kind = h->kind;
    }
    c->is_certain = true;
    count(c, 1);
}

/* Finds the keys of a version with an unknown number: reserved numbers, which force Version Negotiation (RFC 9000, 15), and private ones
 * have those of a version that the client knows. */
static __attribute__((noinline)) enum kind find_kind(void)
{
    static const enum kind kinds[] = { KIND_1, KIND_DRAFT_29, KIND_DRAFT_23 };
    const struct header *h = &sight.header;
    uint32_t number_at, end;
    if (h->type != TYPE_INITIAL || !find_number(h, &number_at, &end))
        return KIND_UNKNOWN;
    for (uint32_t i = 0; i < 3; i++)
        if (derive_keys(&initial_keys, kinds[i], &h->destination) && open_initial(h, number_at, end, &initial_keys, plain_room + MARGIN) != 0)
            return kinds[i];
    return KIND_UNKNOWN;
}

/* A packet with a long header. */
static __attribute__((noinline)) void long_header(const struct weir_packet *p, const struct weir_packet *q)
{
    /* What the UDP header says, also if fewer bytes were captured or are in this fragment. */
    const uint32_t udp_len = weir_be16(weir_l4(q) + 4);
    sight.wire_len = udp_len > 8 ? udp_len - 8 : 0;
    sight.len = least(q->payload_len, sight.wire_len);
    sight.packet = q;
    sight.now = p->ts_ns;
    struct header *h = &sight.header;
    if (!read_header(h, weir_payload(q), sight.len))
        return;
    /* Most packets of other protocols end here: they have no version of a connection, and are too short to begin one. */
    if (h->kind == KIND_UNKNOWN && h->version != 0 && sight.wire_len < CLIENT_BYTES && (unknown_versions & version_bit(h->version)) == 0)
        return;
    const uint8_t tunnel = is_outer ? WEIR_TUNNEL_NONE : p->tunnel;
    struct place place = find(&h->source, 0);
    if (place.connection != NULL && h->version != 0) {
        from_client(place, tunnel);
        return;
    }
    place = find(&h->destination, 1);
    if (place.connection != NULL) {
        from_server(place.connection);
        return;
    }
    if (h->kind == KIND_UNKNOWN) {
        if (h->version == 0 || sight.wire_len < CLIENT_BYTES || h->destination.len < CID_BYTES_MIN)
            return;
        h->kind = find_kind();
        /* Without keys, a row follows only once the server answers. */
        if (h->kind == KIND_UNKNOWN)
            place = begin(tunnel);
    }
    if (h->kind != KIND_UNKNOWN && h->type == TYPE_INITIAL) {
        place = read_packets((struct place){ NULL, NULL, false }, false, &h->destination, tunnel);
    }
    if (place.connection != NULL)
        count(place.connection, 0);
}

static inline bool is_candidate(const struct weir_packet *q)
{
    if ((q->flags & (WEIR_UDP | WEIR_L4 | WEIR_FRAGMENT)) != (WEIR_UDP | WEIR_L4) || q->payload_len < 7)
        return false;
    const uint8_t *payload = weir_payload(q);
    /* With the fixed bit, as all versions have it; or Version Negotiation. */
    return (payload[0] & 0xC0) == 0xC0 || ((payload[0] & 0x80) != 0 && weir_le32(payload + 1) == 0);
}

static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = is_outer ? p : weir_innermost(p, &room);
    if (is_candidate(q))
        long_header(p, q);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE))
        tunnelled(p);
    else if (is_candidate(p))
        long_header(p, p);
    return WEIR_PASS;
}

/* ---- Time ------------------------------------------------------------------------------------------------------------------ */

/* Writes the rows of a part of the table whose handshakes are over. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    const uint32_t mask = (1u << set_bits) - 1;
    for (uint32_t i = 0; i < SWEPT_SETS; i++) {
        const uint32_t set = (swept + i) & mask;
        for (uint32_t way = 0; way < WAYS; way++) {
            uint64_t *key = &sets[set].key[way];
            const struct connection *c = &connections[(size_t)set * WAYS + way];
            if (*key != 0 && (int64_t)(now - c->last_ns) > param_timeout())
                retire(key, c, weir_string("timeout", 7));
        }
    }
    swept += SWEPT_SETS;
}

/* Emits the connections that are left at the end, of a part of the table in each call. */
WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    static uint32_t next;
    (void)now;
    const uint32_t entries = WAYS << set_bits;
    for (uint32_t i = 0; i < REST && next < entries; i++, next++) {
        uint64_t *key = &sets[next / WAYS].key[next % WAYS];
        if (*key != 0)
            retire(key, &connections[next], weir_string("stop", 4));
    }
    if (next < entries)
        return 1;
    if (refused != 0)
        WEIR_LOG(WEIR_WARNING, "rows of connections are missing: too many connections ended in one tick");
    return 0;
}
