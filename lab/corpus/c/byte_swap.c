/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An array of 32-bit numbers in network order brought into the host's: in parsers of tables.
 */
#include "weir.h"
#include "module.h"

enum { WORDS = 64 };
static uint32_t words[WORDS];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *payload = weir_payload(p);
    unsigned n = p->payload_len / 4;
    if (n > WORDS)
        n = WORDS;
    for (unsigned i = 0; i < n; ++i)
        words[i] = weir_be32(payload + i * 4);
    return n > 0 && words[n - 1] == 0xFFFFFFFFu ? WEIR_DROP : WEIR_PASS;
}
