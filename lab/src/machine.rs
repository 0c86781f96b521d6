//! On what was measured.

use crate::native::Compiler;
use std::process::Command;

/// The machine and the compilers, in lines of a Markdown list.
pub fn facts() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut lines = vec![format!("- {model}, {cores} cores, Linux {}", kernel.trim())];
    for compiler in [Compiler::clang(), Compiler::gcc()].into_iter().flatten() {
        lines.push(format!("- {}", compiler.version));
    }
    let others = [("rustc", "--version"), ("tcpdump", "--version"), ("valgrind", "--version")];
    lines.extend(others.iter().filter_map(|(program, flag)| {
        let output = Command::new(program).arg(flag).output().ok()?;
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Some(format!("- {}", text.lines().next()?.trim()))
    }));
    lines.join("\n") + "\n"
}
