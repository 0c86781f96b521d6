/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The bytes behind a colon that a first loop has found. */
#include "weir.h"

static uint32_t sum;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    // refused
    uint32_t at = 0;
    while (at < p->cap_len && bytes[at] != ':')
        at++;
    for (uint32_t i = at + 1; i < p->cap_len; i++) // loop
        sum += bytes[i];
    // end
    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    bool found = false;
    for (uint32_t i = 0; i < p->cap_len; i++) {
        sum += found ? bytes[i] : 0;
        found = found || bytes[i] == ':';
    }
*/
