/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The length of a string in the module's memory. */
#include "weir.h"

char name[64];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t len = 0;
    // refused
    while (name[len] != '\0')
        len++;
    // end
    return len == p->payload_len ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    while (len < sizeof name && name[len] != '\0')
        len++;
*/
