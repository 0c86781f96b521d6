//! The machine under measurement: its description, and its cores.

use crate::error::{Context, LabError};
use crate::native::Compiler;
use std::process::Command;

/// The core under measurement.
pub const CORE: u16 = 1;
/// The core for senders and for other threads that are not measured.
pub const OTHER_CORE: u16 = 0;

/// Binds the calling thread, and the processes that it starts later, to a core.
pub fn bind(core: u16) -> Result<(), LabError> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(core));
    rustix::thread::sched_setaffinity(None, &set).context("binding a thread to a core")
}

/// One line about the machine: processor, cores and kernel.
pub fn name() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let values_of = |key: &str| {
        let lines = cpuinfo.lines().filter(move |line| line.starts_with(key));
        lines.filter_map(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).collect()
    };
    let (models, cores): (Vec<String>, Vec<String>) = (values_of("model name"), values_of("processor"));
    let model = models.first().map_or("unknown processor", String::as_str);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {} cores, Linux {}", cores.len(), kernel.trim())
}

/// The machine and the compilers, in lines of a Markdown list.
pub fn description() -> String {
    let mut lines = vec![format!("- {}", name())];
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
