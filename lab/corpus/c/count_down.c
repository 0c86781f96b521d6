/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The last byte that is not zero, from the end: in code that strips padding.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *bytes = weir_bytes(p);
    int i;
    for (i = (int)p->cap_len - 1; i >= 0; i--)
        if (bytes[i] != 0)
            break;
    return (int)p->cap_len - 1 - i > 32 ? WEIR_DROP : WEIR_PASS;
}
