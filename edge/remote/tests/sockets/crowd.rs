//! Ten thousand silent connections, and one honest client.

use crate::node::{CREDENTIALS, Node, PATIENCE, connect_from};
use rand_core::OsRng;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use weir_trust::association::{Initiator, frame};

const CONNECTIONS: u32 = 10_000;
/// Connections at a time: descriptors are limited where these tests run, and this many fit into the queue of a
/// listening socket.
const ROUND: u32 = 100;

#[test]
fn ten_thousand_half_open_connections_do_not_block_an_honest_client() {
    let node = Node::start(64, PATIENCE);
    let mut open: Vec<TcpStream> = Vec::new();
    for round in 0..CONNECTIONS / ROUND {
        // The connections of the previous round are still open while these arrive: no place is ever free.
        let before = std::mem::take(&mut open);
        for number in 0..ROUND {
            let [.., host] = number.to_be_bytes();
            let mut stream =
                connect_from(IpAddr::V4(Ipv4Addr::new(127, 7, host % 4, 1 + host % 2)), node.address);
            // Some cost the node an answer too. They may have been closed already.
            if number % 10 == 0 {
                let (_, first) = Initiator::begin(None, &mut OsRng).unwrap();
                _ = stream.write_all(&frame::framed(&first).unwrap());
            }
            open.push(stream);
        }
        drop(before);
        // Connects at the first try, each time.
        let mut stream = node.connect().unwrap_or_else(|error| panic!("round {round}: {error}"));
        stream.write_all(CREDENTIALS).unwrap();
        let mut answer = [0; CREDENTIALS.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, CREDENTIALS);
    }
}
