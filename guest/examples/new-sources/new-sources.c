/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* new-sources: reports each source address once. With spoofed addresses every packet can have a new one: a token bucket limits
 * the rows.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { ROWS_PER_SECOND = 1000, ROWS_AT_ONCE = 10000 };

WEIR_BLOOM(seen, struct weir_ip, 262144)
WEIR_HLL(distinct, struct weir_ip, 12)

static struct distinct sources;
static struct weir_bucket rows;
static uint64_t left_out;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ip(p) || !seen_add(weir_src(p)))
        return WEIR_PASS;
    distinct_add(&sources, weir_src(p));
    if (!weir_bucket_take(&rows, p->ts_ns, ROWS_PER_SECOND, ROWS_AT_ONCE, 1)) {
        left_out++;
        return WEIR_PASS;
    }
    struct sources_row row = { .time = p->ts_ns, .ttl = p->ttl };
    weir_ip_src(p, row.source);
    emit_sources(&row);
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    const struct totals_row row = {
        .time = now,
        .sources = seen_len(),
        .estimate = (uint64_t)(distinct_count(&sources) + 0.5),
        .rows_left_out = left_out,
    };
    emit_totals(&row);
}
