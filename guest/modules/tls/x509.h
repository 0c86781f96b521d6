/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * x509.h: issuer, validity and subject of a certificate (RFC 5280) from its first bytes. Names become texts as in RFC 4514. All loops have
 * constant bounds: attributes beyond NAME_PARTS and bytes beyond PART_BYTES and DN_BYTES are left out.
 */
#ifndef WEIR_TLS_X509_H
#define WEIR_TLS_X509_H

#include "weir.h"

enum { NAME_PARTS = 20, PART_BYTES = 192, WIDE_CHARACTERS = 64, DN_BYTES = 512, OID_BYTES = 16 };

/* A value in DER: its tag, and where its content is. */
struct der {
    uint8_t tag;
    uint32_t begin, end;
};

/* Reads the value at `at`. Its content may go on after `end`. */
static __attribute__((noinline)) bool der_read(const uint8_t *bytes, uint32_t at, uint32_t end, struct der *value)
{
    if (at + 2 > end)
        return false;
    value->tag = bytes[at];
    const uint32_t form = bytes[at + 1];
    at += 2;
    uint32_t len = form;
    if (form >= 0x80) {
        const uint32_t more = form & 0x7F;
        if (more == 0 || more > 3 || at + more > end)
            return false;
        len = bytes[at];
        if (more > 1)
            len = len << 8 | bytes[at + 1];
        if (more > 2)
            len = len << 8 | bytes[at + 2];
        at += more;
    }
    value->begin = at;
    value->end = at + len;
    return (value->tag & 0x1F) != 0x1F;
}

/* Reads a value with this tag that ends within the bytes. */
static __attribute__((noinline)) bool der_take(const uint8_t *bytes, uint32_t *at, uint32_t end, uint8_t tag, struct der *value)
{
    if (!der_read(bytes, *at, end, value) || value->tag != tag || value->end > end)
        return false;
    *at = value->end;
    return true;
}

/* A text for a row. */
struct dn {
    uint32_t len;
    bool is_cut;
    uint8_t bytes[DN_BYTES];
};

WEIR_INLINE void dn_add(struct dn *text, uint8_t byte)
{
    if (text->len < DN_BYTES)
        text->bytes[text->len++] = byte;
    else
        text->is_cut = true;
}

/* Adds a character in UTF-8. */
static __attribute__((noinline)) void dn_add_character(struct dn *text, uint32_t c)
{
    if (c < 0x80) {
        dn_add(text, (uint8_t)c);
    } else if (c < 0x800) {
        dn_add(text, (uint8_t)(0xC0 | c >> 6));
        dn_add(text, (uint8_t)(0x80 | (c & 0x3F)));
    } else {
        dn_add(text, (uint8_t)(0xE0 | c >> 12));
        dn_add(text, (uint8_t)(0x80 | (c >> 6 & 0x3F)));
        dn_add(text, (uint8_t)(0x80 | (c & 0x3F)));
    }
}

static __attribute__((noinline)) void dn_add_number(struct dn *text, uint32_t number)
{
    uint32_t unit = 1000000000;
    for (uint32_t i = 0; i < 10; i++, unit /= 10)
        if (number >= unit || unit == 1)
            dn_add(text, (uint8_t)('0' + number / unit % 10));
}

/* Returns the name of an attribute's type; NULL for one without a usual name. */
static __attribute__((noinline)) const char *type_name(const uint8_t *oid, uint32_t len)
{
    static const uint8_t email[9] = { 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1 };
    static const uint8_t pilot[9] = { 9, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1 };           /* RFC 4519 */
    static const uint8_t jurisdiction[10] = { 0x2B, 6, 1, 4, 1, 0x82, 0x37, 0x3C, 2, 1 };         /* of companies */
    if (len == 9 && weir_equal(oid, email, 9))
        return "emailAddress";
    if (len == 10 && weir_equal(oid, pilot, 9))
        return oid[9] == 25 ? "DC" : oid[9] == 1 ? "UID" : NULL;
    if (len == 11 && weir_equal(oid, jurisdiction, 10))
        return oid[10] == 1 ? "jurisdictionL" : oid[10] == 2 ? "jurisdictionST" : oid[10] == 3 ? "jurisdictionC" : NULL;
    if (len != 3 || oid[0] != 0x55 || oid[1] != 4)
        return NULL;
    switch (oid[2]) {
    case 3: return "CN";
    case 4: return "SN";
    case 5: return "serialNumber";
    case 6: return "C";
    case 7: return "L";
    case 8: return "ST";
    case 9: return "street";
    case 10: return "O";
    case 11: return "OU";
    case 12: return "title";
    case 13: return "description";
    case 15: return "businessCategory";
    case 17: return "postalCode";
    case 41: return "name";
    case 42: return "GN";
    case 43: return "initials";
    case 46: return "dnQualifier";
    case 97: return "organizationIdentifier";
    default: return NULL;
    }
}

