//! The pipe to Wireshark: packets that the capture filter selects, with comments about losses.

use super::ExtcapError;
use crate::output::signals::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use weir_netio::{
    CaptureFilter, InterfaceStatistics, InterfaceTexts, PacketRecord, PacketWriter, WriteError, open_pipe,
};
use weir_units::Timestamp;
use weir_wire::LinkType;

/// The most bytes of notes that wait for a packet. Further ones are left out.
const NOTES_MAX: usize = 2048;

/// A packet as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownPacket<'a> {
    /// The time stamp.
    pub ts: Timestamp,
    /// Length on the link in bytes.
    pub wire_len: u32,
    /// The link type.
    pub link_type: LinkType,
    /// Number of the interface in the input.
    pub interface: u16,
    /// The shown bytes.
    pub bytes: &'a [u8],
}

/// The open writing end of the pipe. If it is dropped, Wireshark finds the end of the capture; without a writer it would wait.
#[derive(Debug)]
pub struct PipeEnd {
    pipe: File,
    path: PathBuf,
    signals: Signals,
}

impl PipeEnd {
    /// Opens the pipe, and waits until Wireshark reads from it. Signals end the capture in order from then on.
    pub fn open(path: &Path) -> Result<Self, ExtcapError> {
        let pipe = open_pipe(path)?;
        let mut signals = Signals::default();
        signals.catch().map_err(ExtcapError::Signals)?;
        Ok(Self { pipe, path: path.to_owned(), signals })
    }
}

/// A capture into the pipe.
#[derive(Debug)]
pub struct WiresharkPipe {
    writer: PacketWriter,
    filter: Option<CaptureFilter>,
    signals: Signals,
    /// Lost packets before the next packet.
    lost: u64,
    /// Notes for the next packet.
    notes: Vec<String>,
    /// Packets that the filter has read.
    received: u64,
    shown: u64,
    last: Timestamp,
}

impl WiresharkPipe {
    /// Begins a capture.
    pub fn new(end: PipeEnd, texts: InterfaceTexts, filter: Option<CaptureFilter>) -> Self {
        let writer = PacketWriter::to_pipe(end.pipe, &end.path, texts);
        let (lost, notes, received, shown, last) = (0, Vec::new(), 0, 0, Timestamp(0));
        Self { writer, filter, signals: end.signals, lost, notes, received, shown, last }
    }

    /// Returns true once a signal has arrived or the reader has gone.
    pub fn is_over(&mut self) -> bool {
        self.signals.interrupted.load(Ordering::Relaxed) || !self.writer.has_reader()
    }

    /// Describes an interface before its first packet.
    pub fn describe(&mut self, interface: u16, link_type: LinkType) -> Result<(), ExtcapError> {
        Ok(self.writer.describe(interface, link_type)?)
    }

    /// Counts packets that were lost before the next one.
    pub fn lose(&mut self, packets: u64) {
        self.lost = self.lost.saturating_add(packets);
    }

    /// Adds a note to the next packet.
    pub fn note(&mut self, note: String) {
        if self.notes.iter().map(String::len).sum::<usize>() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    /// Writes a packet, if the filter selects it.
    pub fn write(&mut self, packet: &ShownPacket<'_>) -> Result<(), ExtcapError> {
        let ShownPacket { ts, wire_len, link_type, interface, bytes } = *packet;
        self.received += 1;
        self.last = self.last.max(ts);
        if let Some(filter) = &self.filter
            && !filter
                .matches(link_type, wire_len, bytes)
                .map_err(|error| ExtcapError::Filter(error.clone()))?
        {
            return Ok(());
        }
        let lost = std::mem::take(&mut self.lost);
        let mut notes = std::mem::take(&mut self.notes);
        if lost > 0 {
            notes.insert(0, format!("weir: {} lost before this one", packets(lost)));
        }
        let comment = notes.join("\n");
        self.shown += 1;
        self.writer.write_record(&PacketRecord {
            ts,
            wire_len,
            link_type,
            interface,
            bytes,
            lost,
            comment: &comment,
        })?;
        Ok(())
    }

    /// Writes what is buffered, so that Wireshark shows it now.
    pub fn sync(&mut self) -> Result<(), ExtcapError> {
        Ok(self.writer.sync()?)
    }

    /// Writes counters and a comment, and ends the capture. `at` is the time of the counters, or else that of the last packet.
    pub fn finish(
        mut self,
        at: Option<Timestamp>,
        losses: SourceLosses,
        mut comments: Vec<String>,
    ) -> Result<(), ExtcapError> {
        let lost = losses.ring_full.saturating_add(losses.invalid);
        let hidden = self.received - self.shown;
        let filtered = if hidden > 0 { format!("; {} not selected", packets(hidden)) } else { String::new() };
        comments.insert(0, format!("weir: {} shown, {lost} lost{filtered}", packets(self.shown)));
        comments.append(&mut self.notes);
        let statistics = InterfaceStatistics {
            at: at.unwrap_or(self.last),
            received: self.received.saturating_add(lost),
            invalid: losses.invalid,
            ring_full: losses.ring_full,
            selected: self.shown,
            delivered: self.shown,
            comment: comments.join("\n"),
        };
        self.writer.write_statistics(&statistics)?;
        self.writer.finish()?;
        Ok(())
    }
}

/// Packets that a source has lost.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceLosses {
    /// Lost for lack of memory, or of time.
    pub ring_full: u64,
    /// Lost because they were not valid.
    pub invalid: u64,
}

/// Returns the result of a capture whose reader may have closed the pipe, which is how Wireshark ends one.
pub fn without_broken_pipe(ended: Result<(), ExtcapError>) -> Result<(), ExtcapError> {
    match ended {
        Err(ExtcapError::Write(error)) if WriteError::is_without_reader(&error) => Ok(()),
        ended => ended,
    }
}

/// Returns a number of packets in words.
fn packets(number: u64) -> String {
    if number == 1 { "1 packet".to_owned() } else { format!("{number} packets") }
}
