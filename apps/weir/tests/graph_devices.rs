//! Graphs with devices, in network namespaces that the tests create. They need root.
//!
//! The configurations are those of docs/click, which a user runs.

use crate::offload::{self, Arrivals, Host, checksums};
use crate::run::net::{cables, shell, wait_for, wait_until_it_reads};
use crate::run::weir;
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// A payload of many TCP segments.
const STREAM_BYTES: usize = 1_000_000;

/// A graph that runs in the background.
pub struct RunningGraph {
    child: Option<Child>,
    stderr: tempfile::NamedTempFile,
}

impl RunningGraph {
    /// Starts `weir graph run` in the folder of the configurations, and waits until it receives packets.
    pub fn start(arguments: &[&str]) -> Self {
        let stderr = tempfile::NamedTempFile::new().unwrap();
        let child = weir()
            .args(["graph", "run"])
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/click"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr.reopen().unwrap())
            .spawn()
            .unwrap();
        wait_until_it_reads(&child);
        Self { child: Some(child), stderr }
    }

    fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.stderr.path()).unwrap()
    }

    /// Waits until the graph has written this message.
    #[track_caller]
    fn says(&self, message: &str) {
        let begin = Instant::now();
        while !self.messages().contains(message) {
            assert!(begin.elapsed() < TIMEOUT, "no '{message}' in {}", self.messages());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the graph by a signal, and returns what it printed.
    pub fn end(mut self, signal: &str) -> String {
        shell(&format!("kill -{signal} {}", self.id()));
        let Output { status, stdout, .. } = self.child.take().unwrap().wait_with_output().unwrap();
        let (out, error) = (String::from_utf8_lossy(&stdout), self.messages());
        assert!(status.success(), "{status}\n{error}");
        format!("{out}{error}")
    }
}

impl Drop for RunningGraph {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns the value of a handler in the output of several.
#[track_caller]
pub fn handler(output: &str, name: &str) -> u64 {
    let value = output.split(&format!("{name}:\n")).nth(1).and_then(|rest| rest.lines().next());
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {output}"))
}

/// Has a server at a port send back what it gets, and a client compare that with what it sent.
#[track_caller]
fn exchange(client: &Host, server: &Host, address: SocketAddr) {
    let listener = server.run(move || TcpListener::bind(address).unwrap());
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut bytes = vec![0; STREAM_BYTES];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let sent: Vec<u8> = (0..=250).cycle().take(STREAM_BYTES).collect();
    let expected = sent.clone();
    let back = client.run(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&sent).unwrap();
        let mut back = vec![0; STREAM_BYTES];
        stream.read_exact(&mut back).unwrap();
        back
    });
    assert!(back == expected, "what comes back is what was sent");
    echo.join().unwrap();
}

/// Returns the error of a connection with this time to live.
fn refusal(client: &Host, address: SocketAddr, ttl: u8) -> ErrorKind {
    client.run(move || {
        let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).unwrap();
        if address.is_ipv6() {
            sockopt::set_ipv6_unicast_hops(&socket, Some(ttl)).unwrap();
        } else {
            sockopt::set_ip_ttl(&socket, ttl.into()).unwrap();
        }
        let result = rustix::net::connect(&socket, &address);
        std::io::Error::from(result.unwrap_err()).kind()
    })
}

/// The commands of docs/CLICK.md give values to variables that the examples have, and the examples run in batches.
#[test]
fn the_documented_commands_fit_the_examples_which_run_in_batches() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let document = std::fs::read_to_string(docs.join("CLICK.md")).unwrap().replace("\\\n", " ");
    // Elements of a translation share their mappings, so its packets go one by one.
    for (example, batched) in [
        ("firewall.click", "100 %"),
        ("router.click", "100 %"),
        ("router6.click", "100 %"),
        ("nat.click", "0 %"),
    ] {
        let text = std::fs::read_to_string(docs.join("click").join(example)).unwrap();
        let command = format!("weir graph run {example} ");
        let commands: Vec<&str> = document.lines().filter(|line| line.contains(&command)).collect();
        assert!(!commands.is_empty(), "{example} is in the document");
        for (name, _) in
            commands.iter().flat_map(|line| line.split(' ')).filter_map(|word| word.split_once('='))
        {
            assert!(text.contains(&format!("${name}")), "{example} has no ${name}");
        }
        let output = weir()
            .args(["graph", "check", example, "ETH1=2:0:0:0:0:1", "ETH2=2:0:0:0:0:2"])
            .current_dir(docs.join("click"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains(&format!("elements get pushed packets in batches: {batched}")),
            "{example}: {text}"
        );
    }
}

