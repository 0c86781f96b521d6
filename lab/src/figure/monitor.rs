//! A thread on its own core that receives packets and runs modules on them, like a thread of `weir run -i`.

use super::network::Traffic;
use crate::error::{Context, DebugContext, LabError};
use crate::machine::{CORE, bind};
use crate::module::Module;
use crate::native::thread_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_datapath::driver::BatchDriver;
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_sandbox::{Cycles, Engine, EngineOptions, Instance, LoadedModule};
use weir_units::{Bytes, Nanos};
use {weir_admission::Admitted, weir_session::Records};

/// A buffer for the packets of some milliseconds, while the thread does not get its core.
pub const BUFFER: Bytes = Bytes(4 << 20);
/// After the sender has stopped, a trial ends when no packet has come for this long.
const DRAINED: Duration = Duration::from_millis(60);
/// The fraction of packets that may be queued at the end: one in this many.
const LATE: u64 = 20;
/// The longest wait for packets, after which a thread checks for its end.
const WAIT: Nanos = Nanos(20_000_000);

/// A way of receiving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorReceiving {
    pub kind: SocketKind,
    pub wakeup: Wakeup,
    /// Memory for packets that are queued or being processed.
    pub buffer: Bytes,
}

/// The times at which a thread asks for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// When the kernel wakes it.
    Woken,
    /// All the time.
    Always,
    /// At this interval, like a thread that shares its core.
    Every(Duration),
}

/// The number of packets per call of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Up to 64, as in a run.
    Batches,
    /// One.
    Single,
}

/// A running thread. Dropping this ends it.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Duration, LabError>>>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: AtomicU64,
    cycles: AtomicU64,
    /// The least cycles per packet of any block.
    least: AtomicU64,
    is_over: AtomicBool,
    is_ready: AtomicBool,
}

/// The counts of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    pub sent: u64,
    /// Packets that all modules have processed.
    pub seen: u64,
    pub rate: f64,
    /// Packets that were still queued when the last one was sent.
    pub late: u64,
    /// Cycles in modules and in the framework.
    pub cycles: u64,
    /// The least cycles per packet of any block.
    pub least: u64,
}

impl Trial {
    /// Returns whether all packets arrived, and would have arrived in a longer trial. The queue of a thread that is too
    /// slow grows until packets are lost.
    pub fn is_loss_free(&self) -> bool {
        self.sent > 0 && self.seen == self.sent && self.late <= self.sent / LATE
    }

    /// Cycles per packet in modules and in the framework.
    pub fn cycles_a_packet(&self) -> f64 {
        self.cycles as f64 / self.seen.max(1) as f64
    }
}

impl Monitor {
    /// Starts to receive packets from an interface for these modules.
    pub fn start(
        interface: &str,
        receiving: MonitorReceiving,
        modules: &[Vec<u8>],
        calls: Calls,
    ) -> Result<Self, LabError> {
        let engine = Engine::new(EngineOptions::default(), None)?;
        let live = open(interface, receiving.kind, receiving.buffer)?;
        let mut drivers = Vec::new();
        let mut last: Option<(&[u8], LoadedModule)> = None;
        for module in modules {
            // Instances of the same module share compiled code.
            let program = match last.take() {
                Some((bytes, program)) if bytes == module => program,
                _ => engine.load(Admitted::admit(module.clone(), &[]).context("a module")?)?,
            };
            drivers.push(driver(&engine, &program, &live)?);
            last = Some((module, program));
        }
        Self::spawn(move |shared| {
            // The engine's watchdog must live as long as the instances.
            let _engine = engine;
            work(live, drivers, receiving, calls, shared)
        })
    }

