//! Bytes of one direction that wait for earlier ones.

use super::OverlapPolicy;
use std::collections::VecDeque;

/// The memory that is charged for a run of bytes in addition to the bytes.
pub(super) const RUN_OVERHEAD: u32 = 96;
/// The most runs of one direction. The next one gives up the first hole.
pub(super) const RUNS_MAX: usize = 128;

/// A run of bytes without a hole. The last ones can be unknown, because they were not captured.
#[derive(Debug)]
pub(super) struct WaitingRun {
    /// The offset in the direction of the first byte.
    pub(super) begin: u64,
    /// The offset behind the last byte, unknown ones included.
    pub(super) end: u64,
    /// The known bytes.
    pub(super) bytes: Vec<u8>,
}

impl WaitingRun {
    fn known_end(&self) -> u64 {
        self.begin.saturating_add(self.bytes.len() as u64)
    }

    /// Cuts off everything before `at`.
    fn cut_front(&mut self, at: u64) {
        if at > self.begin {
            let count = usize::try_from(at - self.begin).unwrap_or(usize::MAX).min(self.bytes.len());
            // A new allocation, so that the memory is that which is charged.
            self.bytes = self.bytes.get(count..).unwrap_or_default().to_vec();
            self.begin = at;
        }
    }

    /// Cuts off everything from `at` on.
    fn cut_back(&mut self, at: u64) {
        if at < self.end {
            self.bytes.truncate(usize::try_from(at.saturating_sub(self.begin)).unwrap_or(usize::MAX));
            self.bytes.shrink_to_fit();
            self.end = at;
        }
    }

    fn charge(&self) -> u32 {
        RUN_OVERHEAD.saturating_add(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX))
    }
}

/// The runs of one direction, in order and without overlap.
#[derive(Debug, Default)]
pub(super) struct Pending {
    runs: VecDeque<WaitingRun>,
    /// The memory charged for the runs.
    pub(super) charged: u32,
    /// The time of the first run, in ns.
    pub(super) since: u64,
}

impl Pending {
    /// Returns true without runs.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the offset of the first byte.
    pub(super) fn begin(&self) -> Option<u64> {
        self.runs.front().map(|run| run.begin)
    }

    /// Returns true if one more segment would make too many runs.
    pub(super) fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX
    }

    /// Removes the first run.
    pub(super) fn take_first(&mut self) -> Option<WaitingRun> {
        let run = self.runs.pop_front()?;
        self.charged = self.charged.saturating_sub(run.charge());
        Some(run)
    }

    /// Adds a segment whose bytes end at `end`, unknown ones included. Returns the number of bytes that differ from
    /// bytes of earlier segments at the same place.
    pub(super) fn add(&mut self, begin: u64, end: u64, bytes: &[u8], policy: OverlapPolicy) -> u32 {
        let mut conflicts = 0_u32;
        let later = (begin, end);
        // The parts of the segment that go in, in order. Each part ends where an earlier run begins that stays.
        let mut new_runs: Vec<WaitingRun> = Vec::new();
        let slice = |from: u64, to: u64| -> Vec<u8> {
            let at = |offset: u64| {
                usize::try_from(offset.saturating_sub(begin)).unwrap_or(usize::MAX).min(bytes.len())
            };
            bytes.get(at(from)..at(to)).unwrap_or_default().to_vec()
        };
        let mut kept = VecDeque::with_capacity(self.runs.len() + 2);
        let mut at = begin;
        for mut run in std::mem::take(&mut self.runs) {
            if run.end <= begin || run.begin >= end {
                kept.push_back(run);
                continue;
            }
            conflicts = conflicts.saturating_add(differing(&run, begin, bytes));
            if policy.replaces(later, (run.begin, run.end)) {
                // Up to two pieces of the earlier run stay: before the segment, and behind it.
                if run.begin < begin {
                    let bytes_before = usize::try_from(begin - run.begin).unwrap_or(usize::MAX);
                    let head = run.bytes.get(..bytes_before.min(run.bytes.len())).unwrap_or_default();
                    kept.push_back(WaitingRun { begin: run.begin, end: begin, bytes: head.to_vec() });
                }
                if run.end > end {
                    run.cut_front(end);
                    kept.push_back(run);
                }
                continue;
            }
            if at < run.begin {
                new_runs.push(WaitingRun { begin: at, end: run.begin, bytes: slice(at, run.begin) });
            }
            at = at.max(run.end);
            kept.push_back(run);
        }
        if at < end {
            new_runs.push(WaitingRun { begin: at, end, bytes: slice(at, end) });
        }
        kept.extend(new_runs);
        kept.make_contiguous().sort_by_key(|run| run.begin);
        self.runs = kept;
        self.charged = self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.charge()));
        conflicts
    }

    /// Cuts off everything from `end` on, which is behind the end of the direction.
    pub(super) fn cut_back(&mut self, end: u64) {
        self.runs.retain(|run| run.begin < end);
        if let Some(last) = self.runs.back_mut() {
            last.cut_back(end);
        }
        self.charged = self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.charge()));
    }
}

