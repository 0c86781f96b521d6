/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A byte-wise memcmp of the payload with what came last: in duplicate detection.
 */
#include "weir.h"
#include "module.h"

static uint8_t last[1500];
static uint32_t last_len;

static int compare(const uint8_t *a, const uint8_t *b, size_t n)
{
    while (n--) {
        if (*a != *b)
            return *a - *b;
        a++;
        b++;
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint32_t len = p->payload_len < sizeof last ? p->payload_len : sizeof last;
    const uint8_t *payload = weir_payload(p);
    if (len == last_len && compare(payload, last, len) == 0)
        return WEIR_DROP;
    weir_copy(last, payload, len);
    last_len = len;
    return WEIR_PASS;
}
