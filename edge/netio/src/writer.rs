//! Writing of packets to capture files.

use crate::capture::Capture;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use weir_os::private::{self, PrivateFolder};
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
    /// A packet longer than readers accept.
    #[error("{}: a packet of {len} is longer than a record can be", .file.escaped())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// The length of the packet.
        len: Bytes,
    },
}

/// A writer of captures with time stamps in ns: pcapng if the file's extension is .pcapng, otherwise classic pcap.
///
/// [`finish`](Self::finish) must be called at the end; only then is everything written, and errors are reported.
#[derive(Debug)]
pub struct PacketWriter {
    file: PathBuf,
    output: File,
    format: Format,
    buffer: Vec<u8>,
    /// The ends of records in `buffer`, each with the number of packets up to there.
    ends: Vec<(usize, u64)>,
    /// The bytes of the file that are written.
    offset: u64,
    packets: u64,
    /// Packets with a time that pcap cannot express.
    late: u64,
    packets_on_disk: u64,
    failed: bool,
}

#[derive(Debug)]
enum Format {
    /// The link type of all packets, once it is known.
    Pcap(Option<LinkType>),
    /// The interfaces described so far: their numbers in the input, and link types.
    Pcapng(Vec<(u16, LinkType)>),
}

/// The totals of a written capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSummary {
    /// Packets written.
    pub packets: u64,
    /// Packets with a time after 2106-02-07T06:28:15Z in a pcap file, which cannot express it: they have its last
    /// second.
    pub late: u64,
    /// Bytes of the file.
    pub bytes: Bytes,
}

impl PacketWriter {
    /// Creates the file with mode 0600, or truncates it; `-` is standard output. A file that `input` reads, or that
    /// another run writes, is refused and stays unchanged.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the file cannot be created.
    pub fn create(path: &Path, input: Option<&Capture>) -> Result<PacketWriter, WriteError> {
        let file = path.to_owned();
        let failed = |error| WriteError::Create { file: file.clone(), error };
        let output = if path.as_os_str() == "-" {
            let stdout = io::stdout();
            if io::IsTerminal::is_terminal(&stdout) {
                return Err(WriteError::Terminal);
            }
            File::from(stdout.as_fd().try_clone_to_owned().map_err(failed)?)
        } else {
            if input.is_some_and(|input| input.reads(path)) {
                return Err(WriteError::Input { file });
            }
            let output = private::create_named(path).map_err(failed)?;
            if !private::lock(&output).map_err(failed)? {
                return Err(WriteError::Busy { file });
            }
            truncate(output).map_err(failed)?
        };
        Ok(Self::new(path, output))
    }

    /// Creates the file `name` in a private folder, or truncates it. A file that another run writes is refused and
    /// stays unchanged.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the file cannot be created.
    pub fn create_in(folder: &PrivateFolder, name: &str) -> Result<PacketWriter, WriteError> {
        let path = folder.path().join(name);
        let failed = |error| WriteError::Create { file: path.clone(), error };
        let output = folder.create_locked(name).map_err(|error| failed(error.into()))?;
        let Some(output) = output else { return Err(WriteError::Busy { file: path }) };
        let output = truncate(output).map_err(failed)?;
        Ok(Self::new(&path, output))
    }

