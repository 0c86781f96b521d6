//! An open capture, and how its packets get into blocks.

use crate::BLOCK_PACKETS;
use crate::arena::{ARENA_BYTES, Arena, Hold};
use crate::block::{BATCHES, Block};
use crate::decode::{Compression, Decoded, MAGIC_BYTES, Origin, read_up_to};
use crate::error::{OpenError, ReadError, SourceName};
use crate::file::{Extend, MappedFile, WINDOW_BYTES};
use crate::format::{AnyFormat, Format, HEADER_BYTES, Record, Step};
use crate::ring::{DescriptorRing, Slot};
use crate::stream::Stream;
use crate::totals::{Counts, Reason, Totals, Truncation};
use crate::view::{Head, View};
use crate::window::Window;
use std::fs::{File, Metadata};
use std::io::{IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_units::{Bytes, Timestamp};
use weir_wire::{Meta, PEEK, PEEK_MAX, UnknownLinkType, classify_into};

/// The most bytes of records in a block, unless it has one packet only. It keeps the arena from being one block's.
const BLOCK_BYTES: u64 = 4 << 20;
/// A record larger than this begins a block, so that the arena's chunks in a row that it needs are not in its own block's way.
const LARGE_RECORD: u64 = 256 << 10;

/// How far ahead of the reader memory is fetched into the processor's cache. A record's header has to be there before the next
/// record can be found, so without this the loop waits for memory once a packet: it cost a third more.
const PREFETCH_AHEAD: u64 = 4096;
/// Cache lines fetched for each record at most. Larger records are mostly payload, which costs memory bandwidth.
const PREFETCH_LINES: u64 = 8;
const CACHE_LINE: u64 = 64;

/// Where a capture comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file, FIFO or device.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// What tests and measurements want to be otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most of a file that is mapped at once. Records larger than that get a window of their own size.
    pub window: Bytes,
    /// Read files as streams, through an arena.
    pub stream: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { window: Bytes(WINDOW_BYTES), stream: false }
    }
}

/// What [`Capture::next_block`] finds.
#[derive(Debug)]
pub enum Next {
    /// Packets.
    Block(Block),
    /// All room is taken by blocks in use: drop some first. Never said while there are none.
    Full,
    /// There are no more packets. [`Capture::totals`] says whether that is the capture's end, or it is truncated.
    End,
}

/// How far a capture has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read; of a compressed capture, compressed ones.
    pub done: Bytes,
    /// Bytes there are; unknown for a pipe.
    pub total: Option<Bytes>,
}

/// An open capture.
#[derive(Debug)]
pub struct Capture {
    name: SourceName,
    format: AnyFormat,
    source: Source,
    total: Option<Bytes>,
    /// Device and inode number of a file.
    identity: Option<(u64, u64)>,
    ring: DescriptorRing,
    /// Offset of the next record.
    offset: u64,
    /// Where the last record began that was passed over: that is where a capture is cut whose end is inside it.
    skipped: u64,
    blocks: u64,
    counts: Counts,
    filling: Option<Filling>,
    ended: bool,
    truncated: Option<Truncation>,
    error: Option<ReadError>,
}

#[derive(Debug)]
enum Source {
    File(MappedFile),
    Stream(Stream),
}

/// A block that is being filled.
#[derive(Debug)]
struct Filling {
    slot: Slot,
    hold: Hold,
    count: usize,
    bytes: u64,
    latest: [Timestamp; BATCHES],
    /// As they were before it.
    before: Counts,
}

/// Why filling a block pauses.
#[derive(Debug)]
enum Stop {
    BlockFull,
    More(u64),
    Corrupt(Reason),
    LinkType { unknown: UnknownLinkType, interface: u32 },
}

impl Capture {
    /// Opens a capture and reads its first header.
    ///
    /// # Errors
    ///
    /// [`OpenError`], where it cannot be opened or is no capture that weir reads.
    pub fn open(input: Input) -> Result<Capture, OpenError> {
        Self::open_with(input, Options::default())
    }

