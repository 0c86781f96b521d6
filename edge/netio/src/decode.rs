//! Reading and decompressing the bytes of a capture that is a stream.

use crate::gzip::Members;
use crate::merge::MergedCaptures;
use crate::open::PositionedReader;
use crate::pipe::Pipe;
use crate::totals::EndReason;
use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of bytes needed to recognise the compression.
pub(crate) const MAGIC_BYTES: usize = 4;

/// The size of a read of compressed data.
const BUFFER_BYTES: usize = 256 * 1024;

/// The compression of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames.
    Zstd,
}

impl Compression {
    /// Recognises the compression by the first bytes.
    pub(crate) fn recognise(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A Zstandard stream begins with a frame or with a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// The source of a stream's bytes.
pub(crate) enum ByteSource {
    File(File),
    Positioned(PositionedReader<File>),
    Pipe(Pipe),
    Memory(Cursor<Vec<u8>>),
    Merge(Box<MergedCaptures>),
}

impl Read for ByteSource {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(to),
            Self::Positioned(file) => file.read(to),
            Self::Pipe(pipe) => pipe.read(to),
            Self::Memory(bytes) => bytes.read(to),
            Self::Merge(captures) => captures.read(to),
        }
    }
}

/// A reader that counts the bytes read.
struct Counted<R> {
    inner: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        // The length of a slice fits into 64 bits.
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A stream of decompressed capture bytes.
pub(crate) struct Decoded {
    reader: Box<dyn Read + Send>,
    /// Bytes read from the source so far.
    bytes_read: Arc<AtomicU64>,
}

impl std::fmt::Debug for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoded").field("bytes_read", &self.bytes_read).finish_non_exhaustive()
    }
}

/// Reads until `to` is full or the stream ends. Returns the number of bytes read.
pub(crate) fn read_up_to(from: &mut impl Read, to: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < to.len() {
        match from.read(&mut to[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Decoded {
    /// Reads the first bytes of the source, and sets up the decompression that they indicate.
    pub(crate) fn new(mut source: ByteSource) -> io::Result<Self> {
        let mut start = [0; MAGIC_BYTES];
        let len = read_up_to(&mut source, &mut start)?;
        let bytes_read = Arc::new(AtomicU64::new(0));
        let all: Chain<Cursor<Vec<u8>>, ByteSource> = Cursor::new(start[..len].to_vec()).chain(source);
        let counted = Counted { inner: all, bytes_read: Arc::clone(&bytes_read) };
        let buffered = |counted| BufReader::with_capacity(BUFFER_BYTES, counted);
        let reader: Box<dyn Read + Send> = match Compression::recognise(&start[..len]) {
            Compression::None => return Ok(Self { reader: Box::new(counted), bytes_read }),
            Compression::Gzip => Box::new(Members::new(buffered(counted))),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered(counted))?),
        };
        Ok(Self { reader, bytes_read })
    }

    /// The counter of the bytes read from the source so far, before decompression.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }

    /// Reads some bytes and returns their number; zero at the end. The error distinguishes damaged data from failed
    /// reads.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result<usize, StreamEnd> {
        loop {
            match self.reader.read(to) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error().is_some() => return Err(StreamEnd::Io(error)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(StreamEnd::Data(EndReason::CompressedCut));
                }
                // An error without a system error number comes from the decoder.
                Err(_) => return Err(StreamEnd::Data(EndReason::Compressed)),
            }
        }
    }
}

/// The reason why a stream ends early.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    /// The system could not read the source.
    Io(io::Error),
    /// The data are damaged or end inside a record.
    Data(EndReason),
}
