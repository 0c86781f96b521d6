//! The key of a selection, by which channels share packets, and the shared selection.

use super::KeyedView;
use crate::control::spec::ChannelSpec;
use crate::sessions::channel_plan::PlanError;
use crate::sessions::filters::CompiledFilters;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_netio::{Selection, ViewStage};
use weir_trust::credential::DelegationId;
use weir_units::Bytes;
use weir_wire::{LinkType, PacketView};

/// The key of a selection: interface, filters, and view stages. Channels with equal keys see the same packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectionKey {
    pub(crate) interface: String,
    /// Filters that are applied to original packets.
    pub(crate) filters: BTreeSet<String>,
    /// View stages in the order of their execution. Each stage transforms packets, and then applies its filters.
    /// Modules see packets after the last stage; without stages they see original packets.
    pub(crate) stages: Vec<(KeyedView, BTreeSet<String>)>,
}

/// Maximum number of instructions that all filters on views of one interface together may execute for a packet.
pub(crate) const INSTRUCTIONS_MAX: usize = 16_384;

impl SelectionKey {
    /// Returns the key of a channel.
    pub(crate) fn for_channel(spec: &ChannelSpec) -> Self {
        let mut filters = BTreeSet::new();
        let mut stages: Vec<(KeyedView, BTreeSet<String>)> = Vec::new();
        let first_grant = spec.granted.first_grant;
        for (filter, view) in spec.filters() {
            if view == PacketView::ALL {
                filters.insert(filter.to_owned());
                continue;
            }
            let keyed_view = KeyedView { first_grant, view };
            match stages.iter_mut().find(|(known, _)| *known == keyed_view) {
                Some((_, filters)) => _ = filters.insert(filter.to_owned()),
                None => stages.push((keyed_view, [filter.to_owned()].into())),
            }
        }
        let effective = KeyedView { first_grant, view: spec.effective_view() };
        if effective.view != PacketView::ALL {
            // The last stage transforms packets for the modules. Its view hides at least as much as the other stages'
            // views, so the order of the other stages does not matter.
            let known = stages.iter().position(|(known, _)| *known == effective);
            let last = known.map_or_else(|| (effective, BTreeSet::new()), |at| stages.remove(at));
            stages.push(last);
        }
        Self { interface: spec.interface.clone(), filters, stages }
    }

    /// Returns the key of the same selection without view stages, for packets that are preprocessed before the view
    /// stages.
    pub(crate) fn without_views(&self) -> Self {
        Self { stages: Vec::new(), ..self.clone() }
    }

    /// Returns the views of the stages. Their transformations have to be prepared without the node lock.
    pub(crate) fn keyed_views(&self) -> impl Iterator<Item = KeyedView> {
        self.stages.iter().map(|(keyed_view, _)| *keyed_view)
    }

    /// Returns the memory for the tables of the key's view stages.
    pub(crate) fn memory(&self, compiled: &CompiledFilters) -> Bytes {
        Bytes(
            self.keyed_views().map(|keyed_view| compiled.memory(&keyed_view).0).fold(0, u64::saturating_add),
        )
    }

    /// Returns the key's view stages, and the maximum number of instructions that their filters execute for a packet.
    pub(crate) fn stages(
        &self,
        compiled: &CompiledFilters,
        link_type: LinkType,
    ) -> Result<(Vec<ViewStage>, usize), PlanError> {
        let (mut stages, mut instructions) = (Vec::new(), 0);
        for (keyed_view, filters) in &self.stages {
            let transform = compiled.transform(keyed_view).ok_or(PlanError::NotCompiled)?;
            let mut program = None;
            if !filters.is_empty() {
                let joined = compiled.conjunction(filters.iter().map(String::as_str), link_type)?;
                instructions += joined.longest_path();
                program = Some(joined);
            }
            stages.push(ViewStage::new(transform, program));
        }
        Ok((stages, instructions))
    }
}

/// A selection, which all channels with its key share.
#[derive(Clone, Debug)]
pub(crate) struct SharedSelection {
    /// Number of the selection, which is not reused while the node runs.
    pub(crate) number: u64,
    pub(crate) selection: Arc<Mutex<Selection>>,
    /// Count of transformed packets; `None` for a selection without view stages.
    transformed: Option<Arc<AtomicU64>>,
    /// Maximum number of instructions that the filters of the view stages execute for a packet.
    pub(crate) instructions: usize,
    /// The party of the channel for which the selection was created: see
    /// [`GrantedVisibility::party`](crate::control::visibility::GrantedVisibility::party).
    pub(crate) party: Option<DelegationId>,
}

