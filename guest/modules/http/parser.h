/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The incremental parser of HTTP/1.x: a loop over bytes that changes parsers and exchanges, and nothing else.
 */
#ifndef HTTP_PARSER_H
#define HTTP_PARSER_H

#include "exchange.h"

/* ---- Messages, in the loop over bytes ---------------------------------------------------------------------------------- */

/* Begins the request whose method is the token, at the first byte of its target. */
static __attribute__((noinline)) void begin_request(struct connection *c, struct side *s, uint8_t first)
{
    uint32_t index = c->early;
    if (index != 0) {
        c->early = 0;
    } else {
        index = open_exchange(c);
        if (c->answer == 0 && !(c->flags & UNPAIRED))
            c->answer = index;
    }
    struct exchange *e = &exchanges[index];
    e->flags |= REQUEST | UNCHECKED;
    e->begin_ns = now;
    e->kind = (uint8_t)s->left;
    e->method_len = s->token_len;
    weir_copy(e->method, token, METHOD_MAX);
    e->path[0] = first;
    e->path_len = 1;
    s->exchange = index;
    weir_set_le32(&s->state, TARGET);
    c->flags |= IS_HTTP;
}

/* Begins a response, at the eighth byte of its status line. */
static __attribute__((noinline)) void begin_response(struct connection *c, struct side *s)
{
    uint32_t index = c->answer;
    if (index != 0) {
        c->answer = exchanges[index].next;
    } else {
        /* A second response without a request: the order of requests and responses is not known. */
        if (c->early != 0)
            unpair(c);
        index = open_exchange(c);
        if (!(c->flags & UNPAIRED) && (c->flags & FROM_SYN))
            c->early = index;
    }
    struct exchange *e = &exchanges[index];
    const uint32_t flags = e->flags;
    e->flags = (uint16_t)(flags | RESPONSE | ((flags & REQUEST_DONE) ? HAS_LATENCY : 0));
    e->response_ns = now;
    s->exchange = index;
    s->left = 0;
    weir_set_le32(&s->state, STATUS | 8 << 24);
    c->flags |= IS_HTTP;
}

/* Ends the message that a direction parses. */
static __attribute__((noinline)) void end_message(struct side *s, uint32_t direction, bool is_complete)
{
    struct exchange *e = &exchanges[s->exchange];
    if (direction == 0) {
        e->request_body = s->length;
        e->end_ns = now;
        e->flags |= REQUEST_DONE | (is_complete ? REQUEST_COMPLETE : 0);
    } else {
        e->response_body = s->length;
        e->flags |= RESPONSE_DONE | (is_complete ? RESPONSE_COMPLETE : 0);
    }
    s->exchange = 0;
    s->length = s->left = 0;
    weir_set_le32(&s->state, direction == 0 ? METHOD : STATUS);
}

/* The end of a head without a body in any case: of CONNECT, and of some responses. */
static __attribute__((noinline)) void end_special_head(struct connection *c, struct side *s, uint32_t direction)
{
    struct exchange *e = &exchanges[s->exchange];
    const uint32_t kind = s->exchange != 0 && (e->flags & REQUEST) ? e->kind : KIND_OTHER, status = e->status;
    s->left = 0;
    s->state = direction == 0 ? METHOD : STATUS;
    if (direction == 0)
        return;
    if (status == 101 || (kind == KIND_CONNECT && status - 200 < 100)) {
        e->flags |= SWITCHED;
        c->flags |= ENDED;
        s->state = DEAD;
    } else if (status - 100 < 100) {
        /* After an interim response, the final one follows. */
        e->flags &= (uint16_t)~(RESPONSE | RESPONSE_LINE | HAS_LATENCY | TYPE_SEEN);
        e->text_len[FIELD_TYPE] = 0;
        e->status = 0;
        if ((e->flags & REQUEST) && s->exchange != 0 && !(c->flags & UNPAIRED))
            c->answer = s->exchange;
        s->exchange = 0;
    }
}

