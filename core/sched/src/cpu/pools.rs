//! The order in which a virtual CPU's events run.
//!
//! RCANE's thread pools ("The price of safety in an active network", section IV.C): events (packet batches, ticks,
//! timers, service calls) wait in a pool for one of its threads. A pool has as many threads as events may be in
//! execution at once; a suspended event holds its thread. All pools of a virtual CPU get equal time
//! ([`super::fair`]), however many events wait in each.

use super::fair::{FairQueue, Tag};
use std::collections::VecDeque;
use weir_units::Nanos;

/// The most pools of a virtual CPU.
pub const POOLS_MAX: usize = 128;

/// The depth of a pool: the events that can wait, and the events that can be in execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolDepth {
    /// The most events that can wait; at least one.
    pub events: u16,
    /// The most events in execution at once; at least one.
    pub concurrency: u16,
}

/// The identifier of a pool. The identifier of a closed pool is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    index: u16,
    generation: u32,
}

/// A thread of a pool. Each event in execution occupies one thread. It is not a thread of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// The pool of the thread.
    pub pool: PoolId,
    /// The number of the thread, from zero to the pool's concurrency - 1.
    pub number: u16,
}

/// The next work of a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuWork<E> {
    /// Start `event` on `thread`.
    Begin {
        /// The thread that the event occupies.
        thread: ThreadId,
        /// The event to run.
        event: E,
    },
    /// Resume the event that is suspended on this thread.
    Resume(ThreadId),
}

/// An event that was not accepted. The caller has to count the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRefused<E> {
    /// The event.
    pub event: E,
    /// True if the pool's queue is full; false if there is no such pool.
    pub is_full: bool,
}

/// The state of a pool's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Free,
    Running,
    Suspended,
}

/// A pool of threads with its waiting events.
#[derive(Clone, Debug)]
struct Pool<E> {
    events_max: usize,
    queue: VecDeque<E>,
    threads: Vec<Thread>,
    /// The numbers of threads without an event.
    free: Vec<u16>,
    /// Threads with a suspended event, the longest suspended first.
    suspended: VecDeque<u16>,
    tag: Tag,
}

/// The pools of one virtual CPU, with events of type `E`.
#[derive(Clone, Debug)]
pub struct Pools<E> {
    /// The pools by index, each with the generation of its identifier; `None` for an index that is free.
    pools: Vec<(u32, Option<Pool<E>>)>,
    /// Pools that have work to run.
    fair: FairQueue,
}

impl<E> Default for Pools<E> {
    fn default() -> Self {
        Pools { pools: Vec::new(), fair: FairQueue::default() }
    }
}

impl<E> Pools<E> {
    /// Opens a pool. `None` if there are [`POOLS_MAX`] already, or a value of `depth` is zero.
    pub fn open(&mut self, depth: PoolDepth) -> Option<PoolId> {
        if depth.events == 0 || depth.concurrency == 0 {
            return None;
        }
        let place = self.pools.iter().position(|(_, pool)| pool.is_none()).unwrap_or(self.pools.len());
        if place >= POOLS_MAX {
            return None;
        }
        let threads = usize::from(depth.concurrency);
        let pool = Pool {
            events_max: usize::from(depth.events),
            queue: VecDeque::with_capacity(usize::from(depth.events)),
            threads: vec![Thread::Free; threads],
            free: (0..depth.concurrency).rev().collect(),
            suspended: VecDeque::with_capacity(threads),
            tag: Tag::default(),
        };
        match self.pools.get_mut(place) {
            Some((_, free)) => *free = Some(pool),
            None => self.pools.push((0, Some(pool))),
        }
        self.fair.grow(self.pools.len());
        Some(PoolId { index: u16::try_from(place).ok()?, generation: self.pools[place].0 })
    }

    /// Closes a pool and returns its waiting events in order. The caller aborts events in execution.
    pub fn close(&mut self, id: PoolId) -> Option<Vec<E>> {
        self.pool(id)?;
        let index = usize::from(id.index);
        self.fair.leave(index);
        let (generation, pool) = self.pools.get_mut(index)?;
        *generation = generation.wrapping_add(1);
        pool.take().map(|pool| pool.queue.into())
    }

    /// Appends an event to a pool's queue.
    ///
    /// # Errors
    ///
    /// [`EventRefused`] with the event, if the queue is full or there is no such pool.
    pub fn push(&mut self, id: PoolId, event: E) -> Result<(), EventRefused<E>> {
        let Some(pool) = self.pool(id) else { return Err(EventRefused { event, is_full: false }) };
        if pool.queue.len() >= pool.events_max {
            return Err(EventRefused { event, is_full: true });
        }
        pool.queue.push_back(event);
        self.requeue(id);
        Ok(())
    }

    /// Returns true if the virtual CPU has work.
    pub fn has_work(&self) -> bool {
        !self.fair.is_empty()
    }

    /// Takes the next work, from the pool with work that has used the least time. In a pool, suspended events come
    /// before new ones.
    pub fn take(&mut self) -> Option<VcpuWork<E>> {
        let index = self.fair.pick()?;
        let (generation, pool) = self.pools.get_mut(index)?;
        let pool = pool.as_mut()?;
        let id = PoolId { index: u16::try_from(index).ok()?, generation: *generation };
        let work = if let Some(number) = pool.suspended.pop_front() {
            pool.threads[usize::from(number)] = Thread::Running;
            VcpuWork::Resume(ThreadId { pool: id, number })
        } else {
            let event = pool.queue.pop_front()?;
            let number = pool.free.pop()?;
            pool.threads[usize::from(number)] = Thread::Running;
            VcpuWork::Begin { thread: ThreadId { pool: id, number }, event }
        };
        self.requeue(id);
        Some(work)
    }

