/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A remainder that falls by an amount in memory. */
#include "weir.h"

int32_t chunk;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t chunks = 0;
    // refused
    for (int32_t left = (int32_t)p->wire_len; left > 0; left -= chunk)
        chunks++;
    // end
    return chunks > 4 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    int32_t size = chunk < 64 ? 64 : chunk;
    if (size > 65536)
        size = 65536;
    for (int32_t left = (int32_t)p->cap_len; left > 0; left -= size)
        chunks++;
*/