/* The end of a head: decides where the body ends (RFC 9112, 6.3). */
static __attribute__((noinline)) void end_head(struct connection *c, struct side *s, uint32_t direction)
{
    struct exchange *e = &exchanges[s->exchange];
    const uint32_t flags = s->flags, otherwise = direction != 0 ? UNTIL_CLOSE : DEAD;
    const uint64_t length = s->length;
    uint32_t state = direction != 0 ? UNTIL_CLOSE : METHOD;
    s->length = 0;
    s->token_len = 0;
    if (flags & IS_SPECIAL) {
        end_special_head(c, s, direction);
        return;
    }
    if (flags & HAS_ENCODING) {
        e->ambiguity |= (uint16_t)(((flags & (HAS_LENGTH | IS_UNKNOWN)) ? CL_TE : 0) | ((flags & IS_CHUNKED) ? 0 : TE_UNKNOWN));
        state = (flags & IS_CHUNKED) ? (uint32_t)CHUNK_SIZE : otherwise;
        s->left = 0;
    } else if (flags & (IS_UNKNOWN | HAS_LENGTH)) {
        state = (flags & IS_UNKNOWN) ? otherwise : length != 0 ? (uint32_t)BODY : METHOD;
        s->left = length;
    }
    /* A message without a body ends in a step of its own: with its exchange, a parser before a message. */
    s->state = (uint8_t)(state != METHOD ? state : direction == 0 ? METHOD : STATUS);
}

/* The end of a request line. */
static __attribute__((noinline)) void end_request_line(struct connection *c, struct side *s)
{
    struct exchange *e = &exchanges[s->exchange];
    const bool is_version = s->token_len == 8 && (s->flags & HAS_SPACE) && weir_equal(token, "HTTP/", 5) && token[6] == '.' &&
                            token[5] - '0' < 10u && token[7] - '0' < 10u;
    if (is_version && token[5] == '1') {
        e->version = (uint8_t)(10 + token[7] - '0');
    } else if (is_version && e->kind == KIND_PRI && token[5] == '2') {
        /* The preface of HTTP/2 (RFC 9113, 3.4). */
        e->version = 20;
        e->flags |= REQUEST_LINE | SWITCHED;
        e->path_len = e->path_end;
        c->flags |= ENDED;
        s->state = DEAD;
        return;
    } else if (!(s->flags & HAS_SPACE) && e->kind == KIND_GET && e->path_len != 0 && e->path[0] == '/' && c->first == s->exchange) {
        /* HTTP/0.9: the response is a body without a head. */
        e->version = 9;
        e->flags |= REQUEST_LINE;
        unpair(c);
        c->flags |= ENDED;
        s->state = DEAD;
        return;
    } else {
        e->flags &= (uint16_t)~REQUEST;
        s->exchange = 0;
        s->state = DEAD;
        return;
    }
    e->path_len = e->path_end;
    e->flags |= REQUEST_LINE;
    s->state = LINE;
    s->field = FIELD_OTHER;
    s->length = 0;
    s->flags = e->kind == KIND_CONNECT && s->exchange != 0 ? IS_SPECIAL : 0;
}

/* A value of Content-Length ends. */
static inline void commit_length(struct side *s, struct exchange *e)
{
    if (s->token_len == 0 || s->token_len > 18) {
        e->ambiguity |= CL_INVALID;
        s->flags |= IS_UNKNOWN;
    } else if (!(s->flags & HAS_LENGTH)) {
        s->length = s->left;
        s->flags |= HAS_LENGTH;
    } else if (s->length == s->left) {
        e->ambiguity |= CL_DUPLICATE;
    } else {
        e->ambiguity |= CL_CONFLICT;
        s->flags |= IS_UNKNOWN;
    }
}

/* A coding of Transfer-Encoding ends. */
static inline void commit_coding(struct side *s, struct exchange *e)
{
    if (s->token_len == 0)
        return;
    if (s->flags & IS_CHUNKED)
        e->ambiguity |= TE_UNKNOWN;
    if (s->token_len == 7 && weir_equal(token, "chunked", 7))
        s->flags |= IS_CHUNKED;
    else
        s->flags &= (uint8_t)~IS_CHUNKED;
}

