//! Where an experiment takes place: a network namespace of its own, cables in it, and traffic.

use super::FigureError;
use crate::BenchError;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{Kind, SentTotals, Sink};

/// Says to the program that it is in a namespace of its own.
const INSIDE: &str = "WEIR_LAB_INSIDE";
/// The core of whatever is not measured: senders, and those who look on.
pub const ASIDE: u16 = 0;
/// Longer than the kernel needs to notice a carrier.
const CARRIER: Duration = Duration::from_secs(10);
/// Frames of one call to a sink at most.
const BURST: usize = 64;

/// Whether this process is in a namespace that was made for it.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again with these arguments, in a network namespace that is gone when it ends. It goes before other programs of the machine, so
/// that these disturb what is measured less.
///
/// # Errors
/// Namespaces cannot be made here.
pub fn inside(arguments: &[String]) -> Result<ExitStatus, FigureError> {
    let can = Command::new("unshare").args(["--net", "ip", "-V"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return Err(FigureError::NoNamespace);
    }
    let program = std::env::current_exe().map_err(FigureError::system("finding this program"))?;
    let mut command = Command::new("unshare");
    command.args(["--net", "setsid", "--wait", "nice", "-n", "-20"]);
    command.arg(program).args(arguments).env(INSIDE, "1");
    command.status().map_err(FigureError::system("unshare(1)"))
}

/// Where the kernel shares cores between sessions of terminals first (`CONFIG_SCHED_AUTOGROUP`), a process goes before others only if its session
/// does; this one has a session of its own.
pub fn go_first() {
    // Where there is no such thing, there is nothing to do.
    _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// Has this thread, and the processes and threads that it starts from now on, go before all other programs of the machine (`SCHED_RR`). For experiments
/// with periods of some milliseconds, which is as long as others have a core when it is their turn; and only for those that leave much of it.
pub fn go_at_once() {
    let this = std::process::id().to_string();
    // Where that is not allowed, or there is no chrt(1), the machine has to be quiet.
    _ = Command::new("chrt").args(["--rr", "--pid", "10", &this]).output();
}

/// Runs `ip` with these arguments.
///
/// # Errors
/// It fails.
pub fn ip(arguments: &str) -> Result<(), FigureError> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .map_err(FigureError::system("running ip(8)"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::Failed { command: format!("ip {arguments}"), said }.into())
}

/// A cable between two interfaces of these names, both up.
///
/// # Errors
/// It cannot be made.
pub fn cable(one: &str, other: &str) -> Result<(), FigureError> {
    // The host's own packets would be between the experiment's; where there is no IPv6, there is nothing to turn off.
    for which in ["all", "default"] {
        _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
    ip(&format!("link add name {one} type veth peer name {other}"))?;
    ip(&format!("link set dev {one} up"))?;
    ip(&format!("link set dev {other} up"))?;
    settle(one)?;
    settle(other)
}

/// Waits until the kernel has noticed that an interface has a carrier: what is sent before is lost.
///
/// # Errors
/// It does not.
pub fn settle(interface: &str) -> Result<(), FigureError> {
    let begin = Instant::now();
    loop {
        let output = Command::new("ip").args(["link", "show", "dev", interface]).output();
        let text = output.map_err(FigureError::system("running ip(8)"))?.stdout;
        let text = String::from_utf8_lossy(&text);
        if text.contains("state UP") {
            return Ok(());
        }
        if begin.elapsed() > CARRIER {
            let said = text.into_owned();
            return Err(FigureError::Late {
                what: "the carrier of a cable",
                seconds: CARRIER.as_secs(),
                said,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes a cable away, so that the next experiment begins with none.
///
/// # Errors
/// There is none.
pub fn unplug(one: &str) -> Result<(), FigureError> {
    ip(&format!("link delete dev {one}"))
}

/// Binds the calling thread, and the processes that it starts, to a core.
///
/// # Errors
/// There is no such core for this process.
pub fn bind(core: u16) -> Result<(), FigureError> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(usize::from(core));
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| FigureError::System { what: "binding a thread to a core", source: error.into() })
}

/// A UDP datagram from and to these ports in an Ethernet frame for this address, `length` bytes long without the checksum: at least 60.
pub fn datagram(destination: [u8; 6], ports: (u16, u16), length: usize) -> Vec<u8> {
    let length = length.clamp(60, 1514);
    let inner = u16::try_from(length - 14).unwrap_or(u16::MAX);
    let mut frame = destination.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0]);
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

/// The address that is used where it does not matter.
pub const ANYBODY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A sender on a thread of its own, at a rate that can be changed. It ends when this is dropped.
#[derive(Debug)]
pub struct Traffic {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<SentTotals>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Packets per second.
    rate: AtomicU64,
    /// Packets that went.
    sent: AtomicU64,
    /// Packets that it was behind its rate at most, since this was last asked for.
    behind: AtomicU64,
    is_over: AtomicBool,
}

impl Traffic {
    /// Sends these frames in turn on an interface, for now none.
    ///
    /// # Errors
    /// The interface cannot be opened.
    pub fn start(interface: &str, frames: Vec<Vec<u8>>) -> Result<Self, FigureError> {
        let sink = Sink::open(interface, Kind::Packet)?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || {
                // Where it cannot be bound it runs where it is put.
                _ = bind(ASIDE);
                send(sink, &frames, &theirs)
            })
            .map_err(FigureError::system("starting a sender"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// From now on so many packets a second.
    pub fn set(&self, rate: u64) {
        self.shared.rate.store(rate, Ordering::Release);
    }

    /// Packets that went so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }

    /// How many packets it was behind its rate at most, since this was last asked for.
    pub fn behind(&self) -> u64 {
        self.shared.behind.swap(0, Ordering::AcqRel)
    }

    fn end(&mut self) -> Option<SentTotals> {
        self.shared.is_over.store(true, Ordering::Release);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.end();
    }
}

fn send(mut sink: Sink, frames: &[Vec<u8>], shared: &Shared) -> SentTotals {
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
            // A short wait is not worth a sleep, after which one is late.
            if rate < 20_000 {
                std::thread::sleep(Duration::from_micros(100))
            } else {
                std::hint::spin_loop()
            }
            continue;
        }
        shared.behind.fetch_max(waiting, Ordering::AcqRel);
        burst.clear();
        let count = usize::try_from(waiting).unwrap_or(BURST).min(BURST);
        burst.extend((next..next + count).map(|i| frames[i % frames.len()].as_slice()));
        let taken = sink.send(&burst).taken;
        next = (next + taken) % frames.len();
        sent += taken as u64;
        shared.sent.fetch_add(taken as u64, Ordering::AcqRel);
    }
    sink.totals()
}

/// What the kernel has received on an interface: packets and bytes.
///
/// # Errors
/// There is no such interface.
pub fn received(interface: &str) -> Result<(u64, u64), FigureError> {
    let text =
        std::fs::read_to_string("/proc/net/dev").map_err(FigureError::system("reading /proc/net/dev"))?;
    counters(&text, interface)
        .ok_or_else(|| FigureError::Nothing(format!("/proc/net/dev has no {interface}")))
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
            let frame = datagram(ANYBODY, (1000, 53), length);
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
