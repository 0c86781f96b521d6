/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* top-talkers: the hosts that send the most bytes in each interval.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

WEIR_TOP(talkers, struct weir_ip, 1024)

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (weir_is_ip(p))
        talkers_add(weir_src(p), p->wire_len);
    return WEIR_PASS;
}

static void report(uint64_t begin)
{
    WEIR_TOP_EACH(talkers, (uint32_t)param_top(), e) {
        struct talkers_row row = {
            .time = begin,
            .rank = e_rank,
            .bytes = e->count,
            .error_bytes = e->error,
            .share = (double)e->count / (double)talkers_total(),
        };
        weir_ip_store(row.host, e->key);
        emit_talkers(&row);
    }
    talkers_clear();
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    report(now - periods * (uint64_t)param_interval());
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now - now % (uint64_t)param_interval());
}
