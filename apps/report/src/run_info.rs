//! Information about a run that the program adds to the report's own aggregates.

use weir_units::{Bytes, Nanos, Timestamp};

/// The capture and the run on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptureInfo {
    /// The name of the packets' origin: a file, `-` for standard input, an interface, or a session of a node.
    pub name: String,
    /// Packets read.
    pub packets: u64,
    /// Total bytes of the packets on the wire.
    pub wire_bytes: u64,
    /// Timestamp of the first packet.
    pub start: Option<Timestamp>,
    /// Time from the first packet to the last; 0 if the last has an earlier timestamp.
    pub duration: Nanos,
    /// A message if the capture ends in the middle of a record.
    pub truncated: Option<String>,
    /// Other warnings of the run.
    pub warnings: Vec<String>,
    /// The filter expression, if there is one.
    pub filter: Option<String>,
    /// TCP packets.
    pub tcp: u64,
    /// UDP packets.
    pub udp: u64,
    /// IPv6 packets.
    pub ipv6: u64,
    /// TCP packets with SYN and without ACK.
    pub tcp_syn: u64,
    /// Time that the run took.
    pub elapsed: Nanos,
    /// Number of threads.
    pub jobs: usize,
}

/// The run of one module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunModuleInfo {
    /// Name on the page, unique within the run.
    pub label: String,
    /// Version from the manifest.
    pub version: String,
    /// Summary from the manifest, one line.
    pub summary: String,
    /// Tier: proved, supervised or metered.
    pub tier: String,
    /// Short reason why the module is not proved.
    pub tier_reason: Option<String>,
    /// Names and values of its parameters, with defaults.
    pub parameters: Vec<(String, String)>,
    /// Packets that the module was called for.
    pub packets: u64,
    /// Records that the module emitted.
    pub records: u64,
    /// Records refused because a limit was exceeded.
    pub dropped_records: u64,
    /// Calls that ended in a fault.
    pub faults: u64,
    /// Processor time per packet in ns, if measured.
    pub ns_per_packet: Option<f64>,
    /// Processor cycles per packet, if measured.
    pub cycles_per_packet: Option<f64>,
    /// Private memory at the end of the run.
    pub memory: Bytes,
    /// Streams of the module.
    pub streams: Vec<StreamInfo>,
    /// Messages about faults, losses and the end of the module.
    pub messages: Vec<String>,
}

/// The rows of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamInfo {
    /// Name of the stream.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
    /// Path of the file, if one was written.
    pub path: Option<String>,
}
