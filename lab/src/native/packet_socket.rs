//! A bare packet socket: what there is to compare receiving with.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Packets of an interface, copied out of the kernel one by one.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// For all packets that arrive on an interface. Waiting for one ends after so long.
    ///
    /// # Errors
    /// There is none of that name, or the process may not.
    pub fn open(interface: &str, patience: Duration) -> io::Result<Self> {
        let protocol = u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be();
        // SAFETY: integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = CString::new(interface).map_err(io::Error::other)?;
        // SAFETY: a string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let seconds = libc::time_t::try_from(patience.as_secs()).unwrap_or(1);
        let time = libc::timeval { tv_sec: seconds, tv_usec: patience.subsec_micros().into() };
        let len = |of: usize| libc::socklen_t::try_from(of).unwrap_or(0);
        // SAFETY: the kernel reads a whole timeval that lives until the call returns.
        let set = unsafe {
            let value = (&raw const time).cast();
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                value,
                len(size_of_val(&time)),
            )
        };
        // SAFETY: zeros are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or(0);
        address.sll_protocol = protocol;
        address.sll_ifindex = i32::try_from(index).unwrap_or(0);
        // SAFETY: the kernel reads a whole address that lives until the call returns.
        let bound =
            unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len(size_of_val(&address))) };
        if set != 0 || bound != 0 { Err(io::Error::last_os_error()) } else { Ok(Self(fd)) }
    }

    /// The next packet; none when none came in time.
    ///
    /// # Errors
    /// What the system says.
    pub fn next<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        // SAFETY: the kernel writes at most the buffer's length into it.
        let got = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(got) {
            Ok(len) => Ok(buffer.get(..len)),
            Err(_) => match io::Error::last_os_error() {
                error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    Ok(None)
                }
                error => Err(error),
            },
        }
    }
}
