//! The time that a thread waits for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;
use weir_units::Nanos;

/// The longest line of `schedstat`: three numbers.
const LINE: usize = 64;

/// The time that a thread was ready to run and waited for a processor, as the kernel counts it.
#[derive(Debug)]
pub struct RunDelay(Option<File>);

impl RunDelay {
    /// Of the thread that calls this. Kernels without `CONFIG_SCHED_INFO` say nothing.
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// As this file says it, which has the format of `schedstat`.
    pub fn of(schedstat: Option<File>) -> Self {
        Self(schedstat)
    }

    /// The time so far; nothing where the kernel does not say it.
    pub fn total(&self) -> Option<Nanos> {
        let mut line = [0; LINE];
        let len = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        let text = std::str::from_utf8(line.get(..len)?).ok()?;
        // Time on a processor, time waiting for one, and how often.
        text.split_whitespace().nth(1)?.parse().ok().map(Nanos)
    }
}
