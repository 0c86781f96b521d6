//! The packet source of a run: it applies the filter and the limits, and produces tasks.

use super::block_task::{BlockTask, WorkInput};
use super::packet_source::{self, RunEnd};
use crate::output::progress::RunProgress;
use crate::output::rows;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_datapath::clock::ClockReading;
use weir_datapath::source::{FetchError, PacketSource, Poll};
use weir_netio::{AheadReader, Block, Capture, CaptureFilter, CaptureFilterError, LiveTotals, Totals};
use weir_units::{Nanos, Timestamp};
use weir_wire::LinkType;

/// The number of checks for a due tick per tick period, while the wall clock is behind the packet timestamps.
const TICK_CHECKS: u64 = 8;

/// Errors that end reading early.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The capture or the interface failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The filter does not apply to a link type of the capture.
    #[error("{0}")]
    Filter(String),
}

impl From<&CaptureFilterError> for SourceError {
    fn from(error: &CaptureFilterError) -> Self {
        Self::Filter(error.to_string())
    }
}

/// The result of one read.
#[derive(Debug)]
pub enum SourceNext {
    /// A task for the instances.
    Task(Arc<BlockTask>),
    /// No packets have arrived yet.
    Nothing,
    /// All packet blocks are in use.
    Full,
    /// The end of the packets.
    End,
}

/// Limits that end a run before its packets end.
#[derive(Debug, Default)]
pub struct RunLimits {
    /// The maximum number of packets that the filter selects.
    pub count: Option<u64>,
    /// The maximum duration, for an interface.
    pub duration: Option<Duration>,
    /// Set by a signal.
    pub interrupted: Arc<AtomicBool>,
    /// Ends the run when the reader of standard output has closed it.
    pub ends_with_reader: bool,
}

/// Reads packets and makes tasks for the instances.
#[derive(Debug)]
pub struct RunSource {
    packet_source: PacketSource,
    filter: Option<CaptureFilter>,
    instances: usize,
    progress: RunProgress,
    limits: RunLimits,
    deadline: Option<Instant>,
    end: Option<RunEnd>,
    /// Tick periods of the modules, in ns.
    ticks: Vec<u64>,
    /// The latest time that modules have seen.
    latest_time: Timestamp,
    /// The monotonic time of the last task without packets.
    last_clock: Nanos,
    /// The totals up to the last packet that counts, if the run ended within a block.
    end_totals: Option<Totals>,
    /// The number of packets that the filter has selected.
    selected_packets: u64,
    packet_buffer: Vec<u8>,
    /// Consecutive polls that found no free block.
    full_polls: u32,
    has_ended: bool,
    /// True if a signal left a part of the capture unread.
    is_interrupted: bool,
    /// True if the reader of standard output has ended the run.
    has_lost_reader: bool,
}

impl RunSource {
    /// Creates a source for a number of instances whose modules have these tick periods.
    pub fn new(
        packet_source: PacketSource,
        filter: Option<CaptureFilter>,
        limits: RunLimits,
        instances: usize,
        ticks: Vec<u64>,
        progress: RunProgress,
    ) -> Self {
        let deadline = limits.duration.and_then(|duration| Instant::now().checked_add(duration));
        Self {
            packet_source,
            filter,
            instances,
            progress,
            limits,
            deadline,
            end: None,
            ticks,
            latest_time: Timestamp(0),
            last_clock: Nanos(0),
            end_totals: None,
            selected_packets: 0,
            packet_buffer: Vec::new(),
            full_polls: 0,
            has_ended: false,
            is_interrupted: false,
            has_lost_reader: false,
        }
    }

    /// Returns the totals of the packets that count.
    pub fn totals(&mut self) -> Totals {
        let mut totals = self.end_totals.clone().unwrap_or_else(|| self.packet_source.totals());
        if self.has_lost_reader {
            // A pipe that was not read to its end is not a truncated capture.
            totals.truncated = None;
        }
        totals
    }

    /// Returns the number of packets that the filter has selected; `None` without a filter.
    pub fn selected_packets(&self) -> Option<u64> {
        self.filter.as_ref().map(|_| self.selected_packets)
    }

