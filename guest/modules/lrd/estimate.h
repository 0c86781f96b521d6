/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * From energies per octave to the Hurst parameter: D. Veitch, P. Abry, "A wavelet-based joint estimator of the parameters of
 * long-range dependence", IEEE Trans. Information Theory 45(3), 1999. With mu(j) the mean energy of n coefficients,
 *
 *     y(j) = log2 mu(j) - g(j),   g(j) = psi(n/2) / ln 2 - log2(n/2),   Var y(j) = zeta(2, n/2) / ln^2 2
 *
 * and a straight line through y(j1 .. j2), weighted with 1 / Var y(j), has the slope alpha = 2 H - 1.
 *
 * The few functions of the C library that this needs are here, in operations with the same result on every machine.
 */
#ifndef LRD_ESTIMATE_H
#define LRD_ESTIMATE_H

#include "weir.h"
#include "wavelet.h"

#define LN_2 0.69314718055994530942
#define NORMAL_975 1.9599639845400545 /* two-sided 95 % of a normal distribution */

/* psi(x) - ln(x) for x > 0: recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.5, 6.3.18). */
static double digamma_minus_log(double x)
{
    double shift = 0, y = x;
    for (uint32_t i = 0; i < 10 && y < 10; i++) {
        shift -= 1 / y;
        y += 1;
    }
    const double r = 1 / (y * y);
    const double series = -0.5 / y - r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240))));
    return shift + series + (y == x ? 0 : weir_ln(y / x));
}

/* zeta(2, x) = psi'(x) for x > 0 (Abramowitz and Stegun 6.4.6, 6.4.12). */
static double zeta_2(double x)
{
    double shift = 0;
    for (uint32_t i = 0; i < 10 && x < 10; i++) {
        shift += 1 / (x * x);
        x += 1;
    }
    const double i = 1 / x, r = i * i;
    return shift + i + r / 2 + i * r * (1.0 / 6 - r * (1.0 / 30 - r * (1.0 / 42 - r * (1.0 / 30))));
}

/* One point of the log-scale diagram. */
struct point {
    double log2_energy, variance;
};

/* Makes a point of the sum of squares of `count` coefficients; both above 0. */
static struct point point_of(double energy, uint64_t count)
{
    const double n = (double)count;
    return (struct point){
        .log2_energy = (weir_ln(energy / n) - digamma_minus_log(n / 2)) / LN_2,
        .variance = zeta_2(n / 2) / (LN_2 * LN_2),
    };
}

struct line {
    double slope, variance;
};

/* Weighted least squares through the points of octaves first ..= last, first < last. points[j] is octave j. */
static struct line fit(const struct point *points, uint32_t first, uint32_t last)
{
    double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
    WEIR_FOR(OCTAVES, uint32_t j = first; j <= last; j++) {
        const double weight = 1 / points[j].variance;
        s += weight;
        sx += weight * j;
        sxx += weight * j * j;
        sy += weight * points[j].log2_energy;
        sxy += weight * j * points[j].log2_energy;
    }
    const double determinant = s * sxx - sx * sx;
    return (struct line){ (s * sxy - sx * sy) / determinant, s / determinant };
}

#endif
