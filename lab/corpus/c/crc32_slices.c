/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * CRC-32 by four tables, four bytes at a time: in fast libraries for checksums.
 */
#include "weir.h"
#include "module.h"

static uint32_t table[4][256];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
        table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 4; k++)
            table[k][n] = table[0][table[k - 1][n] & 255] ^ table[k - 1][n] >> 8;
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint8_t *at = weir_bytes(p);
    size_t len = p->cap_len;
    uint32_t crc = ~0u;
    while (len >= 4) {
        crc ^= weir_le32(at);
        crc = table[3][crc & 255] ^ table[2][crc >> 8 & 255] ^ table[1][crc >> 16 & 255] ^ table[0][crc >> 24];
        at += 4;
        len -= 4;
    }
    while (len--)
        crc = table[0][(crc ^ *at++) & 255] ^ crc >> 8;
    return crc == 0xDEBB20E3u ? WEIR_DROP : WEIR_PASS;
}
