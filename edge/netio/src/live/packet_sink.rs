//! Sending of packets with AF_PACKET.

use super::error::LiveError;
use super::netlink::KernelInterface;
use super::sink::{SendRefused, SharedBytes};
use super::sys::{self, Plain};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The most packets sent with one system call.
pub(crate) const BATCH: usize = 64;
/// The bytes of the socket's send buffer that the kernel charges for a packet of full length (`truesize`): those of its
/// `sk_buff`, and half a page for its data.
const PACKET_BYTES: usize = 2304;
/// The requested size of the send buffer in bytes. The kernel may provide less.
const BUFFER_BYTES: libc::c_int = 4 << 20;

/// A packet socket that only sends.
#[derive(Debug)]
pub(crate) struct PacketSink {
    fd: OwnedFd,
    /// The size of the socket's send buffer in bytes.
    buffer_bytes: usize,
}

impl PacketSink {
    pub(crate) fn open(link: &KernelInterface) -> Result<Self, LiveError> {
        let name = &link.name;
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)
            .map_err(LiveError::refused(name, "opening a packet socket", "cap_net_raw"))?;
        let mut address = libc::sockaddr_ll::zeroed();
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
        address.sll_ifindex = libc::c_int::try_from(link.index).unwrap_or(-1);
        sys::bind(fd.as_fd(), &address).map_err(LiveError::system(name, "choosing where to send"))?;
        let system = LiveError::system(name, "reading the size of the send buffer");
        // A buffer beyond the system's limit needs a privilege. The actual size is read below.
        if sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER_BYTES).is_err() {
            let _ = sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &BUFFER_BYTES);
        }
        let buffer: libc::c_int =
            sys::get_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF).map_err(system)?;
        Ok(Self { fd, buffer_bytes: usize::try_from(buffer).unwrap_or(0) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The number of packets of full length for which the send buffer has space.
    pub(crate) fn room(&self) -> usize {
        let mut waiting: libc::c_int = 0;
        // SAFETY: the kernel writes one integer.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
        if done != 0 {
            return 0;
        }
        self.buffer_bytes.saturating_sub(usize::try_from(waiting).unwrap_or(usize::MAX)) / PACKET_BYTES
    }

    /// Sends as many of the first packets as possible and returns their number; or the reason why no packet was
    /// sent.
    pub(crate) fn send(&self, pieces: &[SharedBytes]) -> Result<usize, SendRefused> {
        let count = pieces.len().min(BATCH);
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        // SAFETY: for a message, zeros are valid and mean no contents.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for ((piece, vector), message) in pieces.iter().zip(&mut vectors).zip(&mut messages) {
            *vector = libc::iovec { iov_base: piece.base.cast_mut().cast(), iov_len: piece.len };
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let count = libc::c_uint::try_from(count).unwrap_or(0);
        // SAFETY: `count` messages, each with one vector, whose bytes are readable during this call; the kernel
        // writes only the messages' lengths.
        let sent =
            unsafe { libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        match usize::try_from(sent) {
            Ok(sent @ 1..) => Ok(sent),
            Ok(0) => Err(SendRefused::Full),
            Err(_) => Err(io::Error::last_os_error().into()),
        }
    }
}
