/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * ja4.h: the JA4 fingerprint of a TLS ClientHello, as FoxIO specifies it (github.com/FoxIO-LLC/ja4, technical_details/JA4.md, 3-clause
 * BSD licence). Only JA4: the other methods of JA4+ have another licence.
 *
 * A parser fills `struct ja4` while it reads the ClientHello, and calls ja4_write once at its end.
 */
#ifndef WEIR_JA4_H
#define WEIR_JA4_H

#include "weir.h"

enum {
    JA4_BYTES = 36,        /* length of a fingerprint */
    JA4_CIPHERS = 256,     /* more than any client offers; without a fingerprint beyond */
    JA4_EXTENSIONS = 96,
    JA4_ALGORITHMS = 64,
    JA4_LIST_BYTES = 5 * JA4_CIPHERS, /* the longer one of the two lists as text: four digits and a comma for each number */
};

_Static_assert(JA4_LIST_BYTES >= 5 * (JA4_EXTENSIONS + JA4_ALGORITHMS), "the room is for both lists");

/* The parts of a ClientHello that the fingerprint needs. Zeroed before the first use. Lists are as in the ClientHello, with GREASE. */
struct ja4 {
    uint16_t version;    /* the highest of supported_versions without GREASE; without that extension the ClientHello's */
    uint8_t alpn_first;  /* first and last byte of the first ALPN value; with has_alpn */
    uint8_t alpn_last;
    bool has_alpn;       /* a first ALPN value, which is not empty */
    bool has_too_many;   /* a list is longer than the room for it: no fingerprint */
    uint16_t cipher_count;
    uint16_t extension_count;
    uint16_t algorithm_count;
    uint16_t ciphers[JA4_CIPHERS];
    uint16_t extensions[JA4_EXTENSIONS];
    uint16_t algorithms[JA4_ALGORITHMS]; /* of the extension signature_algorithms */
};

/* True for the reserved values of RFC 8701, which clients mix in at random. */
WEIR_INLINE bool ja4_is_grease(uint16_t value) { return (value & 0x0F0F) == 0x0A0A && value >> 8 == (value & 0xFF); }

/* Adds a number to a list: JA4_ADD(j, cipher, CIPHERS, number). */
#define JA4_ADD(j, name, ROOM, number)                           \
    do {                                                         \
        if ((j)->name##_count < JA4_##ROOM)                      \
            (j)->name##s[(j)->name##_count++] = (number);        \
        else                                                     \
            (j)->has_too_many = true;                            \
    } while (0)

/* Removes GREASE from a list, and one more value. Returns how many are left. */
static __attribute__((noinline)) uint32_t ja4_without(uint16_t *values, uint32_t count, uint32_t unwanted)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < count && i < JA4_CIPHERS; i++) {
        const uint16_t value = values[i];
        values[left] = value;
        left += !ja4_is_grease(value) && value != unwanted;
    }
    return left;
}

WEIR_INLINE uint8_t ja4_digit(uint32_t value) { return (uint8_t)"0123456789abcdef"[value & 15]; }

/* Merge sort from the bottom up: the number of its steps has a small bound, whatever the order. Returns where the sorted values are. */
static __attribute__((noinline)) const uint16_t *ja4_sort(uint16_t *values, uint32_t count)
{
    enum { PASSES = 8 };
    static uint16_t room[JA4_CIPHERS];
    _Static_assert(1 << PASSES == JA4_CIPHERS, "runs of 1, 2, 4, ... values");
    uint16_t *from = values, *to = room;
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const uint32_t run = 1u << pass;
        if (run >= count)
            break;
        /* The runs [left, left_end) and [right, right_end) become one. */
        uint32_t left = 0, left_end = 0, right = 0, right_end = 0;
        for (uint32_t i = 0; i < count && i < JA4_CIPHERS; i++) {
            if (left == left_end && right == right_end) {
                left = i;
                left_end = right = left + run < count ? left + run : count;
                right_end = right + run < count ? right + run : count;
            }
            const bool is_left = left < left_end && (right == right_end || from[left] <= from[right]);
            to[i] = is_left ? from[left] : from[right];
            left += is_left;
            right += !is_left;
        }
        uint16_t *swapped = from;
        from = to;
        to = swapped;
    }
    return from;
}