    fn new(path: &Path, output: File) -> PacketWriter {
        let extension = path.extension().map(|e| e.to_ascii_lowercase());
        let pcapng = extension.is_some_and(|e| e == "pcapng" || e == "ntar");
        let mut writer = PacketWriter {
            file: path.to_owned(),
            output,
            format: if pcapng { Format::Pcapng(Vec::new()) } else { Format::Pcap(None) },
            buffer: Vec::with_capacity(BUFFER_BYTES),
            ends: Vec::new(),
            offset: 0,
            packets: 0,
            late: 0,
            packets_on_disk: 0,
            failed: false,
        };
        if pcapng {
            // Section header: byte order, version 1.0, unknown length.
            writer.block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes(), &[1, 0, 0, 0], &[0xff; 8]]);
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
        let too_long = || WriteError::TooLong { file: self.file.clone(), len: Bytes(bytes.len() as u64) };
        let cap_len = u32::try_from(bytes.len()).ok().filter(|&len| len <= crate::format::CAP_LEN_MAX);
        let cap_len = cap_len.ok_or_else(too_long)?;
        match &mut self.format {
            Format::Pcap(Some(first)) if *first != link_type => {
                let (file, first) = (self.file.clone(), *first);
                return Err(WriteError::LinkType { file, first, second: link_type });
            }
            Format::Pcap(known) => {
                if known.replace(link_type).is_none() {
                    self.pcap_header(link_type);
                }
                // Classic pcap has 32 bits for seconds, which last until 2106. A later time is replaced by the last
                // one, and counted.
                let seconds = u32::try_from(ts.0 / 1_000_000_000).unwrap_or_else(|_| {
                    self.late += 1;
                    u32::MAX
                });
                let nanoseconds = u32::try_from(ts.0 % 1_000_000_000).unwrap_or(0);
                for field in [seconds, nanoseconds, cap_len, wire_len] {
                    self.buffer.extend_from_slice(&field.to_le_bytes());
                }
                self.buffer.extend_from_slice(bytes);
            }
            Format::Pcapng(interfaces) => {
                let known = interfaces.iter().position(|&known| known == (interface, link_type));
                let index = known.unwrap_or(interfaces.len());
                if known.is_none() {
                    interfaces.push((interface, link_type));
                    // Link type, no limit on lengths, option if_tsresol: ns.
                    let link_type = u32::from(link_type.number()).to_le_bytes();
                    self.block(1, &[&link_type, &[0; 4], &[9, 0, 1, 0, 9, 0, 0, 0], &[0; 4]]);
                }
                let index = u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes();
                let [l0, l1, l2, l3, h0, h1, h2, h3] = ts.0.to_le_bytes();
                let lengths = [cap_len.to_le_bytes(), wire_len.to_le_bytes()].concat();
                let padding = &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()];
                self.block(6, &[&index, &[h0, h1, h2, h3, l0, l1, l2, l3], &lengths, bytes, padding]);
            }
        }
        self.packets += 1;
        self.ends.push((self.buffer.len(), self.packets));
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered rest.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub fn finish(mut self) -> Result<WriteSummary, WriteError> {
        if let Format::Pcap(known @ None) = &mut self.format {
            // A capture without packets needs a link type, too.
            *known = Some(LinkType::Ethernet);
            self.pcap_header(LinkType::Ethernet);
        }
        self.flush()?;
        Ok(WriteSummary { packets: self.packets, late: self.late, bytes: Bytes(self.offset) })
    }

    /// Returns a guard that keeps the file locked, also after [`finish`](Self::finish), until the guard is dropped.
    ///
    /// # Errors
    /// [`io::Error`] if the system provides no descriptor.
    pub fn hold(&self) -> io::Result<impl Drop + use<>> {
        self.output.try_clone().map(OwnedFd::from)
    }

    fn pcap_header(&mut self, link_type: LinkType) {
        /// libpcap's maximum.
        const SNAP_LEN: u32 = 262_144;
        self.buffer.extend_from_slice(&0xa1b2_3c4du32.to_le_bytes());
        self.buffer.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.buffer.extend_from_slice(&SNAP_LEN.to_le_bytes());
        self.buffer.extend_from_slice(&u32::from(link_type.number()).to_le_bytes());
        self.ends.push((self.buffer.len(), self.packets));
    }

    /// Writes a pcapng block; the total length of the parts is a multiple of four bytes.
    fn block(&mut self, kind: u32, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum::<usize>() + 12;
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
        self.buffer.extend_from_slice(&kind.to_le_bytes());
        self.buffer.extend_from_slice(&len);
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        self.buffer.extend_from_slice(&len);
        self.ends.push((self.buffer.len(), self.packets));
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
            match self.output.write(&self.buffer[written..]) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let whole = self.ends.iter().take_while(|(end, _)| *end <= written).last().copied();
        let (end, packets) = whole.unwrap_or((0, self.packets_on_disk));
        let (offset, valid) =
            (self.offset.saturating_add(written as u64), self.offset.saturating_add(end as u64));
        self.buffer.clear();
        self.ends.clear();
        self.packets_on_disk = packets;
        self.offset = valid;
        let Some(error) = failure else { return Ok(()) };
        if !std::mem::replace(&mut self.failed, true) {
            // A pipe cannot be shortened; its reader then sees a truncated record.
            let _ = self.output.set_len(valid);
        }
        Err(WriteError::Write { file: self.file.clone(), offset, valid: Bytes(valid), packets, error })
    }
}

/// Truncates a file. A pipe or a device has nothing to truncate.
fn truncate(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

impl Drop for PacketWriter {
    /// Keeps the packets written so far by a run that failed.
    fn drop(&mut self) {
        if !self.failed {
            let _ = self.flush();
        }
    }
}
