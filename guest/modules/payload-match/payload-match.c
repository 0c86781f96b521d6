/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * payload-match: looks for a string in a range of bytes of each TCP payload (Diet-OKE, section 5: "/bin/" in bytes 2-18).
 * Each packet is searched alone: a string that is split over two segments is not found.
 */
#include "weir.h"
#include "module.h"

enum { NEEDLE_MAX = 256 };

static uint8_t needle[NEEDLE_MAX];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
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
        .community_id = weir_string(community_id, id_len),
        .has_community_id = id_len != 0,
        .offset_bytes = offset,
    };
    weir_ip_src(p, row.src);
    weir_ip_dst(p, row.dst);
    emit_matches(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* Parameters are constants where they are read, so that the cost of the search is bounded. */
    const uint32_t first = (uint32_t)param_first(), end = (uint32_t)param_last() + 1, needle_len = param_needle(NULL, 0);
    if ((p->flags & (WEIR_TCP | WEIR_L4)) != (WEIR_TCP | WEIR_L4) || p->payload_len < first + needle_len)
        return WEIR_PASS;
    const uint32_t stop = p->payload_len < end ? p->payload_len : end;
    const int32_t found = weir_find_short(weir_payload(p) + first, stop - first, needle, needle_len);
    if (WEIR_UNLIKELY(found >= 0))
        report(p, first + (uint32_t)found);
    return WEIR_PASS;
}
