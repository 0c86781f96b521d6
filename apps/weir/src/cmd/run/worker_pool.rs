//! The worker pool of a run: threads that read, process and collect blocks.
//!
//! All threads run the same loop: each takes the most urgent job. The packet source, the collector and each instance have at most one
//! job at a time, and each instance gets the blocks in order. A single thread therefore finishes a block while it is in the
//! cache, many threads overlap, and the results do not depend on the number of threads.

use super::block_task::BlockTask;
use super::collector::{CollectError, Collector};
use super::shard::Shard;
use super::source::{RunSource, SourceError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_datapath::driver::BatchError;

/// Maximum number of blocks in flight; it bounds the memory for results that are not written yet.
const BLOCKS_MAX: usize = 8;

/// The number of times that a thread without a job looks for one before it sleeps: some 20 µs, about the time of waking a thread
/// on a virtual machine.
const SPINS_MAX: u32 = 500;

/// Errors that end a run early; the first one is reported.
#[derive(Debug, thiserror::Error)]
pub enum WorkerPoolError {
    /// Reading packets failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A batch could not be run.
    #[error(transparent)]
    Shard(#[from] BatchError),
    /// Results could not be written.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The instance with this index had a fault in a strict run.
    #[error("a module had a fault")]
    Fault(usize),
}

/// The packet source, instances and collector of a run.
#[derive(Debug)]
pub struct WorkerPool {
    /// Supplies blocks of packets.
    pub source: RunSource,
    /// The instances of all modules.
    pub shards: Vec<Shard>,
    /// Writes the results.
    pub collector: Collector,
}

/// The shared state of the threads. A thread takes the source, a shard or the collector out of it while it performs a job with them.
struct State {
    source: Option<Box<RunSource>>,
    source_ended: bool,
    /// True while all packet blocks are in use.
    source_blocked: bool,
    shards: Vec<Option<Box<Shard>>>,
    /// The number of the next task, for each instance.
    next: Vec<u64>,
    collector: Option<Box<Collector>>,
    tasks: VecDeque<Arc<BlockTask>>,
    /// The number of the first of `tasks`.
    first: u64,
    error: Option<WorkerPoolError>,
    /// Ends the run at the first fault of an instance.
    is_strict: bool,
    /// Interrupts a blocked read.
    interrupted: Arc<AtomicBool>,
    /// The number of threads that wait for a job.
    waiting: usize,
    panicked: bool,
}

/// The kind of a job that can be done now.
#[derive(Clone, Copy, Debug)]
enum NextJob {
    Read,
    /// Processing the next task with the instance of this index.
    Process(usize),
    Collect,
}

/// A job of a thread, with the part of the state that it needs.
enum Job {
    Read(Box<RunSource>),
    Process(usize, Box<Shard>, Arc<BlockTask>),
    Collect(Box<Collector>, Arc<BlockTask>),
}

impl WorkerPool {
    /// Runs `jobs` threads until the source ends or fails, or until an instance has a fault in a strict run. Pending results are
    /// collected in each case.
    pub fn run(mut self, jobs: usize, is_strict: bool) -> (Self, Result<(), WorkerPoolError>) {
        let faulty = self.shards.iter().position(|shard| is_strict && !shard.first_faults.is_empty());
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
            tasks: VecDeque::new(),
            first: 0,
            error: faulty.map(WorkerPoolError::Fault),
            is_strict,
            interrupted,
            waiting: 0,
            panicked: false,
        });
        let (wake, changes) = (Condvar::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 1..jobs {
                // Fewer threads produce the same results.
                if std::thread::Builder::new()
                    .spawn_scoped(scope, || run_jobs(&state, &wake, &changes))
                    .is_err()
                {
                    break;
                }
            }
            run_jobs(&state, &wake, &changes);
        });
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let shards = state.shards.into_iter().flatten().map(|shard| *shard).collect();
        let (Some(source), Some(collector)) = (state.source, state.collector) else {
            unreachable!("only a panicking thread keeps a job, and its panic ends the scope");
        };
        (Self { source: *source, shards, collector: *collector }, state.error.map_or(Ok(()), Err))
    }
}

/// Takes and performs jobs until the run is finished.
fn run_jobs(state: &Mutex<State>, wake: &Condvar, changes: &AtomicU64) {
    let on_panic = OnPanic { state, wake };
    let mut guard = lock(state);
    loop {
        if guard.panicked || guard.is_finished() {
            break;
        }
        let Some(job) = guard.take_job() else {
            guard = await_change(guard, state, wake, changes);
            continue;
        };
        // Waking costs a system call, so a thread wakes one other if there is a job for it. That one does the same.
        if guard.waiting > 0 && guard.next_job().is_some() {
            wake.notify_one();
        }
        drop(guard);
        let done = job.perform();
        guard = lock(state);
        guard.put_back(done);
        changes.fetch_add(1, Ordering::Relaxed);
    }
    drop(guard);
    wake.notify_all();
    std::mem::forget(on_panic);
}

