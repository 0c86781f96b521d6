//! Exact fractional Gaussian noise (R. Davies, D. Harte, "Tests for Hurst effect", Biometrika 74, 1987). The covariance matrix is
//! embedded in a circulant matrix, whose eigenvalues are the Fourier transform of its first row.

use std::f64::consts::TAU;

/// A generator with a fixed seed (Steele, Lea, Flood, SplitMix64, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A uniform number above 0 and at most 1.
    fn uniform(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Two independent standard normal numbers (Box and Muller, 1958).
    fn normals(&mut self) -> (f64, f64) {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let (sin, cos) = (TAU * self.uniform()).sin_cos();
        (radius * cos, radius * sin)
    }
}

/// Returns `len` values with mean 0 and variance 1; `len` is a power of two.
pub fn fractional_gaussian(hurst: f64, len: usize, random: &mut Random) -> Vec<f64> {
    let power = |k: f64| k.abs().powf(2.0 * hurst);
    let covariance = |k: usize| {
        let k = k as f64;
        (power(k - 1.0) - 2.0 * power(k) + power(k + 1.0)) / 2.0
    };
    let size = 2 * len;
    let mut row: Vec<(f64, f64)> = (0..size).map(|k| (covariance(k.min(size - k)), 0.0)).collect();
    transform(&mut row);
    let mut spectrum: Vec<(f64, f64)> = row
        .iter()
        .map(|(eigenvalue, _)| {
            assert!(*eigenvalue > -1e-9, "not a covariance");
            let scale = (eigenvalue.max(0.0) / size as f64).sqrt();
            let (re, im) = random.normals();
            (scale * re, scale * im)
        })
        .collect();
    transform(&mut spectrum);
    spectrum.into_iter().take(len).map(|(re, _)| re).collect()
}

/// The discrete Fourier transform of a power of two complex numbers, in place (Cooley, Tukey, 1965).
fn transform(x: &mut [(f64, f64)]) {
    let bits = x.len().trailing_zeros();
    for i in 0..x.len() {
        let mirrored = i.reverse_bits() >> (usize::BITS - bits);
        if i < mirrored {
            x.swap(i, mirrored);
        }
    }
    let mut half = 1;
    while half < x.len() {
        for begin in (0..x.len()).step_by(2 * half) {
            for k in 0..half {
                let (sin, cos) = (-TAU * k as f64 / (2 * half) as f64).sin_cos();
                let (a, b) = (x[begin + k], x[begin + k + half]);
                let turned = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                x[begin + k] = (a.0 + turned.0, a.1 + turned.1);
                x[begin + k + half] = (a.0 - turned.0, a.1 - turned.1);
            }
        }
        half *= 2;
    }
}

#[test]
fn the_noise_has_the_specified_covariance() {
    let mut random = Random(1);
    for hurst in [0.5, 0.7, 0.9] {
        let series: Vec<Vec<f64>> = (0..64).map(|_| fractional_gaussian(hurst, 1024, &mut random)).collect();
        for lag in [0usize, 1, 2, 10] {
            let products = series.iter().flat_map(|x| x.iter().zip(&x[lag..]).map(|(a, b)| a * b));
            let mean = products.sum::<f64>() / (64.0 * (1024 - lag) as f64);
            let k = lag as f64;
            let power = |k: f64| k.abs().powf(2.0 * hurst);
            let expected = (power(k - 1.0) - 2.0 * power(k) + power(k + 1.0)) / 2.0;
            assert!((mean - expected).abs() < 0.06, "H {hurst}, lag {lag}: {mean} instead of {expected}");
        }
    }
}
