/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * tls: one row for each TLS handshake over TCP (RFC 8446, RFC 5246 and earlier; SSL 3.0 in RFC 6101), on any port. A connection is TLS if
 * its first bytes are a record with a ClientHello or ServerHello. In protocols that change to TLS, such as SMTP with STARTTLS, the module
 * looks for a ClientHello in the first bytes of the connection. All other connections are ignored at their first bytes.
 *
 * The host reassembles the streams. A handshake under way has a context of a pool, whose sets are found by the TOP bits of the flow hash:
 * instances that share the flows by those bits never share a set, so rows do not depend on how many there are.
 */
#include "weir.h"
#include "module.h"
#include "ciphers.h"
#include "ja4.h"
#include "parse.h"
#include "x509.h"

enum {
    WAYS = 16,
    PLAIN_BYTES = 4096,      /* of each direction, in which a protocol may change to TLS */
    LIMIT_BYTES = 256 * 1024, /* of a direction: a handshake is shorter */
    PATTERN_BYTES = 11,      /* of a ClientHello, by which it is found in another protocol */
    NO_CONTEXT = 0,
    IGNORED = 0xFFFFFFFF,
};

/* Contexts of a set. */
struct set {
    uint64_t used_ns[WAYS];
    uint32_t owner[WAYS]; /* number of the stream + 1; 0: free */
    uint32_t evicted;     /* without a row, since the last row of the set */
};

static uint32_t *context_of; /* by stream: NO_CONTEXT, IGNORED or the number of a context + 1 */
static struct set *sets;
static struct context *contexts; /* WAYS for each set */
static uint32_t stream_mask, set_shift;

/* ---- Findings ------------------------------------------------------------------------------------------------------- */

/* A finding is repeated for a server after an hour. Servers are remembered by the part of the hash space that their connections are in, so
 * that findings do not depend on the number of instances: a server can cause one finding in each part. Findings that many connections of a
 * server share are looked for in a few parts only, which the server's address chooses. */
enum { PARTS = 64, PART_SHIFT = 58, PART_SERVERS = 16, REFUSALS = 4, CHOSEN_PARTS = 8 };
static const uint64_t REPEAT_NS = UINT64_C(3600000000000);

enum finding { EXPIRED, NOT_YET_VALID, OBSOLETE, REFUSING };

struct remembered {
    uint64_t server; /* hash of address, port and kind of finding; 0: free */
    uint64_t since_ns;
    uint32_t count;
};

static struct remembered remembered[PARTS][PART_SERVERS];

/* Counts an event of a server. Returns its number, up to `most` within an hour; 0 for further ones, and where it is not looked for. */
OUT_OF_LINE uint32_t count_event(uint64_t flow_hash, const uint8_t server[16], uint16_t port, enum finding kind, uint64_t now, uint32_t most)
{
    const uint32_t number = (uint32_t)(flow_hash >> PART_SHIFT);
    struct remembered *part = remembered[number];
    const uint64_t key = weir_hash_end(weir_hash_add(weir_hash_add((uint64_t)port << 8 | kind, weir_le64(server)), weir_le64(server + 8))) | 1;
    if ((kind == OBSOLETE || kind == REFUSING) && (number ^ (uint32_t)(key >> 32)) % (PARTS / CHOSEN_PARTS) != 0)
        return 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < PART_SERVERS; i++) {
        if (part[i].server == key) {
            found = i;
            break;
        }
        if (part[i].since_ns < part[found].since_ns)
            found = i;
    }
    struct remembered *r = &part[found];
    /* Rows of handshakes that ended late have earlier times. */
    if (r->server != key || (now > r->since_ns && now - r->since_ns > REPEAT_NS))
        *r = (struct remembered){ .server = key, .since_ns = now };
    if (r->count >= most)
        return 0;
    return ++r->count;
}

/* ---- Names ---------------------------------------------------------------------------------------------------------- */

OUT_OF_LINE struct weir_str number_name(struct weir_text *text, uint16_t number)
{
    WEIR_ADD(text, "0x");
    for (uint32_t digit = 4; digit-- > 0;)
        weir_add_byte(text, (uint8_t)"0123456789abcdef"[number >> 4 * digit & 15]);
    return weir_text_string(text);
}