/// Waits until another thread has put back the result of a job. Jobs take microseconds, so a thread first looks for the change
/// without sleeping.
fn await_change<'a>(
    mut guard: MutexGuard<'a, State>,
    state: &'a Mutex<State>,
    wake: &Condvar,
    changes: &AtomicU64,
) -> MutexGuard<'a, State> {
    let seen = changes.load(Ordering::Relaxed);
    drop(guard);
    for _ in 0..SPINS_MAX {
        if changes.load(Ordering::Relaxed) != seen {
            return lock(state);
        }
        std::hint::spin_loop();
    }
    guard = lock(state);
    // `changes` is changed under the lock only, so no change is missed.
    if changes.load(Ordering::Relaxed) == seen && !guard.panicked {
        guard.waiting += 1;
        guard = wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        guard.waiting -= 1;
    }
    guard
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the other threads when a thread panics, as they would wait for its job forever.
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

/// The result of a job, with the part of the state to put back.
enum Done {
    Read(Box<RunSource>, Option<Arc<BlockTask>>, Read),
    Process(usize, Box<Shard>, Result<(), BatchError>),
    Collect(Box<Collector>, Result<(), CollectError>),
}

/// The outcome of a read.
enum Read {
    More,
    Blocked,
    Ended(Result<(), SourceError>),
}

impl Job {
    fn perform(self) -> Done {
        match self {
            Self::Read(mut source) => match source.next() {
                Ok(super::source::SourceNext::Task(task)) => Done::Read(source, Some(task), Read::More),
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
            Self::Process(index, mut shard, task) => {
                let result = shard.process(&task, index);
                if result.is_err() {
                    // The task must still complete for the other instances.
                    task.store_output(index, super::block_task::InstanceOutput::default());
                }
                Done::Process(index, shard, result)
            }
            Self::Collect(mut collector, task) => {
                let result = collector.collect(&task);
                Done::Collect(collector, result)
            }
        }
    }
}

impl State {
    /// Returns true once all packets are read and their results collected.
    fn is_finished(&self) -> bool {
        self.source_ended && self.tasks.is_empty() && self.source.is_some() && self.collector.is_some()
    }

    /// Returns the most urgent job: collecting, which frees a block; then the instance furthest behind; then reading.
    fn next_job(&self) -> Option<NextJob> {
        if self.collector.is_some() && self.tasks.front().is_some_and(|front| front.is_done()) {
            return Some(NextJob::Collect);
        }
        let end = self.first + self.tasks.len() as u64;
        let ready = (0..self.shards.len()).filter(|&i| self.shards[i].is_some() && self.next[i] < end);
        if let Some(index) = ready.min_by_key(|&i| self.next[i]) {
            return Some(NextJob::Process(index));
        }
        let may_read = !self.source_ended && !self.source_blocked && self.tasks.len() < BLOCKS_MAX;
        (may_read && self.source.is_some()).then_some(NextJob::Read)
    }

    /// Takes the most urgent job, with the part of the state that it needs.
    fn take_job(&mut self) -> Option<Job> {
        match self.next_job()? {
            NextJob::Collect => {
                let front = Arc::clone(self.tasks.front()?);
                self.collector.take().map(|collector| Job::Collect(collector, front))
            }
            NextJob::Process(index) => {
                let distance = usize::try_from(self.next[index] - self.first).unwrap_or(usize::MAX);
                let task = Arc::clone(self.tasks.get(distance)?);
                self.shards[index].take().map(|shard| Job::Process(index, shard, task))
            }
            NextJob::Read => self.source.take().map(Job::Read),
        }
    }

    /// Puts back the part of the state that a job needed, and handles the result of the job.
    fn put_back(&mut self, done: Done) {
        let mut failed = None;
        match done {
            Done::Read(source, task, how) => {
                self.source = Some(source);
                self.tasks.extend(task);
                match how {
                    Read::More => {}
                    // Only collecting a task unblocks the source, so it must not block without tasks.
                    Read::Blocked => self.source_blocked = !self.tasks.is_empty(),
                    Read::Ended(result) => {
                        self.source_ended = true;
                        failed = result.err().map(WorkerPoolError::from);
                    }
                }
            }
            Done::Process(index, shard, result) => {
                let fault = (self.is_strict && !shard.first_faults.is_empty())
                    .then_some(WorkerPoolError::Fault(index));
                self.shards[index] = Some(shard);
                self.next[index] += 1;
                failed = result.err().map(WorkerPoolError::from).or(fault);
            }
            Done::Collect(collector, result) => {
                self.collector = Some(collector);
                self.tasks.pop_front();
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
            // Another thread has the source, and may be waiting for a pipe's writer.
            (Some(_), None) => self.interrupted.store(true, Ordering::Relaxed),
            (None, _) => {}
        }
    }
}
