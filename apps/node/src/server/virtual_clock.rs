//! Virtual clocks of delegation chains: the order in which those are served who want the same.
//!
//! Each link of a chain has a clock. Serving a request moves the clocks of its links ahead by the cost of the request; time catches up with them (L. Zhang,
//! "VirtualClock", 1991). The link whose clock is least ahead is next, so links get equal parts of what there is, or parts in proportion to their shares where
//! costs are divided by these. A link that asks for nothing saves nothing up, as a clock is never behind time.
//!
//! A link has two clocks: one for its own requests, and one for these and all of its descendants'. A holder waits for its own clock and for its ancestors' second ones. So
//! an ancestor never waits for what its descendants had, its descendants wait for what it had, and all of them together have no more than one holder could.
//!
//! Clocks are forgotten where there are too many, those of the longest chains first. A holder can delegate to any number of keys, and erases no clock of their own link or one above it
//! by that.

use std::collections::BTreeMap;
use weir_trust::credential::PrefixId;
use weir_units::Nanos;

/// Clocks that are remembered. A link whose clock is forgotten is as one that never asked.
pub(crate) const CLOCKS_MAX: usize = 4096;

/// A link's clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The number of links before it in its chain.
    depth: usize,
    time: Nanos,
}

/// The clocks of all links that were served lately. `now` never decreases from call to call.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// Of a link's own requests.
    own: BTreeMap<PrefixId, Clock>,
    /// Of its requests and its descendants'.
    all: BTreeMap<PrefixId, Clock>,
}

impl Clocks {
    /// The time until all clocks are caught up with that the holder of a chain waits for.
    pub(crate) fn ahead(&self, chain: &[PrefixId], now: Nanos) -> Nanos {
        let Some((own, ancestors)) = chain.split_last() else { return Nanos(0) };
        let ancestors = ancestors.iter().filter_map(|id| self.all.get(id));
        let latest = ancestors.chain(self.own.get(own)).map(|clock| clock.time.0).max();
        Nanos(latest.map_or(0, |time| time.saturating_sub(now.0)))
    }

    /// The next one of these candidates, each a number and a chain. An ancestor comes before its descendants. Of siblings, that with the earliest clock comes first, and of
    /// equals that with the lowest number.
    pub(crate) fn first<'a>(&self, candidates: impl Iterator<Item = (u64, &'a [PrefixId])>) -> Option<u64> {
        let mut left: Vec<(u64, &[PrefixId])> = candidates.collect();
        let mut depth = 0;
        loop {
            let own = left.iter().filter(|(_, chain)| chain.len() == depth).map(|(number, _)| *number).min();
            if own.is_some() {
                return own;
            }
            let of = |chain: &[PrefixId]| chain.get(depth).copied();
            let clock = |id: PrefixId| self.all.get(&id).map_or(Nanos(0), |clock| clock.time);
            let (_, _, next) = left
                .iter()
                .filter_map(|(number, chain)| of(chain).map(|id| (clock(id), *number, id)))
                .min_by_key(|(clock, number, _)| (*clock, *number))?;
            left.retain(|(_, chain)| of(chain) == Some(next));
            depth += 1;
        }
    }

    /// Moves the clocks of all links of a chain, as its holder was served. Each link comes with the time by which its clocks move.
    pub(crate) fn charge(&mut self, links: impl Iterator<Item = (PrefixId, Nanos)>, now: Nanos) {
        let mut last = None;
        for (depth, (id, cost)) in links.enumerate() {
            advance(&mut self.all, (depth, id), cost, now);
            last = Some(((depth, id), cost));
        }
        if let Some((link, cost)) = last {
            advance(&mut self.own, link, cost, now);
        }
    }

    /// Moves the clocks of the last link of a chain alone, which has so many links before it.
    pub(crate) fn charge_last(&mut self, depth: usize, id: PrefixId, cost: Nanos, now: Nanos) {
        advance(&mut self.all, (depth, id), cost, now);
        advance(&mut self.own, (depth, id), cost, now);
    }
}

