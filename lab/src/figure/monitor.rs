//! A monitor: a thread on its own core that receives packets and runs modules on them, like a thread of `weir run -i`.
//! Several experiments measure it, and the part `live` of the benchmark.

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

/// The usual buffer size, for the packets of some milliseconds in which the thread does not get its core.
pub const BUFFER: Bytes = Bytes(4 << 20);
/// The time without a packet, after the sender has stopped, that ends a trial.
const DRAIN_TIME: Duration = Duration::from_millis(60);
/// A trial counts as free of loss if at most one packet in this number is still queued when the last one is sent.
const QUEUED_ONE_IN: u64 = 20;
/// The longest wait for packets. After each wait the thread checks whether it is to end.
const WAIT_MAX: Nanos = Nanos(20_000_000);

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
    /// When the kernel wakes the thread.
    Woken,
    /// All the time.
    Always,
    /// At this interval, like a thread that shares its core.
    Every(Duration),
}

/// The number of packets per call of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketsPerCall {
    /// Up to 64, as in `weir run`.
    Batch,
    /// One packet.
    One,
}

/// A running monitor. Dropping it ends its thread.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Duration, LabError>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Packets that all modules have processed.
    processed: AtomicU64,
    /// Cycles in modules and in the framework.
    cycles: AtomicU64,
    /// The least cycles per packet of any block.
    cycles_min: AtomicU64,
    is_over: AtomicBool,
    is_ready: AtomicBool,
}

/// The counts of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    pub sent: u64,
    /// Packets that all modules have processed.
    pub processed: u64,
    /// The achieved rate of the sender, in packets/s.
    pub rate: f64,
    /// Packets that were still queued when the last one was sent.
    pub queued: u64,
    /// Cycles in modules and in the framework.
    pub cycles: u64,
    /// The least cycles per packet of any block.
    pub cycles_min: u64,
}

impl Trial {
    /// Returns true if all packets were processed, and few of them were queued at the end. In a longer trial of a thread
    /// that is too slow, the queue would grow until packets are lost.
    pub fn is_loss_free(&self) -> bool {
        self.sent > 0 && self.processed == self.sent && self.queued <= self.sent / QUEUED_ONE_IN
    }

    /// Cycles per packet in modules and in the framework.
    pub fn cycles_a_packet(&self) -> f64 {
        self.cycles as f64 / self.processed.max(1) as f64
    }
}

impl Monitor {
    /// Starts to receive packets from an interface for these modules.
    pub fn start(
        interface: &str,
        receiving: MonitorReceiving,
        modules: &[Vec<u8>],
        packets_per_call: PacketsPerCall,
    ) -> Result<Self, LabError> {
        let engine = Engine::new(EngineOptions::default(), None)?;
        let live = open_incoming(interface, receiving.kind, receiving.buffer)?;
        let mut drivers = Vec::new();
        let mut last: Option<(&[u8], LoadedModule)> = None;
        for module in modules {
            // Instances of the same module share compiled code.
            let program = match last.take() {
                Some((bytes, program)) if bytes == module => program,
                _ => engine.load(Admitted::admit(module.clone(), &[]).context("a module")?)?,
            };
            drivers.push(new_driver(&engine, &program, &live)?);
            last = Some((module, program));
        }
        Self::spawn(move |shared| {
            // The engine's watchdog must live as long as the instances.
            let _engine = engine;
            receive_and_run(live, drivers, receiving, packets_per_call, shared)
        })
    }

