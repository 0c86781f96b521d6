/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A fixed string searched by Horspool's algorithm: in intrusion detection.
 */
#include "weir.h"
#include "module.h"

static const uint8_t needle[] = "User-Agent: evil";
enum { NEEDLE = sizeof needle - 1 };
static uint8_t skip[256];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (int i = 0; i < 256; i++)
        skip[i] = NEEDLE;
    for (int i = 0; i < NEEDLE - 1; i++)
        skip[needle[i]] = (uint8_t)(NEEDLE - 1 - i);
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_L4) || p->payload_len < NEEDLE)
        return WEIR_PASS;
    const uint8_t *text = weir_payload(p);
    uint32_t at = 0;
    while (at <= p->payload_len - NEEDLE) {
        uint32_t i = NEEDLE - 1;
        while (text[at + i] == needle[i]) {
            if (i == 0)
                return WEIR_DROP;
            i--;
        }
        at += skip[text[at + NEEDLE - 1]];
    }
    return WEIR_PASS;
}
