//! Sources from which peers have shown a valid credential.

use super::source::{PeerSource, SourceNetwork};
use std::collections::BTreeMap;
use weir_units::Nanos;

/// A bounded memory of proven sources. Only valid credentials add a source. When the memory is full, the network with
/// the most sources loses its oldest one, so that one network does not displace the others.
#[derive(Debug)]
pub(super) struct ProvenSources {
    sources_max: usize,
    proven_for: Nanos,
    /// The time of each source's last valid credential.
    since: BTreeMap<PeerSource, Nanos>,
}

impl ProvenSources {
    /// Makes an empty memory for at most `sources_max` sources. Each is remembered for `proven_for` after its last valid
    /// credential.
    pub(super) fn new(sources_max: usize, proven_for: Nanos) -> Self {
        Self { sources_max, proven_for, since: BTreeMap::new() }
    }

    pub(super) fn contains(&self, source: &PeerSource, now: Nanos) -> bool {
        self.since.get(source).is_some_and(|since| now.0 < since.0.saturating_add(self.proven_for.0))
    }

    pub(super) fn insert(&mut self, source: PeerSource, now: Nanos) {
        if self.sources_max == 0 {
            return;
        }
        if !self.since.contains_key(&source) && self.since.len() >= self.sources_max {
            self.displace_one(source.network());
        }
        self.since.insert(source, now);
    }

    fn displace_one(&mut self, newcomer: SourceNetwork) {
        let mut networks: BTreeMap<SourceNetwork, usize> = BTreeMap::from([(newcomer, 1)]);
        for source in self.since.keys() {
            *networks.entry(source.network()).or_default() += 1;
        }
        let sources_of_network = |source: &PeerSource| networks.get(&source.network()).copied().unwrap_or(0);
        // The network with the most sources comes first, then the oldest source.
        let displaced = self
            .since
            .iter()
            .max_by_key(|(source, since)| (sources_of_network(source), std::cmp::Reverse(**since)));
        if let Some(displaced) = displaced.map(|(source, _)| *source) {
            self.since.remove(&displaced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn source(network: u8, host: u8) -> PeerSource {
        PeerSource::from_address(IpAddr::V4(Ipv4Addr::new(192, 0, network, host)))
    }

    #[test]
    fn a_source_is_proven_for_a_while_and_a_network_with_many_sources_displaces_its_own() {
        let mut proven = ProvenSources::new(4, Nanos(100));
        proven.insert(source(1, 1), Nanos(0));
        assert!(proven.contains(&source(1, 1), Nanos(99)) && !proven.contains(&source(1, 1), Nanos(100)));
        assert!(!proven.contains(&source(1, 2), Nanos(0)));
        // One network with a hundred sources: the other network's oldest source stays.
        for host in 0..100 {
            proven.insert(source(2, host), Nanos(1 + u64::from(host)));
            assert!(proven.since.len() <= 4);
        }
        assert!(proven.contains(&source(1, 1), Nanos(50)) && proven.contains(&source(2, 99), Nanos(101)));
        assert!(!proven.contains(&source(2, 0), Nanos(50)));
        // A source that shows a credential again counts as new.
        proven.insert(source(1, 1), Nanos(90));
        assert!(proven.contains(&source(1, 1), Nanos(150)));
    }
}
