/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The TCP state of a flow, by the rules of Zeek (see flows.c), its retransmissions, and the times of its handshake.
 */
#ifndef TCP_H
#define TCP_H

#include "flow.h"

#define SEQUENCE_JUMP 1048576 /* TOO_LARGE_SEQ_DELTA of Zeek */

static void add_letter(struct detail *d, uint32_t side, char letter)
{
    if (d->history_len < HISTORY)
        d->history[d->history_len++] = (uint8_t)(side != 0 ? letter | 0x20 : letter);
}

/* Adds a letter that a direction has once; true if it was there before. */
static bool had_letter(struct detail *d, uint32_t side, uint32_t bit, char letter)
{
    const uint16_t mask = (uint16_t)(bit << 8 * side);
    if (d->seen & mask)
        return true;
    d->seen |= mask;
    add_letter(d, side, letter);
    return false;
}

/* Adds a letter that a direction has once for each sequence number in a row. */
static void add_numbered(struct detail *d, uint32_t side, uint32_t bit, char letter, uint32_t last[2], uint32_t number)
{
    if (had_letter(d, side, bit, letter) && last[side] != number)
        add_letter(d, side, letter);
    last[side] = number;
}

struct segment {
    uint64_t ts_ns;
    uint32_t side, seq, ack, payload;
    bool is_syn, is_fin, is_rst, is_ack;
};

static void update_history(struct detail *d, const struct segment *s)
{
    const uint32_t side = s->side, flags = (uint32_t)s->is_syn + s->is_fin + s->is_rst;
    if (flags > 1) {
        if (s->is_fin && s->is_rst)
            had_letter(d, side, SEEN_FIN_RST, 'I');
        else
            had_letter(d, side, SEEN_MULTI, 'Q');
    } else if (s->is_syn) {
        add_numbered(d, side, SEEN_SYN, s->is_ack ? 'H' : 'S', d->last_syn, s->seq);
    } else if (s->is_fin) {
        add_numbered(d, side, SEEN_FIN, 'F', d->last_fin, s->seq + s->payload);
    } else if (s->is_rst) {
        add_numbered(d, side, SEEN_RST, 'R', d->last_rst, s->seq);
    } else if (s->payload != 0) {
        had_letter(d, side, SEEN_DATA, 'D');
    } else if (s->is_ack) {
        had_letter(d, side, SEEN_ACK, 'A');
    }
}

/* Times the handshake: the last SYN, the first SYN-ACK after it that acknowledges it, and the first ACK of both. */
static void time_handshake(struct detail *d, const struct segment *s)
{
    if (s->is_rst) {
        d->flags &= (uint8_t)~IS_PENDING;
        return;
    }
    const uint32_t next = d->start[0] + 1;
    if (s->is_syn && !s->is_ack && s->side == 0) {
        d->syn_ns = s->ts_ns;
        d->syn_len = (uint16_t)(s->payload < 0xFFFF ? s->payload : 0xFFFF);
        d->flags = (uint8_t)((d->flags & ~HAS_SERVER_RTT & ~HAS_RTT) | IS_PENDING);
    } else if (!(d->flags & IS_PENDING) || !s->is_ack) {
        return;
    } else if (s->is_syn) {
        if (s->side == 1 && !(d->flags & HAS_SERVER_RTT) && s->ack - next <= d->syn_len) {
            d->server_rtt_ns = (int64_t)(s->ts_ns - d->syn_ns);
            d->flags |= HAS_SERVER_RTT;
        }
    } else if (s->side == 0 && s->seq - next <= d->syn_len && (!(d->flags & HAS_SERVER_RTT) || s->ack == d->start[1] + 1)) {
        d->rtt_ns = (int64_t)(s->ts_ns - d->syn_ns);
        d->flags = (uint8_t)((d->flags & ~IS_PENDING) | HAS_RTT);
    }
}

/* Initialises or corrects the sequence numbers of an endpoint: init_endpoint of Zeek. */
static void init_sequence(struct flow *f, struct detail *d, const struct segment *s, uint32_t end)
{
    const uint32_t side = s->side, state = d->state[side];
    if (state == INACTIVE) {
        d->start[side] = s->is_syn ? s->seq : s->seq - 1;
        f->next[side] = s->is_syn ? end : s->seq;
    } else if (s->is_syn && state != CLOSED && (state != RESET || d->previous[side] == INACTIVE)) {
        if (s->seq != d->start[side] || state == PARTIAL || state == RESET) {
            d->start[side] = s->seq;
            f->next[side] = end;
        }
    }
    if (s->is_ack && d->state[1 - side] == INACTIVE) {
        d->start[1 - side] = s->ack - 1;
        f->next[1 - side] = s->ack;
    }
}

