/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * initial.h: long headers of QUIC (RFC 8999, RFC 9000, RFC 9369), and the protection of Initial and Retry packets (RFC 9001, 5). The keys of
 * Initial packets follow from the client's destination connection identifier, so every observer can compute them.
 */
#ifndef WEIR_QUIC_INITIAL_H
#define WEIR_QUIC_INITIAL_H

#include "weir.h"

enum {
    CID_BYTES = 20,       /* the most that versions 1 and 2 have */
    INITIAL_BYTES = 4096, /* longer Initial packets are not read; clients send about 1200 */
    HEADER_BYTES = 2048,  /* with the token */
    MARGIN = 8,           /* around buffers that are read by words */
};

/* Versions by their salts. Drafts have the salts of the version that they became, or their own. */
enum kind { KIND_UNKNOWN, KIND_1, KIND_2, KIND_DRAFT_29, KIND_DRAFT_23 };

/* Types of long headers, as version 1 numbers them. */
enum { TYPE_INITIAL = 0, TYPE_0RTT = 1, TYPE_HANDSHAKE = 2, TYPE_RETRY = 3 };

static inline enum kind kind_of(uint32_t version)
{
    if (version == 1 || version == 0xFF000021 || version == 0xFF000022)
        return KIND_1;
    if (version == 0x6B3343CF)
        return KIND_2;
    if (version - 0xFF00001D <= 0xFF000020 - 0xFF00001D)
        return KIND_DRAFT_29;
    if (version - 0xFF000017 <= 0xFF00001C - 0xFF000017)
        return KIND_DRAFT_23;
    return KIND_UNKNOWN;
}

struct cid {
    uint8_t len;
    uint8_t bytes[CID_BYTES];
};

/* The invariant part of a long header (RFC 8999). */
struct header {
    const uint8_t *bytes; /* of the packet */
    uint32_t len;         /* to the end of the datagram */
    uint32_t version;
    enum kind kind;
    uint8_t type;         /* with a known version */
    uint16_t at;          /* offset behind the connection identifiers */
    struct cid destination, source;
};

static inline uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Cuts a length that is known to be short to its limit. The compiler would leave the comparison out, but the analyser needs to see it. */
static inline uint32_t visible(uint32_t len, uint32_t most)
{
    __asm__("" : "+r"(len));
    return least(len, most);
}

static inline bool cid_equal(const struct cid *a, const struct cid *b)
{
    return a->len == b->len && weir_equal(a->bytes, b->bytes, CID_BYTES);
}

/* Reads a long header. False if the bytes are none, or an identifier is longer than versions 1 and 2 allow. */
static __attribute__((noinline)) bool read_header(struct header *h, const uint8_t *bytes, uint32_t len)
{
    if (len < 7 || (bytes[0] & 0x80) == 0)
        return false;
    const uint32_t destination_len = bytes[5];
    if (destination_len > CID_BYTES || len < 7 + destination_len)
        return false;
    const uint32_t source_len = bytes[6 + destination_len];
    if (source_len > CID_BYTES || len < 7 + destination_len + source_len)
        return false;
    *h = (struct header){ .bytes = bytes, .len = len, .version = weir_be32(bytes + 1) };
    h->kind = kind_of(h->version);
    h->type = bytes[0] >> 4 & 3;
    if (h->kind == KIND_2) /* 0 is Retry, 1 Initial */
        h->type = (h->type + 3) & 3;
    h->at = (uint16_t)(7 + destination_len + source_len);
    h->destination.len = (uint8_t)destination_len;
    h->source.len = (uint8_t)source_len;
    weir_copy(h->destination.bytes, bytes + 6, least(destination_len, CID_BYTES));
    weir_copy(h->source.bytes, bytes + 7 + destination_len, least(source_len, CID_BYTES));
    /* Without the fixed bit it is no packet of these versions; Version Negotiation leaves the bit open. */
    return h->version == 0 || (bytes[0] & 0x40) != 0;
}

