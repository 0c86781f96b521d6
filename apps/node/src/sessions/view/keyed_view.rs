//! Views with their keys.

use super::Secret;
use weir_trust::credential::PrefixId;
use weir_wire::PacketView;
use weir_wire::view::ViewKey;

/// A view, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KeyedView {
    /// The first link of their chains; the operator, where there is none.
    pub(crate) whose: Option<PrefixId>,
    /// What they see.
    pub(crate) view: PacketView,
}

impl KeyedView {
    /// Its key. Two who were granted something by the operator have nothing in common, and neither have two views; whoever got the same view from one who was
    /// granted it sees the same addresses as that one.
    pub(crate) fn key(&self, secret: &Secret) -> ViewKey {
        let mut label = match &self.whose {
            None => b"operator\0".to_vec(),
            // Its length is fixed.
            Some(first) => [&b"holder\0"[..], first.as_bytes()].concat(),
        };
        label.extend_from_slice(self.view.to_string().as_bytes());
        ViewKey::derive(secret.bytes(), &label)
    }
}
