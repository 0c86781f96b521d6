//! Streams, compressed or not.

use crate::gzip::Members;
use crate::pipe::Pipe;
use crate::totals::EndReason;
use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes it takes to recognise compression.
pub(crate) const MAGIC_BYTES: usize = 4;

/// What is read of compressed data at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    /// RFC 1952, one member or many.
    Gzip,
    /// RFC 8878, one frame or many.
    Zstd,
}

impl Compression {
    /// By the first bytes.
    pub(crate) fn recognise(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or one to be skipped.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }
}

/// Where bytes come from.
pub(crate) enum ByteSource {
    File(File),
    Pipe(Pipe),
    Memory(Cursor<Vec<u8>>),
}

impl Read for ByteSource {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(to),
            Self::Pipe(pipe) => pipe.read(to),
            Self::Memory(bytes) => bytes.read(to),
        }
    }
}

/// Counts what is read through it.
struct Counted<R> {
    inner: R,
    done: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        // A slice is never longer than isize::MAX.
        self.done.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A stream of plain capture bytes.
pub(crate) struct Decoded {
    reader: Box<dyn Read + Send>,
    /// Bytes taken from the origin so far.
    done: Arc<AtomicU64>,
}

impl std::fmt::Debug for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoded").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Reads until `to` is full or the stream ends; how much there was.
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
    /// Looks at the first bytes, and decompresses if they say so.
    pub(crate) fn new(mut origin: ByteSource) -> io::Result<Self> {
        let mut start = [0; MAGIC_BYTES];
        let len = read_up_to(&mut origin, &mut start)?;
        let done = Arc::new(AtomicU64::new(0));
        let whole: Chain<Cursor<Vec<u8>>, ByteSource> = Cursor::new(start[..len].to_vec()).chain(origin);
        let counted = Counted { inner: whole, done: Arc::clone(&done) };
        let buffered = |counted| BufReader::with_capacity(BUFFER_BYTES, counted);
        let reader: Box<dyn Read + Send> = match Compression::recognise(&start[..len]) {
            Compression::None => Box::new(counted),
            Compression::Gzip => Box::new(Members::new(buffered(counted))),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered(counted))?),
        };
        Ok(Self { reader, done })
    }

    /// Bytes taken from the origin so far: compressed ones, where it is compressed.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Reads some bytes; none at the end. Where the data are damaged rather than out of reach, says how.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> Result<usize, StreamEnd> {
        loop {
            match self.reader.read(to) {
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error().is_some() => return Err(StreamEnd::Io(error)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(StreamEnd::Data(EndReason::CompressedCut));
                }
                // What has no system's error number is a decoder's opinion.
                Err(_) => return Err(StreamEnd::Data(EndReason::Compressed)),
            }
        }
    }
}

/// Why a stream gives no more bytes.
#[derive(Debug)]
pub(crate) enum StreamEnd {
    Io(io::Error),
    Data(EndReason),
}
