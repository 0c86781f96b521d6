/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * payload-match: looks for a string in a range of bytes of each TCP payload (Diet-OKE, section 5: "/bin/" in bytes 2-18).
 * Each packet is searched alone: a string that is split over two segments is not found.
 */
#include "weir.h"
#include "module.h"

enum { NEEDLE_MAX = 256 };

static uint8_t needle[NEEDLE_MAX];
static bool is_outer;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    const uint64_t first = param_first(), last = param_last();
    const uint32_t needle_len = param_needle(needle, sizeof needle);
    if (needle_len == 0 || needle_len > NEEDLE_MAX) {
        WEIR_LOG(WEIR_ERROR, "needle: give 1 to 256 bytes");
        return 1;
    }
    if (last < first || last - first + 1 < needle_len) {
        WEIR_LOG(WEIR_ERROR, "first, last: the range is shorter than the needle");
        return 1;
    }
    return 0;
}

static __attribute__((noinline)) void report(const struct weir_packet *p, uint32_t offset)
{
    uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t id_len = weir_community_id(p, 0, community_id);
    struct matches_row row = {
        .time = p->ts_ns,
        .src_port = p->src_port,
        .dst_port = p->dst_port,
        .vlan = weir_vlan(p),
        .has_vlan = (p->flags & WEIR_VLAN) != 0,
        .tunnel = weir_tunnel_name(is_outer ? WEIR_TUNNEL_NONE : p->tunnel),
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .offset_bytes = offset,
    };
    weir_ip_src(p, row.src);
    weir_ip_dst(p, row.dst);
    emit_matches(&row);
}

WEIR_INLINE bool is_tcp(const struct weir_packet *p) { return (p->flags & (WEIR_TCP | WEIR_L4)) == (WEIR_TCP | WEIR_L4); }

/* Searches in `len` bytes of payload. */
WEIR_INLINE void search(const struct weir_packet *p, uint32_t len)
{
    /* Parameters are constants where they are read, so that the cost of the search is bounded. */
    const uint32_t first = (uint32_t)param_first(), end = (uint32_t)param_last() + 1, needle_len = param_needle(NULL, 0);
    if (len < first + needle_len)
        return;
    const uint32_t stop = len < end ? len : end;
    const int32_t found = weir_find_short(weir_payload(p) + first, stop - first, needle, needle_len);
    if (WEIR_UNLIKELY(found >= 0))
        report(p, first + (uint32_t)found);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    /* The captured length gives the cost of the search a limit that weir knows. */
    if (is_tcp(q))
        search(q, q->payload_len < p->cap_len ? q->payload_len : p->cap_len);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* No tunnel is carried over TCP, so most packets need no test for one. */
    if (is_tcp(p))
        search(p, p->payload_len);
    else if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer)
        tunnelled(p);
    return WEIR_PASS;
}
