//! The preprocessing of a channel's packets, in memory that its session has reserved.

use crate::control::spec::{ChannelSpec, Checksum};
use crate::error::NodeError;
use crate::sessions::node::{SessionChannel, SessionState};
use std::io;
use std::sync::Arc;
use weir_datapath::preprocess::{PreprocessConfig, Preprocessor};
use weir_netio::PacketBuffers;
use weir_wire::ReassemblyLimits;
use {
    weir_admission::Name,
    weir_session::{Holding, MemoryReservation},
};

impl SessionState {
    /// Takes memory for the fragments that wait for a module of this channel from what the session has reserved, where the channel puts any together.
    pub(crate) fn reassembly(&self, channel: &ChannelSpec) -> Result<Option<Holding>, NodeError> {
        reassembly(&self.spec.name, &self.memory, channel)
    }
}

/// The same from the memory of a session of this name.
pub(crate) fn reassembly(
    session: &Name,
    memory: &Arc<MemoryReservation>,
    channel: &ChannelSpec,
) -> Result<Option<Holding>, NodeError> {
    if !channel.reassemble {
        return Ok(None);
    }
    let wanted = ReassemblyLimits::default().bytes;
    match Holding::of(memory, wanted) {
        Some(holding) => Ok(Some(holding)),
        None => Err(NodeError::ReassemblyMemory {
            channel: channel.name.clone(),
            wanted,
            session: session.clone(),
            left: memory.state().left(),
        }),
    }
}

/// The preprocessing that a channel asks for; `None` where it asks for none. Fragments wait in `room`, and `tables` is the memory of what shows packets.
pub(crate) fn of_channel(
    channel: &SessionChannel,
    room: Option<Holding>,
    tables: Holding,
    waiting: Option<&Arc<PacketBuffers>>,
) -> io::Result<Option<Preprocessor>> {
    if !channel.spec.is_handled() {
        return Ok(None);
    }
    let verifies = channel.spec.checksum == Some(Checksum::Verify);
    let asked = PreprocessConfig { verifies, fragments: room.as_ref().map(Holding::bytes) };
    let reserved = Box::new((room, tables));
    Preprocessor::new(asked, &channel.tally, &channel.screens, waiting, reserved).map(Some)
}

/// The most fuel that one packet of such a channel takes, shown through so many screens; `None` where nothing is done with packets.
pub(crate) fn longest_for(spec: &ChannelSpec, screens: usize) -> Option<u64> {
    spec.is_handled().then(|| Preprocessor::longest(screens))
}
