//! Several captures as one: a pcapng stream of their packets, in the order of their times.
//!
//! Each capture is read by [`Capture`], which handles formats, compressions and damage. A capture is opened when the time of
//! its first packet is reached. So rotated captures, whose times do not overlap, are open one at a time.

use crate::block::Block;
use crate::capture::{Capture, CaptureNext};
use crate::error::{CaptureReadError, OpenError, SourceName};
use crate::open::{CaptureInput, CaptureOptions};
use crate::totals::CaptureInterface;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weir_units::Bytes;

/// The most captures that are open at a time, that is, whose times overlap.
const OPEN_MAX: usize = 64;
/// The number of bytes of the stream that are made at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Facts about the captures of a merge that the stream of packets does not have.
#[derive(Debug, Default)]
pub(crate) struct MergeState {
    /// Bytes of the captures that are read.
    pub(crate) bytes_read: AtomicU64,
    /// Truncated captures, each with the place and the reason.
    truncated: Mutex<Vec<String>>,
    /// The error that ended reading.
    error: Mutex<Option<CaptureReadError>>,
    /// The interfaces that the captures describe before the end of their first [`Block`].
    interfaces: OnceLock<Vec<CaptureInterface>>,
}

impl MergeState {
    pub(crate) fn truncated(&self) -> Vec<String> {
        self.truncated.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the interfaces that were known before the stream was read.
    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        self.interfaces.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn take_error(&self) -> Option<CaptureReadError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that a capture has ended, and whether it was truncated.
    fn note_end(&self, capture: &Capture) {
        self.bytes_read.fetch_add(capture.total.map_or(0, |size| size.0), Ordering::Relaxed);
        if let Some(truncated) = capture.totals().truncated {
            let text = format!("{}: {truncated}", capture.name());
            self.truncated.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }

    fn fail(&self, error: CaptureReadError) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// A capture that is not open yet.
#[derive(Debug)]
struct PendingInput {
    path: PathBuf,
    /// The time of the first packet in ns.
    first: u64,
}

/// An open capture with packets that are not in the stream yet.
#[derive(Debug)]
struct OpenInput {
    capture: Capture,
    block: Block,
    /// The index in the block of the next packet.
    next: usize,
}

/// The stream of a merge.
#[derive(Debug)]
pub(crate) struct MergedCaptures {
    /// Captures that are not open yet, in the order of their first packets.
    pending: VecDeque<PendingInput>,
    /// Open captures, in the order in which they were opened.
    open: Vec<OpenInput>,
    options: CaptureOptions,
    state: Arc<MergeState>,
    /// The interfaces of the stream. Interfaces of two captures are one if they have the same number and link type.
    interfaces: Vec<(usize, CaptureInterface)>,
    /// Bytes of the stream, of which those before `taken` have been read.
    buffer: Vec<u8>,
    taken: usize,
    packet: Vec<u8>,
}

/// The captures of a merge, before they are read.
#[derive(Debug)]
pub(crate) struct MergePlan {
    pub(crate) stream: MergedCaptures,
    pub(crate) state: Arc<MergeState>,
    /// The size of all captures together.
    pub(crate) total: Bytes,
    /// The device and inode number of each capture.
    pub(crate) identities: Vec<(u64, u64)>,
}

impl MergePlan {
    /// Reads the first packet of each capture.
    pub(crate) fn new(paths: &[PathBuf], options: CaptureOptions) -> Result<Self, OpenError> {
        let state = Arc::new(MergeState::default());
        let mut stream = MergedCaptures {
            pending: VecDeque::new(),
            open: Vec::new(),
            options,
            state: Arc::clone(&state),
            interfaces: Vec::new(),
            buffer: Vec::new(),
            taken: 0,
            packet: Vec::new(),
        };
        // A section of unknown length, version 1.0, little-endian (pcapng, section 4.1).
        stream.push_block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes(), &[1, 0, 0, 0], &[0xff; 8]]);
        let (mut total, mut identities, mut pending) = (0, Vec::new(), Vec::new());
        for path in paths {
            // Opening a pipe would wait for its writer.
            if path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
                return Err(OpenError::MergedPipe { file: SourceName::File(path.clone()) });
            }
            let mut capture = stream.open_capture(path)?;
            total += capture.total.map_or(0, |size| size.0);
            identities.extend(capture.identities.iter().copied());
            let first = match capture.next_block()? {
                CaptureNext::Block(block) => block.descriptors().first().map(|descriptor| descriptor.ts_ns),
                CaptureNext::Full | CaptureNext::End => None,
            };
            for (number, interface) in capture.totals().interfaces.into_iter().enumerate() {
                stream.interface(number, interface);
            }
            match first {
                Some(first) => pending.push(PendingInput { path: path.clone(), first }),
                None => state.note_end(&capture),
            }
        }
        // Set once, here.
        _ = state.interfaces.set(stream.interfaces.iter().map(|(_, interface)| *interface).collect());
        pending.sort_by_key(|input| input.first);
        stream.pending = pending.into();
        Ok(Self { stream, state, total: Bytes(total), identities })
    }
}

