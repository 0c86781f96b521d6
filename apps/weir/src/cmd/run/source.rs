//! Where packets come from, which of them modules are called for, and when they have come to an end.

use super::origin::{self, Ending};
use super::progress::RunProgress;
use super::work::{BlockTask, WorkInput};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_datapath::moment::Moment;
use weir_datapath::source::{FetchError, PacketSource, Poll};
use weir_netio::{Block, Capture, CaptureFilter, CaptureFilterError, LiveTotals, Totals};
use weir_units::{Nanos, Timestamp};
use weir_wire::LinkType;

/// Looks for a due tick in each period, while the wall clock is behind the packets.
const ASKED: u64 = 8;

/// Why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The capture or the interface.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The filter makes no sense for a link type of the capture.
    #[error("{0}")]
    Filter(String),
}

impl From<&CaptureFilterError> for SourceError {
    fn from(error: &CaptureFilterError) -> Self {
        Self::Filter(error.to_string())
    }
}

/// What reading gave.
#[derive(Debug)]
pub enum SourceNext {
    /// Something for the instances.
    Work(Arc<BlockTask>),
    /// Nothing for now.
    Nothing,
    /// Every place for packets is in use.
    Full,
    /// No more packets.
    End,
}

/// When packets are to end before they do so by themselves.
#[derive(Debug, Default)]
pub struct RunLimits {
    /// After so many that the filter selects.
    pub count: Option<u64>,
    /// After so much time, of an interface.
    pub duration: Option<Duration>,
    /// Set when a signal has come.
    pub interrupted: Arc<AtomicBool>,
}

/// Packets on their way to so many instances.
#[derive(Debug)]
pub struct RunSource {
    origin: PacketSource,
    filter: Option<CaptureFilter>,
    instances: usize,
    progress: RunProgress,
    limits: RunLimits,
    deadline: Option<Instant>,
    ending: Option<Ending>,
    /// Periods of the modules' ticks, in ns.
    ticks: Vec<u64>,
    /// What time it is for the modules.
    time: Timestamp,
    /// The monotonic time at which modules last got the time without a packet.
    passed: Nanos,
    /// What there was up to the last packet that counts, where that is not the last of its block.
    cut: Option<Totals>,
    packet: Vec<u8>,
    /// How often in a row there was no room.
    full: u32,
    over: bool,
    /// A signal left a part of the capture unread.
    is_cut: bool,
}

impl RunSource {
    /// Reads from this origin, for modules with these periods of ticks.
    pub fn new(
        origin: PacketSource,
        filter: Option<CaptureFilter>,
        limits: RunLimits,
        instances: usize,
        ticks: Vec<u64>,
        progress: RunProgress,
    ) -> Self {
        let deadline = limits.duration.and_then(|duration| Instant::now().checked_add(duration));
        Self {
            origin,
            filter,
            instances,
            progress,
            limits,
            deadline,
            ending: None,
            ticks,
            time: Timestamp(0),
            passed: Nanos(0),
            cut: None,
            packet: Vec::new(),
            full: 0,
            over: false,
            is_cut: false,
        }
    }

    /// What it gave.
    pub fn totals(&mut self) -> Totals {
        self.cut.clone().unwrap_or_else(|| self.origin.totals())
    }

    /// Returns true where a signal left a part of a capture unread.
    pub fn is_cut(&self) -> bool {
        self.is_cut || self.origin.capture().is_some_and(Capture::is_cut)
    }

    /// What it lost, of an interface.
    pub fn live_totals(&mut self) -> Option<LiveTotals> {
        self.origin.live_totals()
    }

