//! The translation of addresses in docs/click, between two hosts in network namespaces. The tests need root.

use crate::graph_devices::{RunningGraph, ethernet, handler, routed, set_mtu};
use crate::offload::Host;
use crate::run::net::{cables, shell};
use rustix::net::{AddressFamily, SocketType, ipproto};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The address that hosts outside see, and that of such a host.
const SHARED: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);

/// Makes a host inside and one outside, and starts the translation between them.
fn start(more: &[&str]) -> Option<([Host; 2], RunningGraph)> {
    if !cables(&[("near", "host1"), ("far", "host2")]) {
        return None;
    }
    set_mtu(&["near", "host1", "far", "host2"], 1500);
    let (one, two) = (format!("ETH1={}", ethernet("near")), format!("ETH2={}", ethernet("far")));
    let hosts = [routed("host1", 1), routed("host2", 2)];
    let mut arguments = vec!["nat.click", "INSIDE=near", "IP1=10.1.0.1", "OUTSIDE=far", "IP2=10.2.0.1"];
    arguments.extend(["BITS2=24", "GATEWAY=10.2.0.2", &one, &two]);
    for read in ["flows.mapping_failures", "flows.table_size", "inside/to.drops", "outside/to.drops"] {
        arguments.extend(["-h", read]);
    }
    for read in ["inside/out.drops", "outside/out.drops"] {
        arguments.extend(["-h", read]);
    }
    arguments.extend(more);
    Some((hosts, RunningGraph::start(&arguments)))
}

/// Ends a translation, which has lost nothing.
fn end(graph: RunningGraph) -> String {
    let output = graph.end("TERM");
    for none in ["flows.mapping_failures", "inside/to.drops", "outside/to.drops"] {
        assert_eq!(handler(&output, none), 0, "{output}");
    }
    output
}

/// Reads a line of a control connection.
fn line(reader: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A server of active FTP for one session: PORT, RETR and QUIT. It returns the addresses that it was told.
fn serve_ftp(listener: &TcpListener, file: &[u8]) -> Vec<SocketAddrV4> {
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), SHARED);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut reader, mut answers) = (BufReader::new(stream.try_clone().unwrap()), stream);
    let mut told = Vec::new();
    writeln!(answers, "220 ready\r").unwrap();
    loop {
        let command = line(&mut reader);
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("PORT", argument) => {
                let numbers: Vec<u8> = argument.split(',').map(|it| it.parse().unwrap()).collect();
                let [a, b, c, d, high, low] = numbers[..] else { panic!("{command}") };
                told.push(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])));
                writeln!(answers, "200 PORT\r").unwrap();
            }
            ("RETR", _) => {
                writeln!(answers, "150 data\r").unwrap();
                let mut data = connect_from(SocketAddrV4::new(SERVER, 20), *told.last().unwrap());
                data.write_all(file).unwrap();
                drop(data);
                writeln!(answers, "226 done\r").unwrap();
            }
            ("QUIT", _) => {
                writeln!(answers, "221 end\r").unwrap();
                return told;
            }
            _ => panic!("{command}"),
        }
    }
}

/// Connects from an address, which an earlier connection can have used.
fn connect_from(from: SocketAddrV4, to: SocketAddrV4) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    rustix::net::bind(&socket, &from).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

