//! What can go wrong with a capture as a whole. What is wrong inside it only ends it: see [`crate::Truncation`].

use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_units::{Bytes, Shown as _};
use weir_wire::UnknownLinkType;

/// Where a capture comes from, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A file, a FIFO or a device.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes in memory.
    Memory,
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.shown()),
            Self::Stdin => write!(f, "standard input"),
            Self::Memory => write!(f, "the capture in memory"),
        }
    }
}

/// The first bytes of something, as messages show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstBytes {
    bytes: [u8; 8],
    len: usize,
}

impl FirstBytes {
    pub(crate) fn new(from: &[u8]) -> Self {
        let len = from.len().min(8);
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&from[..len]);
        Self { bytes, len }
    }
}

impl fmt::Display for FirstBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.bytes[..self.len];
        if bytes.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
            return write!(f, "\"{}\"", bytes.escape_ascii());
        }
        bytes.iter().enumerate().try_for_each(|(i, b)| write!(f, "{}{b:02x}", if i == 0 { "" } else { " " }))
    }
}

/// A capture cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refuses.
    #[error("{file}: cannot be opened: {error}")]
    Open {
        /// The capture.
        file: SourceName,
        /// What the system says.
        error: io::Error,
    },
    /// The program was told to end before a pipe had a capture's header.
    #[error("{file}: ended by a signal before a capture began there")]
    Interrupted {
        /// The capture.
        file: SourceName,
    },
    /// A directory.
    #[error("{file} is a directory: name a capture file in it")]
    Directory {
        /// Which.
        file: SourceName,
    },
    /// Where somebody types.
    #[error(
        "{file} is a terminal: give a file, or pipe a capture in, for instance `tcpdump -i eth0 -w - | weir run -r -`"
    )]
    Terminal {
        /// Which, usually standard input.
        file: SourceName,
    },
    /// Nothing in it.
    #[error(
        "{file} is empty: a capture begins with a header even where it has no packets; was its writer stopped too early?"
    )]
    Empty {
        /// The capture.
        file: SourceName,
    },
    /// Something else than a capture.
    #[error(
        "{file} is not a capture: it begins with {start}; pcap, pcapng, and both compressed with gzip or zstd are read"
    )]
    NotACapture {
        /// Which file.
        file: SourceName,
        /// Its first bytes.
        start: FirstBytes,
    },
    /// The variant of pcap that Kuznetzov's patches to libpcap wrote.
    #[error(
        "{file} is a \"modified\" pcap (magic 0xa1b2cd34): convert it with `editcap -F pcap {file} OUT.pcap`"
    )]
    Modified {
        /// The capture.
        file: SourceName,
    },
    /// A version of the format that nobody has defined.
    #[error("{file}: version {major}.{minor} at offset {offset}: pcap 2.0 to 2.4 and pcapng 1.x are read")]
    Version {
        /// The capture.
        file: SourceName,
        /// Where it says so.
        offset: u64,
        /// Before the point.
        major: u16,
        /// After the point.
        minor: u16,
    },
    /// A pcapng section header without a byte-order magic.
    #[error("{file} begins like pcapng, but has no byte-order magic at offset 8: there is {start}")]
    ByteOrder {
        /// The capture.
        file: SourceName,
        /// What is there.
        start: FirstBytes,
    },
    /// Damaged before the capture's header is through.
    #[error(
        "{file}: the compressed data are damaged or end before the capture's header: copy the file again"
    )]
    Compressed {
        /// The capture.
        file: SourceName,
    },
    /// It ends inside its first header.
    #[error("{file} ends inside its header, after {len} bytes: was its writer stopped too early?")]
    Header {
        /// The capture.
        file: SourceName,
        /// How long it is.
        len: u64,
    },
    /// A link type that weir does not read.
    #[error(
        "{file}, offset {offset}: {unknown}; capture on another interface or with another link type (tcpdump -y)"
    )]
    LinkType {
        /// The capture.
        file: SourceName,
        /// What it says.
        unknown: UnknownLinkType,
        /// Where.
        offset: u64,
    },
    /// Memory for packets or descriptors cannot be had.
    #[error("cannot set up shared memory of {size}: {error}")]
    Memory {
        /// How much.
        size: Bytes,
        /// What the system says.
        error: io::Error,
    },
    /// The first bytes cannot be read.
    #[error(transparent)]
    Read(#[from] CaptureReadError),
}

/// A capture cannot be read on. What was read before is good.
#[derive(Debug, thiserror::Error)]
pub enum CaptureReadError {
    /// The system reports an error.
    #[error("{file}: cannot be read at offset {offset}: {error}")]
    Io {
        /// The capture.
        file: SourceName,
        /// Where, in bytes after decompression.
        offset: u64,
        /// What the system says.
        error: io::Error,
    },
    /// A part of the file cannot be mapped.
    #[error("{file}: {len} at offset {offset} cannot be mapped: {error}")]
    Map {
        /// The capture.
        file: SourceName,
        /// Where.
        offset: u64,
        /// How much.
        len: Bytes,
        /// What the system says.
        error: io::Error,
    },
    /// A packet of a link type that weir does not read.
    #[error(
        "{file}: packet {packet} at offset {offset}, from interface {interface}: {unknown}; leave that interface out, for instance with `tshark -Y 'frame.interface_id != {interface}' -w`"
    )]
    LinkType {
        /// The capture.
        file: SourceName,
        /// What its interface says.
        unknown: UnknownLinkType,
        /// The packet's interface, counted through the capture.
        interface: u32,
        /// The packet's number, from 1 as Wireshark counts.
        packet: u64,
        /// Where the packet's record begins.
        offset: u64,
    },
}
