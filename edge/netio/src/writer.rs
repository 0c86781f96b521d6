//! Writing of packets to capture files.

use crate::capture::Capture;
use crate::pcapng_blocks::{self, InterfaceStatistics, InterfaceTexts, PacketRecord};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_os::private::{NamedOutput, NamedOutputError, PrivateFolder};
use weir_units::{Bytes, Escape as _, Timestamp};
use weir_wire::LinkType;

/// The size of the write buffer.
const BUFFER_BYTES: usize = 256 * 1024;

/// The reason why packets cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be created.
    #[error("{}: cannot be created: {error}", .file.escaped())]
    Create {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another run writes the file.
    #[error("{}: another run is writing this file: write to another one, or wait until that run has ended", .file.escaped())]
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// The file is the one that is being read.
    #[error("{} is the capture that is being read: write to another file", .file.escaped())]
    Input {
        /// The file.
        file: PathBuf,
    },
    /// Standard output is a terminal.
    #[error(
        "standard output is a terminal: give a file, or pipe the packets on, for instance `weir run … -w - | tcpdump -r -`"
    )]
    Terminal,
    /// A write failed, for instance because the disk is full.
    #[error(
        "{}: cannot be written at offset {offset}: {error}; its first {valid} are a valid capture of {packets} packets",
        .file.escaped()
    )]
    Write {
        /// The file.
        file: PathBuf,
        /// The offset of the failed write.
        offset: u64,
        /// The length of the valid part, which ends with a whole record. The rest has been cut off, if that is
        /// possible.
        valid: Bytes,
        /// The packets in the valid part.
        packets: u64,
        /// The system's error.
        error: io::Error,
    },
    /// The complete file cannot be renamed.
    #[error("{} is complete, but cannot be renamed to {}: {error}; rename it by hand", .from.escaped(), .to.escaped())]
    Rename {
        /// The file's present path.
        from: PathBuf,
        /// The file's intended path.
        to: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A second link type in a pcap file, which has one for all packets.
    #[error(
        "{}: a packet has link type {}, and those before it {}: pcap has one for all; give the file the extension .pcapng",
        .file.escaped(), .second.number(), .first.number()
    )]
    LinkType {
        /// The file.
        file: PathBuf,
        /// The link type of the packets before.
        first: LinkType,
        /// The link type of this packet.
        second: LinkType,
    },
    /// A path that must be a pipe is something else.
    #[error("{}: not a named pipe (FIFO): make one with mkfifo(1)", .file.escaped())]
    NoPipe {
        /// The file.
        file: PathBuf,
    },
    /// A packet longer than readers accept.
    #[error("{}: a packet of {len} is longer than a record can be", .file.escaped())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// The length of the packet.
        len: Bytes,
    },
}

