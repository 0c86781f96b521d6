//! The packets and fields of packets that a credential allows in a channel, and their application to a channel's
//! description.

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
    /// Filters that all packets of the channel pass, each with the view of its author: the filter is applied to the
    /// packet as this view shows it. The texts can be long, so all channels of a request share the list.
    pub(crate) filters: Arc<[(String, PacketView)]>,
    /// View of the owner. The channel's own filter is applied to the packet as this view shows it.
    pub(crate) view: PacketView,
    /// Identifier of the root's grant, the first delegation of the owner's credential; `None` for the operator. The
    /// keys of pseudonyms depend on it.
    pub(crate) first_grant: Option<DelegationId>,
    /// Party with a common share of an interface's resources: the first identifier of the [delegation
    /// chain](delegation_chain), which can be that of a root.
    pub(crate) party: Option<DelegationId>,
}

impl Default for GrantedVisibility {
    /// Returns the restrictions of an operator's channel: none.
    fn default() -> Self {
        Self { filters: Arc::default(), view: PacketView::ALL, first_grant: None, party: None }
    }
}

impl GrantedVisibility {
    /// Returns the restrictions of a credential. A filter in the grant of a delegation was written by the holder of
    /// the previous delegation, who sees packets through the views of all delegations up to that one. Filters of the
    /// first grant were written by the root, and filters of the root's limit by the node's operator.
    pub(crate) fn from_credential(credential: &VerifiedCredential) -> Self {
        let (mut granted, mut all_filters) = (Self::default(), Vec::new());
        let grants = credential.chain().iter().map(|delegation| &delegation.grant);
        for grant in std::iter::once(credential.limit()).chain(grants) {
            let filters = grant.filters.iter();
            all_filters.extend(filters.map(|filter| (filter.as_str().to_owned(), granted.view)));
            granted.view = granted.view.meet(&grant.view.unwrap_or(PacketView::ALL));
        }
        granted.first_grant = credential.chain().first().map(|delegation| delegation.id);
        granted.party = delegation_chain(credential).next().map(|(id, _)| id);
        Self { filters: all_filters.into(), ..granted }
    }
}

impl ChannelSpec {
    /// Returns the view through which modules see the channel's packets.
    pub fn effective_view(&self) -> PacketView {
        self.view.map_or(PacketView::ALL, |requested| requested.unrestricted()).meet(&self.granted.view)
    }

    /// Applies these restrictions to the channel, in place of earlier ones. Returns `None` if the view that the channel
    /// requests exceeds them.
    pub(crate) fn restrict(&mut self, granted: GrantedVisibility) -> Option<()> {
        let view = match self.view {
            None => granted.view,
            Some(requested) => requested.within(&granted.view)?,
        };
        self.view = (view != PacketView::ALL).then(|| RequestedView::from(view));
        self.granted = granted;
        Some(())
    }

    /// Returns the filters that all packets of the channel pass, each with the view that it is applied to. Empty
    /// filters are left out. Each filter is compiled separately and the programs are joined, so no filter's text can
    /// change the meaning of another filter.
    pub(crate) fn filters(&self) -> impl Iterator<Item = (&str, PacketView)> {
        let own = std::iter::once((self.filter.as_str(), self.granted.view));
        let all = own.chain(self.granted.filters.iter().map(|(filter, view)| (filter.as_str(), *view)));
        all.map(|(filter, view)| (filter.trim(), view)).filter(|(filter, _)| !filter.is_empty())
    }
}
