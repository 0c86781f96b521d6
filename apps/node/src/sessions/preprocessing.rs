//! The preprocessor of a module (checksum validation, reassembly, views). Its memory for fragments and for the tables
//! of views is from the session's reservation.

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
    /// Takes the memory for a module's waiting fragments from the session's reservation; `None` if the channel does not
    /// reassemble.
    pub(crate) fn reassembly_memory(&self, channel: &ChannelSpec) -> Result<Option<HeldMemory>, NodeError> {
        reassembly_memory(&self.spec.name, &self.memory, channel)
    }
}

/// Takes the memory for waiting fragments from a session's reservation; `None` if the channel does not reassemble.
pub(crate) fn reassembly_memory(
    session: &Name,
    memory: &Arc<MemoryReservation>,
    channel: &ChannelSpec,
) -> Result<Option<HeldMemory>, NodeError> {
    if !channel.reassemble {
        return Ok(None);
    }
    let wanted = ReassemblyLimits::default().bytes;
    match HeldMemory::take(memory, wanted) {
        Some(memory) => Ok(Some(memory)),
        None => Err(NodeError::ReassemblyMemory {
            channel: channel.name.clone(),
            wanted,
            session: session.clone(),
            left: memory.state().left(),
        }),
    }
}

/// Creates the preprocessor of a module on this channel, or returns `None` if the channel needs none.
///
/// `fragments` is the memory for waiting fragments. `view_tables` is the memory for the tables in which the channel's
/// views keep pseudonymised addresses. `packet_quota` limits the memory for the copies of packets that the preprocessor
/// makes; it is the quota of the holder's party, and `None` for the operator.
pub(crate) fn for_channel(
    channel: &SessionChannel,
    fragments: Option<HeldMemory>,
    view_tables: HeldMemory,
    packet_quota: Option<&Arc<MemoryQuota>>,
) -> io::Result<Option<Preprocessor>> {
    if !channel.spec.is_preprocessed() {
        return Ok(None);
    }
    let verifies = channel.spec.checksum == Some(Checksum::Verify);
    let requested = PreprocessConfig { verifies, fragments: fragments.as_ref().map(HeldMemory::bytes) };
    let reserved = Box::new((fragments, view_tables));
    Preprocessor::new(requested, &channel.counters, &channel.stages, packet_quota, reserved).map(Some)
}

/// Returns the maximum fuel for preprocessing one packet of a channel with this number of view stages; `None` without
/// preprocessing.
pub(crate) fn fuel_max(spec: &ChannelSpec, stages: usize) -> Option<u64> {
    spec.is_preprocessed().then(|| Preprocessor::packet_fuel_max(stages))
}