OUT_OF_LINE struct weir_str version_name(struct weir_text *text, uint16_t version)
{
    switch (version) {
    case 0x0002: return weir_string("SSL 2.0", 7);
    case 0x0300: return weir_string("SSL 3.0", 7);
    case 0x0301: return weir_string("TLS 1.0", 7);
    case 0x0302: return weir_string("TLS 1.1", 7);
    case 0x0303: return weir_string("TLS 1.2", 7);
    case 0x0304: return weir_string("TLS 1.3", 7);
    default: break;
    }
    if (version >> 8 != 0x7F)
        return number_name(text, version);
    WEIR_ADD(text, "TLS 1.3 draft ");
    weir_add_number(text, version & 0xFF);
    return weir_text_string(text);
}

OUT_OF_LINE struct weir_str cipher_name(struct weir_text *text, uint16_t cipher)
{
    uint32_t low = 0, high = sizeof cipher_names / sizeof *cipher_names;
    for (uint32_t step = 0; step < 10 && low < high; step++) {
        const uint32_t middle = (low + high) / 2;
        if (cipher_names[middle].number == cipher)
            return weir_string(cipher_names[middle].name, cipher_names[middle].len);
        if (cipher_names[middle].number < cipher)
            low = middle + 1;
        else
            high = middle;
    }
    return number_name(text, cipher);
}

#define NAMED(number, text) case number: return weir_string(text, sizeof(text) - 1)

/* Names of alerts in IANA's registry "TLS Alerts". */
OUT_OF_LINE struct weir_str alert_name(struct weir_text *text, uint8_t code)
{
    switch (code) {
    NAMED(0, "close_notify");
    NAMED(10, "unexpected_message");
    NAMED(20, "bad_record_mac");
    NAMED(21, "decryption_failed");
    NAMED(22, "record_overflow");
    NAMED(30, "decompression_failure");
    NAMED(40, "handshake_failure");
    NAMED(41, "no_certificate");
    NAMED(42, "bad_certificate");
    NAMED(43, "unsupported_certificate");
    NAMED(44, "certificate_revoked");
    NAMED(45, "certificate_expired");
    NAMED(46, "certificate_unknown");
    NAMED(47, "illegal_parameter");
    NAMED(48, "unknown_ca");
    NAMED(49, "access_denied");
    NAMED(50, "decode_error");
    NAMED(51, "decrypt_error");
    NAMED(52, "too_many_cids_requested");
    NAMED(60, "export_restriction");
    NAMED(70, "protocol_version");
    NAMED(71, "insufficient_security");
    NAMED(80, "internal_error");
    NAMED(86, "inappropriate_fallback");
    NAMED(90, "user_canceled");
    NAMED(100, "no_renegotiation");
    NAMED(109, "missing_extension");
    NAMED(110, "unsupported_extension");
    NAMED(111, "certificate_unobtainable");
    NAMED(112, "unrecognized_name");
    NAMED(113, "bad_certificate_status_response");
    NAMED(114, "bad_certificate_hash_value");
    NAMED(115, "unknown_psk_identity");
    NAMED(116, "certificate_required");
    NAMED(117, "general_error");
    NAMED(120, "no_application_protocol");
    NAMED(121, "ech_required");
    default: break;
    }
    weir_add_number(text, code);
    return weir_text_string(text);
}

static struct weir_str end_name(uint8_t end)
{
    switch (end) {
    NAMED(END_COMPLETE, "complete");
    NAMED(END_ALERT, "alert");
    NAMED(END_CLOSED, "closed");
    NAMED(END_RESET, "reset");
    NAMED(END_TIMEOUT, "timeout");
    NAMED(END_GAP, "gap");
    NAMED(END_INVALID, "invalid");
    NAMED(END_LIMIT, "limit");
    NAMED(END_EVICTED, "evicted");
    default: return weir_string("stop", 4);
    }
}

static struct weir_str side_name(bool is_client)
{
    return is_client ? weir_string("client", 6) : weir_string("server", 6);
}

/* ---- Rows ----------------------------------------------------------------------------------------------------------- */

