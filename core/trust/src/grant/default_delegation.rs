//! The default block of a delegation.

use super::{Grant, PacketView};
use std::collections::BTreeSet;

impl Grant {
    /// Returns the grant of the block with which the holder of this grant delegates by default.
    ///
    /// It denies payload, writing to packets and further delegation. It states no amounts, because the next holder's usage
    /// counts against the ceilings of this grant anyway.
    #[must_use]
    pub fn passed_on_cautiously(&self) -> Self {
        Self {
            view: Some(self.view.map_or(PacketView::HEADERS, |view| view.meet(&PacketView::HEADERS))),
            writes: Some(BTreeSet::new()),
            delegations: Some(0),
            ..Self::default()
        }
    }
}
