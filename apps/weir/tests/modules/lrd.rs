//! Module lrd: estimates of the Hurst parameter, on noise with a known one.

use super::capture::{BEGIN, Capture, ETHERNET, Frame, MILLISECOND, SECOND, repository, sample};
use super::noise::{Random, fractional_gaussian};
use super::weir::{Row, refusal, run, run_file, run_stream, start_failure};

/// The module's default bin width.
const BIN: u64 = 10 * MILLISECOND;

const HURST: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

fn frame(ts: u64, wire_len: u32) -> Frame {
    Frame { ts, wire_len, bytes: vec![0; 14] }
}

/// A capture with a number of evenly spread packets in each bin; one more packet ends the last bin.
fn packets(counts: &[u32]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (bin, count) in (0..).zip(counts) {
        let (begin, count) = (BEGIN + bin * BIN, u64::from(*count));
        capture.frames.extend((0..count).map(|i| frame(begin + i * BIN / count, 60)));
    }
    capture.frames.push(frame(BEGIN + counts.len() as u64 * BIN, 60));
    capture
}

/// A capture with one packet of a given length in each bin.
fn bytes(lengths: &[u32]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    capture.frames.extend((0..).zip(lengths).map(|(bin, len)| frame(BEGIN + bin * BIN, *len)));
    capture.frames.push(frame(BEGIN + lengths.len() as u64 * BIN, 60));
    capture
}

/// Noise rounded to counts.
fn noise(hurst: f64, len: usize, seed: u64, mean: f64, deviation: f64) -> Vec<u32> {
    let series = fractional_gaussian(hurst, len, &mut Random(seed));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is far from it"
    )]
    series.into_iter().map(|x| (mean + deviation * x).round() as u32).collect()
}

/// The last estimate.
fn estimate(capture: &Capture, module: &str) -> Row {
    run_stream(&capture.to_pcap(), &["-m", module]).rows("lrd", "estimate").pop().unwrap()
}

#[test]
fn the_hurst_parameter_of_packet_counts_is_found_within_0_05() {
    for (seed, hurst) in (1..).zip(HURST) {
        let counts = noise(hurst, 1 << 14, seed, 50.0, 10.0);
        let row = estimate(&packets(&counts), "lrd");
        let found = row.float("hurst");
        println!("H {hurst}: {found:.3}, {:.3} to {:.3}", row.float("lower"), row.float("upper"));
        assert!((found - hurst).abs() < 0.05, "H {hurst}, estimated {found}");
        assert!(row.float("lower") < found && found < row.float("upper"));
        assert_eq!((row.number("bins"), row.number("skipped")), (1 << 14, 0));
        assert_eq!((row.number("first_octave"), row.number("last_octave")), (3, 11));
    }
}

/// The module's README states these figures.
#[test]
fn estimation_errors_and_interval_coverage_match_the_readme() {
    let (mut covered, mut runs, mut error, mut largest) = (0, 0, 0.0, 0.0_f64);
    for hurst in HURST {
        for seed in 100..136 {
            let lengths = noise(hurst, 1 << 14, seed, 10_000.0, 1000.0);
            let row = estimate(&bytes(&lengths), "lrd,bytes=true");
            let found = row.float("hurst");
            assert!((found - hurst).abs() < 0.05, "H {hurst}, estimated {found}");
            covered += i32::from(row.float("lower") <= hurst && hurst <= row.float("upper"));
            error += found - hurst;
            largest = largest.max((found - hurst).abs());
            runs += 1;
        }
    }
    let bias = error / f64::from(runs);
    let (errors, cover) = (format!("{largest:.3}"), format!("{covered} of the {runs} runs"));
    println!("{cover} are covered by their intervals of 95 %; error at most {errors}, on average {bias:.4}");
    // With a coverage of 95 %, fewer than 161 of 180 have a probability below 0.1 %.
    assert!(covered >= 161, "{cover}");
    assert!(bias.abs() < 0.01, "mean error {bias}");
    let readme = std::fs::read_to_string(repository().join("guest/modules/lrd/README.md")).unwrap();
    assert!(readme.contains(&errors) && readme.contains(&cover), "README.md should say {errors} and {cover}");
}

#[test]
fn the_log_scale_diagram_of_uncorrelated_noise_is_flat() {
    let counts = noise(0.5, 1 << 14, 7, 50.0, 10.0);
    let rows = run_stream(&packets(&counts).to_pcap(), &["-m", "lrd,report=1h"]).rows("lrd", "scales");
    let octaves: Vec<i128> = rows.iter().map(|row| row.number("octave")).collect();
    assert_eq!(octaves, (1..=octaves.len() as i128).collect::<Vec<_>>());
    for (row, octave) in rows.iter().zip(1u32..) {
        // A wavelet with six taps loses fewer than six coefficients at the ends of each octave.
        let most = i128::from((1 << 14) >> octave);
        let coefficients = row.number("coefficients");
        assert!((most - 5..=most).contains(&coefficients), "octave {octave}: {coefficients} of {most}");
        // The energy is the variance: 10^2, plus 1/12 from rounding. The tolerance is five standard deviations of a chi-squared mean.
        let off = (row.float("energy") / 100.083 - 1.0).abs();
        assert!(off < 5.0 * (2.0 / coefficients as f64).sqrt(), "octave {octave}: {row:?}");
        assert!(
            row.float("lower") < row.float("log2_energy") && row.float("log2_energy") < row.float("upper")
        );
    }
}

