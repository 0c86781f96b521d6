/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * hello.h: puts a ClientHello together from CRYPTO frames (RFC 9000, 19.6), in any order and number, and reads it (RFC 8446, 4.1.2).
 */
#ifndef WEIR_QUIC_HELLO_H
#define WEIR_QUIC_HELLO_H

#include "weir.h"
#include "initial.h"
#include "ja4.h"

enum {
    HELLO_BYTES = 4096, /* of a longer ClientHello only this begin is read, without a fingerprint */
    NAME_BYTES = 255,
    ALPN_BYTES = 128,
    EXTENSIONS = 128,
    STEPS = 256,        /* for the frames of a packet: each takes a frame, a number of an ACK, or 64 bytes of padding or data */
    STEP_BYTES = 64,
};

/* The bytes of a ClientHello so far. */
struct context {
    uint8_t have[HELLO_BYTES / 8 + 8]; /* a bit for each byte */
    uint8_t bytes[HELLO_BYTES + 2 * MARGIN];
};

enum progress { PROGRESS_OPEN, PROGRESS_COMPLETE, PROGRESS_CONFLICT, PROGRESS_OTHER };

/* What the row needs of a ClientHello. */
struct hello {
    uint8_t name_len, alpn_len;
    bool has_name, has_alpn, has_ja4;
    uint8_t name[NAME_BYTES];
    uint8_t alpn[ALPN_BYTES];
    uint8_t ja4[JA4_BYTES];
};

/* Expands eight bits to eight bytes of ones or zeros, the lowest first. */
static inline uint64_t spread(uint32_t bits)
{
    const uint64_t each = (uint64_t)bits * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
    return ((((each | (each & UINT64_C(0x7F7F7F7F7F7F7F7F)) + UINT64_C(0x7F7F7F7F7F7F7F7F)) & UINT64_C(0x8080808080808080)) >> 7)) * 0xFF;
}

/* Adds at most STEP_BYTES bytes, which begin at `offset` of the stream. There are MARGIN readable bytes around `from`. Returns false if a
 * byte differs from one that came before: RFC 9000, 2.2, forbids that. */
static __attribute__((noinline)) bool add_bytes(struct context *c, uint32_t offset, const uint8_t *from, uint32_t len)
{
    if (offset >= HELLO_BYTES || len == 0)
        return true;
    const uint32_t end = offset + least(least(len, STEP_BYTES), HELLO_BYTES - offset);
    uint64_t differs = 0;
    uint32_t octet = offset / 8;
    for (uint32_t i = 0; i < STEP_BYTES / 8 + 1 && octet * 8 < end; i++, octet++) {
        const uint32_t begin = octet * 8;
        uint32_t bits = 0xFF;
        if (begin < offset)
            bits &= 0xFFu << (offset - begin);
        if (end - begin < 8)
            bits &= 0xFFu >> (8 - (end - begin));
        const uint64_t had = spread(c->have[octet]), takes = spread(bits);
        uint8_t *to = c->bytes + begin;
        const uint64_t old = weir_le64(to), new = weir_le64(from + (int32_t)(begin - offset));
        differs |= (old ^ new) & had & takes;
        weir_set_le64(to, (old & ~(takes & ~had)) | (new & takes & ~had));
        c->have[octet] |= (uint8_t)bits;
    }
    return differs == 0;
}

/* The number of bytes without a gap from the begin on. */
static inline uint32_t contiguous(const struct context *c)
{
    uint32_t octet = 0;
    while (octet < HELLO_BYTES / 8 && c->have[octet] == 0xFF)
        octet++;
    return octet * 8 + (octet < HELLO_BYTES / 8 ? (uint32_t)__builtin_ctz(~(uint32_t)c->have[octet]) : 0);
}

