//! What the host knows about a run.

use weir_units::{Bytes, Nanos, Timestamp};

/// The capture and the run over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureInfo {
    /// The file, or `-`.
    pub name: String,
    /// Packets read.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Time stamp of the first packet.
    pub start: Option<Timestamp>,
    /// From the earliest packet to the latest.
    pub duration: Nanos,
    /// What is to be said where the capture ends in the middle of a record.
    pub truncated: Option<String>,
    /// Other warnings of the run.
    pub warnings: Vec<String>,
    /// The filter expression, where there is one.
    pub filter: Option<String>,
    /// TCP packets.
    pub tcp: u64,
    /// UDP packets.
    pub udp: u64,
    /// IPv6 packets.
    pub ipv6: u64,
    /// TCP packets with SYN and without ACK.
    pub tcp_syn: u64,
    /// What the run took.
    pub elapsed: Nanos,
    /// On how many threads.
    pub jobs: usize,
}

/// A module's part of the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunModuleInfo {
    /// What it is called on the page.
    pub label: String,
    /// Its version.
    pub version: String,
    /// What it does, in a line.
    pub summary: String,
    /// How it was kept within its limits: proved, supervised or metered.
    pub tier: String,
    /// Why it was not proved, in a few words.
    pub tier_reason: Option<String>,
    /// Its parameters as they were in force: name, value.
    pub parameters: Vec<(String, String)>,
    /// Packets that it was called for.
    pub packets: u64,
    /// Records that it emitted.
    pub records: u64,
    /// Records that it wanted to emit and that were not taken.
    pub dropped_records: u64,
    /// Calls that ended in a fault.
    pub faults: u64,
    /// Time per packet, where it was measured.
    pub ns_per_packet: Option<f64>,
    /// Cycles per packet, where they were measured.
    pub cycles_per_packet: Option<f64>,
    /// Private memory at the end.
    pub memory: Bytes,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
    /// What it logged and what became of it: faults, the reason for its end.
    pub messages: Vec<String>,
}

/// One stream's rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// The file, where one was written.
    pub path: Option<String>,
}