    /// Returns the truncated ones of several captures, each with the place and the reason.
    pub fn truncated_captures(&self) -> Vec<String> {
        self.packet_source.capture().map_or_else(Vec::new, Capture::truncated_inputs)
    }

    /// Returns true if a signal left a part of a capture unread.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted || self.packet_source.capture().is_some_and(Capture::is_cut)
    }

    /// Returns the totals with losses, for an interface.
    pub fn live_totals(&mut self) -> Option<LiveTotals> {
        self.packet_source.live_totals()
    }

    /// Returns the flag that ends reading, even while another thread is blocked on a pipe.
    pub fn interrupted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.limits.interrupted)
    }

    /// Returns true for capture files, whose packets need not be waited for.
    pub fn is_file(&self) -> bool {
        self.packet_source.capture().is_some_and(|capture| !capture.is_pipe())
    }

    /// Returns a reader that reads a capture ahead, if the capture supports that.
    pub fn ahead_reader(&self) -> Option<AheadReader> {
        self.packet_source.capture().and_then(Capture::ahead_reader)
    }

    /// Stops reading, after an error elsewhere.
    pub fn stop(&mut self) {
        self.has_ended = true;
    }

    /// Reads the next block.
    pub fn next(&mut self) -> Result<SourceNext, SourceError> {
        if self.has_ended {
            return Ok(SourceNext::End);
        }
        if self.is_interrupted_file() {
            (self.has_ended, self.is_interrupted) = (true, true);
            return Ok(SourceNext::End);
        }
        if self.is_without_reader() {
            return Ok(SourceNext::End);
        }
        self.check_for_end();
        if let Some(end) = &self.end
            && end.is_drained()
        {
            return Ok(self.end_at(end.last));
        }
        // Totals are costly to read, and must be read before the block if the run can end within it.
        let before = (self.limits.count.is_some() || self.end.is_some()).then(|| self.packet_source.totals());
        let poll = packet_source::next(&mut self.packet_source, &mut self.progress)?;
        self.full_polls = if matches!(poll, Poll::Full) { self.full_polls + 1 } else { 0 };
        match poll {
            Poll::Block(block) => self.take_block(block, before),
            Poll::Full => {
                if self.full_polls > 1 {
                    self.packet_source.pause();
                }
                Ok(SourceNext::Full)
            }
            Poll::Quiet(at) => match &self.end {
                Some(end) => Ok(self.end_at(end.last)),
                None => Ok(self.clock_task(at).map_or(SourceNext::Nothing, SourceNext::Task)),
            },
            // `packet_source::next` has printed it.
            Poll::Event(_) => Ok(SourceNext::Nothing),
            Poll::End => {
                self.is_without_reader();
                Ok(SourceNext::End)
            }
        }
    }

    /// Ends the run if the reader of standard output has ended it. Returns true if so.
    fn is_without_reader(&mut self) -> bool {
        self.has_lost_reader |= self.limits.ends_with_reader && !rows::has_reader();
        self.has_ended |= self.has_lost_reader;
        self.has_lost_reader
    }

    /// Returns a task after all packets, which runs a part of the modules' stops.
    pub fn last(&mut self) -> Arc<BlockTask> {
        self.progress.finish();
        self.new_task(WorkInput::End, Vec::new())
    }

    /// Creates a task for all instances, with the current time for an interface.
    fn new_task(&self, input: WorkInput, selected: Vec<u64>) -> Arc<BlockTask> {
        let now = self.packet_source.capture().is_none().then(ClockReading::now);
        Arc::new(BlockTask::new(input, now, selected, self.instances))
    }

    /// Returns true if a signal arrived and packets are read from a file. A pipe ends by itself after a signal.
    fn is_interrupted_file(&self) -> bool {
        self.limits.interrupted.load(Ordering::Relaxed)
            && self.packet_source.capture().is_some_and(|capture| !capture.is_pipe())
    }

    /// Ends the run on an interface after a signal or at the deadline.
    fn check_for_end(&mut self) {
        if self.packet_source.capture().is_some() {
            return;
        }
        let is_past_deadline = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if self.end.is_none() && (self.limits.interrupted.load(Ordering::Relaxed) || is_past_deadline()) {
            self.end = Some(RunEnd::now());
        }
    }

    /// Ends the run at a time: a last task without packets if a tick is due, otherwise the end.
    fn end_at(&mut self, time: Timestamp) -> SourceNext {
        self.has_ended = true;
        // The wall clock alone counts: draining packets took monotonic time after the end.
        self.clock_task(ClockReading { wall: time, monotonic: self.last_clock })
            .map_or(SourceNext::End, SourceNext::Task)
    }

    /// Returns a task without packets if a tick of some module is due.
    fn clock_task(&mut self, at: ClockReading) -> Option<Arc<BlockTask>> {
        let now = at.wall;
        let due = |period: &u64| now.0 / period.max(&1) != self.latest_time.0 / period.max(&1);
        // After the wall clock was set back, only each instance knows when its tick is due. The instances are therefore
        // called several times per period.
        let waited = at.monotonic.0.saturating_sub(self.last_clock.0);
        let may_be_due = |period: &u64| now < self.latest_time && waited >= period / TICK_CHECKS;
        let is_due = now > self.latest_time && self.ticks.iter().any(due);
        if !is_due && !self.ticks.iter().any(may_be_due) {
            return None;
        }
        self.latest_time = self.latest_time.max(now);
        self.last_clock = at.monotonic;
        Some(self.new_task(WorkInput::Clock(at), Vec::new()))
    }

    /// Turns a block into a task, without the packets after the end of the run or beyond its packet limit.
    fn take_block(&mut self, mut block: Block, before: Option<Totals>) -> Result<SourceNext, SourceError> {
        let len = match &self.end {
            // Packets after the end do not count.
            Some(end) => block.descriptors().iter().take_while(|d| d.ts_ns <= end.last.0).count(),
            None => block.len(),
        };
        if len < block.len() {
            let last = self.end.as_ref().map_or(self.latest_time, |end| end.last);
            self.end_totals = before
                .clone()
                .map(|before| before.plus_packets(block.descriptors().get(..len).unwrap_or_default()));
            if len == 0 {
                return Ok(self.end_at(last));
            }
            block.truncate(len);
            self.has_ended = true;
        }
        let selected = self.select(&block)?;
        if let Some(wanted) = self.apply_count(&block, &selected) {
            if wanted < block.len() {
                block.truncate(wanted);
                self.end_totals = before.map(|before| before.plus_packets(block.descriptors()));
            }
            self.has_ended = true;
        }
        let is_selected = |i: &usize| selected.get(i / 64).is_some_and(|mask| mask >> (i % 64) & 1 == 1);
        self.selected_packets += (0..block.len()).filter(is_selected).count() as u64;
        self.latest_time =
            block.batches().last().map_or(self.latest_time, |batch| self.latest_time.max(batch.latest));
        Ok(SourceNext::Task(self.new_task(WorkInput::Block(Box::new(block)), selected)))
    }

    /// Counts the selected packets. Returns the length of the block at which the limit is reached, if it is reached.
    fn apply_count(&mut self, block: &Block, selected: &[u64]) -> Option<usize> {
        let packets_left = self.limits.count.as_mut()?;
        for i in 0..block.len() {
            let counts = selected.get(i / 64).is_none_or(|mask| mask >> (i % 64) & 1 == 1);
            *packets_left -= u64::from(counts);
            if *packets_left == 0 {
                return Some(i + 1);
            }
        }
        None
    }

    /// Returns a mask of selected packets for each batch; empty without a filter.
    fn select(&mut self, block: &Block) -> Result<Vec<u64>, SourceError> {
        let Some(filter) = &self.filter else { return Ok(Vec::new()) };
        let mut masks = vec![0u64; block.batch_count()];
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_packet(i, &mut self.packet_buffer);
            let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
            let matches = filter.matches(link_type, descriptor.wire_len, &self.packet_buffer)?;
            masks[i / 64] |= u64::from(matches) << (i % 64);
        }
        Ok(masks)
    }
}
