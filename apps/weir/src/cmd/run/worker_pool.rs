//! The threads of a run, and what each does next.
//!
//! All threads do the same: they take the job that is most behind. One job at a time for each instance, in the order of the blocks; one reader; one
//! collector. So a single thread works through a block while it is in the cache, and many threads keep each other busy; what comes out
//! is the same.

use super::collect::{CollectError, Collector};
use super::shard::Shard;
use super::source::{RunSource, SourceError};
use super::work::BlockTask;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_datapath::seat::BatchError;

/// Blocks under way at most: bounds what modules can have emitted before it is written.
const BLOCKS_MAX: usize = 8;

/// What ended a run early. The first one counts.
#[derive(Debug, thiserror::Error)]
pub enum WorkerPoolError {
    /// Reading.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Running.
    #[error(transparent)]
    Shard(#[from] BatchError),
    /// Writing.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The instance of this number had a fault, and the run is strict.
    #[error("a module had a fault")]
    Fault(usize),
}

/// Everything that takes part, before and after the run.
#[derive(Debug)]
pub struct WorkerPool {
    /// Where packets come from.
    pub source: RunSource,
    /// The instances.
    pub shards: Vec<Shard>,
    /// Where results go.
    pub collector: Collector,
}

struct State {
    source: Option<Box<RunSource>>,
    source_ended: bool,
    source_blocked: bool,
    shards: Vec<Option<Box<Shard>>>,
    /// For each instance the number of the work that it needs next.
    next: Vec<u64>,
    collector: Option<Box<Collector>>,
    works: VecDeque<Arc<BlockTask>>,
    /// Number of the first of `works`.
    first: u64,
    error: Option<WorkerPoolError>,
    /// The first fault of an instance ends the run.
    is_strict: bool,
    /// Ends reading.
    interrupted: Arc<AtomicBool>,
    panicked: bool,
}

enum Job {
    Read(Box<RunSource>),
    Process(usize, Box<Shard>, Arc<BlockTask>),
    Collect(Box<Collector>, Arc<BlockTask>),
}

impl WorkerPool {
    /// Runs on so many threads until the source ends or fails, or, where the run is strict, an instance has a fault. Results are collected either way.
    pub fn run(mut self, jobs: usize, is_strict: bool) -> (Self, Result<(), WorkerPoolError>) {
        let faulty = self.shards.iter().position(|shard| is_strict && !shard.troubles.is_empty());
        if faulty.is_some() {
            self.source.stop();
        }
        let interrupted = self.source.interrupted();
        let state = Mutex::new(State {
            source: Some(Box::new(self.source)),
            source_ended: false,
            source_blocked: false,
            next: vec![0; self.shards.len()],
            shards: self.shards.into_iter().map(|shard| Some(Box::new(shard))).collect(),
            collector: Some(Box::new(self.collector)),
            works: VecDeque::new(),
            first: 0,
            error: faulty.map(WorkerPoolError::Fault),
            is_strict,
            interrupted,
            panicked: false,
        });
        let wake = Condvar::new();
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                // Where the system gives no more threads, fewer do the same.
                if std::thread::Builder::new().spawn_scoped(scope, || work(&state, &wake)).is_err() {
                    break;
                }
            }
            work(&state, &wake);
        });
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let shards = state.shards.into_iter().flatten().map(|shard| *shard).collect();
        let (Some(source), Some(collector)) = (state.source, state.collector) else {
            unreachable!("a thread that panicked took its job along, and its panic ends the scope");
        };
        (Self { source: *source, shards, collector: *collector }, state.error.map_or(Ok(()), Err))
    }
}

/// What each thread does.
fn work(state: &Mutex<State>, wake: &Condvar) {
    let on_panic = OnPanic { state, wake };
    let mut guard = lock(state);
    loop {
        if guard.panicked || guard.is_finished() {
            break;
        }
        let Some(job) = guard.choose() else {
            guard = wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(guard);
        let done = job.perform();
        guard = lock(state);
        guard.put_back(done);
        wake.notify_all();
    }
    drop(guard);
    wake.notify_all();
    std::mem::forget(on_panic);
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the others when a thread panics: they would wait for its job for ever.
struct OnPanic<'a> {
    state: &'a Mutex<State>,
    wake: &'a Condvar,
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        lock(self.state).panicked = true;
        self.wake.notify_all();
    }
}

