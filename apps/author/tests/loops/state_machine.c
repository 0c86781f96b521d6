/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A state machine that ends in a state. */
#include "weir.h"

enum { START, KEY, VALUE, END };

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_payload(p);
    uint32_t state = START, keys = 0;
    // refused
    while (state != END) {
        const uint8_t c = *at++;
        switch (state) {
        case START: state = c == '{' ? KEY : END; break;
        case KEY: keys++; state = c == ':' ? VALUE : KEY; break;
        default: state = c == '}' ? END : c == ',' ? KEY : VALUE;
        }
    }
    // end
    return keys > 4 ? WEIR_DROP : WEIR_PASS;
}

/* REWRITTEN
    for (uint32_t i = 0; i < p->payload_len && state != END; i++) {
        const uint8_t c = *at++;
        switch (state) {
        case START: state = c == '{' ? KEY : END; break;
        case KEY: keys++; state = c == ':' ? VALUE : KEY; break;
        default: state = c == '}' ? END : c == ',' ? KEY : VALUE;
        }
    }
*/
