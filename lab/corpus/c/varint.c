/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Numbers of seven bits a byte with their tags: in protocol buffers.
 */
#include "weir.h"
#include "module.h"

static uint64_t read_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    int shift = 0;
    while (*at < end && shift < 64) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            break;
        shift += 7;
    }
    return value;
}

static uint64_t fields;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *at = weir_payload(p), *end = at + p->payload_len;
    while (at < end) {
        const uint64_t tag = read_varint(&at, end);
        if ((tag & 7) == 0) {
            read_varint(&at, end);
        } else if ((tag & 7) == 2) {
            const uint64_t len = read_varint(&at, end);
            if (len > (uint64_t)(end - at))
                return WEIR_DROP;
            at += len;
        } else {
            return WEIR_DROP;
        }
        fields++;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct seen_row row = { fields };
    emit_seen(&row);
}
