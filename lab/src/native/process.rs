//! Processor time of processes and threads.

use crate::error::{Context, LabError};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time of a process from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Processor time, in user mode and in the kernel.
    pub cpu: Duration,
    /// Wall-clock time from before the start until after the end.
    pub wall: Duration,
}

/// Runs a command to its end, with no input and with its output discarded. Fails if the command fails.
pub fn run_measured(command: &mut Command) -> Result<ProcessUsage, LabError> {
    let description = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let child = command.spawn().context(&description)?;
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(0);
    let mut status = 0;
    // SAFETY: all zeros is a valid value of this plain C struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: pointers to live locals; the process is a child that no other code waits for.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(LabError::failed(description, error));
        }
    }
    let wall = begin.elapsed();
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        return Err(LabError::failed(description, format!("the process ended with status {status:#x}")));
    }
    Ok(ProcessUsage { cpu: duration(usage.ru_utime) + duration(usage.ru_stime), wall })
}

/// Processor time of the calling thread so far, without the time of other programs on its core.
pub fn thread_time() -> Duration {
    // Reading this clock never fails on Linux.
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// Processor time of a process and all its threads so far, as the scheduler counts it, or `None` if there is no such process.
pub fn process_time(id: u32) -> Option<Duration> {
    let id = libc::pid_t::try_from(id).ok()?;
    let mut clock = 0;
    // SAFETY: the pointer is to a live local.
    match unsafe { libc::clock_getcpuclockid(id, &raw mut clock) } {
        0 => read(clock),
        _ => None,
    }
}

/// The time of a clock, or `None` if its process has ended.
fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    Some(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0)))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}
