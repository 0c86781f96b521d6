//! Opening of captures from files, pipes and memory.

use crate::arena::{ARENA_BYTES, Arena};
use crate::capture::{Capture, CaptureSource};
use crate::decode::{ByteSource, Compression, Decoded, MAGIC_BYTES, read_up_to};
use crate::error::{OpenError, SourceName};
use crate::file::{Extend, MappedFile, WINDOW_BYTES};
use crate::format::{AnyFormat, HEADER_BYTES};
use crate::merge::MergePlan;
use crate::pipe::{Interruption, Pipe, PipeLull, PipeMode};
use crate::ring::DescriptorRing;
use crate::stream::CaptureStream;
use crate::totals::{EndReason, PacketCounts, Truncation};
use std::borrow::Borrow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{IsTerminal, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::Bytes;

/// The place that a capture is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureInput {
    /// A file, FIFO or device.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// The way in which the bytes of a file are read ahead of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAheadMode {
    /// Bytes are read when they are needed.
    #[default]
    No,
    /// A thread of its own reads ahead.
    Thread,
    /// Threads of the caller read ahead, by [`Capture::ahead_reader`].
    Callers,
}

/// Options of a capture. The defaults suit all but tests, measurements and programs that catch signals.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// The most bytes of a file that are mapped at once. A longer record gets a window of its own size.
    pub window: Bytes,
    /// True to read files as streams, through an arena.
    pub stream: bool,
    /// True to copy a plain file into an arena with read(2) instead of mapping it. Each sandbox that maps a file has page
    /// faults of its own, so for several sandboxes one copy costs less. The packets, and the reports of a file that is
    /// cut short meanwhile, are the same. Only packets of a mapped file can be pinned without limit.
    pub copy: bool,
    /// The way in which a file that is decompressed or copied is read ahead.
    pub ahead: ReadAheadMode,
    /// Set to true when the program is to end. A pipe is then read for two more seconds, in which its writer may end too,
    /// and counts as ended after that. Other captures ignore the value: their caller stops to read blocks.
    pub is_interrupted: Arc<AtomicBool>,
    /// An output, such as standard output, without whose reader the program has nothing to do. A pipe counts as ended once the reader
    /// has closed the output, even if no bytes come. Other captures ignore the value.
    pub output: Option<Arc<OwnedFd>>,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            window: Bytes(WINDOW_BYTES),
            stream: false,
            copy: false,
            ahead: ReadAheadMode::No,
            is_interrupted: Arc::default(),
            output: None,
        }
    }
}

impl Capture {
    /// Opens a capture and reads its first header.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if it cannot be opened, or is not a supported capture.
    pub fn open(input: CaptureInput) -> Result<Capture, OpenError> {
        Self::open_with(input, CaptureOptions::default())
    }