/* Begins the filter of a finding: the packets of a server's port. Filters do not look into tunnels, so it is empty there. */
OUT_OF_LINE void report(const struct context *c, uint64_t time, uint8_t severity, const struct weir_text *text)
{
    const uint32_t server = 1 - c->client_side;
    struct weir_text filter = WEIR_TEXT;
    if (c->tunnel == WEIR_TUNNEL_NONE) {
        if (c->vlan_tci != 0)
            WEIR_ADD(&filter, "vlan and ");
        WEIR_ADD(&filter, "tcp port ");
        weir_add_number(&filter, c->port[server]);
        WEIR_ADD(&filter, " and host ");
        weir_add_ip(&filter, weir_ip_v6(c->address[server]));
    }
    const struct findings_row row = {
        .time = time,
        .severity = severity,
        .text = weir_text_string(text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("handshakes", 10),
    };
    emit_findings(&row);
}

OUT_OF_LINE void add_server(struct weir_text *text, const struct context *c)
{
    const uint32_t server = 1 - c->client_side;
    weir_add_ip(text, weir_ip_v6(c->address[server]));
    WEIR_ADD(text, ", port ");
    weir_add_number(text, c->port[server]);
    if (c->has_hello && c->name_len != 0) {
        WEIR_ADD(text, " (");
        for (uint32_t i = 0; i < c->name_len && i < 64; i++)
            weir_add_byte(text, c->name[i]);
        WEIR_ADD(text, ")");
    }
}

/* Emits at most one finding for a handshake. */
OUT_OF_LINE void find(const struct context *c, const struct handshakes_row *row)
{
    const uint8_t *server = c->address[1 - c->client_side];
    const uint16_t port = c->port[1 - c->client_side];
    struct weir_text text = WEIR_TEXT;
    if (row->has_not_after_time && row->not_after_time < row->time) {
        if (count_event(c->flow_hash, server, port, EXPIRED, row->time, 1) == 0)
            return;
        WEIR_ADD(&text, "The certificate of ");
        add_server(&text, c);
        WEIR_ADD(&text, " has expired ");
        weir_add_number(&text, (row->time - row->not_after_time) / UINT64_C(86400000000000));
        WEIR_ADD(&text, " days ago: renew it");
        report(c, row->time, WEIR_MEDIUM, &text);
    } else if (row->has_not_before_time && row->not_before_time > row->time) {
        if (count_event(c->flow_hash, server, port, NOT_YET_VALID, row->time, 1) == 0)
            return;
        WEIR_ADD(&text, "The certificate of ");
        add_server(&text, c);
        WEIR_ADD(&text, " is not yet valid: check the clocks");
        report(c, row->time, WEIR_MEDIUM, &text);
    } else if (c->end == END_ALERT && c->alert_side != c->client_side) {
        if (count_event(c->flow_hash, server, port, REFUSING, row->time, REFUSALS) < REFUSALS)
            return;
        WEIR_ADD(&text, "The server ");
        add_server(&text, c);
        WEIR_ADD(&text, " refused ");
        weir_add_number(&text, REFUSALS);
        WEIR_ADD(&text, " handshakes or more, the last one with alert ");
        weir_add_number(&text, c->alert_code);
        WEIR_ADD(&text, ": check its versions, ciphers and certificate");
        report(c, row->time, WEIR_LOW, &text);
    } else if (c->has_answer && c->version < 0x0303) {
        if (count_event(c->flow_hash, server, port, OBSOLETE, row->time, 1) == 0)
            return;
        WEIR_ADD(&text, "The server ");
        add_server(&text, c);
        WEIR_ADD(&text, " uses the obsolete version ");
        if (c->version == 0x0300)
            WEIR_ADD(&text, "SSL 3.0");
        else if (c->version == 0x0301)
            WEIR_ADD(&text, "TLS 1.0");
        else
            WEIR_ADD(&text, "TLS 1.1");
        WEIR_ADD(&text, ": allow TLS 1.2 or 1.3 on both sides");
        report(c, row->time, WEIR_LOW, &text);
    }
}

/* Decides whether the session resumes an earlier one. */
OUT_OF_LINE void add_resumption(const struct context *c, struct handshakes_row *row)
{
    const bool is_final = c->has_answer && !c->is_retry;
    if (!is_final)
        return;
    if (is_tls13(c->version)) {
        row->has_resumed = true;
        row->resumed = row->has_resumed_by = c->is_psk_chosen;
        row->resumed_by = weir_string("psk", 3);
    } else if (c->has_certificate || c->has_server_done) {
        row->has_resumed = true;
    } else if (c->is_session_same && c->has_hello) {
        row->has_resumed = row->resumed = row->has_resumed_by = true;
        row->resumed_by = weir_string("id", 2);
    } else if (c->sides[1 - c->client_side].is_ciphered) {
        row->has_resumed = row->resumed = true;
        row->has_resumed_by = c->offers_ticket;
        row->resumed_by = weir_string("ticket", 6);
    }
}

/* Emits the row of a handshake, if a ClientHello or ServerHello was complete. Returns false without one. */
OUT_OF_LINE bool emit_row(struct context *c, struct set *set)
{
    if (!c->has_hello && !c->is_answer_timed)
        return false;
    static struct certificate cert;
    static uint8_t ja4[JA4_BYTES];
    if (c->ja4.version == 0) /* there is no supported_versions */
        c->ja4.version = c->hello_version;
    c->ja4.has_alpn = c->alpn_first_len != 0;
    c->ja4.alpn_first = c->alpn[0];
    c->ja4.alpn_last = c->ja4.has_alpn ? c->alpn[c->alpn_first_len - 1] : 0;
    struct weir_text offered = WEIR_TEXT, version = WEIR_TEXT, cipher = WEIR_TEXT, alert = WEIR_TEXT;
    const uint32_t client = c->client_side & 1, server = 1 - client;
    const bool has_ja4 = c->has_hello && !c->is_v2 && ja4_write(ja4, &c->ja4, 't');
    cert.has_issuer = cert.has_subject = cert.has_not_before = cert.has_not_after = cert.is_self_issued = false;
    if (c->has_leaf)
        certificate_read(&cert, c->leaf, lower(c->leaf_len, LEAF_BYTES));

    struct weir_stream event = {
        .flow_hash = c->flow_hash,
        .client_port = c->port[client],
        .server_port = c->port[server],
        .tunnel = c->tunnel,
        .ip_version = c->ip_version,
        .vlan_tci = c->vlan_tci,
    };
    weir_copy(event.client, c->address[client], 16);
    weir_copy(event.server, c->address[server], 16);
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = weir_stream_community_id(&event, 0, community_id);

    struct handshakes_row row = {
        .time = c->has_hello ? c->hello_ns : c->answer_ns,
        .src_port = c->port[client],
        .dst_port = c->port[server],
        .vlan = c->vlan_tci & 0xFFF,
        .has_vlan = c->vlan_tci != 0,
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .tunnel = weir_tunnel_name(c->tunnel),
        .offered_version = version_name(&offered, c->ja4.version),
        .has_offered_version = c->has_hello,
        .version = version_name(&version, c->version),
        .has_version = c->has_answer,
        .cipher = cipher_name(&cipher, c->cipher),
        .has_cipher = c->has_answer,
        .server_name = weir_string(c->name, c->name_len),
        .has_server_name = c->has_hello && c->name_len != 0,
        .alpn_offered = weir_string(c->alpn, c->alpn_len),
        .has_alpn_offered = c->has_hello && c->alpn_len != 0,
        .alpn = weir_string(c->alpn_chosen, lower(c->alpn_chosen_len, ALPN_CHOSEN_BYTES)),
        .has_alpn = c->has_answer && c->alpn_chosen_len != 0,
        .ja4 = weir_string(ja4, JA4_BYTES),
        .has_ja4 = has_ja4,
        .retried = c->is_retried,
        .subject = weir_string(cert.subject.bytes, lower(cert.subject.len, DN_BYTES)),
        .has_subject = cert.has_subject,
        .issuer = weir_string(cert.issuer.bytes, lower(cert.issuer.len, DN_BYTES)),
        .has_issuer = cert.has_issuer,
        .not_before_time = cert.not_before,
        .has_not_before_time = cert.has_not_before,
        .not_after_time = cert.not_after,
        .has_not_after_time = cert.has_not_after,
        .self_issued = cert.is_self_issued,
        .has_self_issued = cert.has_issuer && cert.has_subject,
        .alert = c->is_alert_readable ? alert_name(&alert, c->alert_code) : weir_string("encrypted", 9),
        .has_alert = c->has_alert,
        .alert_level = c->alert_level == 2 ? weir_string("fatal", 5) : weir_string("warning", 7),
        .has_alert_level = c->has_alert && c->is_alert_readable,
        .alert_from = side_name(c->alert_side == client),
        .has_alert_from = c->has_alert,
        .latency_ns = (int64_t)(c->answer_ns - c->hello_ns),
        .has_latency_ns = c->has_hello && c->is_answer_timed,
        .complete = c->end == END_COMPLETE,
        .end = end_name(c->end),
        .evicted = set->evicted,
    };
    weir_copy(row.src, c->address[client], 16);
    weir_copy(row.dst, c->address[server], 16);
    add_resumption(c, &row);
    emit_handshakes(&row);
    set->evicted = 0;
    find(c, &row);
    return true;
}

/* ---- Contexts ------------------------------------------------------------------------------------------------------- */

/* Makes a context for a stream. There is always one: see oldest_of. */
OUT_OF_LINE struct context *take_context(const struct weir_stream *event)
{
    const uint32_t number = (uint32_t)(event->flow_hash >> set_shift);
    struct set *set = &sets[number];
    uint32_t way = 0;
    for (uint32_t i = 0; i < WAYS; i++)
        if (set->owner[i] == 0)
            way = i;
    struct context *c = &contexts[(size_t)number * WAYS + way];
    /* All but the large arrays, whose lengths say what is valid. */
    weir_fill(c, 0, offsetof(struct context, ja4) + offsetof(struct ja4, ciphers));
    weir_copy(c->address[0], event->client, 16);
    weir_copy(c->address[1], event->server, 16);
    c->port[0] = event->client_port;
    c->port[1] = event->server_port;
    c->vlan_tci = event->vlan_tci;
    c->tunnel = event->tunnel;
    c->ip_version = event->ip_version;
    c->stream = event->stream;
    c->flow_hash = event->flow_hash;
    c->client_side = UNKNOWN_SIDE;
    set->owner[way] = event->stream + 1;
    set->used_ns[way] = event->ts_ns;
    context_of[event->stream & stream_mask] = number * WAYS + way + 1;
    return c;
}

/* Chooses the context that a full set loses: the one that was used longest ago. Called when an event is over that has not ended its own
 * handshake: so a call writes one row at most. Returns its number + 1, or 0 if the set has room. */
OUT_OF_LINE uint32_t oldest_of(uint32_t number)
{
    const struct set *set = &sets[number];
    uint32_t way = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set->owner[i] == 0)
            return 0;
        if (set->used_ns[i] < set->used_ns[way])
            way = i;
    }
    return number * WAYS + way + 1;
}

