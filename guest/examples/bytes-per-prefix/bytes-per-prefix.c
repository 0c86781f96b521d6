/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* bytes-per-prefix: packets and bytes from each of four prefixes. The longest prefix that contains the source counts.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { PREFIXES = 4, PREFIX_BYTES = 17 };

WEIR_LPM(table, 64) /* a prefix needs at most 15 nodes */

static struct {
    uint8_t prefix[PREFIX_BYTES];
    uint64_t packets, bytes;
} counts[PREFIXES];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    param_net1(counts[0].prefix, PREFIX_BYTES);
    param_net2(counts[1].prefix, PREFIX_BYTES);
    param_net3(counts[2].prefix, PREFIX_BYTES);
    param_net4(counts[3].prefix, PREFIX_BYTES);
    for (uint32_t i = 0; i < PREFIXES; i++)
        if (!table_add(counts[i].prefix, i))
            return 1;
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t i;
    if (weir_is_ip(p) && table_find(weir_src(p), &i)) {
        counts[i].packets++;
        counts[i].bytes += p->wire_len;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    for (uint32_t i = 0; i < PREFIXES; i++) {
        const uint8_t *prefix = counts[i].prefix;
        const bool is_v4 = prefix[16] >= 96 && weir_ip_is_v4(weir_ip_v6(prefix));
        struct prefixes_row row = {
            .time = now,
            .number = (uint8_t)(i + 1),
            .length = is_v4 ? prefix[16] - 96 : prefix[16],
            .packets = counts[i].packets,
            .bytes = counts[i].bytes,
        };
        weir_copy(row.prefix, prefix, 16);
        emit_prefixes(&row);
    }
}