    /// Opens a capture with the given options.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(input: CaptureInput, options: CaptureOptions) -> Result<Capture, OpenError> {
        match input {
            CaptureInput::File(path) => {
                let name = SourceName::File(path.clone());
                // Opened without blocking, because a FIFO may have no writer yet.
                let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
                let file = opened.map_err(|error| OpenError::Open { file: name.clone(), error })?;
                Self::open_file(name, file, PipeMode::ByName, options)
            }
            CaptureInput::Stdin => {
                let stdin = std::io::stdin();
                let name = SourceName::Stdin;
                let file = stdin.as_fd().try_clone_to_owned().map(File::from);
                let mut file = file.map_err(|error| OpenError::Open { file: name.clone(), error })?;
                // Another program may have read from the file already; then it is read as a stream.
                let at_begin = file.stream_position().is_ok_and(|position| position == 0);
                let options = CaptureOptions { stream: options.stream || !at_begin, ..options };
                Self::open_file(name, file, PipeMode::Inherited, options)
            }
            CaptureInput::Bytes(bytes) if options.stream => {
                let total = Some(Bytes(bytes.len() as u64));
                let source = ByteSource::Memory(std::io::Cursor::new(bytes));
                Self::open_stream(SourceName::Memory, source, total, StreamOptions::default())
            }
            CaptureInput::Bytes(bytes) => {
                let size = Bytes(bytes.len() as u64);
                let file = crate::memory::memory_file_of(&bytes)
                    .map_err(|error| OpenError::Memory { size, error })?;
                Self::open_file(SourceName::Memory, file, PipeMode::Inherited, options)
            }
        }
    }

    /// Opens several capture files as one capture: a merge of their packets in the order of their times.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if one of them cannot be opened, is a pipe, or is not a supported capture.
    pub fn open_merged(paths: &[PathBuf], options: CaptureOptions) -> Result<Capture, OpenError> {
        let MergePlan { stream, state, total, identities } = MergePlan::new(paths, options)?;
        let name = SourceName::Merged(paths.len());
        let source = ByteSource::Merge(Box::new(stream));
        let capture = Self::open_stream(name, source, Some(total), StreamOptions::default())?;
        Ok(Self { merge: Some(state), identities, ..capture })
    }

    fn open_file(
        name: SourceName,
        file: File,
        pipe_mode: PipeMode,
        options: CaptureOptions,
    ) -> Result<Capture, OpenError> {
        let refused = |error| OpenError::Open { file: name.clone(), error };
        let metadata = file.metadata().map_err(refused)?;
        if metadata.is_dir() {
            return Err(OpenError::Directory { file: name });
        }
        if metadata.is_file() {
            let identities = vec![(metadata.dev(), metadata.ino())];
            return Ok(Self { identities, ..Self::open_regular(name, file, &metadata, options)? });
        }
        if file.is_terminal() {
            return Err(OpenError::Terminal { file: name });
        }
        let interruption = Interruption {
            is_requested: options.is_interrupted,
            output: options.output,
            ..Interruption::default()
        };
        let cut = Arc::clone(&interruption.cut);
        let is_output_closed = Arc::clone(&interruption.is_output_closed);
        let pipe_lull = PipeLull::new(&file).map_err(refused)?;
        let pipe = ByteSource::Pipe(Pipe::new(file, pipe_mode, interruption));
        match Self::open_stream(name.clone(), pipe, None, StreamOptions::default()) {
            Err(_) if is_output_closed.load(Ordering::Relaxed) => Err(OpenError::OutputClosed { file: name }),
            Err(_) if cut.load(Ordering::Relaxed) => Err(OpenError::Interrupted { file: name }),
            capture => Ok(Self { pipe_cut: Some(cut), pipe_lull: Some(pipe_lull), ..capture? }),
        }
    }

    fn open_regular(
        name: SourceName,
        file: File,
        metadata: &Metadata,
        options: CaptureOptions,
    ) -> Result<Capture, OpenError> {
        let refused = |error| OpenError::Open { file: name.clone(), error };
        let size = metadata.len();
        if size == 0 {
            return Err(OpenError::Empty { file: name });
        }
        let mut start = [0; HEADER_BYTES];
        let len = read_up_to(&mut PositionedReader { file: &file, offset: 0, end: size }, &mut start)
            .map_err(refused)?;
        let start = &start[..len];
        if options.stream || Compression::recognise(&start[..len.min(MAGIC_BYTES)]) != Compression::None {
            let options = StreamOptions { ahead: options.ahead, expected_end: None };
            return Self::open_stream(name, ByteSource::File(file), Some(Bytes(size)), options);
        }
        if options.copy {
            let source = ByteSource::Positioned(PositionedReader { file, offset: 0, end: size });
            let options = StreamOptions { ahead: options.ahead, expected_end: Some(size) };
            return Self::open_stream(name, source, Some(Bytes(size)), options);
        }
        let (format, offset) = AnyFormat::recognise(start, &name)?;
        let source = CaptureSource::File(MappedFile::new(name.clone(), file, size, options.window));
        Self::new(name, format, source, offset, Some(Bytes(size)))
    }

    fn open_stream(
        name: SourceName,
        source: ByteSource,
        total: Option<Bytes>,
        options: StreamOptions,
    ) -> Result<Capture, OpenError> {
        let input = Decoded::new(source).map_err(|error| OpenError::Open { file: name.clone(), error })?;
        let size = Bytes(ARENA_BYTES as u64);
        let arena = Arena::new().map_err(|error| OpenError::Memory { size, error })?;
        let mut stream = CaptureStream::new(name.clone(), input, arena, options);
        let mut start = [0; HEADER_BYTES];
        let mut len = HEADER_BYTES;
        // A header that is too short is reported by `recognise` below, with a better message.
        match stream.extend(0, HEADER_BYTES as u64)? {
            Extend::Truncated(Truncation {
                reason: EndReason::Compressed | EndReason::CompressedCut,
                ..
            }) if stream.mapped().end() < HEADER_BYTES as u64 => {
                return Err(OpenError::Compressed { file: name });
            }
            _ => len = len.min(usize::try_from(stream.mapped().end()).unwrap_or(len)),
        }
        stream.mapped().copy(0, &mut start[..len]);
        let (format, offset) = AnyFormat::recognise(&start[..len], &name)?;
        Self::new(name, format, CaptureSource::Stream(stream), offset, total)
    }

    fn new(
        name: SourceName,
        format: AnyFormat,
        source: CaptureSource,
        offset: u64,
        total: Option<Bytes>,
    ) -> Result<Capture, OpenError> {
        let ring =
            DescriptorRing::new().map_err(|error| OpenError::Memory { size: DescriptorRing::SIZE, error })?;
        Ok(Self {
            name,
            format,
            source,
            total,
            identities: Vec::new(),
            merge: None,
            pipe_cut: None,
            pipe_lull: None,
            ring,
            offset,
            skipped: offset,
            blocks: 0,
            counts: PacketCounts::new(),
            filling: None,
            skips_headers: false,
            ended: false,
            truncated: None,
            error: None,
        })
    }
}

/// The properties of a stream that depend on its source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamOptions {
    pub(crate) ahead: ReadAheadMode,
    /// The length that the stream has unless its file is cut short; `None` if it is not known.
    pub(crate) expected_end: Option<u64>,
}

/// A reader of a file up to `end` that does not move the file's position, which other processes may share.
#[derive(Debug)]
pub(crate) struct PositionedReader<F> {
    file: F,
    offset: u64,
    end: u64,
}

impl<F: Borrow<File>> Read for PositionedReader<F> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let rest = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let len = to.len().min(rest);
        let read = self.file.borrow().read_at(&mut to[..len], self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
