//! The grant of a delegation for which the holder states no parts.

use super::{Grant, PacketView};
use std::collections::BTreeSet;

impl Grant {
    /// Returns the grant that the holder of this grant delegates by default: without payload, writing to packets and
    /// further delegation. It states no amounts, because the next holder's usage counts against the ceilings of this
    /// grant.
    #[must_use]
    pub fn default_delegation(&self) -> Self {
        Self {
            view: Some(self.view.map_or(PacketView::HEADERS, |view| view.meet(&PacketView::HEADERS))),
            writes: Some(BTreeSet::new()),
            delegations: Some(0),
            ..Self::default()
        }
    }
}
