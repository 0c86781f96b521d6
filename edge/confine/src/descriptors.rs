//! Open descriptors that go from one process to another, through a socket between them (SCM_RIGHTS in unix(7)).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Room for what goes with a message of one descriptor.
#[repr(align(8))]
struct Beside([u8; 64]);

/// Sends a byte, and a descriptor with it.
pub(crate) fn give(through: BorrowedFd<'_>, given: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [0u8];
    let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut beside = Beside([0; 64]);
    let mut message = message(&mut bytes, &mut beside);
    let len = u32::try_from(mem::size_of::<RawFd>()).unwrap_or_default();
    // SAFETY: computes with a number alone.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as usize;
    // SAFETY: the message points to live locals with room for the head and one descriptor, which is what is written.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(len) as usize;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast::<RawFd>(), given.as_raw_fd());
    }
    // SAFETY: the message and what it points to are live for the call.
    match unsafe { libc::sendmsg(through.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) } {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes a byte, and the descriptor that comes with it.
pub(crate) fn take(through: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut byte = [0u8];
    let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut beside = Beside([0; 64]);
    let mut message = message(&mut bytes, &mut beside);
    // SAFETY: the message and what it points to are live for the call, with the lengths that it says.
    let taken = unsafe { libc::recvmsg(through.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the message in; the head is null or lies in `beside`, and of the kind and length that are looked at it is followed by a
    // descriptor, which is new and nobody else's.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        let len = u32::try_from(mem::size_of::<RawFd>()).unwrap_or_default();
        if head.is_null()
            || (*head).cmsg_level != libc::SOL_SOCKET
            || (*head).cmsg_type != libc::SCM_RIGHTS
            || (*head).cmsg_len != libc::CMSG_LEN(len) as usize
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no descriptor came"));
        }
        Ok(OwnedFd::from_raw_fd(ptr::read_unaligned(libc::CMSG_DATA(head).cast::<RawFd>())))
    }
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
