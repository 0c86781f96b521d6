//! Builds captures for tests, and reads pcap files without weir.

use super::packet::Packet;
use std::io::Write;
use std::path::{Path, PathBuf};

/// LINKTYPE_ETHERNET.
pub const ETHERNET: u32 = 1;
/// LINKTYPE_RAW.
pub const RAW_IP: u32 = 101;
/// LINKTYPE_LINUX_SLL.
pub const COOKED: u32 = 113;

/// The time of the first packet in tests, in ns since 1970: a whole number of seconds.
pub const BEGIN: u64 = 1_700_000_000 * SECOND;
pub const SECOND: u64 = 1_000_000_000;
pub const MILLISECOND: u64 = 1_000_000;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time in ns since 1970.
    pub ts: u64,
    pub wire_len: u32,
    pub bytes: Vec<u8>,
}

/// A capture with one link type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    pub link_type: u32,
    pub frames: Vec<Frame>,
}

impl Capture {
    pub fn new(link_type: u32) -> Self {
        Self { link_type, frames: Vec::new() }
    }

    /// A capture of Ethernet packets, one per microsecond from [`BEGIN`] on.
    pub fn from_packets(packets: &[Packet]) -> Self {
        let mut capture = Self::new(ETHERNET);
        for (ts, packet) in (BEGIN..).step_by(1000).zip(packets) {
            capture.push(ts, packet.ethernet());
        }
        capture
    }

    pub fn push(&mut self, ts: u64, bytes: Vec<u8>) {
        let wire_len = u32::try_from(bytes.len()).unwrap();
        self.frames.push(Frame { ts, wire_len, bytes });
    }

    /// Encodes a little-endian pcap file with nanosecond timestamps.
    pub fn to_pcap(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xA1B2_3C4D, 0x0004_0002, 0, 0, 0x0004_0000, self.link_type] {
            file.extend_from_slice(&u32::to_le_bytes(word));
        }
        for frame in &self.frames {
            let word = |value: u64| u32::try_from(value).unwrap().to_le_bytes();
            file.extend_from_slice(&word(frame.ts / SECOND));
            file.extend_from_slice(&word(frame.ts % SECOND));
            file.extend_from_slice(&word(frame.bytes.len() as u64));
            file.extend_from_slice(&word(frame.wire_len.into()));
            file.extend_from_slice(&frame.bytes);
        }
        file
    }

    /// Reads a pcap file of any byte order and time resolution, up to a truncated record.
    pub fn read(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let magic: [u8; 4] = file[..4].try_into().unwrap();
        let (is_little, resolution) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (0xA1B2_C3D4, _) => (true, 1000),
            (0xA1B2_3C4D, _) => (true, 1),
            (_, 0xA1B2_C3D4) => (false, 1000),
            (_, 0xA1B2_3C4D) => (false, 1),
            _ => panic!("{} is no pcap file", path.display()),
        };
        let word = |at: usize| {
            let bytes: [u8; 4] = file[at..at + 4].try_into().unwrap();
            if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
        };
        let mut capture = Self::new(word(20) & 0xFFFF);
        let mut at = 24;
        while at + 16 <= file.len() {
            let len = word(at + 8) as usize;
            let Some(bytes) = file.get(at + 16..at + 16 + len) else { break };
            let ts = u64::from(word(at)) * SECOND + u64::from(word(at + 4)) * resolution;
            capture.frames.push(Frame { ts, wire_len: word(at + 12), bytes: bytes.to_vec() });
            at += 16 + len;
        }
        capture
    }
}

/// The sample capture of the repository.
pub fn sample() -> PathBuf {
    repository().join("lab/sample/sample.pcap")
}

/// The path of a shared trace beside the repository, if it exists; otherwise prints a message.
pub fn trace(name: &str) -> Option<PathBuf> {
    let path = repository().join("../shared/traces").join(name);
    if path.is_file() {
        return Some(path);
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: there is no ../shared/traces/{name}");
    None
}

/// The captures for comparisons with oracles: the sample, and a mixed trace of many applications.
pub fn samples() -> Vec<PathBuf> {
    std::iter::once(sample()).chain(trace("mixed/composite-mixed-a.pcap")).collect()
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
