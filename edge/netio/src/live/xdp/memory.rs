//! The frames that the sockets of an interface share. The sockets of all its queues use one sealed memory file, so that
//! modules map the packets of all queues at once.

use super::frames::FramePools;
use super::socket::{FRAMES_MIN, FrameDivision, OwningSocket, Receiving, Sending, Socket, SocketConfig};
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::options::LiveOptions;
use crate::memory::Mapping;
use crate::pin::PinPolicy;
use crate::window::PacketWindow;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_units::Bytes;

/// The frames of an interface.
#[derive(Debug)]
pub(super) struct XdpMemory {
    /// The number of the interface.
    interface: u32,
    /// The socket with which the kernel has registered the memory.
    first: Arc<Socket>,
    pub(super) pools: Arc<FramePools>,
    pub(super) window: Arc<PacketWindow>,
}

/// A socket that receives the packets of one queue.
#[derive(Debug)]
pub(super) struct QueueSocket {
    pub(super) queue: u32,
    pub(super) socket: Arc<Socket>,
    pub(super) rings: Receiving,
}

/// The sockets of one source.
#[derive(Debug)]
pub(super) struct SourceSockets {
    pub(super) memory: Arc<XdpMemory>,
    pub(super) queues: Vec<QueueSocket>,
    /// The rings for sending, which only the first socket of an interface has.
    pub(super) sending: Option<(Arc<Socket>, Sending)>,
}

/// The frames that the sources of a group share, as long as one of them is open.
#[derive(Debug, Default)]
pub(crate) struct SharedFrames(Mutex<Weak<XdpMemory>>);

impl SharedFrames {
    /// Opens the sockets of these queues, for one of `sources` sources. Returns `None` without queues.
    pub(super) fn open(
        &self,
        link: &KernelInterface,
        options: &LiveOptions,
        sources: usize,
        queues: &[u32],
    ) -> Result<Option<SourceSockets>, LiveError> {
        let layout = FrameDivision::new(link, options.ring, sources);
        if layout.frames_each == 0 {
            let what = "AF_XDP needs memory for packets";
            return Err(LiveError::Option { interface: link.name.clone(), what });
        }
        let (mut opened, mut sending, mut rest) = (Vec::new(), None, queues.iter());
        // Held during the setup, so that the sources of a group do not all create memory.
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If the interface was removed and exists again, another source may still use the memory of the removed one.
        let existing = shared.upgrade().filter(|memory| memory.interface == link.index);
        let memory = match existing {
            Some(memory) => memory,
            None => {
                let Some(&queue) = rest.next() else { return Ok(None) };
                let entries = ring_entries(layout, queues);
                let config = SocketConfig { queue, zero_copy: options.zero_copy, layout, entries };
                let (memory, receiving, rings) = XdpMemory::create(link, config)?;
                opened.push(QueueSocket { queue, socket: Arc::clone(&memory.first), rings: receiving });
                sending = Some((Arc::clone(&memory.first), rings));
                *shared = Arc::downgrade(&memory);
                memory
            }
        };
        let entries = ring_entries(memory.layout(), queues);
        for &queue in rest {
            let (socket, rings) = memory.first.open_sharing(link, queue, entries)?;
            opened.push(QueueSocket { queue, socket: Arc::new(socket), rings });
        }
        let sockets = SourceSockets { memory, queues: opened, sending };
        Ok(Some(sockets).filter(|sockets| !sockets.queues.is_empty()))
    }
}

/// The number of entries in the rings of each of these queues, which share the frames of a source.
fn ring_entries(layout: FrameDivision, queues: &[u32]) -> u32 {
    let queues = u32::try_from(queues.len()).unwrap_or(u32::MAX).max(1);
    (layout.frames_each / queues).max(FRAMES_MIN).next_power_of_two()
}

impl XdpMemory {
    /// Creates memory with the socket of the first queue.
    fn create(
        link: &KernelInterface,
        config: SocketConfig,
    ) -> Result<(Arc<Self>, Receiving, Sending), LiveError> {
        let OwningSocket { socket, receiving, sending, file, file_bytes } = Socket::open(link, config)?;
        let no_memory =
            |error| LiveError::Memory { interface: link.name.clone(), size: Bytes(file_bytes as u64), error };
        let mapping = Mapping::shared(file.as_fd(), 0, file_bytes, false).map_err(no_memory)?;
        let FrameDivision { frame_bytes, frames_each, sources } = config.layout;
        let pools = Arc::new(FramePools::new(sources, frames_each, frame_bytes));
        let window = PacketWindow::of_memory(file, mapping, PinPolicy::Frames(Arc::clone(&pools)));
        let Some(receiving) = receiving else {
            return Err(no_memory(std::io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let (first, window) = (Arc::new(socket), Arc::new(window));
        Ok((Arc::new(Self { interface: link.index, first, pools, window }), receiving, sending))
    }

    /// The division of the memory into frames.
    pub(super) fn layout(&self) -> FrameDivision {
        self.first.layout()
    }
}