/* Adds the type of an attribute: its name, or its numbers with dots. */
static __attribute__((noinline)) void dn_add_type(struct dn *text, const uint8_t *oid, uint32_t len)
{
    const char *name = type_name(oid, len);
    if (name != NULL) {
        for (uint32_t i = 0; i < 24 && name[i] != 0; i++)
            dn_add(text, (uint8_t)name[i]);
        return;
    }
    uint32_t arc = 0;
    bool is_first = true;
    for (uint32_t i = 0; i < len && i < OID_BYTES; i++) {
        arc = arc << 7 | (oid[i] & 0x7F);
        if (oid[i] & 0x80)
            continue;
        if (is_first) { /* The first number stands for two. */
            const uint32_t top = arc < 80 ? arc / 40 : 2;
            dn_add_number(text, top);
            arc -= top * 40;
        }
        dn_add(text, '.');
        dn_add_number(text, arc);
        is_first = false;
        arc = 0;
    }
}

/* True for a character that RFC 4514 escapes with a backslash. */
WEIR_INLINE bool is_escaped(uint32_t c, bool is_first, bool is_last)
{
    switch (c) {
    case ',': case '+': case '"': case '\\': case '<': case '>': case ';':
        return true;
    case '#':
        return is_first;
    case ' ':
        return is_first | is_last;
    default:
        return false;
    }
}

/* Adds a value whose characters have `width` bytes, which are Latin-1 or UTF-16. */
static __attribute__((noinline)) void dn_add_wide(struct dn *text, const uint8_t *bytes, uint32_t len, uint32_t width)
{
    for (uint32_t i = 0; i < WIDE_CHARACTERS; i++) {
        const uint32_t at = i * width;
        if (at + width > len)
            break;
        const uint32_t c = width == 2 ? (uint32_t)weir_be16(bytes + at) : bytes[at];
        if (is_escaped(c, i == 0, at + 2 * width > len))
            dn_add(text, '\\');
        dn_add_character(text, c);
    }
}

/* Adds the value of an attribute. Control characters stay: weir escapes them where it shows them. */
static __attribute__((noinline)) void dn_add_value(struct dn *text, const uint8_t *bytes, uint32_t len, uint8_t tag)
{
    enum { TELETEX = 0x14, BMP = 0x1E };
    if (tag == BMP || tag == TELETEX) {
        dn_add_wide(text, bytes, len, tag == BMP ? 2 : 1);
        return;
    }
    for (uint32_t i = 0; i < len && i < PART_BYTES; i++) {
        if (is_escaped(bytes[i], i == 0, i + 1 == len))
            dn_add(text, '\\');
        dn_add(text, bytes[i]);
    }
}

/* An attribute of a name. */
struct part {
    uint16_t oid, oid_end, value, value_end;
    uint8_t tag;
    bool is_joined; /* with the one before: the same relative distinguished name */
};

/* Writes a name as text, the last attribute first. Returns false for one that is malformed or has too many attributes. */
static __attribute__((noinline)) bool dn_write(struct dn *text, const uint8_t *bytes, uint32_t at, uint32_t end)
{
    enum { SEQUENCE = 0x30, SET = 0x31, OID = 6 };
    static struct part parts[NAME_PARTS];
    text->len = 0;
    text->is_cut = false;
    uint32_t count = 0, set_end = at;
    bool is_joined = false;
    /* Each attribute is in a set of its own, mostly. */
    for (uint32_t step = 0; at < end; step++) {
        struct der value;
        if (step == 2 * NAME_PARTS)
            return false;
        if (at >= set_end) {
            if (!der_read(bytes, at, end, &value) || value.tag != SET || value.end > end || value.end == value.begin)
                return false;
            at = value.begin;
            set_end = value.end;
            is_joined = false;
            continue;
        }
        struct der oid;
        if (!der_take(bytes, &at, set_end, SEQUENCE, &value) || count == NAME_PARTS)
            return false;
        uint32_t inside = value.begin;
        const uint32_t inside_end = value.end;
        if (!der_take(bytes, &inside, inside_end, OID, &oid) || !der_read(bytes, inside, inside_end, &value) || value.end != inside_end)
            return false;
        parts[count] = (struct part){
            .oid = (uint16_t)oid.begin,
            .oid_end = (uint16_t)oid.end,
            .value = (uint16_t)value.begin,
            .value_end = (uint16_t)value.end,
            .tag = value.tag,
            .is_joined = is_joined,
        };
        count++;
        is_joined = true;
    }
    for (uint32_t i = 0; i < count && i < NAME_PARTS; i++) {
        const struct part *part = &parts[count - 1 - i];
        if (i != 0)
            dn_add(text, (part + 1)->is_joined ? '+' : ',');
        dn_add_type(text, bytes + part->oid, (uint32_t)(part->oid_end - part->oid));
        dn_add(text, '=');
        dn_add_value(text, bytes + part->value, (uint32_t)(part->value_end - part->value), part->tag);
    }
    return true;
}

