//! Data of honest peers arrives, and truncation is noticed.

use crate::node::{NOTHING, Node, OFFERS, PATIENCE, client};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use weir_remote::ConnectError;
use weir_trust::association::HandshakeError;

#[test]
fn data_arrives_and_both_sides_notice_its_end() {
    let node = Node::start(16, PATIENCE);
    let mut stream = node.connect().unwrap();
    assert_eq!((stream.peer().key, stream.peer().credentials.as_slice()), (node.key(), OFFERS));
    stream.set_deadline(Some(Instant::now() + PATIENCE));
    // One message after the other, and then more than fits into the buffers in between: by two threads.
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
fn a_nodes_death_is_distinguished_from_the_end_of_its_data() {
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
fn an_unexpected_node_gets_no_credentials() {
    let node = Node::start(16, PATIENCE);
    let error =
        weir_remote::connect(node.address, &client(), Some(client().public()), b"", PATIENCE).unwrap_err();
    let unexpected = HandshakeError::Unexpected { expected: client().public(), found: node.key() };
    assert!(matches!(error, ConnectError::Handshake(error) if error == unexpected));
    // Without an expected node, any node is accepted.
    let stream = weir_remote::connect(node.address, &client(), None, b"", PATIENCE).unwrap();
    assert_eq!(stream.peer().key, node.key());
}

#[test]
fn a_refused_client_sees_a_closed_connection() {
    let node = Node::start(16, PATIENCE);
    let error =
        weir_remote::connect(node.address, &client(), Some(node.key()), NOTHING, PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::Closed(at) if at == node.address), "{error}");
    assert!(node.connect().is_ok());
}

#[test]
fn a_read_past_its_deadline_can_be_repeated() {
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
fn a_silent_listener_ends_with_a_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let within = Duration::from_millis(50);
    let error = weir_remote::connect(address, &client(), None, b"", within).unwrap_err();
    assert!(matches!(error, ConnectError::Late { .. }), "{error}");
}
