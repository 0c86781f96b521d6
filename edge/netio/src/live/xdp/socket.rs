//! An XDP socket with its memory and rings.

use super::rings::XdpRing;
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::sys::{self, Plain};
use crate::memory::{Mapping, sealed_file_with_extra};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use weir_units::Bytes;

/// The space that the kernel keeps in front of each packet (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// The length of a link header with two VLAN tags.
const LINK_HEADER: u32 = 22;
/// The number of frames for sending, and of entries in the rings for sending.
pub(super) const SEND_FRAMES: u32 = 2048;
/// The least number of entries of a ring, and of frames of a source.
pub(super) const FRAMES_MIN: u32 = 64;
const CAPABILITY: &str = "cap_net_raw";

/// The division of an interface's memory into frames for received packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameDivision {
    /// The length of a frame in bytes, a power of two.
    pub(super) frame_bytes: u32,
    /// The number of frames of each source of a group, a power of two; zero if the socket only sends.
    pub(super) frames_each: u32,
    /// The number of sources.
    pub(super) sources: u32,
}

impl FrameDivision {
    pub(super) fn new(link: &KernelInterface, memory: Bytes, sources: usize) -> Self {
        let needs_long_frames = link.mtu.saturating_add(LINK_HEADER).saturating_add(HEADROOM) > 2048;
        let frame_bytes = if needs_long_frames { 4096 } else { 2048 };
        let sources = u32::try_from(sources).unwrap_or(1).max(1);
        // The sizes of two rings have to match, so the number of frames is rounded to a power of two.
        let each = memory.0.min(1 << 30) / u64::from(frame_bytes) / u64::from(sources);
        let each = u32::try_from(each).unwrap_or(0);
        let frames_each = if memory.0 == 0 { 0 } else { 1 << each.max(FRAMES_MIN).ilog2() };
        Self { frame_bytes, frames_each, sources }
    }

    /// The number of frames for receiving.
    fn frames(self) -> u32 {
        self.frames_each.saturating_mul(self.sources)
    }

    /// The addresses of the frames of a source.
    pub(super) fn addresses(self, place: usize) -> impl Iterator<Item = u64> {
        let first = u64::try_from(place).unwrap_or(0) * u64::from(self.frames_each);
        (first..first + u64::from(self.frames_each)).map(move |frame| frame * u64::from(self.frame_bytes))
    }
}

/// The parameters of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketConfig {
    pub(super) queue: u32,
    pub(super) zero_copy: bool,
    pub(super) layout: FrameDivision,
    /// The number of entries in each ring for receiving, a power of two.
    pub(super) entries: u32,
}

/// Memory that the sockets of an interface share with the kernel. It begins with the frames for receiving, which are a
/// sealed memory file. The frames for sending follow. They are in no file, because modules must not see packets that
/// other modules send.
#[derive(Debug)]
struct Memory {
    mapping: Mapping,
    layout: FrameDivision,
}

/// A bound socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    memory: Arc<Memory>,
    /// The length of a frame in bytes, a power of two.
    pub(super) frame_bytes: u32,
}

/// The rings for receiving. The kernel takes free frames from `fill` and returns them with packets in `received`.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) fill: XdpRing<u64>,
    pub(super) received: XdpRing<libc::xdp_desc>,
}

/// The rings for sending. The kernel takes frames with packets from `to_send` and returns them in `completed`.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) to_send: XdpRing<libc::xdp_desc>,
    pub(super) completed: XdpRing<u64>,
}

/// An opened socket that has memory of its own.
#[derive(Debug)]
pub(super) struct OwningSocket {
    pub(super) socket: Socket,
    pub(super) receiving: Option<Receiving>,
    pub(super) sending: Sending,
    /// The file of the frames for receiving.
    pub(super) file: File,
    /// The length of these frames in bytes.
    pub(super) file_bytes: usize,
}