/* Appends numbers as four digits each, with commas between them. Returns the new length. */
static __attribute__((noinline)) uint32_t ja4_list(uint8_t *text, uint32_t len, const uint16_t *values, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < JA4_CIPHERS; i++) {
        if (i != 0)
            text[len++] = ',';
        for (uint32_t digit = 0; digit < 4; digit++)
            text[len++] = ja4_digit(values[i] >> (12 - 4 * digit));
    }
    return len;
}

/* Writes the first 12 digits of the text's SHA-256; of no text, zeros. */
static __attribute__((noinline)) bool ja4_hash(uint8_t out[12], const uint8_t *text, uint32_t len)
{
    weir_fill(out, '0', 12);
    if (len == 0)
        return true;
    uint8_t digest[WEIR_SHA256_BYTES];
    if (weir_sha256(text, len < JA4_LIST_BYTES ? len : JA4_LIST_BYTES, digest) < 0)
        return false;
    for (uint32_t i = 0; i < 12; i++)
        out[i] = ja4_digit(digest[i / 2] >> (i % 2 == 0 ? 4 : 0));
    return true;
}

WEIR_INLINE void ja4_two_digits(uint8_t out[2], uint32_t number)
{
    const uint32_t shown = number < 99 ? number : 99;
    out[0] = (uint8_t)('0' + shown / 10);
    out[1] = (uint8_t)('0' + shown % 10);
}

WEIR_INLINE bool ja4_is_alphanumeric(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

/* Writes the fingerprint. `transport` is 't' for TCP, 'q' for QUIC, 'd' for DTLS. Changes the order of the lists. Returns false, and writes nothing
 * of use, if a list was too long. */
static __attribute__((noinline)) bool ja4_write(uint8_t out[JA4_BYTES], struct ja4 *j, uint8_t transport)
{
    enum { SERVER_NAME = 0, ALPN = 16, NONE = 0x10000 };
    static uint8_t text[JA4_LIST_BYTES];
    if (j->has_too_many)
        return false;
    const uint32_t ciphers = ja4_without(j->ciphers, j->cipher_count, NONE);
    const uint32_t algorithms = ja4_without(j->algorithms, j->algorithm_count, NONE);
    const uint32_t all_extensions = ja4_without(j->extensions, j->extension_count, NONE);
    const uint32_t nameless = ja4_without(j->extensions, all_extensions, SERVER_NAME);
    const uint32_t extensions = ja4_without(j->extensions, nameless, ALPN);
    out[0] = transport;
    switch (j->version) {
    case 0x0304: out[1] = '1', out[2] = '3'; break;
    case 0x0303: out[1] = '1', out[2] = '2'; break;
    case 0x0302: out[1] = '1', out[2] = '1'; break;
    case 0x0301: out[1] = '1', out[2] = '0'; break;
    case 0x0300: out[1] = 's', out[2] = '3'; break;
    case 0x0002: out[1] = 's', out[2] = '2'; break;
    case 0xFEFF: out[1] = 'd', out[2] = '1'; break;
    case 0xFEFD: out[1] = 'd', out[2] = '2'; break;
    case 0xFEFC: out[1] = 'd', out[2] = '3'; break;
    default: out[1] = '0', out[2] = '0'; break;
    }
    out[3] = nameless < all_extensions ? 'd' : 'i';
    ja4_two_digits(out + 4, ciphers);
    ja4_two_digits(out + 6, all_extensions);
    if (!j->has_alpn) {
        out[8] = out[9] = '0';
    } else if (ja4_is_alphanumeric(j->alpn_first) && ja4_is_alphanumeric(j->alpn_last)) {
        out[8] = j->alpn_first;
        out[9] = j->alpn_last;
    } else {
        out[8] = ja4_digit(j->alpn_first >> 4);
        out[9] = ja4_digit(j->alpn_last);
    }
    out[10] = out[23] = '_';

    if (!ja4_hash(out + 11, text, ja4_list(text, 0, ja4_sort(j->ciphers, ciphers), ciphers)))
        return false;
    uint32_t len = ja4_list(text, 0, ja4_sort(j->extensions, extensions), extensions);
    if (len != 0 && algorithms != 0) {
        text[len++] = '_';
        len = ja4_list(text, len, j->algorithms, algorithms);
    }
    return ja4_hash(out + 24, text, len);
}

#endif
