//! Two hosts, each in a network namespace, whose kernels leave checksums and TCP segmentation to the network card, and checks of
//! what one host receives from the other.
//!
//! The interfaces are veth pairs, so the kernel really sends packets without checksums. The receiving kernel drops packets with a
//! wrong checksum, and etherparse verifies the checksums independently.

use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice, VlanId};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSink, LiveSource, SocketKind};
use weir_units::Nanos;

/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// A payload of many TCP segments.
const STREAM_BYTES: usize = 300_000;
/// Payload lengths of datagrams: zero, odd and even ones, and the longest that fits into one packet of IPv4 or of IPv6.
const DATAGRAMS: [usize; 9] = [0, 1, 2, 3, 64, 333, 1000, 1399, 1452];
/// The longest frame of the hosts' interfaces: an MTU of 1500, and the link header.
const FRAME_MAX: usize = 1514;
/// Ports of the receiver.
const UDP_PORT: u16 = 7007;
const TCP_PORT: u16 = 7009;

/// A host with one interface, in a network namespace.
pub struct Host {
    namespace: Child,
    interface: String,
    number: u8,
    /// True if the host uses its addresses inside the tunnel.
    is_inside: bool,
}

/// Creates a host for each interface. The hosts have static neighbour entries for each other, so they send no ARP requests.
pub fn hosts(one: &str, other: &str) -> [Host; 2] {
    let hosts = [Host::create(one, 1), Host::create(other, 2)];
    for (host, peer) in [(&hosts[0], &hosts[1]), (&hosts[1], &hosts[0])] {
        let (interface, number) = (host.interface.clone(), peer.number);
        host.run(move || {
            add_neighbours(&interface, 9, number);
        });
    }
    hosts
}

/// Adds neighbour entries for the other host's addresses in this network.
fn add_neighbours(interface: &str, net: u8, number: u8) {
    for address in [format!("10.{net}.0.{number}"), format!("fd0{net}::{number}")] {
        let mac = format!("02:00:00:00:0{net}:0{number}");
        ip(&format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
    }
}

/// Sets the addresses of a host's interface in a network.
fn set_addresses(interface: &str, net: u8, number: u8, mtu: u32) {
    ip(&format!("link set dev {interface} address 02:00:00:00:0{net}:0{number} mtu {mtu} up"));
    ip(&format!("address add 10.{net}.0.{number}/24 dev {interface}"));
    ip(&format!("-6 address add fd0{net}::{number}/64 dev {interface} nodad"));
}

/// Connects the hosts by a VXLAN tunnel, which they use from then on. Returns false, with a message on standard error, if the kernel has no VXLAN.
#[must_use]
pub fn tunnel(hosts: &mut [Host; 2]) -> bool {
    let numbers = hosts.each_ref().map(|host| host.number);
    for (host, peer) in hosts.iter_mut().zip(numbers.into_iter().rev()) {
        let (interface, number) = (host.interface.clone(), host.number);
        let is_there = host.run(move || {
            let made = format!(
                "link add vx0 type vxlan id 7 local 10.9.0.{number} remote 10.9.0.{peer} dstport 4789 dev {interface}"
            );
            let made = Command::new("ip").args(made.split_whitespace()).output().unwrap();
            if made.status.success() {
                set_addresses("vx0", 8, number, 1400);
                ip("link set dev vx0 gso_max_segs 1");
                add_neighbours("vx0", 8, peer);
            }
            made.status.success()
        });
        if !is_there {
            let _ = writeln!(std::io::stderr(), "skipped: the kernel has no VXLAN");
            return false;
        }
        host.is_inside = true;
    }
    true
}

impl Host {
    /// Creates a host in a new network namespace, with this interface and an address.
    fn create(interface: &str, number: u8) -> Self {
        let host = Self::without_address(interface, number);
        let interface = interface.to_owned();
        host.run(move || {
            set_addresses(&interface, 9, number, 1500);
            let begin = Instant::now();
            while !ip(&format!("link show dev {interface}")).contains("state UP") {
                assert!(begin.elapsed() < TIMEOUT, "{interface} does not come up");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        host
    }

    /// Creates a host in a new network namespace, and moves the interface there.
    pub fn without_address(interface: &str, number: u8) -> Self {
        let mut namespace = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(namespace.stdout.take().unwrap()).read_line(&mut line).unwrap();
        ip(&format!("link set dev {interface} netns {}", namespace.id()));
        Self { namespace, interface: interface.to_owned(), number, is_inside: false }
    }

    /// Runs a job in the host's namespace on a new thread, and waits for it.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.begin(job).join().unwrap()
    }

    /// Begins a job in the host's namespace on a new thread.
    pub fn begin<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<R> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.namespace.id())).unwrap();
        std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).unwrap();
            job()
        })
    }

    /// Sets whether the kernel leaves TCP segmentation to the card.
    pub fn leaves_segments_to_the_card(&self, does: bool) {
        let (interface, most) = (self.interface.clone(), if does { 64 } else { 1 });
        self.run(move || ip(&format!("link set dev {interface} gso_max_segs {most}")));
    }

    /// Captures the frames that arrive at its interface from now on.
    pub fn arrivals(&self) -> Arrivals {
        let interface = self.interface.clone();
        self.run(move || Arrivals::capture(&interface))
    }

    fn address(&self, is_v6: bool, port: u16) -> SocketAddr {
        let number = self.number;
        let text = if is_v6 { format!("[fd09::{number}]:{port}") } else { format!("10.9.0.{number}:{port}") };
        text.parse().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.namespace.kill();
        let _ = self.namespace.wait();
    }
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A capture of the frames that arrive at an interface.
pub struct Arrivals(LiveSource);

