/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * What the table holds of a flow.
 */
#ifndef FLOW_H
#define FLOW_H

#include "weir.h"

/* Bits of struct flow.kind, above the protocol. */
enum {
    IS_V6 = 1 << 8,
    IS_FRAGMENT = 1 << 9,
    IS_ONE_WAY = 1 << 10, /* ICMP without a type that answers */
    HAS_PORTS = 1 << 11,
};

/* Bits of struct flow.bits. A plain segment of the originator with ACK_QUICK or DATA_QUICK, or of the responder with these bits shifted by 2,
 * changes nothing but counts and the next sequence number. */
enum {
    ACK_QUICK = 1,
    DATA_QUICK = 2,
    ENDED = 16, /* closed or reset */
};

/* What each packet needs. Index 0 is the originator's direction, 1 the responder's. */
struct flow {
    uint64_t last_ns;
    uint64_t start_ns;
    uint64_t bytes[2];
    uint32_t packets[2];
    uint32_t next[2]; /* TCP: next sequence number */
    uint64_t ends;    /* IPv4: addresses of originator and responder; IPv6: 0 */
    uint32_t ports;   /* of the originator, and above it of the responder */
    uint16_t kind;
    uint16_t bits;
};

/* States of an endpoint, as in Zeek. */
enum { INACTIVE, SYN_SENT, SYN_ACK_SENT, PARTIAL, ESTABLISHED, CLOSED, RESET };

/* Bits of struct detail.flags. */
enum {
    HAS_RTT = 1,
    HAS_SERVER_RTT = 2, /* also: the SYN-ACK was seen after the last SYN */
    IS_PENDING = 4,     /* the SYN was seen, the ACK not yet */
    HAS_DATA = 8,
    DID_CLOSE = 16, /* of the originator; of the responder shifted by 1 */
    HAS_VLAN = 64,
};

/* Letters of the history that a direction has already; shifted by 8 for the responder. */
enum { SEEN_SYN = 1, SEEN_FIN = 2, SEEN_RST = 4, SEEN_FIN_RST = 8, SEEN_MULTI = 16, SEEN_ACK = 32, SEEN_DATA = 64 };

enum { HISTORY = 19 };

/* The rest of a flow. */
struct detail {
    struct weir_ip src, dst;
    uint64_t syn_ns;
    int64_t rtt_ns;
    int64_t server_rtt_ns;
    uint32_t start[2]; /* sequence number of the SYN */
    uint32_t retransmitted[2];
    uint32_t last_syn[2], last_fin[2], last_rst[2];
    uint16_t syn_len; /* bytes in the SYN */
    uint16_t seen;
    uint16_t vlan;
    uint8_t tunnel;
    uint8_t state[2], previous[2];
    uint8_t flags;
    uint8_t history_len;
    uint8_t history[HISTORY];
};

_Static_assert(sizeof(struct flow) == 64 && sizeof(struct detail) == 128, "one cache line, and two");

#endif
