/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Prefix sums over the bytes, and the window with the largest sum: in entropy and burst estimators.
 */
#include "weir.h"
#include "module.h"

enum { BYTES = 2048, WINDOW = 64 };
static uint32_t sums[BYTES + 1];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    const uint32_t n = p->cap_len <= BYTES ? p->cap_len : BYTES;
    for (uint32_t i = 0; i < n; i++)
        sums[i + 1] = sums[i] + bytes[i];
    uint32_t most = 0;
    for (uint32_t i = WINDOW; i <= n; i++)
        if (sums[i] - sums[i - WINDOW] > most)
            most = sums[i] - sums[i - WINDOW];
    return most > 200 * WINDOW ? WEIR_DROP : WEIR_PASS;
}
