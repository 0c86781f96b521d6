/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * weir.h: everything that a weir module in C needs. Header only, C11, freestanding: no C library, no other header of ours
 * but "module.h", which `weir build` makes from the module's manifest (weir.toml).
 *
 * A module is a set of exported functions, and a manifest:
 *
 *     #include "weir.h"
 *     #include "module.h"
 *
 *     WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
 *     {
 *         if (p->tcp_flags & WEIR_TCP_SYN) { ... emit_openings(&row); }
 *         return WEIR_PASS;
 *     }
 *
 * weir calls these functions, in this order. weir_packet or weir_batch is mandatory, the others are optional.
 *
 * entry points: begin
 *     int32_t weir_start(void)
 *         once, before the first packet: read parameters, allocate tables, compile patterns
 *         returns 0; anything else (in Rust: false) refuses to run
 *     int32_t weir_packet(const struct weir_packet *p)
 *         for every packet, in the order of the capture
 *         returns PASS, or DROP
 *     uint64_t weir_batch(const struct weir_packet *p, uint64_t mask)
 *         instead of weir_packet: up to 64 packets at once; bit i of the mask says that p[i] is for this module
 *         returns the mask of the packets to drop
 *     int32_t weir_stream(const struct weir_stream *event)
 *         for every event of a TCP stream, after weir_packet for the packet that caused the event
 *         returns STREAM_CONTINUE, or a set of STREAM_DROP, STREAM_SKIP and STREAM_IGNORE
 *     void weir_tick(uint64_t now, uint64_t periods)
 *         when packet time has passed the end of a period; now is that end, and periods have ended since the last call
 *     void weir_lost(int32_t cause)
 *         before the next call after one that was lost, so that the module can clean up
 *     void weir_low_memory(uint64_t left)
 *         between two other calls, when little memory is left of its session's reservation
 *     void weir_serve(uint64_t call, uint32_t service, uint32_t len)
 *         when a module of another session calls a service of this module, with a message of len bytes
 *     void weir_answer(uint64_t ticket, int32_t status, uint32_t len)
 *         when a service that this module called has answered, with a message of len bytes, or the call has failed
 *     void weir_stop(uint64_t now)
 *         once, after the last packet, whose time stamp is now
 *     int32_t weir_rest(uint64_t now)
 *         after weir_stop, for rows that are too many for one call: again and again, at most 512 times
 *         returns 0 if no row is left; anything else (in Rust: true) asks for another call
 * entry points: end
 *
 * WEIR_EACH iterates over the packets of a batch. weir_message() copies the message of weir_serve and weir_answer; weir_reply() answers a call, in
 * weir_serve or later. When memory is low, stop growing, or reserve more (weir_reserve).
 *
 * Packets and descriptors are read in place and cannot be written. A bad access ends the call: that packet is lost for this
 * module, and the module goes on with the next. All time is packet time; there is no clock.
 *
 * This header states the same interface as the crate `weir-abi`; a test compares the two.
 *
 * The same source compiles natively, to compare speed (see "Native builds" below).
 */
#ifndef WEIR_H
#define WEIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_ABI_VERSION 2

/* ---- The classifier's results for a packet ------------------------------------------------------------------------ */

/* One packet: 128 bytes, written once by weir, read in place by every module. Offsets count from the first captured byte
 * (weir_bytes). "IP" is the outermost IP header after any VLAN tags, MPLS labels and PPPoE; tunnelled headers are payload,
 * and the fields from inner_flow_hash on describe the innermost IP header in tunnels. Most modules need only the first 64 bytes, a cache line. */
struct weir_packet {
    uint64_t ts_ns;          /* time stamp, ns since 1970-01-01 00:00 UTC */
    uint32_t data;           /* address of the first captured byte: use weir_bytes() */
    uint32_t cap_len;        /* bytes captured, readable from weir_bytes() on */
    uint32_t wire_len;       /* bytes that the packet had on the link */
    uint32_t flags;          /* WEIR_IPV4 ... */
    uint64_t flow_hash;      /* the same for both directions; for fragments over addresses and protocol only */
    uint16_t l3_offset;      /* IP header; with WEIR_IPV4 or WEIR_IPV6 */
    uint16_t l4_offset;      /* header above IP; with WEIR_L4 */
    uint16_t payload_offset; /* first byte above the TCP, UDP or ICMP header; with WEIR_L4 */
    uint16_t ether_type;     /* the last EtherType: 0x0800, 0x86DD, 0x0806, ...; 0 if there is none */
    uint32_t payload_len;    /* captured bytes from payload_offset on, without padding; with WEIR_L4 */
    uint16_t src_port;       /* TCP or UDP, host order; 0 where there is none */
    uint16_t dst_port;
    uint8_t ip_proto;        /* protocol above IP, after IPv6 extension headers; with WEIR_IPV4 or WEIR_IPV6 */
    uint8_t tcp_flags;       /* WEIR_TCP_SYN ...; 0 without WEIR_TCP, so that one test of it is enough */
    uint8_t ttl;             /* IPv4 time to live or IPv6 hop limit */
    uint8_t tos;             /* IPv4 type of service or IPv6 traffic class: DSCP << 2 | ECN */
    uint16_t vlan_tci;       /* outermost VLAN tag, host order; with WEIR_VLAN */
    uint16_t interface;      /* capture interface: 0 in pcap, its number in pcapng */
    uint16_t link_type;      /* LINKTYPE_..., as the tcpdump group numbers them */
    uint8_t vlan_count;      /* VLAN tags before IP */
    uint8_t mpls_count;      /* MPLS labels before IP */
    uint32_t number;         /* number of the packet in the capture, from 0; the lower 32 bits */
    uint64_t inner_flow_hash; /* as flow_hash, of the innermost packet in tunnels; where tunnel is not 0 */
    uint32_t stream;         /* reference to the packet's stream; 0, as there are no streams yet */
    uint32_t annotation;     /* offset of the packet's annotations in a graph; 0, as there are no graphs yet */
    uint16_t inner_offset;   /* the innermost IP header in tunnels; where tunnel is not 0 */
    uint8_t tunnel;          /* WEIR_TUNNEL_GRE ...: what carries that header; 0 without a tunnel, or without IP in it */
    uint8_t tunnel_count;    /* tunnels around that header, 0 to 4: no more are followed */
    uint32_t inner_flags;    /* WEIR_IPV4 ... of the packet with that header; where tunnel is not 0, as all that follow */
    uint16_t inner_l4_offset; /* its header above IP; where inner_flags has WEIR_L4 */
    uint16_t inner_payload_offset;
    uint32_t inner_payload_len;
    uint16_t inner_src_port;
    uint16_t inner_dst_port;
    uint8_t inner_ip_proto;
    uint8_t inner_tcp_flags;
    uint8_t inner_ttl;
    uint8_t inner_tos;
    uint32_t spare[6];       /* zeros */
};

_Static_assert(sizeof(struct weir_packet) == 128, "a descriptor is two cache lines");
_Static_assert(offsetof(struct weir_packet, data) == 8 && offsetof(struct weir_packet, flags) == 20, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, flow_hash) == 24 && offsetof(struct weir_packet, l3_offset) == 32, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, payload_len) == 40 && offsetof(struct weir_packet, src_port) == 44, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, ip_proto) == 48 && offsetof(struct weir_packet, vlan_tci) == 52, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, vlan_count) == 58 && offsetof(struct weir_packet, number) == 60, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, inner_flow_hash) == 64 && offsetof(struct weir_packet, stream) == 72, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, inner_offset) == 80 && offsetof(struct weir_packet, inner_flags) == 84, "descriptor layout");
_Static_assert(offsetof(struct weir_packet, inner_payload_len) == 92 && offsetof(struct weir_packet, spare) == 104, "descriptor layout");

/* An event of a TCP stream, for weir_stream: 128 bytes, read in place. A stream is a TCP connection as the host follows it for a
 * module with a table [tcp] in its manifest. Its number is below the manifest's `streams`, and no other stream has it between the
 * first event and the last (WEIR_STREAM_END). A stream without bytes, gaps or the end of a direction causes no event. */
struct weir_stream {
    uint64_t ts_ns;          /* packet time of the event */
    uint32_t data;           /* address of the bytes: use weir_stream_bytes() */
    uint32_t len;            /* number of bytes; 0 for all kinds but WEIR_STREAM_BYTES */
    uint32_t missing;        /* WEIR_STREAM_GAP: bytes that are missing; WEIR_STREAM_CONFLICT: bytes that differ */
    uint32_t stream;         /* number of the stream, from 0 */
    uint64_t flow_hash;      /* as in weir_packet, of the layer that the manifest chooses */
    uint64_t offset;         /* bytes of this direction before the event, gaps included */
    uint64_t first_ns;       /* time of the stream's first packet */
    uint8_t client[16];      /* address that sent the SYN, or without handshake the likely one; IPv4 as ::ffff:a.b.c.d */
    uint8_t server[16];
    uint16_t client_port;
    uint16_t server_port;
    uint8_t kind;            /* WEIR_STREAM_OPEN ... */
    uint8_t direction;       /* 0: from the client; 1: from the server; 0 for WEIR_STREAM_OPEN and WEIR_STREAM_END */
    uint8_t cause;           /* WEIR_STREAM_END: WEIR_END_FIN ... */
    uint8_t state;           /* WEIR_STREAM_SYN ... */
    uint8_t tunnel;          /* as in weir_packet; 0 with layer = "outer" */
    uint8_t ip_version;      /* 4 or 6 */
    uint16_t vlan_tci;       /* outermost VLAN tag of the packet that opened the stream; 0 without a tag */
    uint32_t spare[9];       /* zeros */
};

_Static_assert(sizeof(struct weir_stream) == 128 && offsetof(struct weir_stream, len) == 12, "event layout");
_Static_assert(offsetof(struct weir_stream, client) == 48 && offsetof(struct weir_stream, kind) == 84, "event layout");

/* Kinds of weir_stream. */
enum {
    WEIR_STREAM_OPEN = 1,     /* the first event of a stream, just before the first of another kind */
    WEIR_STREAM_BYTES = 2,    /* the next bytes of a direction, in order */
    WEIR_STREAM_GAP = 3,      /* bytes of a direction that were not captured, or that the view hides */
    WEIR_STREAM_FIN = 4,      /* the end of a direction: its FIN, after all bytes */
    WEIR_STREAM_CONFLICT = 5, /* a segment whose bytes differ from earlier ones at the same place */
    WEIR_STREAM_END = 6,      /* the last event of a stream */
};

/* Causes of WEIR_STREAM_END. */
enum {
    WEIR_END_FIN = 1,     /* both directions have ended */
    WEIR_END_RST = 2,
    WEIR_END_TIMEOUT = 3, /* no packet for the manifest's `idle` */
    WEIR_END_EVICTED = 4, /* another stream needed the place */
    WEIR_END_STOP = 5,    /* the module stops */
    WEIR_END_REUSED = 6,  /* a new connection has the same addresses and ports */
};