impl Arrivals {
    /// Starts a capture at an interface in the namespace of this thread.
    pub fn capture(interface: &str) -> Self {
        let options = LiveOptions {
            kind: SocketKind::Packet,
            direction: Direction::Incoming,
            ..LiveOptions::default()
        };
        Self(LiveSource::open(interface, options).unwrap())
    }

    /// Returns all frames that arrived since, as soon as they satisfy the condition and no more arrive.
    pub fn until(&mut self, what: &str, is_so: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
        let (mut frames, begin) = (Vec::new(), Instant::now());
        loop {
            match self.0.next_block(Nanos(100 * Nanos::MILLISECOND.0)).unwrap() {
                LivePoll::Block(block) => frames.extend((0..block.len()).map(|place| {
                    let mut frame = Vec::new();
                    block.copy_packet(place, &mut frame);
                    frame
                })),
                LivePoll::Quiet if is_so(&frames) => return frames,
                _ => assert!(begin.elapsed() < TIMEOUT, "it never is so that {what}"),
            }
        }
    }
}

/// Returns whether the TCP or UDP checksum of a frame is correct according to etherparse; `None` if it has none.
pub fn has_right_checksum(frame: &[u8]) -> Option<bool> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let (is_right, net) = (|stored: u16, computed: u16| Some(stored == computed), packet.net?);
    match (&net, packet.transport?) {
        (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            is_right(tcp.checksum(), tcp.calc_checksum_ipv4(from, to).unwrap())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            is_right(tcp.checksum(), tcp.calc_checksum_ipv6(from, to).unwrap())
        }
        (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            let ip = ip.header().to_header();
            is_right(header.checksum, header.calc_checksum_ipv4(&ip, udp.payload()).unwrap())
        }
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
            let header = udp.to_header();
            let ip = ip.header().to_header();
            is_right(header.checksum, header.calc_checksum_ipv6(&ip, udp.payload()).unwrap())
        }
        _ => None,
    }
}

/// Returns the numbers of frames with a wrong checksum and with a correct one.
pub fn checksums(frames: &[Vec<u8>]) -> (usize, usize) {
    let found = |is_right| frames.iter().filter(|frame| has_right_checksum(frame) == Some(is_right)).count();
    (found(false), found(true))
}

