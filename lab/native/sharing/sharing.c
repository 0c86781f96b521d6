/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * A module for the comparison of sandboxed and native builds, with host functions that no shipped module calls. It keeps and releases packets,
 * also with invalid and released handles. It reads a table, and publishes another one, sometimes with too many bytes.
 */
#include "weir.h"
#include "module.h"

enum { HANDLES = 4 };

static int32_t handles[HANDLES];
static uint8_t seen[2048];
static uint32_t packets;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const struct weir_table listed = table_listed();
    const uint32_t at = packets++ % HANDLES;
    struct answers_row row = { .published = 1, .sum = listed.version };
    row.released = weir_release(handles[at]);
    row.kept = handles[at] = weir_keep(p);
    for (uint32_t i = 0; i < listed.len; i++)
        row.sum += listed.bytes[i];
    seen[p->wire_len % sizeof seen]++;
    if (packets % 16 == 0)
        row.published = publish_seen(seen, packets % sizeof seen);
    emit_answers(&row);
    return listed.len != 0 && listed.bytes[p->wire_len % listed.len] % 2 != 0 ? WEIR_DROP : WEIR_PASS;
}
