//! Time stamps of packets by the network card.

use super::error::LiveError;
use super::sys;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kernel's `struct hwtstamp_config` (linux/net_tstamp.h): which packets a network card stamps with the time.
#[repr(C)]
struct Config {
    flags: libc::c_int,
    tx_type: libc::c_int,
    rx_filter: libc::c_int,
}
/// The value of `rx_filter` for all received packets: `HWTSTAMP_FILTER_ALL`.
const RECEIVE_ALL: libc::c_int = 1;

/// Makes the card stamp all received packets with the time, and the socket use these time stamps.
pub(crate) fn enable(name: &str, fd: BorrowedFd<'_>) -> Result<(), LiveError> {
    let mut config = Config { flags: 0, tx_type: 0, rx_filter: RECEIVE_ALL };
    // SAFETY: a request of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    sys::set_interface_name(&mut request, name);
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    // SAFETY: the kernel reads and writes the request and the configuration it points to, both alive here.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSHWTSTAMP as libc::Ioctl, &raw mut request) };
    const WHAT: &str = "time stamps of the network card";
    match sys::checked(done) {
        Ok(_) => {}
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            return Err(LiveError::refused(name, WHAT, "cap_net_admin")(error));
        }
        Err(error) => {
            let instead = "use the kernel's time stamps";
            return Err(LiveError::Unsupported { interface: name.to_owned(), what: WHAT, error, instead });
        }
    }
    let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &source)
        .map_err(LiveError::system(name, WHAT))
}
