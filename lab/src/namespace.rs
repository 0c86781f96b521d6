//! Network namespaces. A measurement with traffic runs this program again in a new namespace, which ends with that
//! process.

use crate::error::{Context, LabError};
use std::process::Command;

/// The environment variable that marks a process in a namespace of its own.
const MARK: &str = "WEIR_LAB_INSIDE";

/// Returns true if this process is in a namespace that was made for it.
pub fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The command that runs this program again with these arguments in a new network namespace. It has a high priority, so
/// that other programs disturb the measurement less.
pub fn command_inside(arguments: &[String]) -> Result<Command, LabError> {
    let attempt = Command::new("unshare").args(["--net", "ip", "-V"]).output();
    if !attempt.is_ok_and(|output| output.status.success()) {
        return Err(LabError::NoNamespace);
    }
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["--net", "setsid", "--wait", "nice", "-n", "-20"]);
    command.arg(program).args(arguments).env(MARK, "1");
    Ok(command)
}

/// Runs this program again in a new network namespace, and returns its standard output.
pub fn output_of(arguments: &[String]) -> Result<String, LabError> {
    let output = command_inside(arguments)?.output().context("unshare(1)")?;
    let [text, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() {
        return Ok(text);
    }
    Err(LabError::failed(format_args!("bench {}", arguments.join(" ")), text + &error))
}

/// Raises the priority of this process' terminal session. With `CONFIG_SCHED_AUTOGROUP` the kernel shares cores between
/// sessions first, so the priority of the process alone does not suffice.
pub fn raise_priority() {
    // A kernel without autogroups has no such file, and the priority of the process suffices.
    _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// Gives this process, and the processes that it starts later, real-time priority (`SCHED_RR`). This priority suits
/// experiments whose scheduling periods last some milliseconds and whose load leaves much of the core idle.
pub fn use_real_time_priority() {
    let this = std::process::id().to_string();
    // If this fails, for lack of the right or of chrt(1), the experiment needs an otherwise idle machine.
    _ = Command::new("chrt").args(["--rr", "--pid", "10", &this]).output();
}
