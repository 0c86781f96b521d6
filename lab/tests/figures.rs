//! The program of the experiments: it knows them all. What each must show is tested beside it, with records that are good and records that are not.

use std::process::{Command, Output};
use weir_lab::figure::FIGURES;

fn weir_lab(argument: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-lab")).arg(argument).output().unwrap()
}

#[test]
fn the_list_has_each_experiment_with_what_it_is_about_and_what_can_be_switched_off() {
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
    // Those of the papers that weir has something to show for.
    for name in ["price-11", "price-12", "price-13", "price-15", "price-16", "sqosh-6", "flame-5"] {
        assert!(names.contains(&name), "{name}");
    }
    for number in 4..=6 {
        assert!(names.contains(&format!("diet-oke-{number}").as_str()), "{number}");
    }
}

#[test]
fn what_is_no_experiment_is_refused() {
    let output = weir_lab("price-99");
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("price-99") && text.contains("weir-lab list"), "{text}");
}

/// `bench versus` with these arguments: its exit status, and its output.
fn versus(arguments: &[&str]) -> (Option<i32>, String) {
    let bench = Command::new(env!("CARGO_BIN_EXE_bench")).arg("versus").args(arguments).output().unwrap();
    let said = [bench.stdout, bench.stderr].concat();
    (bench.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn an_earlier_program_that_is_not_there_is_refused_and_the_exit_status_says_what_the_rows_say() {
    let weir = weir_lab::place::weir();
    if !weir.is_file() {
        eprintln!("SKIPPED: there is no {}", weir.display());
        return;
    }
    for arguments in [&["--quick"][..], &["--quick", "--old", "/nonexistent/weir"]] {
        let (status, said) = versus(arguments);
        assert!(status == Some(1) && said.contains("bench versus --old PATH"), "{status:?}: {said}");
    }
    // A copy of the same programs.
    let folder = tempfile::tempdir().unwrap();
    for name in ["weir", "bench"] {
        let program = weir.with_file_name(name);
        if program.is_file() {
            std::fs::copy(program, folder.path().join(name)).unwrap();
        }
    }
    let old = folder.path().join("weir");
    let (status, said) = versus(&["--quick", "--module", "syn-flood", "--old", old.to_str().unwrap()]);
    let row = said.lines().find(|line| line.starts_with("| syn-flood")).unwrap_or_else(|| panic!("{said}"));
    // The times of few rounds may differ; the exit status says what the row says.
    let is_within = row.trim_end().ends_with("yes |");
    assert_eq!(status, Some(if is_within { 0 } else { 3 }), "{said}");
}
