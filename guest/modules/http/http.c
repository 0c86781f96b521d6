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

enum {
    POOLS = 64,         /* parts of the pool of exchanges, by the top bits of the flow hash */
    POOL_BITS = 6,
    OPEN_MAX = 16,      /* exchanges of a stream; also the rows of an event, and the free exchanges that each event finds */
    BLOCK = 16,         /* bytes that a step of the parser looks at */
    TOKEN_MAX = 20,     /* longest token that matters, and more than the longest name of a field that matters */
    RESYNC_CHUNKS = 32, /* chunks of a direction that may not begin a message, after a gap */
};

/* Lengths of texts. Each has BLOCK bytes more, because it is written in blocks. */
enum { METHOD_MAX = 16, PATH_MAX = 512, HOST_MAX = 255, AGENT_MAX = 255, TYPE_MAX = 63 };

/* States of a direction's parser. */
enum {
    METHOD,      /* before a request, where empty lines are skipped, or in its method */
    METHOD_END,  /* behind a known method, before the target */
    STATUS,      /* likewise, before a response, or in its status line up to the status code */
    TARGET,      /* in the request line behind the method */
    SKIP,        /* in the rest of the status line */
    LINE,        /* before a field */
    NAME,        /* in a field's name */
    VALUE,       /* in a field's value */
    CHUNK_SIZE,  /* in the line before a chunk */
    CHUNK_EXT,   /* behind the size in that line */
    CHUNK_END,   /* in the end of line behind a chunk */
    TRAILER,     /* in the fields behind the last chunk */
    CHUNK_DATA,  /* states without lines from here on */
    BODY,        /* in a body of known length */
    UNTIL_CLOSE, /* in a body that the connection's end delimits */
    RESYNC,      /* after a gap: the next chunk that begins as a message does is one */
    DEAD,        /* not HTTP, or no longer */
};

/* Fields that matter. The first three are texts, in this order. */
enum { FIELD_HOST, FIELD_AGENT, FIELD_TYPE, FIELD_OTHER, FIELD_LENGTH, FIELD_ENCODING };

/* Bits of side.flags: about the message being parsed. */
enum {
    HAS_CR = 1 << 0,       /* the last byte was a CR */
    HAS_BEGUN = 1 << 1,    /* the value has begun, behind white space */
    HAS_ENDED = 1 << 2,    /* white space behind a number or a token */
    HAS_LENGTH = 1 << 3,   /* Content-Length was seen; side.length has it */
    HAS_ENCODING = 1 << 4, /* Transfer-Encoding was seen */
    IS_CHUNKED = 1 << 5,   /* the last coding is chunked */
    IS_UNKNOWN = 1 << 6,   /* the length of the body cannot be known */
    HAS_SPACE = 1 << 7,    /* the request line has a space behind the target */
    IS_SPECIAL = 1 << 7,   /* behind the first line: no body follows in any case */
};

/* Bits of exchange.flags. */
enum {
    REQUEST = 1 << 0,           /* a request line has begun */
    REQUEST_LINE = 1 << 1,      /* it is there whole */
    REQUEST_DONE = 1 << 2,      /* no byte of the request follows */
    REQUEST_COMPLETE = 1 << 3,  /* it was seen to its end */
    RESPONSE = 1 << 4,
    RESPONSE_LINE = 1 << 5,
    RESPONSE_DONE = 1 << 6,
    RESPONSE_COMPLETE = 1 << 7,
    HAS_LATENCY = 1 << 8,
    SWITCHED = 1 << 9,
    FRESH = 1 << 10,            /* addresses are still to be filled in */
    UNCHECKED = 1 << 11,        /* the request's path is still to be searched */
    HOST_SEEN = 1 << 12,        /* followed by the bits of the other texts */
    AGENT_SEEN = 1 << 13,
    TYPE_SEEN = 1 << 14,
    FRAMING_REPORTED = 1 << 15,
};