enum Done {
    Read(Box<RunSource>, Option<Arc<BlockTask>>, Read),
    Process(usize, Box<Shard>, Result<(), BatchError>),
    Collect(Box<Collector>, Result<(), CollectError>),
}

/// How a read ended.
enum Read {
    More,
    Blocked,
    Ended(Result<(), SourceError>),
}

impl Job {
    fn perform(self) -> Done {
        match self {
            Self::Read(mut source) => match source.next() {
                Ok(super::source::SourceNext::Work(work)) => Done::Read(source, Some(work), Read::More),
                Ok(super::source::SourceNext::Nothing) => Done::Read(source, None, Read::More),
                Ok(super::source::SourceNext::Full) => Done::Read(source, None, Read::Blocked),
                Ok(super::source::SourceNext::End) => {
                    let last = source.last();
                    Done::Read(source, Some(last), Read::Ended(Ok(())))
                }
                Err(error) => {
                    let last = source.last();
                    Done::Read(source, Some(last), Read::Ended(Err(error)))
                }
            },
            Self::Process(index, mut shard, work) => {
                let result = shard.process(&work, index);
                if result.is_err() {
                    // The others go on; the block must not wait for this one.
                    work.leave(index, super::work::InstanceOutput::default());
                }
                Done::Process(index, shard, result)
            }
            Self::Collect(mut collector, work) => {
                let result = collector.collect(&work);
                Done::Collect(collector, result)
            }
        }
    }
}

impl State {
    fn is_finished(&self) -> bool {
        self.source_ended && self.works.is_empty() && self.source.is_some() && self.collector.is_some()
    }

    /// The job that is most behind: first what frees a block, then the instance that lags most, and reading last.
    fn choose(&mut self) -> Option<Job> {
        if let Some(front) = self.works.front()
            && front.is_done()
            && let Some(collector) = self.collector.take()
        {
            return Some(Job::Collect(collector, Arc::clone(front)));
        }
        let known = self.first + self.works.len() as u64;
        let ready = (0..self.shards.len()).filter(|&i| self.shards[i].is_some() && self.next[i] < known);
        if let Some(index) = ready.min_by_key(|&i| self.next[i])
            && let Some(shard) = self.shards[index].take()
        {
            let distance = usize::try_from(self.next[index] - self.first).unwrap_or(usize::MAX);
            return Some(Job::Process(index, shard, Arc::clone(&self.works[distance])));
        }
        let may_read = !self.source_ended && !self.source_blocked && self.works.len() < BLOCKS_MAX;
        self.source.take_if(|_| may_read).map(Job::Read)
    }

    fn put_back(&mut self, done: Done) {
        let mut failed = None;
        match done {
            Done::Read(source, work, how) => {
                self.source = Some(source);
                self.works.extend(work);
                match how {
                    Read::More => {}
                    // With nothing under way nothing would unblock it.
                    Read::Blocked => self.source_blocked = !self.works.is_empty(),
                    Read::Ended(result) => {
                        self.source_ended = true;
                        failed = result.err().map(WorkerPoolError::from);
                    }
                }
            }
            Done::Process(index, shard, result) => {
                let fault =
                    (self.is_strict && !shard.troubles.is_empty()).then_some(WorkerPoolError::Fault(index));
                self.shards[index] = Some(shard);
                self.next[index] += 1;
                failed = result.err().map(WorkerPoolError::from).or(fault);
            }
            Done::Collect(collector, result) => {
                self.collector = Some(collector);
                self.works.pop_front();
                self.first += 1;
                self.source_blocked = false;
                failed = result.err().map(WorkerPoolError::from);
            }
        }
        if let Some(error) = failed {
            self.error.get_or_insert(error);
        }
        match (&self.error, &mut self.source) {
            (Some(_), Some(source)) => source.stop(),
            // It is out for reading, and may wait for a pipe's writer.
            (Some(_), None) => self.interrupted.store(true, Ordering::Relaxed),
            (None, _) => {}
        }
    }
}
