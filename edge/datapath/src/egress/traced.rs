//! A link's scheduler, which may have all that it is told and decides written down.

use std::io;
use weir_sched::link::trace::LinkTraceRecorder;

/// Takes a line of a record. It never waits.
pub type Line = Box<dyn FnMut(String) + Send>;
/// Begins a record with its first line.
pub type Tracing<'a> = Box<dyn FnOnce(&str) -> io::Result<Line> + 'a>;

/// The scheduler, with its record if there is one.
pub(super) struct Scheduled {
    pub(super) recorder: LinkTraceRecorder<Vec<u8>>,
    pub(super) trace: Option<Line>,
}

impl Scheduled {
    /// Asks the scheduler once: a line of its record.
    pub(super) fn ask<R>(&mut self, ask: impl FnOnce(&mut LinkTraceRecorder<Vec<u8>>) -> R) -> R {
        let answer = ask(&mut self.recorder);
        if let Some(trace) = &mut self.trace {
            trace(self.recorder.take().trim_end().to_owned());
        }
        answer
    }
}
