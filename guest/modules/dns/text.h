/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Text of names, types and records. Names and strings are written as in master files (RFC 1035, 5.1): a backslash before a character
 * that means something there, and \DDD for bytes that are no printable ASCII characters. So `; ` only ever separates records.
 */
#ifndef DNS_TEXT_H
#define DNS_TEXT_H

#include "weir.h"

enum {
    NAME_BYTES = 255,                /* of a name on the wire, with its last, empty label */
    NAME_TEXT_BYTES = 4 * NAME_BYTES,
    ANSWERS_BYTES = 1024,            /* of the field `answers`, and its end */
    MORE_BYTES = 512,                /* of the field `more_questions` */
    STRINGS_BYTES = 255,             /* of a TXT record that become text */
    RECORD_BYTES = 2 * NAME_TEXT_BYTES + 128, /* of the text of one record at most */
    TYPE_TEXT_BYTES = 12,
};

enum {
    TYPE_A = 1, TYPE_NS = 2, TYPE_CNAME = 5, TYPE_SOA = 6, TYPE_PTR = 12, TYPE_MX = 15, TYPE_TXT = 16, TYPE_AAAA = 28, TYPE_SRV = 33,
    TYPE_DNAME = 39, TYPE_OPT = 41, TYPE_SVCB = 64, TYPE_HTTPS = 65, TYPE_SPF = 99,
};

/* The text of each byte of a name, and its length. Filled by text_start. */
static uint32_t byte_text[256];
static uint8_t byte_text_len[256];

/* Mnemonics of types (IANA's registry of resource record types). */
struct type_name {
    uint16_t type;
    char name[TYPE_TEXT_BYTES + 2];
};
static const struct type_name type_names[] = {
    { 1, "A" }, { 2, "NS" }, { 5, "CNAME" }, { 6, "SOA" }, { 10, "NULL" }, { 11, "WKS" }, { 12, "PTR" }, { 13, "HINFO" }, { 14, "MINFO" },
    { 15, "MX" }, { 16, "TXT" }, { 17, "RP" }, { 18, "AFSDB" }, { 24, "SIG" }, { 25, "KEY" }, { 28, "AAAA" }, { 29, "LOC" }, { 33, "SRV" },
    { 35, "NAPTR" }, { 36, "KX" }, { 37, "CERT" }, { 39, "DNAME" }, { 41, "OPT" }, { 42, "APL" }, { 43, "DS" }, { 44, "SSHFP" },
    { 45, "IPSECKEY" }, { 46, "RRSIG" }, { 47, "NSEC" }, { 48, "DNSKEY" }, { 49, "DHCID" }, { 50, "NSEC3" }, { 51, "NSEC3PARAM" },
    { 52, "TLSA" }, { 53, "SMIMEA" }, { 55, "HIP" }, { 59, "CDS" }, { 60, "CDNSKEY" }, { 61, "OPENPGPKEY" }, { 62, "CSYNC" },
    { 63, "ZONEMD" }, { 64, "SVCB" }, { 65, "HTTPS" }, { 99, "SPF" }, { 104, "NID" }, { 105, "L32" }, { 106, "L64" }, { 107, "LP" },
    { 108, "EUI48" }, { 109, "EUI64" }, { 249, "TKEY" }, { 250, "TSIG" }, { 251, "IXFR" }, { 252, "AXFR" }, { 255, "ANY" },
    { 256, "URI" }, { 257, "CAA" },
};
enum { TYPES = sizeof type_names / sizeof *type_names, TYPES_MAX = 258 };
static uint8_t type_place[TYPES_MAX]; /* place in type_names, from 1; 0: none */

