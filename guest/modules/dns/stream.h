/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Messages in TCP streams: two bytes of length before each (RFC 1035, 4.2.2). A message that lies in one event is read there. One that
 * is split takes a buffer until it is complete. Buffers are found by the top bits of the flow hash, as all else.
 */
#ifndef DNS_STREAM_H
#define DNS_STREAM_H

#include "weir.h"
#include "module.h"
#include "transaction.h"

enum {
    BUFFERS = 8,               /* in each share */
    BUFFER_BYTES = 4096,       /* of a split message; the rest is not read */
    MESSAGES_PER_EVENT = 4,    /* that are read, so that the time of an event is bounded */
    NO_BUFFER = 255,
};

enum { PHASE_LENGTH, PHASE_LENGTH_LOW, PHASE_BODY };

/* A direction of a stream. */
struct direction {
    uint16_t need, have; /* bytes of the message at hand, and those that came */
    uint8_t phase, buffer;
};

struct buffer {
    uint32_t owner; /* stream * 2 + direction + 1; 0: free */
    uint64_t last_ns;
};

static struct direction *directions; /* two for each stream */
static uint32_t directions_mask;
static struct buffer buffers[SHARES][BUFFERS];
static uint8_t buffer_bytes[SHARES][BUFFERS][BUFFER_BYTES];

static bool start_streams(void)
{
    const uint32_t streams = 1u << (64 - (uint32_t)__builtin_clzll((param_streams() - 1) | 255));
    directions_mask = 2 * streams - 1;
    directions = weir_alloc(2 * streams * (uint32_t)sizeof *directions);
    return directions != NULL;
}

static inline uint32_t share_of(const struct weir_stream *event) { return (uint32_t)(event->flow_hash >> (64 - SHARE_BITS)); }
static inline uint32_t owner_of(const struct weir_stream *event, uint32_t direction) { return 2 * event->stream + direction + 1; }

/* The buffer of a direction's message, or NULL if another message has taken it. */
static uint8_t *buffer_of(const struct weir_stream *event, const struct direction *d)
{
    const uint32_t share = share_of(event);
    if (d->buffer >= BUFFERS || buffers[share][d->buffer].owner != owner_of(event, event->direction))
        return NULL;
    buffers[share][d->buffer].last_ns = event->ts_ns;
    return buffer_bytes[share][d->buffer];
}

/* Takes a buffer: a free one, or that of the message that has waited longest for its next bytes. */
static void take_buffer(const struct weir_stream *event, struct direction *d)
{
    struct buffer *pool = buffers[share_of(event)];
    uint32_t best = 0;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (pool[i].owner == 0) {
            best = i;
            break;
        }
        if (pool[i].last_ns < pool[best].last_ns)
            best = i;
    }
    pool[best] = (struct buffer){ .owner = owner_of(event, event->direction), .last_ns = event->ts_ns };
    d->buffer = (uint8_t)best;
}

static void free_buffer(const struct weir_stream *event, uint32_t direction, struct direction *d)
{
    if (d->buffer < BUFFERS && buffers[share_of(event)][d->buffer].owner == owner_of(event, direction))
        buffers[share_of(event)][d->buffer].owner = 0;
    d->buffer = NO_BUFFER;
}

/* Reads the length in front of a message. Returns the offset behind what it read; the phase is PHASE_BODY if the length is complete. */
static uint32_t read_length(struct direction *d, const uint8_t *bytes, uint32_t at, uint32_t len)
{
    if (d->phase == PHASE_LENGTH && at < len) {
        d->need = (uint16_t)(bytes[at++] << 8);
        d->phase = PHASE_LENGTH_LOW;
    }
    if (d->phase == PHASE_LENGTH_LOW && at < len) {
        d->need |= bytes[at++];
        d->have = 0;
        d->buffer = NO_BUFFER;
        d->phase = PHASE_BODY;
    }
    return at;
}

/* Counts bytes of a message that is not read. Returns the offset behind them. */
static uint32_t pass(struct direction *d, uint32_t at, uint32_t len)
{
    const uint32_t missing = (uint32_t)d->need - d->have, left = len - at, taken = missing < left ? missing : left;
    d->have = (uint16_t)(d->have + taken);
    if (d->have == d->need)
        d->phase = PHASE_LENGTH;
    return at + taken;
}

/* A message of a stream. Returns false if it is no DNS. */
static bool stream_message(const struct weir_stream *event, const uint8_t *bytes, uint32_t len, uint32_t wire_len);

