//! The program `weir-lab` lists all experiments, and `bench versus` has the right exit status. Unit tests beside each
//! experiment check its criteria with good and with bad records.

use std::process::{Command, Output};
use weir_lab::figure::FIGURES;

fn weir_lab(argument: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-lab")).arg(argument).output().unwrap()
}

#[test]
fn the_list_has_each_experiment_with_its_title_and_the_mechanism_that_can_be_switched_off() {
    let output = weir_lab("list");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>());
    for figure in FIGURES {
        assert!(text.contains(figure.title) && text.contains(figure.without), "{}", figure.name);
    }
    // The figures of the papers that weir reproduces.
    for name in ["price-11", "price-12", "price-13", "price-15", "price-16", "sqosh-6", "flame-5", "flame-6"]
    {
        assert!(names.contains(&name), "{name}");
    }
    for number in 4..=6 {
        assert!(names.contains(&format!("diet-oke-{number}").as_str()), "{number}");
    }
}

#[test]
fn an_unknown_experiment_is_refused() {
    let output = weir_lab("price-99");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("price-99") && text.contains("weir-lab list"), "{text}");
}

/// Runs `bench versus` with these arguments. Returns the exit status and the output.
fn versus(arguments: &[&str]) -> (Option<i32>, String) {
    let bench = Command::new(env!("CARGO_BIN_EXE_bench")).arg("versus").args(arguments).output().unwrap();
    let text = [bench.stdout, bench.stderr].concat();
    (bench.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn versus_refuses_a_missing_earlier_program_and_its_exit_status_agrees_with_the_rows() {
    let weir = weir_lab::paths::weir();
    if !weir.is_file() {
        eprintln!("SKIPPED: {} does not exist", weir.display());
        return;
    }
    for arguments in [&["--quick"][..], &["--quick", "--old", "/nonexistent/weir"]] {
        let (status, text) = versus(arguments);
        assert!(status == Some(1) && text.contains("bench versus --old PATH"), "{status:?}: {text}");
    }
    // The earlier program is a copy of this one.
    let folder = tempfile::tempdir().unwrap();
    for name in ["weir", "bench"] {
        let program = weir.with_file_name(name);
        if program.is_file() {
            std::fs::copy(program, folder.path().join(name)).unwrap();
        }
    }
    let old = folder.path().join("weir");
    let (status, text) = versus(&["--quick", "--module", "syn-flood", "--old", old.to_str().unwrap()]);
    let row = text.lines().find(|line| line.starts_with("| syn-flood")).unwrap_or_else(|| panic!("{text}"));
    // With few rounds the times can differ; the exit status has to agree with the row.
    let is_within = row.trim_end().ends_with("yes |");
    assert_eq!(status, Some(if is_within { 0 } else { 3 }), "{text}");
}
