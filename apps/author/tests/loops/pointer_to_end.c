/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A pointer that goes up by 12 bytes until it is at the end. */
#include "weir.h"

struct record { uint32_t id, first, last; };

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const struct record *at = (const void *)weir_payload(p);
    uint32_t found = 0;
    // refused
    const struct record *end = (const void *)((const uint8_t *)at + p->payload_len);
    for (; at != end; at++) // loop
        found += at->id == 7;
    // end
    return found > 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i + sizeof *at <= p->payload_len; i += sizeof *at, at++)
        found += at->id == 7;
*/
