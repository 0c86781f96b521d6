//! What channels have in common, and share.

use super::KeyedView;
use crate::control::spec::ChannelSpec;
use crate::plan::PlanError;
use crate::sessions::filters::CompiledFilters;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir_netio::{Selection, ViewStage};
use weir_trust::credential::PrefixId;
use weir_units::Bytes;
use weir_wire::{LinkType, PacketView};

/// What a selection is of: which packets of which interface, and what of them, for whom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SelectionKey {
    pub(crate) interface: String,
    /// Filters that look at packets as they are.
    pub(crate) filters: BTreeSet<String>,
    /// What is looked at by the filters of those who do not see them as they are, in this order; the last one is what is shown. Where there is none, packets are shown as they are.
    pub(crate) screens: Vec<(KeyedView, BTreeSet<String>)>,
}

/// Instructions that the filters of one interface's selections may execute for a packet that they are shown, all together.
pub(crate) const INSTRUCTIONS_MAX: usize = 16_384;

impl SelectionKey {
    /// Of a channel.
    pub(crate) fn of(spec: &ChannelSpec) -> Self {
        let mut filters = BTreeSet::new();
        let mut screens: Vec<(KeyedView, BTreeSet<String>)> = Vec::new();
        let whose = spec.bounds.whose;
        for (filter, view) in spec.filters() {
            if view == PacketView::ALL {
                filters.insert(filter.to_owned());
                continue;
            }
            let lens = KeyedView { whose, view };
            match screens.iter_mut().find(|(known, _)| *known == lens) {
                Some((_, filters)) => _ = filters.insert(filter.to_owned()),
                None => screens.push((lens, [filter.to_owned()].into())),
            }
        }
        let shown = KeyedView { whose, view: spec.shows() };
        if shown.view != PacketView::ALL {
            // The last one is what is shown. What is shown to somebody is never more than what is shown to whoever wrote a filter for him, so nothing else depends on their order.
            let known = screens.iter().position(|(known, _)| *known == shown);
            let last = known.map_or_else(|| (shown, BTreeSet::new()), |at| screens.remove(at));
            screens.push(last);
        }
        Self { interface: spec.interface.clone(), filters, screens }
    }

    /// The same packets as they are, for whoever does something with them before they are shown. The filters that look at what is shown are left to him.
    pub(crate) fn as_they_are(&self) -> Self {
        Self { screens: Vec::new(), ..self.clone() }
    }

    /// What there is to compile and to make for it before the node is held.
    pub(crate) fn lenses(&self) -> impl Iterator<Item = KeyedView> {
        self.screens.iter().map(|(lens, _)| *lens)
    }

    /// The memory that its screens have.
    pub(crate) fn memory(&self, compiled: &CompiledFilters) -> Bytes {
        Bytes(self.lenses().map(|lens| compiled.memory(&lens).0).fold(0, u64::saturating_add))
    }

    /// Its screens, and how many instructions they may execute for a packet.
    pub(crate) fn screens(
        &self,
        compiled: &CompiledFilters,
        link_type: LinkType,
    ) -> Result<(Vec<ViewStage>, usize), PlanError> {
        let (mut screens, mut instructions) = (Vec::new(), 0);
        for (lens, filters) in &self.screens {
            let transform = compiled.transform(lens).ok_or(PlanError::Another)?;
            let mut program = None;
            if !filters.is_empty() {
                let joined = compiled.all(filters.iter().map(String::as_str), link_type)?;
                instructions += joined.longest();
                program = Some(joined);
            }
            screens.push(ViewStage::new(transform, program));
        }
        Ok((screens, instructions))
    }
}

/// A selection of a node, and what there is to say about it.
#[derive(Clone, Debug)]
pub(crate) struct SharedSelection {
    /// No other one of this node ever had it.
    pub(crate) number: u64,
    pub(crate) selection: Arc<Mutex<Selection>>,
    /// Packets that were transformed for it; nothing where they are shown as they are.
    transformed: Option<Arc<AtomicU64>>,
    /// What its screens execute for a packet at most.
    pub(crate) instructions: usize,
    /// For whom they were made first: see [`Bounds::party`](super::Bounds::party).
    pub(crate) party: Option<PrefixId>,
}

