//! The shipped modules for today's traffic beside the tools that people use for the same. The part `modules` of the
//! benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::memory::{self, Peak};
use crate::module::append_manifest;
use crate::native::{Compiler, ProcessUsage, compile_program, run_measured};
use crate::run::weir_run;
use crate::statistics::{Action, Sample, measure_values_in_turn};
use crate::table::Table;
use crate::{applications, paths};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const FLOWS: &str = "weir run -m flows";
const SOFTFLOWD: &str = "softflowd";
const NFPCAPD: &str = "nfpcapd";
const DEFAULT: &str = "weir run, default modules";
const DNS: &str = "weir run -m dns";
const TSHARK_DNS: &str = "tshark -T fields, DNS";
const WEB: &str = "weir run -m tls -m http";
const TSHARK_WEB: &str = "tshark -T fields, TLS and HTTP";
const STREAMS: &str = "weir run, a module that takes all bytes of streams";
const PACKETS: &str = "weir run, a module that takes packets and does nothing";
const COPY: &str = "limit: a C loop that copies the same bytes";

/// A module that takes the events of streams and does nothing with them, and one that takes packets.
const TAKERS: [(&str, &str); 2] = [("weir_stream", "[tcp]\nstreams = 65536\n"), ("weir_packet", "")];

/// The packets of the capture of the Internet mix, in millions.
const MIXED_MILLIONS: f64 = 5.0;