/* Frees the stream's context. */
static void release(uint32_t stream, uint32_t context, uint32_t next)
{
    sets[(context - 1) / WAYS].owner[(context - 1) % WAYS] = 0;
    context_of[stream & stream_mask] = next;
}

/* ---- Streams -------------------------------------------------------------------------------------------------------- */

/* True for the first bytes of protocols that may change to TLS. */
OUT_OF_LINE bool is_plain(const uint8_t *bytes, uint32_t len)
{
    if (len < 3)
        return false;
    const uint32_t first = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
    switch (first) {
    case 0x323230: /* "220": SMTP, FTP */
    case 0x45484C: /* "EHL": SMTP */
    case 0x2A204F: /* "* OK": IMAP */
    case 0x2B4F4B: /* "+OK": POP3 */
    case 0x3C3F78: /* "<?xml": XMPP */
    case 0x3C7374: /* "<stream": XMPP */
    case 0x434F4E: /* "CONNECT": HTTP proxies */
    case 0x4E5853: /* "NXSH": NX */
        return true;
    case 0x000000: /* PostgreSQL's request for TLS */
        return len >= 8 && bytes[3] == 8 && weir_be32(bytes + 4) == 80877103;
    default:
        break;
    }
    if (bytes[0] == 5 || bytes[0] == 4) /* SOCKS */
        return bytes[0] == 5 ? bytes[1] != 0 && len == 2u + bytes[1] : bytes[1] == 1 && len >= 9;
    return len >= 5 && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0 && bytes[4] == 10; /* MySQL's greeting */
}