#[test]
fn tcp_udp_icmp_and_ftp_pass_a_translation_of_addresses() {
    let Some((hosts, graph)) = start(&[]) else { return };
    // TCP, as the server sees it.
    let listener = hosts[1].run(|| TcpListener::bind((SERVER, 80)).unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        peer
    });
    let sent: Vec<u8> = (0..=250).cycle().take(500_000).collect();
    let expected = sent.clone();
    let back = hosts[0].run(move || {
        let mut stream = TcpStream::connect((SERVER, 80)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        back
    });
    assert!(back == expected, "what comes back is what was sent");
    assert_eq!(server.join().unwrap().ip(), SHARED);

    // UDP in fragments, both ways.
    let echo = hosts[1].run(|| UdpSocket::bind((SERVER, 7)).unwrap());
    let client = hosts[0].run(|| UdpSocket::bind("10.1.0.2:5000").unwrap());
    let datagram: Vec<u8> = (0..=250).cycle().take(4000).collect();
    client.send_to(&datagram, (SERVER, 7)).unwrap();
    for socket in [&echo, &client] {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    let mut bytes = vec![0; 5000];
    let (length, from) = echo.recv_from(&mut bytes).unwrap();
    assert!(bytes[..length] == datagram && from.ip() == SHARED);
    echo.send_to(&bytes[..length], from).unwrap();
    let (length, from) = client.recv_from(&mut bytes).unwrap();
    assert!(bytes[..length] == datagram && from == SocketAddr::from((SERVER, 7)));

    // An ICMP error: the kernel relates it to the socket only if it has its original addresses and ports.
    let refused = hosts[0].run(|| {
        let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
        socket.connect((SERVER, 9)).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.send(b"refuse me").unwrap();
        socket.recv(&mut [0; 10]).unwrap_err().kind()
    });
    assert_eq!(refused, ErrorKind::ConnectionRefused);

    // A ping: type, code, checksum, identifier, number.
    let reply = hosts[0].run(|| {
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
        let raw = UdpSocket::from(raw);
        raw.set_read_timeout(Some(TIMEOUT)).unwrap();
        raw.send_to(&[8, 0, 0xb7, 0xf7, 0x40, 0x07, 0, 1], (SERVER, 0)).unwrap();
        let mut bytes = [0; 100];
        loop {
            let length = raw.recv(&mut bytes).unwrap();
            if bytes[20] == 0 {
                return bytes[12..length].to_vec();
            }
        }
    });
    assert_eq!((&reply[..4], &reply[12..]), (&[10, 2, 0, 2][..], &[0x40, 0x07, 0, 1][..]), "{reply:?}");

    // Active FTP: the command goes whole, then in pieces, then byte by byte.
    let file: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let served = file.clone();
    let listener = hosts[1].run(|| TcpListener::bind((SERVER, 21)).unwrap());
    let server = hosts[1].begin(move || serve_ftp(&listener, &served));
    hosts[0].run(move || {
        let stream = TcpStream::connect((SERVER, 21)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let (mut reader, mut commands) = (BufReader::new(stream.try_clone().unwrap()), stream);
        assert_eq!(line(&mut reader), "220 ready");
        for piece in [1000, 7, 1] {
            let listener = TcpListener::bind("10.1.0.2:0").unwrap();
            let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
            for part in format!("PORT 10,1,0,2,{high},{low}\r\n").as_bytes().chunks(piece) {
                commands.write_all(part).unwrap();
            }
            assert_eq!(line(&mut reader), "200 PORT");
            commands.write_all(b"RETR file\r\n").unwrap();
            assert_eq!(line(&mut reader), "150 data");
            let (mut data, from) = listener.accept().unwrap();
            assert_eq!(from, SocketAddr::from((SERVER, 20)));
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes).unwrap();
            assert!(bytes == file, "the file is whole");
            assert_eq!(line(&mut reader), "226 done");
        }
        commands.write_all(b"QUIT\r\n").unwrap();
        assert_eq!(line(&mut reader), "221 end");
    });
    let told = server.join().unwrap();
    assert!(told.len() == 3 && told.iter().all(|address| *address.ip() == SHARED), "{told:?}");
    end(graph);
}

#[test]
fn ten_thousand_new_flows_pass_a_translation_without_loss() {
    const CLIENTS: u16 = 100;
    const SERVERS: u16 = 100;
    let Some((hosts, graph)) = start(&[]) else { return };
    let servers: Vec<UdpSocket> =
        hosts[1].run(|| (0..SERVERS).map(|port| UdpSocket::bind((SERVER, 4000 + port)).unwrap()).collect());
    let clients: Vec<UdpSocket> = hosts[0]
        .run(|| (0..CLIENTS).map(|port| UdpSocket::bind(("10.1.0.2", 5000 + port)).unwrap()).collect());
    for socket in servers.iter().chain(&clients) {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    }
    let (mut bytes, mut seen) = ([0; 10], BTreeSet::new());
    for (number, server) in servers.iter().enumerate() {
        // All clients begin a flow to this server before it answers.
        for client in &clients {
            client.send_to(b"new flow", (SERVER, 4000 + u16::try_from(number).unwrap())).unwrap();
        }
        for _ in &clients {
            let (length, from) = server.recv_from(&mut bytes).unwrap();
            assert!(from.ip() == SHARED && seen.insert((number, from)), "{from} is another flow's");
            server.send_to(&bytes[..length], from).unwrap();
        }
        for client in &clients {
            assert_eq!(client.recv(&mut bytes).unwrap(), b"new flow".len());
        }
    }
    let output = end(graph);
    assert_eq!(handler(&output, "flows.table_size"), u64::from(CLIENTS) * u64::from(SERVERS), "{output}");
    for none in ["inside/out.drops", "outside/out.drops"] {
        assert_eq!(handler(&output, none), 0, "{output}");
    }
}

#[test]
fn a_hot_swap_loses_none_of_a_thousand_connections_through_a_translation() {
    const CONNECTIONS: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let Some((hosts, graph)) = start(&["-R", "-u", control.to_str().unwrap()]) else { return };
    shell(&format!("prlimit --pid {} --nofile=8192:8192", std::process::id()));
    let listener = hosts[1].run(|| TcpListener::bind((SERVER, 80)).unwrap());
    let (mut clients, mut accepted) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        clients.push(hosts[0].run(|| TcpStream::connect((SERVER, 80)).unwrap()));
        accepted.push(listener.accept().unwrap().0);
    }
    let exchange = |clients: &[TcpStream], accepted: &[TcpStream]| {
        for (number, (client, server)) in (0_u32..).zip(clients.iter().zip(accepted)) {
            // `Read` and `Write` are there for references, too.
            for (mut from, mut to) in [(client, server), (server, client)] {
                to.set_read_timeout(Some(TIMEOUT)).unwrap();
                from.write_all(&number.to_be_bytes()).unwrap();
                let mut bytes = [0; 4];
                to.read_exact(&mut bytes).unwrap();
                assert_eq!(u32::from_be_bytes(bytes), number);
            }
        }
    };
    let ports = |accepted: &[TcpStream]| -> BTreeSet<SocketAddr> {
        accepted.iter().map(|stream| stream.peer_addr().unwrap()).collect()
    };
    assert_eq!(ports(&accepted).len(), CONNECTIONS);

    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/click/nat.click"));
    let changed = text
        .unwrap()
        .replace("flows [0], pings", "swapped :: Counter -> outside_routes;\nflows [0] -> swapped;\npings");
    assert!(changed.contains("swapped"));
    for turn in 0..3 {
        let mut socket = UnixStream::connect(&control).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(socket, "WRITEDATA hotconfig {}\r\n{changed}READ swapped.count\r\nQUIT\r\n", changed.len())
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("200 Write handler 'hotconfig' OK"), "{answer}");
        assert!(!answer.contains("no element named"), "{turn}: {answer}");
        exchange(&clients, &accepted);
    }
    let output = end(graph);
    assert!(handler(&output, "flows.table_size") >= CONNECTIONS as u64, "{output}");
}
