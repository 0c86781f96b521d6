//! Detection of pauses of cores, so that disturbed measurements are repeated. A hypervisor or the firmware sometimes takes a
//! core away for some milliseconds; losses of packets in such a pause are not caused by weir.

use crate::error::{Context, LabError};
use crate::machine::bind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interval of checks, each of which takes some microseconds of the core.
const STEP: Duration = Duration::from_micros(500);
/// A priority above that of all programs of the experiments.
const PRIORITY: &str = "50";
/// The longest pause that does not disturb a measurement. Shorter pauses occur all the time.
pub const PAUSE_MAX: Duration = Duration::from_millis(1);

/// Threads that wake up on their cores twice per millisecond, above all other priorities there (`SCHED_FIFO`). A late
/// wakeup means that the core did not run. The threads see all pauses of more than 1.5 ms, and some shorter ones.
/// Dropping this value ends the threads.
#[derive(Debug)]
pub struct PauseWatcher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The longest pause since it was last read, in ns.
    longest: AtomicU64,
    is_over: AtomicBool,
}

impl PauseWatcher {
    /// Begins to watch these cores.
    pub fn start(cores: &[u16]) -> Result<Self, LabError> {
        let mut watch = Self { shared: Arc::default(), threads: Vec::new() };
        for &core in cores {
            let shared = Arc::clone(&watch.shared);
            let thread = std::thread::Builder::new()
                .name("watch".to_owned())
                .spawn(move || watch_core(core, &shared))
                .context("starting a watch")?;
            watch.threads.push(thread);
        }
        Ok(watch)
    }

    /// Returns the longest pause of any watched core since the last call.
    pub fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.shared.longest.swap(0, Ordering::AcqRel))
    }

    /// Repeats a measurement until `wanted` results are undisturbed, at most `tries_max` times. Returns the `wanted` least
    /// disturbed results, and the number of results left out.
    pub fn undisturbed<T, E>(
        &self,
        wanted: usize,
        tries_max: usize,
        mut measure: impl FnMut() -> Result<T, E>,
    ) -> Result<(Vec<T>, usize), E> {
        let mut results = Vec::new();
        let is_quiet = |(pause, _): &&(Duration, T)| *pause <= PAUSE_MAX;
        while results.iter().filter(is_quiet).count() < wanted && results.len() < tries_max {
            self.take_longest();
            let result = measure()?;
            results.push((self.take_longest(), result));
        }
        let left_out = results.len().saturating_sub(wanted);
        results.sort_by_key(|(pause, _)| *pause);
        Ok((results.into_iter().take(wanted).map(|(_, result)| result).collect(), left_out))
    }
}

impl Drop for PauseWatcher {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// The work of one thread: measures how late its wakeups are.
fn watch_core(core: u16, shared: &Shared) {
    // If binding or the priority fails, delays by other programs count as pauses, too.
    _ = bind(core);
    if let Some(thread) =
        std::fs::read_link("/proc/thread-self").ok().as_deref().and_then(|path| path.file_name())
    {
        _ = Command::new("chrt").args(["--fifo", "--pid", PRIORITY]).arg(thread).output();
    }
    while !shared.is_over.load(Ordering::Acquire) {
        let begin = Instant::now();
        std::thread::sleep(STEP);
        let late = begin.elapsed().saturating_sub(STEP);
        shared.longest.fetch_max(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_measurements_are_repeated_up_to_a_limit() {
        let watch = PauseWatcher { shared: Arc::default(), threads: Vec::new() };
        let pause = |pause: Duration| {
            watch.shared.longest.store(u64::try_from(pause.as_nanos()).unwrap(), Ordering::Release);
        };
        let mut times = 0;
        let every_other = watch.undisturbed(3, 10, || {
            times += 1;
            pause(if times % 2 == 0 { Duration::ZERO } else { PAUSE_MAX * 2 });
            Ok::<_, ()>(times)
        });
        assert_eq!(every_other, Ok((vec![2, 4, 6], 3)));
        let mut times = 0;
        let never = watch.undisturbed(3, 10, || {
            times += 1;
            pause(PAUSE_MAX * (20 - times));
            Ok::<_, ()>(times)
        });
        assert_eq!(never, Ok((vec![10, 9, 8], 7)));
        assert_eq!(watch.undisturbed(1, 2, || Err::<(), _>("gone")), Err("gone"));
    }

    #[test]
    fn a_core_is_watched() {
        let watch = PauseWatcher::start(&[0]).unwrap();
        while watch.take_longest() == Duration::ZERO {
            std::thread::sleep(STEP);
        }
    }
}
