//! The receive queues of a network card.

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::sys;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// A set of queues of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSet([u64; QueueSet::WORDS]);

impl QueueSet {
    /// The numbers of queues are below this one.
    pub const QUEUES_MAX: u32 = 256;
    const WORDS: usize = Self::QUEUES_MAX as usize / 64;

    /// The set of these queues; `None` if one of them is not below [`QUEUES_MAX`](Self::QUEUES_MAX).
    pub fn of(queues: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut set = Self::default();
        for queue in queues {
            *set.0.get_mut(queue as usize / 64)? |= 1 << (queue % 64);
        }
        Some(set)
    }

    /// The queues, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::QUEUES_MAX).filter(move |queue| {
            self.0.get(*queue as usize / 64).is_some_and(|word| word >> (queue % 64) & 1 != 0)
        })
    }

    /// Returns true if the set has no queue.
    pub fn is_empty(self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

impl fmt::Display for QueueSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, queue) in self.iter().enumerate() {
            write!(f, "{}{queue}", if place == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The queues that are to be read: `wanted`, or all receive queues of the interface.
pub(crate) fn find(link: &KernelInterface, wanted: Option<QueueSet>) -> Result<Vec<u32>, LiveError> {
    let existing = count(link)?;
    let interface = || link.name.clone();
    let Some(wanted) = wanted else {
        if existing > QueueSet::QUEUES_MAX {
            return Err(LiveError::TooManyQueues { interface: interface(), existing });
        }
        return Ok((0..existing).collect());
    };
    if let Some(queue) = wanted.iter().find(|queue| *queue >= existing) {
        return Err(LiveError::NoSuchQueue { interface: interface(), queue, existing });
    }
    if wanted.is_empty() {
        return Err(LiveError::Option { interface: interface(), what: "AF_XDP needs at least one queue" });
    }
    Ok(wanted.iter().collect())
}

/// The kernel's `struct ethtool_channels` (linux/ethtool.h): the numbers of an interface's queues.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Channels {
    command: u32,
    max_receive: u32,
    max_send: u32,
    max_other: u32,
    max_combined: u32,
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

/// The number of an interface's receive queues; 1 if the driver does not tell.
fn count(link: &KernelInterface) -> Result<u32, LiveError> {
    /// ETHTOOL_GCHANNELS.
    const GET_CHANNELS: u32 = 0x3c;
    /// SIOCETHTOOL.
    const ETHTOOL: libc::Ioctl = 0x8946;
    let failed = |error| LiveError::system(&link.name, "asking for the number of queues")(error);
    let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).map_err(failed)?;
    let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
    // SAFETY: a request of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    sys::set_interface_name(&mut request, &link.name);
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the kernel reads and writes the request and the structure it points to, both alive here.
    let done = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), ETHTOOL, &raw mut request) };
    match sys::checked(done) {
        Ok(_) => Ok(channels.receive.saturating_add(channels.combined).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_queues_it_was_made_of() {
        let set = QueueSet::of([255, 0, 64, 0]).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 64, 255]);
        assert_eq!(set.to_string(), "0, 64, 255");
        assert!(!set.is_empty() && QueueSet::default().is_empty());
        assert_eq!(QueueSet::of([256]), None);
    }
}
