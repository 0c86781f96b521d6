/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * parse.h: TLS records and handshake messages (RFC 8446, RFC 5246, RFC 6066, RFC 7301), byte by byte: a record or message may be split
 * anywhere. A message is never held whole: `collect`, `copy` and `skip` take the next bytes of it, and `act` decides on what follows.
 * Each step takes at least one byte, so the number of steps is at most the number of bytes.
 */
#ifndef WEIR_TLS_PARSE_H
#define WEIR_TLS_PARSE_H

#include "weir.h"
#include "ja4.h"

enum {
    NAME_BYTES = 255,  /* a host name is not longer */
    ALPN_BYTES = 255,  /* the first offered value always fits */
    ALPN_CHOSEN_BYTES = 64,
    SESSION_BYTES = 32,
    LEAF_BYTES = 1024, /* the begin of the certificate, with issuer, dates and subject */
    SMALL_BYTES = 40,
    RECORD_BYTES = 16384 + 2048,
    HELLO_BYTES = 128 * 1024,
    FINISHED_BYTES = 40, /* an encrypted Finished of TLS 1.3 is longer, an encrypted alert shorter */
    UNKNOWN_SIDE = 2,
    NOTHING = 0xFFFF,    /* of an extension is collected; longer than any */
};

/* Types of records. */
enum { CHANGE_CIPHER_SPEC = 20, ALERT = 21, HANDSHAKE = 22, APPLICATION_DATA = 23, HEARTBEAT = 24, SKIPPED_RECORD = 255 };

/* Types of handshake messages that are read. */
enum { CLIENT_HELLO = 1, SERVER_HELLO = 2, CERTIFICATE = 11, SERVER_HELLO_DONE = 14 };

/* Extensions that are read. */
enum { SERVER_NAME = 0, SIGNATURE_ALGORITHMS = 13, ALPN = 16, SESSION_TICKET = 35, PRE_SHARED_KEY = 41, SUPPORTED_VERSIONS = 43 };

/* Causes of the end of a handshake, for the row. */
enum { END_NONE, END_COMPLETE, END_ALERT, END_CLOSED, END_RESET, END_TIMEOUT, END_GAP, END_INVALID, END_LIMIT, END_EVICTED, END_STOP };

/* The meaning of `small`, or of the copied bytes, once they are complete. */
enum state {
    AT_END, /* nothing of the message follows */
    AT_HELLO, AT_SESSION, AT_CIPHERS, AT_CIPHER, AT_COMPRESSION,
    AT_ANSWER, AT_ANSWER_SESSION_LEN, AT_ANSWER_SESSION, AT_CHOICE, AT_DRAFT_CHOICE,
    AT_EXTENSIONS, AT_EXTENSION, AT_EXTENSION_HIGH, AT_EXTENSION_LOW,
    AT_NAMES, AT_NAME, AT_EXTENSION_END,
    AT_PROTOCOLS, AT_PROTOCOL, AT_PROTOCOL_END, AT_CHOSEN_PROTOCOLS, AT_CHOSEN_PROTOCOL,
    AT_VERSIONS, AT_VERSION, AT_CHOSEN_VERSION,
    AT_ALGORITHMS, AT_ALGORITHM, AT_TICKET,
    AT_CHAIN, AT_LEAF_END,
};

/* One direction of a connection. */
struct side {
    uint32_t message_left;  /* bytes of the message to come */
    uint32_t skip;          /* bytes to pass over before anything else */
    uint16_t record_left;   /* bytes of the record to come */
    uint16_t copy_to;       /* offset in the context; with copy_left */
    uint16_t copy_left;
    uint16_t list_left;     /* bytes of the list that is read */
    uint16_t extension_type;
    uint16_t extension_bytes;
    uint16_t extension_left;
    uint16_t extensions_left;
    uint8_t record_have;    /* bytes of record_head, between records */
    uint8_t record_head[5];
    uint8_t record_type;
    uint8_t message_have;   /* bytes of message_head; 4: within a message */
    uint8_t message_head[4];
    uint8_t state;
    uint8_t want, have;     /* bytes of `small` */
    uint8_t extension_state; /* state of the bytes that are collected first of it */
    bool is_ciphered;       /* its ChangeCipherSpec was seen */
    bool is_finished;       /* an encrypted message after that, or in TLS 1.3 encrypted records */
    uint8_t small[SMALL_BYTES];
};

