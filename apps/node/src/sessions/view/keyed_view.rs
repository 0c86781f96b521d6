//! A view together with the grant that its key belongs to.

use super::Secret;
use weir_trust::credential::DelegationId;
use weir_wire::PacketView;
use weir_wire::view::ViewKey;

/// A view, and the grant that its key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyedView {
    /// First identifier of the holders' delegation chains; `None` for the operator.
    pub(crate) whose: Option<DelegationId>,
    pub(crate) view: PacketView,
}

impl KeyedView {
    /// Derives the key of the view. The keys of different first grants, and those of different views, are unrelated. A
    /// delegate with the same view as the delegator sees the same pseudonyms.
    pub(crate) fn key(&self, secret: &Secret) -> ViewKey {
        let mut label = match &self.whose {
            None => b"operator\0".to_vec(),
            // The identifier has a fixed length, so labels are unambiguous.
            Some(first) => [&b"holder\0"[..], first.as_bytes()].concat(),
        };
        label.extend_from_slice(self.view.to_string().as_bytes());
        ViewKey::derive(secret.bytes(), &label)
    }
}
