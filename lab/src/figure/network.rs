//! Veth pairs in a network namespace, and traffic over them.

use crate::error::{Context, LabError};
use crate::machine::{OTHER_CORE, bind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// The time limit for a carrier.
const CARRIER: Duration = Duration::from_secs(10);
/// The largest number of frames per call of a sink.
const BURST: usize = 64;

/// Runs `ip` with these arguments.
pub fn ip(arguments: &str) -> Result<(), LabError> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().context("running ip(8)")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(LabError::failed(format_args!("ip {arguments}"), said))
}

/// A veth pair, removed when this is dropped.
#[derive(Debug)]
pub struct Cable(String);

impl Cable {
    pub fn new(one: &str, other: &str) -> Result<Self, LabError> {
        cable(one, other)?;
        Ok(Self(one.to_owned()))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // On failure the end of the namespace removes it.
        _ = ip(&format!("link delete dev {}", self.0));
    }
}

/// Creates a veth pair with both ends up, which lasts as long as the namespace.
pub fn cable(one: &str, other: &str) -> Result<(), LabError> {
    // Without IPv6, whose own packets would mix with the experiment's. Fails on a kernel without IPv6.
    for which in ["all", "default"] {
        _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
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
        if begin.elapsed() > CARRIER {
            return Err(LabError::failed("a veth interface got no carrier", text.into_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A UDP datagram of this length, between fixed ports.
pub fn datagram_of(length: usize) -> Vec<u8> {
    datagram((1000, 53), length)
}

/// A UDP datagram between two ports, in an Ethernet frame of this length without the check sequence, from 60 to 1514 bytes.
pub fn datagram(ports: (u16, u16), length: usize) -> Vec<u8> {
    let length = length.clamp(60, 1514);
    let inner = u16::try_from(length - 14).unwrap_or(u16::MAX);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(inner.to_be_bytes());
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
    frame.extend((inner - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(length, 0x5A);
    frame
}

/// A sender on its own thread, with an adjustable rate. Dropping this ends it.
#[derive(Debug)]
pub struct Traffic {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    rate: AtomicU64,
    sent: AtomicU64,
    is_over: AtomicBool,
}

impl Traffic {
    /// A sender of these frames in turn on an interface, with a rate of 0.
    pub fn start(interface: &str, frames: Vec<Vec<u8>>) -> Result<Self, LabError> {
        let sink = LiveSink::open(interface, SocketKind::Packet)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || {
                // Without the right to bind it, the sender runs on any core.
                _ = bind(OTHER_CORE);
                send(sink, &frames, &theirs)
            })
            .context("starting a sender")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the packets a second.
    pub fn set(&self, rate: u64) {
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

fn send(mut sink: LiveSink, frames: &[Vec<u8>], shared: &Shared) {
    let (mut begin, mut rate, mut sent, mut next) = (Instant::now(), 0, 0u64, 0usize);
    let mut burst: Vec<&[u8]> = Vec::with_capacity(BURST);
    while !shared.is_over.load(Ordering::Acquire) {
        let wanted = shared.rate.load(Ordering::Acquire);
        if wanted != rate {
            (begin, rate, sent) = (Instant::now(), wanted, 0);
        }
        let elapsed = begin.elapsed().as_nanos();
        let due = u64::try_from(elapsed * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX);
        let waiting = due.saturating_sub(sent);
        if waiting == 0 {
            // At high rates the wait is shorter than a sleep.
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
        let taken = sink.send(&burst).taken;
        next = (next + taken) % frames.len();
        sent += taken as u64;
        shared.sent.fetch_add(taken as u64, Ordering::AcqRel);
    }
}

/// Packets and bytes that the kernel has received on an interface.
pub fn received(interface: &str) -> Result<(u64, u64), LabError> {
    let text = std::fs::read_to_string("/proc/net/dev").context("/proc/net/dev")?;
    counters(&text, interface).ok_or_else(|| LabError::NoData(format!("/proc/net/dev has no {interface}")))
}

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
    fn a_datagram_is_what_its_headers_say() {
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
    fn the_kernel_s_counters_are_found_by_name() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n    lo: 1 2 3\n  to-b: 640 10 0 0\n b: 5 6 0 0\n";
        assert_eq!(counters(text, "to-b"), Some((10, 640)));
        assert_eq!(counters(text, "b"), Some((6, 5)));
        assert_eq!(counters(text, "c"), None);
    }
}
