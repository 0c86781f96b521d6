/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Two functions that call each other: a list contains values, and a value can be a list. */
#include "weir.h"

static const uint8_t *value(const uint8_t *at, const uint8_t *end);

// refused
static const uint8_t *list(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at != ']')
        at = value(at, end); // loop
    return at + 1;
}

static const uint8_t *value(const uint8_t *at, const uint8_t *end) { return *at == '[' ? list(at + 1, end) : at + 1; }
// end

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *payload = weir_payload(p), *end = payload + p->payload_len;
    return value(payload, end) < end ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
#include "weir_containers.h"

enum call { VALUE, LIST };
WEIR_STACK(value_calls, enum call, 64)

static const uint8_t *value(const uint8_t *at, const uint8_t *end)
{
    enum call call;
    value_calls_clear();
    value_calls_push(VALUE);
    WEIR_WHILE(1024, value_calls_pop(&call)) {
        const bool opens = call == VALUE && *at == '[';
        if (call == LIST && at < end && *at != ']') {
            value_calls_push(LIST);
            value_calls_push(VALUE);
            continue;
        }
        at++;
        if (opens)
            value_calls_push(LIST);
    }
    return at;
}
*/