static void text_start(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        const bool is_printable = byte > ' ' && byte <= '~';
        byte_text[byte] = is_printable ? byte : '\\' | (byte / 100 + '0') << 8 | (byte / 10 % 10 + '0') << 16 | (byte % 10 + '0') << 24;
        byte_text_len[byte] = is_printable ? 1 : 4;
    }
    static const uint8_t escaped[] = ".\\\"();@$";
    for (uint32_t i = 0; i < sizeof escaped - 1; i++) {
        byte_text[escaped[i]] = '\\' | (uint32_t)escaped[i] << 8;
        byte_text_len[escaped[i]] = 2;
    }
    for (uint32_t i = 0; i < TYPES; i++)
        type_place[type_names[i].type] = (uint8_t)(i + 1);
}

/* Each function writes at `to` and returns the end of what it has written. */

static inline uint8_t *put_byte(uint8_t *to, uint8_t byte)
{
    *to = byte;
    return to + 1;
}

/* Writes a number of up to five digits. */
static __attribute__((noinline)) uint8_t *put_small(uint8_t *to, uint32_t number)
{
    if (number >= 10) {
        if (number >= 100) {
            if (number >= 1000) {
                if (number >= 10000)
                    *to++ = (uint8_t)('0' + number / 10000 % 10);
                *to++ = (uint8_t)('0' + number / 1000 % 10);
            }
            *to++ = (uint8_t)('0' + number / 100 % 10);
        }
        *to++ = (uint8_t)('0' + number / 10 % 10);
    }
    *to++ = (uint8_t)('0' + number % 10);
    return to;
}

static __attribute__((noinline)) uint8_t *put_number(uint8_t *to, uint32_t number)
{
    if (number < 100000)
        return put_small(to, number);
    to = put_small(to, number / 100000);
    for (uint32_t part = 10000, i = 0; i < 5; i++, part /= 10)
        *to++ = (uint8_t)('0' + number / part % 10);
    return to;
}

/* Writes a byte of a name, or its escape. May write up to four bytes behind the end that it returns. */
static inline uint8_t *put_escaped(uint8_t *to, uint8_t byte)
{
    weir_set_le32(to, byte_text[byte]);
    return to + byte_text_len[byte];
}

/* Writes a name that is valid, uncompressed and on the wire `len` bytes long, with its last label. */
static __attribute__((noinline)) uint8_t *put_name(uint8_t *to, const uint8_t *wire, uint32_t len)
{
    if (len <= 1)
        return put_byte(to, '.');
    uint32_t left = wire[0];
    for (uint32_t i = 1; i + 1 < len && i < NAME_BYTES; i++) {
        const uint8_t byte = wire[i];
        if (left == 0) {
            left = byte;
            *to++ = '.';
            continue;
        }
        left--;
        to = put_escaped(to, byte);
    }
    return to;
}

static __attribute__((noinline)) uint8_t *put_type(uint8_t *to, uint16_t type)
{
    const uint32_t place = type < TYPES_MAX ? type_place[type] : 0;
    if (WEIR_LIKELY(place != 0)) {
        const char *name = type_names[(place - 1) % TYPES].name;
        for (uint32_t i = 0; i < TYPE_TEXT_BYTES && name[i] != 0; i++)
            *to++ = (uint8_t)name[i];
        return to;
    }
    weir_copy(to, "TYPE", 4);
    return put_small(to + 4, type);
}

static __attribute__((noinline)) uint8_t *put_ipv4(uint8_t *to, const uint8_t *address)
{
    to = put_small(to, address[0]);
    *to++ = '.';
    to = put_small(to, address[1]);
    *to++ = '.';
    to = put_small(to, address[2]);
    *to++ = '.';
    return put_small(to, address[3]);
}

