/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* icmp-correlation: finds the reply of each ICMP echo request (RFC 792, RFC 4443), and reports requests without one.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

struct echo {
    struct weir_ip source, destination;
    uint16_t id, sequence;
} WEIR_KEY;
struct waiting {
    uint64_t time, timer;
};
WEIR_MAP(requests, struct echo, struct waiting, 16384)
WEIR_WHEEL(timeouts, struct echo, 16384, 256, 100000000)

static struct weir_histogram rtts;
static uint64_t unanswered;

static __attribute__((noinline)) void report(const struct echo *echo, uint64_t time, uint64_t rtt, bool is_answered)
{
    struct echoes_row row = {
        .time = time, .id = echo->id, .sequence = echo->sequence, .rtt = (int64_t)rtt, .has_rtt = is_answered,
    };
    weir_ip_store(row.source, echo->source);
    weir_ip_store(row.destination, echo->destination);
    emit_echoes(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_ICMP) || !(p->flags & WEIR_L4) || p->l4_offset + 8u > p->cap_len)
        return WEIR_PASS;
    const uint8_t *icmp = weir_l4(p);
    const bool is_v4 = (p->flags & WEIR_IPV4) != 0;
    const uint16_t id = weir_be16(icmp + 4), sequence = weir_be16(icmp + 6);
    if (icmp[0] == (is_v4 ? 8 : 128)) {
        const struct echo echo = { weir_src(p), weir_dst(p), id, sequence };
        struct waiting *w = requests_add(echo);
        timeouts_cancel(w->timer);
        w->time = p->ts_ns;
        w->timer = timeouts_start(p->ts_ns, (uint64_t)param_timeout(), echo);
    } else if (icmp[0] == (is_v4 ? 0 : 129)) {
        const struct echo echo = { weir_dst(p), weir_src(p), id, sequence };
        const struct waiting *w = requests_find(echo);
        if (w == NULL)
            return WEIR_PASS;
        const uint64_t rtt = p->ts_ns > w->time ? p->ts_ns - w->time : 0;
        report(&echo, w->time, rtt, true);
        weir_histogram_add(&rtts, rtt);
        timeouts_cancel(w->timer);
        requests_remove(echo);
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)periods;
    WEIR_WHEEL_EACH(timeouts, now, 4096, echo) {
        const struct waiting *w = requests_find(*echo);
        if (w == NULL)
            continue;
        report(echo, w->time, 0, false);
        unanswered++;
        requests_remove(*echo);
    }
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    const struct totals_row row = {
        .time = now,
        .answered = rtts.count,
        .unanswered = unanswered,
        .evicted = requests_evictions(),
        .open = requests_len(),
        .rtt_median = (int64_t)weir_histogram_quantile(&rtts, 0.5),
        .rtt_p99 = (int64_t)weir_histogram_quantile(&rtts, 0.99),
    };
    emit_totals(&row);
}
