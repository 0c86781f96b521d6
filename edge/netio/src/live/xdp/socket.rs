//! An XDP socket with its memory and rings.

use super::frames::ReturnedFrames;
use super::rings::XdpRing;
use crate::live::error::LiveError;
use crate::live::netlink::KernelInterface;
use crate::live::sys::{self, Plain};
use crate::memory::{Mapping, sealed_file_with_extra};
use crate::pin::PinPolicy;
use crate::window::PacketWindow;
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
const CAPABILITY: &str = "cap_net_raw";

/// The parameters of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketConfig {
    pub(super) queue: u32,
    pub(super) zero_copy: bool,
    /// The memory for received packets; zero if the socket only sends.
    pub(super) memory: Bytes,
}

/// A bound socket and the memory that it shares with the kernel. The memory begins with the frames for receiving, which
/// are a sealed memory file. The frames for sending follow. They are in no file, because modules must not see packets
/// that other modules send.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    memory: Mapping,
    /// The length of a frame in bytes, a power of two.
    pub(super) frame_bytes: u32,
    /// The number of frames for receiving.
    pub(super) frames: u32,
}

/// The rings for receiving. The kernel takes free frames from `fill` and returns them with packets in `received`.
#[derive(Debug)]
pub(super) struct Receiving {
    /// Frames that are to be returned to the kernel.
    pub(super) returned: Arc<ReturnedFrames>,
    pub(super) fill: XdpRing<u64>,
    pub(super) received: XdpRing<libc::xdp_desc>,
    pub(super) window: Arc<PacketWindow>,
}

/// The rings for sending. The kernel takes frames with packets from `to_send` and returns them in `completed`.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) to_send: XdpRing<libc::xdp_desc>,
    pub(super) completed: XdpRing<u64>,
}

impl Socket {
    pub(super) fn open(
        link: &KernelInterface,
        config: SocketConfig,
    ) -> Result<(Self, Option<Receiving>, Sending), LiveError> {
        let name = &link.name;
        let system = |what| LiveError::system(name, what);
        let fd =
            sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => LiveError::Unsupported {
                    interface: name.clone(),
                    what: "AF_XDP",
                    error,
                    instead: "use AF_PACKET, or a kernel with CONFIG_XDP_SOCKETS",
                },
                _ => LiveError::refused(name, "opening an XDP socket", CAPABILITY)(error),
            })?;
        let needs_long_frames = link.mtu.saturating_add(LINK_HEADER).saturating_add(HEADROOM) > 2048;
        let frame_bytes = if needs_long_frames { 4096 } else { 2048 };
        // The sizes of two rings have to match, so the number of frames is rounded to a power of two.
        let frames = u32::try_from(config.memory.0.min(1 << 30) / u64::from(frame_bytes)).unwrap_or(0);
        let frames = if frames == 0 { 0 } else { 1 << frames.max(64).ilog2() };
        let bytes = |frames: u32| frames as usize * frame_bytes as usize;
        let (receive_bytes, send_bytes) = (bytes(frames), bytes(SEND_FRAMES));
        let size = Bytes((receive_bytes + send_bytes) as u64);
        let no_memory = |error| LiveError::Memory { interface: name.clone(), size, error };
        let page = usize::try_from(crate::memory::page_bytes()).unwrap_or(4096);
        // A socket that only sends gets one unused page, since a file cannot be empty.
        let (file, memory) =
            sealed_file_with_extra(c"weir-frames", receive_bytes.max(page), send_bytes).map_err(no_memory)?;
        let region = libc::xdp_umem_reg {
            addr: memory.base().addr().get() as u64,
            len: memory.len() as u64,
            chunk_size: frame_bytes,
            ..libc::xdp_umem_reg::zeroed()
        };
        let set = |option, value: u32| sys::set_option(fd.as_fd(), libc::SOL_XDP, option, &value);
        sys::set_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &region).map_err(no_memory)?;
        let fill_size = frames.max(64);
        set(libc::XDP_UMEM_FILL_RING, fill_size).map_err(no_memory)?;
        set(libc::XDP_UMEM_COMPLETION_RING, SEND_FRAMES).map_err(no_memory)?;
        if frames > 0 {
            set(libc::XDP_RX_RING, frames).map_err(no_memory)?;
        }
        set(libc::XDP_TX_RING, SEND_FRAMES).map_err(no_memory)?;
        let offsets: libc::xdp_mmap_offsets =
            sys::get_option(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
                .map_err(system("asking for rings"))?;
        let sending = Sending {
            to_send: XdpRing::map(fd.as_fd(), offset(libc::XDP_PGOFF_TX_RING), offsets.tx, SEND_FRAMES)
                .map_err(no_memory)?,
            completed: XdpRing::map(
                fd.as_fd(),
                libc::XDP_UMEM_PGOFF_COMPLETION_RING,
                offsets.cr,
                SEND_FRAMES,
            )
            .map_err(no_memory)?,
        };
        let receiving = if frames == 0 {
            None
        } else {
            let mapping = Mapping::shared(file.as_fd(), 0, receive_bytes, false).map_err(no_memory)?;
            let returned = Arc::new(ReturnedFrames::new(frames, frame_bytes));
            Some(Receiving {
                fill: XdpRing::map(fd.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, fill_size)
                    .map_err(no_memory)?,
                received: XdpRing::map(fd.as_fd(), offset(libc::XDP_PGOFF_RX_RING), offsets.rx, frames)
                    .map_err(no_memory)?,
                window: Arc::new(PacketWindow::of_memory(
                    file,
                    mapping,
                    PinPolicy::Frames(Arc::clone(&returned)),
                )),
                returned,
            })
        };
        let socket = Self { fd, memory, frame_bytes, frames };
        socket.bind(link, config)?;
        Ok((socket, receiving, sending))
    }

    fn bind(&self, link: &KernelInterface, config: SocketConfig) -> Result<(), LiveError> {
        let name = &link.name;
        let mode = if config.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).unwrap_or_default(),
            sxdp_flags: mode | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: link.index,
            sxdp_queue_id: config.queue,
            ..libc::sockaddr_xdp::zeroed()
        };
        sys::retry_while_busy(|| sys::bind(self.fd(), &address)).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => LiveError::Busy { interface: name.clone(), what: "the queue for AF_XDP" },
            Some(libc::EOPNOTSUPP) if config.zero_copy => LiveError::Unsupported {
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

    /// The offset in `memory` at which the frames for sending begin.
    pub(super) fn send_base(&self) -> u64 {
        self.memory.len() as u64 - u64::from(SEND_FRAMES) * u64::from(self.frame_bytes)
    }

    /// Copies a packet into the frame for sending at `address`, which the kernel must not have. Returns false if the
    /// address is no such frame, or the packet is too long.
    ///
    /// # Safety
    ///
    /// `from` must be readable for `len` bytes.
    pub(super) unsafe fn copy(&self, from: *const u8, len: usize, address: u64) -> bool {
        let inside =
            address >= self.send_base() && address.saturating_add(len as u64) <= self.memory.len() as u64;
        let (true, Ok(offset)) = (inside && len <= self.frame_bytes as usize, usize::try_from(address))
        else {
            return false;
        };
        // SAFETY: readable by the caller's contract; the target is inside the frames for sending by the check above.
        unsafe { weir_os::memory::copy_once(from, self.memory.base().as_ptr().add(offset), len) };
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

fn offset(of: libc::off_t) -> u64 {
    u64::try_from(of).unwrap_or(0)
}
