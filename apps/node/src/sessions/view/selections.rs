//! The memory of selections, which channels share.

use super::share::INSTRUCTIONS_MAX;
use super::{SelectionKey, SharedSelection};
use crate::control::spec::ChannelSpec;
use crate::error::NodeError;
use crate::plan::PlanError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::Node;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use weir_demux::CHANNELS_MAX;
use weir_netio::{PacketBuffers, Selection};
use weir_trust::credential::PrefixId;
use weir_units::Bytes;
use weir_wire::LinkType;
use {
    weir_admission::Name,
    weir_session::{Holding, MemoryReservation},
};

/// One party has no more than that part of what there is of something for all.
pub(crate) const PARTIES: usize = 4;

/// Takes memory for what anonymises addresses of a channel's packets from what its session has reserved. Who shares it with others takes as much: they may go.
pub(crate) fn tables(
    session: &Name,
    channel: &Name,
    memory: &Arc<MemoryReservation>,
    wanted: Bytes,
) -> Result<Holding, NodeError> {
    Holding::of(memory, wanted).ok_or_else(|| NodeError::ViewMemory {
        channel: channel.clone(),
        wanted,
        session: session.clone(),
        left: memory.state().left(),
    })
}

impl Node {
    /// Where the packets of this share are: the memory that is there, or a new one.
    pub(crate) fn selection(
        &mut self,
        spec: &ChannelSpec,
        share: SelectionKey,
        compiled: &CompiledFilters,
        link_type: LinkType,
    ) -> Result<Arc<Mutex<Selection>>, NodeError> {
        if let Some(there) = self.selections.get(&share) {
            return Ok(Arc::clone(&there.selection));
        }
        let wrong = |error| NodeError::Channel { channel: spec.name.clone(), error };
        let failed = |source| NodeError::of_selection(&spec.name, source);
        let (screens, more) = share.screens(compiled, link_type).map_err(wrong)?;
        if more > 0 {
            let others = self.selections.iter().filter(|(there, _)| there.interface == share.interface);
            let sum = |of: &dyn Fn(&SharedSelection) -> bool| {
                let of = others.clone().filter(|(_, there)| of(there));
                of.map(|(_, there)| there.instructions).fold(more, usize::saturating_add)
            };
            let party = spec.bounds.party;
            let is_his = |there: &SharedSelection| there.party == party;
            let part = party.map(|_| (sum(&is_his), INSTRUCTIONS_MAX / PARTIES));
            for (instructions, limit) in [(sum(&|_| true), INSTRUCTIONS_MAX)].into_iter().chain(part) {
                if instructions > limit {
                    return Err(wrong(PlanError::Screens { instructions, limit }));
                }
            }
        }
        let mut selection = Selection::through(screens).map_err(failed)?;
        if let Some(room) = self.packet_room(spec.bounds.party) {
            selection = selection.within(&room).map_err(failed)?;
        }
        self.next_selection += 1;
        let new = SharedSelection::new(self.next_selection, selection, more, spec.bounds.party);
        let selection = Arc::clone(&new.selection);
        self.selections.insert(share, new);
        Ok(selection)
    }

    /// Whether somebody may have one more channel of an interface: all others have some, too.
    pub(crate) fn check_crowd(&self, spec: &ChannelSpec) -> Result<(), NodeError> {
        let Some(party) = spec.bounds.party else { return Ok(()) };
        let channels = self.sessions.values().flat_map(|session| session.channels.values());
        let is_his =
            |there: &ChannelSpec| there.bounds.party == Some(party) && there.interface == spec.interface;
        let most = CHANNELS_MAX / PARTIES;
        if channels.filter(|channel| is_his(&channel.spec)).count() < most {
            return Ok(());
        }
        Err(NodeError::Channel { channel: spec.name.clone(), error: PlanError::Crowded(most) })
    }

    /// Where packets can wait for a party; anywhere, for the operator.
    pub(crate) fn packet_room(&mut self, party: Option<PrefixId>) -> Option<Arc<PacketBuffers>> {
        let (whole, most) = (&self.packet_room, Bytes(self.config.node.packet_memory.0 / PARTIES as u64));
        Some(Arc::clone(self.packet_rooms.entry(party?).or_insert_with(|| whole.part(most))))
    }

    /// Drops the memory of selections that no channel has any more.
    pub(crate) fn forget_selections(&mut self) {
        let channels = self.sessions.values().flat_map(|session| session.channels.values());
        let used: HashSet<*const Mutex<Selection>> =
            channels.filter_map(|channel| channel.sight.selection().map(Arc::as_ptr)).collect();
        self.selections.retain(|_, there| used.contains(&Arc::as_ptr(&there.selection)));
        self.packet_rooms.retain(|_, room| Arc::strong_count(room) > 1);
    }
}
