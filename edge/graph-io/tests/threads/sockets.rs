//! Sockets of graphs, against those of other programs: here of the test.

use super::support::flat;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_elements::AllElements;
use weir_graph::engine::{Router, RunOptions};
use weir_graph_io::{GraphSystem, SystemClock};

/// The longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(120);

fn router(text: &str) -> Router {
    let clock = Box::new(SystemClock::new(Arc::new(AtomicBool::new(false))));
    Router::new(flat(text), &AllElements, Box::<GraphSystem>::default(), clock, RunOptions::default())
        .unwrap_or_else(|errors| panic!("{}", errors[0]))
}

/// Returns the errors of a graph that cannot start.
fn error(text: &str) -> String {
    let clock = Box::new(SystemClock::new(Arc::new(AtomicBool::new(false))));
    let result =
        Router::new(flat(text), &AllElements, Box::<GraphSystem>::default(), clock, RunOptions::default());
    result.err().map(|errors| errors[0].to_string()).unwrap_or_default()
}

/// Runs a graph until a condition holds.
#[track_caller]
fn run_until(router: &mut Router, mut is_over: impl FnMut(&mut Router) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_over(router) {
        router.step();
        assert!(Instant::now() < end, "it does not come");
    }
}

/// Runs a graph until a thread has ended, and returns its result.
#[track_caller]
fn run_beside<T>(router: &mut Router, peer: JoinHandle<T>) -> T {
    run_until(router, |_| peer.is_finished());
    peer.join().unwrap()
}

fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn free_tcp_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn count(router: &mut Router, handler: &str) -> u64 {
    router.read_handler(handler).unwrap().trim().parse().unwrap()
}

#[test]
fn a_udp_server_answers_the_latest_sender_and_refuses_those_of_deny() {
    let port = free_udp_port();
    let mut router = router(&format!(
        "s :: Socket(UDP, 127.0.0.1, {port}, SNAPLEN 8, DENY deny); s -> c :: Counter -> Queue -> s;
         deny :: StaticIPLookup(127.0.0.2/32 0); Idle -> deny -> Discard;"
    ));
    let peer = thread::spawn(move || {
        let denied = UdpSocket::bind("127.0.0.2:0").unwrap();
        denied.send_to(b"refused", (Ipv4Addr::LOCALHOST, port)).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answers = Vec::new();
        for text in ["one", "a longer one"] {
            client.send_to(text.as_bytes(), (Ipv4Addr::LOCALHOST, port)).unwrap();
            let mut buffer = [0; 100];
            let (length, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!(from.port(), port);
            answers.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        answers
    });
    // A datagram is cut to the snap length.
    assert_eq!(run_beside(&mut router, peer), ["one", "a longer"]);
    assert_eq!(count(&mut router, "c.count"), 2);
    router.finish().unwrap();
    assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok(), "the port is free again");
}

#[test]
fn a_tcp_server_serves_one_connection_after_the_other() {
    let port = free_tcp_port();
    let mut router = router(&format!("s :: Socket(TCP, 127.0.0.1, {port}); s -> Queue(1000) -> s;"));
    let peer = thread::spawn(move || {
        (0..3_u8).all(|round| {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent: Vec<u8> = (0..=250).cycle().skip(usize::from(round)).take(50_000).collect();
            stream.write_all(&sent).unwrap();
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
            back == sent
        })
    });
    assert!(run_beside(&mut router, peer));
    assert_eq!(count(&mut router, "s.drops"), 0);
    router.finish().unwrap();
}

#[test]
fn a_tcp_client_sends_all_its_packets_and_a_missing_server_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!(
        "InfiniteSource(DATA abcdefgh, LIMIT 20000) -> Queue(20000) -> s :: Socket(TCP, 127.0.0.1, {port})"
    );
    let peer = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 160_000];
        stream.read_exact(&mut bytes).unwrap();
        bytes.chunks(8).all(|chunk| chunk == b"abcdefgh")
    });
    let mut router = router(&text);
    run_until(&mut router, |_| peer.is_finished());
    assert_eq!((count(&mut router, "s.sent"), count(&mut router, "s.drops")), (20_000, 0));
    router.finish().unwrap();
    assert!(peer.join().unwrap());
    let port = free_tcp_port();
    let error = error(&format!("Idle -> Socket(TCP, 127.0.0.1, {port})"));
    assert!(error.contains("connect: Connection refused"), "{error}");
}

