//! The write-ahead log of a stream: rows that are not in a complete row group of its file yet.
//!
//! `STREAM.parquet.wal` is beside `STREAM.parquet.part`. Rows are appended to it at least once a second, so they
//! survive a crash of the process. When a row group is complete, a new log replaces it. [`crate::recover`] moves the
//! rows of a log into the file.
//!
//! A log is a sequence of frames: the length of the payload and its CRC-32 (little-endian, 32 bits each), and the
//! payload. The first frame is the [`Base`]. The others together are an Arrow IPC stream: a frame for the schema and
//! one for each record batch. The first truncated or damaged frame ends the log.

use crate::error::WriteCause;
use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use weir_os::private::PrivateFolder;

/// The length and the checksum in front of a payload, in bytes.
const FRAME_HEADER_BYTES: usize = 8;
/// The largest valid payload, in bytes: a record batch has at most a few MiB.
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
    /// The footer at that offset. The file loses it when the next row group overwrites it; after a crash at that time it
    /// is restored from here.
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

/// A log that is being written.
pub(crate) struct Log {
    folder: Arc<PrivateFolder>,
    name: String,
    schema: Arc<Schema>,
    file: File,
    /// Encodes into a buffer that begins with a frame's header.
    writer: StreamWriter<Vec<u8>>,
    /// The frame of the schema, as offsets in the file.
    schema_frame: Range<u64>,
    /// The frames with rows that are in no row group yet, as offsets in the file.
    open_frames: Range<u64>,
    /// The number of these rows.
    open_rows: u64,
}

/// The first two frames of a log, and the writer of the frames that follow.
struct Start {
    bytes: Vec<u8>,
    schema_frame: Range<u64>,
    writer: StreamWriter<Vec<u8>>,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Log {
    /// Creates the log of a file without rows. The log is not synced, because there are no rows to lose yet.
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
        let Start { bytes, schema_frame, writer } = encode_start(schema, base)?;
        let mut file = folder.create_new(&name).map_err(io::Error::from)?;
        file.write_all(&bytes)?;
        let (folder, schema) = (Arc::clone(folder), Arc::clone(schema));
        let open_frames = schema_frame.end..schema_frame.end;
        Ok(Self { folder, name, schema, file, writer, schema_frame, open_frames, open_rows: 0 })
    }

    /// Returns the number of rows that are in no row group yet.
    pub(crate) fn open_rows(&self) -> u64 {
        self.open_rows
    }

    /// Returns the bytes of the rows that are in no row group yet.
    pub(crate) fn open_bytes(&self) -> u64 {
        self.open_frames.end - self.open_frames.start
    }

    /// Reads the rows that are in no row group yet. Rows that cannot be read end the sequence, so the caller compares
    /// their number with [`Self::open_rows`].
    pub(crate) fn batches(
        &self,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, WriteCause>>, WriteCause> {
        let part = |range: &Range<u64>| Part { file: &self.file, range: range.clone() };
        let source = BufReader::new(part(&self.schema_frame).chain(part(&self.open_frames)));
        let reader = StreamReader::try_new(Frames::new(source), None).map_err(parquet_error)?;
        Ok(reader.map(|batch| batch.map_err(parquet_error)))
    }

    /// Notes that all rows so far are in complete row groups.
    pub(crate) fn set_grouped(&mut self) {
        (self.open_frames.start, self.open_rows) = (self.open_frames.end, 0);
    }

    /// Appends rows as one frame.
    pub(crate) fn append(&mut self, batch: &RecordBatch) -> Result<(), WriteCause> {
        self.writer.write(batch).map_err(parquet_error)?;
        let bytes = self.writer.get_mut();
        seal(bytes)?;
        self.file.write_all(bytes)?;
        self.open_frames.end += bytes.len() as u64;
        self.open_rows += batch.num_rows() as u64;
        // The memory of a long frame is freed: a module can have many logs.
        *bytes = Vec::new();
        begin_frame(bytes);
        Ok(())
    }

    /// Replaces the log by an empty one with a new base, after more row groups of the file are complete. The caller has
    /// synced the file. When this returns, the new log is synced too.
    pub(crate) fn restart(&mut self, base: &Base) -> Result<(), WriteCause> {
        let Start { bytes, schema_frame, writer } = encode_start(&self.schema, base)?;
        self.folder.replace(&self.name, &bytes).map_err(io::Error::from)?;
        self.file = self.folder.open_file(&self.name).map_err(io::Error::from)?;
        self.file.seek(SeekFrom::End(0))?;
        self.open_frames = schema_frame.end..schema_frame.end;
        (self.writer, self.schema_frame, self.open_rows) = (writer, schema_frame, 0);
        Ok(())
    }

    /// Removes the log: all of its rows are in the file.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.folder.remove(&self.name)
    }
}

