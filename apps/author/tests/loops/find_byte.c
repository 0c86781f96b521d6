/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A search for a byte of the payload, without its end. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    // refused
    while (*at != ':')
        at++;
    // end
    return at[1] == ' ' ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < p->payload_len && *at != ':'; i++)
        at++;
*/