/// Sends datagrams from one host to the other by IPv4 and IPv6, and asserts that a program there receives them unchanged.
pub fn datagrams(from: &Host, to: &Host) {
    for is_v6 in [false, true] {
        let (here, there) = (from.address(is_v6, 0), to.address(is_v6, UDP_PORT));
        let receiving = to.run(move || {
            let socket = UdpSocket::bind(there).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        });
        from.run(move || {
            let socket = UdpSocket::bind(here).unwrap();
            for len in DATAGRAMS {
                assert_eq!(socket.send_to(&payload(len), there).unwrap(), len);
            }
        });
        for len in DATAGRAMS {
            let mut bytes = [0; 2000];
            let got = receiving
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("IPv6 {is_v6}, {len} bytes: {error}"));
            assert!(bytes[..got] == payload(len), "IPv6 {is_v6}: {got} of {len} bytes");
        }
    }
}

/// Sends datagrams by IPv4 and IPv6, from any port, for which no program waits. Returns their number.
pub fn send_datagrams(from: &Host, to: &Host) -> usize {
    for is_v6 in [false, true] {
        let (here, there) = (from.address(is_v6, 0), to.address(is_v6, UDP_PORT));
        from.run(move || {
            let socket = UdpSocket::bind(here).unwrap();
            for len in DATAGRAMS {
                assert_eq!(socket.send_to(&payload(len), there).unwrap(), len);
            }
        });
    }
    2 * DATAGRAMS.len()
}

/// Returns the source port of a UDP datagram.
pub fn source_port(frame: &[u8]) -> Option<u16> {
    match SlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Udp(udp) => Some(udp.source_port()),
        _ => None,
    }
}

/// Sends a TCP stream to the other host and back, by IPv4 and IPv6.
pub fn streams(from: &Host, to: &Host) {
    for is_v6 in [false, true] {
        let there = to.address(is_v6, TCP_PORT);
        let listener = to.run(move || TcpListener::bind(there).unwrap());
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let mut bytes = vec![0; STREAM_BYTES];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let back = from.run(move || {
            let mut stream = TcpStream::connect(there).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            stream.write_all(&payload(STREAM_BYTES)).unwrap();
            let mut back = vec![0; STREAM_BYTES];
            stream.read_exact(&mut back).unwrap();
            back
        });
        assert!(back == payload(STREAM_BYTES), "IPv6 {is_v6}: what comes back is what was sent");
        echo.join().unwrap();
    }
}

/// A program that sends frames with incomplete checksums, which it marks in the virtio-net header of a packet socket.
const SEND_WITH_VNET_HEADER: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
s.setsockopt(263, 15, 1)
s.bind((sys.argv[1], 0))
for line in sys.stdin:
    frame = bytes.fromhex(line)
    v6 = frame[16:18] == bytes([0x86, 0xdd])
    tcp = frame[24 if v6 else 27] == 6
    s.send(struct.pack('=BBHHHH', 1, 0, 0, 0, 58 if v6 else 38, 16 if tcp else 6) + frame)
";

/// Sends these frames with checksums left to the card.
fn leave_to_the_card(interface: &str, frames: &[Vec<u8>]) {
    let mut sending = Command::new("python3")
        .args(["-c", SEND_WITH_VNET_HEADER, interface])
        .stdin(Stdio::piped())
        .spawn()
        .expect("python3 sends frames with a virtio-net header");
    let mut lines = sending.stdin.take().unwrap();
    for frame in frames {
        let line: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(lines, "{line}").unwrap();
    }
    drop(lines);
    assert!(sending.wait().unwrap().success());
}

/// Sends frames with VLAN tags and incomplete checksums: of VLAN 0, which the receiving kernel accepts, and of VLAN 42, for
/// which it has no interface. Returns their number.
pub fn tagged(from: &Host, to: &Host) -> usize {
    let there = [false, true].map(|is_v6| to.address(is_v6, UDP_PORT));
    let receiving = there.map(|there| {
        to.run(move || {
            let socket = UdpSocket::bind(there).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        })
    });
    let frames = tagged_frames();
    let (count, interface) = (frames.len(), from.interface.clone());
    from.run(move || leave_to_the_card(&interface, &frames));
    for socket in receiving {
        for len in [0, 1, 100, 1399] {
            let mut bytes = [0; 2000];
            let got =
                socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{len} bytes with a tag: {error}"));
            assert!(bytes[..got] == payload(len), "{got} of {len} bytes with a tag");
        }
    }
    count
}