/* Reads a variable-length integer (RFC 9000, 16) at `*at`, and moves on. False beyond `end`. */
static inline bool read_varint(const uint8_t *bytes, uint32_t *at, uint32_t end, uint64_t *value)
{
    if (*at >= end)
        return false;
    const uint32_t len = 1u << (bytes[*at] >> 6);
    if (end - *at < len)
        return false;
    uint64_t read = bytes[*at] & 0x3F;
    for (uint32_t i = 1; i < 8; i++)
        if (i < len)
            read = read << 8 | bytes[*at + i];
    *value = read;
    *at += len;
    return true;
}

struct initial_keys {
    uint8_t key[16], iv[12], hp[16];
};

/* Derives the client's keys. False if the host refuses. */
static __attribute__((noinline)) bool derive_keys(struct initial_keys *keys, enum kind kind, const struct cid *cid)
{
    static const uint8_t salts[][20] = {
        [KIND_1] = { 0x38, 0x76, 0x2C, 0xF7, 0xF5, 0x59, 0x34, 0xB3, 0x4D, 0x17, 0x9A, 0xE6, 0xA4, 0xC8, 0x0C, 0xAD, 0xCC, 0xBB, 0x7F, 0x0A },
        [KIND_2] = { 0x0D, 0xED, 0xE3, 0xDE, 0xF7, 0x00, 0xA6, 0xDB, 0x81, 0x93, 0x81, 0xBE, 0x6E, 0x26, 0x9D, 0xCB, 0xF9, 0xBD, 0x2E, 0xD9 },
        [KIND_DRAFT_29] = { 0xAF, 0xBF, 0xEC, 0x28, 0x99, 0x93, 0xD2, 0x4C, 0x9E, 0x97, 0x86, 0xF1, 0x9C, 0x61, 0x11, 0xE0, 0x43, 0x90, 0xA8, 0x99 },
        [KIND_DRAFT_23] = { 0xC3, 0xEE, 0xF7, 0x12, 0xC7, 0x2E, 0xBB, 0x5A, 0x11, 0xA7, 0xD2, 0x43, 0x2B, 0xB4, 0x63, 0x65, 0xBE, 0xF9, 0xF5, 0x02 },
    };
    uint8_t secret[32];
    if (weir_hkdf_extract(salts[kind], 20, cid->bytes, least(cid->len, CID_BYTES), secret) < 0 ||
        weir_hkdf_expand_label(secret, "client in", 9, secret, 32) < 0)
        return false;
    if (kind == KIND_2)
        return weir_hkdf_expand_label(secret, "quicv2 key", 10, keys->key, 16) > 0 &&
               weir_hkdf_expand_label(secret, "quicv2 iv", 9, keys->iv, 12) > 0 && weir_hkdf_expand_label(secret, "quicv2 hp", 9, keys->hp, 16) > 0;
    return weir_hkdf_expand_label(secret, "quic key", 8, keys->key, 16) > 0 && weir_hkdf_expand_label(secret, "quic iv", 7, keys->iv, 12) > 0 &&
           weir_hkdf_expand_label(secret, "quic hp", 7, keys->hp, 16) > 0;
}

/* Finds the packet number of an Initial packet, and the packet's end. */
static __attribute__((noinline)) bool find_number(const struct header *h, uint32_t *number_at, uint32_t *end)
{
    uint32_t at = h->at;
    uint64_t token_len, len;
    if (!read_varint(h->bytes, &at, h->len, &token_len) || token_len > h->len - at)
        return false;
    at += (uint32_t)token_len;
    if (!read_varint(h->bytes, &at, h->len, &len) || len > h->len - at)
        return false;
    *number_at = at;
    *end = at + (uint32_t)len;
    return true;
}

