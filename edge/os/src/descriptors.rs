//! Open descriptors that go from one process to another, through a socket between them (SCM_RIGHTS in unix(7)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Descriptors that go with one message at most.
pub(crate) const DESCRIPTORS_MAX: usize = 3;

/// Room for what goes with a message.
#[repr(align(8))]
struct Beside([u8; 32]);

const fn bytes_of(descriptors: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
    let len = (descriptors * mem::size_of::<RawFd>()) as u32;
    len
}

/// Sends a byte, and a descriptor with it.
pub(crate) fn give(through: BorrowedFd<'_>, given: BorrowedFd<'_>) -> io::Result<()> {
    send(through, &[0], &[given])
}

/// Takes a byte, and the descriptor that comes with it.
pub(crate) fn take(through: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (_, mut descriptors) = receive(through, &mut [0])?;
    descriptors.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no descriptor came"))
}

/// Sends these bytes, and at most [`DESCRIPTORS_MAX`] descriptors with them.
pub(crate) fn send(through: BorrowedFd<'_>, bytes: &[u8], given: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(through, bytes, given, libc::MSG_NOSIGNAL)
}

/// Sends as [`send`] does, and fails with [`io::ErrorKind::WouldBlock`] where there is no room.
pub(crate) fn send_now(through: BorrowedFd<'_>, bytes: &[u8], given: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(through, bytes, given, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
}

fn send_with(
    through: BorrowedFd<'_>,
    bytes: &[u8],
    given: &[BorrowedFd<'_>],
    flags: libc::c_int,
) -> io::Result<()> {
    if given.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut parts = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut beside = Beside([0; 32]);
    let mut message = message(&mut parts, &mut beside);
    if given.is_empty() {
        (message.msg_control, message.msg_controllen) = (ptr::null_mut(), 0);
    } else {
        let len = bytes_of(given.len());
        // SAFETY: computes with a number alone.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as usize;
        // SAFETY: the message points to live locals with room for the head and as many descriptors, which is what is written.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(len) as usize;
            let data = libc::CMSG_DATA(head).cast::<RawFd>();
            for (at, descriptor) in given.iter().enumerate() {
                ptr::write_unaligned(data.add(at), descriptor.as_raw_fd());
            }
        }
    }
    // SAFETY: the message and what it points to are live for the call.
    let sent = unsafe { libc::sendmsg(through.as_raw_fd(), &raw const message, flags) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Takes what has come, as many bytes as there is room for, and the descriptors that come with it.
pub(crate) fn receive(through: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut parts = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut beside = Beside([0; 32]);
    let mut message = message(&mut parts, &mut beside);
    // SAFETY: the message and what it points to are live for the call, with the lengths that it says.
    let taken = unsafe { libc::recvmsg(through.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let Ok(taken) = usize::try_from(taken) else { return Err(io::Error::last_os_error()) };
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the message in; the head is null or lies in `beside`, and of this kind it is followed by as many descriptors as its length
    // says, which are new and of no other owner.
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
    Ok((taken, descriptors))
}

fn message(bytes: &mut libc::iovec, beside: &mut Beside) -> libc::msghdr {
    // SAFETY: a structure of numbers and pointers, for which zeros are values.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = bytes;
    message.msg_iovlen = 1;
    message.msg_control = beside.0.as_mut_ptr().cast();
    message.msg_controllen = beside.0.len();
    message
}
