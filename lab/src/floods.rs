//! Access to a node while peers without a right flood it: the waits of valid clients, and the node's processor time. The
//! part `floods` of the benchmark.

use crate::error::{Context, LabError};
use crate::figure::network::{VethPair, ip};
use crate::figure::node::NodeProcess;
use crate::handshake::write_key;
use crate::native::process_time;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{compile_queue, deliveries};
use rand_core::{OsRng, RngCore};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, NodeLocation};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_trust::association::{CREDENTIALS_BYTES_MAX, Initiator, SECOND_BYTES, frame};
use weir_trust::credential::Credential;
use weir_trust::grant::{Grant, UnixSecond};
use weir_trust::key::{Identity, PublicKey};

/// The node's address.
pub(crate) const NODE_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7353);
/// The number of attacking connections with random bytes as a credential.
const CONNECTIONS: u8 = 72;
/// The interval at which each of these connections is opened again.
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);
/// The number of valid clients during these attacks.
const CLIENTS: usize = 49;
/// First handshake messages that attackers send per second.
const FIRST_MESSAGES: u32 = 1000;
/// The number of source addresses of these messages.
const SOURCES: u32 = 200;
/// The number of valid clients while first messages are sent.
const CLIENTS_DURING_MESSAGES: usize = 6;
/// The duration of the measurement of processor time.
const TIME: Duration = Duration::from_secs(15);
/// The promised limit of the wait of a valid client, in seconds.
const WAIT_MAX: f64 = 1.0;
/// The promised limit of the share of a core.
const CORE_MAX: f64 = 0.1;
/// The expiry of all credentials.
pub(crate) const EXPIRES: u64 = 4_000_000_000;

/// A node under attack, its root, and the holder of a valid credential.
pub(crate) struct Target {
    pub(crate) node: PublicKey,
    pub(crate) root: Identity,
    pub(crate) holder: Identity,
    pub(crate) credential: Vec<u8>,
}

impl Target {
    /// The node's location for a client with this identity and credential.
    pub(crate) fn location_for(
        &self,
        identity: &Identity,
        credential: &[u8],
        at: SocketAddr,
    ) -> NodeLocation {
        NodeLocation::Remote {
            addresses: vec![at],
            expected: vec![self.node],
            identity: Box::new(identity.clone()),
            credential: credential.to_vec(),
        }
    }

    /// Requests the node's state `times` times, with pauses. Returns the seconds until each answer; requests without an
    /// answer are left out.
    fn answer_times(&self, times: usize, pause: Duration) -> Vec<f64> {
        let once = |_| {
            let begin = Instant::now();
            let node = self.location_for(&self.holder, &self.credential, NODE_ADDRESS.into());
            let reply = Client::connect_to(&node).and_then(|mut client| {
                client.send(ControlRequest::Show, &[])?;
                client.receive()
            });
            let wait = begin.elapsed().as_secs_f64();
            std::thread::sleep(pause);
            matches!(reply, Ok(Reply::Snapshot(_))).then_some(wait)
        };
        (0..times).filter_map(once).collect()
    }
}

/// The tables, measured in a network namespace.
pub fn table() -> Result<String, LabError> {
    ip("link set dev lo up")?;
    let _veth_pair = VethPair::new("a", "b")?;
    let folder = tempfile::tempdir().context("making a folder")?;
    let [root, own, holder] = [(); 3].map(|()| Identity::generate(&mut OsRng));
    let node = NodeProcess::start(&format!(
        "[[interface]]\nname = \"b\"\narena = \"8 MiB\"\n[remote]\nlisten = \"{NODE_ADDRESS}\"\nkey = {:?}\nname = \"ix-1.example\"\nroots = [\"{}\"]\n",
        write_key(folder.path(), &own)?.display(),
        root.public()
    ))?;
    let grant = Grant { expires: UnixSecond::new(EXPIRES), ..Grant::default() };
    let credential =
        Credential::mint(&root, holder.public(), grant, None, &mut OsRng).context("minting a credential")?;
    let target = Target { node: own.public(), root, holder, credential: credential.as_bytes().to_vec() };
    let processes: Vec<u32> = std::iter::once(node.pid()).chain(children(node.pid())).collect();

    let mut waits = Table::new(
        "valid clients | during | served | waited, s: median | quartiles | longest | promised | kept",
    );
    let mut row = |valid: usize, during: &str, served: Vec<f64>| {
        let waits_of = served.into_iter().collect::<Sample>().wait_cells(valid, WAIT_MAX);
        waits.row(format_args!("{valid} | {during} | {waits_of}"));
    };
    let answer_times = || target.answer_times(CLIENTS, Duration::from_millis(100));
    row(CLIENTS, "no attack", answer_times());
    for sources in [CONNECTIONS, 4, 1] {
        let served = with_invalid_credentials(target.node, sources, answer_times);
        let from_addresses = if sources == 1 { "their own address" } else { &format!("{sources} addresses") };
        row(
            CLIENTS,
            &format!("{CONNECTIONS} connections with invalid credentials, from {from_addresses}"),
            served,
        );
    }
    let idle = core_share(&processes, || std::thread::sleep(TIME / 3));
    let mut flooded = (Vec::new(), 0);
    let busy = core_share(&processes, || {
        flooded = with_first_messages(target.node, || {
            let begin = Instant::now();
            let served = target.answer_times(CLIENTS_DURING_MESSAGES, TIME / 8);
            std::thread::sleep(TIME.saturating_sub(begin.elapsed()));
            served
        });
    });
    let (served, sent) = flooded;
    row(
        CLIENTS_DURING_MESSAGES,
        &format!("{FIRST_MESSAGES} first messages a second, from {SOURCES} sources"),
        served,
    );
    let mut processor = Table::new("a node and its processes | of a core | promised | kept");
    processor.row(format_args!("no messages | {idle:.3} | – | –"));
    let kept = yes_or_no(busy <= CORE_MAX);
    let seconds = TIME.as_secs();
    processor
        .row(format_args!("{sent} first messages in {seconds} s | {busy:.3} | at most {CORE_MAX} | {kept}"));
    let deliveries = deliveries::table(&target).context("delivering revocation lists")?;
    let loads = compile_queue::table(&target).context("loading modules")?;
    Ok(format!(
        "Invalid credentials have {CREDENTIALS_BYTES_MAX} random bytes; each of the {CONNECTIONS} connections is opened again every {} s, with a new key. A valid client makes its handshake, and asks for the node's state.\n\n{waits}\n{processor}\n\
         Deliveries of revocation lists while seven threads from one address hold connections, each under a new key and without a credential:\n\n{deliveries}\n\
         Modules loaded by a holder of 5 % of a core while two holders of 1 % each have a module of 300 long functions compiled:\n\n{loads}",
        REOPEN_INTERVAL.as_secs()
    ))
}

