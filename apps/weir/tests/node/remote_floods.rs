//! Floods of peers that have no right to be on a node, from many addresses, and valid clients among them.

use crate::place::{PATIENCE, is_inside};
use crate::remote::{AT, Net, Person, modest};
use rand_core::{OsRng, RngCore};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_node::client::{Client, ClientError, Whereabouts};
use weir_node::control::protocol::{ControlRequest, Reply};
use weir_trust::association::{CREDENTIALS_BYTES_MAX, Initiator, SECOND_BYTES, frame};
use weir_trust::credential::Credential;
use weir_trust::key::{Identity, PublicKey};

/// A connection to the node from this address.
fn connect_from(from: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &AT.parse::<SocketAddrV4>().unwrap())?;
    Ok(TcpStream::from(socket))
}

/// A client with its credential: connects, and asks for the node's state.
fn asks(net: &Net, who: &Person) -> Result<Reply, ClientError> {
    let credential: Credential = std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let key = std::fs::read_to_string(&who.key).unwrap();
    let identity = weir_trust::key::KeyFile::parse(&key).unwrap().open(None).unwrap();
    let there = Whereabouts::There {
        addresses: vec![AT.parse().unwrap()],
        expected: Some(net.node),
        identity: Box::new(identity),
        credential: credential.as_bytes().to_vec(),
    };
    let mut client = Client::to(&there)?;
    client.send(ControlRequest::Show, &[])?;
    client.receive()
}

/// Makes a handshake with a new key, shows random bytes as a credential, and waits until the node says nothing more. The connection stays open for as long as the socket is kept.
fn show_nonsense(node: PublicKey, from: Ipv4Addr) -> io::Result<TcpStream> {
    let mut socket = connect_from(from)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (initiator, first) = Initiator::begin(Some(node), &mut OsRng).unwrap();
    socket.write_all(&frame::framed(&first).unwrap())?;
    let mut second = [0; frame::LENGTH_BYTES + SECOND_BYTES];
    socket.read_exact(&mut second)?;
    let mut nonsense = vec![0; CREDENTIALS_BYTES_MAX];
    OsRng.fill_bytes(&mut nonsense);
    let met = initiator.second(&second[frame::LENGTH_BYTES..]).unwrap();
    let (_, third) = met.introduce(&Identity::generate(&mut OsRng), &nonsense).unwrap();
    socket.write_all(&frame::framed(&third).unwrap())?;
    io::copy(&mut socket, &mut io::sink())?;
    Ok(socket)
}

#[test]
fn holders_are_served_whatever_peers_with_invalid_credentials_hold() {
    if !is_inside("remote_floods::holders_are_served_whatever_peers_with_invalid_credentials_hold") {
        return;
    }
    let mut net = Net::new();
    let holders: Vec<Person> =
        (0..7).map(|number| net.granted(&format!("holder-{number}"), modest())).collect();
    let remote = |net: &Net| net.place.snapshot()["remote"].clone();
    // 72 connections, each held and then made anew every 2.5 s: from many addresses, from four, and from the very address of the clients.
    for addresses in [72_u8, 4, 1] {
        let before = remote(&net);
        let (is_over, shown) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..72 {
                let (is_over, shown, node) = (&is_over, &shown, net.node);
                let from = Ipv4Addr::new(127, 0, 0, 1 + number % addresses);
                scope.spawn(move || {
                    // One after the other, not all at once.
                    std::thread::sleep(Duration::from_secs(2) * u32::from(number) / 72);
                    while !is_over.load(Ordering::Acquire) {
                        let begin = Instant::now();
                        let held = show_nonsense(node, from);
                        shown.fetch_add(u64::from(held.is_ok()), Ordering::AcqRel);
                        // The node holds the connection for as long as this side does not close it, up to its own limit.
                        std::thread::sleep(Duration::from_millis(2500).saturating_sub(begin.elapsed()));
                    }
                });
            }
            net.place.until("attackers have come", |_| shown.load(Ordering::Acquire) >= 10);
            let mut waits: Vec<Duration> = Vec::new();
            let served = (0..49).map(|number| {
                let begin = Instant::now();
                let reply = asks(&net, &holders[number % holders.len()]);
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
        assert!(counted("credential") + counted("credential-unheard") > 50, "{after}");
        assert_eq!((counted("slots"), counted("thread")), (0, 0), "{after}");
        assert_eq!(after["proven"].as_u64().unwrap() - before["proven"].as_u64().unwrap(), 49);
    }
    // What attackers do makes few lines in the log.
    let said = net.place.said();
    assert!(said.lines().filter(|line| line.contains("connections from elsewhere")).count() <= 3, "{said}");
    net.place.until("all clients have left", |place| place.snapshot()["remote"]["clients"] == 0);
    assert!(net.place.stop().success());
}

#[test]
fn a_flood_of_first_messages_takes_a_fixed_number_of_answers_and_keeps_no_valid_peer_out() {
    if !is_inside(
        "remote_floods::a_flood_of_first_messages_takes_a_fixed_number_of_answers_and_keeps_no_valid_peer_out",
    ) {
        return;
    }
    let mut net = Net::new();
    let holders: Vec<Person> =
        (0..6).map(|number| net.granted(&format!("holder-{number}"), modest())).collect();
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for part in 0..4_u8 {
            let (is_over, sent, node) = (&is_over, &sent, net.node);
            // 250 a second, from fifty of two hundred addresses.
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
        net.place.until("the flood goes on", |_| sent.load(Ordering::Acquire) >= 2000);
        let served: Vec<_> = holders
            .iter()
            .map(|holder| {
                let begin = Instant::now();
                let reply = asks(&net, holder);
                println!("waited {:?}", begin.elapsed());
                std::thread::sleep(Duration::from_millis(500));
                reply
            })
            .collect();
        is_over.store(true, Ordering::Release);
        assert!(served.iter().all(|reply| matches!(reply, Ok(Reply::Snapshot(_)))), "{served:?}");
    });
    let shot = net.place.snapshot()["remote"].clone();
    let count = |name: &str| shot[name].as_u64().unwrap();
    // The burst, 50 a second, and the valid peers' own.
    let seconds = began.elapsed().as_secs();
    assert!(count("answered") <= 250 + 50 * (seconds + 1) + 20, "{seconds} s: {shot}");
    assert_eq!((count("proven"), count("authenticated")), (6, 6), "{shot}");
    let sent = sent.load(Ordering::Acquire);
    assert!(count("connections") >= sent / 2 && count("unanswered") > 0, "{sent} were sent: {shot}");
    assert!(net.place.stop().success());
}
