//! Whole runs: the processor time that programs take for a large capture in the page cache.

use crate::native::{Compiler, compile_program, run_measured};
use crate::statistics::Sample;
use crate::table::{Table, kept_by};
use crate::{BenchError, place};
use std::path::Path;
use std::process::Command;

const FILTER: &str = "tcp[tcpflags] & tcp-syn != 0";

/// A program that is measured.
struct Program {
    name: &'static str,
    command: Command,
    nanos: Sample,
}

/// Processor time a packet of a few programs over a capture, and what is promised about it.
///
/// # Errors
/// Where the program `weir` is not there, or one of the programs fails.
#[expect(clippy::cast_precision_loss, reason = "counts of packets and nanoseconds are far below 2^53")]
pub fn tables(capture: &Path, modules: &[String], rounds: usize) -> Result<String, BenchError> {
    let mut programs = programs(capture, modules)?;
    let packets = packets_in(capture, &mut programs)? as f64;
    // Once without measuring: the file comes into the page cache, the modules into weir's.
    for round in 0..=rounds {
        for program in &mut programs {
            let usage = run_measured(&mut program.command)?;
            if round > 0 {
                program.nanos.push(usage.cpu.as_nanos() as f64 / packets);
            }
        }
    }
    let mut costs = Table::new(&["program", "ns a packet", "quartiles", "million packets/s"]);
    for program in &programs {
        let q = program.nanos.quartiles();
        costs.row([
            program.name.to_owned(),
            format!("{:.1}", q.median),
            q.spread(1),
            format!("{:.1}", 1000.0 / q.median),
        ]);
    }
    let find = |name: &str| programs.iter().find(|program| program.name == name).map(|p| &p.nanos);
    let ratio = |a: &str, b: &str| Some(find(a)?.over(find(b)?).median());
    let mut promises = Table::new(&["promise", "target", "measured", "kept"]);
    let mut at_most = |promise: &str, target: f64, measured: Option<f64>| {
        let Some(measured) = measured else { return };
        let kept = kept_by(measured / target - 1.0);
        promises.row([promise.to_owned(), format!("≤ {target}"), format!("{measured:.2}"), kept]);
    };
    at_most("syn-flood ÷ limit", 1.3, ratio(SYN_FLOOD, LIMIT));
    at_most("syn-flood ÷ tcpdump", 0.5, ratio(SYN_FLOOD, TCPDUMP));
    if let Some(rate) = find(ALL).map(|nanos| 1000.0 / nanos.median()) {
        let kept = kept_by(1.0 - rate / 5.0);
        promises.row([
            "all eight, million packets/s on one core".to_owned(),
            "≥ 5".to_owned(),
            format!("{rate:.2}"),
            kept,
        ]);
    }
    Ok(format!(
        "{} packets, {} bytes, in the page cache; processor time (user and system), medians of {rounds} runs in turn.\n\n{promises}\n{costs}",
        packets,
        std::fs::metadata(capture).map_or(0, |meta| meta.len()),
    ))
}

const LIMIT: &str = "limit: a bare C loop over the mapped file";
const SYN_FLOOD: &str = "weir run -m syn-flood --jobs 1";
const ALL: &str = "weir run, all eight modules, --jobs 1";
const TCPDUMP: &str = "tcpdump -w /dev/null 'tcp[tcpflags] & tcp-syn != 0'";

fn programs(capture: &Path, modules: &[String]) -> Result<Vec<Program>, BenchError> {
    let mut programs = Vec::new();
    let mut add = |name, command| programs.push(Program { name, command, nanos: Sample::default() });
    if let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) {
        let limit = compile_program(&place::root().join("lab/native/limit.c"), &compiler)?;
        let mut command = Command::new(limit);
        command.arg(capture);
        add(LIMIT, command);
    }
    let mut syn_flood = weir(capture)?;
    syn_flood.args(["-m", "syn-flood"]);
    add(SYN_FLOOD, syn_flood);
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.arg("-r").arg(capture).args(["-w", "/dev/null", FILTER]);
    if Command::new("tcpdump").arg("--version").output().is_ok() {
        add(TCPDUMP, tcpdump);
    }
    let mut all = weir(capture)?;
    all.args(modules.iter().flat_map(|module| ["-m", module]));
    add(ALL, all);
    Ok(programs)
}

/// `weir run -r CAPTURE --jobs 1`.
///
/// # Errors
/// Where it is not built.
pub fn weir(capture: &Path) -> Result<Command, BenchError> {
    let mut command = Command::new(place::built()?);
    command.args(["run", "--jobs", "1", "-r"]).arg(capture);
    Ok(command)
}

/// How many packets a capture has.
fn packets_in(capture: &Path, programs: &mut [Program]) -> Result<u64, BenchError> {
    if let Some(limit) = programs.iter_mut().find(|program| program.name == LIMIT) {
        let output = limit
            .command
            .output()
            .map_err(|source| BenchError::Program { program: LIMIT.to_owned(), source })?;
        let said = String::from_utf8_lossy(&output.stdout);
        if let Some(packets) = said.split(' ').next().and_then(|count| count.parse().ok()) {
            return Ok(packets);
        }
    }
    let mut reader = weir_netio::Capture::open(weir_netio::Input::File(capture.to_owned()))?;
    while let weir_netio::Next::Block(_) = reader.next_block()? {}
    Ok(reader.totals().packets)
}
