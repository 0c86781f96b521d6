//! Waiting for the devices of a graph.

use rustix::event::{Timespec, epoll};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use weir_units::{Escape as _, Nanos};

/// The longest wait, after which the program looks at its signals and at the state of the interfaces.
const WAIT_MAX: Nanos = Nanos(50 * Nanos::MILLISECOND.0);

/// The most devices of a graph that become ready at once. Those beyond it are seen by the next wait.
const EVENTS_MAX: usize = 32;

/// An epoll instance for the receiving devices of a graph. It is edge-triggered, as their own descriptors are.
#[derive(Debug, Default)]
pub struct DeviceWaiter {
    epoll: Option<OwnedFd>,
    /// The last time at which the devices were looked at.
    looked: Option<Instant>,
}

impl DeviceWaiter {
    /// Adds a device, by its name and descriptor.
    pub fn add(&mut self, name: &str, fd: BorrowedFd<'_>) -> Result<(), String> {
        let failed =
            |error| format!("{}: waiting for packets: {}", name.escaped(), std::io::Error::from(error));
        if self.epoll.is_none() {
            self.epoll = Some(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?);
        }
        let Some(epoll) = &self.epoll else { return Ok(()) };
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(epoll, fd, epoll::EventData::new_u64(0), flags).map_err(failed)
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
                epoll::wait(epoll, &mut events, Some(&timeout)).is_ok_and(|ready| ready > 0)
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
