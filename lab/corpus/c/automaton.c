/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An automaton in a table over the payload, as for several strings at once: in intrusion detection.
 */
#include "weir.h"
#include "module.h"

enum { STATES = 64 };
static uint8_t go[STATES][256];
static bool accepts[STATES];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    static const char *const words[] = { "cmd.exe", "xp_cmdshell", "/bin/sh", "SELECT " };
    uint8_t used = 1;
    for (uint32_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        uint8_t state = 0;
        for (const char *c = words[w]; *c != 0; c++) {
            if (go[state][(uint8_t)*c] == 0) {
                if (used == STATES)
                    return 1;
                go[state][(uint8_t)*c] = used++;
            }
            state = go[state][(uint8_t)*c];
        }
        accepts[state] = true;
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_bytes(p);
    uint8_t state = 0;
    for (uint32_t n = p->cap_len; n > 0; n--) {
        state = go[state][*at++];
        if (accepts[state])
            return WEIR_DROP;
    }
    return WEIR_PASS;
}
