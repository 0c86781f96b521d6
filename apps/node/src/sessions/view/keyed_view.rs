//! A view together with the grant on which its key for pseudonyms depends.

use super::Secret;
use weir_trust::credential::DelegationId;
use weir_wire::PacketView;
use weir_wire::view::ViewKey;

/// A view, and the grant on which its key depends. The key makes the pseudonyms of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyedView {
    /// Identifier of the first grant in the holder's credential; `None` for the operator.
    pub(crate) first_grant: Option<DelegationId>,
    pub(crate) view: PacketView,
}

impl KeyedView {
    /// Derives the key of the view from the node's secret. Keys for different first grants or different views are
    /// unrelated. A delegate with the same view as the delegator sees the same pseudonyms.
    pub(crate) fn key(&self, secret: &Secret) -> ViewKey {
        let mut label = match &self.first_grant {
            None => b"operator\0".to_vec(),
            // The identifier has a fixed length, so labels are unambiguous.
            Some(grant) => [&b"holder\0"[..], grant.as_bytes()].concat(),
        };
        label.extend_from_slice(self.view.to_string().as_bytes());
        ViewKey::derive(secret.bytes(), &label)
    }
}