/* All that is known of a handshake under way. */
struct context {
    /* The connection; for rows that are written while another one is read. */
    uint8_t address[2][16]; /* client and server as the host has them */
    uint16_t port[2];
    uint16_t vlan_tci;
    uint8_t tunnel;
    uint8_t ip_version;
    uint32_t stream;
    uint64_t flow_hash;

    uint8_t client_side;    /* direction of the ClientHello; UNKNOWN_SIDE before the first message */
    uint8_t end;            /* END_NONE: it goes on */
    bool is_plain;          /* another protocol, which may change to TLS */
    bool has_hello;         /* the ClientHello is complete */
    bool is_v2;             /* it is that of SSL 2.0 */
    bool has_answer;        /* the ServerHello or HelloRetryRequest is complete */
    bool is_answer_timed;   /* answer_ns is set */
    bool offers_ticket;
    bool is_retry;          /* the ServerHello that is read is a HelloRetryRequest */
    bool is_retried;
    bool is_psk_chosen;
    bool is_session_same;   /* the server chose the session identifier that the client sent */
    bool has_certificate;   /* the server sent one */
    bool has_server_done;
    bool has_leaf;
    bool has_alert;
    bool is_alert_readable;
    uint8_t alert_side, alert_level, alert_code;
    uint8_t session_len;
    uint8_t name_len;
    uint8_t alpn_chosen_len;
    uint8_t alpn_len;       /* of alpn */
    uint8_t alpn_first_len; /* of the first name in it */
    uint16_t hello_version; /* of the ClientHello's fixed part */
    uint16_t version;       /* chosen by the server */
    uint16_t cipher;
    uint16_t leaf_len;      /* bytes in `leaf` */
    uint64_t now;
    uint64_t hello_ns, answer_ns;
    struct side sides[2];   /* by direction */
    uint8_t session[SESSION_BYTES], answer_session[SESSION_BYTES];
    uint8_t alpn_chosen[ALPN_CHOSEN_BYTES];
    uint8_t alpn[ALPN_BYTES + 1];
    uint8_t name[NAME_BYTES + 1];
    struct ja4 ja4;
    uint8_t leaf[LEAF_BYTES];
};

static const uint8_t retry_random[32] = { /* RFC 8446, 4.1.3 */
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91,
    0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
};

/* Functions of their own are analysed once, not at each place of a call. */
#define OUT_OF_LINE static __attribute__((noinline))