    fn spawn(
        work: impl FnOnce(&Shared) -> Result<Duration, LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || {
                bind(CORE)?;
                work(&theirs)
            })
            .context("starting a monitor")?;
        let monitor = Self { shared, thread: Some(thread) };
        while !monitor.shared.is_ready.load(Ordering::Acquire) && !monitor.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(monitor)
    }

    /// Ends the thread. Returns the number of processed packets, and its processor time.
    pub fn finish(mut self) -> Result<(u64, Duration), LabError> {
        self.shared.is_over.store(true, Ordering::Release);
        let gone = || LabError::NoData("the monitor panicked".to_owned());
        let cpu = self.thread.take().ok_or_else(gone)?.join().map_err(|_| gone())??;
        Ok((self.shared.seen.load(Ordering::Acquire), cpu))
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends at a rate for some time, and waits for the last packets.
    pub fn trial(&mut self, traffic: &Traffic, rate: u64, time: Duration) -> Result<Trial, LabError> {
        let counts = |this: &Self| {
            (
                traffic.sent(),
                this.shared.seen.load(Ordering::Acquire),
                this.shared.cycles.load(Ordering::Acquire),
            )
        };
        let before = counts(self);
        self.shared.least.store(u64::MAX, Ordering::Release);
        let begin = Instant::now();
        traffic.set(rate);
        std::thread::sleep(time);
        traffic.set(0);
        let (elapsed, end) = (begin.elapsed(), counts(self));
        let (mut last, mut since) = (counts(self), Instant::now());
        while since.elapsed() < DRAINED {
            std::thread::sleep(Duration::from_millis(2));
            let now = counts(self);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        if self.is_finished() {
            let why = self.thread.take().and_then(|thread| thread.join().ok());
            return Err(why
                .and_then(Result::err)
                .unwrap_or_else(|| LabError::NoData("the monitor ended".to_owned())));
        }
        let sent = last.0 - before.0;
        Ok(Trial {
            sent,
            seen: last.1 - before.1,
            late: (end.0 - before.0).saturating_sub(end.1 - before.1),
            rate: sent as f64 / elapsed.as_secs_f64(),
            cycles: last.2 - before.2,
            least: self.shared.least.load(Ordering::Acquire),
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Receives until the end. Returns the processor time, without that of opening and closing the interface.
fn work(
    mut live: LiveSource,
    mut drivers: Vec<BatchDriver>,
    receiving: MonitorReceiving,
    calls: Calls,
    shared: &Shared,
) -> Result<Duration, LabError> {
    let wait = if receiving.wakeup == Wakeup::Woken { WAIT } else { Nanos(0) };
    let mut records = Records::default();
    let since = thread_time();
    shared.is_ready.store(true, Ordering::Release);
    while !shared.is_over.load(Ordering::Acquire) {
        let LivePoll::Block(block) = live.next_block(wait)? else {
            if let Wakeup::Every(time) = receiving.wakeup {
                std::thread::sleep(time);
            }
            continue;
        };
        let begin = Cycles::now();
        for driver in &mut drivers {
            driver.map_block(&block).debug_context("a block of packets")?;
            driver.instance.begin_block();
        }
        for batch in 0..block.batch_count() {
            for driver in &mut drivers {
                match calls {
                    Calls::Batches => _ = driver.run(&block, batch, u64::MAX),
                    Calls::Single => {
                        for packet in 0..block.batch(batch).count {
                            driver.run(&block, batch, 1 << packet);
                        }
                    }
                }
            }
        }
        for driver in drivers.iter_mut().filter(|driver| driver.instance.has_records()) {
            records = driver.instance.take_records(records);
            records.clear();
        }
        let cycles = Cycles::now().since(begin);
        shared.cycles.fetch_add(cycles.0, Ordering::AcqRel);
        shared.least.fetch_min(cycles.0 / (block.len() as u64).max(1), Ordering::AcqRel);
        shared.seen.fetch_add(block.len() as u64, Ordering::AcqRel);
    }
    Ok(thread_time().saturating_sub(since))
}

/// Opens an interface for incoming packets.
pub fn open(interface: &str, kind: SocketKind, ring: Bytes) -> Result<LiveSource, LabError> {
    let direction = Direction::Incoming;
    Ok(LiveSource::open(interface, LiveOptions { kind, ring, direction, ..LiveOptions::default() })?)
}

/// A new instance of a program for the packets of an interface.
pub fn driver(engine: &Engine, program: &LoadedModule, live: &LiveSource) -> Result<BatchDriver, LabError> {
    BatchDriver::new(Instance::start(engine, program)?, live.descriptors(), None)
        .debug_context("a module's driver")
}

/// The shipped modules of these names.
pub fn shipped(names: &[&str]) -> Result<Vec<Vec<u8>>, LabError> {
    names.iter().map(|name| Ok(Module::named(name)?.wasm)).collect()
}

/// The integer part of a number from 0 on.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of floats saturates")]
pub fn whole(value: f64) -> usize {
    value as usize
}

/// The largest good value up to `most`, to within `most / 2^steps`, or `None` if 0 is not good. A good value may be
/// found bad by mistake, when other programs take the core away. So after bisection the search continues upwards, in
/// steps that double until one fails, and then halve.
pub fn search<E>(
    most: f64,
    steps: usize,
    mut is_good: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    if !is_good(0.0)? {
        return Ok(None);
    }
    let least = (0..steps).fold(most, |step, _| step / 2.0);
    let (mut good, mut bad) = (0.0, most);
    while bad - good > least {
        let middle = (good + bad) / 2.0;
        if is_good(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    let (mut step, mut is_rising) = (least, true);
    while step >= least {
        if good + step < most && is_good(good + step)? {
            good += step;
        } else {
            is_rising = false;
        }
        step = if is_rising { step * 2.0 } else { step / 2.0 };
    }
    Ok(Some(good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_comes_close_from_below() {
        let found = search(1000.0, 10, |value| Ok::<_, ()>(value <= 333.0)).unwrap().unwrap();
        assert!((332.0..=333.0).contains(&found), "{found}");
        assert_eq!(search(1000.0, 10, |_| Ok::<_, ()>(false)), Ok(None));
        assert_eq!(search(1000.0, 10, |_| Err("lost")), Err("lost"));
    }

    #[test]
    fn a_search_comes_back_from_what_was_bad_by_mistake() {
        for wrong in 2..=10 {
            let mut looks = 0;
            let found = search(1000.0, 10, |value| {
                looks += 1;
                Ok::<_, ()>(value <= 333.0 && looks != wrong)
            });
            let found = found.unwrap().unwrap();
            assert!((331.0..=333.0).contains(&found), "{wrong}: {found}");
            assert!(looks < 32, "{wrong}: {looks}");
        }
    }

    #[test]
    fn a_search_ends_however_often_it_is_misled() {
        for every in 2..8 {
            let mut looks = 0;
            let found = search(1000.0, 10, |value| {
                looks += 1;
                Ok::<_, ()>(value <= 333.0 && looks % every != 0)
            });
            assert!(found.unwrap().unwrap() <= 333.0);
            assert!(looks < 60, "{looks}");
        }
    }
}