/* Reads the next message as far as the event has it. Returns the offset behind it; `is_dns` gets false if it is no DNS. */
static __attribute__((noinline)) uint32_t read_next(const struct weir_stream *event, struct direction *d, uint32_t at, bool *is_dns)
{
    const uint8_t *bytes = weir_stream_bytes(event);
    const uint32_t len = event->len;
    at = read_length(d, bytes, at, len);
    if (d->phase != PHASE_BODY)
        return at;
    const uint32_t left = len - at;
    const uint8_t *message = bytes + at;
    uint8_t *buffer = NULL;
    if (d->have == 0 && left < d->need && left != 0)
        take_buffer(event, d);
    const bool is_whole = d->have == 0 && left >= d->need;
    if (!is_whole) {
        buffer = buffer_of(event, d);
        const uint32_t have = d->have, room = have < BUFFER_BYTES ? BUFFER_BYTES - have : 0;
        const uint32_t missing = d->need - have, wanted = missing < left ? missing : left, count = wanted < room ? wanted : room;
        if (buffer != NULL)
            weir_copy(buffer + (have & (BUFFER_BYTES - 1)), message, count < BUFFER_BYTES ? count : BUFFER_BYTES);
        message = buffer;
    }
    at = pass(d, at, len);
    if (d->phase != PHASE_LENGTH || d->need == 0)
        return at;
    if (message == NULL) {
        /* The buffer was taken, or bytes are missing. */
        losses[share_of(event)].skipped++;
        return at;
    }
    const uint32_t kept = is_whole || d->need < BUFFER_BYTES ? d->need : BUFFER_BYTES;
    *is_dns = stream_message(event, message, kept, d->need);
    free_buffer(event, event->direction, d);
    return at;
}

/* Bytes of a direction. Returns what weir_stream does. */
static __attribute__((noinline)) int32_t stream_bytes(const struct weir_stream *event, struct direction *d)
{
    uint32_t at = 0;
    bool is_dns = true;
    for (uint32_t i = 0; i < MESSAGES_PER_EVENT && at < event->len && is_dns; i++)
        at = read_next(event, d, at, &is_dns);
    if (!is_dns) {
        free_buffer(event, 0, &directions[2 * event->stream & directions_mask]);
        free_buffer(event, 1, &directions[(2 * event->stream + 1) & directions_mask]);
        return WEIR_STREAM_IGNORE;
    }
    /* More messages in one event are not read, but their lengths are, so that the next event is understood. */
    const uint8_t *bytes = weir_stream_bytes(event);
    for (uint32_t i = 0; i < event->len && at < event->len; i++) {
        at = read_length(d, bytes, at, event->len);
        if (d->phase != PHASE_BODY)
            break;
        if (d->have == 0)
            losses[share_of(event)].skipped++;
        at = pass(d, at, event->len);
    }
    return WEIR_STREAM_CONTINUE;
}

/* Bytes are missing. The message that they belong to is lost; behind its end the lengths are not known. */
static int32_t stream_gap(const struct weir_stream *event, struct direction *d)
{
    const uint32_t missing = event->missing;
    if (d->phase == PHASE_BODY && missing <= (uint32_t)d->need - d->have) {
        free_buffer(event, event->direction, d);
        if (pass(d, 0, missing) == missing && d->phase == PHASE_LENGTH)
            losses[share_of(event)].skipped++;
        return WEIR_STREAM_CONTINUE;
    }
    losses[share_of(event)].skipped++;
    free_buffer(event, event->direction, d);
    return WEIR_STREAM_SKIP;
}

static int32_t stream_event(const struct weir_stream *event)
{
    struct direction *both = &directions[2 * event->stream & directions_mask];
    struct direction *d = &both[event->direction & 1];
    switch (event->kind) {
    case WEIR_STREAM_OPEN:
        both[0] = both[1] = (struct direction){ .buffer = NO_BUFFER };
        return WEIR_STREAM_CONTINUE;
    case WEIR_STREAM_BYTES: return stream_bytes(event, d);
    case WEIR_STREAM_GAP: return stream_gap(event, d);
    case WEIR_STREAM_FIN:
    case WEIR_STREAM_END:
        for (uint32_t i = 0; i < 2; i++) {
            if (event->kind == WEIR_STREAM_FIN && i != event->direction)
                continue;
            losses[share_of(event)].skipped += both[i].phase == PHASE_BODY;
            both[i].phase = PHASE_LENGTH;
            free_buffer(event, i, &both[i]);
        }
        return WEIR_STREAM_CONTINUE;
    default: return WEIR_STREAM_CONTINUE;
    }
}

#endif
