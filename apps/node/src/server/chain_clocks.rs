//! Virtual clocks of delegation chains, for fair queueing (L. Zhang, "VirtualClock", 1991).
//!
//! A credential has two clocks: the *own* clock for requests of its holder, and the *common* clock for requests of its
//! holder and of all descendants. A served request advances the common clocks of all credentials in its chain, and the own
//! clock of the last one, by the request's cost. Before a clock is advanced, it is set to real time if it is behind, so an
//! idle credential saves nothing up. The lead of a clock is the time by which it is ahead of real time.
//!
//! - **Order** ([`VirtualClocks::select`]). An ancestor is served before its descendants. Among siblings, the one with the
//!   earliest common clock is served. So siblings get equal parts, or parts in proportion to their shares if the caller
//!   divides costs by shares.
//! - **Waiting** ([`VirtualClocks::lead`]). A request waits for a clock: it is not served while the clock's lead exceeds a
//!   maximum that the caller sets. It waits for the own clock of its credential and for the common clocks of the
//!   ancestors. So an ancestor never waits for the requests of its descendants, while descendants wait for those of the
//!   ancestor, and all together get no more than one holder could.
//!
//! If there are too many clocks, those of the longest chains are removed first. So a holder that delegates to many keys
//! cannot make the node forget the clocks of the holder's own credential or of its ancestors.

use std::collections::BTreeMap;
use weir_trust::credential::DelegationId;
use weir_units::Nanos;

/// The maximum number of clocks of each kind. A credential whose clock was removed counts as never served.
pub(crate) const CLOCKS_MAX: usize = 4096;

/// A clock of a credential.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The number of the credential's ancestors.
    depth: usize,
    time: Nanos,
}

/// The clocks of all credentials that were served lately. The `now` of a call must not be less than that of an earlier call.
#[derive(Debug, Default)]
pub(crate) struct VirtualClocks {
    /// The clocks for the requests of each credential's holder.
    own: BTreeMap<DelegationId, Clock>,
    /// The clocks for the requests of each credential's holder and of all descendants.
    common: BTreeMap<DelegationId, Clock>,
}

impl VirtualClocks {
    /// Returns the largest lead of the clocks for which a request of a chain's last credential waits: its own clock and the
    /// common clocks of its ancestors.
    pub(crate) fn lead(&self, chain: &[DelegationId], now: Nanos) -> Nanos {
        let Some((own, ancestors)) = chain.split_last() else { return Nanos(0) };
        let ancestors = ancestors.iter().filter_map(|id| self.common.get(id));
        let latest = ancestors.chain(self.own.get(own)).map(|clock| clock.time.0).max();
        Nanos(latest.map_or(0, |time| time.saturating_sub(now.0)))
    }

    /// Selects the request to be served next. A candidate is a request's number, in order of arrival, and its delegation
    /// chain. An ancestor is served before its descendants, among siblings the one with the earliest common clock, and among
    /// equal clocks the lowest number.
    pub(crate) fn select<'a>(
        &self,
        candidates: impl Iterator<Item = (u64, &'a [DelegationId])>,
    ) -> Option<u64> {
        let mut remaining: Vec<(u64, &[DelegationId])> = candidates.collect();
        let mut depth = 0;
        loop {
            let own =
                remaining.iter().filter(|(_, chain)| chain.len() == depth).map(|(number, _)| *number).min();
            if own.is_some() {
                return own;
            }
            let id_at_depth = |chain: &[DelegationId]| chain.get(depth).copied();
            let clock = |id: DelegationId| self.common.get(&id).map_or(Nanos(0), |clock| clock.time);
            let (_, _, next) = remaining
                .iter()
                .filter_map(|(number, chain)| id_at_depth(chain).map(|id| (clock(id), *number, id)))
                .min_by_key(|(clock, number, _)| (*clock, *number))?;
            remaining.retain(|(_, chain)| id_at_depth(chain) == Some(next));
            depth += 1;
        }
    }

    /// Advances the clocks of a served chain, each by the time that comes with its identifier.
    pub(crate) fn charge(&mut self, chain: impl Iterator<Item = (DelegationId, Nanos)>, now: Nanos) {
        let mut last = None;
        for (depth, (id, cost)) in chain.enumerate() {
            advance(&mut self.common, (depth, id), cost, now);
            last = Some(((depth, id), cost));
        }
        if let Some((credential, cost)) = last {
            advance(&mut self.own, credential, cost, now);
        }
    }

    /// Advances only the clocks of a chain's last credential, which has `depth` ancestors.
    pub(crate) fn charge_last(&mut self, depth: usize, id: DelegationId, cost: Nanos, now: Nanos) {
        advance(&mut self.common, (depth, id), cost, now);
        advance(&mut self.own, (depth, id), cost, now);
    }
}

