/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * arm: active reliable multicast (L. Lehman, S. Garland, D. Tennenhouse, "Active Reliable Multicast", INFOCOM 1998). It keeps copies of the
 * packets of a stream, and answers receivers' requests for lost packets from them. A request goes on only if there is no copy and
 * no recent request for the same packet. If it answers too few requests, it asks for more memory.
 *
 * README.md has the layout of packets.
 */
#include "weir.h"
#include "module.h"

enum {
    TYPE_DATA = 1,
    TYPE_NACK = 2,

    /* Type, version, two unused bytes, stream, and in data the sequence number, in a NACK the count of those that follow. */
    HEADER = 12,
    VERSION = 1,
    NACKS_MAX = 32,

    /* A slot for a frame, with its length and key. */
    PLACE = 2048,
    FRAME_MAX = PLACE - 16,

    /* Sequence numbers are looked up by their lower bits: this many consecutive ones do not collide. */
    INDEX = 4096,
    PLACES_MAX = 4096,
    /* Memory is allocated in portions of this many slots. */
    PORTION = 32,
};

struct place {
    uint32_t stream, sequence, len, taken;
    uint8_t frame[FRAME_MAX];
};
_Static_assert(sizeof(struct place) == PLACE, "a power of two");

/* The state of a sequence number. */
struct entry {
    uint32_t stream, sequence;
    /* The number of its slot, from 1; 0: none. */
    uint32_t place;
    uint32_t nothing;
    /* The times of the last copy sent and of the last request that went on, each plus 1 ns, so that 0 means never. */
    uint64_t sent, asked;
};

static struct entry entries[INDEX];
static struct place *portions[PLACES_MAX / PORTION];
static uint32_t places, wanted, next;
static uint64_t data, nacks, hits, sent, forwarded, suppressed, refused;
static uint64_t interval_nacks, interval_hits;

static struct place *place_of(uint32_t number)
{
    return portions[(number & (PLACES_MAX - 1)) / PORTION] + number % PORTION;
}

static struct entry *entry_of(uint32_t stream, uint32_t sequence)
{
    /* The stream is part of the key, so that streams with the same numbers have different entries. */
    return &entries[(sequence + (uint32_t)weir_hash64(stream, 0)) & (INDEX - 1)];
}

/* Allocates memory for more copies, if there is any. */
static bool grow(void)
{
    if (places >= wanted)
        return false;
    struct place *more = weir_alloc(PORTION * sizeof(struct place));
    if (more == NULL) {
        wanted = places;
        return false;
    }
    portions[(places & (PLACES_MAX - 1)) / PORTION] = more;
    /* The next copies use it, before the oldest copy is overwritten. */
    next = places;
    places += PORTION;
    return true;
}

/* Keeps a copy. */
static __attribute__((noinline)) void remember(const struct weir_packet *p, uint32_t stream, uint32_t sequence)
{
    data++;
    if (p->cap_len > FRAME_MAX || (p->flags & WEIR_CUT) || places == 0)
        return;
    struct entry *entry = entry_of(stream, sequence);
    if (entry->place != 0 && entry->stream == stream && entry->sequence == sequence)
        return;
    if (next >= places)
        next = 0;
    struct place *place = place_of(next);
    if (place->taken) {
        struct entry *old = entry_of(place->stream, place->sequence);
        if (old->place == next + 1)
            old->place = 0;
    }
    place->stream = stream;
    place->sequence = sequence;
    place->len = p->cap_len;
    place->taken = 1;
    weir_copy(place->frame, weir_bytes(p), p->cap_len);
    *entry = (struct entry){ .stream = stream, .sequence = sequence, .place = next + 1 };
    next++;
}

