//! Other programs that tests compare with, which may not be installed. A test that skips for this reason prints it.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Returns whether a program is installed.
pub fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
    }
    found
}

/// Returns a Python interpreter that can import these modules, preferably the laboratory's.
pub fn python(modules: &[&str]) -> Option<PathBuf> {
    let of_the_lab = super::root().join("target/python/bin/python3");
    let can = |python: &PathBuf| {
        let import = format!("import {}", modules.join(", "));
        Command::new(python).args(["-c", &import]).output().is_ok_and(|output| output.status.success())
    };
    let found = [of_the_lab, "python3".into()].into_iter().find(can);
    if found.is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no Python with {} (lab/setup --tests makes one)",
            modules.join(", ")
        );
    }
    found
}

/// Runs a program that must succeed, and returns its output.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}