/// The table of processor times, and the promises about them. `mixed` is the capture of the Internet mix.
pub fn tables(mixed: &Path, rounds: usize) -> Result<String, LabError> {
    let (dns, web) = (applications::dns()?, applications::web()?);
    let mut programs: Vec<(&str, Command)> = Vec::new();
    let mut weir = |name, capture: &Path, modules: &[&str]| -> Result<(), LabError> {
        let mut command = weir_run(capture, 1)?;
        command.args(modules.iter().flat_map(|module| ["-m", module]));
        programs.push((name, command));
        Ok(())
    };
    weir(FLOWS, mixed, &["flows"])?;
    weir(DEFAULT, mixed, &[])?;
    weir(DNS, &dns, &["dns"])?;
    weir(WEB, &web, &["tls", "http"])?;
    let [streams, packets] = takers()?;
    weir(STREAMS, &web, &[&streams])?;
    weir(PACKETS, &web, &[&packets])?;
    let folder = paths::scratch().join("nfcapd");
    std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    let mut rival = |name, program: &str, arguments: &[&std::ffi::OsStr]| {
        if Command::new(program).arg("-h").output().is_ok() {
            let mut command = Command::new(program);
            command.args(arguments);
            programs.push((name, command));
        }
    };
    rival(NFPCAPD, "nfpcapd", &["-r".as_ref(), mixed.as_ref(), "-l".as_ref(), folder.as_ref()]);
    rival(
        SOFTFLOWD,
        "softflowd",
        &["-r".as_ref(), mixed.as_ref(), "-m".as_ref(), "100000".as_ref(), "-d".as_ref()],
    );
    let fields = |capture: &Path, filter: &str, names: &[&str]| -> Vec<std::ffi::OsString> {
        let head = ["-r".into(), capture.into(), "-Y".into(), filter.into(), "-T".into(), "fields".into()];
        head.into_iter().chain(names.iter().flat_map(|name| ["-e".into(), (*name).into()])).collect()
    };
    let names = ["dns.id", "dns.qry.name", "dns.qry.type", "dns.flags.rcode", "dns.a", "dns.time"];
    let arguments = fields(&dns, "dns", &names);
    rival(TSHARK_DNS, "tshark", &arguments.iter().map(AsRef::as_ref).collect::<Vec<_>>());
    let names = [
        "tls.handshake.extensions_server_name",
        "tls.handshake.ciphersuite",
        "http.request.method",
        "http.host",
        "http.request.uri",
        "http.response.code",
        "http.user_agent",
    ];
    let arguments = fields(&web, "http or tls.handshake", &names);
    rival(TSHARK_WEB, "tshark", &arguments.iter().map(AsRef::as_ref).collect::<Vec<_>>());

    let mut names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let mut actions: Vec<Action<'_, ProcessUsage>> = Vec::new();
    for (_, command) in &mut programs {
        actions.push(Box::new(move || run_measured(command)));
    }
    if let Some(compiler) = Compiler::clang().or_else(Compiler::gcc) {
        let limit = compile_program(&paths::root().join("lab/native/limit.c"), &compiler)?;
        let mut command = Command::new(limit);
        command.arg(&web).arg("copy");
        names.push(COPY);
        actions.push(Box::new(move || time_of_copy(&mut command)));
    }
    let usages = measure_values_in_turn(rounds, &mut actions)?;
    let seconds: Vec<Sample> =
        usages.iter().map(|usages| usages.iter().map(|usage| usage.cpu.as_secs_f64()).collect()).collect();
    let mut costs = Table::new("program | processor time, s | quartiles");
    for (name, seconds) in names.iter().zip(&seconds) {
        costs.row(format_args!("{name} | {}", seconds.cells(2)));
    }
    let find = |name: &str| seconds.get(names.iter().position(|found| *found == name)?);
    let ratio = |a: &str, b: &str| Some(find(a)?.ratio_to(find(b)?).median());
    let flows = [ratio(FLOWS, NFPCAPD), ratio(FLOWS, SOFTFLOWD)].into_iter().flatten().reduce(f64::max);
    let median = |name: &str| find(name).map(Sample::median);
    let delivery = median(STREAMS).zip(median(PACKETS)).map(|(streams, packets)| streams - packets);
    let Peak { all: open, .. } = memory::peak(&mut weir_run(&applications::open_connections()?, 1)?)?;
    let criteria: Vec<Criterion> = [
        flows.map(|ratio| Criterion::at_most("flows ÷ the faster of nfpcapd and softflowd", ratio, 0.5, "")),
        ratio(DNS, TSHARK_DNS).map(|ratio| Criterion::at_most("dns ÷ tshark", ratio, 0.1, "")),
        ratio(WEB, TSHARK_WEB).map(|ratio| Criterion::at_most("tls and http ÷ tshark", ratio, 0.1, "")),
        find(DEFAULT).map(|seconds| {
            let rate = MIXED_MILLIONS / seconds.median();
            Criterion::at_least("default modules, million packets/s on one core", rate, 3.0, "")
        }),
        delivery.zip(median(COPY)).map(|(delivery, copy)| {
            let ratio = delivery / copy;
            Criterion::at_most("bytes of streams in order ÷ one copy of the same bytes", ratio, 1.5, "")
        }),
        Some(Criterion::at_most(
            "default modules, resident memory with a million open connections, MB",
            open,
            memory::RESIDENT_MEGABYTES_MAX,
            "",
        )),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(format!(
        "Processor time in user mode and in the kernel of whole runs, with the first rows of each stream as tables; medians of {rounds} interleaved runs. The captures are generated: 5 million packets of the Internet mix in 10,000 flows; 20,000 connections that carry HTTP and TLS; a million DNS messages; a million connections that are open at the end. Bytes of streams: the time of a module that takes all of them, less that of a module that takes packets, beside one copy; all on the web capture. Tools that are not installed are left out.\n\n{}\n{costs}",
        criterion::table(&criteria)
    ))
}

/// Runs the program that copies payload, and reads the processor time of the copies from its output.
fn time_of_copy(command: &mut Command) -> Result<ProcessUsage, LabError> {
    let output = command.output().context(COPY)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let nanos = printed.split(' ').next().and_then(|nanos| nanos.parse().ok());
    let nanos = nanos.ok_or_else(|| LabError::failed(COPY, format!("the output is `{printed}`")))?;
    let cpu = Duration::from_nanos(nanos);
    Ok(ProcessUsage { cpu, wall: cpu })
}

/// The paths of the modules of [`TAKERS`], which are written here.
fn takers() -> Result<[String; 2], LabError> {
    let mut paths = [String::new(), String::new()];
    for (path, (entry, table)) in paths.iter_mut().zip(TAKERS) {
        let name = entry.replace('_', "-");
        let text = format!(
            "(module (memory (export \"memory\") 1) (func (export \"{entry}\") (param i32) (result i32) (i32.const 0)))"
        );
        let mut wasm = wat::parse_str(text).context(&name)?;
        let manifest = format!(
            "name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'Apache-2.0 OR MIT'\nsummary = 'takes events'\nmemory = '32 MiB'\n{table}"
        );
        append_manifest(&mut wasm, &manifest);
        let file: PathBuf = paths::scratch().join(format!("{name}.wasm"));
        std::fs::write(&file, wasm).map_err(LabError::file(&file))?;
        *path = file.display().to_string();
    }
    Ok(paths)
}