/* True for a ClientHello of SSL 2.0, which a client may send to offer a later version (RFC 5246, E.2). */
OUT_OF_LINE bool is_v2_hello(const uint8_t *bytes, uint32_t len)
{
    if (len < 11 || !(bytes[0] & 0x80) || bytes[2] != CLIENT_HELLO)
        return false;
    const uint32_t version = weir_be16(bytes + 3), all = (uint32_t)(bytes[0] & 0x7F) << 8 | bytes[1];
    const uint32_t ciphers = weir_be16(bytes + 5), session = weir_be16(bytes + 7), challenge = weir_be16(bytes + 9);
    return (version == 2 || (version >= 0x0300 && version <= 0x0303)) && ciphers != 0 && ciphers % 3 == 0 &&
           (session == 0 || session == 16 || session == 32) && challenge >= 16 && challenge <= 32 &&
           all == 9 + ciphers + session + challenge;
}

/* Decides by its first bytes whether a stream is for this module. */
OUT_OF_LINE struct context *begin(const struct weir_stream *event, const uint8_t *bytes, uint32_t len)
{
    if (bytes[0] == HANDSHAKE)
        return len > 1 && bytes[1] != 3 ? NULL : take_context(event);
    if (is_plain(bytes, len)) {
        struct context *c = take_context(event);
        c->is_plain = true;
        return c;
    }
    if (!is_v2_hello(bytes, len))
        return NULL;
    struct context *c = take_context(event);
    struct side *s = &c->sides[event->direction & 1];
    c->client_side = event->direction & 1;
    c->has_hello = c->is_v2 = true;
    c->hello_ns = event->ts_ns;
    c->ja4.version = weir_be16(bytes + 3);
    s->record_type = SKIPPED_RECORD;
    s->record_left = (uint16_t)(2 + ((bytes[0] & 0x7F) << 8 | bytes[1]));
    return c;
}