/// Returns frames with VLAN tags whose checksum field has the sum of the pseudo header.
fn tagged_frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for vlan in [0, 42] {
        for (is_v6, is_tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            frames.extend([0, 1, 100, 1399].map(|len| left_to_the_card(vlan, is_v6, is_tcp, &payload(len))));
        }
    }
    assert_eq!(checksums(&frames), (frames.len(), 0));
    frames
}

/// Sends frames with a pseudo-header sum as checksum, which the kernel takes for complete. Returns them.
pub fn finished(from: &Host) -> Vec<Vec<u8>> {
    let (frames, interface) = (tagged_frames(), from.interface.clone());
    from.run(move || {
        let mut sink = LiveSink::open(&interface, SocketKind::Packet).unwrap();
        for frame in &frames {
            while sink.send(&[frame]).consumed == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        assert_eq!(sink.totals().lost(), 0, "{:?}", sink.totals());
        frames
    })
}

/// Sends TCP segments by IPv4 and IPv6 that the card has to split, until a captured one is longer than the other host's MTU.
/// Asserts that the received part of the stream is correct.
pub fn too_long(from: &Host, to: &Host, captured: &mut Arrivals) {
    for is_v6 in [false, true] {
        let there = to.address(is_v6, TCP_PORT);
        let listener = to.run(move || TcpListener::bind(there).unwrap());
        let stream = from.run(move || {
            let mut stream = TcpStream::connect(there).unwrap();
            stream.set_nonblocking(true).unwrap();
            // As much as the kernel buffers, without waiting for its arrival.
            let written = stream.write(&payload(STREAM_BYTES)).unwrap();
            assert!(written > 10_000, "{written}");
            stream
        });
        captured.until("a segment is too long", |frames| frames.iter().any(|frame| frame.len() > FRAME_MAX));
        let (mut arrived, _) = listener.accept().unwrap();
        arrived.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; STREAM_BYTES];
        let got = match arrived.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            got => got.unwrap(),
        };
        assert!(bytes[..got] == payload(STREAM_BYTES)[..got], "IPv6 {is_v6}: {got} bytes");
        drop(stream);
    }
}

/// Returns a payload of this length that does not repeat early.
fn payload(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// Builds a frame from the first host to the second whose checksum field has the sum of the pseudo header, as Linux leaves it to a card.
fn left_to_the_card(vlan: u16, is_v6: bool, is_tcp: bool, payload: &[u8]) -> Vec<u8> {
    let (from, to) = ([2, 0, 0, 0, 9, 1], [2, 0, 0, 0, 9, 2]);
    let (mut frame, tag) = (Vec::new(), VlanId::try_new(vlan).unwrap());
    let link = PacketBuilder::ethernet2(from, to).single_vlan(tag);
    let v6 = |last| [0xfd, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let ip = if is_v6 { link.ipv6(v6(1), v6(2), 64) } else { link.ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64) };
    if is_tcp {
        ip.tcp(1000, TCP_PORT, 7, 512).write(&mut frame, payload).unwrap();
    } else {
        ip.udp(1000, UDP_PORT).write(&mut frame, payload).unwrap();
    }
    let l3 = 18;
    let l4 = l3 + if is_v6 { 40 } else { 20 };
    let addresses = if is_v6 { l3 + 8..l4 } else { l3 + 12..l4 };
    let field = l4 + if is_tcp { 16 } else { 6 };
    let len = u32::try_from(frame.len() - l4).unwrap();
    let words = frame[addresses].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum = words.sum::<u32>() + len + if is_tcp { 6 } else { 17 };
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[field..field + 2].copy_from_slice(&u16::try_from(sum).unwrap().to_be_bytes());
    frame
}
