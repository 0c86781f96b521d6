/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
* bytes-per-prefix: packets and bytes from each of a list of prefixes. The longest prefix that contains the source counts.
 */
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

enum { PREFIXES = 64 };

WEIR_LPM(table, 960) /* a prefix needs at most 15 nodes */

static uint8_t prefixes[PREFIXES][WEIR_PREFIX_BYTES];
static uint32_t count;
static struct {
    uint64_t packets, bytes;
} counts[PREFIXES];

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    const uint32_t len = param_networks(prefixes[0], sizeof prefixes);
    if (len > sizeof prefixes) {
        WEIR_LOGF(WEIR_ERROR, "networks: ", len / WEIR_PREFIX_BYTES, " are too many, at most ", PREFIXES);
        return 1;
    }
    count = len / WEIR_PREFIX_BYTES;
    return !table_load(prefixes[0], len);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t i;
    if (weir_is_ip(p) && table_find(weir_src(p), &i) && i < PREFIXES) {
        counts[i].packets++;
        counts[i].bytes += p->wire_len;
    }
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    for (uint32_t i = 0; i < PREFIXES && i < count; i++) {
        const uint8_t *prefix = prefixes[i];
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