    /// Opens a capture with other than the usual options.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(input: Input, options: Options) -> Result<Capture, OpenError> {
        match input {
            Input::File(path) => {
                let name = SourceName::File(path.clone());
                let file = File::open(path).map_err(|error| OpenError::Open { file: name.clone(), error })?;
                Self::open_file(name, file, options)
            }
            Input::Stdin => {
                let stdin = std::io::stdin();
                let name = SourceName::Stdin;
                let file = stdin.as_fd().try_clone_to_owned().map(File::from);
                let mut file = file.map_err(|error| OpenError::Open { file: name.clone(), error })?;
                // Somebody may have read from it already; then it is no file to begin at the begin of.
                let at_begin = file.stream_position().is_ok_and(|position| position == 0);
                Self::open_file(name, file, Options { stream: options.stream || !at_begin, ..options })
            }
            Input::Bytes(bytes) if options.stream => {
                let total = Some(Bytes(bytes.len() as u64));
                Self::open_stream(SourceName::Memory, Origin::Memory(std::io::Cursor::new(bytes)), total)
            }
            Input::Bytes(bytes) => {
                let size = Bytes(bytes.len() as u64);
                let file =
                    crate::memory::file_of(&bytes).map_err(|error| OpenError::Memory { size, error })?;
                Self::open_file(SourceName::Memory, file, options)
            }
        }
    }

    fn open_file(name: SourceName, file: File, options: Options) -> Result<Capture, OpenError> {
        let refused = |error| OpenError::Open { file: name.clone(), error };
        let metadata = file.metadata().map_err(refused)?;
        let identity = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
        Ok(Self { identity, ..Self::open_kind(name, file, &metadata, options)? })
    }

    fn open_kind(
        name: SourceName,
        file: File,
        metadata: &Metadata,
        options: Options,
    ) -> Result<Capture, OpenError> {
        let refused = |error| OpenError::Open { file: name.clone(), error };
        if metadata.is_dir() {
            return Err(OpenError::Directory { file: name });
        }
        if !metadata.is_file() {
            if file.is_terminal() {
                return Err(OpenError::Terminal { file: name });
            }
            return Self::open_stream(name, Origin::File(file), None);
        }
        let size = metadata.len();
        if size == 0 {
            return Err(OpenError::Empty { file: name });
        }
        let mut start = [0; HEADER_BYTES];
        let len = read_up_to(&mut At { file: &file, offset: 0 }, &mut start).map_err(refused)?;
        let start = &start[..len];
        if options.stream || Compression::recognise(&start[..len.min(MAGIC_BYTES)]) != Compression::None {
            return Self::open_stream(name, Origin::File(file), Some(Bytes(size)));
        }
        let (format, offset) = AnyFormat::recognise(start, &name)?;
        let source = Source::File(MappedFile::new(name.clone(), file, size, options.window));
        Self::new(name, format, source, offset, Some(Bytes(size)))
    }

    fn open_stream(name: SourceName, origin: Origin, total: Option<Bytes>) -> Result<Capture, OpenError> {
        let input = Decoded::new(origin).map_err(|error| OpenError::Open { file: name.clone(), error })?;
        let size = Bytes(ARENA_BYTES as u64);
        let arena = Arena::new().map_err(|error| OpenError::Memory { size, error })?;
        let mut stream = Stream::new(name.clone(), input, arena);
        let mut start = [0; HEADER_BYTES];
        let mut len = HEADER_BYTES;
        // What does not come of the header is noticed below, with a better message.
        match stream.extend(0, HEADER_BYTES as u64)? {
            Extend::Truncated(Truncation { reason: Reason::Compressed | Reason::CompressedCut, .. })
                if stream.view().end() < HEADER_BYTES as u64 =>
            {
                return Err(OpenError::Compressed { file: name });
            }
            _ => len = len.min(usize::try_from(stream.view().end()).unwrap_or(len)),
        }
        stream.view().copy(0, &mut start[..len]);
        let (format, offset) = AnyFormat::recognise(&start[..len], &name)?;
        Self::new(name, format, Source::Stream(stream), offset, total)
    }

    fn new(
        name: SourceName,
        format: AnyFormat,
        source: Source,
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
            identity: None,
            ring,
            offset,
            skipped: offset,
            blocks: 0,
            counts: Counts::new(),
            filling: None,
            ended: false,
            truncated: None,
            error: None,
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &SourceName {
        &self.name
    }

    /// Whether `path` is the very file that this capture is read from.
    pub fn reads(&self, path: &Path) -> bool {
        let Ok(there) = std::fs::metadata(path) else { return false };
        there.is_file() && self.identity == Some((there.dev(), there.ino()))
    }

    /// Where the descriptors of all blocks are.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// How far it has been read.
    pub fn progress(&self) -> Progress {
        let done = match &self.source {
            Source::File(file) => self.offset.min(file.size()),
            Source::Stream(stream) => stream.done(),
        };
        Progress { done: Bytes(done), total: self.total }
    }

    /// What it held, up to the last block that was handed out. It can become truncated later: a mapped file can lose pages
    /// for as long as its blocks are in use, so ask again when they are done.
    pub fn totals(&self) -> Totals {
        let lost = match &self.source {
            Source::File(file) => file.faults().lowest(),
            Source::Stream(_) => None,
        };
        let lost = lost.map(|offset| Truncation { offset, reason: Reason::Lost });
        let truncated = match (self.truncated.clone(), lost) {
            (Some(ours), Some(lost)) => Some(if lost.offset < ours.offset { lost } else { ours }),
            (ours, lost) => ours.or(lost),
        };
        // Packets in a block that is still being filled are not counted yet.
        let counts = self.filling.as_ref().map_or(&self.counts, |filling| &filling.before);
        counts.totals(self.format.interfaces(), truncated)
    }

    /// Reads on.
    ///
    /// # Errors
    ///
    /// [`ReadError`], once; afterwards the capture is at its end.
    pub fn next_block(&mut self) -> Result<Next, ReadError> {
        if self.filling.is_none() && !self.ended {
            let Some(slot) = self.ring.take() else { return Ok(Next::Full) };
            self.filling = Some(Filling {
                slot,
                hold: Hold::default(),
                count: 0,
                bytes: 0,
                latest: [Timestamp(0); BATCHES],
                before: self.counts,
            });
        }
        if !self.fill_block() {
            return Ok(Next::Full);
        }
        let filled = self.filling.take().and_then(|filling| self.finish(filling));
        match (filled, self.error.take()) {
            (Some(block), error) => {
                self.error = error;
                Ok(Next::Block(block))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(Next::End),
        }
    }

    /// Reads until the present block is complete, or the capture has ended; false where the arena has no room.
    fn fill_block(&mut self) -> bool {
        while !self.ended {
            let Some(filling) = &mut self.filling else { return true };
            if let Source::File(file) = &mut self.source {
                file.prepare(self.offset);
            }
            let count = filling.count;
            let view = match &self.source {
                Source::File(file) => file.view(),
                Source::Stream(stream) => stream.view(),
            };
            let mut reader =
                Reader { view, offset: self.offset, skipped: self.skipped, counts: self.counts, filling };
            let stop = match &mut self.format {
                AnyFormat::LittlePcap(format) => reader.read(format),
                AnyFormat::BigPcap(format) => reader.read(format),
                AnyFormat::Pcapng(format) => reader.read(format),
            };
            let Reader { offset, skipped, counts, .. } = reader;
            (self.offset, self.skipped, self.counts) = (offset, skipped, counts);
            if let (Source::Stream(stream), true) = (&self.source, filling.count > count) {
                stream.hold(&mut filling.hold);
            }
            let (empty, large) = (filling.count == 0, LARGE_RECORD);
            match stop {
                Stop::BlockFull => return true,
                Stop::Corrupt(reason) => {
                    self.ended = true;
                    self.truncated = Some(Truncation { offset, reason });
                }
                Stop::LinkType { unknown, interface } => {
                    self.ended = true;
                    let packet = self.counts.packets.saturating_add(1);
                    let file = self.name.clone();
                    self.error = Some(ReadError::LinkType { file, unknown, interface, packet, offset });
                }
                Stop::More(need) if !empty && need.saturating_sub(offset) > large => return true,
                Stop::More(need) => {
                    let extended = match &mut self.source {
                        Source::File(file) => file.extend(offset, need, empty),
                        Source::Stream(stream) => stream.extend(offset, need),
                    };
                    match extended {
                        Ok(Extend::Ready) => {}
                        Ok(Extend::NewWindow) => return true,
                        Ok(Extend::Full) => return false,
                        Ok(Extend::End) => self.ended = true,
                        Ok(Extend::Truncated(truncation)) => {
                            self.ended = true;
                            let offset = if self.beyond_end(offset) { self.skipped } else { offset };
                            self.truncated = Some(Truncation { offset, ..truncation });
                        }
                        Err(error) => {
                            self.ended = true;
                            self.error = Some(error);
                        }
                    }
                }
            }
        }
        true
    }

    /// Whether the record at `offset` would begin after the end of the capture.
    fn beyond_end(&self, offset: u64) -> bool {
        match &self.source {
            Source::File(file) => offset > file.size(),
            Source::Stream(stream) => offset > stream.view().end(),
        }
    }

    /// Makes a block of it, unless it is empty.
    fn finish(&mut self, mut filling: Filling) -> Option<Block> {
        if let Source::File(file) = &mut self.source
            && let Some(end) = file.lost_from()
            && end < self.offset
        {
            // What was read beyond the file's new end were zeros, or may have been.
            let descriptors = filling.slot.descriptors(filling.count);
            let kept = descriptors.iter().take_while(|d| file.packet_end(d) <= end).count();
            self.counts = filling.before;
            descriptors[..kept].iter().for_each(|descriptor| self.counts.add(descriptor));
            filling.count = kept;
            self.ended = true;
            self.error = None;
            self.truncated = Some(Truncation { offset: end, reason: Reason::Lost });
        }
        let window: &Arc<Window> = match &self.source {
            Source::File(file) => file.window()?,
            Source::Stream(stream) => stream.window(),
        };
        if filling.count == 0 {
            return None;
        }
        // What is left of the last batch's page says nothing of packets that were there before.
        for i in filling.count..filling.count.next_multiple_of(BATCH_PACKETS) {
            *filling.slot.descriptor(i) = Descriptor::default();
        }
        let number = self.blocks;
        self.blocks += 1;
        Some(Block {
            slot: filling.slot,
            window: Arc::clone(window),
            _hold: filling.hold,
            number,
            first_packet: filling.before.packets,
            len: filling.count,
            latest: filling.latest,
        })
    }
}

/// The state of the loop over packets, apart from everything else so that it stays in registers.
struct Reader<'a, 'b> {
    view: View<'a>,
    offset: u64,
    skipped: u64,
    counts: Counts,
    filling: &'b mut Filling,
}

impl Reader<'_, '_> {
    /// Reads records until something else has to be done.
    fn read<F: Format>(&mut self, format: &mut F) -> Stop {
        let mut head = Head::<PEEK>::new();
        loop {
            match format.step(&self.view, self.offset) {
                Step::Packet(record) => {
                    let bytes = record.next - self.offset;
                    let filling = &*self.filling;
                    let crowded = bytes > LARGE_RECORD || filling.bytes.saturating_add(bytes) > BLOCK_BYTES;
                    if filling.count == BLOCK_PACKETS || (crowded && filling.count > 0) {
                        return Stop::BlockFull;
                    }
                    let ahead = self.offset.saturating_add(PREFETCH_AHEAD);
                    for i in 0..(bytes / CACHE_LINE + 1).min(PREFETCH_LINES) {
                        self.view.prefetch(ahead.saturating_add(CACHE_LINE * i));
                    }
                    self.packet(&record, &mut head);
                    self.filling.bytes += bytes;
                    self.offset = record.next;
                }
                Step::Skip(next) => {
                    self.skipped = self.offset;
                    self.offset = next;
                }
                Step::More(need) => return Stop::More(need),
                Step::Corrupt(reason) => return Stop::Corrupt(reason),
                Step::LinkType { unknown, interface } => return Stop::LinkType { unknown, interface },
            }
        }
    }

    #[inline(always)]
    fn packet(&mut self, record: &Record, head: &mut Head<PEEK>) {
        let meta = Meta {
            // A packet without a time gets that of the packet before it, so that packet time goes on.
            ts: Timestamp(record.ts.unwrap_or(self.counts.last)),
            cap_len: record.cap_len,
            wire_len: record.wire_len,
            link_type: record.link_type,
            interface: record.interface,
            number: self.counts.packets,
            data: self.view.guest_address(record.data),
        };
        let wanted = usize::try_from(record.cap_len).unwrap_or(usize::MAX);
        let len = self.view.peek(record.data, wanted, head);
        let i = self.filling.count;
        let descriptor = self.filling.slot.descriptor(i);
        if classify_into(head.bytes(len), &meta, descriptor).is_err() {
            long_headers(&self.view, record, &meta, descriptor);
        }
        self.counts.add(descriptor);
        self.filling.latest[i / BATCH_PACKETS] = Timestamp(self.counts.latest);
        self.filling.count = i + 1;
    }
}

/// Classifies a packet whose headers are longer than usual. Its first bytes are read again, and only these count.
#[cold]
#[inline(never)]
fn long_headers(view: &View<'_>, record: &Record, meta: &Meta, descriptor: &mut Descriptor) {
    let mut head = Head::<PEEK_MAX>::new();
    let len = view.peek(record.data, usize::try_from(record.cap_len).unwrap_or(usize::MAX), &mut head);
    if classify_into(head.bytes(len), meta, descriptor).is_err() {
        // That many bytes are always enough: the classifier says so. Should it not be true, the packet is one without headers.
        *descriptor = Descriptor {
            ts_ns: meta.ts.0,
            data: meta.data,
            cap_len: meta.cap_len,
            wire_len: meta.wire_len,
            flags: flag::MALFORMED,
            interface: meta.interface,
            link_type: meta.link_type.number(),
            ..Descriptor::default()
        };
    }
}

/// Reads a file without moving its position, which others may share.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(to, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}
