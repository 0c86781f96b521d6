//! Somebody on the way between two processes, who changes, cuts, records and plays again.

use crate::node::{CREDENTIALS, Node, OFFERS, PATIENCE, guest, is_closed_silently};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weir_remote::ConnectError;
use weir_trust::association::SECOND_BYTES;

/// What he does with the bytes of a direction, given where they are in it; where he gives fewer, he cuts.
type Does = Box<dyn Fn(usize, Vec<u8>) -> Vec<u8> + Send>;

/// Passes on one connection to the node, and does that with what goes to it and what comes from it. Afterwards: all that went to the node.
fn in_the_middle(node: SocketAddr, to_node: Does, from_node: Does) -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (went, seen) = channel();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(node).unwrap();
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let other = std::thread::spawn(move || pass(back.0, back.1, &from_node));
        // Nobody may want to know.
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

/// Turns one bit round.
fn flip(place: usize) -> Does {
    Box::new(move |at, mut bytes| {
        if let Some(byte) = place.checked_sub(at).and_then(|place| bytes.get_mut(place)) {
            *byte ^= 0x10;
        }
        bytes
    })
}

/// Cuts the direction there.
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
fn who_only_passes_on_is_not_noticed() {
    let node = Node::start(16, PATIENCE);
    let (address, seen) = in_the_middle(node.address, nothing(), nothing());
    let mut stream = node.connect_at(address).unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(seen.recv().unwrap().len(), TO_NODE + 2 + 17);
}

#[test]
fn a_handshake_that_is_changed_or_cut_on_the_way_makes_no_association() {
    // A length that was changed is waited for, by the node or by the guest: not for long here.
    let within = Duration::from_secs(1);
    let node = Node::start(16, within);
    let connect = |address| weir_remote::connect(address, &guest(), Some(node.key()), CREDENTIALS, within);
    // Each length, each head, keys, what is encrypted, tags.
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
fn what_is_changed_or_cut_later_is_noticed() {
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
fn a_connection_that_was_recorded_cannot_be_played_again() {
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
fn another_node_in_the_place_of_the_one_that_was_meant_is_seen() {
    let node = Node::start(16, PATIENCE);
    let meant = guest().public();
    let (address, _) = in_the_middle(node.address, nothing(), nothing());
    let error = weir_remote::connect(address, &guest(), Some(meant), b"", PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Handshake(_)), "{error}");
}