/// Moves one clock, and forgets others where there are too many.
fn advance(clocks: &mut BTreeMap<PrefixId, Clock>, (depth, id): (usize, PrefixId), cost: Nanos, now: Nanos) {
    let from = clocks.get(&id).map_or(now.0, |clock| clock.time.0.max(now.0));
    clocks.insert(id, Clock { depth, time: Nanos(from.saturating_add(cost.0)) });
    if clocks.len() > CLOCKS_MAX {
        clocks.retain(|_, clock| clock.time > now);
    }
    // Of the deepest ones, the clock that is least ahead.
    let order = |clock: &Clock| (std::cmp::Reverse(clock.depth), clock.time);
    while clocks.len() > CLOCKS_MAX
        && let Some(next) = clocks.iter().min_by_key(|(_, clock)| order(clock)).map(|(id, _)| *id)
    {
        clocks.remove(&next);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The identifier that stands for a letter, `a` to `p`.
    pub(crate) fn id(letter: char) -> PrefixId {
        format!("weir-id:{}", letter.to_string().repeat(32)).parse().unwrap()
    }

    /// The chain that a word stands for: `abc` got its right from `ab`, and that from `a`.
    pub(crate) fn chain(word: &str) -> Vec<PrefixId> {
        word.chars().map(id).collect()
    }

    /// The identifier that stands for a number, and for no letter.
    pub(crate) fn numbered(number: usize) -> PrefixId {
        // The digits of base 32 that stand for those of the number.
        let digits = format!("{number:0>31}");
        let letters = digits.bytes().map(|digit| char::from(digit - b'0' + b'a'));
        format!("weir-id:p{}", letters.collect::<String>()).parse().unwrap()
    }

    fn serve(clocks: &mut Clocks, word: &str, cost: u64, now: u64) {
        clocks.charge(chain(word).into_iter().map(|id| (id, Nanos(cost))), Nanos(now));
    }

    fn first<'a>(clocks: &Clocks, words: &[&'a str]) -> &'a str {
        let chains: Vec<Vec<PrefixId>> = words.iter().map(|word| chain(word)).collect();
        let candidates = (0..).zip(chains.iter().map(Vec::as_slice));
        words[usize::try_from(clocks.first(candidates).unwrap()).unwrap()]
    }

    #[test]
    fn an_ancestor_comes_before_its_descendants_and_waits_for_none_of_them() {
        let mut clocks = Clocks::default();
        assert_eq!(first(&clocks, &["abc", "ab", "a"]), "a");
        assert_eq!(first(&clocks, &["abc", "ab"]), "ab");
        serve(&mut clocks, "abc", 100, 0);
        let ahead = |clocks: &Clocks, word, now| clocks.ahead(&chain(word), Nanos(now)).0;
        assert_eq!(["a", "ab", "abc", "abd", "e"].map(|word| ahead(&clocks, word, 0)), [0, 100, 100, 100, 0]);
        // Those below an ancestor wait for what the ancestor had.
        serve(&mut clocks, "a", 50, 40);
        assert_eq!(["a", "ab", "abc"].map(|word| ahead(&clocks, word, 40)), [50, 110, 110]);
        assert_eq!(["a", "ab", "abc"].map(|word| ahead(&clocks, word, 150)), [0, 0, 0]);
        assert_eq!(clocks.ahead(&[], Nanos(0)), Nanos(0));
    }

    #[test]
    fn siblings_get_equal_parts_however_often_one_of_them_asks() {
        let mut clocks = Clocks::default();
        let mut served = BTreeMap::new();
        // One sibling has a hundred requests waiting at any time, through descendants of its own, too.
        for now in 0..300 {
            let mut words = vec!["abm"; 50];
            words.extend(["abn"; 50]);
            words.extend(["ac", "ad"]);
            let word = first(&clocks, &words);
            serve(&mut clocks, word, 30, now * 10);
            *served.entry(word).or_insert(0) += 1;
        }
        assert_eq!(served, BTreeMap::from([("abm", 50), ("abn", 50), ("ac", 100), ("ad", 100)]));
    }

    #[test]
    fn parts_are_in_proportion_to_shares() {
        let mut clocks = Clocks::default();
        let mut served = [0, 0];
        for now in 0..1100 {
            let word = first(&clocks, &["a", "b"]);
            let (place, cost) = if word == "a" { (0, 100) } else { (1, 10) };
            serve(&mut clocks, word, cost, now);
            served[place] += 1;
        }
        assert_eq!(served, [100, 1000]);
    }

    #[test]
    fn a_link_saves_nothing_up_and_what_is_remembered_is_bounded() {
        let mut clocks = Clocks::default();
        for _ in 0..10 {
            serve(&mut clocks, "a", 10, 0);
        }
        // After a while without, it waits for nothing, and is in turn with one that has just come.
        assert_eq!(clocks.ahead(&chain("a"), Nanos(1000)), Nanos(0));
        let mut order = String::new();
        for _ in 0..6 {
            let word = first(&clocks, &["a", "b"]);
            serve(&mut clocks, word, 10, 1000);
            order.push_str(word);
        }
        assert_eq!(order, "baabab");
        for number in 1..2 * CLOCKS_MAX {
            clocks.charge(std::iter::once((numbered(number), Nanos(10))), Nanos(1000));
        }
        assert!(clocks.own.len() <= CLOCKS_MAX && clocks.all.len() <= CLOCKS_MAX);
        assert_eq!(clocks.ahead(&chain("a"), Nanos(2000)), Nanos(0));
    }

    #[test]
    fn many_delegates_with_small_shares_erase_no_clock_of_those_above_them() {
        let mut clocks = Clocks::default();
        serve(&mut clocks, "ab", 1000, 0);
        serve(&mut clocks, "c", 1000, 0);
        for number in 0..2 * CLOCKS_MAX {
            let fresh = chain("ab").into_iter().map(|id| (id, Nanos(1)));
            clocks.charge(fresh.chain([(numbered(number), Nanos(1_000_000))]), Nanos(0));
        }
        assert!(clocks.own.len() <= CLOCKS_MAX && clocks.all.len() <= CLOCKS_MAX);
        let ahead = |word| clocks.ahead(&chain(word), Nanos(0)).0;
        let all = 1000 + 2 * CLOCKS_MAX as u64;
        assert_eq!(["a", "ab", "ac", "c", "ca"].map(ahead), [0, all, all, 1000, 1000]);
    }
}
