//! The block that is signed where a holder passes a credential on and writes nothing else.

use super::{Grant, PacketView};
use std::collections::BTreeSet;

impl Grant {
    /// The block by which the holder of this grant passes it on by default: rights are taken out, amounts are shared.
    ///
    /// Payload, fields to write and further delegation are rights, so the block states that there are none. The next holder uses amounts out of the same ceilings, so the block leaves
    /// them as they are.
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
