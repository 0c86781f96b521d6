/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A number in groups of 7 bits. */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    uint64_t value = 0;
    uint8_t byte, shift = 0;
    // refused
    do {
        byte = *at++;
        value |= (uint64_t)(byte & 127) << (shift & 63);
        shift += 7;
    } while (byte & 128);
    // end
    return value > 1000 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    do {
        byte = *at++;
        value |= (uint64_t)(byte & 127) << (shift & 63);
        shift += 7;
    } while (byte & 128 && shift < 63);
*/
