/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * dscp-mark: sets the differentiated services code point (RFC 2474) of packets from a source prefix, and leaves the two ECN
 * bits (RFC 3168) as they are. weir updates the IPv4 header checksum; IPv6 has none.
 */
#include "weir.h"
#include "module.h"

static struct weir_prefix source;
static uint32_t dscp;
static uint64_t matched, marked, already, refused;

/* Out of line, so that packets outside the prefix pass without touching the shadow stack. */
static __attribute__((noinline)) void mark(const struct weir_packet *p)
{
    matched++;
    const uint32_t tos = dscp << 2 | (p->tos & 3u);
    if (tos == p->tos) {
        already++;
        return;
    }
    int32_t code;
    if (p->flags & WEIR_IPV4) {
        const uint8_t bytes[1] = { (uint8_t)tos };
        code = weir_patch(p, p->l3_offset + 1u, bytes, sizeof bytes);
    } else {
        /* The traffic class lies across two bytes, between the version and the flow label. */
        const uint8_t *ip = weir_l3(p);
        const uint8_t bytes[2] = { (uint8_t)((ip[0] & 0xF0) | tos >> 4), (uint8_t)((tos << 4 & 0xF0) | (ip[1] & 0x0F)) };
        code = weir_patch(p, p->l3_offset, bytes, sizeof bytes);
    }
    if (code >= 0)
        marked++;
    else
        refused++;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    uint8_t value[17];
    if (param_source(value, sizeof value) != sizeof value)
        return 1;
    source = weir_prefix_of(value);
    dscp = (uint32_t)param_dscp();
    return dscp > 63;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (weir_is_ip(p) && weir_prefix_has(&source, weir_src(p)))
        mark(p);
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct totals_row row = {
        .matched_packets = matched,
        .marked_packets = marked,
        .already_packets = already,
        .refused_packets = refused,
    };
    emit_totals(&row);
}