/// Connects from the address `from` to the address `to`. The standard library cannot choose the source address.
pub(crate) fn connect_from(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &from)?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// Connects to the node from a loopback address with these last two bytes.
fn connect_from_loopback(address: [u8; 2]) -> io::Result<TcpStream> {
    let [high, low] = address;
    connect_from(SocketAddrV4::new(Ipv4Addr::new(127, 0, high, low), 0), NODE_ADDRESS)
}

/// Runs `work` while attackers at this number of addresses present random bytes as their credentials. Returns its result.
fn with_invalid_credentials(node: PublicKey, addresses: u8, work: impl FnOnce() -> Vec<f64>) -> Vec<f64> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..CONNECTIONS {
            let is_over = &is_over;
            scope.spawn(move || {
                std::thread::sleep(REOPEN_INTERVAL * u32::from(number) / u32::from(CONNECTIONS));
                while !is_over.load(Ordering::Acquire) {
                    let begin = Instant::now();
                    // The node closes the connection at any time.
                    _ = present_invalid_credentials(node, [0, 1 + number % addresses]);
                    std::thread::sleep(REOPEN_INTERVAL.saturating_sub(begin.elapsed()));
                }
            });
        }
        std::thread::sleep(2 * REOPEN_INTERVAL);
        let worked = work();
        is_over.store(true, Ordering::Release);
        worked
    })
}

/// Makes a handshake with a new key, presents random bytes as a credential, and keeps the connection until the node closes
/// it.
fn present_invalid_credentials(node: PublicKey, address: [u8; 2]) -> io::Result<()> {
    let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
    let unframed = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut socket = connect_from_loopback(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (initiator, first) = Initiator::begin(Some(node), &mut OsRng).map_err(wrong)?;
    socket.write_all(&frame::framed(&first).ok_or_else(unframed)?)?;
    let mut second = [0; frame::LENGTH_BYTES + SECOND_BYTES];
    socket.read_exact(&mut second)?;
    let (_, second) = second.split_at(frame::LENGTH_BYTES);
    let mut invalid = vec![0; CREDENTIALS_BYTES_MAX];
    OsRng.fill_bytes(&mut invalid);
    let read = initiator.read_second(second).map_err(wrong)?;
    let (_, third) = read.introduce(&Identity::generate(&mut OsRng), &invalid).map_err(wrong)?;
    socket.write_all(&frame::framed(&third).ok_or_else(unframed)?)?;
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

/// Runs `work` while attackers send only first handshake messages. Returns its result, and the number of messages.
fn with_first_messages(node: PublicKey, work: impl FnOnce() -> Vec<f64>) -> (Vec<f64>, u64) {
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let worked = std::thread::scope(|scope| {
        scope.spawn(|| {
            // All attackers send the same message, so that this program needs little processor time.
            let Ok((_, first)) = Initiator::begin(Some(node), &mut OsRng) else { return };
            let Some(first) = frame::framed(&first) else { return };
            let (mut open, begin) = (VecDeque::new(), Instant::now());
            for number in 0_u32.. {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let [.., high] = (number % SOURCES).to_be_bytes();
                if let Ok(mut socket) = connect_from_loopback([high, 7])
                    && socket.write_all(&first).is_ok()
                {
                    sent.fetch_add(1, Ordering::AcqRel);
                    open.push_back(socket);
                }
                if open.len() > 400 {
                    open.pop_front();
                }
                let next = Duration::from_secs(1) * number / FIRST_MESSAGES;
                std::thread::sleep(next.saturating_sub(begin.elapsed()));
            }
        });
        let worked = work();
        is_over.store(true, Ordering::Release);
        worked
    });
    (worked, sent.load(Ordering::Acquire))
}

/// The share of a core that these processes use while `work` runs.
fn core_share(processes: &[u32], work: impl FnOnce()) -> f64 {
    let time = || processes.iter().filter_map(|id| process_time(*id)).sum::<Duration>();
    let (before, begin) = (time(), Instant::now());
    work();
    time().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64()
}

/// The processes that a process has started.
fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_core_is_that_of_the_given_processes() {
        let own = [std::process::id()];
        let busy = core_share(&own, || {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
        });
        assert!(busy > 0.0);
        assert!(core_share(&[], || ()).abs() < f64::EPSILON);
    }
}