impl SharedSelection {
    pub(crate) fn new(
        number: u64,
        selection: Selection,
        instructions: usize,
        party: Option<PrefixId>,
    ) -> Self {
        let transformed = selection.transformed().cloned();
        Self { number, selection: Arc::new(Mutex::new(selection)), transformed, instructions, party }
    }

    /// Packets that were transformed for it so far; nothing where they are shown as they are.
    pub(crate) fn transformed(&self) -> Option<u64> {
        Some(self.transformed.as_ref()?.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::view::{Bounds, Secret};
    use weir_trust::credential::PrefixId;
    use weir_wire::view::Transform;

    fn first(digit: char) -> Option<PrefixId> {
        Some(format!("weir-id:{}", digit.to_string().repeat(32)).parse().unwrap())
    }

    /// A channel with this view, of somebody who may see `given` of the packets that pass these filters.
    fn channel(view: &str, given: &str, whose: Option<PrefixId>, within: &[(&str, &str)]) -> ChannelSpec {
        let view = if view.is_empty() { String::new() } else { format!("\nview = \"{view}\"") };
        let mut spec: ChannelSpec =
            toml::from_str(&format!("interface = \"e\"\nfilter = \"udp\"{view}")).unwrap();
        let within =
            within.iter().map(|(filter, view)| ((*filter).to_owned(), view.parse().unwrap())).collect();
        spec.bind(Bounds { within, view: given.parse().unwrap(), whose, party: whose }).unwrap();
        spec
    }

    #[test]
    fn who_sees_the_same_shares_it_and_nobody_else_does() {
        let share = |view: &str, given: &str, whose| SelectionKey::of(&channel(view, given, whose, &[]));
        let headers = "payload=none";
        let one = share("", headers, first('a'));
        assert_eq!(one, share(headers, headers, first('a')));
        assert_ne!(one, share("ttl=zeroed", headers, first('a')));
        assert_ne!(one, share("", headers, first('b')));
        assert_ne!(one, share("", headers, None));
        // Packets as they are have no key, so everybody shares them who may see them.
        assert_eq!(share("", "all", first('a')), share("", "all", None));
    }

    #[test]
    fn each_view_is_looked_through_once_and_what_is_shown_comes_last() {
        let anonymised = "addresses=anonymised";
        let within = [("net 192.0.2.0/24", "all"), ("tcp", anonymised), ("port 53", anonymised)];
        let texts = |share: &SelectionKey| {
            let filters =
                |filters: &BTreeSet<String>| filters.iter().cloned().collect::<Vec<_>>().join(" + ");
            let screens = share.screens.iter().map(|(lens, of)| format!("{}: {}", lens.view, filters(of)));
            [filters(&share.filters)].into_iter().chain(screens).collect::<Vec<_>>()
        };
        let whole = "payload=none,addresses=anonymised,macs=zeroed";
        let same = SelectionKey::of(&channel("", anonymised, first('a'), &within));
        assert_eq!(texts(&same), ["net 192.0.2.0/24", &format!("{whole}: port 53 + tcp + udp")]);
        let less = SelectionKey::of(&channel("ports=zeroed", anonymised, first('a'), &within));
        let expected = [format!("{whole}: port 53 + tcp + udp"), format!("{whole},ports=zeroed: ")];
        assert_eq!(texts(&less)[1..], expected);
        assert_eq!(texts(&less.as_they_are()), ["net 192.0.2.0/24"]);
    }

    #[test]
    fn keys_are_of_a_view_and_of_whose_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::of(folder.path()).unwrap();
        let hash = |whose, view: &str| {
            let lens = KeyedView { whose, view: view.parse().unwrap() };
            Transform::new(lens.view, &lens.key(&secret)).flow_hash(1)
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
