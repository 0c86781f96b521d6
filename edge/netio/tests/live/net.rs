//! A network namespace for each test, which disappears with its thread.

use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// Moves this thread into a new, empty network namespace. Returns false, with a message on standard error, if that is
/// not permitted.
#[must_use]
pub fn new_namespace() -> bool {
    // SAFETY: only an integer is passed; the namespace of this thread alone changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let _ = writeln!(io::stderr(), "skipped: needs root ({})", io::Error::last_os_error());
        return false;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        let _ = writeln!(io::stderr(), "skipped: needs ip(8) (Debian: iproute2)");
        return false;
    }
    // Otherwise the host's own packets would be among the test's.
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

/// Runs several commands of `ip`, one on each line.
pub fn batch(lines: &str) {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Creates two interfaces `a` and `b` with a cable between them, both up. Returns false if that is not possible.
#[must_use]
pub fn cable() -> bool {
    if !new_namespace() {
        return false;
    }
    plug();
    settle();
    true
}

/// Creates the cable and sets up both ends.
pub fn plug() {
    ip("link add name a type veth peer name b");
    ip("link set dev a up");
    ip("link set dev b up");
}

/// Waits until the kernel has detected the carrier at both ends.
pub fn settle() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < crate::frames::PATIENCE {
        if shown("a").contains("\"operstate\":\"UP\"") && shown("b").contains("\"operstate\":\"UP\"") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the cable does not come up")
}

/// A sender of raw frames.
pub struct Sender(OwnedFd);

impl Sender {
    pub fn new(interface: &str) -> Sender {
        // SAFETY: only integers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptor was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let name = std::ffi::CString::new(interface).unwrap();
        // SAFETY: a string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        assert!(index > 0, "{interface}");
        // SAFETY: for an address, zeros are valid.
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

/// The output of ip(8) for an interface.
fn shown(interface: &str) -> String {
    let output = Command::new("ip").args(["-s", "-j", "link", "show", "dev", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The packets that an interface has dropped before any socket received them.
pub fn lost(interface: &str) -> u64 {
    let text = shown(interface);
    let received = text.split("\"rx\":").nth(1).unwrap();
    let dropped = received.split("\"dropped\":").nth(1).unwrap();
    dropped.split([',', '}']).next().unwrap().parse().unwrap()
}
