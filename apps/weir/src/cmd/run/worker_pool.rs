//! The worker pool of a run: threads that read, process and collect blocks.
//!
//! All threads run the same loop: each takes the most urgent job. The packet source, the collector and each instance
//! have at most one job at a time, and each instance gets the blocks in order. So the results do not depend on the
//! number of threads. A single thread finishes each block while the block is in the cache. Several threads read,
//! process and collect different blocks at the same time.
//!
//! Each instance has a home thread, so that the memory of the instance stays in the cache of one core. Another thread
//! runs the instance only if that other thread has no more urgent job.

use super::block_task::{BlockTask, InstanceOutput};
use super::collector::{CollectError, Collector};
use super::instance_times::InstanceTimes;
use super::shard::Shard;
use super::source::{RunSource, SourceError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use weir_datapath::driver::BatchError;
use weir_netio::AheadReader;
use weir_units::Nanos;

/// Maximum number of blocks in flight; it bounds the memory for results that are not written yet.
const BLOCKS_MAX: usize = 8;

/// The number of blocks in flight below which one of several threads reads a file before it runs instances. Otherwise
/// the other threads would soon have nothing to do.
const BLOCKS_URGENT: usize = 2;

/// The number of blocks in flight below which a thread reads before it runs an instance of another thread.
const BLOCKS_LOW: usize = 4;

/// Maximum number of instances that a job runs. More would leave none for a thread without a job, and fewer need the lock more often.
const INSTANCES_MAX: usize = 2;

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
    /// The home thread of each instance.
    homes: Vec<usize>,
    /// The processor time of each instance on threads that have ended.
    times: Vec<Nanos>,
    /// The number of blocks in flight below which reading comes before running instances. 0 for one thread, so that a block is
    /// still in the cache, and for a source that may wait for packets.
    urgent: usize,
    /// Reads the bytes of a capture ahead, if several threads share the work.
    ahead_reader: Option<AheadReader>,
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
    ReadAhead,
    /// Processing the next task with the instance of this index.
    Process(usize),
    Collect,
}

/// A job of a thread, with the part of the state that it needs.
enum Job {
    Read(Box<RunSource>),
    ReadAhead(AheadReader),
    Process(Vec<(usize, Box<Shard>)>, Arc<BlockTask>),
    Collect(Box<Collector>, Arc<BlockTask>),
}

impl WorkerPool {
    /// Runs `jobs` threads until the source ends, an error occurs, or an instance has a fault in a strict run. Pending
    /// results are collected in each case.
    pub fn run(mut self, jobs: usize, is_strict: bool) -> (Self, Result<(), WorkerPoolError>) {
        let faulty = self.shards.iter().position(|shard| is_strict && !shard.first_faults.is_empty());
        if faulty.is_some() {
            self.source.stop();
        }
        let interrupted = self.source.interrupted();
        let state = Mutex::new(State {
            urgent: if jobs > 1 && self.source.is_file() { BLOCKS_URGENT } else { 0 },
            ahead_reader: self.source.ahead_reader(),
            source: Some(Box::new(self.source)),
            source_ended: false,
            source_blocked: false,
            next: vec![0; self.shards.len()],
            homes: (0..self.shards.len()).map(|index| index % jobs.max(1)).collect(),
            times: vec![Nanos(0); self.shards.len()],
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
            for thread in 1..jobs {
                let (state, wake, changes) = (&state, &wake, &changes);
                // Fewer threads produce the same results.
                let body = move || run_jobs(thread, state, wake, changes);
                if std::thread::Builder::new().spawn_scoped(scope, body).is_err() {
                    break;
                }
            }
            run_jobs(0, &state, &wake, &changes);
        });
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut shards: Vec<Shard> = state.shards.into_iter().flatten().map(|shard| *shard).collect();
        for (shard, time) in shards.iter_mut().zip(state.times) {
            shard.time = time;
        }
        let (Some(source), Some(collector)) = (state.source, state.collector) else {
            unreachable!("only a panicking thread keeps a job, and its panic ends the scope");
        };
        (Self { source: *source, shards, collector: *collector }, state.error.map_or(Ok(()), Err))
    }
}

