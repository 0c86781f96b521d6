/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Runs, each with a length that can be 0. */
#include "weir.h"

uint8_t image[1024];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    uint32_t filled = 0;
    // refused
    while (filled < 1024) {
        image[filled & 1023] = at[1];
        filled += *at;
        at += 2;
    }
    // end
    return image[512] == 255 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < 1024 && filled < 1024; i++) {
        image[filled & 1023] = at[1];
        filled += *at;
        at += 2;
    }
*/
