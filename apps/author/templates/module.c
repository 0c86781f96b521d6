/* {{name}}: counts packets and bytes by protocol. A module that works, to be changed. */
#include "weir.h"   /* what weir offers */
#include "module.h" /* made from weir.toml: struct protocols_row, emit_protocols(), param_interval() */

/* A module's memory lives as long as the run: what one packet leaves here, the next one finds. */
static struct {
    uint64_t packets;
    uint64_t bytes;
} counts[256];

static uint64_t interval; /* ns */

/* Called once, before the first packet: the place to read parameters. Anything but 0 says that the module does not want to run. */
WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    interval = (uint64_t)param_interval();
    return 0;
}

/* Called for every packet. weir has parsed the headers already: *p says what was found, and where.
 * Test the flags before you use a field that depends on them. */
WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (weir_is_ip(p)) {
        counts[p->ip_proto].packets++;
        counts[p->ip_proto].bytes += p->wire_len;
    }
    return WEIR_PASS;
}

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

/* Called when packet time has passed `now`, the end of an interval. After a gap without packets it is called once, and `periods`
 * says how many intervals have ended: the packets that were counted are from the first of them. */
WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    report(now - periods * interval);
}

/* Called after the last packet, whose time stamp is `now`: the last interval has not ended, so it is reported here. */
WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now - now % interval);
}