impl WriteError {
    /// Returns the file that is the cause.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Create { file, .. }
            | Self::Busy { file }
            | Self::Input { file }
            | Self::Write { file, .. }
            | Self::Rename { from: file, .. }
            | Self::LinkType { file, .. }
            | Self::NoPipe { file }
            | Self::TooLong { file, .. } => Some(file),
            Self::Terminal => None,
        }
    }

    /// Returns true if the reader of a pipe has closed it.
    pub fn is_without_reader(&self) -> bool {
        matches!(self, Self::Write { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<NamedOutputError> for WriteError {
    fn from(error: NamedOutputError) -> Self {
        Self::Create { file: error.path, error: error.error.into() }
    }
}

/// A writer of captures with time stamps in ns: pcapng if the file's extension is .pcapng, otherwise classic pcap.
///
/// A file is `NAME.part` until it is complete; a pipe or a device is written in place. [`end`](Self::end) or
/// [`finish`](Self::finish) must be called at the end; only then is everything written, and errors are reported. A writer that is
/// dropped before it has written a packet leaves no file.
#[derive(Debug)]
pub struct PacketWriter {
    output: NamedOutput,
    format: Format,
    buffer: Vec<u8>,
    /// The ends of records in `buffer`, each with the packets up to there.
    ends: Vec<(usize, PacketSums)>,
    /// The bytes of the file that are written.
    offset: u64,
    /// The packets passed to [`write`](Self::write).
    sums: PacketSums,
    /// The packets that are written.
    on_disk: PacketSums,
    failed: bool,
}

/// Sums over the first packets of a capture.
#[derive(Clone, Copy, Debug, Default)]
struct PacketSums {
    packets: u64,
    /// The captured bytes of the packets.
    captured: u64,
    /// Packets with a time that pcap cannot express.
    late: u64,
}

#[derive(Debug)]
enum Format {
    /// The link type of all packets, once it is known.
    Pcap(Option<LinkType>),
    /// The interfaces described so far (their numbers in the input, and link types), and texts about each.
    Pcapng(Vec<(u16, LinkType)>, InterfaceTexts),
}

/// The totals of a written capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteSummary {
    /// The file. Its name ends with `.part` unless it is complete.
    pub path: PathBuf,
    /// Packets in the file.
    pub packets: u64,
    /// Their captured bytes.
    pub captured: Bytes,
    /// Packets with a time after 2106-02-07T06:28:15Z in a pcap file, which cannot express it: they have its last
    /// second.
    pub late: u64,
    /// Bytes of the file.
    pub bytes: Bytes,
}

/// The result of a written capture.
#[derive(Debug)]
pub struct WriteOutcome {
    /// The totals of the file, also after an error.
    pub summary: WriteSummary,
    /// The error of [`PacketWriter::end`]. An error of a packet was returned before.
    pub error: Option<WriteError>,
}

impl PacketWriter {
    /// Creates `PATH.part` with mode 0600, which [`finish`](Self::finish) renames to `PATH`; `-` is standard output. A file that
    /// `input` reads, or that another run writes, is refused and stays unchanged.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the file cannot be created.
    pub fn create(path: &Path, input: Option<&Capture>) -> Result<PacketWriter, WriteError> {
        let file = path.to_owned();
        if path.as_os_str() == "-" {
            let stdout = io::stdout();
            if io::IsTerminal::is_terminal(&stdout) {
                return Err(WriteError::Terminal);
            }
            let output = stdout.as_fd().try_clone_to_owned();
            let output = output.map_err(|error| WriteError::Create { file, error })?;
            return Ok(Self::new(NamedOutput::in_place(File::from(output), path)));
        }
        for file in [file, NamedOutput::part_of(path)] {
            if input.is_some_and(|input| input.reads(&file)) {
                return Err(WriteError::Input { file });
            }
        }
        let output = NamedOutput::create(path)?;
        output.map(Self::new).ok_or_else(|| WriteError::Busy { file: path.to_owned() })
    }

    /// Creates `NAME.part` in a private folder, which [`finish`](Self::finish) renames to `NAME`. A file that another run writes is
    /// refused and stays unchanged.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the file cannot be created.
    pub fn create_in(folder: &Arc<PrivateFolder>, name: &str) -> Result<PacketWriter, WriteError> {
        let output = NamedOutput::create_in(folder, name)?;
        output.map(Self::new).ok_or_else(|| WriteError::Busy { file: folder.path().join(name) })
    }

    /// Creates a writer of pcapng with these texts to an [open](open_pipe) pipe. `path` is used in messages only.
    pub fn to_pipe(pipe: File, path: &Path, texts: InterfaceTexts) -> PacketWriter {
        Self::with_format(NamedOutput::in_place(pipe, path), Format::Pcapng(Vec::new(), texts))
    }

    fn new(output: NamedOutput) -> PacketWriter {
        let extension = output.path().extension().map(|e| e.to_ascii_lowercase());
        let pcapng = extension.is_some_and(|e| e == "pcapng" || e == "ntar");
        let format =
            if pcapng { Format::Pcapng(Vec::new(), InterfaceTexts::default()) } else { Format::Pcap(None) };
        Self::with_format(output, format)
    }

    fn with_format(output: NamedOutput, format: Format) -> PacketWriter {
        let mut writer = PacketWriter {
            output,
            format,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            ends: Vec::new(),
            offset: 0,
            sums: PacketSums::default(),
            on_disk: PacketSums::default(),
            failed: false,
        };
        if let Format::Pcapng(_, texts) = &writer.format {
            pcapng_blocks::section_header(&mut writer.buffer, texts);
            writer.ends.push((writer.buffer.len(), writer.sums));
        }
        writer
    }

    /// Writes one packet, of which `bytes` were captured.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. After a failed write nothing more is written, and all further calls fail.
    pub fn write(
        &mut self,
        ts: Timestamp,
        wire_len: u32,
        link_type: LinkType,
        interface: u16,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let (lost, comment) = (0, "");
        self.write_record(&PacketRecord { ts, wire_len, link_type, interface, bytes, lost, comment })
    }

    /// Writes one packet with its losses and comment.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_record(&mut self, record: &PacketRecord<'_>) -> Result<(), WriteError> {
        let PacketRecord { ts, wire_len, link_type, interface, bytes, .. } = *record;
        let too_long =
            || WriteError::TooLong { file: self.output.present_path(), len: Bytes(bytes.len() as u64) };
        let cap_len = u32::try_from(bytes.len()).ok().filter(|&len| len <= crate::format::CAP_LEN_MAX);
        let cap_len = cap_len.ok_or_else(too_long)?;
        match &mut self.format {
            Format::Pcap(Some(first)) if *first != link_type => {
                let (file, first) = (self.output.present_path(), *first);
                return Err(WriteError::LinkType { file, first, second: link_type });
            }
            Format::Pcap(known) => {
                if known.replace(link_type).is_none() {
                    self.pcap_header(link_type);
                }
                // Classic pcap has 32 bits for seconds, which last until 2106. A later time is replaced by the last
                // one, and counted.
                let seconds = u32::try_from(ts.0 / 1_000_000_000).unwrap_or_else(|_| {
                    self.sums.late += 1;
                    u32::MAX
                });
                let nanoseconds = u32::try_from(ts.0 % 1_000_000_000).unwrap_or(0);
                for field in [seconds, nanoseconds, cap_len, wire_len] {
                    self.buffer.extend_from_slice(&field.to_le_bytes());
                }
                self.buffer.extend_from_slice(bytes);
            }
            Format::Pcapng(interfaces, texts) => {
                let index = interface_index(interfaces, texts, &mut self.buffer, (interface, link_type));
                pcapng_blocks::packet(&mut self.buffer, index, record, cap_len);
            }
        }
        self.sums.packets += 1;
        self.sums.captured += u64::from(cap_len);
        self.ends.push((self.buffer.len(), self.sums));
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Describes an interface before its first packet, and writes everything so far, so that a reader can begin. In pcap,
    /// does nothing.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn describe(&mut self, interface: u16, link_type: LinkType) -> Result<(), WriteError> {
        let Format::Pcapng(interfaces, texts) = &mut self.format else { return Ok(()) };
        interface_index(interfaces, texts, &mut self.buffer, (interface, link_type));
        self.ends.push((self.buffer.len(), self.sums));
        self.flush()
    }

    /// Writes counters of the first interface that the capture describes. In pcap, and without an interface, does nothing.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_statistics(&mut self, statistics: &InterfaceStatistics) -> Result<(), WriteError> {
        match &self.format {
            Format::Pcapng(interfaces, _) if !interfaces.is_empty() => {}
            _ => return Ok(()),
        }
        pcapng_blocks::interface_statistics(&mut self.buffer, 0, statistics);
        self.ends.push((self.buffer.len(), self.sums));
        self.flush()
    }

    /// Returns false once the reader of a pipe has closed it.
    pub fn has_reader(&mut self) -> bool {
        self.output.open().map_or(true, weir_os::has_reader)
    }

    /// Returns the number of packets passed to [`write`](Self::write), and the bytes of the file with them.
    pub fn so_far(&self) -> (u64, Bytes) {
        (self.sums.packets, Bytes(self.offset.saturating_add(self.buffer.len() as u64)))
    }

    /// Returns true if the capture is written to a pipe or a device.
    pub fn is_in_place(&self) -> bool {
        self.output.is_in_place()
    }

    /// Writes the packets so far to the file, so that they survive the end of this process.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn sync(&mut self) -> Result<(), WriteError> {
        if self.sums.packets > self.on_disk.packets { self.flush() } else { Ok(()) }
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    ///
    /// [`WriteError`], also after an earlier one.
    pub fn finish(self) -> Result<WriteSummary, WriteError> {
        let has_failed = self.failed;
        match self.end(true) {
            WriteOutcome { error: Some(error), .. } => Err(error),
            WriteOutcome { summary, .. } if has_failed => Err(WriteError::Write {
                file: summary.path,
                offset: summary.bytes.0,
                valid: summary.bytes,
                packets: summary.packets,
                error: io::Error::other("an earlier write failed"),
            }),
            WriteOutcome { summary, .. } => Ok(summary),
        }
    }

    /// Writes the buffered rest. If the results of the run are complete, the file gets its name. Otherwise, and after an error, it
    /// stays the `.part` file.
    pub fn end(mut self, is_complete: bool) -> WriteOutcome {
        if let Format::Pcap(known @ None) = &mut self.format {
            // A capture without packets needs a link type, too.
            *known = Some(LinkType::Ethernet);
            self.pcap_header(LinkType::Ethernet);
        }
        let has_failed = self.failed;
        let written = if has_failed { Ok(()) } else { self.flush() };
        let ended = written.and_then(|()| {
            if has_failed || !is_complete {
                return Ok(());
            }
            self.output.complete().map_err(|error| WriteError::Rename {
                from: self.output.present_path(),
                to: self.output.path().to_owned(),
                error,
            })
        });
        let PacketSums { packets, captured, late } = self.on_disk;
        let path = self.output.present_path();
        let summary =
            WriteSummary { path, packets, captured: Bytes(captured), late, bytes: Bytes(self.offset) };
        WriteOutcome { summary, error: ended.err() }
    }

    fn pcap_header(&mut self, link_type: LinkType) {
        /// libpcap's maximum.
        const SNAP_LEN: u32 = 262_144;
        self.buffer.extend_from_slice(&0xa1b2_3c4du32.to_le_bytes());
        self.buffer.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.buffer.extend_from_slice(&SNAP_LEN.to_le_bytes());
        self.buffer.extend_from_slice(&u32::from(link_type.number()).to_le_bytes());
        self.ends.push((self.buffer.len(), self.sums));
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let mut written = 0;
        let failure = loop {
            if self.failed {
                break Some(io::Error::other("an earlier write failed"));
            }
            if written == self.buffer.len() {
                break None;
            }
            match self.output.open().and_then(|mut file| file.write(&self.buffer[written..])) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let whole = self.ends.iter().take_while(|(end, _)| *end <= written).last().copied();
        let (end, sums) = whole.unwrap_or((0, self.on_disk));
        let (offset, valid) =
            (self.offset.saturating_add(written as u64), self.offset.saturating_add(end as u64));
        self.buffer.clear();
        self.ends.clear();
        self.on_disk = sums;
        self.offset = valid;
        let Some(error) = failure else { return Ok(()) };
        if !std::mem::replace(&mut self.failed, true) {
            // A pipe cannot be shortened; its reader then sees a truncated record.
            let _ = self.output.open().and_then(|file| file.set_len(valid));
        }
        let packets = self.on_disk.packets;
        Err(WriteError::Write {
            file: self.output.present_path(),
            offset,
            valid: Bytes(valid),
            packets,
            error,
        })
    }
}

/// Opens a named pipe for writing, and waits until it has a reader.
///
/// # Errors
///
/// [`WriteError`] if the path is not a pipe, or cannot be opened.
pub fn open_pipe(path: &Path) -> Result<File, WriteError> {
    let failed = |error| WriteError::Create { file: path.to_owned(), error };
    let pipe = File::options().write(true).open(path).map_err(failed)?;
    if !pipe.metadata().map_err(failed)?.file_type().is_fifo() {
        return Err(WriteError::NoPipe { file: path.to_owned() });
    }
    Ok(pipe)
}

/// Returns an interface's number in the section. A new interface is described first.
fn interface_index(
    interfaces: &mut Vec<(u16, LinkType)>,
    texts: &InterfaceTexts,
    buffer: &mut Vec<u8>,
    interface: (u16, LinkType),
) -> u32 {
    let known = interfaces.iter().position(|&known| known == interface);
    let index = known.unwrap_or_else(|| {
        interfaces.push(interface);
        pcapng_blocks::interface_description(buffer, interface.1, texts);
        interfaces.len() - 1
    });
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl Drop for PacketWriter {
    /// Keeps the packets written so far by a run that failed. Without packets, the output is removed.
    fn drop(&mut self) {
        if !self.failed && self.sums.packets > 0 {
            let _ = self.flush();
        }
    }
}
