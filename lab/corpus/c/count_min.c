/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A count-min sketch of bytes a flow: in heavy hitter detection.
 */
#include "weir.h"
#include "module.h"

enum { ROWS = 4, COLUMNS = 4096 };
static uint32_t sketch[ROWS][COLUMNS];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t least = UINT32_MAX;
    for (int row = 0; row < ROWS; row++) {
        const uint64_t hash = weir_hash64(p->flow_hash, (uint64_t)row);
        uint32_t *cell = &sketch[row][hash % COLUMNS];
        *cell += p->wire_len;
        if (*cell < least)
            least = *cell;
    }
    return least > 10000000 ? WEIR_DROP : WEIR_PASS;
}