WEIR_INLINE uint32_t lower(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* True for TLS 1.3 and its drafts. */
WEIR_INLINE bool is_tls13(uint16_t version) { return version == 0x0304 || version >> 8 == 0x7F || version >> 8 == 0xFB; }

/* Ends the handshake, as the bytes are no TLS. */
WEIR_INLINE void refuse(struct context *c) { c->end = END_INVALID; }

WEIR_INLINE void collect(struct side *s, uint8_t state, uint8_t bytes)
{
    s->state = state;
    s->want = bytes;
    s->have = 0;
}

/* `len` is at most the message's rest and the room at `to`, and not 0. */
WEIR_INLINE void copy(struct side *s, enum state state, uint32_t to, uint32_t len)
{
    s->state = (uint8_t)state;
    s->copy_to = (uint16_t)to;
    s->copy_left = (uint16_t)len;
}

/* Passes over the rest of the message. */
WEIR_INLINE void leave(struct side *s)
{
    s->state = AT_END;
    s->skip = s->message_left;
}

WEIR_INLINE void next_extension(struct context *c, struct side *s)
{
    s->state = AT_END;
    if (s->extensions_left == 0)
        return;
    if (s->extensions_left < 4)
        refuse(c);
    collect(s, AT_EXTENSION, 2);
}

/* Passes over the rest of an extension. */
WEIR_INLINE void leave_extension(struct context *c, struct side *s)
{
    s->skip = (uint32_t)s->extension_left + s->list_left;
    s->list_left = 0;
    next_extension(c, s);
}

/* Collects the next item of a list in an extension, or leaves it at the list's end. */
WEIR_INLINE void next_item(struct context *c, struct side *s, enum state state, uint8_t bytes)
{
    if (s->list_left < bytes) {
        leave_extension(c, s);
        return;
    }
    s->list_left -= bytes;
    collect(s, state, bytes);
}

/* Takes the bytes of a list out of those of its extension. Returns false for a list that is longer. */
WEIR_INLINE bool begin_list(struct side *s, uint16_t len)
{
    if (len > s->extension_left)
        return false;
    s->extension_left -= len;
    s->list_left = len;
    return true;
}

/* Decides by the type of an extension which bytes of it are read first. */
WEIR_INLINE void extension(struct context *c, struct side *s, uint16_t type)
{
    const bool is_client = s->message_head[0] == CLIENT_HELLO;
    enum state state = AT_END;
    s->extension_type = type;
    uint16_t bytes = 2;
    switch (type) {
    case SERVER_NAME:
        state = is_client && c->name_len == 0 ? AT_NAMES : AT_END;
        break;
    case ALPN:
        if (is_client)
            state = c->alpn_len == 0 ? AT_PROTOCOLS : AT_END;
        else
            state = c->alpn_chosen_len == 0 ? AT_CHOSEN_PROTOCOLS : AT_END;
        break;
    case SUPPORTED_VERSIONS:
        state = is_client ? AT_VERSIONS : AT_CHOSEN_VERSION;
        bytes = is_client ? 1 : 2;
        break;
    case SIGNATURE_ALGORITHMS:
        state = is_client ? AT_ALGORITHMS : AT_END;
        break;
    case SESSION_TICKET:
        state = is_client ? AT_TICKET : AT_END;
        bytes = 1;
        break;
    case PRE_SHARED_KEY:
        c->is_psk_chosen |= !is_client;
        break;
    default:
        break;
    }
    s->extension_state = (uint8_t)state;
    s->extension_bytes = state == AT_END ? NOTHING : bytes;
    s->extensions_left -= 4; /* the header */
}

/* Begins the content of an extension, whose length is known. Returns true if it is passed over: if it is too short, its value is not used. */
WEIR_INLINE bool extension_begin(struct context *c, struct side *s)
{
    const uint32_t len = s->extension_left, bytes = s->extension_bytes;
    if (len > s->extensions_left)
        refuse(c);
    s->extensions_left -= (uint16_t)len;
    if (bytes > len)
        return true;
    s->extension_left -= (uint16_t)bytes;
    collect(s, s->extension_state, (uint8_t)bytes);
    return false;
}

/* Reads a protocol's name in the client's ALPN extension. Names beyond the room are left out. */
WEIR_INLINE bool protocol(struct context *c, struct side *s)
{
    const uint32_t len = s->small[0], at = c->alpn_len == 0 ? 0 : c->alpn_len + 1;
    if (len == 0 || len > s->list_left || at + len > ALPN_BYTES)
        return false;
    s->list_left -= (uint16_t)len;
    if (at == 0)
        c->alpn_first_len = (uint8_t)len;
    c->alpn[c->alpn_len] = ','; /* overwritten by the first name */
    c->alpn_len = (uint8_t)(at + len);
    copy(s, AT_PROTOCOL_END, offsetof(struct context, alpn) + at, len);
    return true;
}

/* Reads the protocol's name in the server's ALPN extension. */
WEIR_INLINE bool chosen_protocol(struct context *c, struct side *s)
{
    const uint32_t len = s->small[0];
    if (len == 0 || len > s->list_left)
        return false;
    c->alpn_chosen_len = (uint8_t)lower(len, ALPN_CHOSEN_BYTES);
    s->list_left -= c->alpn_chosen_len;
    copy(s, AT_EXTENSION_END, offsetof(struct context, alpn_chosen), c->alpn_chosen_len);
    return true;
}

/* Begins the list of extensions, which is the rest of the message. */
WEIR_INLINE void extensions_or_end(struct side *s, uint32_t left)
{
    if (left == 0)
        s->state = AT_END;
    else
        collect(s, AT_EXTENSIONS, 2);
}

/* Compares 32 bytes without a loop. */
WEIR_INLINE bool is_same_32(const uint8_t *a, const uint8_t *b)
{
    return ((weir_le64(a) ^ weir_le64(b)) | (weir_le64(a + 8) ^ weir_le64(b + 8)) | (weir_le64(a + 16) ^ weir_le64(b + 16)) |
            (weir_le64(a + 24) ^ weir_le64(b + 24))) == 0;
}

/* Acts on bytes that are complete, and says which bytes come next. */
OUT_OF_LINE void act(struct context *c, struct side *s)
{
    const uint8_t *small = s->small;
    uint8_t item_state = AT_END, item_bytes = 0; /* the item of a list that comes next */
    bool is_left = false;                        /* the rest of the extension is passed over */
    switch (s->state) {
    case AT_HELLO: {
        const uint8_t len = small[34];
        c->hello_version = weir_be16(small);
        if (c->hello_version >> 8 != 3 || len > SESSION_BYTES || len > s->message_left) {
            refuse(c);
            break;
        }
        c->session_len = len;
        if (len == 0)
            collect(s, AT_CIPHERS, 2);
        else
            copy(s, AT_SESSION, offsetof(struct context, session), len);
        break;
    }
    case AT_SESSION:
        collect(s, AT_CIPHERS, 2);
        break;
    case AT_CIPHERS:
        s->list_left = weir_be16(small);
        if (s->list_left < 2 || s->list_left % 2 != 0 || s->list_left + 2u > s->message_left)
            refuse(c);
        collect(s, AT_CIPHER, 2);
        break;
    case AT_CIPHER:
        JA4_ADD(&c->ja4, cipher, CIPHERS, weir_be16(small));
        s->list_left -= 2;
        if (s->list_left != 0)
            collect(s, AT_CIPHER, 2);
        else
            collect(s, AT_COMPRESSION, 1);
        break;
    case AT_COMPRESSION:
        s->skip = small[0];
        if (s->skip == 0 || s->skip > s->message_left)
            refuse(c);
        else
            extensions_or_end(s, s->message_left - s->skip);
        break;

    case AT_ANSWER:
        c->version = weir_be16(small);
        c->is_retry = is_same_32(small + 2, retry_random);
        c->is_session_same = c->is_psk_chosen = false;
        if (c->version >> 8 != 3 && c->version >> 8 != 0x7F)
            refuse(c);
        collect(s, AT_ANSWER_SESSION_LEN, 1);
        break;
    case AT_ANSWER_SESSION_LEN: {
        const uint8_t len = small[0];
        if (c->version >> 8 == 0x7F) { /* Drafts of TLS 1.3 up to 21 have no session identifier here: it is the cipher suite. */
            c->cipher = (uint16_t)(len << 8);
            collect(s, AT_DRAFT_CHOICE, 1);
        } else if (len == 0) {
            collect(s, AT_CHOICE, 3);
        } else if (len > SESSION_BYTES || len > s->message_left) {
            refuse(c);
        } else {
            c->is_session_same = len == c->session_len;
            copy(s, AT_ANSWER_SESSION, offsetof(struct context, answer_session), len);
        }
        break;
    }
    case AT_ANSWER_SESSION:
        c->is_session_same = c->is_session_same && is_same_32(c->session, c->answer_session); /* zeros follow them */
        collect(s, AT_CHOICE, 3);
        break;
    case AT_CHOICE:
        c->cipher = weir_be16(small);
        extensions_or_end(s, s->message_left);
        break;
    case AT_DRAFT_CHOICE:
        c->cipher |= small[0];
        extensions_or_end(s, s->message_left);
        break;

    case AT_EXTENSIONS:
        s->extensions_left = weir_be16(small);
        if (s->extensions_left != s->message_left)
            refuse(c);
        else
            next_extension(c, s);
        break;
    /* An extension's header is taken in three steps, so that none does much. */
    case AT_EXTENSION:
        extension(c, s, weir_be16(small));
        collect(s, AT_EXTENSION_HIGH, 1);
        break;
    case AT_EXTENSION_HIGH:
        s->extension_left = (uint16_t)(small[0] << 8);
        if (s->message_head[0] == CLIENT_HELLO)
            JA4_ADD(&c->ja4, extension, EXTENSIONS, s->extension_type);
        collect(s, AT_EXTENSION_LOW, 1);
        break;
    case AT_EXTENSION_LOW:
        s->extension_left |= small[0];
        is_left = extension_begin(c, s);
        break;

    case AT_NAMES:
        is_left = !begin_list(s, weir_be16(small));
        item_state = AT_NAME;
        item_bytes = 3;
        break;
    case AT_NAME: {
        const uint32_t len = weir_be16(small + 1);
        if (small[0] != 0 || len == 0 || len > s->list_left) {
            is_left = true;
            break;
        }
        c->name_len = (uint8_t)lower(len, NAME_BYTES);
        s->list_left -= c->name_len;
        copy(s, AT_EXTENSION_END, offsetof(struct context, name), c->name_len);
        break;
    }
    case AT_EXTENSION_END:
        is_left = true;
        break;

    case AT_PROTOCOLS:
        is_left = !begin_list(s, weir_be16(small));
        item_state = AT_PROTOCOL;
        item_bytes = 1;
        break;
    case AT_PROTOCOL:
        is_left = !protocol(c, s);
        break;
    case AT_PROTOCOL_END:
        item_state = AT_PROTOCOL;
        item_bytes = 1;
        break;
    case AT_CHOSEN_PROTOCOLS:
        is_left = !begin_list(s, weir_be16(small));
        item_state = AT_CHOSEN_PROTOCOL;
        item_bytes = 1;
        break;
    case AT_CHOSEN_PROTOCOL:
        is_left = !chosen_protocol(c, s);
        break;

    case AT_VERSIONS:
        is_left = !begin_list(s, small[0]);
        item_state = AT_VERSION;
        item_bytes = 2;
        break;
    case AT_VERSION: {
        const uint16_t version = weir_be16(small);
        if (version > c->ja4.version && (version & 0x0F0F) != 0x0A0A) /* no GREASE */
            c->ja4.version = version;
        item_state = AT_VERSION;
        item_bytes = 2;
        break;
    }
    case AT_CHOSEN_VERSION:
        c->version = weir_be16(small);
        is_left = true;
        break;

    case AT_ALGORITHMS:
        is_left = !begin_list(s, weir_be16(small));
        item_state = AT_ALGORITHM;
        item_bytes = 2;
        break;
    case AT_ALGORITHM:
        JA4_ADD(&c->ja4, algorithm, ALGORITHMS, weir_be16(small));
        item_state = AT_ALGORITHM;
        item_bytes = 2;
        break;

    case AT_TICKET: /* not an empty one */
        c->offers_ticket = true;
        is_left = true;
        break;

    case AT_CHAIN: {
        const uint32_t len = weir_be32(small + 2) & 0xFFFFFF; /* of the leaf, after the length of the list */
        if (len == 0 || len > s->message_left) {
            leave(s);
            break;
        }
        c->leaf_len = (uint16_t)lower(len, LEAF_BYTES);
        copy(s, AT_LEAF_END, offsetof(struct context, leaf), c->leaf_len);
        break;
    }
    case AT_LEAF_END:
        c->has_leaf = true;
        leave(s);
        break;
    default:
        break;
    }
    if (is_left)
        leave_extension(c, s);
    else if (item_bytes != 0)
        next_item(c, s, item_state, item_bytes);
}

/* Ends a message, if it is complete. */
OUT_OF_LINE void message_end(struct context *c, struct side *s)
{
    if (s->message_have < 4 || s->message_left != 0 || c->end != END_NONE)
        return;
    s->message_have = 0;
    if (s->state != AT_END) {
        refuse(c);
        return;
    }
    switch (s->message_head[0]) {
    case CLIENT_HELLO:
        if (!c->has_hello)
            c->hello_ns = c->now;
        c->has_hello = true;
        break;
    case SERVER_HELLO:
        if (!c->is_answer_timed)
            c->answer_ns = c->now;
        c->has_answer = c->is_answer_timed = true;
        c->is_retried |= c->is_retry;
        break;
    default:
        break;
    }
}

/* Checks the type of a handshake message. The first message of a connection says which side the client is. */
OUT_OF_LINE void message_type(struct context *c, struct side *s, uint32_t direction)
{
    /* Messages that are passed over: of RFC 8446, of earlier versions, and of extensions. */
    enum { KNOWN = 1 << 0 | 1 << 4 | 1 << 5 | 1 << 12 | 1 << 13 | 1 << 15 | 1 << 16 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23 | 1 << 24 | 1 << 25 };
    enum { OF_CLIENT = 1 << CLIENT_HELLO, OF_SERVER = 1 << SERVER_HELLO | 1 << SERVER_HELLO_DONE, OF_BOTH = KNOWN | 1 << CERTIFICATE };
    enum { NEXT_PROTOCOL = 67 };
    const uint8_t type = s->message_head[0];
    if (c->client_side == UNKNOWN_SIDE) {
        if (type != CLIENT_HELLO && type != SERVER_HELLO)
            refuse(c);
        c->client_side = (uint8_t)(type == CLIENT_HELLO ? direction : 1 - direction);
    }
    const bool is_client = c->client_side == direction;
    const uint32_t allowed = OF_BOTH | (is_client ? OF_CLIENT : OF_SERVER);
    if ((type > 31 || !(allowed >> (type & 31) & 1)) && type != NEXT_PROTOCOL)
        refuse(c);
    c->has_certificate |= type == CERTIFICATE && !is_client;
    c->has_server_done |= type == SERVER_HELLO_DONE;
}

/* Begins a handshake message, whose length is known. */
OUT_OF_LINE void message_begin(struct context *c, struct side *s)
{
    const uint32_t len = weir_be32(s->message_head) & 0xFFFFFF;
    s->message_left = len;
    s->copy_left = 0;
    leave(s);
    switch (s->message_head[0]) {
    case CLIENT_HELLO:
        if (len < 41 || len > HELLO_BYTES)
            refuse(c);
        if (c->has_hello) /* the second one, after a HelloRetryRequest, is passed over */
            return;
        collect(s, AT_HELLO, 35);
        break;
    case SERVER_HELLO:
        if (len < 36 || len > HELLO_BYTES || (c->has_answer && !c->is_retry))
            refuse(c);
        c->has_answer = false; /* a HelloRetryRequest's choices are replaced */
        collect(s, AT_ANSWER, 34);
        break;
    case CERTIFICATE:
        if (!c->has_certificate || c->leaf_len != 0 || len < 7 || is_tls13(c->version))
            return;
        collect(s, AT_CHAIN, 6);
        break;
    default:
        return;
    }
    s->skip = 0;
}

/* Takes between 1 and `len` bytes of handshake messages. Returns their number. The end of a message is handled with the next byte, or
 * after all bytes of an event. */
WEIR_INLINE uint32_t handshake_step(struct context *c, struct side *s, uint32_t direction, const uint8_t *bytes, uint32_t len)
{
    if (s->message_left == 0) {
        const uint32_t have = s->message_have & 3;
        if (have == 0)
            message_end(c, s);
        s->message_head[have] = bytes[0];
        s->message_have = (uint8_t)(have + 1);
        if (have == 1)
            message_type(c, s, direction);
        else if (have == 3)
            message_begin(c, s);
        return 1;
    }
    uint32_t taken = 1;
    if (s->skip != 0) {
        taken = lower(s->skip, len);
        s->skip -= taken;
        s->message_left -= taken;
        return taken;
    }
    bool is_complete;
    if (s->copy_left != 0) {
        uint8_t *to = (uint8_t *)c + s->copy_to;
        if (s->copy_left >= 8 && len >= 8) {
            taken = 8;
            weir_set_le64(to, weir_le64(bytes));
        } else {
            *to = bytes[0];
        }
        s->copy_to += (uint16_t)taken;
        s->copy_left -= (uint16_t)taken;
        is_complete = s->copy_left == 0;
    } else {
        s->small[s->have] = bytes[0];
        s->have++;
        is_complete = s->have == s->want;
    }
    s->message_left -= taken;
    if (is_complete)
        act(c, s);
    return taken;
}

WEIR_INLINE void alert(struct context *c, uint32_t direction, bool is_readable, uint8_t level, uint8_t code)
{
    enum { FATAL = 2 };
    c->has_alert = true;
    c->is_alert_readable = is_readable;
    c->alert_side = (uint8_t)direction;
    c->alert_level = level;
    c->alert_code = code;
    if (is_readable && level == FATAL)
        c->end = END_ALERT;
}

/* Begins a record, whose header is complete. */
OUT_OF_LINE void record_begin(struct context *c, struct side *s, uint32_t direction)
{
    const uint8_t type = s->record_head[0];
    const uint16_t len = weir_be16(s->record_head + 3);
    const bool is_first = c->client_side == UNKNOWN_SIDE, is_client = c->client_side == direction;
    s->record_type = type;
    s->record_left = len;
    s->record_have = 0;
    if (s->record_head[1] != 3 || s->record_head[2] > 4 || len > RECORD_BYTES ||
        (type != HANDSHAKE && (is_first || s->message_have != 0))) { /* nothing comes between the parts of a message */
        refuse(c);
        return;
    }
    switch (type) {
    case CHANGE_CIPHER_SPEC:
        if (len != 1)
            refuse(c);
        s->is_ciphered = true;
        break;
    case ALERT:
        /* A readable alert has two bytes. */
        collect(s, AT_END, len == 2 ? 2 : 0);
        if (len == 2)
            break;
        if (len > 2 && s->is_ciphered)
            alert(c, direction, false, 0, 0);
        else
            refuse(c);
        break;
    case HANDSHAKE:
        if (len == 0)
            refuse(c);
        /* After a ChangeCipherSpec, messages are encrypted; but not the second ClientHello of TLS 1.3. */
        if (s->is_ciphered && !(c->has_answer && is_tls13(c->version))) {
            s->record_type = SKIPPED_RECORD;
            s->is_finished = true;
        }
        break;
    case APPLICATION_DATA:
        if (!c->has_answer) {
            if (!is_client) /* from the client it is early data */
                refuse(c);
        } else if (is_tls13(c->version)) {
            /* The server's encrypted messages end with its Finished; the client's Finished comes after them. */
            if (!is_client)
                s->is_finished = true;
            else if (c->sides[1 - direction].is_finished && len >= FINISHED_BYTES)
                s->is_finished = true;
            else if (c->sides[1 - direction].is_finished)
                alert(c, direction, false, 0, 0);
        }
        break;
    case HEARTBEAT:
        break;
    default:
        refuse(c);
        break;
    }
    if (c->sides[0].is_finished && c->sides[1].is_finished && c->end == END_NONE)
        c->end = END_COMPLETE;
}

/* Takes between 1 and `len` bytes of a direction. Returns their number. */
WEIR_INLINE uint32_t record_step(struct context *c, struct side *s, uint32_t direction, const uint8_t *bytes, uint32_t len)
{
    if (s->record_left == 0) {
        const uint32_t have = s->record_have;
        s->record_head[have] = bytes[0];
        s->record_have = (uint8_t)(have + 1);
        if (have == 0)
            message_end(c, s);
        else if (have == 4)
            record_begin(c, s, direction);
        return 1;
    }
    uint32_t taken = lower(len, s->record_left);
    if (s->record_type == HANDSHAKE) {
        taken = handshake_step(c, s, direction, bytes, taken);
    } else if (s->record_type == ALERT && s->want == 2) {
        taken = 1;
        s->small[s->have & 1] = bytes[0];
        s->have++;
        if (s->have == 2)
            alert(c, direction, true, s->small[0], s->small[1]);
    }
    s->record_left -= (uint16_t)taken;
    return taken;
}

/* Passes over bytes that were not captured, where nothing of them is needed. */
OUT_OF_LINE void pass_gap(struct context *c, struct side *s, uint32_t missing)
{
    const bool is_message = s->record_type == HANDSHAKE;
    if (missing > s->record_left || s->record_type == ALERT ||
        (is_message && (s->message_have < 4 || missing > s->skip))) {
        c->end = END_GAP;
        return;
    }
    s->record_left -= (uint16_t)missing;
    if (is_message) {
        s->skip -= missing;
        s->message_left -= missing;
        message_end(c, s);
    }
}

#endif
