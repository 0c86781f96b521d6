//! Counts of lost packets by reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_graph::engine::Reason;

/// The numbers of lost packets by reason.
#[derive(Clone, Debug, Default)]
pub struct LossCounts {
    counts: BTreeMap<&'static str, u64>,
}

impl LossCounts {
    /// Counts a packet.
    pub fn add(&mut self, reason: &'static str) {
        *self.counts.entry(reason).or_default() += 1;
    }

    /// Returns the reasons so far.
    pub fn reasons(&self) -> impl Iterator<Item = &'static str> {
        self.counts.keys().copied()
    }

    /// Returns the number of all lost packets.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Sets all counts to 0.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// Returns a line for each reason: the number, and the reason.
    pub fn details(&self) -> Result<String, Reason> {
        let mut text = String::new();
        for (reason, count) in &self.counts {
            _ = writeln!(text, "{count} {reason}");
        }
        Ok(text)
    }
}