impl SharedSelection {
    pub(crate) fn new(
        number: u64,
        selection: Selection,
        instructions: usize,
        party: Option<DelegationId>,
    ) -> Self {
        let transformed = selection.transformed().cloned();
        Self { number, selection: Arc::new(Mutex::new(selection)), transformed, instructions, party }
    }

    /// Returns the count of transformed packets; `None` for a selection without view stages.
    pub(crate) fn transformed(&self) -> Option<u64> {
        Some(self.transformed.as_ref()?.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::visibility::GrantedVisibility;
    use crate::sessions::view::Secret;
    use weir_trust::credential::DelegationId;
    use weir_wire::view::Transform;

    fn first(digit: char) -> Option<DelegationId> {
        Some(format!("weir-id:{}", digit.to_string().repeat(32)).parse().unwrap())
    }

    /// A channel with this view. Its holder may see `given` of the packets that pass the filters `within`.
    fn channel(
        view: &str,
        given: &str,
        first_grant: Option<DelegationId>,
        within: &[(&str, &str)],
    ) -> ChannelSpec {
        let view = if view.is_empty() { String::new() } else { format!("\nview = \"{view}\"") };
        let mut spec: ChannelSpec =
            toml::from_str(&format!("interface = \"e\"\nfilter = \"udp\"{view}")).unwrap();
        let within =
            within.iter().map(|(filter, view)| ((*filter).to_owned(), view.parse().unwrap())).collect();
        spec.restrict(GrantedVisibility {
            filters: within,
            view: given.parse().unwrap(),
            first_grant,
            party: first_grant,
        })
        .unwrap();
        spec
    }

    #[test]
    fn channels_share_a_selection_only_if_they_see_the_same() {
        let share = |view: &str, given: &str, first_grant| {
            SelectionKey::for_channel(&channel(view, given, first_grant, &[]))
        };
        let headers = "payload=none";
        let one = share("", headers, first('a'));
        assert_eq!(one, share(headers, headers, first('a')));
        assert_ne!(one, share("ttl=zeroed", headers, first('a')));
        assert_ne!(one, share("", headers, first('b')));
        assert_ne!(one, share("", headers, None));
        // Original packets have no key, so all holders that may see them share them.
        assert_eq!(share("", "all", first('a')), share("", "all", None));
    }

    #[test]
    fn each_view_is_one_stage_and_that_of_the_modules_comes_last() {
        let anonymised = "addresses=anonymised";
        let within = [("net 192.0.2.0/24", "all"), ("tcp", anonymised), ("port 53", anonymised)];
        let texts = |key: &SelectionKey| {
            let filters =
                |filters: &BTreeSet<String>| filters.iter().cloned().collect::<Vec<_>>().join(" + ");
            let stages =
                key.stages.iter().map(|(keyed_view, of)| format!("{}: {}", keyed_view.view, filters(of)));
            [filters(&key.filters)].into_iter().chain(stages).collect::<Vec<_>>()
        };
        let whole = "payload=none,addresses=anonymised,macs=zeroed";
        let same = SelectionKey::for_channel(&channel("", anonymised, first('a'), &within));
        assert_eq!(texts(&same), ["net 192.0.2.0/24", &format!("{whole}: port 53 + tcp + udp")]);
        let less = SelectionKey::for_channel(&channel("ports=zeroed", anonymised, first('a'), &within));
        let expected = [format!("{whole}: port 53 + tcp + udp"), format!("{whole},ports=zeroed: ")];
        assert_eq!(texts(&less)[1..], expected);
        assert_eq!(texts(&less.without_views()), ["net 192.0.2.0/24"]);
    }

    #[test]
    fn keys_depend_on_the_view_and_the_first_grant() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::open(folder.path()).unwrap();
        let hash = |first_grant, view: &str| {
            let keyed_view = KeyedView { first_grant, view: view.parse().unwrap() };
            Transform::new(keyed_view.view, &keyed_view.key(&secret)).flow_hash(1)
        };
        let all = [
            hash(None, "payload=none"),
            hash(first('a'), "payload=none"),
            hash(first('b'), "payload=none"),
            hash(first('a'), "payload=1"),
        ];
        assert!(all.iter().enumerate().all(|(i, hash)| !all[..i].contains(hash)), "{all:?}");
        assert_eq!(hash(first('a'), "payload=none"), all[1]);
    }
}
