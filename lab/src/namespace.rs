//! Network namespaces: a program runs again in a new one, which is gone when the program ends.

use crate::error::{Doing, LabError};
use std::process::Command;

/// Tells the program that it is in a namespace of its own.
const INSIDE: &str = "WEIR_LAB_INSIDE";

/// Returns true if this process is in a namespace that was made for it.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The command that runs this program again with these arguments in a new network namespace. It precedes other programs of the machine, which
/// then disturb the measurement less.
pub fn inside(arguments: &[String]) -> Result<Command, LabError> {
    let can = Command::new("unshare").args(["--net", "ip", "-V"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return Err(LabError::NoNamespace);
    }
    let program = std::env::current_exe().doing("finding this program")?;
    let mut command = Command::new("unshare");
    command.args(["--net", "setsid", "--wait", "nice", "-n", "-20"]);
    command.arg(program).args(arguments).env(INSIDE, "1");
    Ok(command)
}

/// Runs this program again in a new network namespace, and returns its standard output.
pub fn said(arguments: &[String]) -> Result<String, LabError> {
    let output = inside(arguments)?.output().doing("unshare(1)")?;
    let [text, error] =
        [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
    if output.status.success() {
        return Ok(text);
    }
    Err(LabError::failed(format_args!("bench {}", arguments.join(" ")), text + &error))
}

/// Raises the priority of this process' session of a terminal. Where the kernel shares cores between sessions first (`CONFIG_SCHED_AUTOGROUP`), a
/// process precedes others only if its session does.
pub fn go_first() {
    // A kernel without autogroups needs nothing.
    _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// Makes this thread, and all that it starts from now on, precede the other programs of the machine (`SCHED_RR`). For experiments with periods of
/// some milliseconds, which leave much of the core.
pub fn go_at_once() {
    let this = std::process::id().to_string();
    // Without the right, or without chrt(1), the machine has to be quiet.
    _ = Command::new("chrt").args(["--rr", "--pid", "10", &this]).output();
}