/* Handles one requested packet. Returns true if the request has to go on. */
static bool ask(uint64_t now, uint32_t stream, uint32_t sequence)
{
    const uint64_t quiet = (uint64_t)param_quiet();
    struct entry *entry = entry_of(stream, sequence);
    nacks++;
    interval_nacks++;
    if (entry->stream != stream || entry->sequence != sequence) {
        /* Only a request is known of it. That is no reason to drop the copy of another packet. */
        if (entry->place != 0) {
            forwarded++;
            return true;
        }
        *entry = (struct entry){ .stream = stream, .sequence = sequence };
    }
    if (entry->place != 0) {
        hits++;
        interval_hits++;
        /* The last copy went to all receivers, so further requests need no copy of their own. */
        if (entry->sent != 0 && now + 1 - entry->sent < quiet) {
            suppressed++;
            return false;
        }
        const struct place *place = place_of(entry->place - 1);
        const uint32_t len = place->len < FRAME_MAX ? place->len : FRAME_MAX;
        if (send_repairs(place->frame, len) == WEIR_OK) {
            sent++;
            entry->sent = now + 1;
        } else {
            refused++;
        }
        return false;
    }
    if (entry->asked != 0 && now + 1 - entry->asked < quiet) {
        suppressed++;
        return false;
    }
    entry->asked = now + 1;
    forwarded++;
    return true;
}

/* Handles a request. Returns true if it has to go on for any of its packets. */
static __attribute__((noinline)) bool answer(const struct weir_packet *p, uint32_t stream, const uint8_t *nack)
{
    const uint32_t given = weir_be32(nack + 8), room = (p->payload_len - HEADER) / 4;
    bool goes_on = given > NACKS_MAX || given > room;
    for (uint32_t i = 0; i < NACKS_MAX; i++) {
        if (i >= given || i >= room)
            break;
        goes_on |= ask(p->ts_ns, stream, weir_be32(nack + HEADER + 4 * i));
    }
    return goes_on;
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint32_t portions_wanted = (uint32_t)param_first() / PORTION;
    for (uint32_t i = 0; i < PLACES_MAX / PORTION; i++) {
        if (i >= portions_wanted)
            break;
        wanted += PORTION;
        grow();
    }
    if (places == 0)
        WEIR_LOG(WEIR_ERROR, "there is no memory for a single portion");
    return places == 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || !(p->flags & WEIR_L4) || p->dst_port != param_port() || p->payload_len < HEADER)
        return WEIR_PASS;
    const uint8_t *payload = weir_payload(p);
    if (payload[1] != VERSION)
        return WEIR_PASS;
    const uint32_t stream = weir_be32(payload + 4);
    if (payload[0] == TYPE_DATA)
        remember(p, stream, weir_be32(payload + 8));
    else if (payload[0] == TYPE_NACK)
        return answer(p, stream, payload) ? WEIR_PASS : WEIR_DROP;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_low_memory) void weir_low_memory(int64_t left)
{
    (void)left;
    /* The present memory has to suffice until too few requests are answered again. */
    wanted = places;
}

/* Asks for memory for one more portion. The reservation is the session's, and includes the use of its other modules. */
static __attribute__((noinline)) void ask_for_more(void)
{
    const int64_t more = PORTION * sizeof(struct place), now = weir_reserve(0);
    if (places + PORTION > PLACES_MAX || places + PORTION > param_most())
        return;
    if (now >= 0)
        weir_reserve(now + more);
    wanted = places + PORTION;
    grow();
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    const struct service_row row = {
        .time = now - (uint64_t)param_interval() * periods,
        .data_packets = data,
        .nack_packets = nacks,
        .hit_packets = hits,
        .sent_packets = sent,
        .forwarded_packets = forwarded,
        .suppressed_packets = suppressed,
        .refused_packets = refused,
        .copies = places,
        .copies_bytes = (uint64_t)places * PLACE,
    };
    emit_service(&row);
    if (interval_nacks != 0 && interval_hits * 100 < interval_nacks * param_target())
        ask_for_more();
    interval_nacks = interval_hits = 0;
}
