//! Connections from an address of this machine's own choice.

use std::io;
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};

/// Connects from one address to another one. The standard library cannot choose the first.
///
/// # Errors
/// The system's error.
pub fn connect_from(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<TcpStream> {
    // SAFETY: there are no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nothing else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(socket) };
    let (from, to) = (system(from), system(to));
    let bytes = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>()).unwrap_or(0);
    // SAFETY: the pointers are to live locals of that size.
    let is_bound = unsafe { libc::bind(socket, (&raw const from).cast(), bytes) } == 0;
    // SAFETY: the same.
    if !is_bound || unsafe { libc::connect(socket, (&raw const to).cast(), bytes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpStream::from(owned))
}

/// An address as the system has it.
fn system(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: address.ip().to_bits().to_be() },
        sin_zero: [0; 8],
    }
}
