/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The parser of DNS messages (RFC 1035, 4.1; OPT: RFC 6891). It reads only what was captured, and follows a compression pointer
 * only to a lower offset, so that no name can loop.
 */
#ifndef DNS_MESSAGE_H
#define DNS_MESSAGE_H

#include "weir.h"
#include "module.h"
#include "text.h"

enum {
    HEADER_BYTES = 12,
    MORE_QUESTIONS_MAX = 8,  /* further questions that are read */
    STEPS_MAX = 256,         /* records of a message that are read, and labels of their owners' names */
    ANSWERS_MAX = 16,        /* power of two, at least the largest value of the parameter `answers-max` */
    LABELS_MAX = 128,
    POINTERS_MAX = 16,       /* compression pointers in one name */
};

/* A name on the wire, without compression. */
struct name {
    uint32_t len;                   /* bytes, with the last, empty label; 0: no name */
    uint8_t wire[NAME_BYTES + 9];   /* room for a last word */
};

/* What a message says. */
struct message {
    const uint8_t *bytes;
    uint32_t len;      /* captured */
    uint32_t wire_len; /* on the link */
    uint16_t id, flags, questions, answers, authorities, additionals;
    uint16_t type;     /* of the first question, or of the first record */
    bool has_name;
    bool has_question; /* `name` and `type` are those of the first question */
    bool is_cut, is_malformed;
    bool has_edns, dnssec_ok;
    uint16_t edns_bytes;
    uint32_t code;     /* with the upper bits in OPT */
    struct name name;
    uint32_t more_len, answers_len;
    uint8_t more[MORE_BYTES + RECORD_BYTES];
    uint8_t answers_text[ANSWERS_BYTES + RECORD_BYTES];
};

static inline uint32_t opcode_of(uint16_t flags) { return flags >> 11 & 15; }
static inline bool is_answer(uint16_t flags) { return (flags & 0x8000) != 0; }

/* Copies a name word by word; the last word may overlap the one before. */
static inline void copy_name(uint8_t *to, const uint8_t *from, uint32_t len)
{
    if (len < 8) {
        for (uint32_t i = 0; i < 7; i++)
            if (i < len)
                to[i] = from[i];
        return;
    }
    const uint32_t last = len - 8;
    for (uint32_t word = 0; word < (NAME_BYTES + 7) / 8; word++) {
        const uint32_t at = word * 8 < last ? word * 8 : last;
        weir_set_le64(to + at, weir_le64(from + at));
        if (at == last)
            break;
    }
}

/* Reads a name with pointers. Each step reads a byte of the name or follows a pointer. Returns the end of the name, or 0. */
static __attribute__((noinline)) uint32_t read_compressed(const uint8_t *bytes, uint32_t len, uint32_t at, struct name *name)
{
    uint32_t end = 0, left = 0, out = 0, lowest = at;
    name->len = 0;
    for (uint32_t step = 0; step < NAME_BYTES + POINTERS_MAX; step++) {
        if (at >= len)
            return 0;
        const uint8_t byte = bytes[at];
        if (left == 0 && byte >= 0xC0) {
            if (at + 2 > len)
                return 0;
            const uint32_t target = weir_be16(bytes + at) & 0x3FFF;
            if (target >= lowest)
                return 0;
            if (end == 0)
                end = at + 2;
            at = lowest = target;
            continue;
        }
        if (out >= NAME_BYTES || (left == 0 && byte > 63))
            return 0;
        name->wire[out++] = byte;
        at++;
        if (left != 0) {
            left--;
        } else if (byte == 0) {
            name->len = out;
            return end != 0 ? end : at;
        } else {
            left = byte;
        }
    }
    return 0;
}

/* Reads a name. Returns its end in the message, or 0 if it is no valid name. */
static __attribute__((noinline)) uint32_t read_name(const uint8_t *bytes, uint32_t len, uint32_t at, struct name *name)
{
    uint32_t next = at;
    for (uint32_t labels = 0; labels < LABELS_MAX && next < len && bytes[next] != 0 && bytes[next] < 64; labels++)
        next += 1u + bytes[next];
    if (next >= len)
        return 0;
    if (bytes[next] != 0)
        return read_compressed(bytes, len, at, name);
    const uint32_t count = next + 1 - at;
    if (count - 1 >= NAME_BYTES)
        return 0;
    copy_name(name->wire, bytes + at, count);
    name->len = count;
    return next + 1;
}

/* Writes a name of the message as text, without a copy. Each step writes a byte or follows a pointer, and both count towards the
 * longest name. Returns the end of the text, and the end of the name in the message; NULL if it is no valid name. */
