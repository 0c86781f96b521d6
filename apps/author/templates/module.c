/* {{name}}: counts packets and bytes by protocol. A working module to start from. */
#include "weir.h"   /* weir's functions and types */
#include "module.h" /* generated from weir.toml: struct protocols_row, emit_protocols(), param_interval() */

/* A module's memory is kept for the whole run, from packet to packet. (A module whose tables have a size given by a
 * parameter allocates them in weir_start, which is called once, before the first packet. This module needs no such table.) */
static struct {
    uint64_t packets;
    uint64_t bytes;
} counts[256];

/* Called for every packet. weir has parsed the headers already: *p holds the results, with offsets.
 * Test the flags before you use a field that depends on them. */
WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (weir_is_ip(p)) {
        counts[p->ip_proto].packets++;
        counts[p->ip_proto].bytes += p->wire_len;
    }
    return WEIR_PASS;
}

/* A constant bounds the loop, so weir knows the maximum cost of a call, and runs the module without checks: see `weir check`.
 * A parameter can also bound a loop. For other loops, use WEIR_FOR(MAX, ...). */
static void report(uint64_t begin)
{
    for (uint32_t protocol = 0; protocol < 256; protocol++) {
        if (counts[protocol].packets == 0)
            continue;
        const struct protocols_row row = {
            .time = begin,
            .protocol = (uint8_t)protocol,
            .packets = counts[protocol].packets,
            .bytes = counts[protocol].bytes,
        };
        emit_protocols(&row);
    }
    weir_fill(counts, 0, sizeof counts);
}

/* Called when packet time has passed `now`, the end of an interval. After a gap without packets this function is called
 * once: `periods` is the number of intervals that have ended, and the counted packets are from the first of them.
 * Parameters are constants of the running module, so read them where they are used. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    report(now - periods * (uint64_t)param_interval());
}

/* Called after the last packet, whose time stamp is `now`: the last interval has not ended, so it is reported here. */
WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now - now % (uint64_t)param_interval());
}
