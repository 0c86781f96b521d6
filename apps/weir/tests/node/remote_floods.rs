//! Floods of peers without valid credentials, from many addresses, while holders use the node.

use crate::remote::{AT, Net, Person, modest_grant};
use crate::testbed::{TIMEOUT, is_inside};
use rand_core::{OsRng, RngCore};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_trust::association::{CREDENTIALS_BYTES_MAX, Initiator, SECOND_BYTES, frame};
use weir_trust::credential::Credential;
use weir_trust::key::{Identity, PublicKey};

/// A connection to the node from this source address.
fn connect_from(from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &AT.parse::<SocketAddrV4>().unwrap())?;
    Ok(TcpStream::from(socket))
}

/// Connects with a credential, and requests a snapshot.
fn request_snapshot(net: &Net, who: &Person) -> Result<Reply, ClientError> {
    let credential: Credential = std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let key = std::fs::read_to_string(&who.key).unwrap();
    let identity = weir_trust::key::KeyFile::parse(&key).unwrap().open(None).unwrap();
    let there = NodeLocation::Remote {
        addresses: vec![AT.parse().unwrap()],
        expected: vec![net.node],
        identity: Box::new(identity),
        credential: credential.as_bytes().to_vec(),
    };
    let mut client = Client::connect_to(&there)?;
    client.send(ControlRequest::Show, &[])?;
    client.receive()
}

/// Makes a handshake with a new key and random bytes as the credential, and waits for the node's refusal. The
/// connection stays open until the stream is dropped.
fn connect_with_random_credential(node: PublicKey, from: Ipv4Addr) -> io::Result<TcpStream> {
    let mut socket = connect_from(from)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let (initiator, first) = Initiator::begin(Some(node), &mut OsRng).unwrap();
    socket.write_all(&frame::framed(&first).unwrap())?;
    let mut second = [0; frame::LENGTH_BYTES + SECOND_BYTES];
    socket.read_exact(&mut second)?;
    let mut nonsense = vec![0; CREDENTIALS_BYTES_MAX];
    OsRng.fill_bytes(&mut nonsense);
    let met = initiator.read_second(&second[frame::LENGTH_BYTES..]).unwrap();
    let (_, third) = met.introduce(&Identity::generate(&mut OsRng), &nonsense).unwrap();
    socket.write_all(&frame::framed(&third).unwrap())?;
    io::copy(&mut socket, &mut io::sink())?;
    Ok(socket)
}

