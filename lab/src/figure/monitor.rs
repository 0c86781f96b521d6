//! One thread that receives packets and runs modules on them, bound to a core of its own: what `weir run -i` does for each of its threads.

use super::FigureError;
use super::scene::{Traffic, bind};
use crate::BenchError;
use crate::module::Module;
use crate::native::thread_time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_datapath::seat::Seat;
use weir_netio::{Direction, Kind, Live, LiveNext, LiveOptions};
use weir_sandbox::{Cycles, Engine, Instance, Options, Program};
use weir_session::{Admitted, Records};
use weir_units::{Bytes, Nanos};

/// The core of the thread.
pub const CORE: u16 = 1;
/// Room for some milliseconds of packets, while the thread is kept from its core.
pub const ROOM: Bytes = Bytes(4 << 20);
/// When nothing has come for so long after the sender has stopped, nothing more comes.
const DRAINED: Duration = Duration::from_millis(60);
/// One in so many packets may wait at the end.
const LATE: u64 = 20;
/// Who waits for packets looks after its end so often.
const WAIT: Nanos = Nanos(20_000_000);

/// How packets are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// By which way of the kernel.
    pub kind: Kind,
    /// When the thread looks for them.
    pub look: Look,
    /// Room for packets that wait, or are being looked at.
    pub room: Bytes,
}

/// When somebody looks for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// When it is woken.
    Woken,
    /// All the time.
    Always,
    /// When so much time has passed, as one that shares its core does.
    Every(Duration),
}

/// How modules are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// For up to 64 packets at once, as always.
    Batches,
    /// For each packet alone.
    Single,
}

/// A thread at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<Duration, FigureError>>>,
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

/// What a time of traffic gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that arrived in all modules.
    pub seen: u64,
    /// Packets sent each second.
    pub rate: f64,
    /// Of these, packets that still waited when the last one was sent.
    pub late: u64,
    /// Cycles in modules, and in calling them.
    pub cycles: u64,
    /// Of all blocks of packets, the least cycles in modules for one.
    pub least: u64,
}

impl Trial {
    /// Whether all packets arrived, and would have if the traffic had gone on: who cannot keep up has ever more of them waiting, and loses some as soon as
    /// there is no more room.
    pub fn is_loss_free(&self) -> bool {
        self.sent > 0 && self.seen == self.sent && self.late <= self.sent / LATE
    }

    /// Cycles in modules for each packet.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn cycles_a_packet(&self) -> f64 {
        self.cycles as f64 / self.seen.max(1) as f64
    }
}

impl Monitor {
    /// Begins to take packets from an interface, for these modules.
    ///
    /// # Errors
    /// The interface cannot be opened, or a module not be run.
    pub fn start(interface: &str, way: Way, modules: &[Vec<u8>], calls: Calls) -> Result<Self, FigureError> {
        let engine = Engine::new(Options::default(), None).map_err(BenchError::from)?;
        let mut instances = Vec::new();
        let mut last: Option<(&[u8], Program)> = None;
        for (number, module) in modules.iter().enumerate() {
            // Of the same module there is one program.
            if let Some((_, program)) = last.as_ref().filter(|(bytes, _)| bytes == module) {
                instances.push(Instance::start(&engine, program).map_err(BenchError::from)?);
                continue;
            }
            let refused = |refusal| {
                FigureError::from(BenchError::Refused {
                    module: format!("module {number}"),
                    refusal: Box::new(refusal),
                })
            };
            let admitted = Admitted::admit(module.clone(), &[]).map_err(refused)?;
            let program = engine.load(admitted).map_err(BenchError::from)?;
            instances.push(Instance::start(&engine, &program).map_err(BenchError::from)?);
            last = Some((module, program));
        }
        let options = LiveOptions {
            kind: way.kind,
            ring: way.room,
            direction: Direction::Incoming,
            ..LiveOptions::default()
        };
        let live = Live::open(interface, options)?;
        let mut seats = Vec::new();
        for instance in instances {
            let seat = Seat::new(instance, live.descriptors(), None);
            seats.push(seat.map_err(|error| FigureError::Nothing(error.to_string()))?);
        }
        Self::spawn(move |shared| {
            // The engine ends calls that take too long; it must live as long as its instances.
            let _engine = engine;
            work(live, seats, way, calls, shared)
        })
    }

