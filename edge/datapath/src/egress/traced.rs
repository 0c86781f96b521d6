//! A link scheduler that can record its inputs and decisions.

use std::io;
use weir_sched::link::trace::LinkTraceRecorder;

/// A receiver of trace lines. A receiver must never block.
pub type TraceLine = Box<dyn FnMut(String) + Send>;
/// A function that starts a trace with its first line and returns the receiver of the other lines.
pub type BeginTrace<'a> = Box<dyn FnOnce(&str) -> io::Result<TraceLine> + 'a>;

/// A link scheduler and its trace, if there is one.
pub(super) struct TracedScheduler {
    pub(super) recorder: LinkTraceRecorder<Vec<u8>>,
    pub(super) trace: Option<TraceLine>,
}

impl TracedScheduler {
    /// Makes one call to the scheduler, and writes the line that describes it to the trace.
    pub(super) fn call<R>(&mut self, call: impl FnOnce(&mut LinkTraceRecorder<Vec<u8>>) -> R) -> R {
        let answer = call(&mut self.recorder);
        if let Some(trace) = &mut self.trace {
            trace(self.recorder.take().trim_end().to_owned());
        }
        answer
    }
}
