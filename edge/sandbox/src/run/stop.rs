//! The stop of a module in parts: the last events of its TCP streams, `weir_stop`, and `weir_rest` as often as the module
//! asks for.
//!
//! Each part has the allowance of a call, and the host takes the output between two parts. A
//! [`Call::Stop`](super::suspend::Call::Stop) runs the next part. The parts of streams are ranges of flow hashes, and a call
//! of `weir_rest` is a part, so that the instances of a module, which share its flows, have the same parts. The host sorts
//! the records of one part, and so their order does not depend on the number of instances.

use crate::run::instance::Instance;
use crate::run::suspend::Invocation;
use weir_abi::limit;
use weir_units::Timestamp;
use weir_wire::stream::TcpStreams;

/// A part of the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopPart {
    /// The ends of the streams in a part of their table.
    Streams(u8),
    /// `weir_stop`.
    Stop,
    /// A call of `weir_rest`, by its number.
    Rest(u32),
    /// Nothing.
    Over,
}

/// The progress of a module's stop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StopProgress {
    /// The part that was begun last; `None` before the stop.
    part: Option<StopPart>,
    /// True if the last call of `weir_rest` asks for another one.
    is_unfinished: bool,
}

impl Instance {
    /// Begins the next part of the stop.
    pub(crate) fn begin_stop(&mut self, now: Timestamp) {
        self.begin_block();
        let part = self.next_part();
        self.stop_progress = StopProgress { part: Some(part), is_unfinished: false };
        if let StopPart::Streams(part) = part {
            self.with_streams(|streams| streams.stop(now, part));
        }
    }

    /// Returns true if the stop is complete, so that no further part of it is left.
    pub fn is_stopped(&self) -> bool {
        let has_begun = self.stop_progress.part.is_some();
        has_begun && !self.is_suspended() && self.next_part() == StopPart::Over
    }

    /// Returns the part after the last one.
    fn next_part(&self) -> StopPart {
        let StopProgress { part, is_unfinished } = self.stop_progress;
        let Some(wasm) = self.wasm.as_ref().filter(|_| !self.is_terminated()) else { return StopPart::Over };
        let first_rest = if wasm.rest.is_some() { StopPart::Rest(0) } else { StopPart::Over };
        let stop = if wasm.stop.is_some() { StopPart::Stop } else { first_rest };
        match part {
            None if self.has_streams() && !self.has_ended() => StopPart::Streams(0),
            Some(StopPart::Streams(part)) if part + 1 < TcpStreams::STOP_PARTS => StopPart::Streams(part + 1),
            None | Some(StopPart::Streams(_)) => stop,
            Some(StopPart::Stop) => first_rest,
            Some(StopPart::Rest(number)) if is_unfinished && number + 1 < limit::REST_CALLS => {
                StopPart::Rest(number + 1)
            }
            Some(StopPart::Rest(_) | StopPart::Over) => StopPart::Over,
        }
    }

    /// Returns the next function to call in this part of the stop. `is_called` is true after `weir_stop` or `weir_rest`.
    pub(crate) fn next_in_part(&self, now: Timestamp, is_called: bool) -> Option<Invocation> {
        match self.stop_progress.part? {
            StopPart::Streams(_) => {
                self.has_stream_events().then_some(Invocation::StreamEvents { before: 0 })
            }
            StopPart::Stop if !is_called => Some(Invocation::Stop { now }),
            StopPart::Rest(_) if !is_called => Some(Invocation::Rest { now }),
            StopPart::Stop | StopPart::Rest(_) | StopPart::Over => None,
        }
    }

    /// Takes the reply of `weir_rest`.
    pub(crate) fn reply_at_stop(&mut self, is_unfinished: bool) {
        self.stop_progress.is_unfinished = is_unfinished;
    }
}