static __attribute__((noinline)) uint8_t *put_message_name(uint8_t *to, const uint8_t *bytes, uint32_t len, uint32_t at, uint32_t *name_end)
{
    uint32_t end = 0, left = 0, lowest = at;
    const uint8_t *begin = to;
    for (uint32_t step = 0; step < NAME_BYTES + 1 && at < len; step++) {
        const uint32_t byte = bytes[at];
        if (left != 0) {
            left--;
            to = put_escaped(to, (uint8_t)byte);
        } else if (byte >= 0xC0) {
            if (at + 2 > len)
                return NULL;
            const uint32_t target = weir_be16(bytes + at) & 0x3FFF;
            if (target >= lowest)
                return NULL;
            end = end != 0 ? end : at + 2;
            at = lowest = target;
            continue;
        } else if (byte > 63) {
            return NULL;
        } else if (byte == 0) {
            *name_end = end != 0 ? end : at + 1;
            if (to == begin)
                *to++ = '.';
            return to;
        } else {
            if (to != begin)
                *to++ = '.';
            left = byte;
        }
        at++;
    }
    return NULL;
}

/* Marks the place where a message ends too early. */
static void set_incomplete(struct message *m)
{
    if (m->len < m->wire_len)
        m->is_cut = true;
    else
        m->is_malformed = true;
}

/* Reads the questions. Returns the offset behind them, or 0. */
static __attribute__((noinline)) uint32_t read_questions(struct message *m)
{
    const uint8_t *bytes = m->bytes;
    uint32_t at = read_name(bytes, m->len, HEADER_BYTES, &m->name);
    if (at == 0 || at + 4 > m->len)
        return 0;
    m->has_name = m->has_question = true;
    m->type = weir_be16(bytes + at);
    at += 4;
    if (WEIR_LIKELY(m->questions == 1))
        return at;
    uint8_t *to = m->more;
    for (uint32_t i = 1; i < m->questions; i++) {
        if (i > MORE_QUESTIONS_MAX || to > m->more + MORE_BYTES) {
            /* The others and the records behind them are not read. */
            to = PUT(to, "; ...");
            m->is_cut = true;
            at = 0;
            break;
        }
        uint8_t *begin = to;
        if (i != 1)
            to = PUT(to, "; ");
        uint8_t *name_end = put_message_name(to, bytes, m->len, at, &at);
        if (name_end == NULL || at + 4 > m->len) {
            set_incomplete(m);
            to = begin;
            at = 0;
            break;
        }
        to = put_type(put_byte(name_end, ' '), weir_be16(bytes + at));
        at += 4;
    }
    m->more_len = (uint32_t)(to - m->more);
    return at;
}

/* A record whose data lie within the message. */
struct record {
    uint32_t data;
    uint16_t len, type;
};

/* Reads the records from `at` on, and returns the number of answers that become text. OPT has EDNS. */
static __attribute__((noinline)) uint32_t read_records(struct message *m, uint32_t at, struct record answers[ANSWERS_MAX])
{
    const uint8_t *bytes = m->bytes;
    const uint32_t len = m->len, before_additionals = (uint32_t)m->answers + m->authorities, total = before_additionals + m->additionals;
    uint32_t count = 0, records = 0;
    /* Each step skips a label of an owner's name, or reads a record. */
    for (uint32_t step = 0; step < STEPS_MAX && records < total; step++) {
        if (at >= len) {
            set_incomplete(m);
            break;
        }
        const uint32_t byte = bytes[at];
        if (byte != 0 && byte < 64) {
            at += 1 + byte;
            continue;
        }
        at += byte == 0 ? 1 : 2;
        if ((byte != 0 && byte < 0xC0) || at + 10 > len) {
            set_incomplete(m);
            break;
        }
        const uint16_t type = weir_be16(bytes + at), data_len = weir_be16(bytes + at + 8);
        if (type == TYPE_OPT && records >= before_additionals) {
            m->has_edns = true;
            m->edns_bytes = weir_be16(bytes + at + 2);
            m->code |= (uint32_t)bytes[at + 4] << 4;
            m->dnssec_ok = (bytes[at + 6] & 0x80) != 0;
        }
        at += 10;
        if (data_len > len - at) {
            set_incomplete(m);
            break;
        }
        if (records < m->answers && records < ANSWERS_MAX) {
            answers[records] = (struct record){ .data = at, .len = data_len, .type = type };
            count = records + 1;
        }
        at += data_len;
        records++;
        if (records == total)
            return count;
    }
    if (!m->is_malformed && records < total)
        m->is_cut = true;
    return count;
}

/* Writes the data of a record but for the numbers of a SOA and its second name, which begins at `next`. Returns the end of the text, or
 * NULL if the data contradict their length. */