WEIR_INLINE bool two_digits(const uint8_t *text, uint32_t *number)
{
    const uint32_t tens = (uint32_t)text[0] - '0', ones = (uint32_t)text[1] - '0';
    *number = tens * 10 + ones;
    return tens < 10 && ones < 10;
}

/* Reads a UTCTime or GeneralizedTime in UTC with seconds, as RFC 5280 requires, into ns since 1970. Earlier times are 0, times after
 * 2262-04-11 are the last one that record files hold. */
static __attribute__((noinline)) bool der_time(const uint8_t *bytes, const struct der *value, uint64_t *time)
{
    enum { UTC_TIME = 0x17, GENERALIZED_TIME = 0x18 };
    const uint64_t LAST = INT64_MAX;
    const uint32_t len = value->end - value->begin;
    const uint8_t *text = bytes + value->begin;
    uint32_t century, year, month, day, hour, minute, second;
    if (value->tag == GENERALIZED_TIME && len == 15) {
        if (!two_digits(text, &century))
            return false;
        text += 2;
    } else if (value->tag == UTC_TIME && len == 13) {
        century = text[0] < '5' ? 20 : 19;
    } else {
        return false;
    }
    if (!two_digits(text, &year) || !two_digits(text + 2, &month) || !two_digits(text + 4, &day) || !two_digits(text + 6, &hour) ||
        !two_digits(text + 8, &minute) || !two_digits(text + 10, &second) || text[12] != 'Z')
        return false;
    if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
        return false;
    year += century * 100;
    if (year < 1970) {
        *time = 0;
        return true;
    }
    if (year > 2261) {
        *time = LAST;
        return true;
    }
    /* Days of the Gregorian calendar, with years that begin in March. */
    const uint32_t y = year - (month <= 2), from_march = (month + 9) % 12;
    const uint64_t days = UINT64_C(365) * y + y / 4 - y / 100 + y / 400 + (153 * from_march + 2) / 5 + day - 1 - 719468;
    *time = (((days * 24 + hour) * 60 + minute) * 60 + second) * UINT64_C(1000000000);
    return true;
}

/* The parts of a certificate that a row has. */
struct certificate {
    bool has_issuer, has_subject, has_not_before, has_not_after, is_self_issued;
    uint64_t not_before, not_after;
    struct dn issuer, subject;
};

/* Reads the first bytes of a certificate. A part that is malformed, or lies after them, is missing. */
static __attribute__((noinline)) void certificate_read(struct certificate *cert, const uint8_t *bytes, uint32_t len)
{
    enum { INTEGER = 2, SEQUENCE = 0x30, VERSION = 0xA0 };
    struct der value, issuer, subject, time;
    uint32_t at;
    cert->has_issuer = cert->has_subject = cert->has_not_before = cert->has_not_after = cert->is_self_issued = false;
    if (!der_read(bytes, 0, len, &value) || value.tag != SEQUENCE) /* the certificate */
        return;
    if (!der_read(bytes, value.begin, len, &value) || value.tag != SEQUENCE) /* what is signed */
        return;
    at = value.begin;
    if (at < len && bytes[at] == VERSION && !der_take(bytes, &at, len, VERSION, &value))
        return;
    if (!der_take(bytes, &at, len, INTEGER, &value) || !der_take(bytes, &at, len, SEQUENCE, &value)) /* serial number, algorithm */
        return;
    if (!der_take(bytes, &at, len, SEQUENCE, &issuer))
        return;
    cert->has_issuer = dn_write(&cert->issuer, bytes, issuer.begin, issuer.end);
    if (!der_take(bytes, &at, len, SEQUENCE, &value))
        return;
    if (der_read(bytes, value.begin, value.end, &time) && time.end <= value.end) {
        cert->has_not_before = der_time(bytes, &time, &cert->not_before);
        if (der_read(bytes, time.end, value.end, &time) && time.end == value.end)
            cert->has_not_after = der_time(bytes, &time, &cert->not_after);
    }
    if (!der_take(bytes, &at, len, SEQUENCE, &subject))
        return;
    cert->has_subject = dn_write(&cert->subject, bytes, subject.begin, subject.end);
    const uint32_t issuer_len = issuer.end - issuer.begin;
    if (issuer_len != subject.end - subject.begin)
        return;
    uint32_t same = 0;
    for (uint32_t i = 0; i < issuer_len && i < 1024; i++)
        same += bytes[issuer.begin + i] == bytes[subject.begin + i];
    cert->is_self_issued = same == issuer_len;
}

#endif
