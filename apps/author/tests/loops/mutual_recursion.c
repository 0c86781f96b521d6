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
static const uint8_t *value(const uint8_t *at, const uint8_t *end)
{
    uint32_t depth = 0;
    for (uint32_t len = (uint32_t)(end - at), i = 0; i < len; i++) {
        depth += at[i] == '[';
        depth -= at[i] == ']';
        if (depth == 0)
            return at + i + 1;
    }
    return end;
}
*/