/// Makes the host's interfaces as a link with this MTU has them.
pub fn set_mtu(interfaces: &[&str], mtu: u32) {
    for interface in interfaces {
        shell(&format!("ip link set dev {interface} mtu {mtu}"));
    }
}

#[test]
fn a_firewall_of_50_rules_passes_what_it_allows_and_counts_what_it_denies() {
    if !cables(&[("inside", "hosti"), ("outside", "hosto")]) {
        return;
    }
    set_mtu(&["inside", "outside"], 1500);
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/click/firewall.click"),
    );
    let is_rule = |line: &&str| line.trim_start().starts_with(['$']) && line.contains("  ");
    assert_eq!(text.unwrap().lines().filter(is_rule).count(), 50);
    let hosts = offload::hosts("hosto", "hosti");
    // The hosts have to find each other by ARP.
    for (host, interface, other) in [(&hosts[0], "hosto", 2), (&hosts[1], "hosti", 1)] {
        host.run(move || shell(&format!("ip neigh del 10.9.0.{other} dev {interface}")));
    }
    let counts = ["allowed", "denied", "bad", "others"].map(|name| format!("{name}.count"));
    let mut arguments =
        vec!["firewall.click", "INSIDE=inside", "OUTSIDE=outside", "SERVER=10.9.0.2", "NET=10.9.0.0/24"];
    arguments.extend(counts.iter().flat_map(|count| ["-h", count.as_str()]));
    arguments.extend(["-h", "to_inside.drops", "-h", "to_outside.drops"]);
    let graph = RunningGraph::start(&arguments);

    exchange(&hosts[0], &hosts[1], "10.9.0.2:80".parse().unwrap());
    // A denied port: the server would refuse the connection at once.
    let denied: SocketAddrV4 = "10.9.0.2:23".parse().unwrap();
    let error = hosts[0].run(move || TcpStream::connect_timeout(&denied.into(), Duration::from_millis(500)));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
    // An allowed one, where no server listens: it does refuse.
    assert_eq!(refusal(&hosts[0], "10.9.0.2:443".parse().unwrap(), 64), ErrorKind::ConnectionRefused);
    let output = graph.end("INT");
    assert!(handler(&output, "denied.count") >= 1, "{output}");
    // Each segment has at most 1,460 bytes of payload: the hosts' longer ones were divided.
    assert!(handler(&output, "allowed.count") >= 2 * (STREAM_BYTES as u64) / 1460, "{output}");
    for none in ["bad.count", "to_inside.drops", "to_outside.drops"] {
        assert_eq!(handler(&output, none), 0, "{output}");
    }
}

/// Returns the Ethernet address of an interface.
pub fn ethernet(interface: &str) -> String {
    let text = shell(&format!("ip link show dev {interface}"));
    text.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned()
}

/// A host behind the router.
pub fn routed(interface: &str, network: u8) -> Host {
    let host = Host::without_address(interface, network);
    let interface = interface.to_owned();
    host.run(move || {
        shell(&format!(
            "ip link set dev {interface} up && ip address add 10.{network}.0.2/24 dev {interface}"
        ));
        shell(&format!("ip route add default via 10.{network}.0.1"));
        // Datagrams may be fragmented on their way.
        shell("echo 1 > /proc/sys/net/ipv4/ip_no_pmtu_disc");
    });
    host
}

