/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * weir_parse.h: helpers that parse messages, for weir modules in C. Header only, without a C library, like weir.h.
 *
 *     #include "weir.h"
 *     #include "module.h"
 *     #include "weir_parse.h"
 *
 *     struct weir_cursor c = weir_cursor_payload(p);
 *     const uint8_t version = weir_read_u8(&c);
 *     const uint16_t len = weir_read_be16(&c);
 *     struct weir_cursor body = weir_read_part(&c, len);
 *     if (c.failed)
 *         return WEIR_PASS;
 *
 * No function reads past the end of the bytes, whatever they contain. Every function has a constant bound of its time, or one that
 * follows from a constant of the caller. So weir finds a bound of each call, and a module that uses nothing else is proved
 * (docs/MODULES.md, "Being proved").
 */
#ifndef WEIR_PARSE_H
#define WEIR_PARSE_H

#include "weir.h"

/* ---- Cursor ---------------------------------------------------------------------------------------------------------- */

/* A position in bytes, and the number of bytes that are left. A read past the end, or an illegal value, makes the cursor fail: from
 * then on no bytes are left, reads return 0, and `failed` is true. So it is enough to test `failed` once, behind the last read. */
struct weir_cursor {
    const uint8_t *at;
    uint32_t left;
    bool failed;
};

/* Returns a cursor at the first of `len` bytes. */
WEIR_INLINE struct weir_cursor weir_cursor_of(const void *bytes, uint32_t len)
{
    return (struct weir_cursor){ (const uint8_t *)bytes, len, false };
}

/* Returns a cursor at the packet's payload; with WEIR_L4. */
WEIR_INLINE struct weir_cursor weir_cursor_payload(const struct weir_packet *p) { return weir_cursor_of(weir_payload(p), p->payload_len); }

/* Returns a cursor at the bytes of a stream's event. */
WEIR_INLINE struct weir_cursor weir_cursor_stream(const struct weir_stream *event)
{
    return weir_cursor_of(weir_stream_bytes(event), event->len);
}

/* Makes the cursor fail. Returns false, for `return weir_fail(c);`. */
WEIR_INLINE bool weir_fail(struct weir_cursor *c)
{
    c->left = 0;
    c->failed = true;
    return false;
}

/* Moves over `len` bytes. Returns the first of them, or NULL if fewer are left. */
WEIR_INLINE const uint8_t *weir_read_bytes(struct weir_cursor *c, uint32_t len)
{
    if (c->failed || len > c->left) {
        weir_fail(c);
        return NULL;
    }
    const uint8_t *at = c->at;
    c->at += len;
    c->left -= len;
    return at;
}

/* Moves over `len` bytes. */
WEIR_INLINE void weir_skip(struct weir_cursor *c, uint32_t len) { (void)weir_read_bytes(c, len); }

/* Moves over `len` bytes, and returns a cursor over them; one that has failed if fewer are left. */
WEIR_INLINE struct weir_cursor weir_read_part(struct weir_cursor *c, uint32_t len)
{
    const uint8_t *at = weir_read_bytes(c, len);
    return (struct weir_cursor){ at, at != NULL ? len : 0, at == NULL };
}

/* Moves over `len` bytes, or over all that are left, and returns a cursor over them: for messages of which a packet has the beginning. */
WEIR_INLINE struct weir_cursor weir_read_most(struct weir_cursor *c, uint32_t len)
{
    return weir_read_part(c, len < c->left ? len : c->left);
}

/* Read a number of 8 to 64 bits. _be: in network order; _le: with the lowest byte first. Return 0 if fewer bytes are left. */
WEIR_INLINE uint8_t weir_read_u8(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 1);
    return at != NULL ? *at : 0;
}

WEIR_INLINE uint16_t weir_read_be16(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 2);
    return at != NULL ? weir_be16(at) : 0;
}

