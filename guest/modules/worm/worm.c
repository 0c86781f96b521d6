/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * worm: searches TCP payloads for a list of signatures and records sender and receiver of each match (FLAME, 3.1). The search itself
 * is the host's. Each packet is searched alone: a signature that is split over two segments is not found.
 */
#include "weir.h"
#include "module.h"

enum { LIST_MAX = WEIR_PATTERN_BYTES + 4 * WEIR_PATTERNS };

static uint8_t list[LIST_MAX];
static uint32_t list_len;
static struct weir_str texts[WEIR_PATTERNS];
static int32_t handle;
static uint32_t shortest; /* bytes of the shortest signature */
static bool is_outer;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    list_len = (uint32_t)param_signatures(list, sizeof list);
    if (list_len > sizeof list) {
        WEIR_LOG(WEIR_ERROR, "signatures: at most 1024, 64 KiB together");
        return 1;
    }
    uint32_t count = 0;
    shortest = UINT32_MAX;
    for (uint32_t at = 0; at + 4 <= list_len && count < WEIR_PATTERNS; count++) {
        const uint32_t len = weir_le32(list + at);
        if (len == 0 || len > list_len - at - 4) {
            WEIR_LOG(WEIR_ERROR, "signatures: one is empty");
            return 1;
        }
        texts[count] = weir_string(list + at + 4, len);
        shortest = len < shortest ? len : shortest;
        at += 4 + len;
    }
    if (count == 0) {
        WEIR_LOG(WEIR_ERROR, "signatures: give at least one");
        return 1;
    }
    handle = weir_find_compile(list, list_len, param_ignore_case() ? WEIR_FIND_IGNORE_CASE : 0);
    if (handle < 0) {
        WEIR_LOG(WEIR_ERROR, "signatures: they could not be compiled");
        return 1;
    }
    return 0;
}

/* Connections with a finding, in places found by the top bits of the flow hash: instances that share the flows by those bits
 * never share a place, so that the findings do not depend on how many instances there are. */
enum { REPORTED_BITS = 12 };
static uint64_t reported[1 << REPORTED_BITS]; /* flow hash | 1 */

/* Returns true if the packet's connection has no finding yet, or the place was taken by another connection since; and marks it. */
static bool is_first_of_connection(const struct weir_packet *p)
{
    uint64_t *place = &reported[p->flow_hash >> (64 - REPORTED_BITS)];
    const uint64_t key = p->flow_hash | 1;
    const bool is_first = *place != key;
    *place = key;
    return is_first;
}

/* Reports the first match of a connection as a finding. `outer` is the packet as its outermost IP header describes it. */
static __attribute__((noinline)) void report_connection(const struct weir_packet *p, const struct weir_packet *outer)
{
    const struct weir_ip src = weir_src(p), dst = weir_dst(p);
    struct weir_text text = WEIR_TEXT, filter = WEIR_TEXT;
    WEIR_ADD(&text, "Signature of a worm in packet of ");
    weir_add_ip(&text, src);
    WEIR_ADD(&text, " to ");
    weir_add_ip(&text, dst);
    WEIR_ADD(&text, ", port ");
    weir_add_number(&text, p->dst_port);
    /* A filter cannot look into a tunnel. There it selects the packets between the tunnel's ends. */
    const bool is_plain = p == outer;
    weir_add_encapsulation(&filter, p);
    if (is_plain)
        WEIR_ADD(&filter, "tcp and ");
    WEIR_ADD(&filter, "host ");
    weir_add_ip(&filter, is_plain ? src : weir_src(outer));
    WEIR_ADD(&filter, " and host ");
    weir_add_ip(&filter, is_plain ? dst : weir_dst(outer));
    if (is_plain) {
        WEIR_ADD(&filter, " and port ");
        weir_add_number(&filter, p->src_port);
        WEIR_ADD(&filter, " and port ");
        weir_add_number(&filter, p->dst_port);
    }
    const struct findings_row row = {
        .time = p->ts_ns,
        .severity = WEIR_HIGH,
        .text = weir_text_string(&text),
        .filter = weir_text_string(&filter),
        .evidence = weir_string("hits", sizeof "hits" - 1),
    };
    emit_findings(&row);
}

/* Reports the match in `len` bytes of payload, and those that follow it without overlap. */
static __attribute__((noinline)) void report(const struct weir_packet *p, const struct weir_packet *outer, uint32_t len, int64_t found)
{
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = weir_community_id(p, 0, community_id);
    struct hits_row row = {
        .time = p->ts_ns,
        .src_port = p->src_port,
        .dst_port = p->dst_port,
        .vlan = weir_vlan(p),
        .has_vlan = (p->flags & WEIR_VLAN) != 0,
        .tunnel = weir_tunnel_name(is_outer ? WEIR_TUNNEL_NONE : p->tunnel),
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
    };
    weir_ip_src(p, row.src);
    weir_ip_dst(p, row.dst);
    if (is_first_of_connection(p))
        report_connection(p, outer);
    const uint8_t *payload = weir_payload(p);
    const uint32_t hits_most = (uint32_t)param_hits_per_packet();
    uint32_t searched = 0;
    for (uint32_t hits = 1;; hits++) {
        row.signature = weir_found_pattern(found);
        row.text = texts[row.signature % WEIR_PATTERNS];
        row.offset_bytes = searched + weir_found_offset(found);
        emit_hits(&row);
        searched = row.offset_bytes + row.text.len;
        if (hits >= hits_most || searched > len || len - searched < shortest)
            return;
        found = weir_find(handle, payload + searched, len - searched);
        if (found < 0)
            return;
    }
}

WEIR_INLINE bool is_tcp(const struct weir_packet *p) { return (p->flags & (WEIR_TCP | WEIR_L4)) == (WEIR_TCP | WEIR_L4); }

/* Searches `len` bytes of payload. */
WEIR_INLINE void search(const struct weir_packet *p, const struct weir_packet *outer, uint32_t len)
{
    if (len < shortest)
        return;
    const int64_t found = weir_find(handle, weir_payload(p), len);
    if (WEIR_UNLIKELY(found >= 0))
        report(p, outer, len, found);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    /* The captured length gives the cost of the search a limit that weir knows. */
    if (is_tcp(q))
        search(q, p, q->payload_len < p->cap_len ? q->payload_len : p->cap_len);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* No tunnel is carried over TCP, so most packets need no test for one. */
    if (is_tcp(p))
        search(p, p, p->payload_len);
    else if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    return WEIR_PASS;
}
