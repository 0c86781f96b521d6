//! The node: this program again, as another process. It accepts all clients except those with the credential
//! `nothing`, and echoes their data.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_remote::{Acceptor, ConnectError, PendingPeer, SecureStream};
use weir_trust::gate::{GateLimits, RateLimit};
use weir_trust::key::{Identity, PublicKey};
use weir_units::Nanos;

/// The variable with the limits of the other process.
const LIMITS: &str = "WEIR_REMOTE_TEST_NODE";
/// The longest time for an honest operation, on the slowest machines.
pub const PATIENCE: Duration = Duration::from_secs(120);
pub const CREDENTIALS: &[u8] = b"what the client may do";
pub const NOTHING: &[u8] = b"nothing";
pub const OFFERS: &[u8] = b"what the node is";

pub fn identity() -> Identity {
    Identity::from_seed(&[1; 32])
}

pub fn client() -> Identity {
    Identity::from_seed(&[2; 32])
}

/// A node's process. Dropping it ends the process.
pub struct Node {
    child: Child,
    /// Its output. Kept open, because writing to a closed pipe would end the process.
    _says: BufReader<ChildStdout>,
    pub address: SocketAddr,
}

impl Node {
    /// With so many half-open handshakes, and this deadline for each.
    pub fn start(half_open: usize, deadline: Duration) -> Self {
        Self::with(half_open, deadline, 1000)
    }

    /// As [`Self::start`], with `burst` answers to a source at once, and another one each second.
    pub fn with(half_open: usize, deadline: Duration, burst: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node::serve_as_a_process_of_its_own", "--ignored", "--nocapture"])
            .env(LIMITS, format!("{half_open} {} {burst}", deadline.as_nanos()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert_ne!(says.read_line(&mut line).unwrap(), 0, "the node ended");
            // The test harness prints something too, perhaps on the same line.
            if let Some((_, address)) = line.split_once("listens at ") {
                break address.trim().parse().unwrap();
            }
        };
        Self { child, _says: says, address }
    }

    pub fn key(&self) -> PublicKey {
        identity().public()
    }

    pub fn connect(&self) -> Result<SecureStream, ConnectError> {
        self.connect_at(self.address)
    }

    /// Connects through another address.
    pub fn connect_at(&self, address: SocketAddr) -> Result<SecureStream, ConnectError> {
        weir_remote::connect(address, &client(), Some(self.key()), CREDENTIALS, PATIENCE)
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Connects from a certain address of this machine.
pub fn connect_from(source: IpAddr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let (IpAddr::V4(source), SocketAddr::V4(to)) = (source, to) else { panic!("these tests are IPv4's") };
    let fd: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddrV4::new(source, 0)).unwrap();
    connect(&fd, &to).unwrap();
    TcpStream::from(fd)
}

/// Returns whether the other side closes silently.
pub fn is_closed_silently(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// The other process. Does nothing unless started by a test.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn serve_as_a_process_of_its_own() {
    let Ok(limits) = std::env::var(LIMITS) else { return };
    let limits: Vec<u64> = limits.split(' ').map(|number| number.parse().unwrap()).collect();
    let limits = GateLimits {
        half_open: usize::try_from(limits[0]).unwrap(),
        deadline: Nanos(limits[1]),
        source: RateLimit { every: Nanos::SECOND, burst: u32::try_from(limits[2]).unwrap() },
        waiting: 0,
        unproven: RateLimit { every: Nanos::MILLISECOND, burst: 100_000 },
        ..GateLimits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listens at {}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let serve = |peer: PendingPeer| {
            std::thread::spawn(move || {
                let Ok(peer) = peer.authenticate() else { return };
                if peer.peer().credentials == NOTHING {
                    return;
                }
                if let Ok(stream) = peer.accept(OFFERS) {
                    // A connection's error concerns only its client.
                    _ = echo(stream);
                }
            });
        };
        Acceptor::new(limits).serve(listener, &identity(), &AtomicBool::new(false), serve, || {}).unwrap();
    });
    // Until the starter is gone.
    _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn echo(mut stream: SecureStream) -> std::io::Result<()> {
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    let mut bytes = [0; 10_000];
    loop {
        match stream.read(&mut bytes)? {
            0 => return stream.finish(),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}