/// A peer that reads nothing: the graph goes on, its memory stays bounded, and the losses are counted.
#[test]
fn a_peer_that_reads_nothing_holds_no_graph_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut router = router(&format!(
        "InfiniteSource(LENGTH 60000, LIMIT 3000) -> c :: Counter -> s :: Socket(TCP, 127.0.0.1, {port}, SNDBUF 4096)"
    ));
    let (_stream, _) = listener.accept().unwrap();
    run_until(&mut router, |router| count(router, "c.count") == 3000);
    assert!(count(&mut router, "s.drops") > 500);
    let details = router.read_handler("s.drop_details").unwrap();
    assert!(details.contains("too many packets wait for room in the socket"), "{details}");
}

#[test]
fn datagrams_of_unix_sockets_have_files_that_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (server, client) = (name("server"), name("client"));
    let mut router = router(&format!(
        "s :: Socket(UNIX_DGRAM, {server}); s -> Queue -> s;
         Idle -> Socket(UNIX_DGRAM, {server}, {client}) -> Discard;"
    ));
    let peer_name = name("peer");
    let to = server.clone();
    let peer = thread::spawn(move || {
        let socket = UnixDatagram::bind(peer_name).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(b"hello", to).unwrap();
        let mut buffer = [0; 100];
        let length = socket.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    });
    assert_eq!(run_beside(&mut router, peer), b"hello");
    let taken = error(&format!("Socket(UNIX_DGRAM, {server}) -> Discard"));
    assert!(taken.contains("bind: Address already in use"), "{taken}");
    assert!(Path::new(&server).exists() && Path::new(&client).exists());
    router.finish().unwrap();
    assert!(!Path::new(&server).exists() && !Path::new(&client).exists());
}

#[test]
fn a_multicast_group_on_loopback_gets_the_packets_of_others() {
    let port = free_udp_port();
    let socket = format!("McastSocket(239.255.77.7, {port}, 127.0.0.1)");
    let mut one =
        router(&format!("s :: {socket}; InfiniteSource(DATA ab, LIMIT 5) -> s -> c :: Counter -> Discard;"));
    let mut two = router(&format!("s :: {socket} -> c :: Counter -> Discard; Idle -> s;"));
    let end = Instant::now() + PATIENCE;
    while count(&mut two, "c.count") < 5 {
        one.step();
        two.step();
        assert!(Instant::now() < end, "{} datagrams", count(&mut two, "c.count"));
    }
    // Its own datagrams do not come back.
    assert_eq!(count(&mut one, "c.count"), 0);
    assert_eq!(count(&mut one, "s.sent"), 5);
}

#[test]
fn a_raw_socket_sends_and_receives_whole_packets_with_the_right_to_do_so() {
    if let Some(refused) = Some(error("Idle -> Queue -> RawSocket(UDP)")).filter(|error| !error.is_empty()) {
        assert!(refused.contains("raw sockets need cap_net_raw"), "{refused}");
        eprintln!("SKIPPED: a raw socket needs root or CAP_NET_RAW");
        return;
    }
    let port = free_udp_port();
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let mut router = router(&format!(
        "InfiniteSource(DATA hello, LIMIT 1) -> UDPIPEncap(127.0.0.1, 9, 127.0.0.1, {port}) -> Queue
         -> s :: RawSocket(UDP) -> IPClassifier(dst udp port {port}) -> c :: Counter -> Discard;"
    ));
    let mut buffer = [0; 100];
    run_until(&mut router, |router| count(router, "c.count") >= 1);
    run_until(&mut router, |_| receiver.recv(&mut buffer).is_ok_and(|length| length == 5));
    assert_eq!(&buffer[..5], b"hello");
}
