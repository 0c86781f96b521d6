/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The pyramid of the discrete wavelet transform, on-line: each new sample of the series goes through as many octaves as it completes
 * pairs for. Work is constant per sample on average (two filter steps), memory is a few samples per octave. After M. Roughan,
 * D. Veitch, P. Abry, "Real-time estimation of the parameters of long-range dependence", IEEE/ACM ToN 8(4), 2000.
 *
 * Wavelet: Daubechies with three vanishing moments, which makes the estimate blind to linear and quadratic trends. No
 * coefficient uses samples from beyond either end of the series.
 */
#ifndef LRD_WAVELET_H
#define LRD_WAVELET_H

#include "weir.h"

enum { OCTAVES = 32, TAPS = 6 };

/* Daubechies' scaling filter of length 6 (I. Daubechies, "Ten Lectures on Wavelets", table 6.1), normalised to a sum of sqrt 2. */
static const double scaling[TAPS] = {
    0.33267055295008261599851158914,  0.80689150931109257649449360409, 0.45987750211849157009515194215,
    -0.13501102001025458869638990670, -0.08544127388202666169281916918, 0.03522629188570953660274066472,
};

struct octave {
    double window[TAPS]; /* the last pairs of samples, oldest first */
    double first;        /* the first sample of an incomplete pair */
    bool has_first;
    uint32_t filled; /* samples in the window, at most TAPS */
    uint64_t count;  /* coefficients so far */
    double energy;   /* sum of their squares */
};

/* Adds a sample to an octave. Returns true if it is replaced by a sample for the next octave. */
static inline bool octave_push(struct octave *o, double *sample)
{
    o->has_first = !o->has_first;
    if (o->has_first) {
        o->first = *sample;
        return false;
    }
    for (uint32_t i = 0; i + 2 < TAPS; i++)
        o->window[i] = o->window[i + 2];
    o->window[TAPS - 2] = o->first;
    o->window[TAPS - 1] = *sample;
    if (o->filled < TAPS)
        o->filled += 2;
    if (o->filled < TAPS)
        return false;
    double approximation = 0, detail = 0;
    for (uint32_t i = 0; i < TAPS; i++) {
        approximation += scaling[i] * o->window[i];
        const double mirrored = scaling[TAPS - 1 - i] * o->window[i];
        detail += (i & 1) ? -mirrored : mirrored;
    }
    o->count++;
    o->energy += detail * detail;
    *sample = approximation;
    return true;
}

/* Adds a sample to the series, and a number of zeros after it. Each octave passes at most every second sample to the next. So all
 * samples together take at most two steps each, and one for each octave. This is one loop, so that it can have this bound. */
static void wavelet_push(struct octave octaves[OCTAVES], double sample, uint32_t zeros)
{
    const uint32_t samples = zeros + 1;
    uint32_t pushed = 0, j = 0;
    WEIR_WHILE(2 * samples + OCTAVES, pushed < samples) {
        if (octave_push(&octaves[j], &sample) && j + 1 < OCTAVES) {
            j++;
        } else {
            sample = 0;
            pushed++;
            j = 0;
        }
    }
}

#endif
