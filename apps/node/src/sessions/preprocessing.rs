//! Preprocessing of a channel's packets, in memory that its session has reserved.

use crate::control::spec::{ChannelSpec, Checksum};
use crate::sessions::error::NodeError;
use crate::sessions::node::{SessionChannel, SessionState};
use std::io;
use std::sync::Arc;
use weir_datapath::preprocess::{PreprocessConfig, Preprocessor};
use weir_netio::MemoryQuota;
use weir_wire::ReassemblyLimits;
use {
    weir_admission::Name,
    weir_session::{HeldMemory, MemoryReservation},
};

impl SessionState {
    /// Takes the memory for a module's waiting fragments from the session's reservation, if the channel reassembles.
    pub(crate) fn reassembly(&self, channel: &ChannelSpec) -> Result<Option<HeldMemory>, NodeError> {
        reassembly(&self.spec.name, &self.memory, channel)
    }
}

/// Takes the memory for waiting fragments from a reservation, if the channel reassembles.
pub(crate) fn reassembly(
    session: &Name,
    memory: &Arc<MemoryReservation>,
    channel: &ChannelSpec,
) -> Result<Option<HeldMemory>, NodeError> {
    if !channel.reassemble {
        return Ok(None);
    }
    let wanted = ReassemblyLimits::default().bytes;
    match HeldMemory::take(memory, wanted) {
        Some(holding) => Ok(Some(holding)),
        None => Err(NodeError::ReassemblyMemory {
            channel: channel.name.clone(),
            wanted,
            session: session.clone(),
            left: memory.state().left(),
        }),
    }
}

/// Creates the preprocessor of a module on this channel, or returns `None` if the channel needs none. `fragments` is
/// the memory of waiting fragments, and `tables` that of the view.
pub(crate) fn for_channel(
    channel: &SessionChannel,
    fragments: Option<HeldMemory>,
    tables: HeldMemory,
    waiting: Option<&Arc<MemoryQuota>>,
) -> io::Result<Option<Preprocessor>> {
    if !channel.spec.is_preprocessed() {
        return Ok(None);
    }
    let verifies = channel.spec.checksum == Some(Checksum::Verify);
    let asked = PreprocessConfig { verifies, fragments: fragments.as_ref().map(HeldMemory::bytes) };
    let reserved = Box::new((fragments, tables));
    Preprocessor::new(asked, &channel.counters, &channel.stages, waiting, reserved).map(Some)
}

/// Returns the most fuel for one packet of the channel through this many view stages, or `None` without preprocessing.
pub(crate) fn fuel_max(spec: &ChannelSpec, stages: usize) -> Option<u64> {
    spec.is_preprocessed().then(|| Preprocessor::packet_fuel_max(stages))
}