/// Takes and performs jobs until the run is finished.
fn run_jobs(thread: usize, state: &Mutex<State>, wake: &Condvar, changes: &AtomicU64) {
    let on_panic = OnPanic { state, wake };
    let mut guard = lock(state);
    let mut times = InstanceTimes::new(guard.shards.len());
    loop {
        if guard.panicked || guard.is_finished() {
            break;
        }
        let Some(job) = guard.take_job(thread) else {
            times.end();
            guard = await_change(guard, state, wake, changes);
            continue;
        };
        // Waking costs a system call, so a thread wakes one other if there is a job for it. That one does the same.
        if guard.waiting > 0 && guard.next_job(None).is_some() {
            wake.notify_one();
        }
        drop(guard);
        if matches!(job, Job::Process(..)) {
            times.begin()
        } else {
            times.end()
        }
        let mut done = job.perform();
        if let Done::Process(shards, _) = &mut done {
            for (index, shard) in shards {
                times.add(*index, shard.take_cycles());
            }
        }
        guard = lock(state);
        guard.put_back(done);
        changes.fetch_add(1, Ordering::Relaxed);
    }
    for (sum, time) in guard.times.iter_mut().zip(times.finish()) {
        sum.0 += time.0;
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
    ReadAhead,
    Process(Vec<(usize, Box<Shard>)>, Result<(), BatchError>),
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
            Self::ReadAhead(reader) => {
                reader.read();
                Done::ReadAhead
            }
            Self::Process(mut shards, task) => {
                let mut result = Ok(());
                for (index, shard) in &mut shards {
                    let processed = shard.process(&task, *index);
                    if processed.is_err() {
                        // The task must still complete for the other instances.
                        task.store_output(*index, InstanceOutput::default());
                    }
                    result = result.and(processed);
                }
                Done::Process(shards, result)
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
        let has_parts = self.source.is_some() && self.collector.is_some() && self.has_all_shards();
        self.source_ended && self.tasks.is_empty() && has_parts
    }

    /// Returns the most urgent job for a thread; `None` stands for any thread. The order is:
    ///
    /// 1. collecting, which frees a block
    /// 2. reading a block, below `urgent` blocks in flight
    /// 3. the thread's own instance that is furthest behind
    /// 4. reading a block, below [`BLOCKS_LOW`]
    /// 5. reading bytes of the capture ahead
    /// 6. the instance of another thread that is furthest behind
    /// 7. reading a block, below [`BLOCKS_MAX`]
    fn next_job(&self, thread: Option<usize>) -> Option<NextJob> {
        if self.collector.is_some() && self.tasks.front().is_some_and(|front| front.is_done()) {
            return Some(NextJob::Collect);
        }
        let may_read = self.source.is_some() && !self.source_ended && !self.source_blocked;
        if may_read && self.tasks.len() < self.urgent {
            return Some(NextJob::Read);
        }
        let end = self.first + self.tasks.len() as u64;
        let ready = || (0..self.shards.len()).filter(|&i| self.shards[i].is_some() && self.next[i] < end);
        let furthest_behind = |i: &usize| self.next[*i];
        let home = ready().filter(|&i| thread.is_none_or(|thread| self.homes[i] == thread));
        if let Some(index) = home.min_by_key(furthest_behind) {
            return Some(NextJob::Process(index));
        }
        if may_read && self.tasks.len() < BLOCKS_LOW {
            return Some(NextJob::Read);
        }
        if self.ahead_reader.as_ref().is_some_and(AheadReader::is_wanted) {
            return Some(NextJob::ReadAhead);
        }
        if let Some(index) = ready().min_by_key(furthest_behind) {
            return Some(NextJob::Process(index));
        }
        (may_read && self.tasks.len() < BLOCKS_MAX).then_some(NextJob::Read)
    }

    /// Takes the most urgent job, with the part of the state that it needs.
    fn take_job(&mut self, thread: usize) -> Option<Job> {
        match self.next_job(Some(thread))? {
            NextJob::Collect => {
                let front = Arc::clone(self.tasks.front()?);
                self.collector.take().map(|collector| Job::Collect(collector, front))
            }
            NextJob::Process(index) => {
                let number = self.next[index];
                let distance = usize::try_from(number - self.first).unwrap_or(usize::MAX);
                let task = Arc::clone(self.tasks.get(distance)?);
                let home = self.homes[index];
                let most = if home == thread { INSTANCES_MAX } else { 1 };
                let mut shards = Vec::with_capacity(most);
                for i in index..self.shards.len() {
                    if shards.len() < most && self.homes[i] == home && self.next[i] == number {
                        shards.extend(self.shards[i].take().map(|shard| (i, shard)));
                    }
                }
                Some(Job::Process(shards, task))
            }
            NextJob::Read => self.source.take().map(Job::Read),
            NextJob::ReadAhead => self.ahead_reader.clone().map(Job::ReadAhead),
        }
    }

    /// Adds a task for the next part of the modules' stops, if a module has another part. Before that, the output of
    /// the previous part must be collected, and all instances must be put back. A thread can collect the output of an
    /// instance before another thread puts the instance back.
    fn continue_stop(&mut self) {
        if !self.source_ended || !self.tasks.is_empty() || self.error.is_some() || !self.has_all_shards() {
            return;
        }
        if !self.shards.iter().flatten().all(|shard| shard.is_stopped()) {
            self.tasks.extend(self.source.as_mut().map(|source| source.last()));
        }
    }

    /// Returns true if no thread processes a task with an instance.
    fn has_all_shards(&self) -> bool {
        self.shards.iter().all(Option::is_some)
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
            Done::ReadAhead => {}
            Done::Process(shards, result) => {
                let mut fault = None;
                for (index, shard) in shards {
                    if self.is_strict && !shard.first_faults.is_empty() {
                        fault.get_or_insert(WorkerPoolError::Fault(index));
                    }
                    self.shards[index] = Some(shard);
                    self.next[index] += 1;
                }
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
        self.continue_stop();
        match (&self.error, &mut self.source) {
            (Some(_), Some(source)) => source.stop(),
            // Another thread has the source, and may be waiting for a pipe's writer.
            (Some(_), None) => self.interrupted.store(true, Ordering::Relaxed),
            (None, _) => {}
        }
    }
}
