//! Discovery of the longest datagram that a path carries (RFC 8899), by probes that the peer answers.

use super::limits::after;
use weir_units::Nanos;

/// The length of datagrams that every path is assumed to carry: the least of IPv6 without its header and that of UDP.
pub const PATH_BYTES_MIN: usize = 1_232;

/// The lengths of datagrams that are tried in order: tunnels, Ethernet with IPv6 and IPv4, jumbo frames, loopback.
const CANDIDATES: [usize; 8] = [PATH_BYTES_MIN, 1_372, 1_432, 1_452, 1_472, 8_952, 8_972, 65_507];
/// The number of probes of one length.
const PROBES_MAX: u32 = 3;
/// The time to wait for an answer.
const WAIT: Nanos = Nanos::SECOND;
/// The time after which the length is confirmed, and longer ones are tried again.
const SEARCH_EVERY: Nanos = Nanos(60 * Nanos::SECOND.0);

/// The search for the longest datagram of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    /// The index of the longest length that is known to arrive.
    known: usize,
    probe: Option<MtuProbe>,
    /// The time of the next probe.
    at: Nanos,
}

/// A length that is being tried.
#[derive(Clone, Copy, Debug)]
struct MtuProbe {
    index: usize,
    token: u64,
    sent: u32,
}

impl PathMtu {
    /// Begins a search.
    pub(super) fn new(now: Nanos) -> Self {
        Self { known: 0, probe: None, at: now }
    }

    /// Returns the length of the longest datagram.
    pub(super) fn bytes(&self) -> usize {
        CANDIDATES.get(self.known).copied().unwrap_or(PATH_BYTES_MIN)
    }

    /// Returns the time of the next probe.
    pub(super) fn next(&self) -> Nanos {
        self.at
    }

    /// Returns the length of the datagram of a probe, if one is due. `token` is that of a new length.
    pub(super) fn due(&mut self, now: Nanos, token: u64) -> Option<(u64, usize)> {
        if now < self.at {
            return None;
        }
        let index = match self.probe {
            Some(probe) if probe.sent < PROBES_MAX => probe.index,
            Some(probe) => {
                (self.probe, self.at) = (None, after(now, SEARCH_EVERY));
                // A length that arrived before does not any more: the path has changed.
                if probe.index == self.known {
                    (self.known, self.at) = (0, now);
                }
                return None;
            }
            // The length is confirmed first, then the next one is tried.
            None => self.known.max(1),
        };
        let probe = self.probe.get_or_insert(MtuProbe { index, token, sent: 0 });
        probe.sent += 1;
        self.at = after(now, WAIT);
        Some((probe.token, CANDIDATES.get(index).copied()?))
    }

    /// Handles the answer to a probe.
    pub(super) fn handle_answer(&mut self, token: u64, bytes: u16, now: Nanos) {
        let Some(probe) = self.probe.filter(|probe| probe.token == token) else { return };
        if CANDIDATES.get(probe.index).copied() != Some(usize::from(bytes)) {
            return;
        }
        self.known = probe.index;
        let next = probe.index + 1;
        self.probe = None;
        self.at = after(now, SEARCH_EVERY);
        if next < CANDIDATES.len() {
            self.probe = Some(MtuProbe { index: next, token: token.wrapping_add(1), sent: 0 });
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search until `until` over a path that carries datagrams of at most `carries` bytes.
    fn run(mtu: &mut PathMtu, from: u64, until: u64, carries: usize) -> u32 {
        let (mut now, mut probes) = (Nanos(from), 0);
        while now.0 < until {
            if let Some((token, bytes)) = mtu.due(now, now.0) {
                probes += 1;
                if bytes <= carries {
                    mtu.handle_answer(token, u16::try_from(bytes).unwrap(), now);
                }
            }
            now = Nanos(mtu.next().0.max(now.0));
        }
        probes
    }

    #[test]
    fn the_longest_length_of_a_path_is_found_with_few_probes() {
        const SECOND: u64 = Nanos::SECOND.0;
        for (carries, found) in
            [(1_232, 1_232), (1_400, 1_372), (1_472, 1_472), (9_000, 8_972), (65_535, 65_507)]
        {
            let mut mtu = PathMtu::new(Nanos(0));
            let probes = run(&mut mtu, 0, 20 * SECOND, carries);
            assert_eq!(mtu.bytes(), found);
            assert!(probes <= 10, "{probes}");
            // The path gets narrower, and wider again.
            run(&mut mtu, 20 * SECOND, 150 * SECOND, 1_372);
            assert_eq!(mtu.bytes(), 1_372, "{carries}");
            run(&mut mtu, 150 * SECOND, 280 * SECOND, 1_472);
            assert_eq!(mtu.bytes(), 1_472);
        }
    }

    #[test]
    fn an_answer_to_another_probe_changes_nothing() {
        let mut mtu = PathMtu::new(Nanos(0));
        let (token, bytes) = mtu.due(Nanos(0), 7).unwrap();
        mtu.handle_answer(token + 1, u16::try_from(bytes).unwrap(), Nanos(0));
        mtu.handle_answer(token, 65_507, Nanos(0));
        assert_eq!(mtu.bytes(), PATH_BYTES_MIN);
    }
}