/* Ends a line of a head, or of chunk framing. */
static __attribute__((noinline)) void end_line(struct connection *c, struct side *s, uint32_t direction)
{
    struct exchange *e = &exchanges[s->exchange];
    switch (s->state) {
    case TARGET:
        end_request_line(c, s);
        break;
    case SKIP: {
        const uint32_t kind = s->exchange != 0 && (e->flags & REQUEST) ? e->kind : KIND_OTHER, status = e->status;
        const bool is_special = status - 100 < 100 || status == 204 || status == 304 || kind == KIND_HEAD || (kind == KIND_CONNECT && status - 200 < 100);
        s->state = LINE;
        s->field = FIELD_OTHER;
        s->length = 0;
        s->flags |= is_special ? IS_SPECIAL : 0;
        break;
    }
    case NAME: /* a line without a colon */
        s->state = LINE;
        break;
    case VALUE:
        if (s->field == FIELD_LENGTH)
            commit_length(s, e);
        else if (s->field == FIELD_ENCODING)
            commit_coding(s, e);
        s->state = LINE;
        break;
    case CHUNK_SIZE:
    case CHUNK_EXT:
        e->ambiguity |= s->token_len == 0 ? CHUNK_INVALID : 0;
        s->state = s->token_len == 0 ? DEAD : s->left == 0 ? TRAILER : CHUNK_DATA;
        s->token_len = 0;
        break;
    case CHUNK_END:
        s->state = CHUNK_SIZE;
        s->token_len = 0;
        s->left = 0;
        break;
    case TRAILER:
        if (s->token_len == 0)
            end_message(s, direction, true);
        s->token_len = 0;
        break;
    case METHOD:
    case STATUS:
        /* An empty line before a message, or a line that is too short. */
        s->state = s->token_len == 0 ? s->state : DEAD;
        break;
    default: /* METHOD_END */
        s->state = DEAD;
        break;
    }
}

/* Adds a block's first n bytes to the token. */
static inline void add_token(struct side *s, weir_bytes16 block, uint32_t n)
{
    if (s->token_len + n > TOKEN_MAX) {
        s->token_len = TOKEN_MAX + 1;
        return;
    }
    weir_copy(token + s->token_len, &block, BLOCK);
    s->token_len = (uint8_t)(s->token_len + n);
}

/* The field with the token's name, in either case of letters. */
static inline uint32_t identify(uint32_t len, uint32_t direction)
{
    const uint64_t lower = UINT64_C(0x2020202020202020);
    const uint64_t first = weir_le64(token) | lower, last = weir_le64(token + len - 8) | lower;
    switch (len) {
    case 10:
        return direction == 0 && first == 0x6567612d72657375 && last == 0x746e6567612d7265 && token[4] == '-' ? FIELD_AGENT : FIELD_OTHER;
    case 12:
        return direction == 1 && first == 0x2d746e65746e6f63 && last == 0x657079742d746e65 && token[7] == '-' ? FIELD_TYPE : FIELD_OTHER;
    case 14:
        return first == 0x2d746e65746e6f63 && last == 0x6874676e656c2d74 && token[7] == '-' ? FIELD_LENGTH : FIELD_OTHER;
    case 17:
        return first == 0x726566736e617274 && last == 0x676e69646f636e65 && token[8] == '-' ? FIELD_ENCODING : FIELD_OTHER;
    default:
        return FIELD_OTHER;
    }
}

