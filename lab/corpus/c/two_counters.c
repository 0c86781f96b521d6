/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The longest run that payload and its mirror have in common, with an index from each end: in compressors.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4) || p->payload_len == 0)
        return WEIR_PASS;
    const uint8_t *data = weir_payload(p);
    uint32_t i = 0, j = p->payload_len - 1, run = 0, longest = 0;
    while (i < j) {
        run = data[i] == data[j] ? run + 1 : 0;
        if (run > longest)
            longest = run;
        i++;
        j--;
    }
    return longest > 40 ? WEIR_DROP : WEIR_PASS;
}