/* Bits of weir_stream.state. */
enum {
    WEIR_STREAM_SYN = 1,        /* the client's SYN was seen */
    WEIR_STREAM_SYN_ACK = 2,    /* the server's SYN was seen */
    WEIR_STREAM_TWO_SIDED = 4,  /* packets of both directions were seen */
};

/* Results of weir_stream, which can be combined. The last two concern events after this one. */
enum {
    WEIR_STREAM_CONTINUE = 0,
    WEIR_STREAM_DROP = 1,   /* the packet of the event is not written to the output */
    WEIR_STREAM_SKIP = 2,   /* no bytes, gaps and conflicts of this direction any more */
    WEIR_STREAM_IGNORE = 4, /* no event of this stream any more, also no WEIR_STREAM_END */
};

/* Bits of weir_packet.flags. */
enum {
    WEIR_IPV4 = 1 << 0,            /* IPv4, its fixed part is captured and consistent */
    WEIR_IPV6 = 1 << 1,            /* IPv6, its fixed part is captured */
    WEIR_TCP = 1 << 2,             /* TCP, and no later fragment */
    WEIR_UDP = 1 << 3,             /* UDP, and no later fragment */
    WEIR_ICMP = 1 << 4,            /* ICMP or ICMPv6, and no later fragment */
    WEIR_L4 = 1 << 5,              /* the header above IP is captured whole: l4_offset, payload_* and ports are valid */
    WEIR_FRAGMENT = 1 << 6,        /* part of a fragmented datagram: the first, or a later one */
    WEIR_LATER_FRAGMENT = 1 << 7,  /* not the first: there is no header above IP */
    WEIR_VLAN = 1 << 8,            /* at least one VLAN tag */
    WEIR_MPLS = 1 << 9,            /* at least one MPLS label */
    WEIR_PPPOE = 1 << 10,          /* a PPPoE session header */
    WEIR_CUT = 1 << 11,            /* fewer bytes captured than were on the link */
    WEIR_MALFORMED = 1 << 12,      /* a header contradicts itself or the packet's length */
    WEIR_OPTIONS = 1 << 13,        /* IPv4 options or IPv6 extension headers */
};

/* Values of weir_packet.tunnel. */
enum {
    WEIR_TUNNEL_NONE = 0,       /* no tunnel, or none with an IP packet in it */
    WEIR_TUNNEL_IP_IN_IP = 1,   /* IPv4 or IPv6 directly in IPv4 or IPv6 */
    WEIR_TUNNEL_MPLS_IN_IP = 2, /* MPLS labels in IP */
    WEIR_TUNNEL_GRE = 3,        /* GRE of version 0 */
    WEIR_TUNNEL_VXLAN = 4,
    WEIR_TUNNEL_GENEVE = 5,
    WEIR_TUNNEL_GTP_U = 6,
    WEIR_TUNNEL_TEREDO = 7,
};

/* Bits of weir_packet.tcp_flags. */
enum {
    WEIR_TCP_FIN = 0x01,
    WEIR_TCP_SYN = 0x02,
    WEIR_TCP_RST = 0x04,
    WEIR_TCP_PSH = 0x08,
    WEIR_TCP_ACK = 0x10,
    WEIR_TCP_URG = 0x20,
    WEIR_TCP_ECE = 0x40,
    WEIR_TCP_CWR = 0x80,
};

/* Verdicts of a module on a packet. */
enum {
    WEIR_PASS = 0, /* the packet goes on */
    WEIR_DROP = 1, /* the packet is not written to the output */
};

/* Causes of a lost call, for weir_lost. */
enum {
    WEIR_LOST_TRAP = 1,  /* a bad access, a division by 0, a bounded loop past its bound, or any other fault */
    WEIR_LOST_LIMIT = 2, /* the call used more than it may: fuel, or time */
};

/* Outcomes of a call of a service, for weir_answer. */
enum {
    WEIR_ANSWERED = 0, /* the serving module answered */
    WEIR_LATE = 1,     /* the deadline passed first */
    WEIR_GONE = 2,     /* the serving module no longer exists */
    WEIR_FAILED = 3,   /* the serving module lost the call in which it was to answer */
};

/* Codes that host functions return; anything at or above 0 is a success. */
enum {
    WEIR_OK = 0,
    WEIR_FULL = -1,    /* a limit is reached: the record, frame or message is dropped and counted */
    WEIR_RANGE = -2,   /* outside the packet, or outside the range of a patch; a frame that is too long or too short; a table that is too long */
    WEIR_DENIED = -3,  /* a field that affects parsing, or a checksum; a right that the session lacks; an output that leads
                        * nowhere; a packet that cannot be kept; a table without readers */
    WEIR_WHEN = -4,    /* not at this time: a pattern compiled after start, a patch outside a packet, a frame sent at start */
    WEIR_UNKNOWN = -5, /* no such parameter, stream, output, table, pattern or kept packet */
    WEIR_FORGED = -6,  /* an authentication tag does not match: bytes, nonce, key or associated data are not the sender's */
};

/* Limits of the host. */
enum {
    WEIR_BATCH_PACKETS = 64,
    WEIR_DESCRIPTOR_BYTES = 128,
    WEIR_RECORDS_PER_PACKET = 64,               /* records that one packet may cause */
    WEIR_RECORD_BYTES_PER_PACKET = 16 * 1024,
    WEIR_RECORDS_PER_CALL = 65536,              /* records of one call of start, tick, stop or rest */
    WEIR_RECORD_BYTES_PER_CALL = 8 * 1024 * 1024,
    WEIR_REST_CALLS = 512,                      /* calls of weir_rest */
    WEIR_RECORD_STRING_BYTES = 4096,            /* bytes of all strings of one record */
    WEIR_PATCHES_PER_PACKET = 32,
    WEIR_PATCH_BYTES = 256,
    WEIR_FRAME_BYTES = 9216,                    /* the longest frame that weir_send takes */
    WEIR_FRAME_BYTES_MIN = 14,                  /* the shortest frame: an Ethernet header */
    WEIR_FRAMES_PER_PACKET = 64,                /* frames that one packet may cause */
    WEIR_FRAME_BYTES_PER_PACKET = 128 * 1024,
    WEIR_FRAMES_PER_CALL = 4096,                /* frames of the stop, or of the ticks between some packets */
    WEIR_FRAME_BYTES_PER_CALL = 4 * 1024 * 1024,
    WEIR_KEPT_PACKETS = 1024,                   /* packets that an instance keeps at once */
    WEIR_PATTERN_SETS = 16,                     /* calls of weir_find_compile */
    WEIR_PATTERNS = 1024,                       /* patterns of one set */
    WEIR_PATTERN_BYTES = 64 * 1024,             /* bytes of all patterns of one set */
    WEIR_LOG_BYTES = 512,
    WEIR_LOG_MESSAGES = 100,
    WEIR_MESSAGE_BYTES = 64 * 1024,             /* bytes of a message between sessions */
    WEIR_CALLS = 64,                            /* calls whose answers the module has not got */
    WEIR_PARAMETERS = 64,
};

#define WEIR_DEADLINE_NS 60000000000u /* the longest deadline of a call */

/* Addresses, for information: a module's own memory lies below WEIR_ARENA_BASE. */
#define WEIR_PRIVATE_MAX 0x3FF00000u
#define WEIR_ARENA_BASE 0x40000000u
#define WEIR_ARENA_MAX 0x80000000u
#define WEIR_DESCRIPTORS_BASE 0xE0000000u
#define WEIR_DESCRIPTORS_MAX 0x10000000u

/* ---- Exports, imports, addresses --------------------------------------------------------------------------------- */

#define WEIR_INLINE static inline __attribute__((always_inline, unused))
#define WEIR_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEIR_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Names a static object as the block of state `name`, which weir.toml declares with its size: [[state]]. A newer version of the
 * module, which replaces this one on a node, begins with the contents. The object must not have pointers. */