/* Bits of exchange.ambiguity, in the order of their names. */
enum {
    CL_TE = 1 << 0,
    CL_DUPLICATE = 1 << 1,
    CL_CONFLICT = 1 << 2,
    CL_INVALID = 1 << 3,
    TE_UNKNOWN = 1 << 4,
    TE_OLD = 1 << 5,
    CHUNK_INVALID = 1 << 6,
    SPACE_COLON = 1 << 7,
    OBS_FOLD = 1 << 8,
    HOST_DUPLICATE = 1 << 9,
    BARE_CR = 1 << 10,
    BARE_LF = 1 << 11,
    AMBIGUITIES = 12,
    /* Of a request, these are a finding: a proxy and a server can see different ends of the body. */
    SMUGGLING = CL_TE | CL_CONFLICT | CL_INVALID | TE_UNKNOWN | TE_OLD | CHUNK_INVALID | SPACE_COLON,
};

/* Methods that matter for framing. */
enum { KIND_OTHER, KIND_GET, KIND_HEAD, KIND_CONNECT, KIND_PRI };

/* Bits of connection.flags. */
enum {
    FROM_SYN = 1 << 0, /* the stream was seen from its beginning */
    UNPAIRED = 1 << 1, /* it is not known which response answers which request */
    ENDED = 1 << 2,    /* the protocol was switched, or nothing of use can follow */
    IS_HTTP = 1 << 3,  /* a message was seen */
};

struct side {
    uint64_t left;     /* in a body or chunk: bytes that remain; in a head: the number being read */
    uint64_t length;   /* in a head: the value of Content-Length; in a body: its bytes so far */
    uint32_t exchange; /* of the message being parsed; 0: none */
    uint8_t token[TOKEN_MAX];
    uint8_t state, field, flags; /* these four are set together */
    uint8_t token_len; /* above TOKEN_MAX: the token is longer, or unknown */
};

/* Two cache lines; one direction touches one of them mostly. */
struct connection {
    struct side side[2];
    uint32_t first, last; /* exchanges in the order of requests; 0: none */
    uint32_t answer;      /* the next to be answered */
    uint32_t early;       /* one whose response came before its request */
    uint16_t lost;
    uint8_t count, flags;
    uint8_t spare[12];
};
_Static_assert(sizeof(struct connection) == 128, "two cache lines");

struct exchange {
    uint32_t next;         /* in the stream; of a free exchange: the next free one */
    uint32_t older, newer; /* in the pool, by the time of the last message */
    uint32_t stream;
    uint64_t begin_ns, end_ns, response_ns;
    uint64_t request_body, response_body;
    uint8_t client[16], server[16];
    uint16_t client_port, server_port, vlan_tci;
    uint8_t tunnel, ip_version;
    uint32_t path_len; /* of the whole request line behind the method, as far as it goes */
    uint32_t path_end; /* its length before the last space */
    uint16_t text_len[3];
    uint16_t status, ambiguity, flags;
    uint8_t method_len, kind, version, pool;
    uint8_t method[METHOD_MAX];
    uint8_t path[PATH_MAX + BLOCK];
    uint8_t host[HOST_MAX + 1 + BLOCK];
    uint8_t agent[AGENT_MAX + 1 + BLOCK];
    uint8_t type[TYPE_MAX + 1 + BLOCK];
} __attribute__((aligned(64)));
enum { EXCHANGE_HEAD = offsetof(struct exchange, method) };

static const uint16_t text_offset[3] = { offsetof(struct exchange, host), offsetof(struct exchange, agent), offsetof(struct exchange, type) };
static const uint16_t text_max[3] = { HOST_MAX, AGENT_MAX, TYPE_MAX };

struct pool {
    uint32_t free, free_count;
    uint32_t oldest, newest;
};