/* Decrypts an Initial packet into `plain`. Returns the length of the plaintext; 0 if the packet is none with these keys. */
static __attribute__((noinline)) uint32_t open_initial(const struct header *h, uint32_t number_at, uint32_t end, const struct initial_keys *keys,
                                                       uint8_t plain[INITIAL_BYTES])
{
    static uint8_t header[HEADER_BYTES + 4];
    uint8_t mask[16], nonce[12];
    /* The sample begins 4 bytes behind the begin of the packet number, and has 16 bytes. */
    if (number_at > HEADER_BYTES || end - number_at < 20 || end - number_at > INITIAL_BYTES)
        return 0;
    if (weir_aes128_block(keys->hp, h->bytes + number_at + 4, mask) < 0)
        return 0;
    const uint8_t first = h->bytes[0] ^ (mask[0] & 0x0F);
    const uint32_t number_len = (first & 3) + 1u;
    weir_copy(header, h->bytes, visible(number_at, HEADER_BYTES));
    header[0] = first;
    weir_copy(nonce, keys->iv, 12);
    for (uint32_t i = 0; i < 4 && i < number_len; i++) {
        header[number_at + i] = h->bytes[number_at + i] ^ mask[1 + i];
        /* The whole number: the first Initial packets have small ones, and are not truncated. */
        nonce[12 - number_len + i] ^= header[number_at + i];
    }
    const uint32_t at = visible(number_at + number_len, HEADER_BYTES + 4), len = visible(end - at, INITIAL_BYTES);
    const int32_t opened = weir_aes128_gcm_open(keys->key, nonce, header, at, h->bytes + at, len, plain);
    return opened > 0 ? (uint32_t)opened : 0;
}

/* True if a Retry packet has the integrity tag for the client's first destination connection identifier (RFC 9001, 5.8). */
static __attribute__((noinline)) bool is_retry_of(const struct header *h, const struct cid *original)
{
    static const uint8_t keys[][16] = {
        [KIND_1] = { 0xBE, 0x0C, 0x69, 0x0B, 0x9F, 0x66, 0x57, 0x5A, 0x1D, 0x76, 0x6B, 0x54, 0xE3, 0x68, 0xC8, 0x4E },
        [KIND_2] = { 0x8F, 0xB4, 0xB0, 0x1B, 0x56, 0xAC, 0x48, 0xE2, 0x60, 0xFB, 0xCB, 0xCE, 0xAD, 0x7C, 0xCC, 0x92 },
        [KIND_DRAFT_29] = { 0xCC, 0xCE, 0x18, 0x7E, 0xD0, 0x9A, 0x09, 0xD0, 0x57, 0x28, 0x15, 0x5A, 0x6C, 0xB9, 0x6B, 0xE1 },
        [KIND_DRAFT_23] = { 0 },
    };
    static const uint8_t nonces[][12] = {
        [KIND_1] = { 0x46, 0x15, 0x99, 0xD3, 0x5D, 0x63, 0x2B, 0xF2, 0x23, 0x98, 0x25, 0xBB },
        [KIND_2] = { 0xD8, 0x69, 0x69, 0xBC, 0x2D, 0x7C, 0x6D, 0x99, 0x90, 0xEF, 0xB0, 0x4A },
        [KIND_DRAFT_29] = { 0xE5, 0x49, 0x30, 0xF9, 0x7F, 0x21, 0x36, 0xF0, 0x53, 0x0A, 0x8C, 0x1C },
        [KIND_DRAFT_23] = { 0 },
    };
    static uint8_t pseudo[1 + CID_BYTES + HEADER_BYTES];
    if (h->kind == KIND_UNKNOWN || h->kind == KIND_DRAFT_23 || h->len < h->at + 16u || h->len > HEADER_BYTES)
        return false;
    const uint32_t len = visible(h->len - 16, HEADER_BYTES), original_len = least(original->len, CID_BYTES);
    pseudo[0] = (uint8_t)original_len;
    weir_copy(pseudo + 1, original->bytes, original_len);
    weir_copy(pseudo + 1 + original_len, h->bytes, len);
    return weir_aes128_gcm_open(keys[h->kind], nonces[h->kind], pseudo, 1 + original_len + len, h->bytes + len, 16, pseudo) == 0;
}

#endif
