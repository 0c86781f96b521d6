/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * flood: sends frames as fast as it may, on one output. A load for experiments.
 *
 * A frame is Ethernet with EtherType 0x88B5 (IEEE 802, for local experiments), then a mark and a number, big-endian, 8 bytes each;
 * the rest is zeros.
 */
#include "weir.h"
#include "module.h"

enum {
    HEADER = 14,
    MARK = HEADER,
    NUMBER = MARK + 8,
    FRAME_MIN = NUMBER + 8, /* `min` of `size` in weir.toml */
    ETHERTYPE = 0x88B5,
};

static uint8_t frame[WEIR_FRAME_BYTES];
static uint64_t sent, full, denied, other;

static void set_be64(uint8_t *to, uint64_t value)
{
    weir_set_le64(to, __builtin_bswap64(value));
}

static __attribute__((noinline)) void send_so_many(uint32_t wanted)
{
    const uint32_t size = (uint32_t)param_size();
    for (uint32_t i = 0; i < wanted; i++) {
        set_be64(frame + NUMBER, sent);
        const int32_t code = send_flood(frame, size); /* one frame on the output `flood` */
        if (code == WEIR_OK) {
            sent++;
        } else {
            full += code == WEIR_FULL;
            denied += code == WEIR_DENIED;
            other += code != WEIR_FULL && code != WEIR_DENIED;
            /* The next frame would be refused for the same reason. */
            break;
        }
    }
}

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint64_t destination = param_destination(), source = param_source();
    for (uint32_t i = 0; i < 6; i++) {
        frame[i] = (uint8_t)(destination >> (40 - 8 * i));
        frame[6 + i] = (uint8_t)(source >> (40 - 8 * i));
    }
    frame[12] = ETHERTYPE >> 8;
    frame[13] = ETHERTYPE & 0xFF;
    set_be64(frame + MARK, param_mark());
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    send_so_many((uint32_t)param_per_packet());
    return WEIR_PASS;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)now;
    (void)periods;
    send_so_many((uint32_t)param_per_tick());
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct totals_row row = { .sent = sent, .full = full, .denied = denied, .other = other };
    emit_totals(&row);
}