#[test]
fn an_ip_router_with_two_interfaces_carries_tcp_fragments_datagrams_and_answers_with_icmp_errors() {
    if !cables(&[("wide", "host1"), ("narrow", "host2")]) {
        return;
    }
    set_mtu(&["wide", "host1"], 1500);
    set_mtu(&["narrow", "host2"], 600);
    let (one, two) = (format!("ETH1={}", ethernet("wide")), format!("ETH2={}", ethernet("narrow")));
    let hosts = [routed("host1", 1), routed("host2", 2)];
    let mut arguments = vec!["router.click", "DEV1=wide", "DEV2=narrow", "MTU2=600", &one, &two];
    for read in ["bad.count", "link1/to.drops", "link2/to.drops", "way2/fragment.fragments"] {
        arguments.extend(["-h", read]);
    }
    let graph = RunningGraph::start(&arguments);

    // Both directions of TCP; the kernels drop segments with wrong checksums.
    exchange(&hosts[0], &hosts[1], "10.2.0.2:80".parse().unwrap());
    exchange(&hosts[1], &hosts[0], "10.1.0.2:80".parse().unwrap());

    // A datagram that is longer than the MTU of the second link arrives whole.
    let receiver = hosts[1].run(|| UdpSocket::bind("10.2.0.2:7000").unwrap());
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let datagram: Vec<u8> = (0..=250).cycle().take(1400).collect();
    let sent = datagram.clone();
    hosts[0].run(move || {
        UdpSocket::bind("10.1.0.2:0").unwrap().send_to(&sent, "10.2.0.2:7000").unwrap();
    });
    let mut bytes = vec![0; 2000];
    let (length, from) = receiver.recv_from(&mut bytes).unwrap();
    assert!(bytes[..length] == datagram && from.ip() == Ipv4Addr::new(10, 1, 0, 2));

    // The kernel relates an ICMP error to a connection only if it is right.
    let refused = |address: &str, ttl| refusal(&hosts[0], address.parse().unwrap(), ttl);
    assert_eq!(refused("10.2.0.2:81", 1), ErrorKind::HostUnreachable, "time exceeded");
    assert_eq!(refused("10.2.0.2:81", 2), ErrorKind::ConnectionRefused, "the host itself");
    assert_eq!(refused("192.0.2.1:80", 64), ErrorKind::NetworkUnreachable, "no route");
    assert_eq!(refused("10.1.0.1:80", 64), ErrorKind::ConnectionRefused, "a port of the router");

    // The error that a probe of traceroute gets: from the router's address, with right checksums.
    let mut captured = hosts[0].run(|| Arrivals::capture("host1"));
    hosts[0].run(|| {
        let socket = UdpSocket::bind("10.1.0.2:0").unwrap();
        socket.set_ttl(1).unwrap();
        socket.send_to(b"probe", "10.2.0.2:33434").unwrap();
    });
    let is_exceeded = |frame: &Vec<u8>| {
        frame.get(23) == Some(&1) && frame.get(34) == Some(&11) && frame.get(26..30) == Some(&[10, 1, 0, 1])
    };
    let frames = captured.until("the time to live is exceeded", |frames| frames.iter().any(is_exceeded));
    let error = frames.iter().find(|frame| is_exceeded(frame)).unwrap();
    let length = usize::from(u16::from_be_bytes([error[16], error[17]]));
    assert_eq!([sum(&error[14..34]), sum(&error[34..14 + length])], [0xffff; 2]);

    let output = graph.end("TERM");
    for none in ["bad.count", "link1/to.drops", "link2/to.drops"] {
        assert_eq!(handler(&output, none), 0, "{output}");
    }
    assert!(handler(&output, "way2/fragment.fragments") >= 3, "{output}");
}

/// A host behind the IPv6 router.
fn routed_v6(interface: &str, network: u8) -> Host {
    let host = Host::without_address(interface, network);
    let interface = interface.to_owned();
    host.run(move || {
        shell(&format!("ip link set dev {interface} up"));
        shell(&format!("ip -6 address add fd00:{network}::2/64 dev {interface} nodad"));
        shell(&format!("ip -6 route add default via fd00:{network}::1"));
    });
    host
}