WEIR_INLINE uint32_t weir_read_be24(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 3);
    return at != NULL ? (uint32_t)at[0] << 16 | weir_be16(at + 1) : 0;
}

WEIR_INLINE uint32_t weir_read_be32(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 4);
    return at != NULL ? weir_be32(at) : 0;
}

WEIR_INLINE uint64_t weir_read_be64(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 8);
    return at != NULL ? weir_be64(at) : 0;
}

WEIR_INLINE uint16_t weir_read_le16(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 2);
    return at != NULL ? weir_le16(at) : 0;
}

WEIR_INLINE uint32_t weir_read_le32(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 4);
    return at != NULL ? weir_le32(at) : 0;
}

WEIR_INLINE uint64_t weir_read_le64(struct weir_cursor *c)
{
    const uint8_t *at = weir_read_bytes(c, 8);
    return at != NULL ? weir_le64(at) : 0;
}

/* Condition of the loops below behind their last element: fails if bytes are left that are beyond the loop's limit. */
WEIR_INLINE bool weir_past_limit(struct weir_cursor *c) { return c->left != 0 ? weir_fail(c) : false; }

/* ---- Variable-length integers ------------------------------------------------------------------------------------------ */

/* Reads a varint of protobuf, which is LEB128: seven bits in each byte, the lowest first. Fails for more than 64 bits. */
static inline __attribute__((unused)) uint64_t weir_read_varint(struct weir_cursor *c)
{
    uint64_t number = 0;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        const uint8_t byte = weir_read_u8(c);
        if (c->failed || (shift == 63 && byte > 1))
            break;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return number;
    }
    weir_fail(c);
    return 0;
}

/* Reads a signed number in LEB128, as in DWARF and WebAssembly. Fails for more than 64 bits. */
static inline __attribute__((unused)) int64_t weir_read_signed_varint(struct weir_cursor *c)
{
    uint64_t number = 0;
    for (uint32_t shift = 0; shift < 70; shift += 7) {
        const uint8_t byte = weir_read_u8(c);
        if (c->failed || (shift == 63 && byte != 0 && byte != 127))
            break;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            if ((byte & 64) != 0 && shift < 57)
                number |= ~UINT64_C(0) << (shift + 7);
            return (int64_t)number;
        }
    }
    weir_fail(c);
    return 0;
}

/* Converts a number of protobuf's types sint32 and sint64. */
WEIR_INLINE int64_t weir_zigzag(uint64_t number) { return (int64_t)(number >> 1 ^ (0 - (number & 1))); }

/* Reads a variable-length integer of QUIC (RFC 9000, 16): the first two bits say how many bytes there are, 1, 2, 4 or 8. */
WEIR_INLINE uint64_t weir_read_quic_varint(struct weir_cursor *c)
{
    const uint8_t first = c->left != 0 ? *c->at : 0;
    switch (first >> 6) {
    case 0: return weir_read_u8(c);
    case 1: return weir_read_be16(c) & 0x3FFF;
    case 2: return weir_read_be32(c) & 0x3FFFFFFF;
    default: return weir_read_be64(c) & UINT64_C(0x3FFFFFFFFFFFFFFF);
    }
}

/* ---- Type, length, value ------------------------------------------------------------------------------------------------- */

/* An element of a list. */
struct weir_tlv {
    uint32_t type;
    struct weir_cursor value;
};

/* Reads a type and a length in network order, of 1, 2 or 4 bytes each, and the value of that length. Returns false at the end, and
 * where an element is cut: then the cursor has failed. */
WEIR_INLINE bool weir_read_tlv(struct weir_cursor *c, uint32_t type_bytes, uint32_t len_bytes, struct weir_tlv *tlv)
{
    if (c->left == 0)
        return false;
    tlv->type = type_bytes == 1 ? weir_read_u8(c) : type_bytes == 2 ? weir_read_be16(c) : weir_read_be32(c);
    const uint32_t len = len_bytes == 1 ? weir_read_u8(c) : len_bytes == 2 ? weir_read_be16(c) : weir_read_be32(c);
    tlv->value = weir_read_part(c, len);
    return !c->failed;
}