/* Looks for the first bytes of a ClientHello in another protocol, and begins its record there. Returns how many bytes it has passed over. */
OUT_OF_LINE uint32_t search(struct context *c, struct side *s, uint32_t direction, const uint8_t *bytes, uint32_t len)
{
    uint32_t have = s->have, i = 0;
    WEIR_WHILE(PLAIN_BYTES, i < len && i < PLAIN_BYTES && have < PATTERN_BYTES) {
        const uint8_t byte = bytes[i++];
        bool fits = true;
        switch (have) {
        case 0: fits = byte == HANDSHAKE; break;
        case 1: case 9: fits = byte == 3; break;
        case 2: case 10: fits = byte <= 4; break;
        case 5: fits = byte == CLIENT_HELLO; break;
        case 6: fits = byte == 0; break;
        default: break;
        }
        have = fits ? have : 0;
        s->small[have] = byte;
        have += fits | (byte == HANDSHAKE);
    }
    s->have = (uint8_t)have;
    if (have < PATTERN_BYTES)
        return len;
    uint8_t found[PATTERN_BYTES];
    weir_copy(found, s->small, PATTERN_BYTES);
    s->have = 0;
    const uint32_t record = weir_be16(found + 3), message = weir_be16(found + 7);
    if (record < 6 || record > message + 4 || message < 41)
        return i;
    c->is_plain = false;
    c->sides[1 - direction] = (struct side){ 0 };
    weir_copy(s->record_head, found, 5);
    record_begin(c, s, direction);
    weir_copy(s->message_head, found + 5, 4);
    s->message_have = 4;
    message_type(c, s, direction);
    message_begin(c, s);
    weir_copy(s->small, found + 9, 2);
    s->have = 2;
    s->record_left -= 6;
    s->message_left -= 2;
    return i;
}

