//! Errors of a capture as a whole. Damage inside a capture only truncates it: see [`crate::Truncation`].

use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_units::{Bytes, Escape as _};
use weir_wire::UnknownLinkType;

/// The name of a capture in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// A file, a FIFO or a device.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes in memory.
    Memory,
    /// This number of captures, merged.
    Merged(usize),
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.escaped()),
            Self::Stdin => write!(f, "standard input"),
            Self::Memory => write!(f, "the capture in memory"),
            Self::Merged(count) => write!(f, "{count} captures"),
        }
    }
}

/// The first bytes of a file, as messages show them.
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

/// The reason why a capture cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refuses to open the capture.
    #[error("{file}: cannot be opened: {error}")]
    Open {
        /// The capture.
        file: SourceName,
        /// The system's error.
        error: io::Error,
    },
    /// The program was interrupted before a capture's header arrived on a pipe.
    #[error("{file}: the program was ended by a signal before a capture began")]
    Interrupted {
        /// The capture.
        file: SourceName,
    },
    /// The reader of the program's output closed it before a capture's header arrived on a pipe.
    #[error("{file}: the reader of the output closed it before a capture began")]
    OutputClosed {
        /// The capture.
        file: SourceName,
    },
    /// The path names a directory.
    #[error("{file} is a directory: name a capture file in it")]
    Directory {
        /// The directory.
        file: SourceName,
    },
    /// One of several captures is a pipe or a device. A merge first reads the first packet of each capture, which could
    /// block on a pipe.
    #[error("{file} is a pipe or a device, and can be read only alone: copy its packets to a file first")]
    MergedPipe {
        /// The pipe.
        file: SourceName,
    },
    /// The input is a terminal.
    #[error(
        "{file} is a terminal: give a file, or pipe a capture in, for instance `tcpdump -i eth0 -w - | weir run -r -`"
    )]
    Terminal {
        /// The terminal, usually standard input.
        file: SourceName,
    },
    /// The capture is empty.
    #[error(
        "{file} is empty: a capture begins with a header even where it has no packets; was its writer stopped too early?"
    )]
    Empty {
        /// The capture.
        file: SourceName,
    },
    /// The bytes are not a capture.
    #[error(
        "{file} is not a capture: its first bytes are {start}; weir reads pcap and pcapng, plain or compressed with gzip or zstd"
    )]
    NotACapture {
        /// The file.
        file: SourceName,
        /// The first bytes.
        start: FirstBytes,
    },
    /// The capture has the variant of pcap that Kuznetzov's patches to libpcap write.
    #[error(
        "{file} is a \"modified\" pcap (magic 0xa1b2cd34): convert it with `editcap -F pcap {file} OUT.pcap`"
    )]
    Modified {
        /// The capture.
        file: SourceName,
    },
    /// The capture has an unsupported version of its format.
    #[error(
        "{file}: version {major}.{minor} at offset {offset} is not supported: weir reads pcap 2.0 to 2.4 and pcapng 1.x"
    )]
    Version {
        /// The capture.
        file: SourceName,
        /// The offset of the version.
        offset: u64,
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// The header of the first pcapng section has no byte-order magic.
    #[error(
        "{file} begins like pcapng, but has no byte-order magic at offset 8: the bytes there are {start}"
    )]
    ByteOrder {
        /// The capture.
        file: SourceName,
        /// The bytes at offset 8.
        start: FirstBytes,
    },
    /// The compressed data are damaged before the end of the capture's header.
    #[error(
        "{file}: the compressed data are damaged or end before the capture's header: copy the file again"
    )]
    Compressed {
        /// The capture.
        file: SourceName,
    },
    /// The capture ends inside its first header.
    #[error("{file} ends inside its header, after {len} bytes: was its writer stopped too early?")]
    Header {
        /// The capture.
        file: SourceName,
        /// The length of the capture in bytes.
        len: u64,
    },
    /// The capture has an unsupported link type.
    #[error(
        "{file}, offset {offset}: {unknown}; capture on another interface or with another link type (tcpdump -y)"
    )]
    LinkType {
        /// The capture.
        file: SourceName,
        /// The link type.
        unknown: UnknownLinkType,
        /// The offset of the link type.
        offset: u64,
    },
    /// Memory for packets or descriptors cannot be allocated.
    #[error("cannot set up shared memory of {size}: {error}")]
    Memory {
        /// The amount of memory.
        size: Bytes,
        /// The system's error.
        error: io::Error,
    },
    /// The first bytes cannot be read.
    #[error(transparent)]
    Read(#[from] CaptureReadError),
}

/// The reason why reading a capture cannot continue. The packets read before are valid.
#[derive(Debug, thiserror::Error)]
pub enum CaptureReadError {
    /// The system reports an error.
    #[error("{file}: cannot be read at offset {offset}: {error}")]
    Io {
        /// The capture.
        file: SourceName,
        /// The offset in bytes, after decompression.
        offset: u64,
        /// The system's error.
        error: io::Error,
    },
    /// A part of the file cannot be mapped.
    #[error("{file}: {len} at offset {offset} cannot be mapped: {error}")]
    Map {
        /// The capture.
        file: SourceName,
        /// The offset of the part.
        offset: u64,
        /// The length of the part.
        len: Bytes,
        /// The system's error.
        error: io::Error,
    },
    /// One of several captures cannot be opened any more.
    #[error(transparent)]
    Open(#[from] Box<OpenError>),
    /// The times of too many captures overlap.
    #[error(
        "more than {max} captures overlap in time, and each needs memory while it is open: merge some of them first, for instance with mergecap"
    )]
    Overlap {
        /// The most captures whose times can overlap.
        max: usize,
    },
    /// A packet has an unsupported link type.
    #[error(
        "{file}: packet {packet} at offset {offset}, from interface {interface}: {unknown}; leave that interface out, for instance with `tshark -Y 'frame.interface_id != {interface}' -w`"
    )]
    LinkType {
        /// The capture.
        file: SourceName,
        /// The link type of its interface.
        unknown: UnknownLinkType,
        /// The number of the packet's interface, from 0. The numbers continue across the sections of a pcapng capture.
        interface: u32,
        /// The packet's number, from 1 as in Wireshark.
        packet: u64,
        /// The offset of the packet's record.
        offset: u64,
    },
}