static __attribute__((noinline)) uint8_t *put_record(uint8_t *to, const uint8_t *bytes, const struct record *record, uint32_t *next)
{
    const uint8_t *data = bytes + record->data;
    const uint32_t data_len = record->len;
    uint32_t numbers = 0;
    switch (record->type) {
    case TYPE_A: return data_len != 4 ? NULL : put_ipv4(put_byte(to, ' '), data);
    case TYPE_AAAA: return data_len != 16 ? NULL : put_ipv6(put_byte(to, ' '), data);
    case TYPE_TXT:
    case TYPE_SPF: return put_strings(to, data, data_len);
    case TYPE_NS:
    case TYPE_CNAME:
    case TYPE_PTR:
    case TYPE_DNAME:
    case TYPE_SOA: break;
    case TYPE_MX:
    case TYPE_SVCB:
    case TYPE_HTTPS: numbers = 1; break;
    case TYPE_SRV: numbers = 3; break;
    default: return to;
    }
    if (data_len < 2 * numbers)
        return NULL;
    for (uint32_t i = 0; i < numbers && i < 3; i++)
        to = put_small(put_byte(to, ' '), weir_be16(data + 2 * i));
    const uint32_t end = record->data + data_len;
    to = put_message_name(put_byte(to, ' '), bytes, end, record->data + 2 * numbers, next);
    return to;
}

/* Writes the records of the answer section. */
static __attribute__((noinline)) void put_answers(struct message *m, const struct record answers[ANSWERS_MAX], uint32_t count)
{
    uint8_t *to = m->answers_text;
    const uint8_t *full = m->answers_text + ANSWERS_BYTES;
    uint8_t *begin = to;
    uint32_t shown = 0, second = 0; /* offset of the second name of a SOA, which takes a turn of its own */
    for (uint32_t turn = 0; turn < param_answers_max() && turn < ANSWERS_MAX && shown < count; turn++) {
        const struct record *record = &answers[shown & (ANSWERS_MAX - 1)];
        uint8_t *next_to;
        uint32_t next = 0;
        if (WEIR_LIKELY(second == 0)) {
            begin = to;
            if (shown != 0)
                to = PUT(to, "; ");
            next_to = put_record(put_type(to, record->type), m->bytes, record, &next);
            if (record->type == TYPE_SOA && next_to != NULL) {
                to = next_to;
                second = next;
                continue;
            }
        } else {
            const uint32_t end = record->data + record->len;
            next_to = put_message_name(put_byte(to, ' '), m->bytes, end, second, &next);
            second = 0;
            if (next_to == NULL || end - next < 20) {
                next_to = NULL;
            } else {
                for (uint32_t i = 0; i < 5; i++)
                    next_to = put_number(put_byte(next_to, ' '), weir_be32(m->bytes + next + 4 * i));
            }
        }
        if (next_to == NULL || (next_to > full && shown != 0)) {
            m->is_malformed |= next_to == NULL;
            to = begin;
            break;
        }
        to = next_to;
        if (to > full) {
            /* One long record: its text is cut. */
            to = m->answers_text + ANSWERS_BYTES;
            break;
        }
        shown++;
    }
    if (shown < m->answers) {
        if (shown != 0)
            to = PUT(to, "; ");
        to = PUT(to, "...");
    }
    m->answers_len = (uint32_t)(to - m->answers_text);
}

/* Reads a message. Returns false if it is no DNS: a header or first question that cannot be. */
static __attribute__((noinline)) bool read_message(struct message *m)
{
    if (m->len < HEADER_BYTES)
        return false;
    const uint8_t *bytes = m->bytes;
    m->id = weir_be16(bytes);
    m->flags = weir_be16(bytes + 2);
    m->questions = weir_be16(bytes + 4);
    m->answers = weir_be16(bytes + 6);
    m->authorities = weir_be16(bytes + 8);
    m->additionals = weir_be16(bytes + 10);
    m->code = m->flags & 15;
    m->has_name = m->has_question = m->is_cut = m->is_malformed = m->has_edns = m->dnssec_ok = false;
    m->more_len = m->answers_len = m->edns_bytes = m->type = 0;
    m->name.len = 0;
    const uint32_t opcode = opcode_of(m->flags);
    if (opcode > 6 || opcode == 3)
        return false;
    /* The shortest question has 5 bytes, the shortest record 11: counts that the message has no room for are no DNS. */
    const uint32_t records = (uint32_t)m->answers + m->authorities + m->additionals;
    if (5u * m->questions + 11u * records > m->wire_len - HEADER_BYTES)
        return false;
    uint32_t at = HEADER_BYTES;
    if (m->questions != 0) {
        at = read_questions(m);
        if (!m->has_question)
            return false;
    } else if (!is_answer(m->flags) && records == 0) {
        return false;
    }
    m->is_cut |= m->len < m->wire_len;
    struct record answers[ANSWERS_MAX];
    uint32_t count = 0;
    if (records != 0 && at != 0)
        count = read_records(m, at, answers);
    if (!is_answer(m->flags))
        return true;
    if (WEIR_UNLIKELY(!m->has_name) && count != 0) {
        /* An announcement of mDNS, or a refusal: the first record says what it is about. */
        m->has_name = read_name(bytes, m->len, HEADER_BYTES, &m->name) != 0;
        m->type = answers[0].type;
    }
    put_answers(m, answers, count);
    return true;
}

#endif
