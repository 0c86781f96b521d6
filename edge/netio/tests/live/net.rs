//! A network namespace for each test: gone with its thread, whatever happens.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

/// Moves this thread into a new, empty network namespace; false, said on standard error, where it may not.
#[must_use]
pub fn new_namespace() -> bool {
    // SAFETY: an integer only; the namespace of this thread alone changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        eprintln!("skipped: needs root ({})", io::Error::last_os_error());
        return false;
    }
    // The host's own packets would be between the test's.
    for conf in ["all", "default"] {
        let path = format!("/proc/thread-self/root/proc/sys/net/ipv6/conf/{conf}/disable_ipv6");
        let _ = std::fs::write(path, "1");
    }
    true
}

/// Runs `ip` with these arguments.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip(8) is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two interfaces `a` and `b` with a cable between them, both up. False where that is not possible.
#[must_use]
pub fn cable() -> bool {
    if !new_namespace() {
        return false;
    }
    ip("link add name a type veth peer name b");
    ip("link set dev a up");
    ip("link set dev b up");
    true
}

/// Sends frames as they are.
pub struct Sender(OwnedFd);

impl Sender {
    pub fn new(interface: &str) -> Sender {
        // SAFETY: integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: a new descriptor that is nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: a string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        assert!(index > 0, "{interface}");
        // SAFETY: zeros are an address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = index as i32;
        let len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the kernel reads `len` bytes of the address.
        let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        Sender(fd)
    }

    pub fn send(&self, frame: &[u8]) {
        loop {
            // SAFETY: the kernel reads the frame's bytes.
            let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            if sent == frame.len() as isize {
                return;
            }
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
        }
    }
}