/* The name of a field ends. */
static __attribute__((noinline)) void end_name(struct side *s, uint32_t direction)
{
    struct exchange *e = &exchanges[s->exchange];
    uint32_t len = s->token_len, flags = s->flags & ~(uint32_t)(HAS_BEGUN | HAS_ENDED), field = FIELD_OTHER, ambiguity = e->ambiguity;
    if (len - 1 < TOKEN_MAX && (token[len - 1] == ' ' || token[len - 1] == '\t')) {
        ambiguity |= SPACE_COLON;
        len--;
    }
    if (len == 4 && direction == 0 && (weir_le32(token) | 0x20202020) == 0x74736f68)
        field = FIELD_HOST;
    else if (len >= 8 && len <= TOKEN_MAX)
        field = identify(len, direction);
    if (field <= FIELD_TYPE) {
        /* The first of several fields counts. */
        const uint32_t seen = (uint32_t)HOST_SEEN << field, known = e->flags;
        e->flags = (uint16_t)(known | seen);
        if (known & seen) {
            ambiguity |= field == FIELD_HOST ? HOST_DUPLICATE : 0;
            field = FIELD_OTHER;
        }
    } else if (field == FIELD_ENCODING) {
        ambiguity |= ((flags & HAS_ENCODING) ? TE_UNKNOWN : 0) | (direction == 0 && e->version == 10 ? TE_OLD : 0);
        flags |= HAS_ENCODING;
    }
    e->ambiguity = (uint16_t)ambiguity;
    s->left = 0;
    weir_set_le32(&s->state, VALUE | field << 8 | flags << 16);
}

static inline void add_text(struct exchange *e, uint32_t field, weir_bytes16 block, uint32_t n)
{
    const uint32_t len = e->text_len[field], most = text_max[field];
    weir_copy((uint8_t *)e + text_offset[field] + (len < most ? len : most), &block, BLOCK);
    e->text_len[field] = (uint16_t)(len + n < most ? len + n : most);
}

/* A byte of the value of Content-Length. */
static inline void length_byte(struct side *s, struct exchange *e, uint8_t byte)
{
    const uint32_t digit = (uint32_t)byte - '0';
    if (byte == ' ' || byte == '\t') {
        s->flags |= HAS_ENDED;
    } else if (byte == ',') {
        commit_length(s, e);
        s->flags &= (uint8_t)~(HAS_ENDED | HAS_BEGUN);
        s->left = 0;
        s->token_len = 0;
    } else if (digit > 9 || (s->flags & HAS_ENDED) || s->token_len >= 18) {
        s->token_len = TOKEN_MAX + 1;
    } else {
        s->left = s->left * 10 + digit;
        s->token_len++;
    }
}

/* A byte of the value of Transfer-Encoding. */
static inline void coding_byte(struct side *s, struct exchange *e, uint8_t byte)
{
    if (byte == ' ' || byte == '\t') {
        s->flags |= HAS_ENDED;
    } else if (byte == ',') {
        commit_coding(s, e);
        s->flags &= (uint8_t)~(HAS_ENDED | HAS_BEGUN);
        s->token_len = 0;
    } else if ((s->flags & HAS_ENDED) || s->token_len >= TOKEN_MAX) {
        s->token_len = TOKEN_MAX + 1;
    } else {
        token[s->token_len++ & 31] = byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte;
    }
}

/* A byte of a status line up to the status code: "HTTP/1.x nnn". */
static inline void status_byte(struct side *s, uint8_t byte)
{
    static const uint8_t begin[12] = "HTTP/1.0 000";
    const uint32_t at = s->token_len < 11 ? s->token_len : 11, digit = (uint32_t)byte - '0';
    s->token_len++;
    if (begin[at] == '0' ? digit > 9 : byte != begin[at]) {
        s->state = DEAD;
    } else if (at > 8) {
        s->left = s->left * 10 + digit;
        if (at == 11) {
            struct exchange *e = &exchanges[s->exchange];
            e->status = (uint16_t)s->left;
            e->flags |= RESPONSE_LINE;
            s->state = SKIP;
        }
    }
}

/* A step inside the method. */
static __attribute__((noinline)) uint32_t parse_method(struct side *s, const uint8_t *here, uint32_t room)
{
    const weir_bytes16 block = weir_load16(here);
    const uint32_t stops = weir_same16(block, weir_splat16('\r')) | weir_same16(block, weir_splat16('\n')) |
                           weir_same16(block, weir_splat16(' ')) | 1u << room;
    const uint32_t n = (uint32_t)__builtin_ctz(stops);
    add_token(s, block, n);
    if (n < room && here[n] == ' ') {
        const struct method *method = find_method(token, s->token_len);
        s->state = method != NULL ? METHOD_END : DEAD;
        s->left = method != NULL ? method->kind : 0;
    } else if (n < room || s->token_len > METHOD_MAX || token[0] < 'A' || token[0] > 'Z')
        s->state = DEAD;
    return n == 0 ? 1 : n;
}