/* Follows the sequence numbers, and counts retransmissions. */
static void follow_sequence(struct flow *f, struct detail *d, const struct segment *s, uint32_t end)
{
    const uint32_t side = s->side, next = f->next[side];
    const int32_t delta = (int32_t)(end - next);
    if ((s->is_syn || s->is_rst) && (delta > SEQUENCE_JUMP || delta < -SEQUENCE_JUMP))
        return;
    if (s->is_fin && next == d->start[side] + 1) {
        f->next[side] = end;
        return;
    }
    if (d->state[side] == RESET)
        return;
    if (delta > 0)
        f->next[side] = end;
    const bool is_keepalive = s->payload == 1 && s->seq == next - 1;
    if (s->payload != 0 && !s->is_syn && !s->is_rst && (int32_t)(s->seq - next) < 0 && !is_keepalive) {
        const uint32_t count = ++d->retransmitted[side];
        if (count == 1 || count == 10 || count == 100 || count == 1000 || count == 10000)
            add_letter(d, side, 'T');
    }
}

static void set_state(struct detail *d, uint32_t side, uint8_t state)
{
    if (d->state[side] != state) {
        d->previous[side] = d->state[side];
        d->state[side] = state;
    }
}

/* Moves a connection on by a segment of an endpoint without a state: UpdateInactiveState of Zeek. True if the endpoint closes. */
static bool first_segment(struct detail *d, const struct segment *s)
{
    const uint32_t side = s->side, peer = 1 - side;
    bool closes = false;
    if (s->is_syn) {
        if (side == 1) {
            if (d->state[0] == SYN_SENT)
                set_state(d, 0, ESTABLISHED);
            set_state(d, 1, ESTABLISHED);
        } else if (d->state[1] == ESTABLISHED) {
            /* The SYN was captured behind its SYN-ACK. */
            set_state(d, 0, ESTABLISHED);
        } else {
            set_state(d, 0, s->is_ack ? SYN_ACK_SENT : SYN_SENT);
        }
    }
    if (s->is_fin) {
        set_state(d, side, CLOSED);
        closes = true;
    }
    if (s->is_rst) {
        set_state(d, side, RESET);
        closes = true;
    }
    if (d->state[side] == INACTIVE) {
        const bool acks_syn = side == 1 && s->payload == 0 && d->state[0] == SYN_SENT;
        if (!acks_syn)
            set_state(d, side, s->is_ack && d->state[peer] == ESTABLISHED ? ESTABLISHED : PARTIAL);
    }
    return closes;
}

/* Moves a connection on by a segment: UpdateStateMachine of Zeek. True if the endpoint closes. */
static bool next_state(struct detail *d, const struct segment *s)
{
    const uint32_t side = s->side, peer = 1 - side;
    switch (d->state[side]) {
    case INACTIVE:
        return first_segment(d, s);
    case SYN_SENT:
    case SYN_ACK_SENT:
        if (s->is_fin)
            set_state(d, side, CLOSED);
        if (s->is_rst)
            set_state(d, side, RESET);
        return s->is_fin || s->is_rst;
    case PARTIAL:
    case ESTABLISHED:
        if (s->is_syn && !s->is_ack && d->state[side] == PARTIAL && d->state[peer] == INACTIVE)
            set_state(d, side, SYN_SENT);
        if (s->is_rst) {
            set_state(d, side, RESET);
        } else if (s->is_fin) {
            set_state(d, side, CLOSED);
            /* The peer sent FIN and RST: a normal end. */
            if (d->state[peer] == RESET && d->previous[peer] == CLOSED)
                set_state(d, peer, CLOSED);
        }
        return s->is_fin || s->is_rst;
    case CLOSED:
        if (s->is_rst && d->state[peer] != CLOSED) {
            set_state(d, side, RESET);
            return true;
        }
        return false;
    default:
        return false;
    }
}

