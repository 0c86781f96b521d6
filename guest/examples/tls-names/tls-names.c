/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * tls-names: counts the TLS connections for each server name. It looks at packets, not at streams: a connection counts if the
 * packet that begins its ClientHello has the name as well.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"
#include "weir_parse.h"

WEIR_TEXT_KEY(name, 255)

struct connections {
    uint64_t first_ns, count;
};
WEIR_MAP(names, struct name, struct connections, 16384)

static __attribute__((noinline)) void report(const struct names_entry *e)
{
    const struct names_row row = {
        .first = e->value.first_ns,
        .name = name_string(&e->key),
        .connections = e->value.count,
    };
    emit_names(&row);
}

static __attribute__((noinline)) void count(uint64_t now, struct weir_cursor bytes)
{
    struct name name = name_of(bytes.at, bytes.left);
    name_lower(&name);
    struct connections *c = names_add(name);
    if (names_evicted() != NULL)
        report(names_evicted());
    if (c->count++ == 0)
        c->first_ns = now;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_TCP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    struct weir_cursor c = weir_cursor_payload(p);
    struct weir_tls_part record, message;
    struct weir_tls_hello hello;
    if (!weir_read_tls_record(&c, &record) || record.type != WEIR_TLS_HANDSHAKE)
        return WEIR_PASS;
    if (!weir_read_tls_message(&record.body, &message) || message.type != WEIR_TLS_CLIENT_HELLO)
        return WEIR_PASS;
    if (!weir_read_tls_hello(&message.body, true, &hello))
        return WEIR_PASS;
    WEIR_TLS_EXTENSION_EACH(&hello, extension) {
        if (extension.type != WEIR_TLS_SERVER_NAME)
            continue;
        const struct weir_cursor name = weir_tls_server_name(extension.value);
        if (!name.failed)
            count(p->ts_ns, name);
        break;
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
