//! Whole runs: the time of `weir run` and other programs over a large capture in the page cache. The part `run` of the
//! benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::native::{Compiler, ProcessUsage, compile_program, run_measured};
use crate::paths;
use crate::statistics::{Action, Sample, measure_values_in_turn};
use crate::table::Table;
use std::path::Path;
use std::process::Command;

const FILTER: &str = "tcp[tcpflags] & tcp-syn != 0";
const WALK: &str = "limit: a bare C loop over the mapped file, MAP_POPULATE";
const LIMIT: &str = "the same without MAP_POPULATE";
const READ: &str = "the same with read(2)";
const SYN_FLOOD: &str = "weir run -m syn-flood --jobs 1";
const TCPDUMP: &str = "tcpdump -w /dev/null 'tcp[tcpflags] & tcp-syn != 0'";
const SEVEN: &str = "weir run, seven modules, --jobs 1";
const SEVEN_BY_TWO: &str = "weir run, seven modules, --jobs 2";
const DEFAULT: &str = "weir run, default modules, --jobs 1";
const DEFAULT_BY_TWO: &str = "weir run, default modules, --jobs 2";

/// The modules that are measured together.
const SEVEN_MODULES: [&str; 7] =
    ["lrd", "payload-match", "port-count", "rtt", "syn-flood", "trajectory", "worm"];

/// The tables of the time per packet of several programs over a capture, with the promises about it.
pub fn tables(capture: &Path, rounds: usize) -> Result<String, LabError> {
    let mut programs = programs(capture)?;
    let packets = packets_in(capture, &mut programs)? as f64;
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    // The first round loads the file into the page cache, and the modules into weir's module cache.
    let mut actions: Vec<Action<'_, ProcessUsage>> = Vec::new();
    for (_, command) in &mut programs {
        actions.push(Box::new(move || run_measured(command)));
    }
    let usages = measure_values_in_turn(rounds, &mut actions)?;
    let nanos = |time: fn(&ProcessUsage) -> std::time::Duration| -> Vec<Sample> {
        let sample = |usages: &Vec<ProcessUsage>| {
            usages.iter().map(|usage| time(usage).as_nanos() as f64 / packets).collect()
        };
        usages.iter().map(sample).collect()
    };
    let (cpu, wall) = (nanos(|usage| usage.cpu), nanos(|usage| usage.wall));
    let mut costs = Table::new(
        "program | processor time, ns a packet | quartiles | million packets/s | wall-clock time, ns a packet | quartiles",
    );
    for (name, (cpu, wall)) in names.iter().zip(cpu.iter().zip(&wall)) {
        let rate = 1000.0 / cpu.median();
        costs.row(format_args!("{name} | {} | {rate:.1} | {}", cpu.cells(1), wall.cells(1)));
    }
    let find = |samples: &[Sample], name: &str| -> Option<Sample> {
        samples.get(names.iter().position(|found| *found == name)?).cloned()
    };
    let ratio =
        |samples: &[Sample], a: &str, b: &str| Some(find(samples, a)?.ratio_to(&find(samples, b)?).median());
    let criteria: Vec<Criterion> = [
        ratio(&cpu, SYN_FLOOD, WALK)
            .map(|ratio| Criterion::at_most("syn-flood ÷ loop with MAP_POPULATE", ratio, 1.3, "")),
        ratio(&cpu, SYN_FLOOD, READ)
            .map(|ratio| Criterion::at_most("syn-flood ÷ loop with read(2)", ratio, 1.3, "")),
        ratio(&cpu, SYN_FLOOD, TCPDUMP)
            .map(|ratio| Criterion::at_most("syn-flood ÷ tcpdump", ratio, 0.3, "")),
        find(&cpu, SEVEN).map(|seven| {
            let rate = 1000.0 / seven.median();
            Criterion::at_least("seven modules, million packets/s on one core", rate, 5.0, "")
        }),
        ratio(&wall, DEFAULT, DEFAULT_BY_TWO)
            .map(|ratio| Criterion::at_least("default modules, speed-up of --jobs 2", ratio, 1.8, "")),
        ratio(&wall, SEVEN, SEVEN_BY_TWO)
            .map(|ratio| Criterion::at_least("seven modules, speed-up of --jobs 2", ratio, 1.8, "")),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(format!(
        "{packets} packets, {} bytes, in the page cache; medians of {rounds} interleaved runs. Processor time is that in user mode and in the kernel. The seven modules are {}.\n\n{}\n{costs}",
        std::fs::metadata(capture).map_or(0, |meta| meta.len()),
        SEVEN_MODULES.join(", "),
        criterion::table(&criteria)
    ))
}

/// The programs that are installed or built here, each with its name in the table.
fn programs(capture: &Path) -> Result<Vec<(&'static str, Command)>, LabError> {
    let mut programs = Vec::new();
    if let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) {
        let limit = compile_program(&paths::root().join("lab/native/limit.c"), &compiler)?;
        let mut command = Command::new(&limit);
        command.arg(capture).arg("populate");
        programs.push((WALK, command));
        let mut command = Command::new(&limit);
        command.arg(capture);
        programs.push((LIMIT, command));
        let mut command = Command::new(limit);
        command.arg(capture).arg("read");
        programs.push((READ, command));
    }
    let mut syn_flood = weir_run(capture, 1)?;
    syn_flood.args(["-m", "syn-flood"]);
    programs.push((SYN_FLOOD, syn_flood));
    if Command::new("tcpdump").arg("--version").output().is_ok() {
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.arg("-r").arg(capture).args(["-w", "/dev/null", FILTER]);
        programs.push((TCPDUMP, tcpdump));
    }
    for (name, jobs) in [(SEVEN, 1), (SEVEN_BY_TWO, 2)] {
        let mut seven = weir_run(capture, jobs)?;
        seven.args(SEVEN_MODULES.iter().flat_map(|module| ["-m", module]));
        programs.push((name, seven));
    }
    for (name, jobs) in [(DEFAULT, 1), (DEFAULT_BY_TWO, 2)] {
        programs.push((name, weir_run(capture, jobs)?));
    }
    Ok(programs)
}

/// The command `weir run -r CAPTURE --jobs JOBS`.
pub fn weir_run(capture: &Path, jobs: usize) -> Result<Command, LabError> {
    let mut command = Command::new(paths::built_weir()?);
    command.args(["run", "--jobs", &jobs.to_string(), "-r"]).arg(capture);
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
