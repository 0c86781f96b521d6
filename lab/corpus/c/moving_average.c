/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An average over a window whose size is a parameter: in load estimators.
 */
#include "weir.h"
#include "module.h"

static uint32_t window[64];
static uint32_t size, at;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    size = (uint32_t)param_limit();
    return size > 64;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    window[at] = p->wire_len;
    at = at + 1 < size ? at + 1 : 0;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < size; i++)
        sum += window[i];
    return sum / size > 1400 ? WEIR_DROP : WEIR_PASS;
}
