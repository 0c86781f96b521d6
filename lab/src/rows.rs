//! Rows on standard output: their cost compared with that of Parquet files, the time until the first row, and the time
//! from the closing of the pipe by the reader until weir ends. The part `rows` of the benchmark.

use crate::error::{Context as _, LabError};
use crate::native::run_measured;
use crate::run;
use crate::statistics::{Action, Sample, measure_in_turn, measure_values_in_turn};
use crate::table::{Table, under};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The module that emits a row for each IP packet, and its record stream.
const MODULE: &str = "trajectory,one-in=1";
const STREAM: &str = "samples";
/// The number of packets of a run.
const PACKETS: &str = "5000000";
/// The limit of the processor time of a run with rows on standard output, relative to a run with Parquet files.
const RATIO_MAX: f64 = 1.3;
/// The limit of the time from the start of weir to the first row, in milliseconds.
const FIRST_ROW_MILLIS_MAX: f64 = 100.0;
/// The limit of the time from the closing of the pipe by the reader to the end of weir, in milliseconds.
const END_MILLIS_MAX: f64 = 50.0;

/// The tables of the part, over a large capture.
pub fn tables(capture: &Path, rounds: usize) -> Result<String, LabError> {
    Ok(format!("{}\n{}", costs(capture, rounds)?, latencies(capture, rounds)?))
}

fn command(capture: &Path) -> Result<Command, LabError> {
    let mut command = run::weir_run(capture, 1)?;
    command.args(["-m", MODULE, "--stream", STREAM]);
    Ok(command)
}

fn costs(capture: &Path, rounds: usize) -> Result<String, LabError> {
    let folder = tempfile::tempdir().map_err(LabError::file(&std::env::temp_dir()))?;
    let out = folder.path().join("out");
    let formats = ["json", "csv", "table"];
    let mut actions: Vec<Action<'_>> = vec![Box::new(|| {
        // Fails in the first round, because the folder does not exist yet.
        let _ = std::fs::remove_dir_all(&out);
        let mut command = command(capture)?;
        Ok(run_measured(command.args(["-c", PACKETS, "--out"]).arg(&out))?.cpu.as_secs_f64())
    })];
    for format in formats {
        actions.push(Box::new(move || {
            let mut command = command(capture)?;
            Ok(run_measured(command.args(["-c", PACKETS, "--format", format]))?.cpu.as_secs_f64())
        }));
    }
    let samples = measure_in_turn(rounds, &mut actions)?;
    let files = samples.first().cloned().unwrap_or_default();
    let mut table = Table::new("rows | processor s | quartiles | ratio | quartiles | limit | kept");
    for (name, sample) in ["--out DIR (Parquet)"].into_iter().chain(formats).zip(&samples) {
        let ratio = sample.ratio_to(&files);
        table.row(format_args!(
            "{name} | {} | {} | {}",
            sample.cells(2),
            ratio.cells(2),
            under(RATIO_MAX, ratio.median())
        ));
    }
    Ok(format!(
        "Processor time of `weir run -r BIG --jobs 1 -m {MODULE} --stream {STREAM} -c {PACKETS}`, with a row for each IP packet; standard output is /dev/null. {rounds} runs of each, in turn.\n\n{table}"
    ))
}

fn latencies(capture: &Path, rounds: usize) -> Result<String, LabError> {
    let mut actions: Vec<Action<'_, (f64, f64)>> = vec![Box::new(|| first_row_and_end(capture))];
    let values = measure_values_in_turn(rounds, &mut actions)?.pop().unwrap_or_default();
    let (first, end): (Vec<f64>, Vec<f64>) = values.into_iter().unzip();
    let mut table = Table::new("time | ms | quartiles | limit | kept");
    for (name, values, max) in [
        ("from the start of weir to the first row", first, FIRST_ROW_MILLIS_MAX),
        ("from the end of the reader to that of weir", end, END_MILLIS_MAX),
    ] {
        let sample = Sample::from_iter(values);
        table.row(format_args!("{name} | {} | {}", sample.cells(1), under(max, sample.median())));
    }
    Ok(format!(
        "`weir run -r BIG --jobs 1 -m {MODULE} --stream {STREAM} --format json`, whose reader closes the pipe after the first byte; {rounds} runs.\n\n{table}"
    ))
}

/// Returns the milliseconds until the first row arrives, and from the time at which the pipe is closed until the run has
/// ended.
fn first_row_and_end(capture: &Path) -> Result<(f64, f64), LabError> {
    let mut command = command(capture)?;
    command.args(["--format", "json"]).stdout(Stdio::piped()).stdin(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().context("weir run")?;
    let mut byte = [0];
    let Some(mut out) = child.stdout.take() else {
        return Err(LabError::failed("weir run", "it has no standard output"));
    };
    out.read_exact(&mut byte).context("the first row")?;
    let first = begin.elapsed();
    drop(out);
    let closed = Instant::now();
    child.wait().context("weir run")?;
    Ok((first.as_secs_f64() * 1e3, closed.elapsed().as_secs_f64() * 1e3))
}
