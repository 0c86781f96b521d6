//! Tests of the code in which `weir run` runs modules: the demand for verified code, faults, and the names for perf.

use crate::run::process::{Ended, module};
use crate::run::{root, run};
use std::fs;
use std::io::Write;
use std::path::Path;

const CAPTURE: &str = "lab/sample/sample.pcap";

/// Runs `weir run` on the sample capture.
fn run_on_sample(arguments: &[&str]) -> Ended {
    let capture = root().join(CAPTURE);
    run(["run", "-q", "-r", capture.to_str().unwrap()].iter().chain(arguments))
}

/// False, with a message, if this machine has no code of LLVM.
fn has_llvm() -> bool {
    let document = run(["compile", "rtt", "--json"]).succeeds().json();
    let reason = document["reason"].as_str().unwrap_or_default();
    if !reason.is_empty() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {reason}");
    }
    reason.is_empty()
}

fn profile(folder: &Path, text: &str) -> String {
    let path = folder.join("profile.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_profile_can_demand_verified_code() {
    let folder = tempfile::tempdir().unwrap();
    let only = profile(folder.path(), "verified = 'only'");
    // Without LLVM the module is refused, with the reason.
    run_on_sample(&["-m", "rtt", "--profile", &only, "--back-end", "cranelift"])
        .fails(1, &["rtt: the profile demands verified machine code", "it runs without LLVM"]);
    if !has_llvm() {
        return;
    }
    let plain = run_on_sample(&["-m", "rtt", "--json", "--back-end", "cranelift"]).succeeds().json();
    let verified =
        run_on_sample(&["-m", "rtt", "--json", "--profile", &only, "--no-cache"]).succeeds().json();
    let [plain, verified] = [module(&plain, "rtt"), module(&verified, "rtt")];
    assert_eq!(
        (plain["back_end"].as_str(), verified["back_end"].as_str()),
        (Some("Cranelift"), Some("LLVM"))
    );
    assert_eq!(plain["streams"], verified["streams"]);
}

#[test]
fn a_fault_in_code_of_llvm_has_its_function_and_line() {
    if !has_llvm() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let little = profile(folder.path(), "packet = '10us'\nper-byte = '0ns'\ntiers = ['metered']");
    let spin = root().join("guest/modules/spin/spin.wasm");
    let ended = run_on_sample(&["-m", spin.to_str().unwrap(), "--profile", &little, "--back-end", "llvm"]);
    let fault = ended.stderr.lines().find(|line| line.contains("packet 1: ")).unwrap_or_default();
    assert!(fault.contains("more fuel than its limit in `burn` (spin.c:"), "{}", ended.stderr);
    let line: usize =
        fault.rsplit(':').next().and_then(|rest| rest.trim_end_matches(')').parse().ok()).unwrap();
    let source = fs::read_to_string(spin.with_extension("c")).unwrap();
    let burn = source.lines().position(|text| text.contains("void burn(")).unwrap() + 1;
    assert!((burn..burn + 10).contains(&line), "{fault}");
}

#[test]
fn perf_gets_the_names_of_functions_in_all_back_ends() {
    let ended = run_on_sample(&["-m", "rtt", "--back-end", "llvm", "--perf-map"]).succeeds();
    let path = ended.stderr.lines().find_map(|line| line.strip_prefix("weir: names of functions for perf: "));
    let path = Path::new(path.unwrap_or_else(|| panic!("{}", ended.stderr)));
    let text = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    let mut functions: Vec<(u64, u64, &str)> = Vec::new();
    for line in text.lines() {
        let [start, len, name] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
        let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        functions.push((number(start), number(len), name));
    }
    functions.sort_unstable();
    assert!(functions.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "they overlap: {text}");
    let named = |name: &str| functions.iter().any(|(_, _, found)| *found == name);
    assert!(named("rtt::weir_packet [Cranelift]"), "{text}");
    assert!(!has_llvm() || named("rtt::weir_packet [LLVM]"), "{text}");
}