/* Reads an option of TCP or IPv4: types 0, the end, and 1, padding, are a byte alone; the length of others counts type and length. */
WEIR_INLINE bool weir_read_option(struct weir_cursor *c, struct weir_tlv *tlv)
{
    if (c->left == 0)
        return false;
    tlv->type = weir_read_u8(c);
    const uint32_t len = tlv->type < 2 ? 2 : weir_read_u8(c);
    if (c->failed || len < 2)
        return weir_fail(c);
    tlv->value = weir_read_part(c, len - 2);
    if (tlv->type == 0)
        c->left = 0;
    return !c->failed && tlv->type != 0;
}

/* Loops over the elements of a list, at most `max`. More elements make the cursor fail, as does one that is cut.
 *
 *     WEIR_TLV_EACH(32, &c, 2, 2, tlv) { ... tlv.type, tlv.value ... }
 *     WEIR_OPTION_EACH(&c, tlv) { ... }                  options of a TCP or IPv4 header, which has at most 40 bytes of them
 *
 * `break` and `continue` work as usual. */
#define WEIR_TLV_EACH(max, c, type_bytes, len_bytes, tlv)                                                                        \
    for (struct { uint32_t n, once; } tlv##_loop = { 0, 1 }; tlv##_loop.once != 0; tlv##_loop.once = 0)                          \
        for (struct weir_tlv tlv; tlv##_loop.n < (max) ? weir_read_tlv((c), (type_bytes), (len_bytes), &tlv)                     \
                                                       : weir_past_limit(c); tlv##_loop.n++)
#define WEIR_OPTION_EACH(c, tlv)                                                                                                 \
    for (struct { uint32_t n, once; } tlv##_loop = { 0, 1 }; tlv##_loop.once != 0; tlv##_loop.once = 0)                          \
        for (struct weir_tlv tlv; tlv##_loop.n < 40 ? weir_read_option((c), &tlv) : weir_past_limit(c); tlv##_loop.n++)

/* ---- ASN.1 ----------------------------------------------------------------------------------------------------------------- */

/* Values of weir_der.class. */
enum { WEIR_DER_UNIVERSAL = 0, WEIR_DER_APPLICATION = 1, WEIR_DER_CONTEXT = 2, WEIR_DER_PRIVATE = 3 };

/* An element of DER, or of BER with definite lengths (X.690). */
struct weir_der {
    uint32_t tag;        /* number of the tag, below 2^28 */
    uint8_t class;       /* WEIR_DER_UNIVERSAL ... */
    bool is_constructed; /* the value is a list of elements */
    struct weir_cursor value;
};

/* Reads an element's tag, length and value. Returns false at the end. Fails where the element is cut, for indefinite lengths, and for
 * lengths of more than four bytes. A length may be longer than DER allows, as SNMP agents send it. */
static inline __attribute__((unused)) bool weir_read_der(struct weir_cursor *c, struct weir_der *element)
{
    if (c->left == 0)
        return false;
    const uint8_t first = weir_read_u8(c);
    element->class = first >> 6;
    element->is_constructed = (first & 0x20) != 0;
    element->tag = first & 31;
    if (element->tag == 31) {
        element->tag = 0;
        for (uint32_t i = 0;; i++) {
            const uint8_t byte = weir_read_u8(c);
            /* Numbers below 31 have one byte, and none begins with zeros. */
            if (c->failed || i == 4 || (i == 0 && byte == 0x80))
                return weir_fail(c);
            element->tag = element->tag << 7 | (byte & 127);
            if (byte < 128)
                break;
        }
    }
    uint32_t len = weir_read_u8(c);
    if (len >= 128) {
        const uint32_t bytes = len & 127;
        if (bytes == 0 || bytes > 4)
            return weir_fail(c);
        len = 0;
        for (uint32_t i = 0; i < 4 && i < bytes; i++)
            len = len << 8 | weir_read_u8(c);
    }
    element->value = weir_read_part(c, len);
    return !c->failed;
}

/* ---- DNS ------------------------------------------------------------------------------------------------------------------- */

/* Limits of a name: its bytes in a message, and the pointers that are followed in it. */
enum { WEIR_DNS_NAME_BYTES = 255, WEIR_DNS_JUMPS = 16 };

/* A name as a text: labels with dots between them, none at the end; the root is empty. Behind the text are zeros, so that the struct
 * can be the key of a map: WEIR_MAP(names, struct weir_dns_name, ...). Bytes of labels are unchanged, also dots and control characters. */
struct weir_dns_name {
    uint8_t len;
    uint8_t bytes[WEIR_DNS_NAME_BYTES];
};

/* Options of weir_read_dns_name. */
enum { WEIR_DNS_AS_IS = 0, WEIR_DNS_LOWER = 1 /* changes ASCII letters to lower case */ };

/* Reads a name (RFC 1035, 4.1.4), and moves behind it. `message` begins at the message's header, and `c` is in the message. Where a
 * pointer leads, a name must end before all parts of this name so far; so there are no loops. Fails, and returns false, for other
 * pointers, for more than WEIR_DNS_JUMPS pointers, and for names of more than 255 bytes. */
static inline __attribute__((unused)) bool weir_read_dns_name(struct weir_cursor *c, struct weir_cursor message, uint32_t options,
                                                                  struct weir_dns_name *name)
{
    weir_fill(name, 0, sizeof *name);
    if (c->failed || message.failed || c->at < message.at || (size_t)(c->at - message.at) > message.left)
        return weir_fail(c);
    const uint32_t start = (uint32_t)(c->at - message.at);
    const uint32_t whole = c->left < message.left - start ? start + c->left : message.left; /* the cursor may end before the message */
    uint32_t at = start, end = whole;
    uint32_t lowest = start;  /* pointers must lead below, and the name there must end below */
    uint32_t behind = 0;      /* the place behind the name; 0 before the first pointer */
    uint32_t label = 0;       /* bytes that are left of the current label */
    uint32_t wire_bytes = 1;  /* of the name without pointers: each label with its length, and the end */
    uint32_t len = 0, jumps = 0;
    for (uint32_t i = 0; i < WEIR_DNS_NAME_BYTES + 2 * WEIR_DNS_JUMPS && at < end; i++) {
        const uint8_t byte = message.at[at++];
        if (label != 0) {
            label--;
            const bool is_upper = (options & WEIR_DNS_LOWER) != 0 && byte >= 'A' && byte <= 'Z';
            name->bytes[len++] = is_upper ? byte + ('a' - 'A') : byte;
        } else if (byte == 0) {
            name->len = (uint8_t)len;
            weir_skip(c, (behind != 0 ? behind : at) - start);
            return !c->failed;
        } else if (byte < 64) {
            label = byte;
            wire_bytes += 1 + label;
            if (wire_bytes > WEIR_DNS_NAME_BYTES)
                break;
            if (len != 0)
                name->bytes[len++] = '.';
        } else {
            if (byte < 0xC0 || at >= end || ++jumps > WEIR_DNS_JUMPS)
                break;
            const uint32_t to = (byte & 63u) << 8 | message.at[at++];
            if (behind == 0)
                behind = at;
            if (to >= lowest)
                break;
            end = lowest;
            at = lowest = to;
        }
    }
    return weir_fail(c);
}

/* The name for a field of a row. */
WEIR_INLINE struct weir_str weir_dns_string(const struct weir_dns_name *name) { return weir_string(name->bytes, name->len); }

/* The header of a message. */
struct weir_dns_header {
    uint16_t id, flags; /* WEIR_DNS_RESPONSE ... */
    uint16_t questions, answers, authorities, additionals; /* numbers of records, as the sender states them */
};
enum { WEIR_DNS_RESPONSE = 0x8000, WEIR_DNS_TRUNCATED = 0x0200, WEIR_DNS_RCODE = 0x000F, WEIR_DNS_HEADER_BYTES = 12 };

/* Reads the header. Returns false if it is cut. */
WEIR_INLINE bool weir_read_dns_header(struct weir_cursor *c, struct weir_dns_header *header)
{
    header->id = weir_read_be16(c);
    header->flags = weir_read_be16(c);
    header->questions = weir_read_be16(c);
    header->answers = weir_read_be16(c);
    header->authorities = weir_read_be16(c);
    header->additionals = weir_read_be16(c);
    return !c->failed;
}

/* A question or a resource record. A question has no `ttl`, and no `data`. */
struct weir_dns_record {
    struct weir_dns_name name;
    uint16_t type, class;
    uint32_t ttl; /* seconds */
    struct weir_cursor data; /* names in it are read with weir_read_dns_name(&data, message, ...) */
};

/* Reads a question: name, type and class. Returns false if it is cut or illegal. */
WEIR_INLINE bool weir_read_dns_question(struct weir_cursor *c, struct weir_cursor message, uint32_t options, struct weir_dns_record *question)
{
    (void)weir_read_dns_name(c, message, options, &question->name);
    question->type = weir_read_be16(c);
    question->class = weir_read_be16(c);
    question->ttl = 0;
    question->data = weir_cursor_of(c->at, 0);
    return !c->failed;
}

/* Reads a resource record. Returns false if it is cut or illegal. */
WEIR_INLINE bool weir_read_dns_record(struct weir_cursor *c, struct weir_cursor message, uint32_t options, struct weir_dns_record *record)
{
    (void)weir_read_dns_question(c, message, options, record);
    record->ttl = weir_read_be32(c);
    const uint16_t len = weir_read_be16(c);
    record->data = weir_read_part(c, len);
    return !c->failed;
}

/* ---- TLS ------------------------------------------------------------------------------------------------------------------- */

/* Types of records, and of handshake messages (RFC 8446). */
enum { WEIR_TLS_CHANGE_CIPHER_SPEC = 20, WEIR_TLS_ALERT = 21, WEIR_TLS_HANDSHAKE = 22, WEIR_TLS_APPLICATION_DATA = 23 };
enum { WEIR_TLS_CLIENT_HELLO = 1, WEIR_TLS_SERVER_HELLO = 2, WEIR_TLS_CERTIFICATE = 11 };

/* Types of extensions. */
enum { WEIR_TLS_SERVER_NAME = 0, WEIR_TLS_ALPN = 16, WEIR_TLS_SUPPORTED_VERSIONS = 43 };

/* Limits: bytes of a record's body (RFC 5246, 6.2.3), and extensions of a message. */
enum { WEIR_TLS_RECORD_BYTES = (1 << 14) + 2048, WEIR_TLS_EXTENSIONS = 64 };

/* A record, or a handshake message. */
struct weir_tls_part {
    uint8_t type;            /* WEIR_TLS_HANDSHAKE ...; of a message: WEIR_TLS_CLIENT_HELLO ... */
    uint16_t version;        /* of a record */
    uint32_t missing;        /* bytes of the body that are behind the end of the cursor, as in the next packet; 0: the body is whole */
    struct weir_cursor body; /* the bytes that are there */
};

/* Reads a record's header, and the body as far as it is there. Returns false at the end. Fails for a header that is cut, and for bytes
 * that are no TLS: another type, a version other than 3.x, or a longer body than a record has. */
WEIR_INLINE bool weir_read_tls_record(struct weir_cursor *c, struct weir_tls_part *record)
{
    if (c->left == 0)
        return false;
    record->type = weir_read_u8(c);
    record->version = weir_read_be16(c);
    const uint32_t len = weir_read_be16(c);
    if (c->failed || record->type < WEIR_TLS_CHANGE_CIPHER_SPEC || record->type > WEIR_TLS_APPLICATION_DATA ||
        record->version >> 8 != 3 || len > WEIR_TLS_RECORD_BYTES)
        return weir_fail(c);
    record->body = weir_read_most(c, len);
    record->missing = len - record->body.left;
    return true;
}

/* Reads a handshake message's header, and the body as far as it is there. Returns false at the end. Fails for a header that is cut.
 * A message can go on in the next record: then `missing` is not 0. */
WEIR_INLINE bool weir_read_tls_message(struct weir_cursor *c, struct weir_tls_part *message)
{
    if (c->left == 0)
        return false;
    message->type = weir_read_u8(c);
    message->version = 0;
    const uint32_t len = weir_read_be24(c);
    if (c->failed)
        return false;
    message->body = weir_read_most(c, len);
    message->missing = len - message->body.left;
    return true;
}

/* The body of a ClientHello or ServerHello. A ServerHello has one cipher suite. */
struct weir_tls_hello {
    uint16_t version;              /* TLS 1.3 has 0x0303 here, and its version in WEIR_TLS_SUPPORTED_VERSIONS */
    const uint8_t *random;         /* 32 bytes */
    struct weir_cursor session_id;
    struct weir_cursor suites;     /* 2 bytes each */
    struct weir_cursor extensions; /* for WEIR_TLS_EXTENSION_EACH; those that are there if the message is cut */
};

/* Reads the body of a ClientHello (`is_client`) or ServerHello. Returns false if it is cut before the extensions, or illegal. */
static inline __attribute__((unused)) bool weir_read_tls_hello(struct weir_cursor *body, bool is_client, struct weir_tls_hello *hello)
{
    hello->version = weir_read_be16(body);
    hello->random = weir_read_bytes(body, 32);
    const uint8_t id_len = weir_read_u8(body);
    hello->session_id = weir_read_part(body, id_len);
    const uint16_t suites_len = is_client ? weir_read_be16(body) : 2;
    hello->suites = weir_read_part(body, suites_len);
    weir_skip(body, is_client ? weir_read_u8(body) : 1); /* compression methods */
    if (body->failed || id_len > 32 || suites_len % 2 != 0)
        return weir_fail(body);
    hello->extensions = weir_cursor_of(body->at, 0);
    if (body->left != 0) {
        const uint16_t len = weir_read_be16(body);
        hello->extensions = weir_read_most(body, len);
    }
    return !body->failed;
}

/* Loops over the extensions of a hello, at most WEIR_TLS_EXTENSIONS. Behind the loop, hello.extensions.failed says that the last one is
 * cut, or that there are more.
 *
 *     WEIR_TLS_EXTENSION_EACH(&hello, ext) { if (ext.type == WEIR_TLS_SERVER_NAME) ... ext.value ... } */
#define WEIR_TLS_EXTENSION_EACH(hello, extension) WEIR_TLV_EACH(WEIR_TLS_EXTENSIONS, &(hello)->extensions, 2, 2, extension)

/* Reads the first host name of a ClientHello's server_name extension (RFC 6066). Returns a cursor over it, which has failed if the extension
 * is cut, or has none. */
WEIR_INLINE struct weir_cursor weir_tls_server_name(struct weir_cursor extension)
{
    const uint16_t list_len = weir_read_be16(&extension);
    struct weir_cursor list = weir_read_part(&extension, list_len);
    if (weir_read_u8(&list) != 0)
        weir_fail(&list);
    const uint16_t len = weir_read_be16(&list);
    return weir_read_part(&list, len);
}

/* ---- DHCP ------------------------------------------------------------------------------------------------------------------ */

/* Values of weir_dhcp_header.op, types of options (RFC 2132), and values of WEIR_DHCP_MESSAGE_TYPE. */
enum { WEIR_DHCP_FROM_CLIENT = 1, WEIR_DHCP_FROM_SERVER = 2 };
enum { WEIR_DHCP_PAD = 0, WEIR_DHCP_HOST_NAME = 12, WEIR_DHCP_REQUESTED_IP = 50, WEIR_DHCP_MESSAGE_TYPE = 53, WEIR_DHCP_SERVER = 54, WEIR_DHCP_END = 255 };
enum { WEIR_DHCP_DISCOVER = 1, WEIR_DHCP_OFFER, WEIR_DHCP_REQUEST, WEIR_DHCP_DECLINE, WEIR_DHCP_ACK, WEIR_DHCP_NAK, WEIR_DHCP_RELEASE, WEIR_DHCP_INFORM };

/* The header of a message (RFC 2131). Addresses are 0.0.0.0 where there is none. */
struct weir_dhcp_header {
    uint8_t op; /* WEIR_DHCP_FROM_CLIENT or WEIR_DHCP_FROM_SERVER */
    uint32_t id;
    struct weir_ip client, assigned, server, relay;
    const uint8_t *hardware; /* the client's address on its link, in 16 bytes; on Ethernet for weir_mac_of() */
    uint8_t hardware_len;    /* bytes of that address: 6 on Ethernet */
};

/* Reads the header, and moves to the options. Returns false if it is cut, or is not one of DHCP. */
static inline __attribute__((unused)) bool weir_read_dhcp_header(struct weir_cursor *c, struct weir_dhcp_header *header)
{
    const uint8_t *at = weir_read_bytes(c, 236);
    if (at == NULL || weir_read_be32(c) != 0x63825363 || at[0] < WEIR_DHCP_FROM_CLIENT || at[0] > WEIR_DHCP_FROM_SERVER || at[2] > 16)
        return weir_fail(c);
    header->op = at[0];
    header->id = weir_be32(at + 4);
    header->client = weir_ip_v4(at + 12);
    header->assigned = weir_ip_v4(at + 16);
    header->server = weir_ip_v4(at + 20);
    header->relay = weir_ip_v4(at + 24);
    header->hardware = at + 28;
    header->hardware_len = at[2];
    return !c->failed;
}

/* Reads an option: types WEIR_DHCP_PAD and WEIR_DHCP_END are a byte alone; the length of others counts the value. Returns false at the
 * end, and where an option is cut: then the cursor has failed. */
WEIR_INLINE bool weir_read_dhcp_option(struct weir_cursor *c, struct weir_tlv *option)
{
    if (c->left == 0)
        return false;
    option->type = weir_read_u8(c);
    if (option->type == WEIR_DHCP_END)
        c->left = 0;
    const uint32_t len = option->type == WEIR_DHCP_PAD || option->type == WEIR_DHCP_END ? 0 : weir_read_u8(c);
    option->value = weir_read_part(c, len);
    return !c->failed && option->type != WEIR_DHCP_END;
}

/* Loops over the options of a message, at most `max`, with the padding and the end. More make the cursor fail, as does one that is cut.
 *
 *     if (weir_read_dhcp_header(&c, &header))
 *         WEIR_DHCP_EACH(64, &c, option) { if (option.type == WEIR_DHCP_MESSAGE_TYPE) ... weir_read_u8(&option.value) ... }
 *
 * A long value can be spread over several options of one type (RFC 3396). */
#define WEIR_DHCP_EACH(max, c, option)                                                                                           \
    for (struct { uint32_t n, once; } option##_loop = { 0, 1 }; option##_loop.once != 0; option##_loop.once = 0)                 \
        for (struct weir_tlv option; option##_loop.n < (max) ? weir_read_dhcp_option((c), &option) : weir_past_limit(c);         \
             option##_loop.n++)

#endif
