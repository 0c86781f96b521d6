//! Tests of the window against replay.

use proptest::prelude::{ProptestConfig, proptest};
use std::collections::BTreeSet;
use weir_trust::transport::{ReplayWindow, WINDOW};

#[test]
fn the_window_has_the_latest_1024_numbers() {
    let mut window = ReplayWindow::default();
    assert!(window.accept(5_000));
    assert!(!window.accept(5_000 - 1_024) && window.accept(5_000 - 1_023));
}

#[test]
fn the_last_number_of_all_is_never_new() {
    let mut window = ReplayWindow::default();
    assert!(!window.accept(u64::MAX));
    assert!(window.accept(u64::MAX - 1) && !window.accept(u64::MAX - 1) && window.accept(u64::MAX - 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares the window with the set of all numbers that were accepted.
    #[test]
    fn a_window_remembers_exactly_what_it_accepted(
        steps in proptest::collection::vec((0..4_u8, 0..2_500_u64), 1..400),
    ) {
        let mut window = ReplayWindow::default();
        let mut taken: BTreeSet<u64> = BTreeSet::new();
        for (kind, by) in steps {
            let highest = taken.last().copied().unwrap_or(0);
            // A little or far ahead, or behind.
            let number = match kind {
                0 => highest + 1,
                1 => highest + by,
                2 => highest.saturating_sub(by % 80),
                _ => highest.saturating_sub(by),
            };
            let is_new = !taken.contains(&number) && (taken.is_empty() || highest < WINDOW + number);
            assert_eq!(window.is_new(number), is_new, "{number} after {highest}");
            assert_eq!(window.accept(number), is_new, "{number} after {highest}");
            if is_new {
                taken.insert(number);
            }
        }
    }
}
