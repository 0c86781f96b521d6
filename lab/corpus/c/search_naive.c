/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A fixed string searched in the payload place by place: in simple intrusion detection.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    static const char needle[] = "/etc/passwd";
    const int needle_len = sizeof needle - 1;
    if (!(p->flags & WEIR_L4))
        return WEIR_PASS;
    const char *text = (const char *)weir_payload(p);
    const int len = (int)p->payload_len;
    for (int i = 0; i <= len - needle_len; i++) {
        int j;
        for (j = 0; j < needle_len; j++)
            if (text[i + j] != needle[j])
                break;
        if (j == needle_len)
            return WEIR_DROP;
    }
    return WEIR_PASS;
}
