/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * http: requests and responses of HTTP/1.x (RFC 9110, RFC 9112) in TCP streams on any port, for IPv4 and IPv6.
 *
 * Each direction has an incremental parser: a loop whose steps take up to 16 bytes, or a whole piece of a body. So a chunk can end
 * anywhere, and a byte of a body costs nothing. A request and its response share an exchange, from a pool. Responses answer
 * requests in their order. Where that order is lost, requests and responses get rows of their own.
 *
 * The loop over the bytes only changes parsers and exchanges. Rows, findings and evictions follow behind it, at most OPEN_MAX of each
 * for an event, so that the cost of a byte has a small bound.
 *
 * Pools and tables of findings are divided into POOLS parts by the top bits of the flow hash, so that rows do not depend on how many
 * instances share the flows.
 */
#include "weir.h"
#include "module.h"
#include "exchange.h"
#include "parser.h"
#include "findings.h"

/* Writes the Community ID of an exchange's stream; returns its length. */
static uint32_t exchange_community_id(const struct exchange *e, uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    struct weir_stream stream = { .client_port = e->client_port, .server_port = e->server_port, .ip_version = e->ip_version };
    weir_copy(stream.client, e->client, 16);
    weir_copy(stream.server, e->server, 16);
    return weir_stream_community_id(&stream, 0, out);
}

/* ---- Rows, behind the loop over bytes ------------------------------------------------------------------------------------ */