/// Returns the number of known bytes of a segment that differ from those of a run at the same place.
fn differing(run: &WaitingRun, begin: u64, bytes: &[u8]) -> u32 {
    let from = run.begin.max(begin);
    let to = run.known_end().min(begin.saturating_add(bytes.len() as u64));
    let part = |first: u64, bytes: &'_ [u8]| -> (usize, usize) {
        let at = |offset: u64| usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
        (at(from).min(bytes.len()), at(to).min(bytes.len()))
    };
    if from >= to {
        return 0;
    }
    let (old_from, old_to) = part(run.begin, &run.bytes);
    let (new_from, new_to) = part(begin, bytes);
    let old = run.bytes.get(old_from..old_to).unwrap_or_default();
    let new = bytes.get(new_from..new_to).unwrap_or_default();
    let count = old.iter().zip(new).filter(|(a, b)| a != b).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of all runs, with `.` for unknown ones and `|` between runs with a hole.
    fn text(pending: &mut Pending) -> String {
        let mut text = String::new();
        let mut at = 0;
        while let Some(run) = pending.take_first() {
            text.extend(std::iter::repeat_n('_', usize::try_from(run.begin - at).unwrap()));
            text.push_str(std::str::from_utf8(&run.bytes).unwrap());
            text.extend(std::iter::repeat_n('.', usize::try_from(run.end - run.known_end()).unwrap()));
            at = run.end;
        }
        assert_eq!(pending.charged, 0, "every charge is given back");
        text
    }

    fn after(policy: OverlapPolicy, segments: &[(u64, &str)]) -> (String, u32) {
        let mut pending = Pending::default();
        let mut conflicts = 0;
        for (begin, bytes) in segments {
            conflicts += pending.add(*begin, begin + bytes.len() as u64, bytes.as_bytes(), policy);
        }
        (text(&mut pending), conflicts)
    }

    #[test]
    fn each_policy_chooses_as_novak_and_sturges_describe() {
        use OverlapPolicy::{Bsd, First, Last, Linux, Windows};
        // Each case: the earlier segment, the later one, and the result under each policy.
        let begins_before = [(2, "aaaa"), (0, "bbbb")];
        let same_longer = [(0, "aaa"), (0, "bbbbb")];
        let same_equal = [(0, "aaaa"), (0, "bbbb")];
        let begins_after = [(0, "aaaa"), (2, "bbbb")];
        let inside = [(0, "aaaaaa"), (2, "bb")];
        let around = [(2, "aa"), (0, "bbbbbb")];
        for (policy, wanted) in [
            (First, ["bbaaaa", "aaabb", "aaaa", "aaaabb", "aaaaaa", "bbaabb"]),
            (Last, ["bbbbaa", "bbbbb", "bbbb", "aabbbb", "aabbaa", "bbbbbb"]),
            (Bsd, ["bbbbaa", "aaabb", "aaaa", "aaaabb", "aaaaaa", "bbbbbb"]),
            (Linux, ["bbbbaa", "bbbbb", "aaaa", "aaaabb", "aaaaaa", "bbbbbb"]),
            (Windows, ["bbbbaa", "aaabb", "aaaa", "aaaabb", "aaaaaa", "bbbbbb"]),
        ] {
            let cases = [&begins_before[..], &same_longer, &same_equal, &begins_after, &inside, &around];
            for (case, wanted) in cases.iter().zip(wanted) {
                assert_eq!(after(policy, case).0, wanted, "{policy}: {case:?}");
            }
        }
    }

    #[test]
    fn differing_bytes_are_counted_once_for_each_place() {
        assert_eq!(after(OverlapPolicy::First, &[(0, "abcd"), (2, "cxyz")]), ("abcdyz".into(), 1));
        assert_eq!(after(OverlapPolicy::First, &[(0, "ab"), (4, "ef"), (0, "abcdef")]).1, 0);
    }

    #[test]
    fn unknown_bytes_take_their_place_and_conflict_with_nothing() {
        let mut pending = Pending::default();
        pending.add(0, 6, b"ab", OverlapPolicy::First);
        assert_eq!(pending.add(3, 5, b"xy", OverlapPolicy::First), 0);
        assert_eq!(text(&mut pending), "ab....");
        let mut pending = Pending::default();
        pending.add(0, 6, b"ab", OverlapPolicy::Last);
        pending.add(3, 5, b"xy", OverlapPolicy::Last);
        assert_eq!(text(&mut pending), "ab.xy.");
    }

    #[test]
    fn nothing_stays_behind_the_end_of_a_direction() {
        let mut pending = Pending::default();
        pending.add(0, 4, b"abcd", OverlapPolicy::First);
        pending.add(6, 8, b"gh", OverlapPolicy::First);
        pending.cut_back(3);
        assert_eq!(text(&mut pending), "abc");
    }
}
