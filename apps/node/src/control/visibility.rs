//! What a credential makes of a channel.

use crate::control::authority;
use crate::control::spec::ChannelSpec;
use std::sync::Arc;
use weir_trust::credential::{PrefixId, VerifiedCredential};
use weir_wire::PacketView;
use weir_wire::view::RequestedView;

/// Which packets a channel's holder may see, and what of them. It is the node's: neither a configuration nor a request says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Filters that all its packets pass, and what whoever wrote each of them may see of a packet: by that it selects. They can be long, and all channels that are asked for
    /// together have them in common.
    pub(crate) within: Arc<[(String, PacketView)]>,
    /// What its holder may see. By that the channel's own filter selects.
    pub(crate) view: PacketView,
    /// Who that is, by the first link of his chain; nobody but the operator where there is none.
    pub(crate) whose: Option<PrefixId>,
    /// With whom he shares what an interface has for each party: the first of his [line](crate::control::authority::line).
    pub(crate) party: Option<PrefixId>,
}

impl Default for Bounds {
    /// The operator's own.
    fn default() -> Self {
        Self { within: Arc::default(), view: PacketView::ALL, whose: None, party: None }
    }
}

impl Bounds {
    /// Of a credential: a link's filter was written by the holder of the link before it, who sees what that and all before it show. The first one's was written by the
    /// root, who sees what the node's operator lets it grant; and what limits that was written by the operator.
    pub(crate) fn of(credential: &VerifiedCredential) -> Self {
        let (mut bounds, mut within) = (Self::default(), Vec::new());
        let grants = credential.chain().iter().map(|link| &link.grant);
        for grant in std::iter::once(credential.limit()).chain(grants) {
            let filters = grant.filters.iter();
            within.extend(filters.map(|filter| (filter.as_str().to_owned(), bounds.view)));
            bounds.view = bounds.view.meet(&grant.view.unwrap_or(PacketView::ALL));
        }
        bounds.whose = credential.chain().first().map(|link| link.id);
        bounds.party = authority::line(credential).next().map(|(id, _)| id);
        Self { within: within.into(), ..bounds }
    }
}

impl ChannelSpec {
    /// What is shown of its packets.
    pub fn shows(&self) -> PacketView {
        self.view.map_or(PacketView::ALL, |asked| asked.alone()).meet(&self.bounds.view)
    }

    /// Binds it by these, whatever it had before; nothing where it asks to see more than they let it.
    pub(crate) fn bind(&mut self, bounds: Bounds) -> Option<()> {
        let view = match self.view {
            None => bounds.view,
            Some(asked) => asked.under(&bounds.view)?,
        };
        self.view = (view != PacketView::ALL).then(|| RequestedView::from(view));
        self.bounds = bounds;
        Some(())
    }

    /// The filters that all its packets pass, without those that select everything, each with what it looks at. They are joined as programs: no text reaches beyond its own end.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (&str, PacketView)> {
        let own = std::iter::once((self.filter.as_str(), self.bounds.view));
        let all = own.chain(self.bounds.within.iter().map(|(filter, view)| (filter.as_str(), *view)));
        all.map(|(filter, view)| (filter.trim(), view)).filter(|(filter, _)| !filter.is_empty())
    }
}
