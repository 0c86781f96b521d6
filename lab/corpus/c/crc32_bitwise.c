/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * CRC-32 a bit at a time: in code that was never meant to be fast, for frame check sequences.
 */
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *data = weir_bytes(p);
    uint32_t crc = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < p->cap_len; i++) {
        crc ^= data[i];
        for (int k = 8; k; k--)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return crc == 0xDEBB20E3u ? WEIR_DROP : WEIR_PASS;
}
