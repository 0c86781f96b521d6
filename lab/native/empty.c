/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The module that does nothing: what it costs is the loop over the batch.
 */
#include "weir.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    return WEIR_PASS;
}