#[test]
fn an_ipv6_router_with_two_interfaces_carries_tcp_and_answers_with_icmp_errors() {
    if !cables(&[("wide", "host1"), ("narrow", "host2")]) {
        return;
    }
    set_mtu(&["wide", "host1"], 1500);
    set_mtu(&["narrow", "host2"], 1300);
    let (one, two) = (format!("ETH1={}", ethernet("wide")), format!("ETH2={}", ethernet("narrow")));
    let hosts = [routed_v6("host1", 1), routed_v6("host2", 2)];
    let mut arguments = vec!["router6.click", "DEV1=wide", "DEV2=narrow", "MTU2=1300", &one, &two];
    let tables = ["link1/neighbors.table", "link2/neighbors.table"];
    for read in ["link1/to.drops", "link2/to.drops", "way2/long.count"].iter().chain(&tables) {
        arguments.extend(["-h", read]);
    }
    let graph = RunningGraph::start(&arguments);

    // Both directions of TCP; the kernels drop segments with wrong checksums.
    exchange(&hosts[0], &hosts[1], "[fd00:2::2]:80".parse().unwrap());
    exchange(&hosts[1], &hosts[0], "[fd00:1::2]:80".parse().unwrap());

    // The kernel divides datagrams once the router has reported the MTU of the second link.
    let receiver = hosts[1].run(|| UdpSocket::bind("[fd00:2::2]:7000").unwrap());
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let datagram: Vec<u8> = (0..=250).cycle().take(1400).collect();
    let sender = hosts[0].run(|| UdpSocket::bind("[fd00:1::2]:0").unwrap());
    let mut bytes = vec![0; 2000];
    let begin = Instant::now();
    let (length, from) = loop {
        assert!(begin.elapsed() < TIMEOUT, "no datagram arrives");
        _ = sender.send_to(&datagram, "[fd00:2::2]:7000");
        if let Ok(received) = receiver.recv_from(&mut bytes) {
            break received;
        }
    };
    assert!(bytes[..length] == datagram && from.ip() == Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 2));

    // The kernel relates an ICMPv6 error to a connection only if it is right.
    let refused = |address: &str, ttl| refusal(&hosts[0], address.parse().unwrap(), ttl);
    assert_eq!(refused("[fd00:2::2]:81", 1), ErrorKind::HostUnreachable, "time exceeded");
    assert_eq!(refused("[fd00:2::2]:81", 2), ErrorKind::ConnectionRefused, "the host itself");
    assert_eq!(refused("[2001:db8::1]:80", 64), ErrorKind::NetworkUnreachable, "no route");
    assert_eq!(refused("[fd00:1::1]:80", 64), ErrorKind::ConnectionRefused, "a port of the router");

    let output = graph.end("TERM");
    for none in ["link1/to.drops", "link2/to.drops"] {
        assert_eq!(handler(&output, none), 0, "{output}");
    }
    assert!(handler(&output, "way2/long.count") >= 1, "{output}");
    for neighbor in ["fd00:1::2 1 ", "fd00:2::2 1 "] {
        assert!(output.contains(neighbor), "{output}");
    }
}