static struct connection *connections;
static uint32_t connection_mask;
static struct exchange *exchanges; /* number 0 takes what belongs to no exchange */
static struct pool pools[POOLS];
static struct pool *pool; /* of the event */
static uint64_t now;      /* time of the event */
static uint8_t token[TOKEN_MAX + 2 * BLOCK];

/* ---- Methods --------------------------------------------------------------------------------------------------------- */

/* The methods that servers and tshark know. */
static const char method_names[][METHOD_MAX + 1] = {
    "GET", "POST", "HEAD", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE",
    "LOCK", "UNLOCK", "POLL", "BCOPY", "BMOVE", "SEARCH", "BDELETE", "BPROPFIND", "BPROPPATCH", "LABEL", "MERGE", "REPORT", "UPDATE",
    "CHECKIN", "CHECKOUT", "MKACTIVITY", "MKWORKSPACE", "UNCHECKOUT", "VERSION-CONTROL", "BASELINE-CONTROL", "NOTIFY", "SUBSCRIBE",
    "UNSUBSCRIBE", "LINK", "UNLINK", "PURGE", "ACL", "BIND", "REBIND", "UNBIND", "ORDERPATCH", "RPC_IN_DATA", "RPC_OUT_DATA", "ICY",
};
enum { METHODS = sizeof method_names / sizeof *method_names, METHOD_SLOTS = 256 };
static struct method { uint64_t first, last; uint8_t kind; } methods[METHOD_SLOTS];

static inline uint32_t method_slot(uint64_t first, uint64_t last)
{
    return (uint32_t)(((first ^ last * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0x57E54ACC62F5680D)) >> 56);
}

/* Returns false if two methods have the same slot. */
static bool add_methods(void)
{
    for (uint32_t i = 0; i < METHODS; i++) {
        const uint64_t first = weir_le64(method_names[i]), last = weir_le64(method_names[i] + 8);
        struct method *method = &methods[method_slot(first, last) % METHOD_SLOTS];
        if (method->first != 0)
            return false;
        *method = (struct method){ first, last, i == 0 ? KIND_GET : i == 2 ? KIND_HEAD : i == 5 ? KIND_CONNECT : i == 9 ? KIND_PRI : KIND_OTHER };
    }
    return true;
}

/* Returns the method that is the first `len` bytes of the text, of which 16 can be read; NULL if it is not known. */
static inline const struct method *find_method(const uint8_t *text, uint32_t len)
{
    uint64_t first = weir_le64(text), last = weir_le64(text + 8);
    if (len < 8) {
        first &= (UINT64_C(1) << 8 * len) - 1;
        last = 0;
    } else if (len < 16) {
        last &= (UINT64_C(1) << 8 * (len - 8)) - 1;
    }
    const struct method *method = &methods[method_slot(first, last) % METHOD_SLOTS];
    return method->first == first && method->last == last && len - 1 < METHOD_MAX ? method : NULL;
}

/* ---- Exchanges ------------------------------------------------------------------------------------------------------- */

/* Takes a free exchange and makes it the stream's last. Returns 0, that of no exchange, if too many are open. */
static inline uint32_t open_exchange(struct connection *c)
{
    const uint32_t index = pool->free;
    if (WEIR_UNLIKELY(c->count >= OPEN_MAX || index == 0)) {
        c->lost += c->lost < 0xFFFF;
        c->flags |= UNPAIRED;
        c->answer = c->early = 0;
        return 0;
    }
    struct exchange *e = &exchanges[index];
    pool->free = e->next;
    pool->free_count--;
    e->next = 0;
    e->flags = FRESH;
    if (c->last != 0)
        exchanges[c->last].next = index;
    else
        c->first = index;
    c->last = index;
    c->count++;
    return index;
}

static inline void age(struct exchange *e, uint32_t index)
{
    struct pool *p = &pools[e->pool % POOLS];
    e->older = p->newest;
    e->newer = 0;
    if (p->newest != 0)
        exchanges[p->newest].newer = index;
    else
        p->oldest = index;
    p->newest = index;
}

