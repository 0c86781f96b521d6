/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* http-hosts: counts requests by the host that they name. It looks at packets, not at streams: a request counts if its packet
 * begins with the method and has a line with the host.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

WEIR_TEXT_KEY(host, 255)

struct requests {
    uint64_t first_ns, count;
};
WEIR_MAP(hosts, struct host, struct requests, 16384)

static __attribute__((noinline)) void report(const struct hosts_entry *e)
{
    const struct hosts_row row = {
        .first = e->value.first_ns,
        .host = host_string(&e->key),
        .requests = e->value.count,
    };
    emit_hosts(&row);
}

enum { FIELD_BYTES = 8 };
static int32_t field; /* the pattern "\r\nHost: ", in any case */

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    static const struct { uint32_t len; uint8_t bytes[FIELD_BYTES]; } list = { FIELD_BYTES, "\r\nhost: " };
    field = weir_find_compile(&list, sizeof list, WEIR_FIND_IGNORE_CASE);
    return field < 0;
}

/* True for the beginning of a request: a method in capital letters, and a space. */
static bool is_request(const uint8_t *payload, uint32_t len)
{
    for (uint32_t i = 0; i < len && i < 8; i++) {
        if (payload[i] == ' ')
            return i >= 3;
        if (payload[i] < 'A' || payload[i] > 'Z')
            return false;
    }
    return false;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *payload = weir_payload(p);
    if (!is_request(payload, p->payload_len))
        return WEIR_PASS;
    const int64_t found = weir_find(field, payload, p->payload_len);
    if (found < 0)
        return WEIR_PASS;
    const uint32_t first = weir_found_offset(found) + FIELD_BYTES;
    struct host host = host_until(payload + first, p->payload_len - first, '\r');
    host_lower(&host);
    struct requests *r = hosts_add(host);
    if (hosts_evicted() != NULL)
        report(hosts_evicted());
    if (r->count++ == 0)
        r->first_ns = p->ts_ns;
    return WEIR_PASS;
}

static uint32_t position;

WEIR_EXPORT(weir_rest) int32_t weir_rest(uint64_t now)
{
    (void)now;
    WEIR_MAP_PART(hosts, position, 1024, e) {
        report(e);
    }
    return position < hosts_SLOTS;
}
