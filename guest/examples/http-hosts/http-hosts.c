/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* http-hosts: counts requests by the host that they name. It looks at packets, not at streams: a request counts if its packet
 * begins with the method and has the whole line of the host.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { HOST_BYTES = 255 };

struct host {
    uint8_t len;
    uint8_t bytes[HOST_BYTES];
};
struct requests {
    uint64_t first_ns, count;
};
WEIR_MAP(hosts, struct host, struct requests, 16384)

static __attribute__((noinline)) void report(const struct hosts_entry *e)
{
    const struct hosts_row row = {
        .first = e->value.first_ns,
        .host = weir_string(e->key.bytes, e->key.len),
        .requests = e->value.count,
    };
    emit_hosts(&row);
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
    int32_t at = weir_find_short(payload, p->payload_len, (const uint8_t *)"\r\nHost:", 7);
    if (at < 0)
        at = weir_find_short(payload, p->payload_len, (const uint8_t *)"\r\nhost:", 7);
    if (at < 0)
        return WEIR_PASS;
    struct host host = { 0 };
    for (uint32_t i = (uint32_t)at + 7; i < p->payload_len && host.len < HOST_BYTES; i++) {
        const uint8_t byte = payload[i];
        if (byte == '\r') {
            struct requests *r = hosts_add(host);
            if (hosts_evicted() != NULL)
                report(hosts_evicted());
            if (r->count++ == 0)
                r->first_ns = p->ts_ns;
            return WEIR_PASS;
        }
        if (byte != ' ')
            host.bytes[host.len++] = byte >= 'A' && byte <= 'Z' ? byte + 32 : byte;
    }
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
