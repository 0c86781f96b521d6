/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Lines of text, each up to its end. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    uint32_t lines = 0;
    // refused
    const uint8_t *end = at + p->payload_len;
    while (at < end) {
        while (*at != '\n') // loop
            at++;
        at++;
        lines++;
    }
    // end
    return lines > 20 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < p->payload_len; i++)
        lines += at[i] == '\n';
*/
