//! Veth pairs in the network namespace of an experiment, and traffic over them.

use crate::error::{Context, LabError};
use crate::machine::{OTHER_CORE, bind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// The longest wait for the carrier of an interface.
const CARRIER_WAIT_MAX: Duration = Duration::from_secs(10);
/// The largest number of frames that are sent with one call.
const BURST: usize = 64;

/// Runs `ip` with these arguments.
pub fn ip(arguments: &str) -> Result<(), LabError> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().context("running ip(8)")?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::failed(format_args!("ip {arguments}"), errors))
}

/// A veth pair, which is removed when this value is dropped.
#[derive(Debug)]
pub struct VethPair(String);

impl VethPair {
    pub fn new(one: &str, other: &str) -> Result<Self, LabError> {
        create_veth_pair(one, other)?;
        Ok(Self(one.to_owned()))
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        // If this fails, the pair is removed at the end of the namespace.
        _ = ip(&format!("link delete dev {}", self.0));
    }
}

/// Creates a veth pair with both ends up, which lasts as long as the namespace.
pub fn create_veth_pair(one: &str, other: &str) -> Result<(), LabError> {
    // IPv6 is disabled, because its own packets would mix with the experiment's. Writing fails on a kernel without IPv6.
    for interfaces in ["all", "default"] {
        _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6"), "1");
    }
    ip(&format!("link add name {one} type veth peer name {other}"))?;
    ip(&format!("link set dev {one} up"))?;
    ip(&format!("link set dev {other} up"))?;
    wait_for_carrier(one)?;
    wait_for_carrier(other)
}