/* A byte of a value that tells the length of the body. */
static __attribute__((noinline)) void parse_framing(struct side *s, uint8_t byte)
{
    struct exchange *e = &exchanges[s->exchange];
    if (!(s->flags & HAS_BEGUN) && (byte == ' ' || byte == '\t'))
        return;
    s->flags |= HAS_BEGUN;
    if (s->field == FIELD_LENGTH)
        length_byte(s, e, byte);
    else
        coding_byte(s, e, byte);
}

/* A step inside a line: takes up to `room` bytes, at most BLOCK, of which the first does not end the line. */
static __attribute__((noinline)) uint32_t parse_line(struct side *s, const uint8_t *here, uint32_t room)
{
    struct exchange *e = &exchanges[s->exchange];
    const uint8_t byte = here[0];
    const weir_bytes16 block = weir_load16(here);
    uint32_t stops = weir_same16(block, weir_splat16('\r')) | weir_same16(block, weir_splat16('\n')) | 1u << room;
    uint32_t n = (uint32_t)__builtin_ctz(stops);
    switch (s->state) {
    case TARGET: {
        const uint32_t len = e->path_len, at = len < PATH_MAX ? len : PATH_MAX;
        if (byte == ' ') {
            /* A target has no space; if there is one nevertheless, the version is behind the last. */
            e->path_end = len;
            e->path[at] = ' ';
            e->path_len = len + 1;
            s->flags |= HAS_SPACE;
            s->token_len = 0;
            return 1;
        }
        stops |= weir_same16(block, weir_splat16(' '));
        n = (uint32_t)__builtin_ctz(stops);
        weir_copy(e->path + at, &block, BLOCK);
        e->path_len = len + n;
        add_token(s, block, n);
        break;
    }
    case LINE:
        s->token_len = 0;
        if (byte == ' ' || byte == '\t') {
            /* A folded line goes on with the value before it. */
            e->ambiguity |= OBS_FOLD;
            s->flags &= (uint8_t)~(HAS_BEGUN | HAS_ENDED);
            s->left = 0;
            s->state = VALUE;
            if (s->field <= FIELD_TYPE)
                add_text(e, s->field, weir_splat16(' '), e->text_len[s->field] != 0);
            return 1;
        }
        s->state = NAME;
        __attribute__((fallthrough));
    case NAME:
        stops |= weir_same16(block, weir_splat16(':'));
        n = (uint32_t)__builtin_ctz(stops);
        add_token(s, block, n);
        break;
    case VALUE:
        if (!(s->flags & HAS_BEGUN) && (byte == ' ' || byte == '\t'))
            return 1;
        s->flags |= HAS_BEGUN;
        if (s->field <= FIELD_TYPE)
            add_text(e, s->field, block, n);
        break;
    case CHUNK_SIZE: {
        const uint8_t lower = byte | 0x20;
        const uint32_t digit = byte - '0' < 10u ? (uint32_t)byte - '0' : lower - 'a' < 6u ? (uint32_t)lower - 'a' + 10 : 16;
        if (digit < 16 && s->left >> 56 == 0) {
            s->left = s->left << 4 | digit;
            s->token_len = 1;
        } else if ((byte == ';' || byte == ' ' || byte == '\t') && s->token_len != 0) {
            s->state = CHUNK_EXT;
        } else {
            e->ambiguity |= CHUNK_INVALID;
            s->state = DEAD;
        }
        return 1;
    }
    case CHUNK_END:
        e->ambiguity |= CHUNK_INVALID;
        s->state = DEAD;
        return 1;
    case TRAILER:
        s->token_len = 1;
        break;
    default: /* SKIP, CHUNK_EXT */
        break;
    }
    return n == 0 ? 1 : n;
}

