/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A state machine over characters, with a switch: in parsers of chunked encoding.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    enum { SIZE, AFTER_SIZE, DATA, AFTER_DATA } state = SIZE;
    if (!(p->flags & WEIR_TCP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *text = weir_payload(p);
    uint32_t size = 0;
    for (uint32_t i = 0; i < p->payload_len; i++) {
        const uint8_t c = text[i];
        switch (state) {
        case SIZE:
            if (c >= '0' && c <= '9')
                size = size << 4 | (uint32_t)(c - '0');
            else if (c >= 'a' && c <= 'f')
                size = size << 4 | (uint32_t)(c - 'a' + 10);
            else if (c == '\r')
                state = AFTER_SIZE;
            else
                return WEIR_PASS;
            break;
        case AFTER_SIZE:
            if (c != '\n')
                return WEIR_DROP;
            state = DATA;
            break;
        case DATA:
            if (size > p->payload_len - i)
                return WEIR_PASS;
            i += size;
            state = AFTER_DATA;
            break;
        case AFTER_DATA:
            size = 0;
            if (c == '\n')
                state = SIZE;
            break;
        }
    }
    return WEIR_PASS;
}
