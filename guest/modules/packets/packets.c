/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * packets: emits each packet as a row, for `weir extcap`. It runs in the session whose packets it shows, so it sees what the
 * session's other modules see, and its rows count for the session as their rows do.
 */
#include "weir.h"
#include "module.h"

static uint64_t seen;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    /* The parameter is a constant where it is read, so that the row's length has a limit that weir knows. */
    const uint32_t bytes_max = (uint32_t)param_bytes_max();
    const struct packets_row row = {
        .time = p->ts_ns,
        .earlier_packets = seen++,
        .link_type = p->link_type,
        .wire_bytes = p->wire_len,
        .packet = weir_string(weir_bytes(p), p->cap_len < bytes_max ? p->cap_len : bytes_max),
    };
    emit_packets(&row);
    return WEIR_PASS;
}
