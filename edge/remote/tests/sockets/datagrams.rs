//! Nodes that forward packets from process to process over UDP.

use crate::node::PATIENCE;
use crate::pair::Seeded;
use rand_core::RngCore;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use weir_anep::{AnepHeader, AnepPacket, FragmentLimits, Protection};
use weir_remote::{DatagramSocket, SocketEvent};
use weir_trust::datagrams::{DatagramEvent, DatagramLimits};
use weir_trust::key::{Identity, PublicKey};

/// The variable with the seed of the other process's key, its address, and the address and the key's seed of the next node.
const FORWARDER: &str = "WEIR_REMOTE_TEST_FORWARDER";
const LOOPBACK: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

fn identity(seed: u8) -> Identity {
    Identity::from_seed(&[seed; 32])
}

fn bind(address: &str, seed: u8) -> DatagramSocket {
    let (limits, fragments) = (DatagramLimits::default(), FragmentLimits::default());
    DatagramSocket::bind(address.parse().unwrap(), Box::new(identity(seed)), limits, fragments).unwrap()
}

/// A node in a process of its own. Dropping it ends the process.
struct ForwardingNode {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl ForwardingNode {
    /// Starts a node that forwards packets to another one, or prints them without one.
    fn start(address: &str, seed: u8, next: Option<(SocketAddr, u8)>) -> Self {
        let next = next.map_or("-".to_owned(), |(address, seed)| format!("{address} {seed}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "datagrams::forward_as_a_process_of_its_own", "--ignored", "--nocapture"])
            .env(FORWARDER, format!("{seed} {address} {next}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let address = "127.0.0.1:0".parse().unwrap();
        let mut node = Self { child, output, address };
        node.address = node.line("listens at ").parse().unwrap();
        node
    }

    /// Reads lines until one has this text, and returns the rest of the line.
    fn line(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the node ended before it said {text}");
            if let Some((_, rest)) = line.split_once(text) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for ForwardingNode {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Waits until an association with this peer is complete. Accepts peers meanwhile.
fn wait_for(socket: &mut DatagramSocket, wanted: PublicKey) {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match socket.wait(Duration::from_secs(1)).unwrap() {
            Some(SocketEvent::Association(DatagramEvent::Up { peer, .. })) if peer == wanted => return,
            Some(SocketEvent::Association(DatagramEvent::Failed { error, .. })) => panic!("{error}"),
            _ => {}
        }
    }
    panic!("there is no association");
}

/// The other process. Does nothing unless started by a test.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn forward_as_a_process_of_its_own() {
    let Ok(arguments) = std::env::var(FORWARDER) else { return };
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut socket = bind(arguments[1], arguments[0].parse().unwrap());
    let next = match arguments[2..] {
        [address, seed] => {
            let next = identity(seed.parse().unwrap()).public();
            socket.connect(address.parse().unwrap(), Some(next), b"a neighbour").unwrap();
            wait_for(&mut socket, next);
            Some(next)
        }
        _ => None,
    };
    let say = |text: String| {
        println!("{text}");
        std::io::stdout().flush().unwrap();
    };
    say(format!("listens at {}", socket.local_address().unwrap()));
    loop {
        match socket.wait(Duration::from_secs(1)).unwrap() {
            Some(SocketEvent::Association(DatagramEvent::Asks { spi, credentials, .. })) => {
                let is_known = credentials.starts_with(b"a neighbour");
                _ = if is_known { socket.accept(spi, b"a node") } else { socket.refuse(spi) };
            }
            Some(SocketEvent::Packet(received)) => match next {
                Some(next) => socket.send(&next, received.protection, &received.packet).unwrap(),
                None => {
                    let packet = AnepPacket::read(&received.packet).unwrap();
                    let (type_id, peer) = (packet.header().type_id, received.peer);
                    let payload = String::from_utf8_lossy(packet.payload());
                    say(format!("got type {type_id} from {peer}: {payload}"));
                }
            },
            _ => {}
        }
    }
}

/// The text of a packet, and where it came from, as the last node prints them.
fn printed(seed: u8, payload: &str) -> String {
    format!("7 from {}: {payload}", identity(seed).public())
}

#[test]
fn a_packet_is_authenticated_on_every_hop_and_forwarded() {
    for address in LOOPBACK {
        if UdpSocket::bind(address).is_err() {
            eprintln!("SKIPPED: this machine has no address {address}");
            continue;
        }
        let mut last = ForwardingNode::start(address, 1, None);
        let first = ForwardingNode::start(address, 2, Some((last.address, 1)));
        let mut source = bind(address, 3);
        let peer = identity(2).public();
        source.connect(first.address, Some(peer), b"a neighbour").unwrap();
        wait_for(&mut source, peer);
        let header = AnepHeader { flags: 0x80, type_id: 7 };
        for protection in [Protection::Authenticated, Protection::Encrypted] {
            for payload in ["a packet".to_owned(), "in fragments ".repeat(400)] {
                source.send(&peer, protection, &header.write(&[], payload.as_bytes()).unwrap()).unwrap();
                // The last node has it from the node before, not from the source.
                assert_eq!(last.line("got type "), printed(2, payload.trim()));
            }
        }
        // A packet that is not sealed goes nowhere, and the next one arrives.
        let forged = header.write(&[], b"forged").unwrap();
        UdpSocket::bind(address).unwrap().send_to(&forged, first.address).unwrap();
        source.send(&peer, Protection::Encrypted, &header.write(&[], b"genuine").unwrap()).unwrap();
        assert_eq!(last.line("got type "), printed(2, "genuine"));
    }
}

#[test]
fn a_node_that_refuses_a_peer_forwards_nothing() {
    let node = ForwardingNode::start(LOOPBACK[0], 1, None);
    let mut source = bind(LOOPBACK[0], 3);
    let peer = identity(1).public();
    source.connect(node.address, Some(peer), b"a stranger").unwrap();
    loop {
        match source.wait(PATIENCE).unwrap() {
            Some(SocketEvent::Association(DatagramEvent::Failed { .. })) => break,
            Some(_) => {}
            None => panic!("there is no answer"),
        }
    }
    let packet = AnepHeader { flags: 0, type_id: 7 }.write(&[], b"packet").unwrap();
    assert!(source.send(&peer, Protection::Encrypted, &packet).is_err());
}

/// A relay that loses, repeats and reorders a fifth of all datagrams in both directions.
fn relay(node: SocketAddr) -> SocketAddr {
    let relay = UdpSocket::bind(LOOPBACK[0]).unwrap();
    let address = relay.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut random = Seeded(9);
        let mut is_chosen = move || random.next_u64().is_multiple_of(5);
        let (mut client, mut held) = (None, VecDeque::new());
        let mut bytes = vec![0; 65_535];
        while let Ok((length, from)) = relay.recv_from(&mut bytes) {
            let to =
                if from == node { client } else { client.replace(from).map_or(Some(node), |_| Some(node)) };
            let (Some(to), false) = (to, is_chosen()) else { continue };
            let datagram = (bytes[..length].to_vec(), to);
            if is_chosen() {
                held.push_back(datagram);
                continue;
            }
            let copies = 1 + usize::from(is_chosen());
            for (datagram, to) in std::iter::repeat_n(datagram, copies).chain(held.drain(..)) {
                _ = relay.send_to(&datagram, to);
            }
        }
    });
    address
}

#[test]
fn packets_pass_a_path_that_loses_repeats_and_reorders_a_fifth() {
    let mut node = ForwardingNode::start(LOOPBACK[0], 1, None);
    let relay = relay(node.address);
    let mut source = bind(LOOPBACK[0], 3);
    let peer = identity(1).public();
    let credentials = [&b"a neighbour"[..], &[b'.'; 9_000]].concat();
    source.connect(relay, Some(peer), &credentials).unwrap();
    wait_for(&mut source, peer);
    let header = AnepHeader { flags: 0, type_id: 7 };
    for number in 0..200 {
        let packet = header.write(&[], format!("number {number}").as_bytes()).unwrap();
        source.send(&peer, Protection::Encrypted, &packet).unwrap();
        _ = source.wait(Duration::from_millis(2)).unwrap();
    }
    // The last packet is repeated as another one until it arrives; a process reads its own output no further.
    let mut arrived = std::collections::BTreeSet::new();
    let until = Instant::now() + PATIENCE;
    let mut end = 0;
    while !arrived.contains("end") {
        assert!(Instant::now() < until, "the end does not arrive");
        let packet = header.write(&[], b"end").unwrap();
        for _ in 0..10 {
            source.send(&peer, Protection::Encrypted, &packet).unwrap();
            end += 1;
        }
        _ = source.wait(Duration::from_millis(50)).unwrap();
        loop {
            let line = node.line("got type ");
            let (_, payload) = line.split_once(": ").unwrap();
            let is_new = arrived.insert(payload.to_owned());
            assert!(is_new || payload == "end", "{payload} arrives twice");
            if payload == "end" {
                break;
            }
        }
    }
    assert!(end > 0 && (100..=200).contains(&(arrived.len() - 1)), "{}", arrived.len());
}
