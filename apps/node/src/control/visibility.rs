//! The packets and fields that a credential allows in a channel.

use crate::control::delegation::delegation_chain;
use crate::control::spec::ChannelSpec;
use std::sync::Arc;
use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_wire::PacketView;
use weir_wire::view::RequestedView;

/// The restrictions of a channel by its owner's credential. The node sets them: neither a configuration nor a request
/// contains them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GrantedVisibility {
    /// Filters that all packets of the channel pass, each with the view of its author: the filter selects by the packet as
    /// that view shows it. The texts can be long, so all channels of a request share the list.
    pub(crate) within: Arc<[(String, PacketView)]>,
    /// View of the owner. The channel's own filter selects by the packet as this view shows it.
    pub(crate) view: PacketView,
    /// First identifier of the owner's delegation chain, without that of a root; `None` for the operator.
    pub(crate) whose: Option<DelegationId>,
    /// Party that shares an interface's resources: the first identifier of the [delegation
    /// chain](delegation_chain).
    pub(crate) party: Option<DelegationId>,
}

impl Default for GrantedVisibility {
    /// Returns the restrictions of an operator's channel: none.
    fn default() -> Self {
        Self { within: Arc::default(), view: PacketView::ALL, whose: None, party: None }
    }
}

impl GrantedVisibility {
    /// Returns the restrictions of a credential. The author of a filter in a delegation's grant is the holder of the
    /// previous delegation, who sees packets through all views up to that previous one. The author of the first grant's
    /// filters is the root, and the author of the root's limit is the node's operator.
    pub(crate) fn from_credential(credential: &VerifiedCredential) -> Self {
        let (mut bounds, mut within) = (Self::default(), Vec::new());
        let grants = credential.chain().iter().map(|delegation| &delegation.grant);
        for grant in std::iter::once(credential.limit()).chain(grants) {
            let filters = grant.filters.iter();
            within.extend(filters.map(|filter| (filter.as_str().to_owned(), bounds.view)));
            bounds.view = bounds.view.meet(&grant.view.unwrap_or(PacketView::ALL));
        }
        bounds.whose = credential.chain().first().map(|delegation| delegation.id);
        bounds.party = delegation_chain(credential).next().map(|(id, _)| id);
        Self { within: within.into(), ..bounds }
    }
}

impl ChannelSpec {
    /// Returns the view through which modules see the channel's packets.
    pub fn shows(&self) -> PacketView {
        self.view.map_or(PacketView::ALL, |asked| asked.unrestricted()).meet(&self.bounds.view)
    }

    /// Replaces the restrictions of the channel. Returns `None` if the view that the channel requests exceeds them.
    pub(crate) fn bind(&mut self, bounds: GrantedVisibility) -> Option<()> {
        let view = match self.view {
            None => bounds.view,
            Some(asked) => asked.within(&bounds.view)?,
        };
        self.view = (view != PacketView::ALL).then(|| RequestedView::from(view));
        self.bounds = bounds;
        Some(())
    }

    /// Returns the filters that all packets of the channel pass, each with the view by which it selects. Empty filters are
    /// left out. Filters are compiled one by one and joined as programs, so the text of one cannot change the meaning of
    /// another.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (&str, PacketView)> {
        let own = std::iter::once((self.filter.as_str(), self.bounds.view));
        let all = own.chain(self.bounds.within.iter().map(|(filter, view)| (filter.as_str(), *view)));
        all.map(|(filter, view)| (filter.trim(), view)).filter(|(filter, _)| !filter.is_empty())
    }
}
