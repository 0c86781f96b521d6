/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Reservoir sampling by a small random generator: in samplers.
 */
#include "weir.h"
#include "module.h"

enum { SAMPLES = 32 };
static uint64_t sample[SAMPLES];
static uint64_t packets;
static uint32_t random = 2463534242u;

static uint32_t below(uint32_t n)
{
    uint32_t mask = n - 1, value;
    mask |= mask >> 1;
    mask |= mask >> 2;
    mask |= mask >> 4;
    mask |= mask >> 8;
    mask |= mask >> 16;
    do {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        value = random & mask;
    } while (value >= n);
    return value;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    packets++;
    if (packets <= SAMPLES) {
        sample[packets - 1] = p->flow_hash;
        return WEIR_PASS;
    }
    const uint32_t at = below((uint32_t)packets);
    if (at < SAMPLES)
        sample[at] = p->flow_hash;
    return sample[0] == p->flow_hash ? WEIR_DROP : WEIR_PASS;
}
