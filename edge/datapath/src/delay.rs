//! The time that a thread waits for a CPU, for receive threads and core threads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use weir_units::Nanos;

/// The longest line of `schedstat` in bytes: three numbers.
const LINE: usize = 64;

/// The time that a thread was ready to run but waited for a CPU, as the kernel counts it.
#[derive(Debug)]
pub struct RunDelay(Option<File>);

impl RunDelay {
    /// Opens the counter of the calling thread. Kernels without `CONFIG_SCHED_INFO` have none.
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Reads the counter from a file in the format of `schedstat`.
    pub fn from_schedstat(schedstat: Option<File>) -> Self {
        Self(schedstat)
    }

    /// The time so far; `None` if the kernel does not report it.
    pub fn total(&self) -> Option<Nanos> {
        let mut line = [0; LINE];
        let len = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        let text = std::str::from_utf8(line.get(..len)?).ok()?;
        // The fields are the time on a CPU, the time spent waiting, and the number of time slices.
        text.split_whitespace().nth(1)?.parse().ok().map(Nanos)
    }
}
