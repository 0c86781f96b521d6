//! The write-ahead log of a stream: rows that are in no complete row group of its file yet.
//!
//! `STREAM.parquet.wal` stands beside `STREAM.parquet.part`. Rows are appended to it at least once a second, so they survive a crash of the process. A new log
//! replaces it when a row group is complete. [`crate::recover`] brings rows of a log into the file.
//!
//! A log is a sequence of frames: the length of the payload and its CRC-32 (little-endian, 32 bits each), and the payload. The first frame is the [`Base`], the others
//! together are an Arrow IPC stream, a frame for the schema and one for each record batch. The first frame that is cut off or damaged ends the log.

use crate::error::WriteCause;
use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use weir_os::private::PrivateFolder;

/// Bytes in front of a payload.
const FRAME_BYTES: usize = 8;
/// A longer payload is damage: a record batch has at most a few MiB.
const PAYLOAD_BYTES_MAX: u32 = 256 << 20;
/// Bytes of a base without the footer.
const BASE_BYTES: usize = 16;

/// The state of the file at which a log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// Rows in the complete row groups.
    pub(crate) rows: u64,
    /// Offset of the first byte after the last complete row group.
    pub(crate) end: u64,
    /// The footer that belongs there. The next row group is written over it, and a crash while that happens leaves neither.
    pub(crate) footer: Vec<u8>,
}

impl Base {
    fn encode(&self) -> Vec<u8> {
        [&self.rows.to_le_bytes()[..], &self.end.to_le_bytes(), &self.footer].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (rows, rest) = bytes.split_first_chunk()?;
        let (end, footer) = rest.split_first_chunk()?;
        let (rows, end) = (u64::from_le_bytes(*rows), u64::from_le_bytes(*end));
        Some(Self { rows, end, footer: footer.to_vec() })
    }
}

/// A log that is written.
pub(crate) struct Log {
    folder: Arc<PrivateFolder>,
    name: String,
    schema: Arc<Schema>,
    file: File,
    /// Encodes into a buffer with a frame's room in front.
    writer: StreamWriter<Vec<u8>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Log {
    /// Begins the log of a file that has no rows yet. It need not survive a crash of the machine, because there is nothing to lose.
    pub(crate) fn create(
        folder: &Arc<PrivateFolder>,
        name: String,
        schema: &Arc<Schema>,
        base: &Base,
    ) -> Result<Self, WriteCause> {
        match folder.remove(&name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let (bytes, writer) = beginning(schema, base)?;
        let mut file = folder.create_new(&name).map_err(io::Error::from)?;
        file.write_all(&bytes)?;
        Ok(Self { folder: Arc::clone(folder), name, schema: Arc::clone(schema), file, writer })
    }

    /// Appends rows.
    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), WriteCause> {
        self.writer.write(batch).map_err(parquet_error)?;
        let bytes = self.writer.get_mut();
        seal(bytes)?;
        self.file.write_all(bytes)?;
        begin_frame(bytes);
        Ok(())
    }

    /// Begins anew, because the file has more complete row groups. The file has been synced by then; the new log is when this returns.
    pub(crate) fn restart(&mut self, base: &Base) -> Result<(), WriteCause> {
        let (bytes, writer) = beginning(&self.schema, base)?;
        self.folder.replace(&self.name, &bytes).map_err(io::Error::from)?;
        self.file = self.folder.open_file(&self.name).map_err(io::Error::from)?;
        self.file.seek(SeekFrom::End(0))?;
        self.writer = writer;
        Ok(())
    }

    /// Removes the log: all of its rows are in the file.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.folder.remove(&self.name)
    }
}

/// The frames of a base and a schema, and what writes the batches behind them.
fn beginning(schema: &Schema, base: &Base) -> Result<(Vec<u8>, StreamWriter<Vec<u8>>), WriteCause> {
    let mut bytes = Vec::new();
    begin_frame(&mut bytes);
    bytes.extend(base.encode());
    seal(&mut bytes)?;
    let mut first = Vec::new();
    begin_frame(&mut first);
    let mut writer = StreamWriter::try_new(first, schema).map_err(parquet_error)?;
    let schema = writer.get_mut();
    seal(schema)?;
    bytes.extend_from_slice(schema);
    begin_frame(schema);
    Ok((bytes, writer))
}

/// Leaves room for a frame's length and checksum.
fn begin_frame(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(FRAME_BYTES, 0);
}

/// Writes the length and the checksum of what stands behind them.
fn seal(bytes: &mut [u8]) -> Result<(), WriteCause> {
    let Some((front, payload)) = bytes.split_at_mut_checked(FRAME_BYTES) else { return Ok(()) };
    let len = u32::try_from(payload.len()).ok().filter(|len| *len <= PAYLOAD_BYTES_MAX);
    let len = len.ok_or_else(|| io::Error::from(ErrorKind::FileTooLarge))?;
    front[..4].copy_from_slice(&len.to_le_bytes());
    front[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    Ok(())
}

fn parquet_error(error: ArrowError) -> WriteCause {
    parquet::errors::ParquetError::from(error).into()
}

/// The base of a log, and the Arrow IPC stream behind it. None where the base is damaged.
pub(crate) fn read(file: File) -> io::Result<Option<(Base, Frames<BufReader<File>>)>> {
    let mut frames = Frames { source: BufReader::new(file), payload: Vec::new(), at: 0, is_over: false };
    let is_whole = frames.next()? && frames.payload.len() >= BASE_BYTES;
    let base = Base::decode(&frames.payload).filter(|_| is_whole);
    frames.at = frames.payload.len();
    Ok(base.map(|base| (base, frames)))
}

/// The payloads of frames, one behind the other.
pub(crate) struct Frames<R> {
    source: R,
    payload: Vec<u8>,
    at: usize,
    is_over: bool,
}

impl<R: Read> Frames<R> {
    /// Reads the next payload. Returns whether there is one that is not damaged.
    fn next(&mut self) -> io::Result<bool> {
        self.payload.clear();
        self.at = 0;
        self.is_over = self.is_over || !self.read_payload()?;
        if self.is_over {
            self.payload.clear();
        }
        Ok(!self.is_over)
    }

    fn read_payload(&mut self) -> io::Result<bool> {
        let mut front = [0; FRAME_BYTES];
        if !fill(&mut self.source, &mut front)? {
            return Ok(false);
        }
        let [a, b, c, d, crc @ ..] = front;
        let (len, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(crc));
        // A frame without a payload is what zeros look like: a file system may leave them after a crash of the machine.
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Ok(false);
        }
        // No more memory than there are bytes.
        self.source.by_ref().take(len.into()).read_to_end(&mut self.payload)?;
        Ok(self.payload.len() == len as usize && crc32fast::hash(&self.payload) == crc)
    }
}

impl<R: Read> Frames<R> {
    /// Whether there are more bytes.
    pub(crate) fn has_more(&mut self) -> io::Result<bool> {
        Ok(self.at < self.payload.len() || self.next()?)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.has_more()? {
            return Ok(0);
        }
        let mut left = &self.payload[self.at..];
        let read = left.read(into)?;
        self.at += read;
        Ok(read)
    }
}

/// Fills the buffer. Returns false where the source ends before that.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match source.read_exact(buffer) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}
