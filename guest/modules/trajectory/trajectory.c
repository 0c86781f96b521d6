/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * trajectory: trajectory sampling (N. Duffield, M. Grossglauser, "Trajectory sampling for direct traffic observation", IEEE/ACM
 * ToN 9(3), 2001; FLAME, 3.1). A packet is sampled if a hash over its invariant content is below a threshold: so the same
 * packets are sampled at every place where they pass, and the hash identifies them.
 *
 * Invariant content is content that no router changes:
 *   IPv4   total length, identification, flags and fragment offset, protocol, addresses
 *          (not: TTL, header checksum, DSCP and ECN, header length and options)
 *   IPv6   payload length, protocol above the extension headers, addresses
 *          (not: hop limit, traffic class, flow label)
 *   both   the first CONTENT_BYTES bytes after the IP header: the transport header and the begin of the payload. For IPv6 with
 *          the extension headers skipped, where the transport header was captured.
 * and nothing of the link layer, its padding included. In a tunnel it is that of the packet inside, so that the packet is sampled
 * before, in and behind the tunnel.
 */
#include "weir.h"
#include "module.h"

enum { CONTENT_BYTES = 40, WAYS = 4 };

static uint64_t packet_seed, flow_seed;
static bool is_outer;
static uint64_t most; /* packets whose hash is at most this are sampled */

/* Labels of flows that have been reported, in sets found by the top bits of the flow hash: instances that share the flows by those
 * bits never share a set. Within a set they are in the order of their last use. */
static uint64_t (*labels)[WAYS];
static uint32_t set_shift;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    is_outer = param_layer() == PARAM_layer_outer;
    const uint64_t one_in = param_one_in(), seed = param_seed();
    if (one_in == 0)
        return 1;
    most = UINT64_MAX / one_in;
    packet_seed = weir_hash64(seed, 1);
    flow_seed = weir_hash64(seed, 2);
    /* As many sets as the entries need, rounded up to a power of two. */
    const uint32_t set_bits = 64 - (uint32_t)__builtin_clzll((param_table_size() - 1) / WAYS);
    set_shift = 64 - set_bits;
    labels = weir_alloc((uint32_t)sizeof *labels << set_bits);
    if (labels == NULL) {
        WEIR_LOG(WEIR_ERROR, "no memory for a table of this size");
        return 1;
    }
    return 0;
}

/* Two running hashes over the IP header, so that a packet's words need not wait for each other; and the begin and the end of the
 * bytes after it, as offsets in the packet. */
struct content {
    uint64_t a, b;
    uint32_t begin, end;
};

/* weir_hash_add leaves a change of a word's highest bits in a pattern that a rotation by 32 bits does not change: one by 16 keeps
 * the same change in `a` apart from that in `b`. */
static inline uint64_t end_hash(uint64_t a, uint64_t b, uint32_t len)
{
    return weir_hash_end(a ^ (b << 16 | b >> 48) ^ len);
}

/* Rotates words that can overlap the one before, so that a byte is not in the same half of both. */
static inline uint64_t rotated(uint64_t word)
{
    return word << 20 | word >> 44;
}

/* Adds `len` bytes, 16 to CONTENT_BYTES: five words that overlap where there are fewer than 40, and so no loop. */
static inline uint64_t with_bytes(struct content c, const uint8_t *at, uint32_t len)
{
    const uint8_t *last = at + len - 8;
    const uint8_t *middle = len < 24 ? last : at + 16;
    c.a = weir_hash_add(c.a, weir_le64(at));
    c.b = weir_hash_add(c.b, weir_le64(at + 8));
    c.a = weir_hash_add(c.a, weir_le64(middle));
    c.b = weir_hash_add(c.b, rotated(weir_le64(last - 8)));
    c.a = weir_hash_add(c.a, rotated(weir_le64(last)));
    return end_hash(c.a, c.b, len);
}

/* Adds fewer bytes. The last word ends with the last byte; its bytes of the IP header are shifted out. */
static uint64_t with_few_bytes(struct content c, const uint8_t *at, uint32_t len)
{
    const uint32_t rest = len % 8;
    if (len >= 8)
        c.a = weir_hash_add(c.a, weir_le64(at));
    if (rest != 0)
        c.b = weir_hash_add(c.b, weir_le64(at + len - 8) >> (8 * (8 - rest)));
    return end_hash(c.a, c.b, len);
}

static inline uint64_t with_any_bytes(const struct weir_packet *p, struct content c)
{
    const uint32_t end = c.end < p->cap_len ? c.end : p->cap_len;
    const uint32_t all = c.begin < end ? end - c.begin : 0;
    const uint32_t len = all < CONTENT_BYTES ? all : CONTENT_BYTES;
    const uint8_t *at = weir_bytes(p) + c.begin;
    return len >= 16 ? with_bytes(c, at, len) : with_few_bytes(c, at, len);
}

