//! Frames that a module sends: staged while it is called, and taken back with a call that is lost.

use crate::run::allowance::{CallUsage, CountBytesMax};
use crate::run::fault::FaultKind;
use crate::run::guest::with_bytes;
use crate::run::host::{HostPhase, HostState, order_of};
use crate::run::instance::Instance;
use wasmtime::Caller;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_session::{RecordOrder, Records};

/// What a module has sent since somebody took it.
pub(crate) struct SentPackets {
    /// The frames; the stream of each is its output's index in the manifest.
    pub(crate) frames: Records,
    /// Frames that were not taken because of a limit.
    pub(crate) dropped: u64,
    /// Bit i: output i leads somewhere.
    pub(crate) open: u8,
    pub(crate) asked: CallUsage,
}

impl Default for SentPackets {
    fn default() -> Self {
        Self { frames: Records::default(), dropped: 0, open: u8::MAX, asked: CallUsage::default() }
    }
}

/// The host function. The frame is read once: what is checked is what is sent.
pub(crate) fn send(
    caller: &mut Caller<'_, HostState>,
    output: u32,
    (bytes, len): (u32, u32),
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let host = caller.data();
    let phase = host.phase;
    let outputs = host.admitted.manifest().outputs.len();
    let Some(output) = u16::try_from(output).ok().filter(|output| usize::from(*output) < outputs) else {
        return Ok(code::UNKNOWN);
    };
    if phase == HostPhase::Start {
        return Ok(code::WHEN);
    }
    if host.outgoing.open.checked_shr(output.into()).is_none_or(|open| open & 1 == 0) {
        return Ok(code::DENIED);
    }
    let longest = host.admitted.profile().frame_bytes.0.min(limit::FRAME_BYTES.into());
    if len < limit::FRAME_BYTES_MIN || u64::from(len) > longest {
        return Ok(code::RANGE);
    }
    let order = order_of(phase, current);
    with_bytes(caller, HostFunction::Send, bytes, len, |frame, host| {
        if !host.charge_frame(order, frame.len()) {
            return code::FULL;
        }
        host.outgoing.frames.begin(order, output, frame);
        code::OK
    })
}

impl HostState {
    /// Whether one more frame of `bytes` may be sent; counts it.
    fn charge_frame(&mut self, order: RecordOrder, bytes: usize) -> bool {
        let profile = self.admitted.profile();
        let packet = CountBytesMax {
            number: profile.frames.min(limit::FRAMES_PER_PACKET),
            bytes: limit::FRAME_BYTES_PER_PACKET,
        };
        let call = CountBytesMax {
            number: profile.call_frames.min(limit::FRAMES_PER_CALL),
            bytes: limit::FRAME_BYTES_PER_CALL,
        };
        let is_taken = self.outgoing.asked.charge(self.phase, order, bytes, packet, call);
        self.outgoing.dropped += u64::from(!is_taken);
        is_taken
    }
}

impl Instance {
    /// The frames that it sent since the last call of this function, in the order in which it did; the stream of each is its output's index in the
    /// manifest. `empty` is used from then on. While a call is suspended, nothing can be taken.
    pub fn take_frames(&mut self, empty: Records) -> Records {
        match self.host_mut() {
            Some(host) => std::mem::replace(&mut host.outgoing.frames, empty),
            None => empty,
        }
    }

    /// Whether there is anything for [`Self::take_frames`] to take.
    pub fn has_frames(&self) -> bool {
        self.host().is_some_and(|host| !host.outgoing.frames.is_empty())
    }

    /// Which of its outputs lead somewhere, a bit for each; from the begin all do. Where one does not, it is told so when it sends there. While a
    /// call is suspended nothing changes.
    pub fn open_outputs(&mut self, open: u8) {
        if let Some(host) = self.host_mut() {
            host.outgoing.open = open;
        }
    }
}
