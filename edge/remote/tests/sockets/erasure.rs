//! Erasure of session keys from memory. The test starts this program again, has an association with it, and knows the
//! keys. The other process searches its own memory for them during the association, and after its end.

use crate::node::{PATIENCE, client, identity};
use crate::pair::Seeded;
use crate::raw::{INITIATOR, RESPONDER, Raw, proof, seal, statement};
use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use weir_trust::association::{FIRST_BYTES, Responder, SECOND_BYTES, VERSION, frame};

/// The variable with the other process's side and the test's address.
const SIDE: &str = "WEIR_REMOTE_TEST_SIDE";
/// The other process receives its keys with these bits flipped, so that receiving them does not put them into its
/// memory.
const MASK: u8 = 0xa5;
/// The word before the counts of the other process.
const FOUND: &str = "found:";
/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// Counts each of these keys in this process's memory.
fn found(masked: &[[u8; 32]]) -> Vec<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = File::open("/proc/self/mem").unwrap();
    let mut counts = vec![0; masked.len()];
    let mut bytes = vec![0; PIECE];
    for line in
        maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|access| access.starts_with('r')))
    {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [mut at, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        while at < to {
            let len = usize::try_from(to - at).unwrap().min(PIECE);
            // Unreadable pages, such as the kernel's own, hold nothing of this process.
            let read = memory.read_at(&mut bytes[..len], at).unwrap_or(0);
            for window in bytes[..read].windows(32) {
                for (key, count) in masked.iter().zip(&mut counts) {
                    *count += usize::from(window.iter().zip(key).all(|(byte, key)| byte ^ MASK == *key));
                }
            }
            // In overlapping pieces, so that nothing is missed between two of them.
            at += (len as u64).saturating_sub(if at + (len as u64) < to { 31 } else { 0 });
        }
    }
    bytes.fill(0);
    black_box(&mut bytes);
    counts
}

/// The other process: makes an association, and searches for the keys that it receives.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn search_as_a_process_of_its_own() {
    let Ok(side) = std::env::var(SIDE) else { return };
    let (side, address) = side.split_once(' ').unwrap();
    let association: Box<dyn std::any::Any> = if side == "client" {
        let mut stream =
            weir_remote::connect(address.parse().unwrap(), &client(), None, b"mine", PATIENCE).unwrap();
        stream.write_all(b"something").unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"something");
        Box::new(stream)
    } else {
        let mut socket = TcpStream::connect(address).unwrap();
        let mut first = [0; frame::LENGTH_BYTES + FIRST_BYTES];
        socket.read_exact(&mut first).unwrap();
        let (responder, second) =
            Responder::begin(&identity(), &first[frame::LENGTH_BYTES..], &mut Seeded(7)).unwrap();
        socket.write_all(&frame::framed(&second).unwrap()).unwrap();
        let third = message(&mut socket);
        let (association, fourth) = responder.read_third(&third).unwrap().accept(b"").unwrap();
        socket.write_all(&frame::framed(&fourth).unwrap()).unwrap();
        let (_, mut sealed) = association.into_stream();
        sealed.send(b"something", &mut Vec::new()).unwrap();
        Box::new(sealed)
    };
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let masked: Vec<[u8; 32]> = line
        .split_whitespace()
        .map(|key| {
            let byte = |at: usize| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).unwrap();
            std::array::from_fn(byte)
        })
        .collect();
    let said = |counts: Vec<usize>| {
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        println!("{FOUND}{}", counts.join(" "));
    };
    said(found(&masked));
    drop(association);
    said(found(&masked));
}

fn message(socket: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; frame::LENGTH_BYTES];
    socket.read_exact(&mut length).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    socket.read_exact(&mut message).unwrap();
    message
}

/// Has an association with a process on that side, and returns the number of copies of each key in the process,
/// during the association and afterwards. Keys of the handshake come first, the two of the association last.
fn searched(side: &str) -> [Vec<usize>; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "erasure::search_as_a_process_of_its_own", "--ignored", "--nocapture"])
        .env(SIDE, format!("{side} {}", listener.local_addr().unwrap()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let send = |socket: &mut TcpStream, message: &[u8]| {
        socket.write_all(&frame::framed(message).unwrap()).unwrap();
    };
    let keys = if side == "client" {
        let mut raw = Raw::responder(2);
        raw.read_first(&message(&mut socket));
        let payload = proof(&identity(), &statement(VERSION, RESPONDER, &raw.hash(), &raw.own));
        let second = raw.second(&payload);
        assert_eq!(second.len(), SECOND_BYTES);
        send(&mut socket, &second);
        raw.read(&message(&mut socket));
        let keys = raw.keys.clone();
        let transport = raw.transport();
        // The fourth message, and the client's data.
        send(&mut socket, &seal(&transport, 0, &[2]));
        message(&mut socket);
        send(&mut socket, &seal(&transport, 1, b"\0something"));
        keys
    } else {
        let mut raw = Raw::initiator(2);
        let first = raw.first();
        send(&mut socket, &first);
        raw.read(&message(&mut socket)[1..]);
        let payload = proof(&client(), &statement(VERSION, INITIATOR, &raw.hash(), &raw.own));
        let third = raw.write(&payload);
        send(&mut socket, &third);
        message(&mut socket);
        raw.keys
    };
    let keys = keys.lock().unwrap().clone();
    let masked: Vec<String> = keys
        .iter()
        .filter(|key| **key != [0; 32])
        .map(|key| key.iter().map(|byte| format!("{:02x}", byte ^ MASK)).collect())
        .collect();
    assert!(masked.len() >= 5, "three keys of the handshake, two of the association: {}", masked.len());
    writeln!(child.stdin.take().unwrap(), "{}", masked.join(" ")).unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let counts: Vec<Vec<usize>> = lines
        .filter_map(|line| {
            let (_, counts) = line.split_once(FOUND)?;
            Some(counts.split(' ').map(|count| count.parse().unwrap()).collect())
        })
        .collect();
    assert!(child.wait().unwrap().success());
    counts.try_into().unwrap()
}

#[test]
fn keys_of_a_closed_association_are_erased_from_memory() {
    for side in ["client", "node"] {
        let [during, after] = searched(side);
        let (handshake, association) = during.split_at(during.len() - 2);
        // Otherwise the search would prove nothing.
        assert!(association.iter().all(|count| *count > 0), "{side}: {during:?}");
        assert!(handshake.iter().all(|count| *count == 0), "{side}: {during:?}");
        assert!(after.iter().all(|count| *count == 0), "{side}: {after:?}");
    }
}