#[test]
fn holders_are_served_while_peers_with_invalid_credentials_occupy_connections() {
    if !is_inside("remote_floods::holders_are_served_while_peers_with_invalid_credentials_occupy_connections")
    {
        return;
    }
    let mut net = Net::new();
    let holders: Vec<Person> =
        (0..7).map(|number| net.granted(&format!("holder-{number}"), modest_grant())).collect();
    let remote = |net: &Net| net.testbed.snapshot()["remote"].clone();
    // 72 connections, each kept and replaced every 2.5 s: from many addresses, from four, and from the address of the clients.
    for addresses in [72_u8, 4, 1] {
        let before = remote(&net);
        let (is_over, shown) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..72 {
                let (is_over, shown, node) = (&is_over, &shown, net.node);
                let from = Ipv4Addr::new(127, 0, 0, 1 + number % addresses);
                scope.spawn(move || {
                    // The starts are spread over time.
                    std::thread::sleep(Duration::from_secs(2) * u32::from(number) / 72);
                    while !is_over.load(Ordering::Acquire) {
                        let begin = Instant::now();
                        let held = connect_with_random_credential(node, from);
                        shown.fetch_add(u64::from(held.is_ok()), Ordering::AcqRel);
                        // The node keeps the connection until this side closes it, up to its own limit.
                        std::thread::sleep(Duration::from_millis(2500).saturating_sub(begin.elapsed()));
                    }
                });
            }
            net.testbed.until("the attackers have connected", |_| shown.load(Ordering::Acquire) >= 10);
            let mut waits: Vec<Duration> = Vec::new();
            let served = (0..49).map(|number| {
                let begin = Instant::now();
                let reply = request_snapshot(&net, &holders[number % holders.len()]);
                waits.push(begin.elapsed());
                std::thread::sleep(Duration::from_millis(50));
                reply
            });
            let refused: Vec<_> = served.filter(|reply| !matches!(reply, Ok(Reply::Snapshot(_)))).collect();
            is_over.store(true, Ordering::Release);
            assert!(refused.is_empty(), "{addresses} addresses: {refused:?}");
            waits.sort();
            println!("{addresses} addresses: half waited {:?}, the last one {:?}", waits[24], waits[48]);
        });
        let after = remote(&net);
        let counted = |cause: &str| {
            let of = |shot: &serde_json::Value| shot["refused"][cause].as_u64().unwrap();
            of(&after) - of(&before)
        };
        assert!(counted("credential") + counted("credential-no-reply") > 50, "{after}");
        assert_eq!((counted("slots"), counted("thread")), (0, 0), "{after}");
        assert_eq!(after["authorised"].as_u64().unwrap() - before["authorised"].as_u64().unwrap(), 49);
    }
    // The attack causes few log lines.
    let said = net.testbed.log();
    assert!(
        said.lines().filter(|line| line.contains("remote connections were refused")).count() <= 3,
        "{said}"
    );
    net.testbed.until("all clients have left", |testbed| testbed.snapshot()["remote"]["clients"] == 0);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_flood_of_first_messages_gets_a_bounded_number_of_answers_and_keeps_no_valid_peer_out() {
    if !is_inside(
        "remote_floods::a_flood_of_first_messages_gets_a_bounded_number_of_answers_and_keeps_no_valid_peer_out",
    ) {
        return;
    }
    let mut net = Net::new();
    let holders: Vec<Person> =
        (0..6).map(|number| net.granted(&format!("holder-{number}"), modest_grant())).collect();
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..4_u8 {
            let (is_over, sent, node) = (&is_over, &sent, net.node);
            // 250 a second, from 50 of 200 addresses.
            scope.spawn(move || {
                let (_, first) = Initiator::begin(Some(node), &mut OsRng).unwrap();
                let first = frame::framed(&first).unwrap();
                let (mut open, begin) = (VecDeque::new(), Instant::now());
                for number in 0_u32.. {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    let from = Ipv4Addr::new(127, 0, part * 50 + u8::try_from(number % 50).unwrap(), 7);
                    if let Ok(mut socket) = connect_from(from)
                        && socket.write_all(&first).is_ok()
                    {
                        sent.fetch_add(1, Ordering::AcqRel);
                        open.push_back(socket);
                    }
                    if open.len() > 100 {
                        open.pop_front();
                    }
                    std::thread::sleep((Duration::from_millis(4) * number).saturating_sub(begin.elapsed()));
                }
            });
        }
        net.testbed.until("the flood goes on", |_| sent.load(Ordering::Acquire) >= 2000);
        let served: Vec<_> = holders
            .iter()
            .map(|holder| {
                let begin = Instant::now();
                let reply = request_snapshot(&net, holder);
                println!("waited {:?}", begin.elapsed());
                std::thread::sleep(Duration::from_millis(500));
                reply
            })
            .collect();
        is_over.store(true, Ordering::Release);
        assert!(served.iter().all(|reply| matches!(reply, Ok(Reply::Snapshot(_)))), "{served:?}");
    });
    let shot = net.testbed.snapshot()["remote"].clone();
    let count = |name: &str| shot[name].as_u64().unwrap();
    // The burst, 50 a second, and those of the valid peers.
    let seconds = began.elapsed().as_secs();
    assert!(count("answered") <= 250 + 50 * (seconds + 1) + 20, "{seconds} s: {shot}");
    assert_eq!((count("authorised"), count("authenticated")), (6, 6), "{shot}");
    let sent = sent.load(Ordering::Acquire);
    assert!(count("connections") >= sent / 2 && count("unanswered") > 0, "{sent} were sent: {shot}");
    assert!(net.testbed.stop().success());
}
