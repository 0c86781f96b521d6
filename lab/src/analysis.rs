//! Time and memory of the analysis of shipped and hostile modules: the part `analysis` of the benchmark.

use crate::error::{Context, LabError};
use crate::module::Module;
use crate::statistics::{Sample, processor_time};
use crate::table::{Table, yes_or_no};
use crate::{adversarial, memory};
use std::path::Path;
use std::process::Command;
use weir_bounds::{Analysis, CostTable, Environment, Malformed, analyse};

/// The promised limit in milliseconds for a shipped module.
const SHIPPED_MILLIS_MAX: f64 = 5.0;
/// The promised limit in milliseconds for a hostile module of 1 MB.
const HOSTILE_MILLIS_MAX: f64 = 50.0;
/// The promised limit in MiB for a hostile module.
const HOSTILE_MEBIBYTES_MAX: f64 = 64.0;

/// The tables: the analysis time of each shipped module, and time and memory for hostile modules.
pub fn tables(modules: &[Module], rounds: usize) -> Result<String, LabError> {
    let mut shipped = Table::new("module | bytes | ms | quartiles | under 5 ms");
    for module in modules {
        let Module { name, wasm, .. } = module;
        let environment = module.admit()?.environment();
        let q = (0..rounds).map(|_| analyse_timed(wasm, &environment).0).collect::<Sample>().quartiles();
        let kept = yes_or_no(q.median < SHIPPED_MILLIS_MAX);
        shipped.row(format_args!("{name} | {} | {} | {kept}", wasm.len(), q.cells(2)));
    }
    let mut hostile = Table::new("module | bytes | ms | MB | under 50 ms and 64 MB | answer");
    for (name, wasm) in adversarial::all() {
        let (millis, mebibytes, answer) = analyse_in_child(&wasm)?;
        let kept = yes_or_no(millis < HOSTILE_MILLIS_MAX && mebibytes < HOSTILE_MEBIBYTES_MAX);
        hostile
            .row(format_args!("{name} | {} | {millis:.1} | {mebibytes:.1} | {kept} | {answer}", wasm.len()));
    }
    Ok(format!(
        "Medians of {rounds} analyses.\n\n{shipped}\nHostile modules, each analysed once in a separate process. Memory is the growth of that process's peak.\n\n{hostile}"
    ))
}

/// Analyses a module. Returns the processor time in milliseconds, and the analysis.
fn analyse_timed(wasm: &[u8], environment: &Environment) -> (f64, Option<Result<Analysis, Malformed>>) {
    let mut analysis = None;
    let time = processor_time(|| {
        let parsed = weir_bounds::ParsedModule::parse(wasm.to_vec());
        analysis = Some(parsed.and_then(|module| analyse(&module, environment, &CostTable::standard())));
    });
    (time.as_secs_f64() * 1e3, analysis)
}

/// Analyses a module in a separate process. Returns milliseconds, MiB and the result.
fn analyse_in_child(wasm: &[u8]) -> Result<(f64, f64, String), LabError> {
    let file = tempfile::NamedTempFile::new().context("a file for a module")?;
    std::fs::write(file.path(), wasm).context("writing a module")?;
    let program = std::env::current_exe().context("finding this program")?;
    let output =
        Command::new(program).arg("--analyse").arg(file.path()).output().context("bench --analyse")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.trim().splitn(3, ' ');
    let mut number = || parts.next()?.parse::<f64>().ok();
    match (number(), number()) {
        (Some(millis), Some(mebibytes)) if output.status.success() => {
            Ok((millis, mebibytes, parts.next().unwrap_or_default().to_owned()))
        }
        _ => Err(LabError::failed(
            "bench --analyse",
            String::from_utf8_lossy(&output.stderr).into_owned() + &text,
        )),
    }
}

/// The work of the child process `bench --analyse FILE`: analyses a module, and returns a line with milliseconds, MiB and
/// the result.
pub fn analyse_file(path: &Path) -> Result<String, LabError> {
    let wasm = std::fs::read(path).map_err(LabError::file(path))?;
    let environment =
        Environment { parameters: Vec::new(), string_bytes: Vec::new(), packet_max: 16 << 20, pages_max: 16 };
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        memory::mebibytes(&status, "VmHWM:")
    };
    let before = peak();
    let (millis, analysis) = analyse_timed(&wasm, &environment);
    let grown = (peak() - before).max(0.0);
    let answer = match analysis {
        None => String::new(),
        Some(Err(malformed)) => malformed.to_string(),
        Some(Ok(analysis)) if analysis.is_bounded() => {
            let bounds = analysis.entries.iter().map(|entry| entry.usage.fuel.to_string());
            format!("bounded: {}", bounds.collect::<Vec<_>>().join(", "))
        }
        Some(Ok(analysis)) => {
            let mut reasons = analysis.entries.iter().flat_map(|entry| &entry.unbounded);
            format!(
                "unbounded: {}",
                reasons.next().map_or_else(String::new, |reason| format!("{:?}", reason.cause))
            )
        }
    };
    Ok(format!("{millis} {grown} {answer}"))
}
