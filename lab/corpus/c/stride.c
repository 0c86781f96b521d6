/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Every third byte, as of packed samples of three bytes: in decoders of audio and telemetry.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!(p->flags & WEIR_UDP) || !(p->flags & WEIR_L4))
        return WEIR_PASS;
    const uint8_t *data = weir_payload(p);
    int32_t peak = 0;
    for (uint32_t i = 0; i + 3 <= p->payload_len; i += 3) {
        int32_t sample = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
        if (sample & 0x800000)
            sample -= 0x1000000;
        if (sample < 0)
            sample = -sample;
        if (sample > peak)
            peak = sample;
    }
    return peak > 0x700000 ? WEIR_DROP : WEIR_PASS;
}