static __attribute__((noinline)) struct weir_str text_of(const struct exchange *e, uint32_t field)
{
    const uint8_t *text = (const uint8_t *)e + text_offset[field];
    uint32_t len = e->text_len[field];
    len = len < HOST_MAX ? len : HOST_MAX;
    for (uint32_t i = 0; i < BLOCK && len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'); i++)
        len--;
    return weir_string(text, len);
}

static struct weir_str version_name(uint8_t version)
{
    static const char names[10][4] = { "1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9" };
    return version == 9 ? weir_string("0.9", 3) : version == 20 ? weir_string("2.0", 3) : weir_string(names[(uint32_t)(version - 10) % 10], 3);
}

static struct weir_str outcome_of(const struct connection *c, uint32_t flags, bool is_evicted)
{
    const bool answered = (flags & RESPONSE_LINE) != 0;
    if (flags & SWITCHED)
        return weir_string("switched", 8);
    if (is_evicted)
        return weir_string("evicted", 7);
    if (!(flags & REQUEST_LINE) || (!answered && (c->flags & UNPAIRED)))
        return weir_string("unpaired", 8);
    if (!(flags & REQUEST_COMPLETE) || (answered && !(flags & RESPONSE_COMPLETE)))
        return weir_string("partial", 7);
    return answered ? weir_string("answered", 8) : weir_string("unanswered", 10);
}

/* Emits the row of an exchange that ends, if it has a whole request line or status line; and what there is to report about it. */
static __attribute__((noinline)) void emit_row(struct connection *c, struct exchange *e, bool is_evicted)
{
    const uint32_t flags = e->flags;
    const bool has_request = (flags & REQUEST_LINE) != 0, has_response = (flags & RESPONSE_LINE) != 0;
    if (!has_request && !has_response) {
        c->lost += is_evicted && c->lost < 0xFFFF;
        return;
    }
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = exchange_community_id(e, community_id);
    struct weir_text ambiguity;
    ambiguity.len = 0;
    add_ambiguity(&ambiguity, e->ambiguity);
    const int64_t latency = (int64_t)(e->response_ns - e->end_ns);
    struct requests_row row = {
        .time = has_request ? e->begin_ns : e->response_ns,
        .src_port = e->client_port,
        .dst_port = e->server_port,
        .vlan = e->vlan_tci & 0xFFF,
        .has_vlan = e->vlan_tci != 0,
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .tunnel = weir_tunnel_name(e->tunnel),
        .method = weir_string(e->method, e->method_len < METHOD_MAX ? e->method_len : METHOD_MAX),
        .has_method = has_request,
        .host = text_of(e, FIELD_HOST),
        .has_host = has_request && (flags & HOST_SEEN),
        .path = weir_string(e->path, e->path_len < PATH_MAX ? e->path_len : PATH_MAX),
        .has_path = has_request,
        .path_bytes = e->path_len,
        .has_path_bytes = has_request,
        .version = version_name(e->version),
        .has_version = has_request,
        .user_agent = text_of(e, FIELD_AGENT),
        .has_user_agent = has_request && (flags & AGENT_SEEN),
        .request_body_bytes = e->request_body,
        .has_request_body_bytes = has_request,
        .request_complete = (flags & REQUEST_COMPLETE) != 0,
        .status = e->status,
        .has_status = has_response,
        .content_type = text_of(e, FIELD_TYPE),
        .has_content_type = has_response && (flags & TYPE_SEEN),
        .response_body_bytes = e->response_body,
        .has_response_body_bytes = has_response,
        .response_complete = (flags & RESPONSE_COMPLETE) != 0,
        .latency_ns = latency,
        .has_latency_ns = has_response && (flags & HAS_LATENCY),
        .outcome = outcome_of(c, flags, is_evicted),
        .ambiguity = weir_text_string(&ambiguity),
        .lost = c->lost,
    };
    weir_copy(row.src, e->client, 16);
    weir_copy(row.dst, e->server, 16);
    if (emit_requests(&row) == WEIR_OK)
        c->lost = 0;
    if (has_response && param_errors() != 0)
        count_response(e);
}

/* Ends the message that a direction is in the midst of. */
static void cut_message(struct connection *c, uint32_t direction, bool is_end)
{
    struct side *s = &c->side[direction & 1];
    const uint8_t state = s->state;
    if (state == DEAD)
        return;
    if (state < CHUNK_SIZE)
        s->length = 0;
    if (s->exchange != 0)
        end_message(s, direction, is_end && state == UNTIL_CLOSE);
    s->state = DEAD;
}

/* Closes finished exchanges of a stream, or all of them. */
static __attribute__((noinline)) void close_finished(struct connection *c, bool all)
{
    uint32_t index = c->first, before = 0;
    bool is_after_switch = false;
    for (uint32_t i = 0; i < OPEN_MAX && index != 0; i++) {
        struct exchange *e = &exchanges[index];
        const uint32_t flags = e->flags, next = e->next;
        const bool is_parsed = c->side[0].exchange == index || c->side[1].exchange == index;
        const bool is_request_over = (flags & REQUEST) ? (flags & REQUEST_DONE) != 0 : index != c->early;
        const bool is_over = !is_parsed && is_request_over && ((flags & RESPONSE_DONE) || !(flags & REQUEST) || (c->flags & UNPAIRED));
        if (all || is_over) {
            if (!is_after_switch)
                emit_row(c, e, false);
            is_after_switch |= all && (flags & SWITCHED);
            close_exchange(c, index, before);
        } else {
            before = index;
        }
        index = next;
    }
}

/* Completes exchanges that the event opened. */
static __attribute__((noinline)) void complete_exchanges(const struct weir_stream *event, struct connection *c)
{
    uint32_t index = c->first;
    for (uint32_t i = 0; i < OPEN_MAX && index != 0; i++) {
        struct exchange *e = &exchanges[index];
        if (e->flags & FRESH) {
            e->flags &= (uint16_t)~FRESH;
            e->stream = event->stream;
            weir_copy(e->client, event->client, 16);
            weir_copy(e->server, event->server, 16);
            e->client_port = event->client_port;
            e->server_port = event->server_port;
            e->vlan_tci = event->vlan_tci;
            e->tunnel = event->tunnel;
            e->ip_version = event->ip_version;
            age(e, index);
        }
        index = e->next;
    }
}

/* Searches requests, and reports at most one of each kind: a finding costs more than a request does. */
static __attribute__((noinline)) void inspect(struct connection *c, uint32_t direction, bool is_head, const uint8_t *bytes, uint32_t len)
{
    struct exchange *suspicious = NULL, *ambiguous = NULL, *slow = NULL;
    int64_t found = -1;
    uint32_t index = c->first;
    for (uint32_t i = 0; i < OPEN_MAX && index != 0; i++) {
        struct exchange *e = &exchanges[index];
        index = e->next;
        if (!(e->flags & REQUEST_LINE))
            continue;
        if (e->flags & UNCHECKED) {
            e->flags &= (uint16_t)~UNCHECKED;
            const int64_t place = path_handle < 0 ? -1 : weir_find(path_handle, e->path, e->path_len < PATH_MAX ? e->path_len : PATH_MAX);
            if (place >= 0) {
                suspicious = e;
                found = place;
            }
        }
        if ((e->ambiguity & SMUGGLING) && !(e->flags & FRAMING_REPORTED) && direction == 0)
            ambiguous = e;
        if (direction == 1 && (e->flags & (HAS_LATENCY | RESPONSE_LINE)) == (HAS_LATENCY | RESPONSE_LINE) && param_slow() != 0 &&
            (int64_t)(e->response_ns - e->end_ns) >= param_slow() && e->response_ns == now)
            slow = e;
    }
    const uint8_t *list = path_patterns;
    if (suspicious == NULL && direction == 0 && is_head && head_handle >= 0 && c->last != 0 && (exchanges[c->last].flags & REQUEST_LINE)) {
        found = weir_find(head_handle, bytes, len);
        list = head_patterns;
        suspicious = found >= 0 ? &exchanges[c->last] : NULL;
    }
    if (suspicious != NULL)
        report_suspicious(suspicious, list, weir_found_pattern(found));
    if (ambiguous != NULL) {
        ambiguous->flags |= FRAMING_REPORTED;
        report_ambiguous(ambiguous);
    }
    if (slow != NULL)
        report_slow(slow);
}

/* Evicts the exchange of the pool whose request is the oldest. */
static __attribute__((noinline)) void evict(void)
{
    const uint32_t index = pool->oldest;
    if (index == 0)
        return;
    struct exchange *e = &exchanges[index];
    struct connection *c = &connections[e->stream & connection_mask];
    uint32_t before = 0, at = c->first;
    for (uint32_t i = 0; i < OPEN_MAX && at != 0 && at != index; i++) {
        before = at;
        at = exchanges[at].next;
    }
    if (at != index)
        return;
    for (uint32_t direction = 0; direction < 2; direction++) {
        const struct side *s = &c->side[direction];
        if (s->exchange == index && s->state >= CHUNK_SIZE)
            *(direction == 0 ? &e->request_body : &e->response_body) = s->length;
    }
    /* Without its request, a response that is still to come would be taken for that of the next one. */
    if (!(e->flags & RESPONSE))
        unpair(c);
    emit_row(c, e, true);
    close_exchange(c, index, before);
}

/* ---- Events ---------------------------------------------------------------------------------------------------------- */

static bool begins_message(uint32_t direction, const uint8_t *bytes, uint32_t len)
{
    if (direction == 1)
        return len >= 7 && weir_equal(bytes, "HTTP/1.", 7);
    uint8_t begin[METHOD_MAX + 1] = { 0 };
    uint32_t space = METHOD_MAX + 1;
    for (uint32_t i = 0; i < METHOD_MAX + 1 && i < len; i++) {
        begin[i] = bytes[i];
        if (bytes[i] == ' ' && space > METHOD_MAX)
            space = i;
    }
    return space <= METHOD_MAX && find_method(begin, space) != NULL;
}

/* Handles bytes in any state; in a body, most have been handled already. */
static __attribute__((noinline)) void handle_bytes(const struct weir_stream *event, struct connection *c, const uint8_t *bytes, uint32_t len)
{
    const uint32_t direction = event->direction & 1;
    struct side *s = &c->side[direction];
    if (s->state == RESYNC) {
        if (!begins_message(direction, bytes, len)) {
            s->state = ++s->token_len >= RESYNC_CHUNKS ? DEAD : RESYNC;
            return;
        }
        s->state = direction == 0 ? METHOD : STATUS;
        s->token_len = 0;
    } else if (direction == 1 && s->exchange != 0 && s->state >= CHUNK_SIZE && s->length == 0 && s->token_len == 0 &&
               !(exchanges[s->exchange].flags & REQUEST) && begins_message(1, bytes, len)) {
        /* The response to a HEAD that was not captured. */
        end_message(s, direction, true);
    }
    const bool is_head = s->state < CHUNK_SIZE;
    weir_copy(token, s->token, TOKEN_MAX);
    /* The last bytes are parsed in a copy, so that a whole block can be read at each place. */
    static uint8_t tail[2 * BLOCK];
    uint32_t at = 0;
    if (s->flags & HAS_CR) {
        s->flags &= (uint8_t)~HAS_CR;
        if (len != 0 && bytes[0] == '\n') {
            end_any_line(c, s, direction);
            at = 1;
        } else {
            exchanges[s->exchange].ambiguity |= BARE_CR;
        }
    }
    if (len >= BLOCK)
        at += parse(c, direction, bytes + at, len - at - (BLOCK - 1), len - at);
    if (at < len && !(c->flags & ENDED)) {
        const uint32_t rest = len - at < BLOCK ? len - at : BLOCK;
        for (uint32_t i = 0; i < BLOCK; i++)
            tail[i] = i < rest ? bytes[at + i] : 0;
        parse(c, direction, tail, rest, rest);
    }
    weir_copy(s->token, token, TOKEN_MAX);
    if (s->exchange != 0 && s->state == DEAD) {
        end_message(s, direction, (c->flags & ENDED) != 0);
        s->state = DEAD;
    } else if (s->exchange != 0 && s->state <= STATUS && s->token_len == 0) {
        end_message(s, direction, true);
    }
    complete_exchanges(event, c);
    inspect(c, direction, is_head, bytes, len);
    if (direction == 1 && s->state == DEAD)
        unpair(c);
}

/* Missing bytes are bytes of a body as far as one goes. Behind it, the order of requests and responses is not known. */
static void handle_gap(struct connection *c, uint32_t direction, uint64_t missing)
{
    struct side *s = &c->side[direction & 1];
    if (s->state >= RESYNC)
        return;
    if (s->state == UNTIL_CLOSE) {
        s->length += missing;
        return;
    }
    if ((s->state == BODY || s->state == CHUNK_DATA) && missing <= s->left) {
        s->length += missing;
        s->left -= missing;
        if (s->left == 0) {
            if (s->state == BODY)
                end_message(s, direction, true);
            else
                s->state = CHUNK_END;
        }
        return;
    }
    const bool is_body = s->state == BODY;
    if (is_body)
        s->length += s->left;
    if (s->state < CHUNK_SIZE)
        s->length = 0;
    if (s->exchange != 0)
        end_message(s, direction, is_body);
    s->state = RESYNC;
    s->token_len = 0;
    s->flags = 0;
    unpair(c);
}

static __attribute__((noinline)) int32_t handle(const struct weir_stream *event, struct connection *c, const uint8_t *bytes, uint32_t len)
{
    const uint32_t direction = event->direction & 1;
    struct side *s = &c->side[direction];
    now = event->ts_ns;
    pool = &pools[event->flow_hash >> (64 - POOL_BITS)];
    part = &parts[event->flow_hash >> (64 - POOL_BITS)];
    bool is_over = false;
    switch (event->kind) {
    case WEIR_STREAM_OPEN:
        is_over = true;
        break;
    case WEIR_STREAM_BYTES:
        handle_bytes(event, c, bytes, len);
        break;
    case WEIR_STREAM_GAP:
        handle_gap(c, direction, event->missing);
        break;
    case WEIR_STREAM_FIN:
        cut_message(c, direction, true);
        break;
    case WEIR_STREAM_END:
        is_over = true;
        break;
    default:
        break;
    }
    const bool is_dead = c->side[0].state == DEAD, are_dead = is_dead && c->side[1].state == DEAD;
    is_over |= (c->flags & ENDED) || are_dead || (s->state == DEAD && !(c->flags & IS_HTTP));
    if (is_over) {
        cut_message(c, 0, event->cause == WEIR_END_FIN);
        cut_message(c, 1, event->cause == WEIR_END_FIN);
    }
    if (c->first != 0)
        close_finished(c, is_over);
    if (WEIR_UNLIKELY(failing.responses != 0))
        report_failing();
    for (uint32_t i = 0; i < OPEN_MAX && pool->free_count < OPEN_MAX; i++)
        evict();
    if (event->kind == WEIR_STREAM_OPEN) {
        weir_fill(c, 0, sizeof *c);
        c->flags = (event->state & WEIR_STREAM_SYN) ? FROM_SYN : 0;
        c->side[1].state = STATUS;
        return WEIR_STREAM_CONTINUE;
    }
    /* Without requests to come or to be answered, nothing of use follows. */
    if (is_over || (is_dead && c->first == 0))
        return WEIR_STREAM_IGNORE;
    return s->state == DEAD && event->kind == WEIR_STREAM_BYTES ? WEIR_STREAM_SKIP : WEIR_STREAM_CONTINUE;
}

WEIR_EXPORT(weir_stream) int32_t weir_stream(const struct weir_stream *event)
{
    struct connection *c = &connections[event->stream & connection_mask];
    struct side *s = &c->side[event->direction & 1];
    const uint32_t len = event->len;
    /* Bytes inside a body. */
    if (WEIR_LIKELY(event->kind == WEIR_STREAM_BYTES && (s->state == UNTIL_CLOSE || (s->state == BODY && s->left > len && s->length != 0)))) {
        s->length += len;
        s->left -= len;
        return WEIR_STREAM_CONTINUE;
    }
    return handle(event, c, weir_stream_bytes(event), len);
}

static int32_t compile(const uint8_t *list, uint32_t len, const char *too_long, uint32_t too_long_len)
{
    uint32_t patterns = 0;
    for (uint32_t at = 0; at < PATTERN_BYTES && at < len; patterns++) {
        const uint32_t step = weir_le32(list + at);
        at += 4 + (step < PATTERN_BYTES ? step : PATTERN_BYTES);
    }
    if (len > PATTERN_BYTES || patterns > PATTERNS_MAX) {
        weir_log(WEIR_ERROR, too_long, too_long_len);
        return -2;
    }
    /* An operator who gives no string gives an empty one. */
    const bool is_empty = len == 0 || (len == 4 && weir_le32(list) == 0);
    return is_empty ? -1 : weir_find_compile(list, len & (2 * PATTERN_BYTES - 1), WEIR_FIND_IGNORE_CASE);
}
#define COMPILE(list, len, text) compile((list), (len), (text), sizeof(text) - 1)

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint32_t path_len = param_path_patterns(path_patterns, PATTERN_BYTES), head_len = param_head_patterns(head_patterns, PATTERN_BYTES);
    path_handle = COMPILE(path_patterns, path_len, "path-patterns: at most 64, with 4096 bytes, and none of them empty");
    head_handle = COMPILE(head_patterns, head_len, "head-patterns: at most 64, with 4096 bytes, and none of them empty");
    if (path_handle < -1 || head_handle < -1 || !add_methods())
        return 1;
    const uint32_t bits = 64 - (uint32_t)__builtin_clzll(param_streams() - 1);
    connection_mask = (1u << bits) - 1;
    connections = weir_alloc((uint32_t)sizeof *connections << bits);
    const uint32_t each = (uint32_t)((param_requests() + POOLS - 1) / POOLS);
    exchanges = weir_alloc((POOLS * each + 1) * (uint32_t)sizeof *exchanges);
    if (connections == NULL || exchanges == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for so many streams and requests");
        return 1;
    }
    uint32_t index = 1;
    for (uint32_t i = 0; i < POOLS; i++) {
        pools[i].free = index;
        pools[i].free_count = each;
        for (uint32_t j = 0; j < param_requests() / POOLS + 1 && j < each; j++, index++) {
            exchanges[index].pool = (uint8_t)i;
            exchanges[index].next = j + 1 < each ? index + 1 : 0;
        }
    }
    return 0;
}