static inline struct content content_v4(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    /* Total length, identification, flags and fragment offset, and protocol: between the last two lies the TTL. */
    const uint64_t word = weir_le64(ip + 2) & UINT64_C(0xFF00FFFFFFFFFFFF);
    return (struct content){
        .a = weir_hash_add(packet_seed, word),
        .b = weir_hash_add(~packet_seed, weir_le64(ip + 12)),
        .begin = p->l3_offset + (uint32_t)(ip[0] & 15) * 4,
        .end = p->l3_offset + (uint32_t)__builtin_bswap16((uint16_t)word),
    };
}

static inline struct content content_v6(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    struct content c = {
        .a = weir_hash_add(packet_seed, weir_le16(ip + 4) | (uint64_t)p->ip_proto << 56),
        .b = weir_hash_add(~packet_seed, weir_le64(ip + 8)),
        .begin = (p->flags & WEIR_L4) ? p->l4_offset : p->l3_offset + 40u,
        .end = p->l3_offset + 40u + weir_be16(ip + 4),
    };
    c.a = weir_hash_add(c.a, weir_le64(ip + 16));
    c.b = weir_hash_add(c.b, weir_le64(ip + 24));
    c.a = weir_hash_add(c.a, weir_le64(ip + 32));
    return c;
}

/* For all packets but the most frequent kind, which weir_packet handles itself. Out of line, so that weir_packet stays short. */
static __attribute__((noinline)) uint64_t hash_of_rare(const struct weir_packet *p)
{
    struct content c = (p->flags & WEIR_IPV4) ? content_v4(p) : content_v6(p);
    /* Length 0: a large segment that the network card was to cut, or a jumbogram. The captured length counts. */
    const uint32_t header = (p->flags & WEIR_IPV4) ? 0 : 40;
    if (c.end == p->l3_offset + header)
        c.end = p->cap_len;
    return with_any_bytes(p, c);
}

/* IPv4 with at least 16 bytes after the header, as almost all TCP and most UDP packets. */
static inline uint64_t hash_of(const struct weir_packet *p)
{
    if (WEIR_UNLIKELY((p->flags & WEIR_IPV4) == 0))
        return hash_of_rare(p);
    const struct content c = content_v4(p);
    const uint32_t end = c.end < p->cap_len ? c.end : p->cap_len;
    if (WEIR_UNLIKELY(end < c.begin + 16))
        return hash_of_rare(p);
    const uint32_t all = end - c.begin;
    return with_bytes(c, weir_bytes(p) + c.begin, all < CONTENT_BYTES ? all : CONTENT_BYTES);
}

/* Returns true if the label is new to its set, and makes it the most recent one. */
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
    const struct weir_str tunnel = weir_tunnel_name(is_outer ? WEIR_TUNNEL_NONE : p->tunnel);

    if (is_new(label, p->flow_hash)) {
        const bool has_ports = (src_port | dst_port) != 0;
        uint8_t community_id[WEIR_COMMUNITY_ID_BYTES];
        const uint32_t id_len = weir_community_id(p, 0, community_id);
        struct flows_row row = {
            .time = p->ts_ns,
            .flow = label,
            .src_port = src_port,
            .has_src_port = has_ports,
            .dst_port = dst_port,
            .has_dst_port = has_ports,
            .protocol = p->ip_proto,
            .vlan = weir_vlan(p),
            .has_vlan = (p->flags & WEIR_VLAN) != 0,
            .tunnel = tunnel,
            .community_id = weir_string(community_id, id_len),
            .has_community_id = id_len != 0,
        };
        weir_ip_store(row.src, src);
        weir_ip_store(row.dst, dst);
        emit_flows(&row);
    }
    const struct samples_row row = { .time = p->ts_ns, .packet = hash, .flow = label, .wire_bytes = p->wire_len, .tunnel = tunnel };
    emit_samples(&row);
}

/* A packet in a tunnel: out of line, as it needs room for a descriptor. */
static __attribute__((noinline)) void tunnelled(const struct weir_packet *p)
{
    struct weir_packet room;
    const struct weir_packet *q = weir_innermost(p, &room);
    const uint64_t hash = hash_of(q);
    if (hash <= most)
        sample(q, hash);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ip(p))
        return WEIR_PASS;
    if (WEIR_UNLIKELY(p->tunnel != WEIR_TUNNEL_NONE) && !is_outer) {
        tunnelled(p);
        return WEIR_PASS;
    }
    const uint64_t hash = hash_of(p);
    if (WEIR_UNLIKELY(hash <= most))
        sample(p, hash);
    return WEIR_PASS;
}
