/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* heavy-hitters: pairs of hosts that exceed a number of bytes in an interval. The sketch has the same size for any number of
 * pairs. A pair is reported when its estimate passes the threshold, which happens once in an interval.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { WIDTH = 16384 };

struct pair {
    struct weir_ip source, destination;
} WEIR_KEY;
WEIR_COUNT_MIN(bytes, struct pair, WIDTH)

static __attribute__((noinline)) void report(const struct weir_packet *p, uint64_t estimate)
{
    struct hitters_row row = {
        .time = p->ts_ns,
        .bytes = estimate,
        .error_bytes = (uint64_t)(2.72 * (double)bytes_total() / WIDTH),
    };
    weir_ip_src(p, row.source);
    weir_ip_dst(p, row.destination);
    emit_hitters(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ip(p))
        return WEIR_PASS;
    const struct pair pair = { weir_src(p), weir_dst(p) };
    const uint64_t estimate = bytes_add(pair, p->wire_len);
    if (estimate > param_threshold() && estimate - p->wire_len <= param_threshold())
        report(p, estimate);
    return WEIR_PASS;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)now;
    (void)periods;
    bytes_clear();
}
