/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* dns-names: counts the queries for each name, in DNS over UDP.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { NAME_BYTES = 255, HEADER_BYTES = 12 };

WEIR_TEXT_KEY(name, NAME_BYTES)

struct queries {
    uint64_t first_ns, count;
};
WEIR_MAP(names, struct name, struct queries, 16384)

static __attribute__((noinline)) void report(const struct names_entry *e)
{
    const struct names_row row = {
        .first = e->value.first_ns,
        .name = name_string(&e->key),
        .queries = e->value.count,
    };
    emit_names(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || !(p->flags & WEIR_L4) || p->dst_port != 53 || p->payload_len <= HEADER_BYTES)
        return WEIR_PASS;
    const uint8_t *message = weir_payload(p);
    if ((message[2] & 0x80) != 0 || weir_be16(message + 4) != 1) /* an answer, or not one question */
        return WEIR_PASS;
    struct name name = { 0 };
    uint32_t left = 0; /* bytes of the current label */
    for (uint32_t i = HEADER_BYTES; i < p->payload_len && i < HEADER_BYTES + NAME_BYTES; i++) {
        uint8_t byte = message[i];
        if (left == 0) {
            if (byte == 0) { /* the name is complete */
                name_lower(&name);
                struct queries *q = names_add(name);
                if (names_evicted() != NULL)
                    report(names_evicted());
                if (q->count++ == 0)
                    q->first_ns = p->ts_ns;
                return WEIR_PASS;
            }
            if (byte > 63)
                return WEIR_PASS;
            left = byte;
            if (name.len > 0)
                name_put(&name, '.');
        } else {
            left--;
            name_put(&name, byte);
        }
    }
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
