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
    // IPv6 is disabled, so that the host's own packets are not among those of the test.
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

/// Creates a network namespace with a veth pair, `a` and `b`, both up. Returns false if that is not possible.
#[must_use]
pub fn create_veth_pair() -> bool {
    if !new_namespace() {
        return false;
    }
    add_veth_pair();
    wait_for_carriers();
    true
}

/// Creates the veth pair in this namespace, and sets up both ends.
pub fn add_veth_pair() {
    ip("link add name a type veth peer name b");
    ip("link set dev a up");
    ip("link set dev b up");
}

/// Waits until the kernel has detected the carrier at both ends.
pub fn wait_for_carriers() {
    let begin = std::time::Instant::now();
    while begin.elapsed() < crate::frames::ARRIVAL_TIME_MAX {
        if link_statistics("a").contains("\"operstate\":\"UP\"")
            && link_statistics("b").contains("\"operstate\":\"UP\"")
        {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the veth pair has no carrier")
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

/// The state and the counters of an interface, as JSON of ip(8).
fn link_statistics(interface: &str) -> String {
    let output = Command::new("ip").args(["-s", "-j", "link", "show", "dev", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The packets that an interface has dropped before any socket received them.
pub fn lost(interface: &str) -> u64 {
    let text = link_statistics(interface);
    let received = text.split("\"rx\":").nth(1).unwrap();
    let dropped = received.split("\"dropped\":").nth(1).unwrap();
    dropped.split([',', '}']).next().unwrap().parse().unwrap()
}
