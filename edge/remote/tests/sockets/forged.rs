//! Peers that speak the protocol correctly over a socket, and lie in it. Further lies are tried without sockets in
//! `core/trust/tests/association/forged.rs`.

use crate::node::{Node, PATIENCE, client, identity, is_closed_silently};
use crate::raw::{INITIATOR, RESPONDER, Raw, proof, statement};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use weir_remote::ConnectError;
use weir_trust::association::{FIRST_BYTES, HandshakeError, SECOND_BYTES, VERSION, frame};

/// Connects to the node with these claims about the client's identity.
fn introduce(node: &Node, says: impl FnOnce(&Raw) -> Vec<u8>) -> TcpStream {
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut raw = Raw::initiator(2);
    stream.write_all(&frame::framed(&raw.first()).unwrap()).unwrap();
    let mut second = [0; frame::LENGTH_BYTES + SECOND_BYTES];
    stream.read_exact(&mut second).unwrap();
    raw.read(&second[frame::LENGTH_BYTES + 1..]);
    let payload = says(&raw);
    stream.write_all(&frame::framed(&raw.write(&payload)).unwrap()).unwrap();
    stream
}

#[test]
fn a_client_whose_x25519_key_is_not_its_identitys_is_refused() {
    let node = Node::start(16, PATIENCE);
    let says = |role: u8, key: Option<[u8; 32]>| {
        move |raw: &Raw| proof(&client(), &statement(VERSION, role, &raw.hash(), &key.unwrap_or(raw.own)))
    };
    // Otherwise the other cases would prove nothing.
    let mut honest = introduce(&node, says(INITIATOR, None));
    let mut length = [0; frame::LENGTH_BYTES];
    honest.read_exact(&mut length).unwrap();
    assert_ne!(length, [0, 0]);
    // The client's own signature of this very handshake for another key than the one in it; and as if it were the
    // node's.
    let other = Raw::initiator(99).own;
    for (role, key) in [(INITIATOR, Some(other)), (RESPONDER, None)] {
        assert!(is_closed_silently(&mut introduce(&node, says(role, key))), "{role}");
    }
    assert!(node.connect().is_ok());
}

#[test]
fn a_node_whose_x25519_key_is_not_its_identitys_is_told_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = Raw::responder(99).own;
    for is_forged in [true, false] {
        let connect =
            || weir_remote::connect(address, &client(), Some(identity().public()), b"mine", PATIENCE);
        let (connected, received) = std::thread::scope(|scope| {
            let connecting = scope.spawn(connect);
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut first = [0; frame::LENGTH_BYTES + FIRST_BYTES];
            stream.read_exact(&mut first).unwrap();
            let mut raw = Raw::responder(2);
            raw.read_first(&first[frame::LENGTH_BYTES..]);
            let key = if is_forged { other } else { raw.own };
            let payload = proof(&identity(), &statement(VERSION, RESPONDER, &raw.hash(), &key));
            stream.write_all(&frame::framed(&raw.second(&payload)).unwrap()).unwrap();
            // The client's identity, which is for the intended node alone.
            let received = stream.read(&mut [0; 1]).unwrap_or(0);
            drop(stream);
            (connecting.join().unwrap(), received)
        });
        let key = identity().public();
        let is_seen = matches!(&connected, Err(ConnectError::Handshake(HandshakeError::Signature { key: k })) if *k == key);
        assert_eq!((is_seen, received), (is_forged, usize::from(!is_forged)), "{connected:?}");
    }
}
