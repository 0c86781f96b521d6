//! The inboxes of the threads of a graph.
//!
//! All inboxes are behind one lock, since messages are rare: a queue that was empty, a call of a handler. So it is known
//! when no thread has anything to do: all of them wait for work, and all inboxes are empty. Then no message can come any
//! more, and the graph stops.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_graph::engine::{
    DeviceWaker, HandlerError, HandlerFault, ThreadCall, ThreadLink, ThreadMessage, ThreadWait,
};

#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<ThreadMessage>,
    /// The thread waits for work.
    is_idle: bool,
    has_ended: bool,
    /// The signals of the system for which elements of the thread wait.
    signals: BTreeSet<i32>,
    /// The signals that the thread has not handled yet.
    unhandled: usize,
}

#[derive(Debug)]
struct HubState {
    /// The inbox of each thread, and last that of the thread that started them.
    inboxes: Vec<Inbox>,
    /// The calls without an answer: the thread that calls, the number of the call, the thread that is called.
    calls: Vec<(usize, u64, usize)>,
}

/// The inboxes of the threads of a graph.
pub struct ThreadHub {
    state: Mutex<HubState>,
    /// Wakes the thread of each inbox.
    wakes: Vec<Condvar>,
    /// Ends the wait of a thread for its devices.
    device_wakers: Vec<OnceLock<DeviceWaker>>,
    /// An inbox may have messages: for a look without the lock.
    has_messages: Vec<AtomicBool>,
    is_stopped: AtomicBool,
    is_paused: AtomicBool,
    /// The graph goes on when no thread has anything to do: something outside can give it work.
    is_kept: AtomicBool,
}

impl ThreadHub {
    /// Returns inboxes for this number of threads, and for the one that starts them.
    pub fn new(threads: usize) -> Self {
        let inboxes = threads + 1;
        Self {
            state: Mutex::new(HubState {
                inboxes: (0..inboxes).map(|_| Inbox::default()).collect(),
                calls: Vec::new(),
            }),
            wakes: (0..inboxes).map(|_| Condvar::new()).collect(),
            device_wakers: (0..inboxes).map(|_| OnceLock::new()).collect(),
            has_messages: (0..inboxes).map(|_| AtomicBool::new(false)).collect(),
            is_stopped: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
        }
    }

    /// Sets the function that ends the wait of a thread for its devices.
    pub fn set_device_waker(&self, thread: usize, waker: DeviceWaker) {
        // A thread has one system, so this comes once.
        _ = self.device_wakers[thread].set(waker);
    }

