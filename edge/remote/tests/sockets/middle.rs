//! An attacker between two processes, who changes, truncates, records and replays.

use crate::node::{CREDENTIALS, Node, OFFERS, PATIENCE, client, is_closed_silently};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weir_remote::ConnectError;
use weir_trust::association::SECOND_BYTES;

/// The attacker's action on the bytes of a direction, given their offset; returning fewer bytes truncates.
type Does = Box<dyn Fn(usize, Vec<u8>) -> Vec<u8> + Send>;

/// Forwards one connection to the node, applying these actions to both directions. Sends all bytes that went to the
/// node over the channel afterwards.
fn in_the_middle(node: SocketAddr, to_node: Does, from_node: Does) -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (went, seen) = channel();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(node).unwrap();
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let other = std::thread::spawn(move || pass(back.0, back.1, &from_node));
        // The test may not need it.
        _ = went.send(pass(client, server, &to_node));
        _ = other.join();
    });
    (address, seen)
}

fn pass(mut from: TcpStream, mut to: TcpStream, does: &Does) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut part) {
        let bytes = does(all.len(), part[..count].to_vec());
        all.extend_from_slice(&part[..count]);
        if to.write_all(&bytes).is_err() || bytes.len() < count {
            _ = to.shutdown(Shutdown::Both);
            _ = from.shutdown(Shutdown::Both);
            return all;
        }
    }
    _ = to.shutdown(Shutdown::Write);
    all
}

fn nothing() -> Does {
    Box::new(|_, bytes| bytes)
}

/// Flips one bit.
fn flip(place: usize) -> Does {
    Box::new(move |at, mut bytes| {
        if let Some(byte) = place.checked_sub(at).and_then(|place| bytes.get_mut(place)) {
            *byte ^= 0x10;
        }
        bytes
    })
}

/// Truncates the direction at this offset.
fn cut(place: usize) -> Does {
    Box::new(move |at, mut bytes| {
        bytes.truncate(place.saturating_sub(at));
        bytes
    })
}

/// Bytes of the first and the third message, and of the second and the fourth, with their lengths.
const TO_NODE: usize = 2 + SECOND_BYTES + 2 + 160 + CREDENTIALS.len();
const FROM_NODE: usize = 2 + SECOND_BYTES + 2 + 17 + OFFERS.len();

#[test]
fn a_passive_relay_is_not_noticed() {
    let node = Node::start(16, PATIENCE);
    let (address, seen) = in_the_middle(node.address, nothing(), nothing());
    let mut stream = node.connect_at(address).unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(seen.recv().unwrap().len(), TO_NODE + 2 + 17);
}

#[test]
fn a_changed_or_truncated_handshake_fails() {
    // A changed length makes the node or the client wait: not for long here.
    let within = Duration::from_secs(1);
    let node = Node::start(16, within);
    let connect = |address| weir_remote::connect(address, &client(), Some(node.key()), CREDENTIALS, within);
    // Each length, each header, keys, ciphertext, tags.
    for place in [0, 1, 2, 6, 7, 8, 39, 40, 194, 195, 196, 197, 244, 245, 340, TO_NODE - 17, TO_NODE - 1] {
        for does in [flip(place), cut(place)] {
            let (address, _) = in_the_middle(node.address, does, nothing());
            assert!(connect(address).is_err(), "byte {place} to the node");
        }
    }
    for place in [0, 1, 2, 3, 34, 35, 82, 83, 194, 195, 196, 197, FROM_NODE - 17, FROM_NODE - 1] {
        for does in [flip(place), cut(place)] {
            let (address, _) = in_the_middle(node.address, nothing(), does);
            assert!(connect(address).is_err(), "byte {place} from the node");
        }
    }
    assert!(node.connect().is_ok());
}

#[test]
fn changed_or_truncated_data_is_noticed() {
    let node = Node::start(16, PATIENCE);
    let changed =
        [(flip(FROM_NODE + 3), ErrorKind::InvalidData), (cut(FROM_NODE + 9), ErrorKind::UnexpectedEof)];
    for (does, kind) in changed {
        let (address, _) = in_the_middle(node.address, nothing(), does);
        let mut stream = node.connect_at(address).unwrap();
        stream.set_deadline(Some(Instant::now() + PATIENCE));
        stream.write_all(b"hello").unwrap();
        assert_eq!(stream.read(&mut [0; 5]).unwrap_err().kind(), kind);
        assert!(stream.write(b"more").is_err());
    }
}

#[test]
fn a_recorded_connection_cannot_be_replayed() {
    let node = Node::start(16, PATIENCE);
    let (address, seen) = in_the_middle(node.address, nothing(), nothing());
    let mut stream = node.connect_at(address).unwrap();
    stream.write_all(b"unload everything").unwrap();
    stream.finish().unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    let recorded = seen.recv().unwrap();

    let mut replay = TcpStream::connect(node.address).unwrap();
    _ = replay.write_all(&recorded);
    let mut answer = [0; 2 + SECOND_BYTES];
    replay.set_read_timeout(Some(PATIENCE)).unwrap();
    // The node may have closed, with bytes unread, before its answer was read.
    if replay.read_exact(&mut answer).is_ok() {
        assert!(is_closed_silently(&mut replay), "it got further than the second message");
    }
}

#[test]
fn another_node_in_place_of_the_expected_one_is_refused() {
    let node = Node::start(16, PATIENCE);
    let meant = client().public();
    let (address, _) = in_the_middle(node.address, nothing(), nothing());
    let error = weir_remote::connect(address, &client(), Some(meant), b"", PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Handshake(_)), "{error}");
}