OUT_OF_LINE void bytes_of(struct context *c, const struct weir_stream *event)
{
    const uint32_t len = event->len, direction = event->direction & 1;
    const uint8_t *bytes = weir_stream_bytes(event);
    struct side *s = &c->sides[direction];
    uint32_t at = 0;
    c->now = event->ts_ns;
    if (c->is_plain) {
        /* A match that is no ClientHello ends the search, too. */
        at = search(c, s, direction, bytes, len);
        if (c->is_plain && (at < len || event->offset + len >= PLAIN_BYTES))
            refuse(c);
    }
    /* Each step takes a byte at least. */
    for (uint32_t step = 0; step < len && at < len && c->end == END_NONE; step++)
        at += record_step(c, s, direction, bytes + at, len - at);
    message_end(c, s);
    if (at < len && c->end == END_NONE)
        refuse(c);
    if (event->offset + len > LIMIT_BYTES && c->end == END_NONE)
        c->end = END_LIMIT;
}

static uint8_t end_of(uint8_t cause)
{
    switch (cause) {
    case WEIR_END_RST: return END_RESET;
    case WEIR_END_TIMEOUT: return END_TIMEOUT;
    case WEIR_END_EVICTED: return END_EVICTED;
    case WEIR_END_STOP: return END_STOP;
    default: return END_CLOSED;
    }
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint32_t stream_bits = 64 - (uint32_t)__builtin_clzll(param_streams() - 1);
    const uint32_t set_bits = 64 - (uint32_t)__builtin_clzll((param_handshakes() - 1) / WAYS);
    const uint32_t set_count = 1u << set_bits;
    stream_mask = (1u << stream_bits) - 1;
    set_shift = 64 - set_bits;
    context_of = weir_alloc((stream_mask + 1) * (uint32_t)sizeof *context_of);
    sets = weir_alloc(set_count * (uint32_t)sizeof *sets);
    contexts = weir_alloc(set_count * WAYS * (uint32_t)sizeof *contexts);
    if (context_of == NULL || sets == NULL || contexts == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for tables of this size");
        return 1;
    }
    return 0;
}

WEIR_EXPORT(weir_stream) int32_t weir_stream(const struct weir_stream *event)
{
    uint32_t number = context_of[event->stream & stream_mask];
    if (event->kind == WEIR_STREAM_OPEN) {
        if (number != NO_CONTEXT && number != IGNORED) /* a lost call has left it */
            release(event->stream, number, NO_CONTEXT);
        context_of[event->stream & stream_mask] = NO_CONTEXT;
        return WEIR_STREAM_CONTINUE;
    }
    if (number == IGNORED)
        return WEIR_STREAM_IGNORE;
    struct context *c;
    const bool is_new = number == NO_CONTEXT;
    if (is_new) {
        if (event->kind == WEIR_STREAM_CONFLICT)
            return WEIR_STREAM_CONTINUE;
        /* Without the first bytes of a direction, the rest says nothing. */
        c = event->kind == WEIR_STREAM_BYTES && event->offset == 0 && event->len != 0
                ? begin(event, weir_stream_bytes(event), event->len)
                : NULL;
        if (c == NULL) {
            context_of[event->stream & stream_mask] = IGNORED;
            return WEIR_STREAM_IGNORE;
        }
        number = context_of[event->stream & stream_mask];
    } else {
        c = &contexts[number - 1];
    }
    const uint32_t set = (number - 1) / WAYS;
    sets[set].used_ns[(number - 1) % WAYS] = event->ts_ns;
    switch (event->kind) {
    case WEIR_STREAM_BYTES:
        bytes_of(c, event);
        break;
    case WEIR_STREAM_GAP:
        c->now = event->ts_ns;
        if (c->is_plain)
            refuse(c);
        else
            pass_gap(c, &c->sides[event->direction & 1], event->missing);
        break;
    case WEIR_STREAM_END:
        c->end = end_of(event->cause);
        break;
    default:
        break;
    }
    const bool is_over = c->end != END_NONE;
    if (!is_over) {
        number = is_new ? oldest_of(set) : 0;
        if (WEIR_LIKELY(number == 0))
            return WEIR_STREAM_CONTINUE;
        c = &contexts[number - 1];
        c->end = END_EVICTED;
    }
    if (!emit_row(c, &sets[set]) && !is_over)
        sets[set].evicted += !c->is_plain;
    release(c->stream, number, IGNORED);
    return is_over ? WEIR_STREAM_IGNORE : WEIR_STREAM_CONTINUE;
}