/// The sum of RFC 1071: 0xffff for bytes with a right checksum.
fn sum(bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// A graph that forwards between two interfaces in both directions.
const BRIDGE: &str = "FromDevice(a, PROMISC true, SNIFFER false) -> Queue(1000) -> tob :: ToDevice(b);\n\
                      FromDevice(b, PROMISC true, SNIFFER false) -> Queue(1000) -> toa :: ToDevice(a);";

#[test]
fn hosts_that_leave_checksums_segments_and_vlan_tags_to_the_card_are_bridged() {
    if !cables(&[("a", "hosta"), ("b", "hostb")]) {
        return;
    }
    set_mtu(&["a", "b"], 1500);
    let hosts = offload::hosts("hosta", "hostb");
    let graph = RunningGraph::start(&["-e", BRIDGE, "-h", "toa.drops", "-h", "tob.drops"]);
    let mut arrivals = hosts[1].arrivals();
    offload::datagrams(&hosts[0], &hosts[1]);
    offload::datagrams(&hosts[1], &hosts[0]);
    offload::streams(&hosts[0], &hosts[1]);
    let tagged = offload::tagged(&hosts[0], &hosts[1]);
    let frames = arrivals.until("all frames with a tag are there", |frames| {
        frames.iter().filter(|frame| frame[12..14] == [0x81, 0]).count() >= tagged
    });
    let (wrong, right) = checksums(&frames);
    assert!(wrong == 0 && right > tagged, "{wrong} wrong, {right} right");
    assert!(frames.iter().all(|frame| frame.len() <= 1518), "no frame is longer than the link's MTU");
    let output = graph.end("INT");
    assert_eq!((handler(&output, "toa.drops"), handler(&output, "tob.drops")), (0, 0), "{output}");
}

#[test]
fn frames_of_any_length_and_content_break_nothing() {
    if !cables(&[("a", "hosta"), ("b", "hostb")]) {
        return;
    }
    set_mtu(&["a", "hosta"], 9000);
    set_mtu(&["b", "hostb"], 1500);
    let host = Host::without_address("hosta", 1);
    host.run(|| {
        // The host sends no packets of its own.
        shell("echo 1 > /proc/sys/net/ipv6/conf/hosta/disable_ipv6 || true; ip link set dev hosta up")
    });
    let text = "from :: FromDevice(a, PROMISC true, SNIFFER false) -> kinds :: Classifier(12/0800, -);\n\
                kinds [0] -> CheckIPHeader(14) -> IPFilter(allow tcp, allow all) -> out :: Queue(10000);\n\
                kinds [1] -> out -> to :: ToDevice(b);";
    let graph = RunningGraph::start(&[
        "-e",
        text,
        "-h",
        "from.count",
        "-h",
        "to.count",
        "-h",
        "to.drops",
        "-h",
        "from.kernel_drops",
    ]);
    // Frames of each length up to those of the link, with headers that promise more than there is.
    let frames: Vec<Vec<u8>> = (14..200)
        .chain([1513, 1514, 1515, 9000, 9014])
        .flat_map(|length: usize| {
            [[8, 0], [0x81, 0], [0x86, 0xdd], [8, 6], [0, 9]].map(|kind| {
                let mut frame = vec![0x45_u8.wrapping_add(length.to_le_bytes()[0]); length];
                frame[..12].copy_from_slice(&[2, 0, 0, 0, 9, 2, 2, 0, 0, 0, 9, 1]);
                frame[12..14].copy_from_slice(&kind);
                frame
            })
        })
        .collect();
    // The kernel discards frames that end within their tag, or less than two bytes behind it.
    let is_cut = |frame: &&Vec<u8>| frame.len() < 20 && frame[12..14] == [0x81, 0];
    let cut = frames.iter().filter(is_cut).count() as u64;
    let (count, length) = (frames.len() as u64, frames.iter().map(|frame| frame.len() as u64).sum());
    host.run(move || crate::run::net::send("hosta", frames.iter().map(Vec::as_slice)));
    wait_for(|| crate::run::net::received_bytes("a") >= length);
    std::thread::sleep(Duration::from_millis(200));
    let output = graph.end("INT");
    assert_eq!(handler(&output, "from.count"), count - cut, "{output}");
    // 1515, 9000 and 9014 bytes do not fit the second link.
    assert!(handler(&output, "to.drops") > 0 && handler(&output, "to.count") > 0, "{output}");
    assert!(output.contains("longer than the MTU and the link header"), "{output}");
}

#[test]
fn the_hosts_own_network_does_not_see_packets_that_are_not_sniffed() {
    if !cables(&[("a", "hosta")]) {
        return;
    }
    set_mtu(&["a", "hosta"], 1500);
    shell("ip address add 10.7.0.1/24 dev a");
    let host = Host::without_address("hosta", 1);
    host.run(|| {
        shell("ip link set dev hosta up && ip address add 10.7.0.2/24 dev hosta");
    });
    let address: SocketAddrV4 = "10.7.0.1:80".parse().unwrap();
    let is_open =
        || host.run(move || TcpStream::connect_timeout(&address.into(), Duration::from_millis(500)).is_ok());
    let _server = TcpListener::bind(address).unwrap();
    assert!(is_open());
    for (method, sees) in [("SNIFFER true", true), ("SNIFFER false", false), ("METHOD XDP", false)] {
        let text = format!("from :: FromDevice(a, {method}) -> Discard");
        let graph = RunningGraph::start(&["-e", &text, "-h", "from.count", "-h", "from.kernel_drops"]);
        assert_eq!(is_open(), sees, "{method}");
        std::thread::sleep(Duration::from_millis(500));
        let output = graph.end("INT");
        assert!(handler(&output, "from.count") > 0, "{method}: {output}");
        // At the end the host's network is as before.
        assert!(is_open(), "{method}");
    }
}

#[test]
fn an_idle_graph_uses_no_processor_and_two_signals_end_it() {
    if !cables(&[("a", "b")]) {
        return;
    }
    for signal in ["INT", "TERM"] {
        let graph = RunningGraph::start(&["-e", "FromDevice(a) -> Queue -> ToDevice(b)"]);
        let ticks = || -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", graph.id())).unwrap();
            let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        let before = ticks();
        std::thread::sleep(Duration::from_secs(2));
        // A busy loop would take up to 200 of these hundredths of a second.
        assert!(ticks() - before <= 20, "{} ticks", ticks() - before);
        let begin = Instant::now();
        graph.end(signal);
        assert!(begin.elapsed() < TIMEOUT);
    }
}

#[test]
fn interfaces_that_are_down_missing_or_removed_are_reported_with_what_to_do() {
    if !cables(&[("a", "b"), ("c", "d")]) {
        return;
    }
    let missing = weir().args(["graph", "run", "-e", "FromDevice(nine) -> Discard"]).output().unwrap();
    let error = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(error.contains("there is no interface `nine`; the interfaces are: "), "{error}");

    // An interface that is down when it is opened.
    shell("ip link set dev d down");
    let graph = RunningGraph::start(&["-e", "f :: FromDevice(d) -> Discard"]);
    graph.says("f :: FromDevice: d is down: no packets arrive until it is up");
    graph.end("INT");

    let graph = RunningGraph::start(&["-e", "f :: FromDevice(a) -> Queue -> ToDevice(c)", "-h", "f.count"]);
    shell("ip link set dev a down");
    graph.says("f :: FromDevice: a is down: no packets arrive until it is up (`ip link set dev a up`");
    shell("ip link set dev a up");
    graph.says("f :: FromDevice: a is up");
    shell("ip link del dev a");
    graph.says("f :: FromDevice: a was removed: packets arrive again when an interface of this name exists");
    shell("ip link add name a type veth peer name b && ip link set dev a up && ip link set dev b up");
    graph.says("f :: FromDevice: a exists again and was opened");
    // The new interface is used.
    crate::run::net::send("b", [&[0xff; 60][..]]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(graph.end("INT").starts_with("1\n"));
}

#[test]
fn without_the_privilege_the_error_names_it() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let mut text = String::new();
    for class in ["FromDevice(a) -> Discard", "Idle -> ToDevice(a)"] {
        let output = Command::new("setpriv")
            .args([
                "--bounding-set=-all",
                "--inh-caps=-all",
                env!("CARGO_BIN_EXE_weir"),
                "graph",
                "run",
                "-e",
                class,
            ])
            .output();
        let Ok(output) = output else {
            eprintln!("SKIPPED: needs setpriv(1) (Debian: util-linux)");
            return;
        };
        _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(text.matches("needs cap_net_raw: run it as root").count(), 2, "{text}");
}

/// The host exchanges packets with the graph over a TAP device, and the device is removed at the end.
#[test]
fn the_host_and_a_graph_exchange_datagrams_over_a_tap_and_a_tun_device() {
    if !cables(&[("a", "hosta")]) {
        return;
    }
    let text = "tap :: KernelTap(10.5.0.1/24, ETHER 02:00:00:00:00:05, DEVNAME tap5, MTU 1400);\n\
                tap -> kinds :: Classifier(12/0806 20/0001, 12/0800);\n\
                kinds [0] -> ARPResponder(10.5.0.0/24 02:00:00:00:00:06) -> tap;\n\
                kinds [1] -> Strip(14) -> CheckIPHeader -> IPClassifier(dst udp port 7) -> got :: Counter -> Discard;\n\
                TimedSource(0.05, DATA hello) -> UDPIPEncap(10.5.0.2, 7, 10.5.0.1, 7000)\n\
                -> EtherEncap(0x0800, 02:00:00:00:00:06, 02:00:00:00:00:05) -> tap;\n\
                tun :: KernelTun(10.6.0.1/24, DEVNAME tun6) -> IPClassifier(dst udp port 8) -> ip :: Counter -> Discard;\n\
                TimedSource(0.05, DATA hi) -> UDPIPEncap(10.6.0.2, 8, 10.6.0.1, 7001) -> tun;";
    let handlers = ["got.count", "ip.count", "tap.drops", "tun.drops", "tap.dev_name"];
    let mut arguments = vec!["-e", text];
    arguments.extend(handlers.iter().flat_map(|handler| ["-h", handler]));
    let graph = RunningGraph::start(&arguments);
    for (own, other, content) in
        [("10.5.0.1:7000", "10.5.0.2:7", "hello"), ("10.6.0.1:7001", "10.6.0.2:8", "hi")]
    {
        wait_for(|| UdpSocket::bind(own).is_ok());
        let socket = UdpSocket::bind(own).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut buffer = [0; 100];
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (content.as_bytes(), other.parse().unwrap()));
        for _ in 0..3 {
            socket.send_to(b"to the graph", other).unwrap();
        }
    }
    assert!(shell("ip link show dev tap5").contains("mtu 1400"));
    // What was sent has come when the counters are read: the graph takes all before it ends, or a little later.
    std::thread::sleep(Duration::from_millis(500));
    let output = graph.end("INT");
    assert_eq!((handler(&output, "got.count"), handler(&output, "ip.count")), (3, 3), "{output}");
    assert_eq!((handler(&output, "tap.drops"), handler(&output, "tun.drops")), (0, 0), "{output}");
    assert!(!shell("ip link show").contains("tap5"));
}

/// Without a FromHost, the host receives the IP packets of a ToHost; a FromHost exchanges frames with the host.
#[test]
fn the_host_receives_the_packets_of_a_to_host() {
    if !cables(&[("a", "hosta")]) {
        return;
    }
    shell(
        "ip link set dev lo up; ip address add 10.7.0.1/32 dev lo; echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter",
    );
    shell("echo 0 > /proc/sys/net/ipv4/conf/default/rp_filter");
    let receive = |arguments: &[&str], content: &[u8]| {
        let socket = UdpSocket::bind("0.0.0.0:7000").unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let graph = RunningGraph::start(arguments);
        let mut buffer = [0; 100];
        let (length, _) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], content);
        graph.end("INT")
    };
    let text = "TimedSource(0.05, DATA alone) -> UDPIPEncap(10.7.0.2, 7, 10.7.0.1, 7000)\n\
                -> EtherEncap(0x0800, 02:00:00:00:00:06, 02:00:00:00:00:05) -> to :: ToHost;";
    let output = receive(&["-e", text, "-h", "to.count", "-h", "to.drops"], b"alone");
    assert_eq!(handler(&output, "to.drops"), 0, "{output}");
    let text = "FromHost(fake0, 10.8.0.1/24, ETHER 02:00:00:00:00:05) -> from :: Counter -> Discard;\n\
                TimedSource(0.05, DATA frames) -> UDPIPEncap(10.8.0.2, 7, 10.8.0.1, 7000)\n\
                -> EtherEncap(0x0800, 02:00:00:00:00:06, 02:00:00:00:00:05) -> to :: ToHost(fake0);";
    let output = receive(&["-e", text, "-h", "to.count", "-h", "to.drops"], b"frames");
    assert_eq!(handler(&output, "to.drops"), 0, "{output}");
}
