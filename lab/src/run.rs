//! Whole runs: the processor time of `weir run` and other programs over a large capture in the page cache. The part `run`
//! of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::native::{Compiler, compile_program, run_measured};
use crate::paths;
use crate::statistics::{Action, Sample, measure_in_turn};
use crate::table::Table;
use std::path::Path;
use std::process::Command;

const FILTER: &str = "tcp[tcpflags] & tcp-syn != 0";
const LIMIT: &str = "limit: a bare C loop over the mapped file";
const SYN_FLOOD: &str = "weir run -m syn-flood --jobs 1";
const ALL: &str = "weir run, all eight modules, --jobs 1";
const TCPDUMP: &str = "tcpdump -w /dev/null 'tcp[tcpflags] & tcp-syn != 0'";

/// The table of the processor time per packet of several programs over a capture, with the promises about it.
pub fn tables(capture: &Path, modules: &[String], rounds: usize) -> Result<String, LabError> {
    let mut programs = programs(capture, modules)?;
    let packets = packets_in(capture, &mut programs)? as f64;
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    // The first round loads the file into the page cache, and the modules into weir's module cache.
    let mut actions: Vec<Action<'_>> = Vec::new();
    for (_, command) in &mut programs {
        actions.push(Box::new(move || Ok(run_measured(command)?.cpu.as_nanos() as f64 / packets)));
    }
    let samples = measure_in_turn(rounds, &mut actions)?;
    let mut costs = Table::new("program | ns a packet | quartiles | million packets/s");
    for (name, sample) in names.iter().zip(&samples) {
        costs.row(format_args!("{name} | {} | {:.1}", sample.cells(1), 1000.0 / sample.median()));
    }
    let find =
        |name: &str| -> Option<&Sample> { samples.get(names.iter().position(|found| *found == name)?) };
    let ratio = |a: &str, b: &str| Some(find(a)?.ratio_to(find(b)?).median());
    let criteria: Vec<Criterion> = [
        ratio(SYN_FLOOD, LIMIT).map(|ratio| Criterion::at_most("syn-flood ÷ limit", ratio, 1.3, "")),
        ratio(SYN_FLOOD, TCPDUMP).map(|ratio| Criterion::at_most("syn-flood ÷ tcpdump", ratio, 0.5, "")),
        find(ALL)
            .map(|all| 1000.0 / all.median())
            .map(|rate| Criterion::at_least("all eight, million packets/s on one core", rate, 5.0, "")),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(format!(
        "{packets} packets, {} bytes, in the page cache; processor time (user and system), medians of {rounds} interleaved runs.\n\n{}\n{costs}",
        std::fs::metadata(capture).map_or(0, |meta| meta.len()),
        criterion::table(&criteria)
    ))
}

/// The programs that are installed or built here, each with its name in the table.
fn programs(capture: &Path, modules: &[String]) -> Result<Vec<(&'static str, Command)>, LabError> {
    let mut programs = Vec::new();
    if let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) {
        let limit = compile_program(&paths::root().join("lab/native/limit.c"), &compiler)?;
        let mut command = Command::new(limit);
        command.arg(capture);
        programs.push((LIMIT, command));
    }
    let mut syn_flood = weir_run(capture)?;
    syn_flood.args(["-m", "syn-flood"]);
    programs.push((SYN_FLOOD, syn_flood));
    if Command::new("tcpdump").arg("--version").output().is_ok() {
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.arg("-r").arg(capture).args(["-w", "/dev/null", FILTER]);
        programs.push((TCPDUMP, tcpdump));
    }
    let mut all = weir_run(capture)?;
    all.args(modules.iter().flat_map(|module| ["-m", module]));
    programs.push((ALL, all));
    Ok(programs)
}

/// The command `weir run -r CAPTURE --jobs 1`.
pub fn weir_run(capture: &Path) -> Result<Command, LabError> {
    let mut command = Command::new(paths::built_weir()?);
    command.args(["run", "--jobs", "1", "-r"]).arg(capture);
    Ok(command)
}

/// The number of packets of a capture.
fn packets_in(capture: &Path, programs: &mut [(&str, Command)]) -> Result<u64, LabError> {
    if let Some((_, limit)) = programs.iter_mut().find(|(name, _)| *name == LIMIT) {
        let output = limit.output().context(LIMIT)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        if let Some(packets) = printed.split(' ').next().and_then(|count| count.parse().ok()) {
            return Ok(packets);
        }
    }
    let mut reader = weir_netio::Capture::open(weir_netio::CaptureInput::File(capture.to_owned()))?;
    while let weir_netio::CaptureNext::Block(_) = reader.next_block()? {}
    Ok(reader.totals().packets)
}
