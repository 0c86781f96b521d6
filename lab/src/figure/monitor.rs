//! A thread that receives packets and runs modules on them, bound to a core of its own, like each thread of `weir run -i`.

use super::network::Traffic;
use crate::error::{Doing, LabError, Saying};
use crate::machine::{CORE, bind};
use crate::module::Module;
use crate::native::thread_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_datapath::seat::BatchDriver;
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_sandbox::{Cycles, Engine, EngineOptions, Instance, LoadedModule};
use weir_units::{Bytes, Nanos};
use {weir_admission::Admitted, weir_session::Records};

/// A buffer for some milliseconds of packets, while the thread is kept from its core.
pub const BUFFER: Bytes = Bytes(4 << 20);
/// After the sender has stopped, a silence of this length ends a trial.
const DRAINED: Duration = Duration::from_millis(60);
/// One of this many packets may wait at the end.
const LATE: u64 = 20;
/// A waiting thread checks for its end in this interval.
const WAIT: Nanos = Nanos(20_000_000);

/// A way of receiving packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorReceiving {
    pub kind: SocketKind,
    pub wakeup: Wakeup,
    /// Room for packets that wait, or are being processed.
    pub buffer: Bytes,
}

/// The times at which a thread asks for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// When the kernel wakes it.
    Woken,
    /// All the time.
    Always,
    /// In this interval, like a thread that shares its core.
    Every(Duration),
}

/// The calls of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// One for up to 64 packets, as usual.
    Batches,
    /// One for each packet.
    Single,
}

/// A running thread, ended when this is dropped.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Duration, LabError>>>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: AtomicU64,
    cycles: AtomicU64,
    /// Of all blocks, the least cycles a packet.
    least: AtomicU64,
    is_over: AtomicBool,
    is_ready: AtomicBool,
}

/// The result of some traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived in all modules.
    pub seen: u64,
    /// Packets sent each second.
    pub rate: f64,
    /// Packets that still waited when the last one was sent.
    pub late: u64,
    /// Cycles in modules, and in calling them.
    pub cycles: u64,
    /// Of all blocks of packets, the least cycles in modules for one.
    pub least: u64,
}

impl Trial {
    /// Returns true if all packets arrived, and would have arrived in longer traffic. A thread that is too slow has ever more packets waiting, and loses
    /// packets when its buffer is full.
    pub fn is_loss_free(&self) -> bool {
        self.sent > 0 && self.seen == self.sent && self.late <= self.sent / LATE
    }

    /// Cycles in modules for each packet.
    pub fn cycles_a_packet(&self) -> f64 {
        self.cycles as f64 / self.seen.max(1) as f64
    }
}

impl Monitor {
    /// Begins to receive packets from an interface, for these modules.
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
            // Instances of the same module share a program.
            let program = match last.take() {
                Some((bytes, program)) if bytes == module => program,
                _ => engine.load(Admitted::admit(module.clone(), &[]).doing("a module")?)?,
            };
            drivers.push(driver(&engine, &program, &live)?);
            last = Some((module, program));
        }
        Self::spawn(move |shared| {
            // The engine ends calls that take too long. It must live as long as its instances.
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
            .doing("starting a monitor")?;
        let monitor = Self { shared, thread: Some(thread) };
        while !monitor.shared.is_ready.load(Ordering::Acquire) && !monitor.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(monitor)
    }

    /// Ends the thread. Returns the packets that it has seen, and its processor time.
    pub fn finish(mut self) -> Result<(u64, Duration), LabError> {
        self.shared.is_over.store(true, Ordering::Release);
        let gone = || LabError::Nothing("the monitor panicked".to_owned());
        let cpu = self.thread.take().ok_or_else(gone)?.join().map_err(|_| gone())??;
        Ok((self.shared.seen.load(Ordering::Acquire), cpu))
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends for some time.
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
                .unwrap_or_else(|| LabError::Nothing("the monitor ended".to_owned())));
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

/// Receives until the end. Returns the processor time, without opening and closing the interface.
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
            driver.face(&block).saying("a block of packets")?;
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
    BatchDriver::new(Instance::start(engine, program)?, live.descriptors(), None).saying("a module's driver")
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

/// The largest good value up to `most`, to within `most / 2^steps`; none where 0 is not good. A good value may be found bad by mistake, when other
/// programs take the core away. So the search goes on upwards from the found value, in steps that double while they succeed, and else halve.
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
        // Whichever look it was.
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
