/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The state of a stream: a parser for each direction, and exchanges, which join requests and responses, from a pool.
 */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "weir.h"

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

#endif