#define WEIR_STATE(name, object)                                                                                                  \
    _Static_assert(sizeof(object) == STATE_BYTES_##name, "weir.toml has another size (bytes) of this state");                     \
    extern __typeof__(object) weir_state_##name __attribute__((alias(#object), visibility("default")));

#ifdef __wasm__

#define WEIR_EXPORT(name) __attribute__((export_name(#name), used))
#define WEIR_IMPORT(name) __attribute__((import_module("weir"), import_name(#name))) extern

/* A guest address, as in weir_packet.data, as a pointer. */
WEIR_INLINE const uint8_t *weir_at(uint32_t address)
{
    return (const uint8_t *)(uintptr_t)address;
}

#else /* native */

/* Native builds: cc -O3 -fPIC -shared -DWEIR_NATIVE. The program that loads the module supplies the functions weir_host_* and
 * weir_native_base, from which addresses in descriptors and in the strings of rows count. Descriptors and rows themselves are
 * passed by pointer. weir_host_address returns the offset from weir_native_base of the bytes or a copy.
 * The parameters' values and lengths, which are constants in the sandbox, are in weir_native_parameters. */
#ifndef WEIR_NATIVE
#error "weir.h: compile for wasm32 (weir build does), or define WEIR_NATIVE for a native build"
#endif

#include <stdlib.h>

#define WEIR_EXPORT(name) __attribute__((visibility("default"), used))
#define WEIR_IMPORT(name) extern

struct weir_native_parameter {
    int64_t number; /* of an integer, bool or duration */
    double real;    /* of an f64 */
    int32_t len;    /* of a string, prefix or list */
};

extern uint8_t *weir_native_base;
extern __attribute__((visibility("hidden"))) struct weir_native_parameter weir_native_parameters[WEIR_PARAMETERS];
extern uint32_t weir_host_address(const void *bytes, uint32_t len);

WEIR_INLINE const uint8_t *weir_at(uint32_t address)
{
    return weir_native_base + address;
}

#endif

/* The request of a cryptographic host function. The functions weir_hmac_sha256() to weir_aes128_block() fill it. */
struct weir_crypto {
    uint32_t algorithm;
    uint32_t key_kind; /* WEIR_KEY_BYTES: the key is bytes of the module */
    const void *key;
    uint32_t key_len;
    const void *nonce;
    uint32_t nonce_len;
    const void *aad; /* associated data: authenticated, not encrypted */
    uint32_t aad_len;
    const void *input;
    uint32_t input_len;
    void *output; /* may overlap the input */
    uint32_t output_len;
};

/* The host functions. The wrappers below, and those in module.h, are easier to use. If bytes are not wholly inside the module's
 * memory, a packet or the descriptors, the call ends. */
/* host functions: begin */
WEIR_IMPORT(emit) int32_t weir_host_emit(uint32_t stream, const void *row, uint32_t len);
WEIR_IMPORT(patch) int32_t weir_host_patch(const struct weir_packet *descriptor, uint32_t offset, const void *bytes, uint32_t len);
WEIR_IMPORT(send) int32_t weir_host_send(uint32_t output, const void *bytes, uint32_t len);
WEIR_IMPORT(keep) int32_t weir_host_keep(const struct weir_packet *descriptor);
WEIR_IMPORT(release) int32_t weir_host_release(int32_t handle);
WEIR_IMPORT(find_compile) int32_t weir_host_find_compile(const void *list, uint32_t len, uint32_t flags);
WEIR_IMPORT(find) int64_t weir_host_find(int32_t handle, const void *bytes, uint32_t len);
WEIR_IMPORT(hash) uint64_t weir_host_hash(const void *bytes, uint32_t len, uint64_t seed);
WEIR_IMPORT(digest) int32_t weir_host_digest(uint32_t algorithm, const void *bytes, uint32_t len, void *destination);
WEIR_IMPORT(log) int32_t weir_host_log(uint32_t level, const void *text, uint32_t len);
WEIR_IMPORT(param_int) int64_t weir_host_param_int(uint32_t index);
WEIR_IMPORT(param_float) double weir_host_param_float(uint32_t index);
WEIR_IMPORT(param_bytes) int32_t weir_host_param_bytes(uint32_t index, void *destination, uint32_t room);
WEIR_IMPORT(reserve) int64_t weir_host_reserve(int64_t bytes);
WEIR_IMPORT(call) int64_t weir_host_call(uint32_t service, const void *bytes, uint32_t len, uint64_t deadline);
WEIR_IMPORT(message) int32_t weir_host_message(void *destination, uint32_t room);
WEIR_IMPORT(reply) int32_t weir_host_reply(uint64_t call, const void *bytes, uint32_t len);
WEIR_IMPORT(publish) int32_t weir_host_publish(uint32_t table, const void *bytes, uint32_t len);
WEIR_IMPORT(hmac) int32_t weir_host_hmac(const struct weir_crypto *request, uint32_t len);
WEIR_IMPORT(hkdf) int32_t weir_host_hkdf(const struct weir_crypto *request, uint32_t len);
WEIR_IMPORT(aead_open) int32_t weir_host_aead_open(const struct weir_crypto *request, uint32_t len);
WEIR_IMPORT(aes_block) int32_t weir_host_aes_block(const struct weir_crypto *request);
/* host functions: end */

/* Runs its body for each packet of a batch that is for this module:
 *     const struct weir_packet *p;
 *     WEIR_EACH(p, descriptors, mask) { ... } */
#define WEIR_EACH(p, descriptors, mask) \
    for (uint64_t weir_left = (mask); weir_left != 0 && (((p) = (descriptors) + __builtin_ctzll(weir_left)), 1); weir_left &= weir_left - 1)

/* ---- Reading ahead --------------------------------------------------------------------------------------------------- */

/* A module whose table is larger than the processor's caches waits for memory at each packet. If it first reads the entries of a group of
 * packets, these reads overlap:
 *
 *     const struct weir_packet *group = weir_new_group(p);
 *     for (uint32_t i = 0; group != NULL && i < WEIR_GROUP; i++)
 *         weir_read_ahead(&table[group[i].flow_hash >> SHIFT]);
 */
enum { WEIR_GROUP = 16 };

/* Returns the first descriptor of a packet's group at the first packet of each group, else NULL. Some of the WEIR_GROUP descriptors may be
 * those of earlier packets, or of packets that are not for this module. So take their flow hashes as hints, and leave their data alone. */
static inline const struct weir_packet *weir_new_group(const struct weir_packet *p)
{
#ifdef __wasm__
    static uintptr_t last;
    const uintptr_t group = (uintptr_t)p & ~(uintptr_t)(sizeof *p * WEIR_GROUP - 1);
    if (WEIR_LIKELY(group == last))
        return NULL;
    last = group;
    return (const struct weir_packet *)group;
#else
    (void)p;
    return NULL;
#endif
}

/* Reads a byte of an entry, which brings its cache line near. */
static inline void weir_read_ahead(const void *entry) { (void)*(const volatile uint8_t *)entry; }

/* ---- Bounded loops ------------------------------------------------------------------------------------------------- */

/* weir runs a module without a meter if it can bound each call in advance, and the bounds are within the limits. So every
 * loop needs a visible limit: a constant, a parameter that is read right at the loop, the packet's cap_len or payload_len,
 * or a field of 8 or 16 bits. A loop without one, such as one that follows a list of headers, gets one by these two. They
 * iterate at most `max` times; one more iteration traps, which loses this packet (in weir_batch, the batch):
 *
 *     WEIR_FOR(64, uint32_t i = first; i != 0; i = next[i]) { ... }
 *     WEIR_WHILE(8, type == EXTENSION) { ... }
 *
 * `break`, `continue` and nested loops work as usual. `max` is a constant or a parameter; it is evaluated once. */
#define WEIR_FOR(max, ...) WEIR_BOUNDED(__COUNTER__, max, for (__VA_ARGS__))
#define WEIR_WHILE(max, ...) WEIR_BOUNDED(__COUNTER__, max, while (__VA_ARGS__))

#define WEIR_BOUNDED(number, max, ...) WEIR_BOUNDED_AS(number, max, __VA_ARGS__)
#define WEIR_BOUNDED_AS(number, max, ...) \
    if (0) { weir_after_##number:; } /* Left by a jump, and without a condition, so that code after an endless loop is unreachable. */ \
    else for (struct weir_trips weir_trips_##number = { 0, (max) };; __extension__({ goto weir_after_##number; })) \
        __VA_ARGS__ if (weir_past(&weir_trips_##number)) __builtin_trap(); else

struct weir_trips {
    uint32_t begun, most;
};

/* True if the bound is reached; otherwise one more iteration begins. The empty instruction hides the count's value from the compiler: so
 * it stays a variable of its own that grows by 1, however the compiler changes the rest of the loop. (Without optimisation variables are
 * in memory, where the analyser cannot rely on them: the loop still traps, but counts as unbounded. `weir build` optimises.) */
WEIR_INLINE bool weir_past(struct weir_trips *trips)
{
    uint32_t begun = trips->begun;
    __asm__("" : "+r"(begun));
    trips->begun = begun + 1;
    return begun >= trips->most;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

/* Loads from any address, aligned or not; _be: from network order. */
struct weir_u16 { uint16_t value; } __attribute__((packed, may_alias));
struct weir_u32 { uint32_t value; } __attribute__((packed, may_alias));
struct weir_u64 { uint64_t value; } __attribute__((packed, may_alias));

WEIR_INLINE uint16_t weir_le16(const void *at) { return ((const struct weir_u16 *)at)->value; }
WEIR_INLINE uint32_t weir_le32(const void *at) { return ((const struct weir_u32 *)at)->value; }
WEIR_INLINE uint64_t weir_le64(const void *at) { return ((const struct weir_u64 *)at)->value; }
WEIR_INLINE uint16_t weir_be16(const void *at) { return __builtin_bswap16(weir_le16(at)); }
WEIR_INLINE uint32_t weir_be32(const void *at) { return __builtin_bswap32(weir_le32(at)); }
WEIR_INLINE uint64_t weir_be64(const void *at) { return __builtin_bswap64(weir_le64(at)); }
WEIR_INLINE void weir_set_le32(void *at, uint32_t value) { ((struct weir_u32 *)at)->value = value; }
WEIR_INLINE void weir_set_le64(void *at, uint64_t value) { ((struct weir_u64 *)at)->value = value; }

/* Single instructions in the sandbox. */
WEIR_INLINE void weir_copy(void *to, const void *from, size_t len) { __builtin_memcpy(to, from, len); }
WEIR_INLINE void weir_fill(void *to, uint8_t value, size_t len) { __builtin_memset(to, value, len); }

/* True if two pieces of memory hold the same bytes. The last word may overlap the one before. */
WEIR_INLINE bool weir_equal(const void *a, const void *b, size_t len)
{
    const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;
    if (len >= 8) {
        const size_t last = len - 8;
        for (size_t i = 0; i < last; i += 8)
            if (weir_le64(x + i) != weir_le64(y + i))
                return false;
        return weir_le64(x + last) == weir_le64(y + last);
    }
    if (len >= 4)
        return ((weir_le32(x) ^ weir_le32(y)) | (weir_le32(x + len - 4) ^ weir_le32(y + len - 4))) == 0;
    if (len >= 2)
        return ((weir_le16(x) ^ weir_le16(y)) | (weir_le16(x + len - 2) ^ weir_le16(y + len - 2))) == 0;
    return len == 0 || *x == *y;
}

/* Allocates memory for the rest of the run, zeroed and aligned to 64 bytes; NULL if the manifest's ceiling does not allow it. Meant
 * for tables whose size is a parameter: call it in weir_start. Memory cannot be freed. */
#ifdef __wasm__
extern uint8_t __heap_base;
/* Weak: one variable for all .c files of a module. */
extern uint32_t weir_heap_top;
__attribute__((weak)) uint32_t weir_heap_top;

__attribute__((noinline, unused)) static void *weir_alloc(uint32_t bytes)
{
    uint64_t begin = weir_heap_top != 0 ? weir_heap_top : (uint32_t)(uintptr_t)&__heap_base;
    begin = (begin + 63) & ~(uint64_t)63;
    uint64_t end = begin + bytes;
    uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) << 16;
    if (end > WEIR_PRIVATE_MAX)
        return NULL;
    if (end > have) {
        /* The heap's top lies within the memory, so no more than `most` is missing. The analyser bounds the call's cost by this limit. */
        uint64_t missing = end - have, most = (uint64_t)bytes + 63;
        if (__builtin_wasm_memory_grow(0, (uint32_t)(((missing < most ? missing : most) + 0xFFFF) >> 16)) == (size_t)-1)
            return NULL;
    }
    weir_heap_top = (uint32_t)end;
    return (void *)(uintptr_t)begin;
}
#else
__attribute__((noinline, unused)) static void *weir_alloc(uint32_t bytes)
{
    size_t rounded = ((size_t)bytes + 63) & ~(size_t)63;
    void *memory = aligned_alloc(64, rounded != 0 ? rounded : 64);
    if (memory != NULL)
        weir_fill(memory, 0, rounded);
    return memory;
}
#endif

/* Memory for one call, from a buffer of the module that each call reuses from the beginning.
 *
 *     static uint8_t room[4096];
 *     struct weir_scratch scratch = weir_scratch_begin(room, sizeof room);
 *     uint32_t *seen = weir_scratch_take(&scratch, 64 * sizeof *seen);
 *
 * The memory is zeroed, and aligned to 16 bytes if the buffer is. NULL if less is left. Zeroing takes time,
 * which is part of the module's bounds: so `bytes` should be a constant, or have a visible limit. */
struct weir_scratch {
    uint8_t *next, *end;
};

WEIR_INLINE struct weir_scratch weir_scratch_begin(uint8_t *room, uint32_t bytes)
{
    return (struct weir_scratch){ room, room + bytes };
}

WEIR_INLINE void *weir_scratch_take(struct weir_scratch *scratch, uint32_t bytes)
{
    const size_t left = (size_t)(scratch->end - scratch->next);
    if (bytes > left)
        return NULL;
    uint8_t *taken = scratch->next;
    const size_t whole = ((size_t)bytes + 15) & ~(size_t)15;
    scratch->next += whole < left ? whole : left;
    weir_fill(taken, 0, bytes);
    return taken;
}

/* Sets the memory reservation of the module's session, for all of its modules, to `bytes`; 0 changes nothing. Returns the reservation, or
 * WEIR_DENIED: more than the session may have or the node has left, or less than is in use. Memory itself comes from weir_alloc. */
WEIR_INLINE int64_t weir_reserve(int64_t bytes) { return weir_host_reserve(bytes); }

/* ---- Services of other sessions ---------------------------------------------------------------------------------------- */

/* Calls a service, by its index in the manifest's `calls`, to be answered within `deadline` ns. Returns a ticket above 0, which weir_answer gets
 * with the answer; or WEIR_DENIED (no right), WEIR_WHEN (no session offers it now), WEIR_FULL, WEIR_RANGE, WEIR_UNKNOWN. */
WEIR_INLINE int64_t weir_call(uint32_t service, const void *bytes, uint32_t len, uint64_t deadline)
{
    return weir_host_call(service, bytes, len, deadline);
}

/* Copies up to `room` bytes of the message of this weir_serve or weir_answer. Returns its whole length. */
WEIR_INLINE int32_t weir_message(void *destination, uint32_t room) { return weir_host_message(destination, room); }

/* Answers a call of weir_serve. WEIR_OK; WEIR_RANGE: too long; WEIR_UNKNOWN: no caller waits for it any more. */
WEIR_INLINE int32_t weir_reply(uint64_t call, const void *bytes, uint32_t len) { return weir_host_reply(call, bytes, len); }

/* ---- The packet -------------------------------------------------------------------------------------------------- */

/* The first captured byte; cap_len bytes are readable. */
WEIR_INLINE const uint8_t *weir_bytes(const struct weir_packet *p) { return weir_at(p->data); }

/* The IP header; with WEIR_IPV4 or WEIR_IPV6. */
WEIR_INLINE const uint8_t *weir_l3(const struct weir_packet *p) { return weir_at(p->data) + p->l3_offset; }

/* The TCP, UDP, ICMP or other header; with WEIR_L4. */
WEIR_INLINE const uint8_t *weir_l4(const struct weir_packet *p) { return weir_at(p->data) + p->l4_offset; }

/* The innermost IP header in tunnels; where tunnel is not 0. */
WEIR_INLINE const uint8_t *weir_inner(const struct weir_packet *p) { return weir_at(p->data) + p->inner_offset; }

/* The first byte of the payload, of which payload_len are readable; with WEIR_L4. */
WEIR_INLINE const uint8_t *weir_payload(const struct weir_packet *p) { return weir_at(p->data) + p->payload_offset; }

/* The bytes of a stream's event, of which `len` are readable. They are valid during the call. */
WEIR_INLINE const uint8_t *weir_stream_bytes(const struct weir_stream *event) { return weir_at(event->data); }

/* Identifier of the outermost VLAN tag; with WEIR_VLAN. */
WEIR_INLINE uint16_t weir_vlan(const struct weir_packet *p) { return p->vlan_tci & 0xFFF; }

/* A packet as its innermost IP header describes it. Without a tunnel this is `p`. Otherwise `room` gets a copy of the descriptor whose
 * fields from l3_offset on, flags and flow_hash are those of the innermost packet. The functions of this header take the result, but
 * for weir_patch and weir_keep, which take `p`. A loop over payload needs a limit from `p` as well, such as p->cap_len. */
WEIR_INLINE const struct weir_packet *weir_innermost(const struct weir_packet *p, struct weir_packet *room)
{
    if (WEIR_LIKELY(p->tunnel == WEIR_TUNNEL_NONE))
        return p;
    *room = *p;
    room->flags = p->inner_flags | (p->flags & (WEIR_VLAN | WEIR_MPLS | WEIR_PPPOE | WEIR_CUT));
    room->flow_hash = p->inner_flow_hash;
    room->l3_offset = p->inner_offset;
    room->l4_offset = p->inner_l4_offset;
    room->payload_offset = p->inner_payload_offset;
    room->payload_len = p->inner_payload_len;
    room->ether_type = (p->inner_flags & WEIR_IPV4) ? 0x0800 : 0x86DD;
    room->src_port = p->inner_src_port;
    room->dst_port = p->inner_dst_port;
    room->ip_proto = p->inner_ip_proto;
    room->tcp_flags = p->inner_tcp_flags;
    room->ttl = p->inner_ttl;
    room->tos = p->inner_tos;
    return room;
}

WEIR_INLINE bool weir_is_ip(const struct weir_packet *p) { return (p->flags & (WEIR_IPV4 | WEIR_IPV6)) != 0; }

/* TCP's sequence and acknowledgement numbers; with WEIR_TCP and WEIR_L4. */
WEIR_INLINE uint32_t weir_tcp_seq(const struct weir_packet *p) { return weir_be32(weir_l4(p) + 4); }
WEIR_INLINE uint32_t weir_tcp_ack(const struct weir_packet *p) { return weir_be32(weir_l4(p) + 8); }

/* An address as two words in memory order: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. */
struct weir_ip { uint64_t first, last; };

WEIR_INLINE struct weir_ip weir_ip_v4(const uint8_t *address)
{
    return (struct weir_ip){ 0, (uint64_t)weir_le32(address) << 32 | 0xFFFF0000u };
}

WEIR_INLINE struct weir_ip weir_ip_v6(const uint8_t *address)
{
    return (struct weir_ip){ weir_le64(address), weir_le64(address + 8) };
}

/* True for an IPv4 address: ::ffff:a.b.c.d. */
WEIR_INLINE bool weir_ip_is_v4(struct weir_ip ip)
{
    return ip.first == 0 && (uint32_t)ip.last == 0xFFFF0000u;
}

/* Source and destination address; with WEIR_IPV4 or WEIR_IPV6. */
WEIR_INLINE struct weir_ip weir_src(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    return (p->flags & WEIR_IPV4) ? weir_ip_v4(ip + 12) : weir_ip_v6(ip + 8);
}

WEIR_INLINE struct weir_ip weir_dst(const struct weir_packet *p)
{
    const uint8_t *ip = weir_l3(p);
    return (p->flags & WEIR_IPV4) ? weir_ip_v4(ip + 16) : weir_ip_v6(ip + 24);
}

/* Writes an address into a field of type `ip` of a row. */
WEIR_INLINE void weir_ip_store(uint8_t out[16], struct weir_ip ip)
{
    weir_set_le64(out, ip.first);
    weir_set_le64(out + 8, ip.last);
}

WEIR_INLINE void weir_ip_src(const struct weir_packet *p, uint8_t out[16]) { weir_ip_store(out, weir_src(p)); }
WEIR_INLINE void weir_ip_dst(const struct weir_packet *p, uint8_t out[16]) { weir_ip_store(out, weir_dst(p)); }

/* A parameter of type `prefix`: 16 bytes of address (IPv4 as ::ffff:a.b.c.d) and the length counted in 128 bits. A length below
 * 96 is that of an IPv6 prefix. Such a prefix contains no IPv4 address, even if its bits are those of ::ffff:0:0/96, as in ::/0. */
struct weir_prefix { uint64_t first, last, first_mask, last_mask; bool is_ipv6; };

WEIR_INLINE struct weir_prefix weir_prefix_of(const uint8_t value[17])
{
    uint32_t bits = value[16] <= 128 ? value[16] : 128;
    uint64_t high = bits == 0 ? 0 : bits >= 64 ? ~(uint64_t)0 : ~(uint64_t)0 << (64 - bits);
    uint64_t low = bits <= 64 ? 0 : ~(uint64_t)0 << (128 - bits);
    struct weir_prefix prefix;
    prefix.first_mask = __builtin_bswap64(high);
    prefix.last_mask = __builtin_bswap64(low);
    prefix.first = weir_le64(value) & prefix.first_mask;
    prefix.last = weir_le64(value + 8) & prefix.last_mask;
    prefix.is_ipv6 = bits < 96;
    return prefix;
}

WEIR_INLINE bool weir_prefix_has(const struct weir_prefix *prefix, struct weir_ip ip)
{
    const bool has_bits =
        (((ip.first & prefix->first_mask) ^ prefix->first) | ((ip.last & prefix->last_mask) ^ prefix->last)) == 0;
    return has_bits && !(prefix->is_ipv6 && weir_ip_is_v4(ip));
}

/* ---- Records, patches, parameters, messages -------------------------------------------------------------------------- */

/* A field of type `string` or `bytes` of a row: weir copies its bytes while the record is emitted. */
struct weir_str {
    uint32_t ptr;
    uint32_t len;
};

WEIR_INLINE struct weir_str weir_string(const void *bytes, uint32_t len)
{
#ifdef __wasm__
    return (struct weir_str){ (uint32_t)(uintptr_t)bytes, len };
#else
    return (struct weir_str){ weir_host_address(bytes, len), len };
#endif
}

/* The name of the tunnel that carries the innermost IP header, for a field `tunnel` of a row; empty without one. */
WEIR_INLINE struct weir_str weir_tunnel_name(uint8_t tunnel)
{
    switch (tunnel) {
    case WEIR_TUNNEL_IP_IN_IP: return weir_string("ip", 2);
    case WEIR_TUNNEL_MPLS_IN_IP: return weir_string("mpls", 4);
    case WEIR_TUNNEL_GRE: return weir_string("gre", 3);
    case WEIR_TUNNEL_VXLAN: return weir_string("vxlan", 5);
    case WEIR_TUNNEL_GENEVE: return weir_string("geneve", 6);
    case WEIR_TUNNEL_GTP_U: return weir_string("gtp-u", 5);
    case WEIR_TUNNEL_TEREDO: return weir_string("teredo", 6);
    default: return weir_string("", 0);
    }
}

/* Emits a record into a stream. WEIR_OK, WEIR_FULL or WEIR_UNKNOWN. In a module: emit_STREAM(&row) of module.h. */
WEIR_INLINE int32_t weir_emit(uint32_t stream, const void *row, uint32_t len) { return weir_host_emit(stream, row, len); }

/* Changes bytes of the packet from `offset` on, in its private copy that goes to the output; weir updates checksums. Bytes at
 * weir_bytes() stay as captured. WEIR_OK, WEIR_RANGE, WEIR_DENIED, WEIR_FULL or WEIR_WHEN. */
WEIR_INLINE int32_t weir_patch(const struct weir_packet *p, uint32_t offset, const void *bytes, uint32_t len)
{
    return weir_host_patch(p, offset, bytes, len);
}

/* Sends an Ethernet frame, from its header on and without its check sequence, to an output that the manifest declares. weir takes a
 * copy at once, and sends it when the call is over; a lost call sends nothing. WEIR_OK, WEIR_FULL, WEIR_RANGE, WEIR_DENIED,
 * WEIR_WHEN (at start) or WEIR_UNKNOWN. In a module: send_OUTPUT(frame, len) of module.h. */
WEIR_INLINE int32_t weir_send(uint32_t output, const void *frame, uint32_t len) { return weir_host_send(output, frame, len); }

/* Keeps a packet of the call: its bytes stay at weir_bytes(), unchanged, until weir_release. Its descriptor does not stay: copy the needed
 * fields of it, first of all weir_bytes() and cap_len. Returns a handle, at or above 0; WEIR_FULL, WEIR_DENIED or WEIR_WHEN. */
WEIR_INLINE int32_t weir_keep(const struct weir_packet *p) { return weir_host_keep(p); }

/* Releases a kept packet. Do not read its bytes afterwards: weir reuses the memory. WEIR_OK, or WEIR_UNKNOWN: it is not kept (any more). */
WEIR_INLINE int32_t weir_release(int32_t handle) { return weir_host_release(handle); }

/* Parameters by their number in the manifest, from 0. In a module: param_NAME() of module.h. They are constants of the running
 * module: reading one for each packet costs nothing, and a loop up to one has a limit that weir knows. */
#ifdef __wasm__
WEIR_INLINE int64_t weir_param_int(uint32_t index) { return weir_host_param_int(index); }
WEIR_INLINE double weir_param_float(uint32_t index) { return weir_host_param_float(index); }
WEIR_INLINE int32_t weir_param_len(uint32_t index) { return weir_host_param_bytes(index, NULL, 0); }
#else
WEIR_INLINE int64_t weir_param_int(uint32_t index) { return weir_native_parameters[index].number; }
WEIR_INLINE double weir_param_float(uint32_t index) { return weir_native_parameters[index].real; }
WEIR_INLINE int32_t weir_param_len(uint32_t index) { return weir_native_parameters[index].len; }
#endif

/* Copies up to `room` bytes of a string, prefix or list; returns its whole length. With a room of 0 the result is a constant, too. */
WEIR_INLINE int32_t weir_param_bytes(uint32_t index, void *destination, uint32_t room)
{
    return room == 0 ? weir_param_len(index) : weir_host_param_bytes(index, destination, room);
}

enum { WEIR_ERROR = 0, WEIR_WARNING = 1, WEIR_INFO = 2 };

/* Logs a line for the operator. */
WEIR_INLINE int32_t weir_log(uint32_t level, const void *text, uint32_t len) { return weir_host_log(level, text, len); }
#define WEIR_LOG(level, literal) weir_log((level), (literal), sizeof(literal) - 1)

/* ---- Numbers ------------------------------------------------------------------------------------------------------ */

/* Natural logarithm of a positive, normal number, with the same result on every machine: ln x = k ln 2 + 2 artanh((m - 1) / (m + 1)), sqrt(1/2) <= m < sqrt 2. */
static inline __attribute__((unused)) double weir_ln(double x)
{
    union { double value; uint64_t bits; } u = { x };
    int32_t exponent = (int32_t)(u.bits >> 52) - 1023;
    u.bits = (u.bits & UINT64_C(0x000FFFFFFFFFFFFF)) | UINT64_C(0x3FF0000000000000);
    double m = u.value;
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent++;
    }
    const double z = (m - 1) / (m + 1), z2 = z * z;
    double sum = 0;
    for (int32_t k = 25; k >= 1; k -= 2)
        sum = sum * z2 + 1.0 / k;
    return exponent * 0.69314718055994530942 + 2 * z * sum;
}

/* ---- Texts and findings -------------------------------------------------------------------------------------------- */

/* A text that is put together from parts, for a field of type `string`. Parts beyond WEIR_TEXT_BYTES are left out.
 *
 *     struct weir_text text = WEIR_TEXT;
 *     WEIR_ADD(&text, "worm from ");
 *     weir_add_ip(&text, weir_src(p));
 *     row.text = weir_text_string(&text);
 */
enum { WEIR_TEXT_BYTES = 256, WEIR_DIGITS = 20 };
struct weir_text {
    uint32_t len;
    uint8_t bytes[WEIR_TEXT_BYTES + WEIR_DIGITS]; /* room for a number that is written whole, so that no loop copies it */
};
#define WEIR_TEXT { .len = 0 }

/* Adds a string literal. */
#define WEIR_ADD(text, literal) weir_add((text), (literal), sizeof(literal) - 1)

/* Adds bytes whose number is a constant. For other bytes, a loop with weir_add_byte. */
WEIR_INLINE void weir_add(struct weir_text *text, const void *bytes, uint32_t len)
{
    if (text->len <= WEIR_TEXT_BYTES && len <= WEIR_TEXT_BYTES - text->len) {
        weir_copy(text->bytes + text->len, bytes, len);
        text->len += len;
    }
}

WEIR_INLINE void weir_add_byte(struct weir_text *text, uint8_t byte)
{
    if (text->len < WEIR_TEXT_BYTES)
        text->bytes[text->len++] = byte;
}

/* Adds a whole number in decimal digits. */
static inline __attribute__((unused)) void weir_add_number(struct weir_text *text, uint64_t number)
{
    uint8_t digits[2 * WEIR_DIGITS] = { 0 };
    uint32_t first = WEIR_DIGITS;
    do {
        digits[--first] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0 && first > 0);
    const uint32_t len = WEIR_DIGITS - first;
    if (text->len <= WEIR_TEXT_BYTES && len <= WEIR_TEXT_BYTES - text->len) {
        weir_copy(text->bytes + text->len, digits + first, WEIR_DIGITS);
        text->len += len;
    }
}

/* Adds 16 bits in hexadecimal digits, without leading zeros. */
WEIR_INLINE void weir_add_hex(struct weir_text *text, uint16_t number)
{
    for (uint32_t digit = 4; digit-- > 0;)
        if (digit == 0 || number >> 4 * digit != 0)
            weir_add_byte(text, (uint8_t)"0123456789abcdef"[number >> 4 * digit & 15]);
}

/* Adds an address as people write it: IPv4 with dots, IPv6 as RFC 5952 says. */
static inline __attribute__((unused)) void weir_add_ip(struct weir_text *text, struct weir_ip ip)
{
    uint8_t bytes[16];
    weir_ip_store(bytes, ip);
    if (weir_ip_is_v4(ip)) {
        for (uint32_t i = 12; i < 16; i++) {
            if (i != 12)
                weir_add_byte(text, '.');
            weir_add_number(text, bytes[i]);
        }
        return;
    }
    /* The longest run of at least two zero groups becomes "::". */
    uint32_t first = 8, len = 1, run = 0;
    for (uint32_t group = 0; group < 8; group++) {
        run = weir_be16(bytes + 2 * group) == 0 ? run + 1 : 0;
        if (run > len) {
            len = run;
            first = group + 1 - run;
        }
    }
    for (uint32_t group = 0; group < 8; group++) {
        if (group >= first && group < first + len) {
            if (group == first)
                WEIR_ADD(text, "::");
            continue;
        }
        if (group != 0 && group != first + len)
            weir_add_byte(text, ':');
        weir_add_hex(text, weir_be16(bytes + 2 * group));
    }
}

/* The text as a field of a row. The text must exist until the row is emitted. */
WEIR_INLINE struct weir_str weir_text_string(const struct weir_text *text) { return weir_string(text->bytes, text->len); }

/* Begins a filter for packets like this one: a pcap filter looks behind VLAN tags, MPLS labels and PPPoE only if it names them. */
WEIR_INLINE void weir_add_encapsulation(struct weir_text *filter, const struct weir_packet *p)
{
    enum { TAGS_MAX = 4 };
    for (uint32_t i = 0; i < TAGS_MAX && i < p->vlan_count; i++)
        WEIR_ADD(filter, "vlan and ");
    for (uint32_t i = 0; i < TAGS_MAX && i < p->mpls_count; i++)
        WEIR_ADD(filter, "mpls and ");
    if (p->flags & WEIR_PPPOE)
        WEIR_ADD(filter, "pppoes and ");
}

/* Returns the outermost tunnel of a packet, the one that a filter can select; 0 without one. `outer` is the packet as weir gives it. */
WEIR_INLINE uint8_t weir_outermost_tunnel(const struct weir_packet *outer)
{
    if (outer->tunnel == WEIR_TUNNEL_NONE)
        return WEIR_TUNNEL_NONE;
    switch (outer->ip_proto) {
    case 4:
    case 41: return WEIR_TUNNEL_IP_IN_IP;
    case 47: return WEIR_TUNNEL_GRE;
    case 137: return WEIR_TUNNEL_MPLS_IN_IP;
    default: break;
    }
    switch (outer->dst_port) {
    case 4789:
    case 8472: return WEIR_TUNNEL_VXLAN;
    case 6081: return WEIR_TUNNEL_GENEVE;
    case 2152: return WEIR_TUNNEL_GTP_U;
    default: return WEIR_TUNNEL_TEREDO;
    }
}

/* Adds a filter for the packets of an outermost tunnel. */
WEIR_INLINE void weir_add_tunnel(struct weir_text *filter, uint8_t tunnel)
{
    switch (tunnel) {
    case WEIR_TUNNEL_IP_IN_IP: WEIR_ADD(filter, "(ip proto 4 or ip proto 41 or ip6 proto 4 or ip6 proto 41)"); return;
    case WEIR_TUNNEL_MPLS_IN_IP: WEIR_ADD(filter, "(ip proto 137 or ip6 proto 137)"); return;
    case WEIR_TUNNEL_GRE: WEIR_ADD(filter, "(ip proto 47 or ip6 proto 47)"); return;
    case WEIR_TUNNEL_VXLAN: WEIR_ADD(filter, "(udp port 4789 or udp port 8472)"); return;
    case WEIR_TUNNEL_GENEVE: WEIR_ADD(filter, "udp port 6081"); return;
    case WEIR_TUNNEL_GTP_U: WEIR_ADD(filter, "udp port 2152"); return;
    default: WEIR_ADD(filter, "udp port 3544"); return;
    }
}

/* Values of `severity` in a stream with the name `findings`: severity_id of OCSF. */
enum {
    WEIR_INFORMATIONAL = 1, /* a fact worth knowing */
    WEIR_LOW = 2,
    WEIR_MEDIUM = 3,
    WEIR_HIGH = 4,          /* an action is needed at once */
    WEIR_CRITICAL = 5,      /* the same, and much is affected */
};

/* ---- Searching --------------------------------------------------------------------------------------------------- */

enum { WEIR_FIND_IGNORE_CASE = 1 };

/* Compiles patterns, each a u32 length and its bytes, as a parameter of type string-list holds them. In weir_start only.
 * Returns a handle, or a negative code. */
WEIR_INLINE int32_t weir_find_compile(const void *list, uint32_t len, uint32_t flags) { return weir_host_find_compile(list, len, flags); }

/* Returns the leftmost match (of several at one offset the longest), for weir_found_pattern and weir_found_offset; -1: none. */
WEIR_INLINE int64_t weir_find(int32_t handle, const void *bytes, uint32_t len) { return weir_host_find(handle, bytes, len); }
WEIR_INLINE uint32_t weir_found_pattern(int64_t found) { return (uint32_t)((uint64_t)found >> 32); }
WEIR_INLINE uint32_t weir_found_offset(int64_t found) { return (uint32_t)found; }

/* For one short needle in a short text a call to the host costs more than the search itself: weir_find_short stays in the
 * sandbox. It compares the needle's first and last byte with 16 positions at a time (8 where there is no SIMD), and compares
 * the rest only where both match. Byte by byte, the same search takes twice as long in the sandbox as natively. */

#if defined(WEIR_NAIVE_FIND)

#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
/* Returns a mask in which bit i is set if byte i of the 16 at `at` is the one whose copies fill `byte`. */
typedef v128_t weir_bytes16;
WEIR_INLINE weir_bytes16 weir_splat16(uint8_t byte) { return wasm_u8x16_splat(byte); }
WEIR_INLINE weir_bytes16 weir_load16(const uint8_t *at) { return wasm_v128_load(at); }
WEIR_INLINE uint32_t weir_same16(weir_bytes16 a, weir_bytes16 b) { return wasm_i8x16_bitmask(wasm_i8x16_eq(a, b)); }
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i weir_bytes16;
WEIR_INLINE weir_bytes16 weir_splat16(uint8_t byte) { return _mm_set1_epi8((char)byte); }
WEIR_INLINE weir_bytes16 weir_load16(const uint8_t *at) { return _mm_loadu_si128((const __m128i *)(const void *)at); }
WEIR_INLINE uint32_t weir_same16(weir_bytes16 a, weir_bytes16 b) { return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)); }
#else
typedef struct { uint64_t half[2]; } weir_bytes16;
WEIR_INLINE weir_bytes16 weir_splat16(uint8_t byte)
{
    uint64_t all = byte * UINT64_C(0x0101010101010101);
    return (weir_bytes16){ { all, all } };
}
WEIR_INLINE weir_bytes16 weir_load16(const uint8_t *at) { return (weir_bytes16){ { weir_le64(at), weir_le64(at + 8) } }; }
/* Exact zero bytes of a word as one bit each (Warren, Hacker's Delight, 6-1), gathered by a multiplication. */
WEIR_INLINE uint32_t weir_zero_bytes(uint64_t word)
{
    const uint64_t low = UINT64_C(0x7F7F7F7F7F7F7F7F);
    uint64_t high = ~(((word & low) + low) | word | low);
    return (uint32_t)(((high >> 7) * UINT64_C(0x0102040810204080)) >> 56);
}
WEIR_INLINE uint32_t weir_same16(weir_bytes16 a, weir_bytes16 b)
{
    return weir_zero_bytes(a.half[0] ^ b.half[0]) | weir_zero_bytes(a.half[1] ^ b.half[1]) << 8;
}
#endif

/* Byte by byte, for comparison (-DWEIR_NAIVE_FIND). */
WEIR_INLINE int32_t weir_find_naive(const uint8_t *text, uint32_t len, const uint8_t *needle, uint32_t needle_len)
{
    for (uint32_t i = 0; i + needle_len <= len; i++) {
        uint32_t j = 0;
        while (j < needle_len && text[i + j] == needle[j])
            j++;
        if (j == needle_len)
            return (int32_t)i;
    }
    return -1;
}

#ifndef WEIR_NAIVE_FIND
/* The first of the 16 places from `at` on where the needle begins, or -1. `head` and `tail` are copies of its first and last byte. */
WEIR_INLINE int32_t weir_find_16(const uint8_t *text, uint32_t at, weir_bytes16 head, weir_bytes16 tail, const uint8_t *needle,
                                 uint32_t needle_len)
{
    uint32_t both = weir_same16(weir_load16(text + at), head) & weir_same16(weir_load16(text + at + needle_len - 1), tail);
    for (; WEIR_UNLIKELY(both != 0); both &= both - 1) {
        uint32_t place = at + (uint32_t)__builtin_ctz(both);
        if (weir_equal(text + place, needle, needle_len))
            return (int32_t)place;
    }
    return -1;
}
#endif

/* Offset of the first place in text[0..len) where the needle begins, or -1. Reads nothing outside the text. For an empty needle
 * 0. Lengths up to 2^31 - 1. */
WEIR_INLINE int32_t weir_find_short(const uint8_t *text, uint32_t len, const uint8_t *needle, uint32_t needle_len)
{
    if (needle_len == 0)
        return 0;
    if (len < needle_len)
        return -1;
#ifdef WEIR_NAIVE_FIND
    return weir_find_naive(text, len, needle, needle_len);
#else
    const uint32_t places = len - needle_len + 1;
    if (len >= 16) {
        const weir_bytes16 head = weir_splat16(needle[0]), tail = weir_splat16(needle[needle_len - 1]);
        if (len <= 32 && needle_len <= 16) {
            /* Two loads that may overlap cover the text; bit i of each mask stands for its byte i. */
            const uint32_t shift = len - 16;
            const weir_bytes16 begin = weir_load16(text), end = weir_load16(text + shift);
            uint64_t heads = weir_same16(begin, head) | (uint64_t)weir_same16(end, head) << shift;
            uint64_t tails = weir_same16(begin, tail) | (uint64_t)weir_same16(end, tail) << shift;
            for (uint64_t both = heads & (tails >> (needle_len - 1)); both != 0; both &= both - 1) {
                uint32_t at = (uint32_t)__builtin_ctzll(both);
                if (WEIR_LIKELY(weir_equal(text + at, needle, needle_len)))
                    return (int32_t)at;
            }
            return -1;
        }
        if (places >= 16) {
            /* The last 16 places may overlap those before. */
            const uint32_t last = places - 16;
            for (uint32_t i = 0; i < last; i += 16) {
                const int32_t found = weir_find_16(text, i, head, tail, needle, needle_len);
                if (WEIR_UNLIKELY(found >= 0))
                    return found;
            }
            return weir_find_16(text, last, head, tail, needle, needle_len);
        }
    }
    for (uint32_t i = 0; i < places; i++)
        if (weir_equal(text + i, needle, needle_len))
            return (int32_t)i;
    return -1;
#endif
}

/* ---- Hashing ----------------------------------------------------------------------------------------------------- */

/* Returns the XXH3-64 hash, computed by the host: for long or many bytes. */
WEIR_INLINE uint64_t weir_hash(const void *bytes, uint32_t len, uint64_t seed) { return weir_host_hash(bytes, len, seed); }

/* Cryptographic digests by the host, of at most WEIR_DIGEST_BYTES: SHA-1 into 20 bytes, SHA-256 into 32. `out` may overlap the bytes. Returns the number
 * of bytes written, or WEIR_RANGE. SHA-1 is for formats that require it, such as Community ID; it is not collision-resistant. */
enum { WEIR_SHA1 = 1, WEIR_SHA256 = 2, WEIR_SHA1_BYTES = 20, WEIR_SHA256_BYTES = 32, WEIR_DIGEST_BYTES = 64 * 1024 };
WEIR_INLINE int32_t weir_sha1(const void *bytes, uint32_t len, uint8_t out[WEIR_SHA1_BYTES]) { return weir_host_digest(WEIR_SHA1, bytes, len, out); }
WEIR_INLINE int32_t weir_sha256(const void *bytes, uint32_t len, uint8_t out[WEIR_SHA256_BYTES]) { return weir_host_digest(WEIR_SHA256, bytes, len, out); }

/* Adds a word to a running hash: multiply, xor-shift. For a few words this is faster than a call to the host, and it gives
 * the same natively. Not for keys that an attacker chooses, unless the seed is secret. */
WEIR_INLINE uint64_t weir_hash_add(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 32);
}

/* Spreads the added words over all bits (Stafford's variant 13 of the MurmurHash3 finalizer). */
WEIR_INLINE uint64_t weir_hash_end(uint64_t hash)
{
    hash = (hash ^ (hash >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94D049BB133111EB);
    return hash ^ (hash >> 31);
}

/* Hash of two words. */
WEIR_INLINE uint64_t weir_hash64(uint64_t a, uint64_t b) { return weir_hash_end(weir_hash_add(weir_hash_add(0, a), b)); }

/* ---- Cryptography ------------------------------------------------------------------------------------------------ */

/* The numbers of struct weir_crypto. One call processes at most WEIR_CRYPTO_BYTES: key and input of HMAC, associated data and
 * ciphertext of an AEAD. */
enum {
    WEIR_KEY_BYTES = 0, /* key_kind */
    WEIR_HMAC_SHA256 = 1,
    WEIR_HKDF_EXTRACT_SHA256 = 1,
    WEIR_HKDF_EXPAND_SHA256 = 2,
    WEIR_AEAD_AES128_GCM = 1,
    WEIR_AES128 = 1,
    WEIR_CRYPTO_BYTES = 64 * 1024,
    WEIR_HKDF_STEP_BYTES = 192, /* with the information, the bytes that SHA-256 processes for 32 bytes of output */
    WEIR_AES128_BYTES = 16,     /* of a key, and of a block */
    WEIR_GCM_NONCE_BYTES = 12,
    WEIR_GCM_TAG_BYTES = 16,
};

/* HMAC-SHA-256 (RFC 2104). Returns 32, or WEIR_RANGE. */
WEIR_INLINE int32_t weir_hmac_sha256(const void *key, uint32_t key_len, const void *bytes, uint32_t len, uint8_t out[WEIR_SHA256_BYTES])
{
    const struct weir_crypto request = {
        .algorithm = WEIR_HMAC_SHA256, .key = key, .key_len = key_len, .input = bytes, .input_len = len,
        .output = out, .output_len = WEIR_SHA256_BYTES,
    };
    if (key_len > WEIR_CRYPTO_BYTES || len > WEIR_CRYPTO_BYTES)
        return WEIR_RANGE; /* a sum that wraps around is never one of a valid request */
    return weir_host_hmac(&request, key_len + len);
}

/* HKDF-Extract with SHA-256 (RFC 5869): a pseudorandom key from input keying material. Returns 32, or WEIR_RANGE. */
WEIR_INLINE int32_t weir_hkdf_extract(const void *salt, uint32_t salt_len, const void *material, uint32_t len, uint8_t out[WEIR_SHA256_BYTES])
{
    const struct weir_crypto request = {
        .algorithm = WEIR_HKDF_EXTRACT_SHA256, .key = material, .key_len = len, .input = salt, .input_len = salt_len,
        .output = out, .output_len = WEIR_SHA256_BYTES,
    };
    if (salt_len > WEIR_CRYPTO_BYTES || len > WEIR_CRYPTO_BYTES)
        return WEIR_RANGE; /* a sum that wraps around is never one of a valid request */
    return weir_host_hkdf(&request, salt_len + len);
}

/* HKDF-Expand with SHA-256 (RFC 5869): `len` bytes, at most 8160, from a pseudorandom key. Returns `len`, or WEIR_RANGE. */
WEIR_INLINE int32_t weir_hkdf_expand(const uint8_t key[WEIR_SHA256_BYTES], const void *info, uint32_t info_len, void *out, uint32_t len)
{
    const struct weir_crypto request = {
        .algorithm = WEIR_HKDF_EXPAND_SHA256, .key = key, .key_len = WEIR_SHA256_BYTES, .input = info, .input_len = info_len,
        .output = out, .output_len = len,
    };
    if (info_len > WEIR_CRYPTO_BYTES || len > 255 * WEIR_SHA256_BYTES)
        return WEIR_RANGE;
    return weir_host_hkdf(&request, (info_len + WEIR_HKDF_STEP_BYTES) * ((len + 31) / 32));
}

/* HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1) with SHA-256 and an empty context. `label` is without "tls13 ", and has at most 32
 * bytes: "key", "iv", "quic hp". Returns `len`, or WEIR_RANGE. */
WEIR_INLINE int32_t weir_hkdf_expand_label(const uint8_t secret[WEIR_SHA256_BYTES], const char *label, uint32_t label_len, void *out, uint16_t len)
{
    if (label_len > 32)
        return WEIR_RANGE;
    uint8_t info[2 + 1 + 6 + 32 + 1] = { (uint8_t)(len >> 8), (uint8_t)len, (uint8_t)(6 + label_len), 't', 'l', 's', '1', '3', ' ' };
    for (uint32_t i = 0; i < 32 && i < label_len; i++)
        info[9 + i] = (uint8_t)label[i];
    /* The context's length, 0, follows the label. */
    return weir_hkdf_expand(secret, info, 9 + label_len + 1, out, len);
}

/* Decrypts AES-128-GCM: `len` bytes of ciphertext, of which the last 16 are the tag. `out` has space for len - 16 bytes, and may overlap
 * the ciphertext. Returns the number of bytes written; WEIR_FORGED, with `out` as before; or WEIR_RANGE. */
WEIR_INLINE int32_t weir_aes128_gcm_open(const uint8_t key[WEIR_AES128_BYTES], const uint8_t nonce[WEIR_GCM_NONCE_BYTES], const void *aad,
                                         uint32_t aad_len, const void *bytes, uint32_t len, void *out)
{
    const struct weir_crypto request = {
        .algorithm = WEIR_AEAD_AES128_GCM, .key = key, .key_len = WEIR_AES128_BYTES, .nonce = nonce, .nonce_len = WEIR_GCM_NONCE_BYTES,
        .aad = aad, .aad_len = aad_len, .input = bytes, .input_len = len,
        .output = out, .output_len = len < WEIR_GCM_TAG_BYTES ? 0 : len - WEIR_GCM_TAG_BYTES,
    };
    if (aad_len > WEIR_CRYPTO_BYTES || len > WEIR_CRYPTO_BYTES)
        return WEIR_RANGE; /* a sum that wraps around is never one of a valid request */
    return weir_host_aead_open(&request, aad_len + len);
}

/* Encrypts one block with AES-128. Returns 16. */
WEIR_INLINE int32_t weir_aes128_block(const uint8_t key[WEIR_AES128_BYTES], const uint8_t block[WEIR_AES128_BYTES], uint8_t out[WEIR_AES128_BYTES])
{
    const struct weir_crypto request = {
        .algorithm = WEIR_AES128, .key = key, .key_len = WEIR_AES128_BYTES, .input = block, .input_len = WEIR_AES128_BYTES,
        .output = out, .output_len = WEIR_AES128_BYTES,
    };
    return weir_host_aes_block(&request);
}

/* ---- Community ID --------------------------------------------------------------------------------------------------- */

enum { WEIR_COMMUNITY_ID_BYTES = 30 };

/* Returns the ICMP or ICMPv6 type that answers a type, or that it answers; -1 for a type without a counterpart. */
WEIR_INLINE int32_t weir_icmp_counterpart(bool is_v6, uint8_t type)
{
    switch (type | is_v6 << 8) {
    case 0: return 8;
    case 8: return 0;
    case 9: return 10;
    case 10: return 9;
    case 13: return 14;
    case 14: return 13;
    case 15: return 16;
    case 16: return 15;
    case 17: return 18;
    case 18: return 17;
    case 256 + 128: return 129;
    case 256 + 129: return 128;
    case 256 + 130: return 131;
    case 256 + 131: return 130;
    case 256 + 133: return 134;
    case 256 + 134: return 133;
    case 256 + 135: return 136;
    case 256 + 136: return 135;
    case 256 + 139: return 140;
    case 256 + 140: return 139;
    case 256 + 144: return 145;
    case 256 + 145: return 144;
    default: return -1;
    }
}

static inline __attribute__((unused)) uint32_t weir_community_id_of(struct weir_ip src, struct weir_ip dst, bool is_v4, uint8_t protocol,
                                                                        const uint16_t ports[2], bool has_ports, bool is_one_way,
                                                                        uint16_t seed, uint8_t out[WEIR_COMMUNITY_ID_BYTES]);

/* Writes the Community ID, version 1, of the packet's flow (https://github.com/corelight/community-id-spec) over its outermost IP
 * header. It is the same for both directions, and in Zeek, Suricata and other tools with the same seed; most use the seed 0.
 * Returns its length, WEIR_COMMUNITY_ID_BYTES; or 0 for a packet without IP, and where the ports are not known. */
static inline __attribute__((unused)) uint32_t weir_community_id(const struct weir_packet *p, uint16_t seed,
                                                                     uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    enum { ICMP = 1, TCP = 6, UDP = 17, ICMP_V6 = 58, SCTP = 132 };
    if (!weir_is_ip(p))
        return 0;
    const bool is_v4 = (p->flags & WEIR_IPV4) != 0, has_header = (p->flags & WEIR_L4) != 0;
    const uint8_t protocol = p->ip_proto;
    const struct weir_ip src = weir_src(p), dst = weir_dst(p);
    uint16_t ports[2] = { p->src_port, p->dst_port };
    bool has_ports = true, is_one_way = false;
    if (protocol == TCP || protocol == UDP) {
        if (!has_header && (ports[0] | ports[1]) == 0)
            return 0;
    } else if (protocol == SCTP || protocol == ICMP || protocol == ICMP_V6) {
        if (!has_header || p->l4_offset + 4u > p->cap_len || (protocol == SCTP && p->payload_len < 4))
            return 0;
        const uint8_t *header = weir_l4(p);
        if (protocol == SCTP) {
            ports[0] = weir_be16(header);
            ports[1] = weir_be16(header + 2);
        } else {
            const int32_t counterpart = weir_icmp_counterpart(protocol == ICMP_V6, header[0]);
            is_one_way = counterpart < 0;
            ports[0] = header[0];
            ports[1] = is_one_way ? header[1] : (uint16_t)counterpart;
        }
    } else {
        has_ports = false;
        ports[0] = ports[1] = 0;
    }
    return weir_community_id_of(src, dst, is_v4, protocol, ports, has_ports, is_one_way, seed, out);
}

/* The Community ID of a TCP stream, in the same way. */
WEIR_INLINE uint32_t weir_stream_community_id(const struct weir_stream *event, uint16_t seed, uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    enum { TCP = 6 };
    const uint16_t ports[2] = { event->client_port, event->server_port };
    return weir_community_id_of(weir_ip_v6(event->client), weir_ip_v6(event->server), event->ip_version == 4, TCP, ports, true, false, seed,
                                out);
}

/* The Community ID of two ends. */
static inline __attribute__((unused)) uint32_t weir_community_id_of(struct weir_ip src, struct weir_ip dst, bool is_v4, uint8_t protocol,
                                                                        const uint16_t ports[2], bool has_ports, bool is_one_way,
                                                                        uint16_t seed, uint8_t out[WEIR_COMMUNITY_ID_BYTES])
{
    /* The lower address and port come first. */
    const uint64_t a[2] = { __builtin_bswap64(src.first), __builtin_bswap64(src.last) };
    const uint64_t b[2] = { __builtin_bswap64(dst.first), __builtin_bswap64(dst.last) };
    const bool is_higher = a[0] != b[0] ? a[0] > b[0] : a[1] != b[1] ? a[1] > b[1] : ports[0] > ports[1];
    const bool swapped = is_higher && !is_one_way;
    uint8_t message[2 + 2 * 16 + 2 + 2 * 2], ends[2][16];
    weir_ip_store(ends[swapped], src);
    weir_ip_store(ends[!swapped], dst);
    const uint32_t address_len = is_v4 ? 4 : 16;
    uint8_t *at = message;
    *at++ = (uint8_t)(seed >> 8);
    *at++ = (uint8_t)seed;
    for (uint32_t end = 0; end < 2; end++, at += address_len) {
        if (is_v4)
            weir_copy(at, ends[end] + 12, 4);
        else
            weir_copy(at, ends[end], 16);
    }
    *at++ = protocol;
    *at++ = 0;
    if (has_ports)
        for (uint32_t end = 0; end < 2; end++) {
            const uint16_t port = ports[swapped ? 1 - end : end];
            *at++ = (uint8_t)(port >> 8);
            *at++ = (uint8_t)port;
        }
    /* One byte more than the digest, so that it is a whole number of groups of three. */
    uint8_t digest[WEIR_SHA1_BYTES + 1] = { 0 };
    /* At most 40 bytes. The compiler may not see that the mask has no effect; so the analyser finds a bound of the cost. */
    uint32_t message_len = (uint32_t)(at - message);
    __asm__("" : "+r"(message_len));
    if (weir_sha1(message, message_len & 63, digest) < 0)
        return 0;
    static const uint8_t base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *to = out;
    *to++ = '1';
    *to++ = ':';
    for (uint32_t i = 0; i < sizeof digest; i += 3) {
        const uint32_t group = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | digest[i + 2];
        for (uint32_t shift = 24; shift > 0;) {
            shift -= 6;
            *to++ = base64[group >> shift & 63];
        }
    }
    out[WEIR_COMMUNITY_ID_BYTES - 1] = '=';
    return WEIR_COMMUNITY_ID_BYTES;
}

/* ---- Named tables ---------------------------------------------------------------------------------------------------- */

enum {
    WEIR_TABLES = 8,                            /* named tables that a module reads and publishes */
    WEIR_TABLE_BYTES = 64 * 1024 * 1024,        /* bytes of a table */
    WEIR_PUBLISHED_BYTES = 1024 * 1024,         /* bytes of a table that a module publishes */
};

#define WEIR_TABLES_BASE 0xC0000000u
#define WEIR_TABLES_MAX 0x20000000u

/* A table that an operator or another session shares, read only. It does not change until the call ends. The next call may find another version,
 * or none, so use pointers into it only in the call in which they were made. In a module: table_NAME() of module.h. */
struct weir_table {
    const uint8_t *bytes;
    uint32_t len;     /* 0 without a table; never more than the manifest's `bytes` */
    uint64_t version; /* 0 without a table; another number for other bytes */
};

/* The header before a table's bytes. */
struct weir_table_header {
    uint64_t version;
    uint32_t len, zero[13];
};

/* Three loads. The length is never more than `most`; the comparison gives a loop up to it a limit that weir knows. */
WEIR_INLINE struct weir_table weir_table_at(uint32_t window, uint32_t most)
{
    const struct weir_table_header *header = (const struct weir_table_header *)(const void *)weir_at(window);
    const uint32_t len = header->len;
    return (struct weir_table){ (const uint8_t *)(header + 1), len < most ? len : most, header->version };
}

/* Makes these bytes the table's next version, for all readers. weir takes a copy at once; readers change to it between two calls. It stays
 * even if this call is lost. WEIR_OK, WEIR_RANGE (more than the manifest's `bytes`), WEIR_FULL (no memory for it), WEIR_DENIED (no readers,
 * because there is no session) or WEIR_UNKNOWN. In a module: publish_NAME(bytes, len) of module.h. */
WEIR_INLINE int32_t weir_publish(uint32_t table, const void *bytes, uint32_t len) { return weir_host_publish(table, bytes, len); }

/* ---- Messages with values --------------------------------------------------------------------------------------------- */

/* Logs a line that is put together from up to 12 parts, which have to be of these types:
 *
 *     WEIR_LOGF(WEIR_WARNING, "no place for ", weir_src(p), ", port ", p->src_port, ": flags ", weir_hex(p->flags));
 *
 *     char *                     a text that ends with a zero
 *     any integer type           in decimal digits
 *     struct weir_hex            weir_hex(number): in hexadecimal digits
 *     struct weir_ip             an address, also struct weir_mac
 *     struct weir_part           weir_part(bytes, len): bytes
 *
 * The line has at most WEIR_TEXT_BYTES bytes; what is beyond is left out. Each part has a constant bound of its time, and a value of
 * another type does not compile. Returns WEIR_OK, or WEIR_FULL after WEIR_LOG_MESSAGES in a run. */
#define WEIR_LOGF(level, ...)                                                                                                    \
    __extension__({                                                                                                              \
        struct weir_text weir_line = WEIR_TEXT;                                                                                  \
        WEIR_LOG_PICK(__VA_ARGS__, WEIR_LOG_12, WEIR_LOG_11, WEIR_LOG_10, WEIR_LOG_9, WEIR_LOG_8, WEIR_LOG_7, WEIR_LOG_6,        \
                      WEIR_LOG_5, WEIR_LOG_4, WEIR_LOG_3, WEIR_LOG_2, WEIR_LOG_1, )(__VA_ARGS__);                                \
        weir_log_line((level), &weir_line);                                                                                      \
    })

struct weir_hex { uint64_t number; };
struct weir_part { const uint8_t *bytes; uint32_t len; };

/* Marks a number that WEIR_LOGF writes in hexadecimal digits. */
WEIR_INLINE struct weir_hex weir_hex(uint64_t number) { return (struct weir_hex){ number }; }

/* Marks bytes that WEIR_LOGF writes as a text. weir escapes control characters. */
WEIR_INLINE struct weir_part weir_part(const void *bytes, uint32_t len) { return (struct weir_part){ (const uint8_t *)bytes, len }; }

#define WEIR_LOG_PART(value)                                                                                                     \
    _Generic((value), char *: weir_log_text, const char *: weir_log_text, struct weir_hex: weir_log_hex, struct weir_ip: weir_add_ip, \
        struct weir_part: weir_log_part, bool: weir_add_number, unsigned char: weir_add_number, unsigned short: weir_add_number, \
        unsigned: weir_add_number, unsigned long: weir_add_number, unsigned long long: weir_add_number, char: weir_log_signed,   \
        signed char: weir_log_signed, short: weir_log_signed, int: weir_log_signed, long: weir_log_signed,                       \
        long long: weir_log_signed, struct weir_mac: weir_add_mac)(&weir_line, (value))
#define WEIR_LOG_PICK(a, b, c, d, e, f, g, h, i, j, k, l, pick, ...) pick
#define WEIR_LOG_1(value) WEIR_LOG_PART(value)
#define WEIR_LOG_2(value, ...) WEIR_LOG_PART(value); WEIR_LOG_1(__VA_ARGS__)
#define WEIR_LOG_3(value, ...) WEIR_LOG_PART(value); WEIR_LOG_2(__VA_ARGS__)
#define WEIR_LOG_4(value, ...) WEIR_LOG_PART(value); WEIR_LOG_3(__VA_ARGS__)
#define WEIR_LOG_5(value, ...) WEIR_LOG_PART(value); WEIR_LOG_4(__VA_ARGS__)
#define WEIR_LOG_6(value, ...) WEIR_LOG_PART(value); WEIR_LOG_5(__VA_ARGS__)
#define WEIR_LOG_7(value, ...) WEIR_LOG_PART(value); WEIR_LOG_6(__VA_ARGS__)
#define WEIR_LOG_8(value, ...) WEIR_LOG_PART(value); WEIR_LOG_7(__VA_ARGS__)
#define WEIR_LOG_9(value, ...) WEIR_LOG_PART(value); WEIR_LOG_8(__VA_ARGS__)
#define WEIR_LOG_10(value, ...) WEIR_LOG_PART(value); WEIR_LOG_9(__VA_ARGS__)
#define WEIR_LOG_11(value, ...) WEIR_LOG_PART(value); WEIR_LOG_10(__VA_ARGS__)
#define WEIR_LOG_12(value, ...) WEIR_LOG_PART(value); WEIR_LOG_11(__VA_ARGS__)

static inline __attribute__((unused)) void weir_log_text(struct weir_text *text, const char *part)
{
    for (uint32_t i = 0; i < WEIR_TEXT_BYTES && part[i] != 0; i++)
        weir_add_byte(text, (uint8_t)part[i]);
}

static inline __attribute__((unused)) void weir_log_part(struct weir_text *text, struct weir_part part)
{
    for (uint32_t i = 0; i < WEIR_TEXT_BYTES && i < part.len; i++)
        weir_add_byte(text, part.bytes[i]);
}

static inline __attribute__((unused)) void weir_log_signed(struct weir_text *text, int64_t number)
{
    if (number < 0)
        weir_add_byte(text, '-');
    weir_add_number(text, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static inline __attribute__((unused)) void weir_log_hex(struct weir_text *text, struct weir_hex hex)
{
    for (uint32_t digit = 16; digit-- > 0;)
        if (digit == 0 || hex.number >> 4 * digit != 0)
            weir_add_byte(text, (uint8_t)"0123456789abcdef"[hex.number >> 4 * digit & 15]);
}

WEIR_INLINE int32_t weir_log_line(uint32_t level, const struct weir_text *text)
{
    /* At most WEIR_TEXT_BYTES. The compiler may not see that the comparison has no effect; so the analyser finds a bound of the cost. */
    uint32_t len = text->len;
    __asm__("" : "+r"(len));
    return weir_log(level, text->bytes, len < WEIR_TEXT_BYTES ? len : WEIR_TEXT_BYTES);
}

/* ---- Bounded jumps ------------------------------------------------------------------------------------------------------ */

/* WEIR_LABEL(max, name); is a label that is reached at most `max` times, counting from the line's own begin; once more traps. It
 * bounds a loop of `goto` without another change of the code:
 *
 *     WEIR_LABEL(64, again);
 *     if (parents[at] != at) {
 *         at = parents[at];
 *         goto again;
 *     }
 *
 * Jumps to it come from below only. */
#define WEIR_LABEL(max, name)                                                                                                    \
    struct weir_trips name##_trips = { 0, (max) };                                                                               \
    name:                                                                                                                        \
    if (weir_past(&name##_trips))                                                                                                \
        __builtin_trap()

/* ---- Ethernet addresses ------------------------------------------------------------------------------------------------- */

/* An Ethernet address (MAC-48), which can be the key of a map. */
struct weir_mac { uint8_t bytes[6]; };

/* Returns the address in 6 bytes. */
WEIR_INLINE struct weir_mac weir_mac_of(const uint8_t *bytes)
{
    struct weir_mac mac;
    weir_copy(mac.bytes, bytes, sizeof mac.bytes);
    return mac;
}

/* True if the packet begins with a whole Ethernet header. */
WEIR_INLINE bool weir_is_ethernet(const struct weir_packet *p) { return p->link_type == 1 && p->cap_len >= 14; }

/* Source and destination; with weir_is_ethernet(). */
WEIR_INLINE struct weir_mac weir_mac_src(const struct weir_packet *p) { return weir_mac_of(weir_bytes(p) + 6); }
WEIR_INLINE struct weir_mac weir_mac_dst(const struct weir_packet *p) { return weir_mac_of(weir_bytes(p)); }

/* Adds an address as people write it: 02:00:5e:10:00:ff. */
static inline __attribute__((unused)) void weir_add_mac(struct weir_text *text, struct weir_mac mac)
{
    for (uint32_t i = 0; i < sizeof mac.bytes; i++) {
        if (i != 0)
            weir_add_byte(text, ':');
        weir_add_byte(text, (uint8_t)"0123456789abcdef"[mac.bytes[i] >> 4]);
        weir_add_byte(text, (uint8_t)"0123456789abcdef"[mac.bytes[i] & 15]);
    }
}

#endif
