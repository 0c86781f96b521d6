/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* dns-names: counts the queries for each name, in DNS over UDP.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"
#include "weir_parse.h"

struct queries {
    uint64_t first_ns, count;
};
WEIR_MAP(names, struct weir_dns_name, struct queries, 16384)

static __attribute__((noinline)) void report(const struct names_entry *e)
{
    const struct names_row row = {
        .first = e->value.first_ns,
        .name = weir_dns_string(&e->key),
        .queries = e->value.count,
    };
    emit_names(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || !(p->flags & WEIR_L4) || p->dst_port != 53)
        return WEIR_PASS;
    const struct weir_cursor message = weir_cursor_payload(p);
    struct weir_cursor c = message;
    struct weir_dns_header header;
    struct weir_dns_name name;
    if (!weir_read_dns_header(&c, &header) || (header.flags & WEIR_DNS_RESPONSE) != 0 || header.questions != 1)
        return WEIR_PASS;
    if (!weir_read_dns_name(&c, message, WEIR_DNS_LOWER, &name))
        return WEIR_PASS;
    struct queries *q = names_add(name);
    if (names_evicted() != NULL)
        report(names_evicted());
    if (q->count++ == 0)
        q->first_ns = p->ts_ns;
    return WEIR_PASS;
}

static uint32_t position;

WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    (void)now;
    WEIR_MAP_PART(names, position, 1024, e) {
        report(e);
    }
    return position < names_SLOTS;
}
