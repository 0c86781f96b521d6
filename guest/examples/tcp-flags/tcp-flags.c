/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* tcp-flags: how often each combination of TCP flags occurs, in each interval.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

static uint64_t packets[256];
static struct weir_histogram lengths;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if ((p->flags & WEIR_TCP) && (p->flags & WEIR_L4)) {
        packets[p->tcp_flags]++;
        weir_histogram_add(&lengths, p->wire_len);
    }
    return WEIR_PASS;
}

static void report(uint64_t begin)
{
    const uint64_t median = weir_histogram_quantile(&lengths, 0.5);
    for (uint32_t flags = 0; flags < 256; flags++) {
        if (packets[flags] == 0)
            continue;
        struct weir_text names = WEIR_TEXT;
        for (uint32_t bit = 0; bit < 8; bit++)
            if (flags >> bit & 1) {
                if (names.len > 0)
                    weir_add_byte(&names, ' ');
                weir_add(&names, &"FINSYNRSTPSHACKURGECECWR"[3 * bit], 3);
            }
        const struct flags_row row = {
            .time = begin,
            .flags = (uint8_t)flags,
            .names = weir_text_string(&names),
            .packets = packets[flags],
            .bytes_median = median,
        };
        emit_flags(&row);
    }
    weir_fill(packets, 0, sizeof packets);
    weir_histogram_clear(&lengths);
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    report(now - periods * (uint64_t)param_interval());
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now - now % (uint64_t)param_interval());
}