/* Writes an IPv6 address as RFC 5952 says. */
static __attribute__((noinline)) uint8_t *put_ipv6(uint8_t *to, const uint8_t *address)
{
    uint32_t first = 8, longest = 1, run = 0;
    for (uint32_t group = 0; group < 8; group++) {
        run = weir_le16(address + 2 * group) == 0 ? run + 1 : 0;
        if (run > longest) {
            longest = run;
            first = group + 1 - run;
        }
    }
    for (uint32_t group = 0; group < 8; group++) {
        if (group >= first && group < first + longest) {
            if (group == first) {
                *to++ = ':';
                *to++ = ':';
            }
            continue;
        }
        if (group != 0 && group != first + longest)
            *to++ = ':';
        const uint32_t value = weir_be16(address + 2 * group);
        static const uint8_t digits[] = "0123456789abcdef";
        if (value >= 0x1000)
            *to++ = digits[value >> 12];
        if (value >= 0x100)
            *to++ = digits[value >> 8 & 15];
        if (value >= 0x10)
            *to++ = digits[value >> 4 & 15];
        *to++ = digits[value & 15];
    }
    return to;
}

/* Writes an address. */
static __attribute__((noinline)) uint8_t *put_ip(uint8_t *to, struct weir_ip ip)
{
    uint8_t address[16];
    weir_ip_store(address, ip);
    return weir_ip_is_v4(ip) ? put_ipv4(to, address + 12) : put_ipv6(to, address);
}

/* Writes a string literal. */
#define PUT(to, literal) put_bytes((to), (literal), sizeof(literal) - 1)
static inline uint8_t *put_bytes(uint8_t *to, const void *bytes, uint32_t len)
{
    weir_copy(to, bytes, len);
    return to + len;
}

/* Writes the character strings of a TXT record, each in quotation marks. */
static __attribute__((noinline)) uint8_t *put_strings(uint8_t *to, const uint8_t *data, uint32_t len)
{
    uint32_t left = 0;
    bool is_open = false;
    for (uint32_t i = 0; i < len && i < STRINGS_BYTES; i++) {
        const uint8_t byte = data[i];
        if (left == 0) {
            if (is_open)
                *to++ = '"';
            *to++ = ' ';
            *to++ = '"';
            is_open = true;
            left = byte;
            continue;
        }
        left--;
        /* Within quotation marks a space and a dot need no backslash. */
        if (byte == ' ' || byte == '.')
            *to++ = byte;
        else
            to = put_escaped(to, byte);
    }
    if (is_open)
        *to++ = '"';
    return to;
}

static __attribute__((noinline)) struct weir_str code_name(uint32_t code)
{
    static uint8_t other[10];
    switch (code) {
    case 0: return weir_string("NOERROR", 7);
    case 1: return weir_string("FORMERR", 7);
    case 2: return weir_string("SERVFAIL", 8);
    case 3: return weir_string("NXDOMAIN", 8);
    case 4: return weir_string("NOTIMP", 6);
    case 5: return weir_string("REFUSED", 7);
    case 6: return weir_string("YXDOMAIN", 8);
    case 7: return weir_string("YXRRSET", 7);
    case 8: return weir_string("NXRRSET", 7);
    case 9: return weir_string("NOTAUTH", 7);
    case 10: return weir_string("NOTZONE", 7);
    case 11: return weir_string("DSOTYPENI", 9);
    case 16: return weir_string("BADVERS", 7);
    case 17: return weir_string("BADKEY", 6);
    case 18: return weir_string("BADTIME", 7);
    case 19: return weir_string("BADMODE", 7);
    case 20: return weir_string("BADNAME", 7);
    case 21: return weir_string("BADALG", 6);
    case 22: return weir_string("BADTRUNC", 8);
    case 23: return weir_string("BADCOOKIE", 9);
    default:
        weir_copy(other, "RCODE", 5);
        return weir_string(other, (uint32_t)(put_small(other + 5, code & 0xFFF) - other));
    }
}

static struct weir_str opcode_name(uint32_t opcode)
{
    switch (opcode) {
    case 1: return weir_string("IQUERY", 6);
    case 2: return weir_string("STATUS", 6);
    case 4: return weir_string("NOTIFY", 6);
    case 5: return weir_string("UPDATE", 6);
    case 6: return weir_string("DSO", 3);
    default: return weir_string("QUERY", 5);
    }
}

#endif
