/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A query with what is known of it, and its row.
 */
#ifndef DNS_TRANSACTION_H
#define DNS_TRANSACTION_H

#include "weir.h"
#include "module.h"
#include "message.h"

enum { SHARE_BITS = 6, SHARES = 1 << SHARE_BITS };

/* Losses in one share of the flows since its last row. Instances never share a share. */
struct losses {
    uint32_t evicted, rejected, skipped;
};
static struct losses losses[SHARES];

enum { KIND_DNS, KIND_MDNS, KIND_LLMNR };

/* A query: two cache lines, and the name. */
struct transaction {
    uint64_t first_ns, last_ns; /* of its packets */
    uint64_t flow;              /* flow hash */
    struct weir_ip client, server;
    uint32_t query_bytes;
    uint16_t client_port, server_port, id, type, questions, packets, flags, edns_bytes, vlan;
    uint16_t answers, authorities, additionals; /* of the query */
    uint8_t share, kind, tunnel, name_len, community_id_len, vlan_count, mpls_count;
    bool is_tcp : 1, is_pppoe : 1, has_question : 1, is_asked : 1, is_answered : 1, is_cut : 1, is_malformed : 1, has_edns : 1;
    bool dnssec_ok : 1, has_vlan : 1;
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    uint8_t name[NAME_BYTES + 9] __attribute__((aligned(8)));
};
_Static_assert(offsetof(struct transaction, name) <= 144 && sizeof(struct transaction) <= 448, "size of an entry");

static __attribute__((noinline)) uint8_t *put_flags(uint8_t *to, uint16_t flags)
{
    static const struct { uint16_t bit; char name[3]; } bits[] = {
        { 0x0400, "aa" }, { 0x0200, "tc" }, { 0x0100, "rd" }, { 0x0080, "ra" }, { 0x0020, "ad" }, { 0x0010, "cd" },
    };
    uint8_t *begin = to;
    for (uint32_t i = 0; i < sizeof bits / sizeof *bits; i++)
        if (flags & bits[i].bit) {
            if (to != begin)
                *to++ = ' ';
            *to++ = (uint8_t)bits[i].name[0];
            *to++ = (uint8_t)bits[i].name[1];
        }
    return to;
}

/* Emits the row of a query, with the message that is its answer, or with its own message, or with neither. */
static __attribute__((noinline)) void emit_row(const struct transaction *t, const struct message *m, uint64_t now)
{
    static uint8_t name[NAME_TEXT_BYTES + 4], type[TYPE_TEXT_BYTES + 4], flags[20];
    const bool has_answer = m != NULL && is_answer(m->flags);
    const uint16_t bits = has_answer ? m->flags : t->flags;
    const bool is_repeated = t->is_asked && has_answer && t->packets == 0;
    struct losses *lost = &losses[t->share % SHARES];
    const uint32_t name_len = t->name_len;
    struct queries_row row = {
        .time = t->is_asked && !is_repeated ? t->first_ns : now,
        .src_port = t->client_port,
        .dst_port = t->server_port,
        .transport = t->is_tcp ? weir_string("tcp", 3) : weir_string("udp", 3),
        .vlan = t->vlan,
        .has_vlan = t->has_vlan,
        .community_id = weir_string(t->community_id, t->community_id_len & 31),
        .has_community_id = t->community_id_len != 0,
        .tunnel = weir_tunnel_name(t->tunnel),
        .kind = t->kind == KIND_DNS ? weir_string("dns", 3) : t->kind == KIND_MDNS ? weir_string("mdns", 4) : weir_string("llmnr", 5),
        .id = t->id,
        .opcode = opcode_name(opcode_of(bits)),
        .has_name = name_len != 0,
        .has_type = name_len != 0,
        .questions = t->questions,
        .asked = t->is_asked,
        .answered = has_answer,
        .has_code = has_answer,
        .has_latency_ns = has_answer && t->is_asked && !is_repeated,
        .latency_ns = (int64_t)(now - t->first_ns),
        .query_packets = t->packets,
        .query_bytes = t->query_bytes,
        .truncated = has_answer && (bits & 0x0200) != 0,
        .edns_bytes = t->edns_bytes,
        .has_edns_bytes = t->has_edns,
        .dnssec_ok = t->dnssec_ok,
        .answer_count = t->answers,
        .authority_count = t->authorities,
        .additional_count = t->additionals,
        .cut = t->is_cut,
        .malformed = t->is_malformed,
        .evicted = lost->evicted,
        .rejected = lost->rejected,
        .skipped = lost->skipped,
    };
    *lost = (struct losses){ 0 };
    weir_ip_store(row.src, t->client);
    weir_ip_store(row.dst, t->server);
    if (name_len != 0) {
        row.name = weir_string(name, (uint32_t)(put_name(name, t->name, name_len) - name));
        row.type = weir_string(type, (uint32_t)(put_type(type, t->type) - type));
    }
    row.flags = weir_string(flags, (uint32_t)(put_flags(flags, bits) - flags));
    if (m != NULL) {
        row.has_more_questions = m->more_len != 0;
        row.more_questions = weir_string(m->more, m->more_len);
        row.answer_count = m->answers;
        row.authority_count = m->authorities;
        row.additional_count = m->additionals;
        row.cut |= m->is_cut;
        row.malformed |= m->is_malformed;
    }
    if (has_answer) {
        row.code = code_name(m->code);
        row.answer_bytes = m->wire_len;
        row.has_answers = 1;
        row.answers = weir_string(m->answers_text, m->answers_len);
    }
    emit_queries(&row);
}

#endif