    fn spawn(
        work: impl FnOnce(&Shared) -> Result<Duration, LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let shared = Arc::new(Shared::default());
        let shared_with_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || {
                bind(CORE)?;
                work(&shared_with_thread)
            })
            .context("starting a monitor")?;
        let monitor = Self { shared, thread: Some(thread) };
        while !monitor.shared.is_ready.load(Ordering::Acquire) && !monitor.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(monitor)
    }

    /// Ends the thread. Returns the number of processed packets, and the thread's processor time.
    pub fn finish(mut self) -> Result<(u64, Duration), LabError> {
        self.shared.is_over.store(true, Ordering::Release);
        let panicked = || LabError::NoData("the monitor's thread panicked".to_owned());
        let cpu = self.thread.take().ok_or_else(panicked)?.join().map_err(|_| panicked())??;
        Ok((self.shared.processed.load(Ordering::Acquire), cpu))
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends packets at a rate for some time, and waits for the last ones.
    pub fn trial(&mut self, traffic: &Traffic, rate: u64, time: Duration) -> Result<Trial, LabError> {
        let counts = |this: &Self| {
            (
                traffic.sent(),
                this.shared.processed.load(Ordering::Acquire),
                this.shared.cycles.load(Ordering::Acquire),
            )
        };
        let before = counts(self);
        self.shared.cycles_min.store(u64::MAX, Ordering::Release);
        let begin = Instant::now();
        traffic.set_rate(rate);
        std::thread::sleep(time);
        traffic.set_rate(0);
        let (elapsed, end) = (begin.elapsed(), counts(self));
        let (mut last, mut last_change) = (counts(self), Instant::now());
        while last_change.elapsed() < DRAIN_TIME {
            std::thread::sleep(Duration::from_millis(2));
            let now = counts(self);
            if now != last {
                (last, last_change) = (now, Instant::now());
            }
        }
        if self.is_finished() {
            let why = self.thread.take().and_then(|thread| thread.join().ok());
            return Err(why
                .and_then(Result::err)
                .unwrap_or_else(|| LabError::NoData("the monitor's thread ended early".to_owned())));
        }
        let sent = last.0 - before.0;
        Ok(Trial {
            sent,
            processed: last.1 - before.1,
            queued: (end.0 - before.0).saturating_sub(end.1 - before.1),
            rate: sent as f64 / elapsed.as_secs_f64(),
            cycles: last.2 - before.2,
            cycles_min: self.shared.cycles_min.load(Ordering::Acquire),
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

/// The work of the thread: receives packets and runs the modules until it is to end. Returns the thread's processor time,
/// without that of opening and closing the interface.
fn receive_and_run(
    mut live: LiveSource,
    mut drivers: Vec<BatchDriver>,
    receiving: MonitorReceiving,
    packets_per_call: PacketsPerCall,
    shared: &Shared,
) -> Result<Duration, LabError> {
    let wait = if receiving.wakeup == Wakeup::Woken { WAIT_MAX } else { Nanos(0) };
    let mut records = Records::default();
    let begin_time = thread_time();
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
                match packets_per_call {
                    PacketsPerCall::Batch => _ = driver.run(&block, batch, u64::MAX),
                    PacketsPerCall::One => {
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
        shared.cycles_min.fetch_min(cycles.0 / (block.len() as u64).max(1), Ordering::AcqRel);
        shared.processed.fetch_add(block.len() as u64, Ordering::AcqRel);
    }
    Ok(thread_time().saturating_sub(begin_time))
}

/// Opens an interface for incoming packets.
pub fn open_incoming(interface: &str, kind: SocketKind, ring: Bytes) -> Result<LiveSource, LabError> {
    let direction = Direction::Incoming;
    Ok(LiveSource::open(interface, LiveOptions { kind, ring, direction, ..LiveOptions::default() })?)
}

/// A driver with a new instance of a module, for the packets of an interface.
pub fn new_driver(
    engine: &Engine,
    program: &LoadedModule,
    live: &LiveSource,
) -> Result<BatchDriver, LabError> {
    BatchDriver::new(Instance::start(engine, program)?, live.descriptors(), None)
        .debug_context("a module's driver")
}

/// The bytes of the shipped modules with these names.
pub fn shipped_modules(names: &[&str]) -> Result<Vec<Vec<u8>>, LabError> {
    names.iter().map(|name| Ok(Module::named(name)?.wasm)).collect()
}

/// The integer part of a non-negative number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of floats saturates")]
pub fn to_integer(value: f64) -> usize {
    value as usize
}

/// Searches for the largest good value up to `limit`, to within `limit / 2^steps`. Returns `None` if 0 is not good.
///
/// A good value can be judged bad by mistake, when other programs take the core away. So after bisection the search
/// continues upwards, in steps that double until one fails, and then halve.
pub fn largest_good<E>(
    limit: f64,
    steps: usize,
    mut is_good: impl FnMut(f64) -> Result<bool, E>,
) -> Result<Option<f64>, E> {
    if !is_good(0.0)? {
        return Ok(None);
    }
    let step_min = (0..steps).fold(limit, |step, _| step / 2.0);
    let (mut good, mut bad) = (0.0, limit);
    while bad - good > step_min {
        let middle = (good + bad) / 2.0;
        if is_good(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    let (mut step, mut is_rising) = (step_min, true);
    while step >= step_min {
        if good + step < limit && is_good(good + step)? {
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
    fn a_search_ends_just_below_the_largest_good_value() {
        let found = largest_good(1000.0, 10, |value| Ok::<_, ()>(value <= 333.0)).unwrap().unwrap();
        assert!((332.0..=333.0).contains(&found), "{found}");
        assert_eq!(largest_good(1000.0, 10, |_| Ok::<_, ()>(false)), Ok(None));
        assert_eq!(largest_good(1000.0, 10, |_| Err("lost")), Err("lost"));
    }

    #[test]
    fn a_search_recovers_from_a_good_value_that_was_judged_bad() {
        for wrong in 2..=10 {
            let mut calls = 0;
            let found = largest_good(1000.0, 10, |value| {
                calls += 1;
                Ok::<_, ()>(value <= 333.0 && calls != wrong)
            });
            let found = found.unwrap().unwrap();
            assert!((331.0..=333.0).contains(&found), "{wrong}: {found}");
            assert!(calls < 32, "{wrong}: {calls}");
        }
    }

    #[test]
    fn a_search_ends_if_good_values_are_often_judged_bad() {
        for every in 2..8 {
            let mut calls = 0;
            let found = largest_good(1000.0, 10, |value| {
                calls += 1;
                Ok::<_, ()>(value <= 333.0 && calls % every != 0)
            });
            assert!(found.unwrap().unwrap() <= 333.0);
            assert!(calls < 60, "{calls}");
        }
    }
}
