//! The shipped modules for today's traffic beside the tools that people use for the same. The part `modules` of the
//! benchmark.

use crate::criterion::{self, Criterion};
use crate::error::LabError;
use crate::native::{ProcessUsage, run_measured};
use crate::run::weir_run;
use crate::statistics::{Action, Sample, measure_values_in_turn};
use crate::table::Table;
use crate::{applications, paths};
use std::path::Path;
use std::process::Command;

const FLOWS: &str = "weir run -m flows";
const SOFTFLOWD: &str = "softflowd";
const NFPCAPD: &str = "nfpcapd";
const DEFAULT: &str = "weir run, default modules";
const DNS: &str = "weir run -m dns";
const TSHARK_DNS: &str = "tshark -T fields, DNS";
const WEB: &str = "weir run -m tls -m http";
const TSHARK_WEB: &str = "tshark -T fields, TLS and HTTP";

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

    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    let mut actions: Vec<Action<'_, ProcessUsage>> = Vec::new();
    for (_, command) in &mut programs {
        actions.push(Box::new(move || run_measured(command)));
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
    let criteria: Vec<Criterion> = [
        flows.map(|ratio| Criterion::at_most("flows ÷ the faster of nfpcapd and softflowd", ratio, 0.5, "")),
        ratio(DNS, TSHARK_DNS).map(|ratio| Criterion::at_most("dns ÷ tshark", ratio, 0.1, "")),
        ratio(WEB, TSHARK_WEB).map(|ratio| Criterion::at_most("tls and http ÷ tshark", ratio, 0.1, "")),
        find(DEFAULT).map(|seconds| {
            let rate = MIXED_MILLIONS / seconds.median();
            Criterion::at_least("default modules, million packets/s on one core", rate, 3.0, "")
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(format!(
        "Processor time in user mode and in the kernel of whole runs, with the first rows of each stream as tables; medians of {rounds} interleaved runs. The captures are generated: 5 million packets of the Internet mix in 10,000 flows; 20,000 connections that carry HTTP and TLS; a million DNS messages. Tools that are not installed are left out.\n\n{}\n{costs}",
        criterion::table(&criteria)
    ))
}