static inline void unlink_age(struct exchange *e)
{
    struct pool *p = &pools[e->pool % POOLS];
    if (e->older != 0)
        exchanges[e->older].newer = e->newer;
    else
        p->oldest = e->newer;
    if (e->newer != 0)
        exchanges[e->newer].older = e->older;
    else
        p->newest = e->older;
}

/* Removes an exchange from its stream, and frees it. `before` is the one before it in the stream; 0: none. */
static __attribute__((noinline)) void close_exchange(struct connection *c, uint32_t index, uint32_t before)
{
    struct exchange *e = &exchanges[index];
    if (before != 0)
        exchanges[before].next = e->next;
    else
        c->first = e->next;
    if (c->last == index)
        c->last = before;
    c->count--;
    if (c->answer == index)
        c->answer = e->next;
    if (c->early == index)
        c->early = 0;
    for (uint32_t i = 0; i < 2; i++)
        if (c->side[i].exchange == index)
            c->side[i].exchange = 0;
    if (!(e->flags & FRESH))
        unlink_age(e);
    struct pool *p = &pools[e->pool % POOLS];
    const uint8_t own = e->pool;
    weir_fill(e, 0, EXCHANGE_HEAD);
    e->pool = own;
    e->next = p->free;
    p->free = index;
    p->free_count++;
}

static inline void unpair(struct connection *c)
{
    c->flags |= UNPAIRED;
    c->answer = c->early = 0;
}

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

/* ---- Findings -------------------------------------------------------------------------------------------------------- */

enum { REPORTS = 8, SERVERS = 8, FINDINGS_PER_HOUR = 8 };
#define HOUR UINT64_C(3600000000000)
#define ERROR_WINDOW UINT64_C(600000000000)

enum { SUSPICIOUS = 1, AMBIGUOUS = 2, SLOW = 4, FAILING = 8 };

/* Findings of a part of the flows: what was reported lately, so that a scan is not a finding for each of its requests. */
struct report { struct weir_ip subject; uint64_t time; uint32_t kinds; };
struct server { struct weir_ip ip; uint64_t since; uint32_t responses, errors; uint16_t port; bool reported; };
static struct reports {
    struct report reports[REPORTS];
    struct server servers[SERVERS];
    uint64_t hour;
    uint32_t findings;
} parts[POOLS];
static struct reports *part; /* of the event */

/* Patterns, as parameters hold them: a length and the bytes. */
enum { PATTERN_BYTES = 4096, PATTERNS_MAX = 64 };
static uint8_t path_patterns[PATTERN_BYTES + 64], head_patterns[PATTERN_BYTES + 64];
static int32_t path_handle = -1, head_handle = -1;

/* True if a finding of this kind about the subject is due: at most one an hour, and a limited number for all subjects. */
static __attribute__((noinline)) bool is_due(const struct weir_ip *subject, uint32_t kind)
{
    struct report *oldest = part->reports;
    if (now - part->hour >= HOUR) {
        part->hour = now;
        part->findings = 0;
    }
    for (uint32_t i = 0; i < REPORTS; i++) {
        struct report *r = &part->reports[i];
        if (r->kinds != 0 && r->subject.first == subject->first && r->subject.last == subject->last && now - r->time < HOUR) {
            if ((r->kinds & kind) || part->findings >= FINDINGS_PER_HOUR)
                return false;
            r->kinds |= kind;
            part->findings++;
            return true;
        }
        if (r->time < oldest->time)
            oldest = r;
    }
    if (part->findings >= FINDINGS_PER_HOUR)
        return false;
    part->findings++;
    *oldest = (struct report){ *subject, now, kind };
    return true;
}

