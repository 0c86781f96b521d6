//! Frames that a module sends. The frames of a completed call are stored until the host takes them. The frames of an
//! aborted call are discarded.

use crate::run::call_usage::{CallUsage, OutputAllowance};
use crate::run::fault::FaultKind;
use crate::run::guest_memory::guest_memory;
use crate::run::host::{HostPhase, HostState, order_of};
use crate::run::instance::Instance;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_session::{RecordOrder, Records};

/// The frames that a module has sent and that the host has not taken yet.
pub(crate) struct SentFrames {
    /// The frames, stored as records. The stream number of a frame is the index of its output in the manifest.
    pub(crate) frames: Records,
    /// The number of frames refused because of a limit.
    pub(crate) dropped: u64,
    /// Bit i: output i is connected.
    pub(crate) connected: u8,
    /// The number and bytes of the frames sent in the current call.
    pub(crate) usage: CallUsage,
}

impl Default for SentFrames {
    fn default() -> Self {
        Self { frames: Records::default(), dropped: 0, connected: u8::MAX, usage: CallUsage::default() }
    }
}

/// The host function `send`. The frame is read once, so the checked bytes are the sent bytes.
pub(crate) fn send(
    host: &mut HostState,
    output: u32,
    (bytes, len): (u32, u32),
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let phase = host.phase;
    let outputs = host.admitted.manifest().outputs.len();
    let Some(output) = u16::try_from(output).ok().filter(|output| usize::from(*output) < outputs) else {
        return Ok(code::UNKNOWN);
    };
    if phase == HostPhase::Start {
        return Ok(code::WHEN);
    }
    if host.outgoing.connected.checked_shr(output.into()).is_none_or(|mask| mask & 1 == 0) {
        return Ok(code::DENIED);
    }
    let bytes_max = host.admitted.profile().frame_bytes.0.min(limit::FRAME_BYTES.into());
    if len < limit::FRAME_BYTES_MIN || u64::from(len) > bytes_max {
        return Ok(code::RANGE);
    }
    let order = order_of(phase, current);
    let mut guest = guest_memory(host, HostFunction::Send)?.for_packet(current);
    guest.bytes(bytes, len, |frame, host| {
        if !host.charge_frame(order, frame.len()) {
            return code::FULL;
        }
        host.outgoing.frames.begin(order, output, frame);
        code::OK
    })
}

impl HostState {
    /// Charges one frame of `bytes` bytes. Returns false, and counts the frame as dropped, if it is over the limit.
    fn charge_frame(&mut self, order: RecordOrder, bytes: usize) -> bool {
        let allowance = OutputAllowance::of_frames(self.admitted.profile());
        let is_within_limit = self.outgoing.usage.charge(self.phase, order, bytes, allowance);
        self.outgoing.dropped += u64::from(!is_within_limit);
        is_within_limit
    }
}

impl Instance {
    /// Takes the frames sent since the last call of this function, in order. The stream number of a frame is the index of its
    /// output in the manifest. `empty` becomes the new buffer. While a call is suspended, returns no frames.
    pub fn take_frames(&mut self, empty: Records) -> Records {
        match self.host_mut() {
            Some(host) => std::mem::replace(&mut host.outgoing.frames, empty),
            None => empty,
        }
    }

    /// Returns whether [`Self::take_frames`] would return frames.
    pub fn has_frames(&self) -> bool {
        self.host().is_some_and(|host| !host.outgoing.frames.is_empty())
    }

    /// Sets the mask of connected outputs; initially all outputs are connected. A module that sends to an unconnected output
    /// gets an error code. Has no effect while a call is suspended.
    pub fn connect_outputs(&mut self, connected: u8) {
        if let Some(host) = self.host_mut() {
            host.outgoing.connected = connected;
        }
    }
}
