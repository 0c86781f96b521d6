/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The empty module: its cost is that of the loop over the batch.
 */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    return WEIR_PASS;
}