/// Advances one clock, and removes others if there are too many.
fn advance(
    clocks: &mut BTreeMap<DelegationId, Clock>,
    (depth, id): (usize, DelegationId),
    cost: Nanos,
    now: Nanos,
) {
    let from = clocks.get(&id).map_or(now.0, |clock| clock.time.0.max(now.0));
    clocks.insert(id, Clock { depth, time: Nanos(from.saturating_add(cost.0)) });
    if clocks.len() > CLOCKS_MAX {
        clocks.retain(|_, clock| clock.time > now);
    }
    // Clocks of the longest chains are removed first, and among these the clock with the smallest lead.
    let eviction_order = |clock: &Clock| (std::cmp::Reverse(clock.depth), clock.time);
    while clocks.len() > CLOCKS_MAX
        && let Some(next) = clocks.iter().min_by_key(|(_, clock)| eviction_order(clock)).map(|(id, _)| *id)
    {
        clocks.remove(&next);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A test identifier for each letter from `a` to `p`.
    pub(crate) fn id(letter: char) -> DelegationId {
        format!("weir-id:{}", letter.to_string().repeat(32)).parse().unwrap()
    }

    /// The chain of a word's letters: `abc` is delegated by `ab`, which is delegated by `a`.
    pub(crate) fn chain(word: &str) -> Vec<DelegationId> {
        word.chars().map(id).collect()
    }

    /// A test identifier for each number, different from those of letters.
    pub(crate) fn numbered(number: usize) -> DelegationId {
        // Each decimal digit becomes a letter of the identifier's base 32.
        let digits = format!("{number:0>31}");
        let letters = digits.bytes().map(|digit| char::from(digit - b'0' + b'a'));
        format!("weir-id:p{}", letters.collect::<String>()).parse().unwrap()
    }

    fn serve(clocks: &mut VirtualClocks, word: &str, cost: u64, now: u64) {
        clocks.charge(chain(word).into_iter().map(|id| (id, Nanos(cost))), Nanos(now));
    }

    fn select<'a>(clocks: &VirtualClocks, words: &[&'a str]) -> &'a str {
        let chains: Vec<Vec<DelegationId>> = words.iter().map(|word| chain(word)).collect();
        let candidates = (0..).zip(chains.iter().map(Vec::as_slice));
        words[usize::try_from(clocks.select(candidates).unwrap()).unwrap()]
    }

    #[test]
    fn an_ancestor_comes_before_its_descendants_and_waits_for_none_of_them() {
        let mut clocks = VirtualClocks::default();
        assert_eq!(select(&clocks, &["abc", "ab", "a"]), "a");
        assert_eq!(select(&clocks, &["abc", "ab"]), "ab");
        serve(&mut clocks, "abc", 100, 0);
        let lead = |clocks: &VirtualClocks, word, now| clocks.lead(&chain(word), Nanos(now)).0;
        assert_eq!(["a", "ab", "abc", "abd", "e"].map(|word| lead(&clocks, word, 0)), [0, 100, 100, 100, 0]);
        // Descendants wait for the use of their ancestor.
        serve(&mut clocks, "a", 50, 40);
        assert_eq!(["a", "ab", "abc"].map(|word| lead(&clocks, word, 40)), [50, 110, 110]);
        assert_eq!(["a", "ab", "abc"].map(|word| lead(&clocks, word, 150)), [0, 0, 0]);
        assert_eq!(clocks.lead(&[], Nanos(0)), Nanos(0));
    }

    #[test]
    fn siblings_get_equal_parts_even_if_one_of_them_has_many_requests() {
        let mut clocks = VirtualClocks::default();
        let mut served = BTreeMap::new();
        // One sibling always has a hundred requests waiting, through two of its descendants.
        for now in 0..300 {
            let mut words = vec!["abm"; 50];
            words.extend(["abn"; 50]);
            words.extend(["ac", "ad"]);
            let word = select(&clocks, &words);
            serve(&mut clocks, word, 30, now * 10);
            *served.entry(word).or_insert(0) += 1;
        }
        assert_eq!(served, BTreeMap::from([("abm", 50), ("abn", 50), ("ac", 100), ("ad", 100)]));
    }

    #[test]
    fn parts_are_in_proportion_to_shares() {
        let mut clocks = VirtualClocks::default();
        let mut served = [0, 0];
        for now in 0..1100 {
            let word = select(&clocks, &["a", "b"]);
            let (place, cost) = if word == "a" { (0, 100) } else { (1, 10) };
            serve(&mut clocks, word, cost, now);
            served[place] += 1;
        }
        assert_eq!(served, [100, 1000]);
    }

    #[test]
    fn an_idle_credential_saves_nothing_up_and_the_number_of_clocks_is_bounded() {
        let mut clocks = VirtualClocks::default();
        for _ in 0..10 {
            serve(&mut clocks, "a", 10, 0);
        }
        // After a pause it does not wait, and alternates with a new credential.
        assert_eq!(clocks.lead(&chain("a"), Nanos(1000)), Nanos(0));
        let mut order = String::new();
        for _ in 0..6 {
            let word = select(&clocks, &["a", "b"]);
            serve(&mut clocks, word, 10, 1000);
            order.push_str(word);
        }
        assert_eq!(order, "baabab");
        for number in 1..2 * CLOCKS_MAX {
            clocks.charge(std::iter::once((numbered(number), Nanos(10))), Nanos(1000));
        }
        assert!(clocks.own.len() <= CLOCKS_MAX && clocks.common.len() <= CLOCKS_MAX);
        assert_eq!(clocks.lead(&chain("a"), Nanos(2000)), Nanos(0));
    }

    #[test]
    fn many_delegates_with_small_shares_remove_no_clock_of_their_ancestors() {
        let mut clocks = VirtualClocks::default();
        serve(&mut clocks, "ab", 1000, 0);
        serve(&mut clocks, "c", 1000, 0);
        for number in 0..2 * CLOCKS_MAX {
            let fresh = chain("ab").into_iter().map(|id| (id, Nanos(1)));
            clocks.charge(fresh.chain([(numbered(number), Nanos(1_000_000))]), Nanos(0));
        }
        assert!(clocks.own.len() <= CLOCKS_MAX && clocks.common.len() <= CLOCKS_MAX);
        let lead = |word| clocks.lead(&chain(word), Nanos(0)).0;
        let all = 1000 + 2 * CLOCKS_MAX as u64;
        assert_eq!(["a", "ab", "ac", "c", "ca"].map(lead), [0, all, all, 1000, 1000]);
    }
}