    fn wake(&self, thread: usize) {
        self.wakes[thread].notify_one();
        if let Some(waker) = self.device_wakers[thread].get() {
            waker();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        // No function leaves the state half changed, so a thread that ended early does not matter.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a message into an inbox.
    fn post(&self, state: &mut HubState, to: usize, message: ThreadMessage) {
        let Some(inbox) = state.inboxes.get_mut(to) else { return };
        if inbox.has_ended {
            if let ThreadMessage::Call(ThreadCall { from, id, .. }) = message {
                self.post(state, from, ended(to, id));
            }
            return;
        }
        match &message {
            ThreadMessage::Call(ThreadCall { from, id, .. }) => state.calls.push((*from, *id, to)),
            ThreadMessage::Answer { id, .. } => {
                if let Some(at) = state.calls.iter().position(|(from, call, _)| (*from, call) == (to, id)) {
                    state.calls.swap_remove(at);
                }
            }
            _ => {}
        }
        inbox.messages.push_back(message);
        inbox.is_idle = false;
        self.has_messages[to].store(true, Ordering::Release);
        self.wake(to);
    }

    /// Puts a message into the inbox of a thread.
    pub fn send(&self, to: usize, message: ThreadMessage) {
        self.post(&mut self.lock(), to, message);
    }

    fn next(&self, state: &mut HubState, thread: usize) -> Option<ThreadMessage> {
        let inbox = &mut state.inboxes[thread];
        let message = inbox.messages.pop_front();
        self.has_messages[thread].store(!inbox.messages.is_empty(), Ordering::Release);
        message
    }

    /// Returns the next message for a thread.
    pub fn receive(&self, thread: usize) -> Option<ThreadMessage> {
        if !self.has_messages[thread].load(Ordering::Acquire) {
            return None;
        }
        self.next(&mut self.lock(), thread)
    }

    /// Waits for a message to a thread.
    pub fn wait(&self, thread: usize, reason: ThreadWait) -> Option<ThreadMessage> {
        let end = match reason {
            // An instant that cannot be represented is far away.
            ThreadWait::Time(time) => Instant::now().checked_add(Duration::from_nanos(time.0)),
            ThreadWait::Message | ThreadWait::Work => None,
        };
        let mut state = self.lock();
        loop {
            if let Some(message) = self.next(&mut state, thread) {
                return Some(message);
            }
            // The thread that started the others outlives the graph.
            let is_over = || self.is_stopped() || self.is_paused();
            if reason != ThreadWait::Message && is_over() && thread + 1 < state.inboxes.len() {
                return None;
            }
            if reason == ThreadWait::Work {
                state.inboxes[thread].is_idle = true;
                let (_, threads) = state.inboxes.split_last()?;
                let has_no_work = |inbox: &Inbox| {
                    inbox.is_idle && inbox.messages.is_empty() && inbox.signals.is_empty() || inbox.has_ended
                };
                if !self.is_kept.load(Ordering::Acquire) && threads.iter().all(has_no_work) {
                    self.stop_all();
                    return None;
                }
            }
            let wake = &self.wakes[thread];
            state = match end {
                None => wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Returns true if the graph stops.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Has the graph go on when no thread has anything to do.
    pub fn keep(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    /// Lets threads end their run when their present tasks have ended, or run again.
    pub fn pause(&self, is_paused: bool) {
        // Behind the lock, so that no thread looks before and waits afterwards.
        let _state = self.lock();
        self.is_paused.store(is_paused, Ordering::Release);
        if is_paused {
            (0..self.wakes.len()).for_each(|thread| self.wake(thread));
        }
    }

    /// Returns true if the graph pauses.
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Sets the signals for which elements of a thread wait.
    pub fn set_signals(&self, thread: usize, signals: &BTreeSet<i32>) {
        let mut state = self.lock();
        let inbox = &mut state.inboxes[thread];
        inbox.signals.clone_from(signals);
        inbox.unhandled = 0;
        if let Some(starter) = self.wakes.len().checked_sub(1) {
            self.post(&mut state, starter, ThreadMessage::Attention);
        }
    }

    /// Returns the signals for which elements wait. `None` while elements handle one, and may wait for it again.
    pub fn signals(&self) -> Option<BTreeSet<i32>> {
        let state = self.lock();
        let threads = || state.inboxes.iter().filter(|inbox| !inbox.has_ended);
        let is_handled = threads().all(|inbox| inbox.unhandled == 0);
        is_handled.then(|| threads().flat_map(|inbox| &inbox.signals).copied().collect())
    }

    /// Sends a signal to the threads that wait for it.
    pub fn deliver_signal(&self, number: i32) {
        let mut state = self.lock();
        for thread in 0..state.inboxes.len() {
            let inbox = &mut state.inboxes[thread];
            if !inbox.has_ended && inbox.signals.contains(&number) {
                inbox.unhandled += 1;
                self.post(&mut state, thread, ThreadMessage::Signal(number));
            }
        }
    }

    fn stop_all(&self) {
        self.is_stopped.store(true, Ordering::Release);
        (0..self.wakes.len()).for_each(|thread| self.wake(thread));
    }

    /// Stops the graph.
    pub fn stop(&self) {
        // Behind the lock, so that no thread looks before and waits afterwards.
        let _state = self.lock();
        self.stop_all();
    }

    /// Notes that a thread has ended. Its unanswered calls fail, the graph stops.
    pub fn end(&self, thread: usize) {
        let mut state = self.lock();
        state.inboxes[thread].has_ended = true;
        state.inboxes[thread].messages.clear();
        let (unanswered, left) =
            std::mem::take(&mut state.calls).into_iter().partition(|(.., to)| *to == thread);
        state.calls = left;
        let unanswered: Vec<(usize, u64, usize)> = unanswered;
        for (from, id, to) in unanswered {
            self.post(&mut state, from, ended(to, id));
        }
        self.stop_all();
    }

    /// Returns true if a thread has ended.
    pub fn has_ended(&self, thread: usize) -> bool {
        self.lock().inboxes[thread].has_ended
    }
}

fn ended(thread: usize, id: u64) -> ThreadMessage {
    let text = format!("thread {thread} has ended");
    ThreadMessage::Answer { id, result: Err(HandlerError { fault: HandlerFault::NoGraph, text }) }
}

/// A thread's way to the others.
pub struct HubLink {
    pub hub: Arc<ThreadHub>,
    pub thread: usize,
}

impl ThreadLink for HubLink {
    fn send(&self, to: usize, message: ThreadMessage) {
        self.hub.send(to, message);
    }

    fn receive(&self) -> Option<ThreadMessage> {
        self.hub.receive(self.thread)
    }

    fn wait(&self, reason: ThreadWait) -> Option<ThreadMessage> {
        self.hub.wait(self.thread, reason)
    }

    fn is_stopped(&self) -> bool {
        self.hub.is_stopped()
    }

    fn is_paused(&self) -> bool {
        self.hub.is_paused()
    }

    fn stop(&self) {
        self.hub.stop();
    }

    fn wait_for_signals(&self, signals: &BTreeSet<i32>) {
        self.hub.set_signals(self.thread, signals);
    }
}

/// Notes the end of a thread, also of one that panics.
pub struct EndGuard(pub HubLink);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.hub.end(self.0.thread);
    }
}
