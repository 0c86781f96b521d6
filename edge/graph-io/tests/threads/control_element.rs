//! The element ControlSocket, against peers of all kinds.

use super::support::flat;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};
use weir_elements::AllElements;
use weir_graph::engine::{Router, RunOptions};
use weir_graph::language::{ConfigurationSource, parse};
use weir_graph_io::{GraphSystem, SystemClock};

/// The longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(120);

fn router(text: &str) -> Router {
    let clock = Box::new(SystemClock::new(Arc::new(AtomicBool::new(false))));
    Router::new(flat(text), &AllElements, Box::<GraphSystem>::default(), clock, RunOptions::default())
        .unwrap_or_else(|errors| panic!("{}", errors[0]))
}

/// Runs a graph until a peer has ended.
#[track_caller]
fn run_beside<T: Send + 'static>(router: &mut Router, peer: impl FnOnce() -> T + Send + 'static) -> T {
    let peer = thread::spawn(peer);
    let end = Instant::now() + PATIENCE;
    while !peer.is_finished() {
        router.step();
        assert!(Instant::now() < end, "the peer does not end");
    }
    peer.join().unwrap()
}

/// Sends bytes, and returns all that comes until the end.
fn exchange(port: u16, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn port(router: &mut Router) -> u16 {
    router.read_handler("cs.port").unwrap().trim().parse().unwrap()
}

const GRAPH: &str = "Idle -> s :: Switch(1) -> Discard; s [1] -> Discard; cs :: ControlSocket(TCP, 47000+);";

#[test]
fn a_program_reads_and_writes_handlers_also_those_of_the_element() {
    let mut router = router(GRAPH);
    let at = port(&mut router);
    let text = run_beside(&mut router, move || {
        exchange(at, b"READ s.switch\r\nWRITE s.switch 0\nREAD cs.port\nREAD .driver\nread 1.name\nQUIT\n")
    });
    let expected = format!(
        "Click::ControlSocket/1.3\r\n200 Read handler 's.switch' OK\r\nDATA 1\r\n1200 Write handler 's.switch' OK\r\n\
         200 Read handler 'cs.port' OK\r\nDATA {}\r\n{at}200 Read handler '.driver' OK\r\nDATA 9\r\nuserlevel\
         200 Read handler '1.name' OK\r\nDATA 6\r\nIdle@1200 goodbye\r\n",
        at.to_string().len()
    );
    assert_eq!(text, expected);
    assert_eq!(router.read_handler("s.switch").unwrap().trim(), "0");
}

#[test]
fn half_lines_huge_values_and_noise_harm_nothing() {
    let mut router = router(GRAPH);
    let at = port(&mut router);
    for (bytes, end) in [
        (&b"READ s.swi"[..], "511 no handler named 's.swi'\r\n"),
        (b"WRITEDATA s.switch 4294967296\n0", "500 not enough data\r\n"),
        (b"WRITEDATA s.switch 99999999999999999999999\n0", "510"),
        (b"WRITEUNTIL s.switch END\n0\n", "500 not enough data\r\n"),
        (&[0xff; 70_000], "use WRITEDATA\r\n"),
        (b"\r\n\r\n\0\n", "unimplemented\r\n"),
    ] {
        let text = run_beside(&mut router, move || exchange(at, bytes));
        assert!(text.ends_with(end) || end == "510" && text.contains("\r\n500 expected"), "{text:?} {end:?}");
    }
    assert_eq!(router.read_handler("s.switch").unwrap().trim(), "1");
}

/// Most of the connections are told that there are too many. Afterwards a program is served again.
#[test]
fn a_thousand_connections_harm_nothing() {
    let mut router = router(GRAPH);
    let at = port(&mut router);
    let (served, refused) = run_beside(&mut router, move || {
        let mut open = Vec::new();
        let (mut served, mut refused) = (0, 0);
        for _ in 0..1000 {
            let stream = TcpStream::connect(("127.0.0.1", at)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim_end() {
                "Click::ControlSocket/1.3" => served += 1,
                "530 too many connections" => refused += 1,
                other => panic!("{other}"),
            }
            open.push(stream);
        }
        (served, refused)
    });
    assert_eq!((served, refused), (16, 984));
    let text = run_beside(&mut router, move || {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = exchange(at, b"READ s.switch\n");
            if !text.starts_with("530") {
                return text;
            }
            assert!(Instant::now() < end, "no place becomes free");
        }
    });
    assert!(text.ends_with("DATA 1\r\n1"), "{text}");
}

#[test]
fn a_file_is_for_its_user_and_a_connection_survives_another_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = format!(
        "Idle -> c :: Counter -> Discard; cs :: ControlSocket(UNIX, {}, READONLY true);",
        path.display()
    );
    let mut router = router(&text);
    router.allow_replacement(
        |text| {
            let source = ConfigurationSource { name: "config", bytes: text.as_bytes() };
            parse(&source, &[], &AllElements).map_err(|errors| errors.to_string())
        },
        AllElements,
    );
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let connect = path.clone();
    let mut stream = run_beside(&mut router, move || {
        let mut stream = BufReader::new(UnixStream::connect(connect).unwrap());
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        stream.get_mut().write_all(b"WRITE c.reset\n").unwrap();
        stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("530 Permission denied for 'c.reset'\r\n"), "{line}");
        stream
    });
    let other = text.replace("Counter", "Null").replace("READONLY true", "READONLY false");
    router.write_handler(&format!("hotconfig {other}")).unwrap();
    let line = run_beside(&mut router, move || {
        stream.get_mut().write_all(b"READ c.class\n").unwrap();
        let (mut line, mut length) = (String::new(), String::new());
        stream.read_line(&mut line).unwrap();
        stream.read_line(&mut length).unwrap();
        line + &length
    });
    assert_eq!(line, "200 Read handler 'c.class' OK\r\nDATA 4\r\n");
    drop(router);
    assert!(!path.exists());
}