    fn spawn(
        work: impl FnOnce(&Shared) -> Result<Duration, FigureError> + Send + 'static,
    ) -> Result<Self, FigureError> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("monitor".to_owned())
            .spawn(move || {
                bind(CORE)?;
                work(&theirs)
            })
            .map_err(FigureError::system("starting a monitor"))?;
        let monitor = Self { shared, thread: Some(thread) };
        while !monitor.shared.is_ready.load(Ordering::Acquire) && !monitor.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(monitor)
    }

    /// Ends it. Packets that it has seen in all, and its thread's processor time.
    ///
    /// # Errors
    /// Why it has ended before.
    pub fn finish(mut self) -> Result<(u64, Duration), FigureError> {
        self.shared.is_over.store(true, Ordering::Release);
        let gone = || FigureError::Nothing("the monitor panicked".to_owned());
        let cpu = self.thread.take().ok_or_else(gone)?.join().map_err(|_| gone())??;
        Ok((self.shared.seen.load(Ordering::Acquire), cpu))
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends for so long, and says what became of it.
    ///
    /// # Errors
    /// The thread has ended.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    pub fn trial(&mut self, traffic: &Traffic, rate: u64, time: Duration) -> Result<Trial, FigureError> {
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
                .unwrap_or_else(|| FigureError::Nothing("the monitor ended".to_owned())));
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

/// Says how much processor time it took. To open the interface and to close it is no part of that.
fn work(
    mut live: Live,
    mut seats: Vec<Seat>,
    way: Way,
    calls: Calls,
    shared: &Shared,
) -> Result<Duration, FigureError> {
    let wait = if way.look == Look::Woken { WAIT } else { Nanos(0) };
    let mut records = Records::default();
    let since = thread_time();
    shared.is_ready.store(true, Ordering::Release);
    while !shared.is_over.load(Ordering::Acquire) {
        let LiveNext::Block(block) = live.next_block(wait)? else {
            if let Look::Every(time) = way.look {
                std::thread::sleep(time);
            }
            continue;
        };
        let begin = Cycles::now();
        for seat in &mut seats {
            seat.face(&block).map_err(|error| FigureError::Nothing(error.to_string()))?;
            seat.instance.begin_block();
        }
        for batch in 0..block.batch_count() {
            for seat in &mut seats {
                match calls {
                    Calls::Batches => _ = seat.run(&block, batch, u64::MAX),
                    Calls::Single => {
                        for packet in 0..block.batch(batch).count {
                            seat.run(&block, batch, 1 << packet);
                        }
                    }
                }
            }
        }
        for seat in seats.iter_mut().filter(|seat| seat.instance.has_records()) {
            records = seat.instance.take_records(records);
            records.clear();
        }
        let cycles = Cycles::now().since(begin);
        shared.cycles.fetch_add(cycles.0, Ordering::AcqRel);
        shared.least.fetch_min(cycles.0 / (block.len() as u64).max(1), Ordering::AcqRel);
        shared.seen.fetch_add(block.len() as u64, Ordering::AcqRel);
    }
    Ok(thread_time().saturating_sub(since))
}

/// The modules of these names, as they are shipped.
///
/// # Errors
/// One is not there.
pub fn shipped(names: &[&str]) -> Result<Vec<Vec<u8>>, FigureError> {
    names.iter().map(|name| Ok(Module::named(name)?.wasm)).collect()
}

/// A number from 0 on, without what is behind its point.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of floats saturates")]
pub fn whole(value: f64) -> usize {
    value as usize
}

/// The largest value up to `most` that is good, to within `most / 2^steps`; none where not even 0 is. What is good may be found bad by mistake, when
/// other programs take the core away: so from the found value on it is looked further up, in steps that double while they succeed and halve when they
/// do not.
///
/// # Errors
/// Those of `is_good`.
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
