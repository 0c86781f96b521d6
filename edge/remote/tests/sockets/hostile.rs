//! Peers that send something other than a handshake, or send it slowly, or often.

use crate::node::{Node, PATIENCE, client, connect_from, is_closed_silently};
use rand_core::OsRng;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;
use weir_remote::ConnectError;
use weir_trust::association::{FIRST_BYTES, Initiator, SECOND_BYTES, frame};

fn first() -> Vec<u8> {
    frame::framed(&Initiator::begin(None, &mut OsRng).unwrap().1).unwrap()
}

#[test]
fn invalid_first_messages_are_closed_silently() {
    let node = Node::start(16, PATIENCE);
    let good = first();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let all: [Vec<u8>; 8] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        // Lengths that a first message never has: zero, and the largest possible.
        vec![0, 0],
        vec![0xff; 70_000],
        // Another magic number, and unsupported versions.
        with(2, b'W'),
        with(6, 2),
        with(7, 0),
        [&u16::try_from(FIRST_BYTES).unwrap().to_be_bytes(), [0xff; FIRST_BYTES].as_slice()].concat(),
        // A point of small order in place of a key.
        [&good[..8], &[0; 32], &good[40..]].concat(),
    ];
    for bytes in all {
        let mut stream = TcpStream::connect(node.address).unwrap();
        // The node may close before all is sent.
        _ = stream.write_all(&bytes);
        assert!(is_closed_silently(&mut stream), "{}", bytes[..8.min(bytes.len())].escape_ascii());
    }
    assert!(node.connect().is_ok());
}

#[test]
fn an_incomplete_handshake_is_ended() {
    // After the answer the client sends something else, or nothing, or the answer itself.
    let node = Node::start(16, Duration::from_millis(500));
    for (then, shutdown) in [(Vec::new(), true), (vec![0xff; 40_000], false), (vec![0, 160, 1, 2], false)] {
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&first()).unwrap();
        let mut answer = [0; 2 + SECOND_BYTES];
        stream.read_exact(&mut answer).unwrap();
        _ = stream.write_all(&then);
        if shutdown {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        assert!(is_closed_silently(&mut stream));
    }
}

#[test]
fn a_slow_sender_does_not_extend_the_deadline() {
    let node = Node::start(16, Duration::from_millis(200));
    let mut slow = TcpStream::connect(node.address).unwrap();
    slow.set_nodelay(true).unwrap();
    let mut sent = 0;
    // The whole message would take fifty times the deadline.
    for byte in first() {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        sent += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(sent < 2 + FIRST_BYTES, "it was waited for");
    assert!(is_closed_silently(&mut slow));
}

#[test]
fn a_silent_connection_is_closed_at_its_deadline() {
    let node = Node::start(16, Duration::from_millis(200));
    let mut silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    assert!(silent.iter_mut().all(is_closed_silently));
}

#[test]
fn a_source_over_its_rate_is_not_answered_and_others_are() {
    let node = Node::with(64, PATIENCE, 3);
    let source = IpAddr::V4(Ipv4Addr::new(127, 7, 7, 7));
    // An answer becomes available each second, and a slow machine takes some seconds: far fewer than requested.
    let answered = (0..200).filter(|_| {
        let mut stream = connect_from(source, node.address);
        stream.write_all(&first()).is_ok() && !is_closed_silently(&mut stream)
    });
    let answered = answered.count();
    assert!((3..150).contains(&answered), "{answered}");
    assert!(node.connect().is_ok());
}

#[test]
fn a_node_with_one_place_serves_the_next_client() {
    let node = Node::start(1, PATIENCE);
    let mut silent = connect_from(IpAddr::V4(Ipv4Addr::new(127, 7, 7, 7)), node.address);
    // There is one place, and all connections have one address: the older handshake is evicted.
    assert!(node.connect().is_ok());
    assert!(is_closed_silently(&mut silent));
    let error =
        weir_remote::connect(node.address, &client(), Some(client().public()), b"", PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Handshake(_)));
}