/* Reads the frames of an Initial packet. There are MARGIN readable bytes around `bytes`. */
static __attribute__((noinline)) enum progress read_frames(struct context *c, const uint8_t *bytes, uint32_t len)
{
    enum { PADDING = 0, PING = 1, ACK = 2, ACK_ECN = 3, CRYPTO = 6 };
    uint32_t at = 0, crypto_left = 0, offset = 0;
    uint64_t numbers = 0; /* of an ACK frame, to pass over */
    bool is_same = true;
    for (uint32_t step = 0; step < STEPS && at < len; step++) {
        if (crypto_left != 0) {
            const uint32_t taken = least(crypto_left, STEP_BYTES);
            is_same &= add_bytes(c, offset, bytes + at, taken);
            at += taken;
            offset += taken;
            crypto_left -= taken;
            continue;
        }
        uint64_t first, second, third, fourth;
        if (numbers != 0) {
            if (!read_varint(bytes, &at, len, &first))
                break;
            numbers--;
            continue;
        }
        const uint8_t type = bytes[at++];
        if (type == PADDING) {
            for (uint32_t i = 0; i < 8 && at + 8 <= len && weir_le64(bytes + at) == 0; i++)
                at += 8;
        } else if (type == ACK || type == ACK_ECN) {
            /* Largest, delay, number of ranges, first range; then a gap and a length for each range, and three counters. */
            if (!read_varint(bytes, &at, len, &first) || !read_varint(bytes, &at, len, &second) || !read_varint(bytes, &at, len, &third) ||
                !read_varint(bytes, &at, len, &fourth))
                break;
            numbers = 2 * third + (type == ACK_ECN ? 3 : 0);
        } else if (type == CRYPTO) {
            if (!read_varint(bytes, &at, len, &first) || !read_varint(bytes, &at, len, &second) || second > len - at)
                break;
            /* Beyond the room the offset no longer matters. */
            offset = first < HELLO_BYTES ? (uint32_t)first : HELLO_BYTES;
            crypto_left = (uint32_t)second;
        } else if (type != PING) {
            break; /* a close, or a frame that an Initial packet does not have */
        }
    }
    if (!is_same)
        return PROGRESS_CONFLICT;
    const uint32_t have = contiguous(c);
    if (have < 4)
        return PROGRESS_OPEN;
    if (c->bytes[0] != 1)
        return PROGRESS_OTHER;
    const uint32_t message = 4 + (weir_be32(c->bytes) & 0xFFFFFF);
    return have >= least(message, HELLO_BYTES) ? PROGRESS_COMPLETE : PROGRESS_OPEN;
}

static inline uint8_t shown(uint8_t byte) { return byte > 0x20 && byte < 0x7F ? byte : '?'; }

static __attribute__((noinline)) void read_name(struct hello *h, const uint8_t *b, uint32_t len)
{
    if (len < 5 || b[2] != 0)
        return;
    const uint32_t name_len = weir_be16(b + 3);
    if (name_len == 0 || name_len > NAME_BYTES || name_len > len - 5)
        return;
    WEIR_FOR(NAME_BYTES, uint32_t i = 0; i < name_len; i++)
        h->name[i] = shown(b[5 + i]);
    h->name_len = (uint8_t)name_len;
    h->has_name = true;
}

static __attribute__((noinline)) void read_alpn(struct hello *h, struct ja4 *j, const uint8_t *b, uint32_t len)
{
    if (len < 2)
        return;
    h->has_alpn = true;
    uint32_t at = 2, out = 0, left = 0;
    /* One byte at each step: the length of a value, or a byte of it. Values that do not fit whole are left out. */
    for (uint32_t i = 0; i < ALPN_BYTES + 2 && at < len; i++, at++) {
        if (left == 0) {
            left = b[at];
            if (left == 0 || left > len - at - 1)
                return;
            if (!j->has_alpn) {
                j->has_alpn = true;
                j->alpn_first = b[at + 1];
                j->alpn_last = b[at + left];
            }
            if (out + (out != 0) + left > ALPN_BYTES)
                return;
            if (out != 0)
                h->alpn[out++ & (ALPN_BYTES - 1)] = ',';
        } else {
            h->alpn[out++ & (ALPN_BYTES - 1)] = shown(b[at]);
            if (--left == 0)
                h->alpn_len = (uint8_t)out;
        }
    }
}