/// Encodes the first two frames of a log, with its base and its schema.
fn encode_start(schema: &Schema, base: &Base) -> Result<Start, WriteCause> {
    let mut bytes = Vec::new();
    begin_frame(&mut bytes);
    bytes.extend(base.encode());
    seal(&mut bytes)?;
    let mut first = Vec::new();
    begin_frame(&mut first);
    let mut writer = StreamWriter::try_new(first, schema).map_err(parquet_error)?;
    let schema = writer.get_mut();
    seal(schema)?;
    let begin = bytes.len() as u64;
    bytes.extend_from_slice(schema);
    *schema = Vec::new();
    begin_frame(schema);
    Ok(Start { schema_frame: begin..bytes.len() as u64, bytes, writer })
}

/// Reads a part of a file, without a change of the file's position.
struct Part<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let wanted = into.len().min(left);
        let read = self.file.read_at(&mut into[..wanted], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}

/// Reserves space for a frame's length and checksum.
fn begin_frame(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(FRAME_HEADER_BYTES, 0);
}

/// Fills in the length and the checksum of a frame.
fn seal(bytes: &mut [u8]) -> Result<(), WriteCause> {
    let Some((front, payload)) = bytes.split_at_mut_checked(FRAME_HEADER_BYTES) else { return Ok(()) };
    let len = u32::try_from(payload.len()).ok().filter(|len| *len <= PAYLOAD_BYTES_MAX);
    let len = len.ok_or_else(|| io::Error::from(ErrorKind::FileTooLarge))?;
    front[..4].copy_from_slice(&len.to_le_bytes());
    front[4..].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    Ok(())
}

fn parquet_error(error: ArrowError) -> WriteCause {
    parquet::errors::ParquetError::from(error).into()
}

/// Reads the base of a log. Returns it with a reader of the Arrow IPC stream that follows, or `None` if the base is
/// truncated or damaged.
pub(crate) fn read(file: File) -> io::Result<Option<(Base, Frames<BufReader<File>>)>> {
    let mut frames = Frames::new(BufReader::new(file));
    let is_complete = frames.next()? && frames.payload.len() >= BASE_BYTES;
    let base = Base::decode(&frames.payload).filter(|_| is_complete);
    frames.at = frames.payload.len();
    Ok(base.map(|base| (base, frames)))
}

/// Reads the payloads of a log's frames as one stream of bytes, up to the first truncated or damaged frame.
pub(crate) struct Frames<R> {
    source: R,
    /// The payload of the current frame.
    payload: Vec<u8>,
    /// The number of bytes of `payload` that have been returned.
    at: usize,
    /// True if there is no further valid frame.
    is_over: bool,
}

impl<R: Read> Frames<R> {
    fn new(source: R) -> Self {
        Self { source, payload: Vec::new(), at: 0, is_over: false }
    }

    /// Reads the next frame. Returns false if there is none, or it is truncated or damaged.
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
        let mut front = [0; FRAME_HEADER_BYTES];
        if !fill(&mut self.source, &mut front)? {
            return Ok(false);
        }
        let [a, b, c, d, crc @ ..] = front;
        let (len, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(crc));
        // No frame has an empty payload. A length of zero comes from a file system that leaves zeros after a crash of the
        // machine.
        if len == 0 || len > PAYLOAD_BYTES_MAX {
            return Ok(false);
        }
        // Memory grows with the bytes that exist, not with the length in the header.
        self.source.by_ref().take(len.into()).read_to_end(&mut self.payload)?;
        Ok(self.payload.len() == len as usize && crc32fast::hash(&self.payload) == crc)
    }
}

impl<R: Read> Frames<R> {
    /// Returns true if there are more bytes to read.
    pub(crate) fn has_more(&mut self) -> io::Result<bool> {
        Ok(self.at < self.payload.len() || self.next()?)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.has_more()? {
            return Ok(0);
        }
        let mut unread = &self.payload[self.at..];
        let read = unread.read(into)?;
        self.at += read;
        Ok(read)
    }
}

/// Fills the buffer. Returns false if the source ends before the buffer is full.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match source.read_exact(buffer) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}
