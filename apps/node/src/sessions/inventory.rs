//! A copy of the node's interfaces, links and profiles, with which requests are validated without the node lock.

use crate::control::link_spec::OutputSpec;
use crate::control::spec::{ChannelSpec, SessionSpec};
use crate::sessions::error::NodeError;
use crate::sessions::filters::{FilterOwner, FilterRequest, trimmed};
use crate::sessions::node::Node;
use crate::sessions::view::{KeyedView, Secret, SelectionKey};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weir_admission::Name;
use weir_wire::LinkType;

/// The operator's interfaces, links and profiles at one time. Interfaces and links never change. A reload may remove a
/// profile afterwards, so profiles are checked again when the node is locked.
#[derive(Clone, Debug)]
pub(crate) struct NodeInventory {
    pub(crate) interfaces: BTreeMap<String, LinkType>,
    pub(crate) links: BTreeMap<String, LinkType>,
    /// Interfaces that also receive packets sent by this machine.
    pub(crate) outgoing: Vec<String>,
    pub(crate) profiles: Vec<Name>,
    pub(crate) secret: Arc<Secret>,
}

impl Node {
    /// Returns the present inventory.
    pub(crate) fn inventory(&self) -> NodeInventory {
        let interfaces = self.sources.iter().map(|(name, source)| (name.clone(), source.link_type()));
        let links = self.links.iter().map(|(name, link)| (name.clone(), link.link_type()));
        NodeInventory {
            interfaces: interfaces.collect(),
            links: links.collect(),
            outgoing: self.config.outgoing(),
            profiles: self.loader.profiles(),
            secret: Arc::clone(&self.secret),
        }
    }
}

impl NodeInventory {
    /// Replaces the profiles.
    pub(crate) fn with_profiles(self, profiles: Vec<Name>) -> Self {
        Self { profiles, ..self }
    }

    /// Checks the parts of a session's description that depend only on the inventory.
    pub(crate) fn check(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        let interfaces: Vec<String> = self.interfaces.keys().cloned().collect();
        spec.check(&interfaces, &self.profiles)?;
        self.check_links(spec)
    }

    /// Returns the filters and views to compile for these channels, each text once for each link type. Channels of
    /// unknown interfaces and links are left out; [`check`](Self::check) refuses them.
    pub(crate) fn filter_requests(
        &self,
        channels: &[ChannelSpec],
        outputs: &[OutputSpec],
    ) -> Vec<FilterRequest> {
        let (mut wanted, mut known) = (Vec::new(), HashSet::new());
        for channel in channels {
            let Some(link_type) = self.interfaces.get(&channel.interface) else { continue };
            for (text, _) in channel.filters().filter(|(text, _)| known.insert((*text, *link_type))) {
                let owner = FilterOwner::Channel(channel.name.clone());
                wanted.push(FilterRequest::Filter { owner, key: (text.to_owned(), *link_type) });
            }
        }
        for output in outputs {
            let Some(link_type) = self.links.get(&output.link) else { continue };
            let text = trimmed(&output.filter).filter(|text| known.insert((*text, *link_type)));
            let owner = FilterOwner::Output(output.name.clone());
            wanted
                .extend(text.map(|text| FilterRequest::Filter { owner, key: (text.to_owned(), *link_type) }));
        }
        let keyed_views: HashSet<KeyedView> = channels
            .iter()
            .flat_map(|channel| SelectionKey::for_channel(channel).keyed_views().collect::<Vec<_>>())
            .collect();
        wanted.extend(
            keyed_views
                .into_iter()
                .map(|keyed_view| FilterRequest::View(keyed_view, Box::new(keyed_view.key(&self.secret)))),
        );
        wanted
    }
}
