/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The first rule that fits, by several conditions: in access lists.
 */
#include "weir.h"
#include "module.h"

enum { RULES = 32 };
struct rule {
    uint32_t address, mask;
    uint16_t low, high;
    uint8_t protocol, action;
};
static struct rule rules[RULES];
static uint8_t used;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (used = 0; used < RULES - 1; used++) {
        struct rule *rule = &rules[used];
        rule->mask = ~0u << (used % 24);
        rule->address = 0x0A000000u & rule->mask;
        rule->low = (uint16_t)(used * 100);
        rule->high = (uint16_t)(used * 1000);
        rule->protocol = used % 2 ? 6 : 17;
        rule->action = used % 3 == 0;
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_IPV4))
        return WEIR_PASS;
    const uint32_t source = weir_be32(weir_l3(p) + 12);
    for (uint8_t i = 0; i < used; i++) {
        const struct rule *rule = &rules[i];
        if ((source & rule->mask) != rule->address)
            continue;
        if (rule->protocol != p->ip_proto)
            continue;
        if (p->dst_port >= rule->low && p->dst_port <= rule->high)
            return rule->action;
    }
    return WEIR_PASS;
}
