//! Waiting for the devices of a graph.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_graph::engine::DeviceWaker;
use weir_units::{Escape as _, Nanos};

/// The longest wait, after which the program looks at its signals and at the state of the interfaces.
const WAIT_MAX: Nanos = Nanos(50 * Nanos::MILLISECOND.0);

/// The kinds of events.
const DEVICE: u64 = 0;
const WAKE: u64 = 1;

/// The most devices of a graph that become ready at once. Those beyond it are seen by the next wait.
const EVENTS_MAX: usize = 32;

/// An epoll instance for the receiving devices of a graph. It is edge-triggered, as their own descriptors are.
#[derive(Debug, Default)]
pub struct DeviceWaiter {
    epoll: Option<OwnedFd>,
    /// Other threads end a wait with it.
    wakes: Option<Arc<OwnedFd>>,
    /// The last time at which the devices were looked at.
    looked: Option<Instant>,
}

impl DeviceWaiter {
    /// Adds a device, by its name and descriptor.
    pub fn add(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
        let failed =
            |error| format!("{}: waiting for packets: {}", name.escaped(), std::io::Error::from(error));
        self.watch(fd, DEVICE).map_err(failed)
    }

    fn watch(&mut self, fd: BorrowedFd<'_>, kind: u64) -> rustix::io::Result<()> {
        if self.epoll.is_none() {
            self.epoll = Some(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        }
        let Some(epoll) = &self.epoll else { return Ok(()) };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(epoll, fd, epoll::EventData::new_u64(kind), flags)
    }

    /// Returns a function that ends a wait, or the next one, from any thread.
    pub fn waker(&mut self) -> rustix::io::Result<DeviceWaker> {
        let wakes = match &self.wakes {
            Some(wakes) => Arc::clone(wakes),
            None => {
                let made = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
                self.watch(made.as_fd(), WAKE)?;
                self.wakes = Some(Arc::clone(&made));
                made
            }
        };
        // Each write is an event, since the instance is edge-triggered: so the counter needs no reading. A write fails only
        // when the counter is full, after 2^64 writes.
        Ok(Box::new(move || _ = rustix::io::write(&wakes, &1_u64.to_ne_bytes())))
    }

    /// Waits until a device may have packets or news, but for no longer than this time. Returns true if one may.
    pub fn wait(&mut self, longest: Option<Nanos>) -> bool {
        let longest = longest.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let timeout = Timespec::try_from(Duration::from_nanos(longest.0)).unwrap_or_default();
        let is_ready = match &self.epoll {
            Some(epoll) => {
                let mut events =
                    [epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(0) };
                        EVENTS_MAX];
                // A signal ends the wait, too.
                let ready = epoll::wait(epoll, &mut events, Some(&timeout)).unwrap_or(0);
                events[..ready].iter().any(|event| event.data.u64() == DEVICE)
            }
            None => {
                std::thread::sleep(Duration::from_nanos(longest.0));
                false
            }
        };
        // The state of an interface that was removed changes with time, too.
        let now = Instant::now();
        let is_due = self.looked.is_none_or(|at| now - at >= Duration::from_nanos(WAIT_MAX.0));
        if is_ready || is_due {
            self.looked = Some(now);
        }
        is_ready || is_due
    }
}
