/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * lrd: on-line estimate of the Hurst parameter of the packet or byte counts per bin (FLAME, 3.1). The part per packet adds to a
 * count. The part per bin (weir_tick) puts the count through the wavelet pyramid (wavelet.h), and now and then fits the
 * log-scale diagram (estimate.h).
 */
#include "weir.h"
#include "module.h"
#include "wavelet.h"
#include "estimate.h"

/* The most empty bins that one gap adds to the series, which bounds the work of a tick. Further bins are skipped and reported. */
enum { GAP_BINS_MAX = 65536 };

/* Coefficients that an octave must have to be used where j2 is chosen automatically. */
enum { COEFFICIENTS_MIN = 4 };

static struct {
    uint64_t packets, bytes;
} bin;

static struct octave octaves[OCTAVES]; /* [j - 1] is octave j */
static uint64_t bin_ns, report_bins, bins, skipped, since_report;

WEIR_EXPORT(weir_start) int32_t weir_start(void)
{
    bin_ns = (uint64_t)param_bin();
    if (bin_ns == 0)
        return 1;
    report_bins = (uint64_t)param_report() / bin_ns;
    report_bins += report_bins == 0;
    if (param_last_octave() != 0 && param_last_octave() <= param_first_octave()) {
        WEIR_LOG(WEIR_ERROR, "last-octave: 0, or more than first-octave");
        return 1;
    }
    return 0;
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    bin.packets++;
    bin.bytes += p->wire_len;
    return WEIR_PASS;
}

static void report(uint64_t time)
{
    const uint32_t first_octave = (uint32_t)param_first_octave();
    const uint32_t last_octave = (uint32_t)param_last_octave(); /* 0: automatic */
    struct point points[OCTAVES + 1];
    uint32_t last = 0;
    for (uint32_t j = 1; j <= OCTAVES; j++) {
        const struct octave *o = &octaves[j - 1];
        /* A series of whole numbers has no details as small as this: the rest is rounding errors. */
        if (o->count == 0 || !(o->energy > 1e-9))
            break;
        points[j] = point_of(o->energy, o->count);
        const double half = NORMAL_975 * __builtin_sqrt(points[j].variance);
        const struct scales_row row = {
            .time = time,
            .octave = j,
            .coefficients = o->count,
            .energy = o->energy / (double)o->count,
            .log2_energy = points[j].log2_energy,
            .lower = points[j].log2_energy - half,
            .upper = points[j].log2_energy + half,
        };
        emit_scales(&row);
        if (last_octave != 0 ? j <= last_octave : o->count >= COEFFICIENTS_MIN)
            last = j;
    }
    struct estimate_row row = {
        .time = time,
        .first_octave = first_octave,
        .last_octave = last,
        .bins = bins,
        .skipped = skipped,
    };
    if (last > first_octave) {
        const struct line line = fit(points, first_octave, last);
        const double half = NORMAL_975 * __builtin_sqrt(line.variance) / 2;
        row.hurst = (line.slope + 1) / 2;
        row.lower = row.hurst - half;
        row.upper = row.hurst + half;
        row.has_hurst = row.has_lower = row.has_upper = true;
    }
    emit_estimate(&row);
    since_report = 0;
}

WEIR_EXPORT(weir_tick) void weir_tick(uint64_t now, uint64_t periods)
{
    const uint64_t empty = periods - 1;
    const uint32_t taken = empty < GAP_BINS_MAX ? (uint32_t)empty : GAP_BINS_MAX;
    wavelet_push(octaves, (double)(param_bytes() ? bin.bytes : bin.packets), taken);
    bin.packets = 0;
    bin.bytes = 0;
    bins += taken + 1;
    since_report += taken + 1;
    skipped += empty - taken;
    if (since_report >= report_bins)
        report(now);
}

/* The last bin is incomplete, and does not count. */
WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    report(now);
}
