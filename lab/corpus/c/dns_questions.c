/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * All questions of a DNS message, without compression: in load balancers and query counters.
 */
#include "weir.h"
#include "module.h"

static uint64_t queries;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || p->dst_port != 53 || p->payload_len < 12)
        return WEIR_PASS;
    const uint8_t *message = weir_payload(p);
    const uint16_t questions = weir_be16(message + 4);
    uint32_t at = 12;
    for (uint16_t q = 0; q < questions; q++) {
        while (at < p->payload_len && message[at] != 0) {
            if (message[at] > 63)
                return WEIR_DROP;
            at += message[at] + 1u;
        }
        at += 5;
        if (at > p->payload_len)
            return WEIR_DROP;
        queries++;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct seen_row row = { queries };
    emit_seen(&row);
}
