/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A table that ends with an entry of 0. */
#include "weir.h"

struct rule { uint16_t port, verdict; };
struct rule rules[128];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bool found = false;
    // refused
    for (const struct rule *rule = rules; rule->port != 0; rule++)
        if (rule->port == p->dst_port)
            found = rule->verdict != 0;
    // end
    return found ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (const struct rule *rule = rules; rule < rules + 128 && rule->port != 0; rule++)
        if (rule->port == p->dst_port)
            found = rule->verdict != 0;
*/