    /// Reports that the event on `thread` is finished, after `used` CPU time since it was taken. Returns false if no
    /// event ran there.
    pub fn done(&mut self, thread: ThreadId, used: Nanos) -> bool {
        self.stop(thread, used, Thread::Free)
    }

    /// Reports that the event on `thread` was suspended, after `used` CPU time since it was taken. Returns false if
    /// no event ran there.
    pub fn suspend(&mut self, thread: ThreadId, used: Nanos) -> bool {
        self.stop(thread, used, Thread::Suspended)
    }

    fn stop(&mut self, thread: ThreadId, used: Nanos, then: Thread) -> bool {
        let Some((generation, Some(pool))) = self.pools.get_mut(usize::from(thread.pool.index)) else {
            return false;
        };
        if *generation != thread.pool.generation {
            return false;
        }
        let Some(state) = pool.threads.get_mut(usize::from(thread.number)) else { return false };
        if *state != Thread::Running {
            return false;
        }
        *state = then;
        match then {
            Thread::Free => pool.free.push(thread.number),
            Thread::Suspended => pool.suspended.push_back(thread.number),
            Thread::Running => {}
        }
        self.fair.charge(usize::from(thread.pool.index), &mut pool.tag, used.0.max(1), 1);
        self.requeue(thread.pool);
        true
    }

    /// Adds the pool to the fair queue if it has work to run, and removes it otherwise.
    fn requeue(&mut self, id: PoolId) {
        let index = usize::from(id.index);
        let Some((_, Some(pool))) = self.pools.get_mut(index) else { return };
        let can_begin = !pool.queue.is_empty() && !pool.free.is_empty();
        if can_begin || !pool.suspended.is_empty() {
            self.fair.enter(index, &mut pool.tag);
        } else {
            self.fair.leave(index);
        }
    }

    fn pool(&mut self, id: PoolId) -> Option<&mut Pool<E>> {
        let (generation, pool) = self.pools.get_mut(usize::from(id.index))?;
        pool.as_mut().filter(|_| *generation == id.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(events: u16, concurrency: u16) -> PoolDepth {
        PoolDepth { events, concurrency }
    }

    fn begun(work: Option<VcpuWork<u32>>) -> (ThreadId, u32) {
        match work {
            Some(VcpuWork::Begin { thread, event }) => (thread, event),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_run_first_come_first_as_many_at_once_as_the_pool_allows() {
        let mut pools = Pools::default();
        let pool = pools.open(depth(3, 2)).unwrap();
        for event in 1..=3 {
            assert_eq!(pools.push(pool, event), Ok(()));
        }
        assert_eq!(pools.push(pool, 4), Err(EventRefused { event: 4, is_full: true }));
        let (first, event) = begun(pools.take());
        assert_eq!(event, 1);
        let (second, event) = begun(pools.take());
        assert_eq!(event, 2);
        assert!(!pools.has_work(), "two events are in execution, which is the most");
        assert!(pools.suspend(second, Nanos(5)) && pools.has_work());
        assert!(pools.suspend(first, Nanos(5)));
        assert_eq!(pools.take(), Some(VcpuWork::Resume(second)), "a suspended event holds its thread");
        assert!(pools.done(second, Nanos(5)));
        assert_eq!(pools.take(), Some(VcpuWork::Resume(first)));
        assert_eq!(begun(pools.take()).1, 3);
        assert!(pools.done(first, Nanos(1)) && !pools.done(first, Nanos(1)));
        assert!(!pools.suspend(first, Nanos(1)) && !pools.has_work());
    }

    #[test]
    fn pools_share_alike_by_time_and_not_by_events() {
        let mut pools = Pools::default();
        let (long, short) = (pools.open(depth(9, 1)).unwrap(), pools.open(depth(9, 1)).unwrap());
        let mut used = [0_u64; 2];
        for _ in 0..1000 {
            for pool in [long, short] {
                while pools.push(pool, 0).is_ok() {}
            }
            let (thread, _) = begun(pools.take());
            let took = if thread.pool == long { 900 } else { 100 };
            used[usize::from(thread.pool == short)] += took;
            assert!(pools.done(thread, Nanos(took)));
            assert!(used[0].abs_diff(used[1]) <= 1000, "{used:?}");
        }
    }

    #[test]
    fn a_closed_pool_returns_its_events_and_its_identifier_is_invalid() {
        let mut pools = Pools::default();
        let old = pools.open(depth(9, 1)).unwrap();
        for event in 0..3 {
            assert_eq!(pools.push(old, event), Ok(()));
        }
        let (thread, _) = begun(pools.take());
        assert_eq!(pools.close(old), Some(vec![1, 2]));
        let new = pools.open(depth(9, 1)).unwrap();
        assert_ne!(old, new);
        assert_eq!(pools.push(old, 7), Err(EventRefused { event: 7, is_full: false }));
        assert!(!pools.done(thread, Nanos(1)) && pools.close(old).is_none() && !pools.has_work());
        assert_eq!((pools.open(depth(0, 1)), pools.open(depth(1, 0))), (None, None));
        let opened = std::iter::from_fn(|| pools.open(depth(1, 1))).count();
        assert_eq!(opened, POOLS_MAX - 1);
    }
}