/// Waits until the kernel has detected the carrier of an interface. Packets sent earlier are lost.
pub fn wait_for_carrier(interface: &str) -> Result<(), LabError> {
    let begin = Instant::now();
    loop {
        let output = Command::new("ip").args(["link", "show", "dev", interface]).output();
        let text = output.context("running ip(8)")?.stdout;
        let text = String::from_utf8_lossy(&text);
        if text.contains("state UP") {
            return Ok(());
        }
        if begin.elapsed() > CARRIER_WAIT_MAX {
            return Err(LabError::failed("a veth interface got no carrier", text.into_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A UDP datagram between fixed ports, in an Ethernet frame of this length, as [`datagram`].
pub fn datagram_of(length: usize) -> Vec<u8> {
    datagram((1000, 53), length)
}

/// A UDP datagram between two ports, in an Ethernet frame of this length, which is limited to 60 to 1514 bytes and does not
/// include the check sequence.
pub fn datagram(ports: (u16, u16), length: usize) -> Vec<u8> {
    let length = length.clamp(60, 1514);
    let ip_length = u16::try_from(length - 14).unwrap_or(u16::MAX);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(ip_length.to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // The header's checksum, over its ten words.
    let words = frame[14..34].chunks_exact(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let folded = (folded & 0xFFFF) + (folded >> 16);
    let [high, low, ..] = (!u16::try_from(folded).unwrap_or(u16::MAX)).to_be_bytes();
    (frame[24], frame[25]) = (high, low);
    frame.extend(ports.0.to_be_bytes());
    frame.extend(ports.1.to_be_bytes());
    frame.extend((ip_length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(length, 0x5A);
    frame
}

/// A TCP segment without flags other than ACK, of a connection, in an Ethernet frame of a length as for [`datagram`].
pub fn segment(connection: u16, length: usize) -> Vec<u8> {
    let mut frame = datagram((1024 + connection, 443), length);
    // UDP becomes TCP, which changes the sum over the IPv4 header by eleven.
    let checksum = u16::from_be_bytes([frame[24], frame[25]]);
    let (folded, carry) = (!checksum).overflowing_sub(11);
    let checksum = !folded.wrapping_sub(u16::from(carry));
    frame[23] = 6;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    // The offset of the data, and ACK.
    (frame[46], frame[47]) = (0x50, 0x10);
    frame
}

/// A sender on its own thread, with an adjustable rate. Dropping it ends the thread.
#[derive(Debug)]
pub struct Traffic {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The requested rate in packets/s.
    rate: AtomicU64,
    sent: AtomicU64,
    is_over: AtomicBool,
}

impl Traffic {
    /// Starts a sender that sends these frames in turn on an interface. Its rate is 0 at first.
    pub fn start(interface: &str, frames: Vec<Vec<u8>>) -> Result<Self, LabError> {
        let sink = LiveSink::open(interface, SocketKind::Packet)?;
        let shared = Arc::new(Shared::default());
        let shared_with_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || {
                // If binding fails, the sender runs on any core.
                _ = bind(OTHER_CORE);
                send(sink, &frames, &shared_with_thread)
            })
            .context("starting a sender")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the rate in packets/s.
    pub fn set_rate(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Release);
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// The work of the sender's thread.
fn send(mut sink: LiveSink, frames: &[Vec<u8>], shared: &Shared) {
    let (mut begin, mut rate, mut sent, mut next) = (Instant::now(), 0, 0u64, 0usize);
    let mut burst: Vec<&[u8]> = Vec::with_capacity(BURST);
    while !shared.is_over.load(Ordering::Acquire) {
        let requested = shared.rate.load(Ordering::Acquire);
        if requested != rate {
            (begin, rate, sent) = (Instant::now(), requested, 0);
        }
        let elapsed = begin.elapsed().as_nanos();
        let due = u64::try_from(elapsed * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX);
        let waiting = due.saturating_sub(sent);
        if waiting == 0 {
            // At high rates the next packet is due before a sleep would end.
            if rate < 20_000 {
                std::thread::sleep(Duration::from_micros(100))
            } else {
                std::hint::spin_loop()
            }
            continue;
        }
        burst.clear();
        let count = usize::try_from(waiting).unwrap_or(BURST).min(BURST);
        burst.extend((next..next + count).map(|i| frames[i % frames.len()].as_slice()));
        let taken = sink.send(&burst).consumed;
        next = (next + taken) % frames.len();
        sent += taken as u64;
        shared.sent.fetch_add(taken as u64, Ordering::AcqRel);
    }
}

/// The numbers of packets and bytes that the kernel has received on an interface.
pub fn received_counters(interface: &str) -> Result<(u64, u64), LabError> {
    let text = std::fs::read_to_string("/proc/net/dev").context("/proc/net/dev")?;
    counters(&text, interface).ok_or_else(|| LabError::NoData(format!("/proc/net/dev has no {interface}")))
}

/// The received packets and bytes of an interface in the text of /proc/net/dev.
fn counters(text: &str, interface: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let mut fields = line.split_whitespace();
    let bytes = fields.next()?.parse().ok()?;
    let packets = fields.next()?.parse().ok()?;
    Some((packets, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_datagram_have_its_length_ports_and_checksum() {
        for length in [60, 64, 1514] {
            let frame = datagram_of(length);
            assert_eq!(frame.len(), length);
            assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), length - 14);
            let sum: u32 =
                frame[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
            assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
            assert_eq!(&frame[34..38], [1000u16.to_be_bytes(), 53u16.to_be_bytes()].concat());
        }
    }

    #[test]
    fn a_segment_is_tcp_with_a_correct_header() {
        for (connection, length) in [(0, 200), (1, 60), (1023, 1514)] {
            let frame = segment(connection, length);
            assert_eq!((frame.len(), frame[23], frame[47]), (length, 6, 0x10));
            let words = frame[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
            let sum: u32 = words.sum();
            assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
        }
    }

    #[test]
    fn the_kernel_s_counters_are_found_by_name() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 2 3\n  to-b: 640 10 0 0\n b: 5 6 0 0\n";
        assert_eq!(counters(text, "to-b"), Some((10, 640)));
        assert_eq!(counters(text, "b"), Some((6, 5)));
        assert_eq!(counters(text, "c"), None);
    }
}