/* Handles a segment that may change more than counts. Out of line, so that most packets pass by a short function. */
static __attribute__((noinline)) void track(const struct weir_packet *p, struct flow *f, struct detail *d, uint32_t side, uint32_t payload)
{
    const struct segment s = {
        .ts_ns = p->ts_ns,
        .side = side,
        .seq = weir_tcp_seq(p),
        .ack = weir_tcp_ack(p),
        .payload = payload,
        .is_syn = (p->tcp_flags & WEIR_TCP_SYN) != 0,
        .is_fin = (p->tcp_flags & WEIR_TCP_FIN) != 0,
        .is_rst = (p->tcp_flags & WEIR_TCP_RST) != 0,
        .is_ack = (p->tcp_flags & WEIR_TCP_ACK) != 0,
    };
    /* Data of a RST is no part of the stream. */
    const uint32_t end = s.seq + (s.is_rst ? 0 : payload) + s.is_syn + s.is_fin;
    if (payload != 0 && !s.is_rst)
        d->flags |= HAS_DATA;
    init_sequence(f, d, &s, end);
    update_history(d, &s);
    time_handshake(d, &s);
    follow_sequence(f, d, &s, end);
    if (next_state(d, &s))
        d->flags |= (uint8_t)(DID_CLOSE << side);

    const bool closed[2] = { (d->flags & DID_CLOSE) != 0, (d->flags & DID_CLOSE << 1) != 0 };
    const bool is_reset = d->state[0] == RESET || d->state[1] == RESET;
    const bool is_half = (closed[0] && d->state[1] == INACTIVE) || (closed[1] && d->state[0] == INACTIVE);
    uint32_t bits = (closed[0] && closed[1]) || is_reset || is_half ? ENDED : 0;
    for (uint32_t i = 0; i < 2; i++) {
        const bool waits = i == 0 && (d->flags & IS_PENDING);
        if (d->state[i] == INACTIVE || d->state[i] == RESET || waits)
            continue;
        const uint32_t seen = d->seen >> 8 * i;
        bits |= ((seen & SEEN_ACK ? ACK_QUICK : 0u) | (seen & SEEN_DATA ? DATA_QUICK : 0u)) << 2 * i;
    }
    f->bits = (uint16_t)bits;
}

/* True if a SYN begins a new connection with the addresses and ports of this one: IsReuse of Zeek. */
static bool is_reuse(const struct detail *d, const struct weir_packet *p)
{
    const bool is_ack = (p->tcp_flags & WEIR_TCP_ACK) != 0;
    if (d->history_len == 0 || (is_ack && d->state[0] != INACTIVE))
        return false;
    return (d->flags & (DID_CLOSE | DID_CLOSE << 1)) != 0 || weir_tcp_seq(p) != d->start[is_ack];
}

/* True for a history that begins with SYN packets of the originator and its RST: ^?S[^HAFGIQ]*R.* */
static bool is_reset_before_answer(const struct detail *d)
{
    uint32_t at = d->history_len > 0 && d->history[0] == '^';
    if (at >= d->history_len || d->history[at] != 'S')
        return false;
    for (uint32_t i = 0; i < HISTORY; i++) {
        if (i <= at)
            continue;
        const uint8_t letter = i < d->history_len ? d->history[i] : 'H';
        if (letter == 'R')
            return true;
        if (letter == 'H' || letter == 'A' || letter == 'F' || letter == 'I' || letter == 'Q')
            return false;
    }
    return false;
}

/* Returns the state as the function conn_state of Zeek's main.zeek does. */
static struct weir_str conn_state(const struct detail *d)
{
    const uint8_t orig = d->state[0], resp = d->state[1];
    const bool orig_inactive = orig == INACTIVE || orig == PARTIAL, resp_inactive = resp == INACTIVE || resp == PARTIAL;
    if (resp == RESET) {
        if (orig == SYN_SENT || orig == SYN_ACK_SENT || (orig == RESET && !(d->flags & HAS_DATA)))
            return weir_string("REJ", 3);
        return orig_inactive ? weir_string("RSTRH", 5) : weir_string("RSTR", 4);
    }
    if (orig == RESET) {
        if (!resp_inactive)
            return weir_string("RSTO", 4);
        return is_reset_before_answer(d) ? weir_string("RSTOS0", 6) : weir_string("OTH", 3);
    }
    if (orig == CLOSED && resp == CLOSED)
        return weir_string("SF", 2);
    if (orig == CLOSED)
        return resp_inactive ? weir_string("SH", 2) : weir_string("S2", 2);
    if (resp == CLOSED)
        return orig_inactive ? weir_string("SHR", 3) : weir_string("S3", 2);
    if (orig == SYN_SENT && resp == INACTIVE)
        return weir_string("S0", 2);
    if (orig == ESTABLISHED && resp == ESTABLISHED)
        return weir_string("S1", 2);
    return weir_string("OTH", 3);
}

#endif
