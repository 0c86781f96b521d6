//! What honest ones say arrives, and they know when it does not.

use crate::node::{NOTHING, Node, OFFERS, PATIENCE, guest};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use weir_remote::ConnectError;
use weir_trust::association::HandshakeError;

#[test]
fn what_is_said_arrives_and_both_sides_know_when_it_is_all() {
    let node = Node::start(16, PATIENCE);
    let mut stream = node.connect().unwrap();
    assert_eq!((stream.peer().key, stream.peer().credentials.as_slice()), (node.key(), OFFERS));
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    // One message after the other, and then more than fits into the buffers between: by two threads.
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (_, mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&data).unwrap();
            writer.finish().unwrap();
            assert_eq!(writer.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
        reader.read_to_end(&mut answer).unwrap();
    });
    assert!(answer == data);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_node_that_dies_is_told_from_one_that_has_said_everything() {
    let mut node = Node::start(16, PATIENCE);
    let mut stream = node.connect().unwrap();
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    node.kill();
    let error = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{error}");
    assert!(matches!(node.connect(), Err(ConnectError::Unreachable { .. })));
}

#[test]
fn another_node_than_the_one_that_was_meant_is_told_nothing() {
    let node = Node::start(16, PATIENCE);
    let error =
        weir_remote::connect(node.address, &guest(), Some(guest().public()), b"", PATIENCE).unwrap_err();
    let unexpected = HandshakeError::Unexpected { expected: guest().public(), found: node.key() };
    assert!(matches!(error, ConnectError::Handshake(error) if error == unexpected));
    // Whoever expects nobody in particular gets whoever is there.
    let stream = weir_remote::connect(node.address, &guest(), None, b"", PATIENCE).unwrap();
    assert_eq!(stream.peer().key, node.key());
}

#[test]
fn who_is_not_let_in_finds_the_door_closed() {
    let node = Node::start(16, PATIENCE);
    let error =
        weir_remote::connect(node.address, &guest(), Some(node.key()), NOTHING, PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Closed(at) if at == node.address), "{error}");
    assert!(node.connect().is_ok());
}

#[test]
fn a_read_whose_time_is_over_can_be_tried_again() {
    let node = Node::start(16, PATIENCE);
    let mut stream = node.connect().unwrap();
    stream.set_deadline(Some(Instant::now() + Duration::from_millis(1)));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    stream.write_all(b"x").unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"x");
}

#[test]
fn a_listener_that_never_answers_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let within = Duration::from_millis(50);
    let error = weir_remote::connect(address, &guest(), None, b"", within).unwrap_err();
    assert!(matches!(error, ConnectError::Late { .. }), "{error}");
}