/// psi(n/2) and zeta(2, n/2) for whole n, as finite sums (Abramowitz and Stegun 6.3.2, 6.3.4, 6.4.2, 6.4.4).
fn digamma_and_zeta(n: i128) -> (f64, f64) {
    use std::f64::consts::{LN_2, PI};
    const EULER: f64 = 0.577_215_664_901_532_9;
    let (digamma, zeta, first) =
        if n % 2 == 0 { (-EULER, PI * PI / 6.0, 2) } else { (-EULER - 2.0 * LN_2, PI * PI / 2.0, 1) };
    let terms = || (first..n).step_by(2).map(|k| 2.0 / k as f64);
    (digamma + terms().sum::<f64>(), zeta - terms().map(|term| term * term).sum::<f64>())
}

#[test]
fn bias_correction_and_confidence_intervals_match_theory() {
    for len in [100, 1000, 2048, 5003] {
        let capture = bytes(&noise(0.7, 1 << 13, 11, 10_000.0, 1000.0)[..len]);
        let rows = run(&capture, &["-m", "lrd,bytes=true,report=1h"]).rows("lrd", "scales");
        assert!(rows.len() > 3);
        for row in rows {
            let n = row.number("coefficients");
            let (digamma, zeta) = digamma_and_zeta(n);
            let bias = digamma / std::f64::consts::LN_2 - (n as f64 / 2.0).log2();
            let y = row.float("energy").log2() - bias;
            let half = 1.959_963_984_540_054 * zeta.sqrt() / std::f64::consts::LN_2;
            for (name, expected) in [("log2_energy", y), ("lower", y - half), ("upper", y + half)] {
                assert!(
                    (row.float(name) - expected).abs() < 1e-7,
                    "n {n}: {name} is not {expected}: {row:?}"
                );
            }
        }
    }
}

#[test]
fn polynomial_trends_do_not_change_the_estimate() {
    let lengths = noise(0.8, 1 << 13, 5, 20_000.0, 1000.0);
    let with_trend = |trend: &dyn Fn(u32) -> u32| {
        let lengths: Vec<u32> = (0..).zip(&lengths).map(|(bin, len)| len + trend(bin)).collect();
        estimate(&bytes(&lengths), "lrd,bytes=true").float("hurst")
    };
    let level = with_trend(&|_| 0);
    let linear = with_trend(&|bin| 5 * bin);
    let quadratic = with_trend(&|bin| bin * bin / 1000);
    assert!(
        (linear - level).abs() < 1e-3 && (quadratic - level).abs() < 1e-3,
        "{level}, {linear}, {quadratic}"
    );
}

#[test]
fn an_estimate_is_emitted_every_report_interval_and_at_the_end() {
    let capture = bytes(&vec![100; 350]);
    let run = run(&capture, &["-m", "lrd,report=1s"]);
    let rows = run.rows("lrd", "estimate");
    let at = |row: &Row| (row.number("time") - i128::from(BEGIN), row.number("bins"));
    let second = i128::from(SECOND);
    assert_eq!(
        rows.iter().map(at).collect::<Vec<_>>(),
        [(second, 100), (2 * second, 200), (3 * second, 300), (second * 7 / 2, 350)]
    );
    // A constant series has no energy at any scale.
    assert!(rows.iter().all(|row| row.is_null("hurst")));
    assert_eq!(run.rows("lrd", "scales"), []);
}

#[test]
fn a_gap_counts_as_empty_bins_up_to_a_limit() {
    let gap = |bins: u64| {
        let mut capture = Capture::new(ETHERNET);
        capture.frames = vec![frame(BEGIN, 60), frame(BEGIN + bins * BIN, 60)];
        let row = estimate(&capture, "lrd");
        (row.number("bins"), row.number("skipped"))
    };
    assert_eq!(gap(1), (1, 0));
    assert_eq!(gap(1000), (1000, 0));
    assert_eq!(gap(65_537), (65_537, 0));
    assert_eq!(gap(100_000), (65_537, 100_000 - 65_537));
}

#[test]
fn parameters_choose_the_octaves() {
    let capture = bytes(&noise(0.7, 1 << 12, 3, 10_000.0, 1000.0));
    let octaves = |module: &str| {
        let row = estimate(&capture, module);
        (row.number("first_octave"), row.number("last_octave"))
    };
    assert_eq!(octaves("lrd,bytes=true"), (3, 9));
    assert_eq!(octaves("lrd,bytes=true,first-octave=2,last-octave=6"), (2, 6));
    assert!(estimate(&capture, "lrd,bytes=true,first-octave=20").is_null("hurst"));
    assert!(
        start_failure(&capture, &["-m", "lrd,first-octave=5,last-octave=5"])
            .contains("more than first-octave")
    );
    assert!(refusal(&capture, &["-m", "lrd,bin=1us"]).contains("bin"));
}

#[test]
fn the_sample_has_an_estimate() {
    let rows = run_file(&sample(), &["-m", "lrd"]).rows("lrd", "estimate");
    let row = rows.last().unwrap();
    // 30 s in bins of 10 ms.
    assert!((2900..3200).contains(&row.number("bins")), "{row:?}");
    assert!(row.float("lower") < row.float("hurst") && row.float("hurst") < row.float("upper"), "{row:?}");
}
