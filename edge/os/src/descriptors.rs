//! Sends open descriptors to another process and receives them, through a Unix-domain socket (SCM_RIGHTS in unix(7)).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// The most descriptors in one message.
pub(crate) const DESCRIPTORS_MAX: usize = 3;

/// The buffer for the ancillary data of a message, which has the descriptors.
#[repr(align(8))]
struct AncillaryBuffer([u8; 32]);

/// Returns false once the reader of a pipe has closed it. Never waits.
pub fn has_reader(pipe: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    // An error of the call itself says nothing about the reader.
    let _ = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// The bytes that this many descriptors take in ancillary data.
const fn bytes_of(descriptors: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let len = (descriptors * mem::size_of::<RawFd>()) as u32;
    len
}

/// Sends one byte, and a descriptor with it.
pub(crate) fn send_one(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    send(socket, &[0], &[descriptor])
}

/// Receives a byte, and the descriptor that comes with it.
pub(crate) fn receive_one(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (_, mut descriptors) = receive(socket, &mut [0])?;
    descriptors
        .pop()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message has no descriptor"))
}

/// Sends these bytes, and at most [`DESCRIPTORS_MAX`] descriptors with them.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, bytes, descriptors, libc::MSG_NOSIGNAL)
}

/// Sends as [`send`] does, but fails with [`io::ErrorKind::WouldBlock`] if the socket is full.
pub(crate) fn send_now(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_with(socket, bytes, descriptors, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
}

fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: libc::c_int,
) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut parts = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut ancillary = AncillaryBuffer([0; 32]);
    let mut message = message(&mut parts, &mut ancillary);
    if descriptors.is_empty() {
        (message.msg_control, message.msg_controllen) = (ptr::null_mut(), 0);
    } else {
        let len = bytes_of(descriptors.len());
        // SAFETY: only computes with a number.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as usize;
        // SAFETY: `msg_control` points to a live local with room for a header and `DESCRIPTORS_MAX` descriptors, and no
        // more than these are written.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(len) as usize;
            let data = libc::CMSG_DATA(head).cast::<RawFd>();
            for (at, descriptor) in descriptors.iter().enumerate() {
                ptr::write_unaligned(data.add(at), descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: the message and the buffers that it points to are live during the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Receives at most `to.len()` bytes of a message, and the descriptors that come with the message. Returns the number of
/// bytes, and the descriptors.
pub(crate) fn receive(socket: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut parts = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut ancillary = AncillaryBuffer([0; 32]);
    let mut message = message(&mut parts, &mut ancillary);
    // SAFETY: the message and the buffers that it points to are live during the call, and have the lengths given in it.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the message in. The header is null or lies in `ancillary`. A header of type
    // SCM_RIGHTS is followed by descriptors up to its length; the kernel has just created them, so they have no other
    // owner.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        if !head.is_null() && (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS
        {
            let len = (*head).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(head).cast::<RawFd>();
            for at in 0..len / mem::size_of::<RawFd>() {
                descriptors.push(OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(at))));
            }
        }
    }
    Ok((received, descriptors))
}

/// Returns a message header for these bytes, with all of `ancillary` for ancillary data.
fn message(bytes: &mut libc::iovec, ancillary: &mut AncillaryBuffer) -> libc::msghdr {
    // SAFETY: a msghdr consists of numbers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.0.as_mut_ptr().cast();
    message.msg_controllen = ancillary.0.len();
    message
}
