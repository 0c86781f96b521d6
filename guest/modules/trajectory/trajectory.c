/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * trajectory: trajectory sampling (N. Duffield, M. Grossglauser, "Trajectory sampling for direct traffic observation", IEEE/ACM
 * ToN 9(3), 2001; FLAME, 3.1). A packet is sampled if a hash over its invariant content is below a threshold: so the same
 * packets are sampled at every place where they pass, and the hash tells which they are.
 *
 * Invariant content is what no router changes on the way:
 *   IPv4   total length, identification, flags and fragment offset, protocol, addresses
 *          (not: TTL, header checksum, DSCP and ECN, header length and options)
 *   IPv6   payload length, protocol above the extension headers, addresses
 *          (not: hop limit, traffic class, flow label)
 *   both   the first CONTENT_BYTES bytes after the IP header: the transport header and the begin of the payload. For IPv6 with
 *          the extension headers skipped, where the transport header was captured.
 * and nothing of the link layer, its padding included.
 */
#include "weir.h"
#include "module.h"

enum { CONTENT_BYTES = 40, WAYS = 4 };

static uint64_t packet_seed, flow_seed;
static uint64_t most; /* packets whose hash is at most this are sampled */

/* Labels of flows that have been reported, in sets found by the top bits of the flow hash: instances that share the flows by those
 * bits never share a set. Within a set they are in the order of their last use. */
static uint64_t (*labels)[WAYS];
static uint32_t set_shift;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint64_t one_in = param_one_in(), seed = param_seed(), entries = param_table_size();
    if (one_in == 0)
        return 1;
    most = UINT64_MAX / one_in;
    packet_seed = weir_hash64(seed, 1);
    flow_seed = weir_hash64(seed, 2);
    uint32_t set_bits = 6;
    while (((uint64_t)WAYS << set_bits) < entries)
        set_bits++;
    set_shift = 64 - set_bits;
    labels = weir_alloc((uint32_t)sizeof *labels << set_bits);
    if (labels == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* What a packet has after its IP header: bytes from `begin` on (offset in the packet), at most CONTENT_BYTES. */
static inline uint32_t content_len(const struct weir_packet *p, uint32_t begin, uint32_t ip_end)
{
    const uint32_t end = ip_end < p->cap_len ? ip_end : p->cap_len;
    const uint32_t len = begin < end ? end - begin : 0;
    return len < CONTENT_BYTES ? len : CONTENT_BYTES;
}

static inline uint64_t packet_hash(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    /* Two running hashes, so that a packet's words need not wait for each other. */
    uint64_t a, b;
    uint32_t begin, ip_end;
    if (WEIR_LIKELY(p->flags & WEIR_IPV4)) {
        const uint32_t total = weir_be16(ip + 2);
        /* Total length, identification, flags and fragment offset; protocol. */
        a = weir_hash_add(packet_seed, weir_le32(ip + 2) | (uint64_t)weir_le16(ip + 6) << 32 | (uint64_t)ip[9] << 48);
        b = weir_hash_add(~packet_seed, weir_le64(ip + 12));
        begin = p->l3_offset + (uint32_t)(ip[0] & 15) * 4;
        /* Length 0: left to the network card (segmentation offload), so the packet's own length counts. */
        ip_end = total != 0 ? p->l3_offset + total : p->cap_len;
    } else {
        const uint32_t payload = weir_be16(ip + 4);
        a = weir_hash_add(packet_seed, weir_le16(ip + 4) | (uint64_t)p->ip_proto << 48);
        b = weir_hash_add(~packet_seed, weir_le64(ip + 8));
        a = weir_hash_add(a, weir_le64(ip + 16));
        b = weir_hash_add(b, weir_le64(ip + 24));
        a = weir_hash_add(a, weir_le64(ip + 32));
        begin = (p->flags & WEIR_L4) ? p->l4_offset : p->l3_offset + 40u;
        ip_end = payload != 0 ? p->l3_offset + 40u + payload : p->cap_len;
    }
    const uint8_t *at = weir_bytes(p) + begin;
    const uint32_t len = content_len(p, begin, ip_end);
    if (WEIR_LIKELY(len == CONTENT_BYTES)) {
        a = weir_hash_add(a, weir_le64(at));
        b = weir_hash_add(b, weir_le64(at + 8));
        a = weir_hash_add(a, weir_le64(at + 16));
        b = weir_hash_add(b, weir_le64(at + 24));
        a = weir_hash_add(a, weir_le64(at + 32));
    } else {
        uint32_t i = 0;
        for (; i + 8 <= len; i += 8)
            a = weir_hash_add(a, weir_le64(at + i));
        /* The last word ends with the last byte; what it holds of the IP header is shifted out. */
        if (i < len)
            b = weir_hash_add(b, weir_le64(at + len - 8) >> (8 * (8 - (len - i))));
    }
    return weir_hash_end(weir_hash_add(a, b));
}

/* Whether the label is new to its set; it is the most recent one afterwards. */
static bool is_new(uint64_t label, uint64_t flow_hash)
{
    uint64_t *set = labels[flow_hash >> set_shift];
    uint32_t way = 0;
    while (way < WAYS - 1 && set[way] != label)
        way++;
    const bool found = set[way] == label;
    for (; way > 0; way--)
        set[way] = set[way - 1];
    set[0] = label;
    return !found;
}

static __attribute__((noinline)) void sample(const struct weir_packet *p, uint64_t hash)
{
    const struct weir_ip src = weir_src(p), dst = weir_dst(p);
    /* Later fragments have no ports, so none of a datagram's fragments counts with them. */
    const bool ports = (p->flags & WEIR_FRAGMENT) == 0;
    const uint16_t src_port = ports ? p->src_port : 0, dst_port = ports ? p->dst_port : 0;

    uint64_t label = weir_hash_add(flow_seed, (uint64_t)p->ip_proto << 32 | (uint32_t)src_port << 16 | dst_port);
    label = weir_hash_add(weir_hash_add(label, src.first), src.last);
    label = weir_hash_end(weir_hash_add(weir_hash_add(label, dst.first), dst.last));
    label += label == 0; /* 0 marks a free entry */

    if (is_new(label, p->flow_hash)) {
        struct flows_row row = {
            .time = p->ts_ns,
            .flow = label,
            .source_port = src_port,
            .destination_port = dst_port,
            .protocol = p->ip_proto,
        };
        weir_ip_store(row.source, src);
        weir_ip_store(row.destination, dst);
        emit_flows(&row);
    }
    const struct samples_row row = { .time = p->ts_ns, .packet = hash, .flow = label, .wire_len = p->wire_len };
    emit_samples(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ip(p))
        return WEIR_PASS;
    const uint64_t hash = packet_hash(p);
    if (WEIR_UNLIKELY(hash <= most))
        sample(p, hash);
    return WEIR_PASS;
}
