//! The selections of a node: their creation, and the limits on them for each party. A party is the first identifier
//! of a [delegation chain](crate::control::delegation::delegation_chain); the operator is none.

use super::selection_key::INSTRUCTIONS_MAX;
use super::{SelectionKey, SharedSelection};
use crate::control::spec::ChannelSpec;
use crate::sessions::channel_plan::PlanError;
use crate::sessions::error::NodeError;
use crate::sessions::filters::CompiledFilters;
use crate::sessions::node::Node;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use weir_demux::CHANNELS_MAX;
use weir_netio::{MemoryQuota, Selection};
use weir_trust::credential::DelegationId;
use weir_units::Bytes;
use weir_wire::LinkType;
use {
    weir_admission::Name,
    weir_session::{HeldMemory, MemoryReservation},
};

/// The divisor of a party's limit: one party gets at most a quarter of a resource that all parties share.
pub(crate) const PARTY_DIVISOR: usize = 4;

/// Takes the memory for a view's tables, which are caches of pseudonymised addresses, from the session's reservation.
/// Each of the sessions that share a selection is charged in full, because the other sessions may close.
pub(crate) fn take_table_memory(
    session: &Name,
    channel: &Name,
    memory: &Arc<MemoryReservation>,
    wanted: Bytes,
) -> Result<HeldMemory, NodeError> {
    HeldMemory::take(memory, wanted).ok_or_else(|| NodeError::ViewMemory {
        channel: channel.clone(),
        wanted,
        session: session.clone(),
        left: memory.state().left(),
    })
}

impl Node {
    /// Returns the selection with this key, which is created if it is missing.
    pub(crate) fn selection(
        &mut self,
        spec: &ChannelSpec,
        key: SelectionKey,
        compiled: &CompiledFilters,
        link_type: LinkType,
    ) -> Result<Arc<Mutex<Selection>>, NodeError> {
        if let Some(shared) = self.selections.get(&key) {
            return Ok(Arc::clone(&shared.selection));
        }
        let wrong = |error| NodeError::Channel { channel: spec.name.clone(), error };
        let failed = |source| NodeError::of_selection(&spec.name, source);
        let (stages, instructions_added) = key.stages(compiled, link_type).map_err(wrong)?;
        if instructions_added > 0 {
            let others = self.selections.iter().filter(|(other, _)| other.interface == key.interface);
            let sum = |counts: &dyn Fn(&SharedSelection) -> bool| {
                let counted = others.clone().filter(|(_, shared)| counts(shared));
                counted.map(|(_, shared)| shared.instructions).fold(instructions_added, usize::saturating_add)
            };
            let party = spec.granted.party;
            let is_same_party = |shared: &SharedSelection| shared.party == party;
            let part = party.map(|_| (sum(&is_same_party), INSTRUCTIONS_MAX / PARTY_DIVISOR));
            for (instructions, limit) in [(sum(&|_| true), INSTRUCTIONS_MAX)].into_iter().chain(part) {
                if instructions > limit {
                    return Err(wrong(PlanError::ViewFiltersTooLong { instructions, limit }));
                }
            }
        }
        let mut selection = Selection::with_views(stages).map_err(failed)?;
        if let Some(quota) = self.packet_quota_of(spec.granted.party) {
            selection = selection.with_quota(&quota).map_err(failed)?;
        }
        self.next_selection += 1;
        let new =
            SharedSelection::new(self.next_selection, selection, instructions_added, spec.granted.party);
        let selection = Arc::clone(&new.selection);
        self.selections.insert(key, new);
        Ok(selection)
    }

    /// Checks that the party of a channel can have one more channel of the channel's interface.
    pub(crate) fn check_channel_count(&self, spec: &ChannelSpec) -> Result<(), NodeError> {
        let Some(party) = spec.granted.party else { return Ok(()) };
        let channels = self.sessions.values().flat_map(|session| session.channels.values());
        let is_same_party =
            |other: &ChannelSpec| other.granted.party == Some(party) && other.interface == spec.interface;
        let channels_max = CHANNELS_MAX / PARTY_DIVISOR;
        if channels.filter(|channel| is_same_party(&channel.spec)).count() < channels_max {
            return Ok(());
        }
        Err(NodeError::Channel { channel: spec.name.clone(), error: PlanError::PartyChannels(channels_max) })
    }

    /// Returns the limit on the packet memory of a party, which is created if it is missing; `None` for the operator,
    /// who has no limit.
    pub(crate) fn packet_quota_of(&mut self, party: Option<DelegationId>) -> Option<Arc<MemoryQuota>> {
        let (whole, most) =
            (&self.packet_buffers, Bytes(self.config.node.packet_memory.0 / PARTY_DIVISOR as u64));
        Some(Arc::clone(self.party_buffers.entry(party?).or_insert_with(|| whole.part(most))))
    }

    /// Drops the selections and the parties' packet memory that no channel uses any more.
    pub(crate) fn drop_unused_selections(&mut self) {
        let channels = self.sessions.values().flat_map(|session| session.channels.values());
        let used: HashSet<*const Mutex<Selection>> =
            channels.filter_map(|channel| channel.visibility.selection().map(Arc::as_ptr)).collect();
        self.selections.retain(|_, shared| used.contains(&Arc::as_ptr(&shared.selection)));
        self.party_buffers.retain(|_, quota| Arc::strong_count(quota) > 1);
    }
}