/* A step before a message, in its method, or in its status line. */
static inline uint32_t parse_first(struct connection *c, struct side *s, uint32_t direction, uint32_t state, const uint8_t *here, uint32_t byte,
                                   uint32_t room)
{
    const uint32_t len = s->token_len;
    if (state == METHOD_END) {
        if (byte != ' ')
            begin_request(c, s, (uint8_t)byte);
    } else if (len == 7 && state == STATUS && byte - '0' < 10u) {
        begin_response(c, s);
    } else if (s->exchange != 0 && len == 0) {
        end_message(s, direction, true);
        token[0] = (uint8_t)byte;
        s->token_len = 1;
        s->state = direction == 0 ? METHOD : byte == 'H' ? STATUS : DEAD;
    } else if (state == METHOD) {
        return parse_method(s, here, room);
    } else {
        status_byte(s, (uint8_t)byte);
    }
    return 1;
}

/* A step in a body: all that is there of the body, or of the chunk. */
static inline uint32_t parse_body(struct side *s, uint32_t direction, uint32_t rest)
{
    const bool is_counted = s->state != UNTIL_CLOSE;
    const uint32_t used = is_counted && s->left < rest ? (uint32_t)s->left : rest;
    s->length += used;
    s->left -= used;
    if (is_counted && s->left == 0) {
        if (s->state == BODY)
            end_message(s, direction, true);
        else
            s->state = CHUNK_END;
    }
    return used;
}

static inline void end_any_line(struct connection *c, struct side *s, uint32_t direction)
{
    if (s->state == LINE)
        end_head(c, s, direction);
    else
        end_line(c, s, direction);
}

/* A CR: with the LF behind it the end of a line. */
static inline uint32_t end_of_line(struct connection *c, struct side *s, uint32_t direction, const uint8_t *here, uint32_t room)
{
    if (room == 1) {
        /* The next chunk decides. */
        s->flags |= HAS_CR;
        return 1;
    }
    if (here[1] != '\n') {
        exchanges[s->exchange].ambiguity |= BARE_CR;
        s->token_len += s->state == NAME;
        return 1;
    }
    end_any_line(c, s, direction);
    return 2;
}

/* Parses the next bytes of a direction from 0 on, until `limit` is reached; `end` bytes are there. BLOCK bytes can be read at each
 * place before the limit. Returns the number of bytes that it took.
 *
 * The end of a line is a step of its own, so that the cost of a step is that of one part, not their sum. */
static __attribute__((noinline)) uint32_t parse(struct connection *c, uint32_t direction, const uint8_t *bytes, uint32_t limit, uint32_t end)
{
    struct side *s = &c->side[direction & 1];
    uint32_t at = 0;
    /* Each step takes at least one byte. */
    WEIR_WHILE(limit, at < limit)
    {
        const uint8_t *here = bytes + at;
        const uint32_t rest = end - at, room = rest < BLOCK ? rest : BLOCK;
        const uint32_t state = s->state, byte = here[0];
        uint32_t used = 1;
        if (state < CHUNK_DATA && byte == '\r') {
            used = end_of_line(c, s, direction, here, room);
        } else if (state < CHUNK_DATA && byte == '\n') {
            if (s->token_len != 0 || state > STATUS)
                exchanges[s->exchange].ambiguity |= BARE_LF;
            end_any_line(c, s, direction);
        } else if (state <= STATUS) {
            used = parse_first(c, s, direction, state, here, byte, room);
        } else if (state == NAME && byte == ':') {
            end_name(s, direction);
        } else if (state == VALUE && s->field >= FIELD_LENGTH) {
            parse_framing(s, (uint8_t)byte);
        } else if (state < CHUNK_DATA) {
            used = parse_line(s, here, room);
        } else if (state < RESYNC) {
            used = parse_body(s, direction, rest);
        } else {
            break;
        }
        at += used;
    }
    return at;
}

#endif