    /// Ends reading soon where it is set, also while another thread waits for the bytes of a pipe.
    pub fn interrupted(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.limits.interrupted)
    }

    /// Reads no further: something else has failed.
    pub fn stop(&mut self) {
        self.over = true;
    }

    /// Reads on.
    pub fn next(&mut self) -> Result<SourceNext, SourceError> {
        if self.over {
            return Ok(SourceNext::End);
        }
        if self.is_interrupted_file() {
            (self.over, self.is_cut) = (true, true);
            return Ok(SourceNext::End);
        }
        self.look_for_the_end();
        if let Some(ending) = &self.ending
            && ending.is_over()
        {
            return Ok(self.end_at(ending.last));
        }
        // Asked before the block, and only where it may be needed.
        let before = (self.limits.count.is_some() || self.ending.is_some()).then(|| self.origin.totals());
        let found = origin::next(&mut self.origin, &mut self.progress)?;
        self.full = if matches!(found, Poll::Full) { self.full + 1 } else { 0 };
        match found {
            Poll::Block(block) => self.take(block, before),
            Poll::Full => {
                if self.full > 1 {
                    self.origin.pause();
                }
                Ok(SourceNext::Full)
            }
            Poll::Quiet(at) => match &self.ending {
                Some(ending) => Ok(self.end_at(ending.last)),
                None => Ok(self.pass(at).map_or(SourceNext::Nothing, SourceNext::Work)),
            },
            // It was told already.
            Poll::Event(_) => Ok(SourceNext::Nothing),
            Poll::End => Ok(SourceNext::End),
        }
    }

    /// What comes after all packets: the modules' stop.
    pub fn last(&mut self) -> Arc<BlockTask> {
        self.progress.finish();
        self.work(WorkInput::End, Vec::new())
    }

    fn work(&self, matter: WorkInput, selected: Vec<u64>) -> Arc<BlockTask> {
        let at = self.origin.capture().is_none().then(Moment::now);
        Arc::new(BlockTask::new(matter, at, selected, self.instances))
    }

    /// Returns true where a signal has come and packets are read from a file. A pipe ends by itself then, after its writer or soon.
    fn is_interrupted_file(&self) -> bool {
        self.limits.interrupted.load(Ordering::Relaxed)
            && self.origin.capture().is_some_and(|capture| !capture.is_pipe())
    }

    fn look_for_the_end(&mut self) {
        if self.origin.capture().is_some() {
            return;
        }
        let is_late = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if self.ending.is_none() && (self.limits.interrupted.load(Ordering::Relaxed) || is_late()) {
            self.ending = Some(Ending::now());
        }
    }

    /// Modules are told the time of the end if a tick is due, and then that it is the end.
    fn end_at(&mut self, time: Timestamp) -> SourceNext {
        self.over = true;
        // By the wall clock alone: what was still handled after the end took time too.
        self.pass(Moment { wall: time, steady: self.passed }).map_or(SourceNext::End, SourceNext::Work)
    }

    /// Time goes on though no packet says so: work only where some module's tick is due.
    fn pass(&mut self, at: Moment) -> Option<Arc<BlockTask>> {
        let now = at.wall;
        let due = |period: &u64| now.0 / period.max(&1) != self.time.0 / period.max(&1);
        // Where the wall clock was set back, each instance knows when a period has passed since its last tick; so each is asked often enough.
        let waited = at.steady.0.saturating_sub(self.passed.0);
        let is_asked = |period: &u64| now < self.time && waited >= period / ASKED;
        let is_due = now > self.time && self.ticks.iter().any(due);
        if !is_due && !self.ticks.iter().any(is_asked) {
            return None;
        }
        self.time = self.time.max(now);
        self.passed = at.steady;
        Some(self.work(WorkInput::Quiet(at), Vec::new()))
    }

    fn take(&mut self, mut block: Block, before: Option<Totals>) -> Result<SourceNext, SourceError> {
        let len = match &self.ending {
            // What the network did after the end is of no interest.
            Some(ending) => block.descriptors().iter().take_while(|d| d.ts_ns <= ending.last.0).count(),
            None => block.len(),
        };
        if len < block.len() {
            let last = self.ending.as_ref().map_or(self.time, |ending| ending.last);
            self.cut =
                before.clone().map(|before| before.and(block.descriptors().get(..len).unwrap_or_default()));
            if len == 0 {
                return Ok(self.end_at(last));
            }
            block.truncate(len);
            self.over = true;
        }
        let selected = self.select(&block)?;
        if let Some(wanted) = self.count(&block, &selected) {
            if wanted < block.len() {
                block.truncate(wanted);
                self.cut = before.map(|before| before.and(block.descriptors()));
            }
            self.over = true;
        }
        self.time = block.batches().last().map_or(self.time, |batch| self.time.max(batch.latest));
        Ok(SourceNext::Work(self.work(WorkInput::Block(block), selected)))
    }

    /// How much of the block it takes for the count that is wanted; none where all of it is too little.
    fn count(&mut self, block: &Block, selected: &[u64]) -> Option<usize> {
        let left = self.limits.count.as_mut()?;
        for i in 0..block.len() {
            let counts = selected.get(i / 64).is_none_or(|mask| mask >> (i % 64) & 1 == 1);
            *left -= u64::from(counts);
            if *left == 0 {
                return Some(i + 1);
            }
        }
        None
    }

    /// Which packets the filter selects; empty where there is no filter.
    fn select(&mut self, block: &Block) -> Result<Vec<u64>, SourceError> {
        let Some(filter) = &self.filter else { return Ok(Vec::new()) };
        let mut masks = vec![0u64; block.batch_count()];
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_packet(i, &mut self.packet);
            let Ok(link_type) = LinkType::try_from(u32::from(descriptor.link_type)) else { continue };
            let matches = filter.matches(link_type, descriptor.wire_len, &self.packet)?;
            masks[i / 64] |= u64::from(matches) << (i % 64);
        }
        Ok(masks)
    }
}
