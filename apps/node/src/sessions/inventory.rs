//! What of a node a request is read against, before the node is held for it: what a stranger has written is looked through while nobody has to wait for that.

use crate::control::spec::{ChannelSpec, SessionSpec};
use crate::error::NodeError;
use crate::link::OutputSpec;
use crate::sessions::filters::{FilterRequest, Of, essential};
use crate::sessions::node::Node;
use crate::sessions::view::{KeyedView, Secret, SelectionKey};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use weir_admission::Name;
use weir_wire::LinkType;

/// The operator's interfaces, links and profiles, as they are now. Interfaces and links stay; a profile may have gone when the node is held.
#[derive(Clone, Debug)]
pub(crate) struct NodeInventory {
    pub(crate) interfaces: BTreeMap<String, LinkType>,
    pub(crate) links: BTreeMap<String, LinkType>,
    /// Interfaces on which what this machine sends is seen, too.
    pub(crate) outgoing: Vec<String>,
    pub(crate) profiles: Vec<Name>,
    pub(crate) secret: Arc<Secret>,
}

impl Node {
    /// What requests are read against.
    pub(crate) fn premises(&self) -> NodeInventory {
        let interfaces = self.sources.iter().map(|(name, source)| (name.clone(), source.link_type()));
        let links = self.links.iter().map(|(name, link)| (name.clone(), link.link_type()));
        NodeInventory {
            interfaces: interfaces.collect(),
            links: links.collect(),
            outgoing: self.config.outgoing(),
            profiles: self.workshop.profiles(),
            secret: Arc::clone(&self.secret),
        }
    }
}

impl NodeInventory {
    /// The same with these profiles.
    pub(crate) fn with_profiles(self, profiles: Vec<Name>) -> Self {
        Self { profiles, ..self }
    }

    /// Whether a session can be, as far as that can be said of it alone.
    pub(crate) fn check(&self, spec: &SessionSpec) -> Result<(), NodeError> {
        let interfaces: Vec<String> = self.interfaces.keys().cloned().collect();
        spec.check(&interfaces, &self.profiles)?;
        self.check_links(spec)
    }

    /// What has to be compiled for these channels, each text once for each kind of packets. Those of interfaces and links that are not there are refused later, with more to
    /// say about it.
    pub(crate) fn filters_of(&self, channels: &[ChannelSpec], outputs: &[OutputSpec]) -> Vec<FilterRequest> {
        let (mut wanted, mut known) = (Vec::new(), HashSet::new());
        for channel in channels {
            let Some(link_type) = self.interfaces.get(&channel.interface) else { continue };
            for (text, _) in channel.filters().filter(|(text, _)| known.insert((*text, *link_type))) {
                let of = Of::Channel(channel.name.clone());
                wanted.push(FilterRequest::Filter { of, key: (text.to_owned(), *link_type) });
            }
        }
        for output in outputs {
            let Some(link_type) = self.links.get(&output.link) else { continue };
            let text = essential(&output.filter).filter(|text| known.insert((*text, *link_type)));
            let of = Of::Output(output.name.clone());
            wanted.extend(text.map(|text| FilterRequest::Filter { of, key: (text.to_owned(), *link_type) }));
        }
        let lenses: HashSet<KeyedView> = channels
            .iter()
            .flat_map(|channel| SelectionKey::of(channel).lenses().collect::<Vec<_>>())
            .collect();
        wanted.extend(
            lenses.into_iter().map(|lens| FilterRequest::Lens(lens, Box::new(lens.key(&self.secret)))),
        );
        wanted
    }
}