/* Parts of a text, out of line: the analyser looks at each copy of inlined code. */
static __attribute__((noinline)) void add_part(struct weir_text *text, const void *bytes, uint32_t len)
{
    const uint32_t part_len = len & 63;
    if (text->len <= WEIR_TEXT_BYTES - 64) {
        weir_copy(text->bytes + text->len, bytes, part_len);
        text->len += part_len;
    }
}
#define ADD(text, literal) add_part((text), (literal), sizeof(literal) - 1)

static __attribute__((noinline)) void add_address(struct weir_text *text, const uint8_t *address) { weir_add_ip(text, weir_ip_v6(address)); }
static __attribute__((noinline)) void add_count(struct weir_text *text, uint64_t count) { weir_add_number(text, count); }

static __attribute__((noinline)) void add_request(struct weir_text *text, const struct exchange *e)
{
    enum { SHOWN = 48 };
    add_part(text, e->method, e->method_len);
    ADD(text, " ");
    add_part(text, e->path, e->path_len < SHOWN ? e->path_len : SHOWN);
    if (e->path_len > SHOWN)
        ADD(text, "...");
}

static __attribute__((noinline)) void emit_finding(const struct exchange *e, uint32_t severity, const struct weir_text *text, bool has_client)
{
    struct weir_text filter;
    filter.len = 0;
    /* A pcap filter cannot look into tunnels. */
    if (e->tunnel == WEIR_TUNNEL_NONE) {
        if (e->vlan_tci != 0)
            ADD(&filter, "vlan and ");
        ADD(&filter, "tcp port ");
        add_count(&filter, e->server_port);
        ADD(&filter, " and host ");
        add_address(&filter, e->server);
        if (has_client) {
            ADD(&filter, " and host ");
            add_address(&filter, e->client);
        }
    }
    const struct findings_row row = {
        .time = now,
        .severity = (uint8_t)severity,
        .text = weir_text_string(text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("requests", 8),
    };
    emit_findings(&row);
}

static __attribute__((noinline)) void add_ends(struct weir_text *text, const struct exchange *e)
{
    ADD(text, " from ");
    add_address(text, e->client);
    ADD(text, " to ");
    add_address(text, e->server);
    ADD(text, ", port ");
    add_count(text, e->server_port);
    ADD(text, ": ");
}

/* Reports a request with a suspicious string: the pattern with this number of a list. */
static __attribute__((noinline)) void report_suspicious(const struct exchange *e, const uint8_t *list, uint32_t number)
{
    const struct weir_ip client = weir_ip_v6(e->client);
    if (!is_due(&client, SUSPICIOUS))
        return;
    uint32_t at = 0, len = 0;
    for (uint32_t i = 0; i < PATTERNS_MAX && at < PATTERN_BYTES; i++) {
        len = weir_le32(list + at);
        if (i == number)
            break;
        at += 4 + (len < PATTERN_BYTES ? len : PATTERN_BYTES);
    }
    struct weir_text text;
    text.len = 0;
    ADD(&text, "Suspicious HTTP request");
    add_ends(&text, e);
    add_request(&text, e);
    ADD(&text, ", with \"");
    if (at < PATTERN_BYTES)
        add_part(&text, list + at + 4, len < 32 ? len : 32);
    ADD(&text, "\"");
    emit_finding(e, WEIR_MEDIUM, &text, true);
}

static const char ambiguity_names[AMBIGUITIES][16] = {
    "cl-te", "cl-duplicate", "cl-conflict", "cl-invalid", "te-unknown", "te-old", "chunk-invalid", "space-colon", "obs-fold",
    "host-duplicate", "bare-cr", "bare-lf",
};
static const uint8_t ambiguity_lens[AMBIGUITIES] = { 5, 12, 11, 10, 10, 6, 13, 11, 8, 14, 7, 7 };

static __attribute__((noinline)) void add_ambiguity(struct weir_text *text, uint32_t bits)
{
    const uint32_t before = text->len;
    for (uint32_t i = 0; i < AMBIGUITIES; i++)
        if (bits >> i & 1) {
            if (text->len != before)
                ADD(text, ",");
            add_part(text, ambiguity_names[i], ambiguity_lens[i]);
        }
}

/* Reports a request whose end a proxy and a server can see at different places. */
static __attribute__((noinline)) void report_ambiguous(struct exchange *e)
{
    const struct weir_ip client = weir_ip_v6(e->client);
    if (!is_due(&client, AMBIGUOUS))
        return;
    struct weir_text text;
    text.len = 0;
    ADD(&text, "Ambiguous framing of an HTTP request");
    add_ends(&text, e);
    add_request(&text, e);
    ADD(&text, ", ");
    add_ambiguity(&text, e->ambiguity & SMUGGLING);
    ADD(&text, ": possible request smuggling");
    emit_finding(e, WEIR_HIGH, &text, true);
}

static __attribute__((noinline)) void report_slow(const struct exchange *e)
{
    const struct weir_ip server = weir_ip_v6(e->server);
    if (!is_due(&server, SLOW))
        return;
    struct weir_text text;
    text.len = 0;
    ADD(&text, "Slow HTTP response: ");
    add_count(&text, (e->response_ns - e->end_ns) / 1000000);
    ADD(&text, " ms for the request");
    add_ends(&text, e);
    add_request(&text, e);
    emit_finding(e, WEIR_LOW, &text, true);
}

/* A server whose errors are due to be reported, with the last response; `responses` is 0 without one. */
static struct { struct exchange exchange; uint32_t responses, errors; } failing;

/* Counts a response for its server. */
static __attribute__((noinline)) void count_response(const struct exchange *e)
{
    const struct weir_ip ip = weir_ip_v6(e->server);
    struct server *entry = part->servers;
    bool is_known = false;
    for (uint32_t i = 0; i < SERVERS && !is_known; i++) {
        struct server *s = &part->servers[i];
        is_known = s->responses != 0 && s->ip.first == ip.first && s->ip.last == ip.last && s->port == e->server_port;
        if (is_known || s->since < entry->since)
            entry = s;
    }
    if (!is_known || now - entry->since >= ERROR_WINDOW) {
        /* A server without errors takes no place. */
        if (!is_known && e->status < 500)
            return;
        *entry = (struct server){ .ip = ip, .since = now, .port = e->server_port };
    }
    entry->responses++;
    entry->errors += e->status >= 500;
    if (entry->reported || entry->errors < param_errors() || entry->errors < entry->responses - entry->errors)
        return;
    entry->reported = true;
    weir_copy(&failing.exchange, e, EXCHANGE_HEAD);
    failing.responses = entry->responses;
    failing.errors = entry->errors;
}

static __attribute__((noinline)) void report_failing(void)
{
    const struct exchange *e = &failing.exchange;
    const struct weir_ip ip = weir_ip_v6(e->server);
    const uint32_t responses = failing.responses;
    failing.responses = 0;
    if (!is_due(&ip, FAILING))
        return;
    struct weir_text text;
    text.len = 0;
    ADD(&text, "HTTP server ");
    add_address(&text, e->server);
    ADD(&text, ", port ");
    add_count(&text, e->server_port);
    ADD(&text, ", fails: ");
    add_count(&text, failing.errors);
    ADD(&text, " of ");
    add_count(&text, responses);
    ADD(&text, " responses had a status from 500 on, the last one ");
    add_count(&text, e->status);
    emit_finding(e, WEIR_MEDIUM, &text, false);
}

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
    uint8_t layer[8] = { 0 };
    const uint32_t layer_len = param_layer(layer, sizeof layer);
    if (layer_len != 5 || !(weir_equal(layer, "inner", 5) || weir_equal(layer, "outer", 5))) {
        WEIR_LOG(WEIR_ERROR, "layer: inner or outer");
        return 1;
    }
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