impl MergedCaptures {
    fn open_capture(&self, path: &std::path::Path) -> Result<Capture, OpenError> {
        Capture::open_with(CaptureInput::File(path.to_owned()), self.options.clone())
    }

    /// Returns an interface's number in the stream. For a new interface, appends its interface description block first.
    fn interface(&mut self, number: usize, interface: CaptureInterface) -> u32 {
        let is_same = |(other, known): &(usize, CaptureInterface)| {
            *other == number && known.link_type_number == interface.link_type_number
        };
        let place = self.interfaces.iter().position(is_same).unwrap_or_else(|| {
            self.interfaces.push((number, interface));
            let link_type = u16::try_from(interface.link_type_number).unwrap_or(u16::MAX);
            // Time stamps in nanoseconds (option if_tsresol), then the end of the options (pcapng, section 4.2).
            let options = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
            self.push_block(
                1,
                &[&link_type.to_le_bytes(), &[0; 2], &interface.snap_len.to_le_bytes(), &options],
            );
            self.interfaces.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Appends a pcapng block.
    fn push_block(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let padded = len.next_multiple_of(4);
        let total = u32::try_from(padded + 12).unwrap_or(u32::MAX).to_le_bytes();
        self.buffer.extend_from_slice(&kind.to_le_bytes());
        self.buffer.extend_from_slice(&total);
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        self.buffer.resize(self.buffer.len() + padded - len, 0);
        self.buffer.extend_from_slice(&total);
    }

    /// Appends packets until a chunk is full, or all captures have ended.
    fn fill(&mut self) {
        self.buffer.clear();
        self.taken = 0;
        while self.buffer.len() < CHUNK_BYTES {
            self.open_due();
            let earliest = (0..self.open.len()).min_by_key(|&place| self.open[place].time());
            let Some(place) = earliest else { return };
            if !self.push_packet(place) {
                let input = self.open.remove(place);
                self.state.note_end(&input.capture);
            }
        }
    }

    /// Opens the captures whose first packets may come next.
    fn open_due(&mut self) {
        while let Some(next) = self.pending.front()
            && self.open.iter().all(|input| next.first < input.time())
            && let Some(next) = self.pending.pop_front()
        {
            if self.open.len() >= OPEN_MAX {
                return self.fail(CaptureReadError::Overlap { max: OPEN_MAX });
            }
            let opened =
                self.open_capture(&next.path).map_err(|error| CaptureReadError::from(Box::new(error)));
            match opened.and_then(|mut capture| Ok((capture.next_block()?, capture))) {
                Ok((CaptureNext::Block(block), capture)) => {
                    self.open.push(OpenInput { capture, block, next: 0 });
                }
                // The capture has changed since its first packet was read.
                Ok((CaptureNext::Full | CaptureNext::End, capture)) => self.state.note_end(&capture),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Ends the stream with an error.
    fn fail(&mut self, error: CaptureReadError) {
        self.state.fail(error);
        self.pending.clear();
        self.open.clear();
    }

    /// Appends the next packet of an open capture. Returns false if it was the last one, or if another process has truncated the
    /// capture before it.
    fn push_packet(&mut self, place: usize) -> bool {
        let input = &mut self.open[place];
        let Some(descriptor) = input.block.descriptors().get(input.next).copied() else { return false };
        let mut packet = std::mem::take(&mut self.packet);
        input.block.copy_packet(input.next, &mut packet);
        // Another process can truncate the file meanwhile.
        let is_intact = input.next < input.block.intact();
        let number = usize::from(descriptor.interface);
        let interface = input.capture.totals_interface(number);
        if let Some(interface) = interface.filter(|_| is_intact) {
            let interface = self.interface(number, interface).to_le_bytes();
            let (high, low) = ((descriptor.ts_ns >> 32) as u32, (descriptor.ts_ns & 0xffff_ffff) as u32);
            let captured = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            let [high, low, captured, wire] =
                [high, low, captured, descriptor.wire_len].map(u32::to_le_bytes);
            // An enhanced packet block (pcapng, section 4.3).
            self.push_block(6, &[&interface, &high, &low, &captured, &wire, &packet]);
        }
        self.packet = packet;
        interface.is_some() && is_intact && self.advance(place)
    }

    /// Moves on to the next packet of an open capture. Returns false if there is none.
    fn advance(&mut self, place: usize) -> bool {
        let input = &mut self.open[place];
        input.next += 1;
        if input.next < input.block.len() {
            return true;
        }
        match input.capture.next_block() {
            Ok(CaptureNext::Block(block)) => {
                (input.block, input.next) = (block, 0);
                true
            }
            Ok(CaptureNext::Full | CaptureNext::End) => false,
            Err(error) => {
                self.fail(error);
                // `fail` has removed the capture, so the caller must not.
                true
            }
        }
    }
}

impl OpenInput {
    /// Returns the time of the next packet in ns.
    fn time(&self) -> u64 {
        self.block.descriptors().get(self.next).map_or(u64::MAX, |descriptor| descriptor.ts_ns)
    }
}

impl Read for MergedCaptures {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            self.fill();
        }
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let len = rest.len().min(to.len());
        to[..len].copy_from_slice(&rest[..len]);
        self.taken += len;
        Ok(len)
    }
}