static __attribute__((noinline)) void read_versions(struct ja4 *j, const uint8_t *b, uint32_t len)
{
    uint16_t highest = 0;
    for (uint32_t i = 0; i < 127 && 3 + 2 * i <= len; i++) {
        const uint16_t version = weir_be16(b + 1 + 2 * i);
        if (!ja4_is_grease(version) && version > highest)
            highest = version;
    }
    if (highest != 0)
        j->version = highest;
}

static __attribute__((noinline)) void read_algorithms(struct ja4 *j, const uint8_t *b, uint32_t len)
{
    for (uint32_t i = 0; i <= JA4_ALGORITHMS && 4 + 2 * i <= len; i++)
        JA4_ADD(j, algorithm, ALGORITHMS, weir_be16(b + 2 + 2 * i));
    if (len > 2 + 2 * (JA4_ALGORITHMS + 1))
        j->has_too_many = true;
}

/* Reads the first `len` bytes of a ClientHello with its header. `is_whole`: nothing follows. What contradicts itself is not reported. */
static __attribute__((noinline)) void read_hello(struct hello *h, const uint8_t *b, uint32_t len, bool is_whole)
{
    enum { SERVER_NAME = 0, SIGNATURE_ALGORITHMS = 13, ALPN = 16, SUPPORTED_VERSIONS = 43 };
    enum { NAME_PART, ALPN_PART, VERSIONS_PART, ALGORITHMS_PART, OTHER_PART, PARTS };
    struct part { uint32_t at, len; } parts[PARTS] = { { 0 } }; /* the first extension of each kind */
    static struct ja4 ja4;
    *h = (struct hello){ 0 };
    ja4 = (struct ja4){ 0 };
    uint32_t at = 4 + 2 + 32;
    if (at >= len)
        return;
    ja4.version = weir_be16(b + 4);
    at += 1u + b[at]; /* session identifier */
    if (at + 2 > len)
        return;
    const uint32_t ciphers = weir_be16(b + at);
    at += 2;
    if (ciphers > len - at)
        return;
    for (uint32_t i = 0; i <= JA4_CIPHERS && 2 * i + 2 <= ciphers; i++)
        JA4_ADD(&ja4, cipher, CIPHERS, weir_be16(b + at + 2 * i));
    if (ciphers > 2 * (JA4_CIPHERS + 1))
        ja4.has_too_many = true;
    at += ciphers;
    if (at >= len)
        return;
    at += 1u + b[at]; /* compression methods */
    if (at + 2 > len)
        return;
    const uint32_t end = at + 2 + weir_be16(b + at);
    at += 2;
    bool is_complete = is_whole && end == len;
    uint32_t number = 0;
    for (; number < EXTENSIONS && at + 4 <= len; number++) {
        const uint16_t type = weir_be16(b + at);
        const uint32_t extension_len = weir_be16(b + at + 2);
        at += 4;
        if (extension_len > len - at) {
            is_complete = false;
            break;
        }
        JA4_ADD(&ja4, extension, EXTENSIONS, type);
        const uint32_t which = type == SERVER_NAME            ? NAME_PART
                               : type == ALPN                 ? ALPN_PART
                               : type == SUPPORTED_VERSIONS   ? VERSIONS_PART
                               : type == SIGNATURE_ALGORITHMS ? ALGORITHMS_PART
                                                              : OTHER_PART;
        if (parts[which].at == 0)
            parts[which] = (struct part){ at, extension_len };
        at += extension_len;
    }
    read_name(h, b + parts[NAME_PART].at, parts[NAME_PART].len);
    read_alpn(h, &ja4, b + parts[ALPN_PART].at, parts[ALPN_PART].len);
    read_versions(&ja4, b + parts[VERSIONS_PART].at, parts[VERSIONS_PART].len);
    read_algorithms(&ja4, b + parts[ALGORITHMS_PART].at, parts[ALGORITHMS_PART].len);
    if (is_complete && at == end)
        h->has_ja4 = ja4_write(h->ja4, &ja4, 'q');
    else if (is_whole) /* a damaged ClientHello: nothing of it */
        *h = (struct hello){ 0 };
}

#endif