impl Socket {
    /// Opens a socket with new memory.
    pub(super) fn open(link: &KernelInterface, config: SocketConfig) -> Result<OwningSocket, LiveError> {
        let fd = new_socket(&link.name)?;
        let layout = config.layout;
        let bytes = |frames: u32| frames as usize * layout.frame_bytes as usize;
        let (receive_bytes, send_bytes) = (bytes(layout.frames()), bytes(SEND_FRAMES));
        let size = Bytes((receive_bytes + send_bytes) as u64);
        let no_memory = |error| LiveError::Memory { interface: link.name.clone(), size, error };
        let page = weir_os::memory::page_bytes();
        // A socket that only sends gets one unused page, since a file cannot be empty.
        let file_bytes = receive_bytes.max(page);
        let (file, mapping) =
            sealed_file_with_extra(c"weir-frames", file_bytes, send_bytes).map_err(no_memory)?;
        let region = libc::xdp_umem_reg {
            addr: mapping.base().addr().get() as u64,
            len: mapping.len() as u64,
            chunk_size: layout.frame_bytes,
            ..libc::xdp_umem_reg::zeroed()
        };
        sys::set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(no_memory)?;
        let sizes = RingSizes { completed: SEND_FRAMES, received: config.entries, to_send: SEND_FRAMES };
        let Rings { receiving, to_send: Some(to_send), completed } =
            sizes.create(fd.as_fd()).map_err(no_memory)?
        else {
            return Err(no_memory(io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let memory = Arc::new(Memory { mapping, layout });
        let socket = Self { fd, memory, frame_bytes: layout.frame_bytes };
        let mode = if config.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        socket.bind(link, config.queue, mode | libc::XDP_USE_NEED_WAKEUP, None)?;
        let sending = Sending { to_send, completed };
        Ok(OwningSocket { socket, receiving, sending, file, file_bytes })
    }

    /// Opens a socket of another queue, which receives into the memory of this one.
    pub(super) fn open_sharing(
        &self,
        link: &KernelInterface,
        queue: u32,
        entries: u32,
    ) -> Result<(Self, Receiving), LiveError> {
        let fd = new_socket(&link.name)?;
        let size = Bytes(u64::from(entries) * size_of::<libc::xdp_desc>() as u64);
        let no_memory = |error| LiveError::Memory { interface: link.name.clone(), size, error };
        // The kernel demands a completion ring for each queue.
        let sizes = RingSizes { completed: FRAMES_MIN, received: entries, to_send: 0 };
        let Some(receiving) = sizes.create(fd.as_fd()).map_err(no_memory)?.receiving else {
            return Err(no_memory(io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let socket = Self { fd, memory: Arc::clone(&self.memory), frame_bytes: self.frame_bytes };
        // Copy mode and wake-ups are as for the first socket.
        socket.bind(link, queue, libc::XDP_SHARED_UMEM, Some(self.fd()))?;
        Ok((socket, receiving))
    }

    /// Binds the socket to a queue. With `shares`, it uses the memory of that socket.
    fn bind(
        &self,
        link: &KernelInterface,
        queue: u32,
        flags: u16,
        shares: Option<BorrowedFd<'_>>,
    ) -> Result<(), LiveError> {
        let name = &link.name;
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or_default(),
            sxdp_flags: flags,
            sxdp_ifindex: link.index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: shares.map_or(0, |fd| fd.as_raw_fd().unsigned_abs()),
        };
        sys::retry_while_busy(|| sys::bind(self.fd(), &address)).map_err(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) if flags & libc::XDP_ZEROCOPY != 0 => LiveError::Unsupported {
                interface: name.clone(),
                what: "AF_XDP with zero copy",
                error,
                instead: "leave zero copy out, because the driver does not support it",
            },
            Some(libc::EINVAL) => LiveError::Option {
                interface: name.clone(),
                what: "AF_XDP cannot use this queue: the interface has fewer queues (`ethtool -l`)",
            },
            _ => LiveError::refused(name, "using a queue for AF_XDP", CAPABILITY)(error),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The address of the frame that contains `address`.
    #[inline]
    pub(super) fn frame_of(&self, address: u64) -> u64 {
        address & !(u64::from(self.frame_bytes) - 1)
    }

    /// The division of the memory into frames.
    pub(super) fn layout(&self) -> FrameDivision {
        self.memory.layout
    }

    /// The offset in `memory` at which the frames for sending begin.
    pub(super) fn send_base(&self) -> u64 {
        self.memory.mapping.len() as u64 - u64::from(SEND_FRAMES) * u64::from(self.frame_bytes)
    }

    /// Copies a packet into the frame for sending at `address`, which the kernel must not have. Returns false if the
    /// address is no such frame, or the packet is too long.
    ///
    /// # Safety
    ///
    /// `from` must be readable for `len` bytes.
    pub(super) unsafe fn copy(&self, from: *const u8, len: usize, address: u64) -> bool {
        let inside = address >= self.send_base()
            && address.saturating_add(len as u64) <= self.memory.mapping.len() as u64;
        let (true, Ok(offset)) = (inside && len <= self.frame_bytes as usize, usize::try_from(address))
        else {
            return false;
        };
        // SAFETY: readable by the caller's contract; the target is inside the frames for sending by the check above.
        unsafe { weir_os::memory::copy_once(from, self.memory.mapping.base().as_ptr().add(offset), len) };
        true
    }

    /// Lets the kernel send waiting packets.
    pub(super) fn wake_sender(&self) -> io::Result<()> {
        // SAFETY: the message is empty, so no memory is read.
        let done = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the driver take new frames. Errors are ignored: the kernel also reports one if no packet has arrived.
    pub(super) fn wake_receiver(&self) {
        // SAFETY: the buffer is empty, so no memory is written.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            );
        }
    }
}

fn new_socket(name: &str) -> Result<OwnedFd, LiveError> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => LiveError::Unsupported {
            interface: name.to_owned(),
            what: "AF_XDP",
            error,
            instead: "use AF_PACKET, or a kernel with CONFIG_XDP_SOCKETS",
        },
        _ => LiveError::refused(name, "opening an XDP socket", CAPABILITY)(error),
    })
}

/// The numbers of entries of a socket's rings, powers of two; zero for a ring that does not exist. The ring of free
/// frames has as many entries as that of received packets.
struct RingSizes {
    completed: u32,
    received: u32,
    to_send: u32,
}

/// The rings of a socket.
struct Rings {
    receiving: Option<Receiving>,
    to_send: Option<XdpRing<libc::xdp_desc>>,
    completed: XdpRing<u64>,
}

impl RingSizes {
    /// Creates and maps the rings of a socket that is not bound yet.
    fn create(&self, fd: BorrowedFd<'_>) -> io::Result<Rings> {
        let set = |option, entries: u32| match entries {
            0 => Ok(()),
            _ => sys::set_option(fd, libc::SOL_XDP, option, &entries),
        };
        // The kernel demands a ring of free frames, even of a socket that only sends.
        let fill = self.received.max(FRAMES_MIN);
        set(libc::XDP_UMEM_FILL_RING, fill)?;
        set(libc::XDP_UMEM_COMPLETION_RING, self.completed)?;
        set(libc::XDP_RX_RING, self.received)?;
        set(libc::XDP_TX_RING, self.to_send)?;
        let offsets: libc::xdp_mmap_offsets = sys::get_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let receiving = if self.received == 0 {
            None
        } else {
            Some(Receiving {
                fill: XdpRing::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, fill)?,
                received: XdpRing::map(fd, offset(libc::XDP_PGOFF_RX_RING), offsets.rx, self.received)?,
            })
        };
        let to_send = if self.to_send == 0 {
            None
        } else {
            Some(XdpRing::map(fd, offset(libc::XDP_PGOFF_TX_RING), offsets.tx, self.to_send)?)
        };
        let completed = XdpRing::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, self.completed)?;
        Ok(Rings { receiving, to_send, completed })
    }
}

fn offset(of: libc::off_t) -> u64 {
    u64::try_from(of).unwrap_or(0)
}
