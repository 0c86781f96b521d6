//! Sources from which a valid credential has come.

use super::source::{PeerSource, SourceNetwork};
use std::collections::BTreeMap;
use weir_units::Nanos;

/// A bounded memory of proven sources. Only valid credentials put sources into it. When it is full, the network with the most sources loses its
/// oldest one, so that one network does not push out the others.
#[derive(Debug)]
pub(super) struct Proven {
    most: usize,
    lasts: Nanos,
    since: BTreeMap<PeerSource, Nanos>,
}

impl Proven {
    /// Remembers at most `most` sources, each for that long after its last valid credential.
    pub(super) fn new(most: usize, lasts: Nanos) -> Self {
        Self { most, lasts, since: BTreeMap::new() }
    }

    pub(super) fn contains(&self, source: &PeerSource, now: Nanos) -> bool {
        self.since.get(source).is_some_and(|since| now.0 < since.0.saturating_add(self.lasts.0))
    }

    pub(super) fn insert(&mut self, source: PeerSource, now: Nanos) {
        if self.most == 0 {
            return;
        }
        if !self.since.contains_key(&source) && self.since.len() >= self.most {
            self.make_room(source.network());
        }
        self.since.insert(source, now);
    }

    fn make_room(&mut self, newcomer: SourceNetwork) {
        let mut networks: BTreeMap<SourceNetwork, usize> = BTreeMap::from([(newcomer, 1)]);
        for source in self.since.keys() {
            *networks.entry(source.network()).or_default() += 1;
        }
        let of = |source: &PeerSource| networks.get(&source.network()).copied().unwrap_or(0);
        // The most of a network first, then the oldest.
        let gone = self.since.iter().max_by_key(|(source, since)| (of(source), std::cmp::Reverse(**since)));
        if let Some(gone) = gone.map(|(source, _)| *source) {
            self.since.remove(&gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn source(network: u8, host: u8) -> PeerSource {
        PeerSource::of(IpAddr::V4(Ipv4Addr::new(192, 0, network, host)))
    }

    #[test]
    fn a_source_is_proven_for_a_while_and_one_network_pushes_out_its_own_sources() {
        let mut proven = Proven::new(4, Nanos(100));
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
        // A source that comes again is as new.
        proven.insert(source(1, 1), Nanos(90));
        assert!(proven.contains(&source(1, 1), Nanos(150)));
    }
}
