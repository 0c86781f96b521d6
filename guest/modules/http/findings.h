/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Findings about requests, responses and servers, and their limits.
 */
#ifndef HTTP_FINDINGS_H
#define HTTP_FINDINGS_H

#include "exchange.h"
#include "module.h"

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

#endif
