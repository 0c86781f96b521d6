/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A Bloom filter with as many hashes as a parameter says: in duplicate suppression and scan detection.
 */
#include "weir.h"
#include "module.h"

enum { BITS = 1 << 16 };
static uint64_t filter[BITS / 64];
static uint32_t hashes;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    hashes = (uint32_t)param_limit();
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint32_t a = (uint32_t)p->flow_hash, b = (uint32_t)(p->flow_hash >> 32) | 1;
    bool all = true;
    for (uint32_t i = 0; i < hashes; i++) {
        const uint32_t bit = (a + i * b) % BITS;
        if (!(filter[bit / 64] >> (bit % 64) & 1)) {
            all = false;
            filter[bit / 64] |= (uint64_t)1 << (bit % 64);
        }
    }
    return all ? WEIR_DROP : WEIR_PASS;
}
