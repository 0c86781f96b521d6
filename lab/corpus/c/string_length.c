/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * strnlen of a string in a fixed field: in TFTP, BOOTP and syslog parsers.
 */
#include "weir.h"
#include "module.h"

enum { FIELD = 128 };

static size_t string_length(const char *s, size_t max)
{
    const char *p = s;
    while (max-- > 0 && *p != 0)
        p++;
    return (size_t)(p - s);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || p->payload_len < FIELD)
        return WEIR_PASS;
    return string_length((const char *)weir_payload(p), FIELD) == FIELD ? WEIR_DROP : WEIR_PASS;
}
