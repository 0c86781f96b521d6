/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * spin: uses processor time for each packet and each tick. A load for experiments.
 *
 * The number of iterations is in memory, which the analyser cannot bound: so the module is metered.
 */
#include "weir.h"
#include "module.h"

static volatile uint64_t left;
static uint64_t state = 0x9E3779B97F4A7C15;
static uint64_t packets, ticks, rounds, lost;

/* Each round is a step of a generator of random numbers (G. Marsaglia, "Xorshift RNGs", 2003): work that no compiler removes. */
static __attribute__((noinline)) void burn(uint64_t wanted)
{
    left = wanted;
    while (left != 0) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        left = left - 1;
        rounds++;
    }
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    packets++;
    burn(param_per_packet());
    return WEIR_PASS;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    (void)now;
    (void)periods;
    ticks++;
    burn(param_per_tick());
}

WEIR_EXPORT(weir_lost) void weir_lost(int32_t cause)
{
    (void)cause;
    lost++;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    const struct totals_row row = { .packets = packets, .ticks = ticks, .rounds = rounds, .lost = lost, .state = state };
    emit_totals(&row);
}
