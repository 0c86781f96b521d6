/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A loop that only a break ends. */
#include "weir.h"

uint8_t classes[256];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_payload(p);
    uint32_t i = 0;
    // refused
    while (true) {
        if (classes[bytes[i]] == 0)
            break;
        i++;
    }
    // end
    return i > 100 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    while (i < p->payload_len) {
        if (classes[bytes[i]] == 0)
            break;
        i++;
    }
*/
