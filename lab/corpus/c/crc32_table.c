/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * CRC-32 by a table that is made at start: in most libraries for checksums.
 */
#include "weir.h"
#include "module.h"

static uint32_t table[256];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        table[n] = c;
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_bytes(p), *end = at + p->cap_len;
    uint32_t crc = ~0u;
    while (at != end)
        crc = table[(crc ^ *at++) & 255] ^ crc >> 8;
    return crc == 0xDEBB20E3u ? WEIR_DROP : WEIR_PASS;
}
