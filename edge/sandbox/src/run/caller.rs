//! The threads that run modules. Each thread counts the beginnings and ends of its calls. From these counts the watchdog
//! recognises that a call lasts long, without examining each of possibly thousands of idle sandboxes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A thread, and the clock of its processor time, which other threads can read.
#[derive(Clone, Copy)]
pub(crate) struct Thread {
    pub(crate) handle: libc::pthread_t,
    pub(crate) clock: libc::clockid_t,
}

impl Thread {
    fn current() -> Self {
        let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: only reads the calling thread's own handle.
        let handle = unsafe { libc::pthread_self() };
        // SAFETY: the pointer is to a live local, and a thread's own handle is always valid.
        unsafe { libc::pthread_getcpuclockid(handle, &raw mut clock) };
        Self { handle, clock }
    }
}

/// A thread that has made a call.
struct Caller {
    /// A number unique in this process.
    number: u64,
    thread: Thread,
    /// The number of beginnings and ends of calls, which is odd during a call.
    calls: AtomicU64,
}

/// The callers of all threads that have made a call and have not ended.
static CALLERS: Mutex<Vec<Arc<Caller>>> = Mutex::new(Vec::new());

thread_local! {
    static CURRENT: Arc<Caller> = register();
}

#[cold]
fn register() -> Arc<Caller> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let caller = Arc::new(Caller { number, thread: Thread::current(), calls: AtomicU64::new(0) });
    let mut callers = CALLERS.lock().unwrap_or_else(PoisonError::into_inner);
    // A caller without a reference from its thread belongs to a thread that has ended.
    callers.retain(|caller| Arc::strong_count(caller) > 1);
    callers.push(Arc::clone(&caller));
    caller
}

/// Records that the calling thread begins a call. Returns the thread.
#[inline]
pub(crate) fn enter() -> Thread {
    CURRENT.with(|caller| {
        count(caller);
        caller.thread
    })
}

/// Records that the calling thread's call ends.
#[inline]
pub(crate) fn leave() {
    CURRENT.with(|caller| count(caller));
}

#[inline]
fn count(caller: &Caller) {
    // No atomic addition is needed, because only this thread writes the number.
    caller.calls.store(caller.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// The calls that were in progress at the last check: the count of calls of each calling thread, by the thread's number.
#[derive(Default)]
pub(crate) struct SeenCalls(BTreeMap<u64, u64>);

impl SeenCalls {
    /// Returns true if a thread is in the same call as at the last check.
    pub(crate) fn has_lasting_call(&mut self) -> bool {
        let callers = CALLERS.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeMap<u64, u64> = callers
            .iter()
            .map(|caller| (caller.number, caller.calls.load(Ordering::Acquire)))
            .filter(|(_, calls)| calls % 2 == 1)
            .collect();
        let before = std::mem::replace(&mut self.0, now);
        self.0.iter().any(|(number, calls)| before.get(number) == Some(calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn only_a_thread_that_stays_in_a_call_is_seen_again() {
        let (send, receive) = channel::<fn()>();
        let (did, done) = channel();
        let thread = std::thread::spawn(move || {
            for act in receive {
                act();
                did.send(CURRENT.with(|caller| caller.number)).unwrap();
            }
        });
        let act = |what: fn()| {
            send.send(what).unwrap();
            done.recv().unwrap()
        };
        // Other tests' threads may be in calls of their own.
        let mut seen = SeenCalls::default();
        let mut is_seen_again = |number| {
            let before = seen.0.get(&number).copied();
            seen.has_lasting_call();
            before.is_some() && before == seen.0.get(&number).copied()
        };
        let number = act(|| _ = enter());
        assert!(!is_seen_again(number));
        assert!(is_seen_again(number));
        act(|| {
            leave();
            enter();
        });
        assert!(!is_seen_again(number), "it is another call");
        act(leave);
        assert!(!is_seen_again(number));
        assert!(!is_seen_again(number));
        drop(send);
        thread.join().unwrap();
        register();
        let callers = CALLERS.lock().unwrap();
        assert!(callers.iter().all(|caller| caller.number != number), "it has ended");
    }

    #[test]
    fn a_check_returns_whether_a_call_lasts() {
        let mut seen = SeenCalls::default();
        enter();
        seen.has_lasting_call();
        assert!(seen.has_lasting_call());
        leave();
    }
}
