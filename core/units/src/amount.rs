//! Display of amounts, with enough digits to tell amounts in one message apart.

use std::fmt::Display;

/// The highest number of decimals that is tried. If it is not enough, amounts are displayed in their smallest unit.
const DECIMALS_MAX: usize = 6;

/// A quantity that is rounded for display.
///
/// The precision of a format (`{:.4}`) is the maximum number of decimals.
pub trait Amount: Copy + Eq + Display {
    /// Returns the whole amount, in its smallest unit.
    fn exact(self) -> String;
}

/// Returns an amount as text, for a message that also contains `others`. The text has enough digits for different
/// amounts to have different texts.
pub fn display_among<T: Amount>(amount: T, others: &[T]) -> String {
    let all = || std::iter::once(&amount).chain(others);
    let are_distinct = |show: &dyn Fn(T) -> String| {
        all()
            .enumerate()
            .all(|(index, one)| all().skip(index + 1).all(|other| one == other || show(*one) != show(*other)))
    };
    if are_distinct(&|one| one.to_string()) {
        return amount.to_string();
    }
    let decimals = (1..=DECIMALS_MAX).find(|decimals| are_distinct(&|one| format!("{one:.decimals$}")));
    match decimals {
        Some(decimals) => format!("{amount:.decimals$}"),
        None => amount.exact(),
    }
}

/// The units of a quantity with their sizes in smallest units, the largest unit first.
pub(crate) type UnitTable = [(&'static str, u64)];

/// Returns the size of a unit; `None` for a text that is no unit of the table.
pub(crate) fn scale_of(units: &UnitTable, unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale)
}

/// Returns the shortest text of an exact amount in one of these units, without white space. The table's last unit is the
/// smallest unit.
pub(crate) fn shortest(amount: u64, units: &UnitTable) -> String {
    let exact = units.iter().filter(|(_, scale)| amount.is_multiple_of(*scale));
    exact.map(|(unit, scale)| format!("{}{unit}", amount / scale)).min_by_key(String::len).unwrap_or_default()
}

/// Writes an amount in a unit of `scale` smallest units, without zeros at the end of its decimals. The precision of the
/// format is the number of decimals; without a precision it is `default_decimals`.
#[expect(
    clippy::cast_precision_loss,
    reason = "for people to read; `display_among` checks that it is precise enough"
)]
pub(crate) fn rounded(
    f: &mut std::fmt::Formatter<'_>,
    (amount, scale, unit): (u64, f64, &str),
    default_decimals: usize,
) -> std::fmt::Result {
    let text = format!("{:.*}", f.precision().unwrap_or(default_decimals), amount as f64 / scale);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    write!(f, "{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitsPerSecond, Bytes, Nanos};

    #[test]
    fn different_amounts_in_one_message_have_different_texts() {
        const MIB: u64 = 1 << 20;
        for (one, other, texts) in [
            (64 * MIB, 32 * MIB, ["64 MiB", "32 MiB"]),
            (64 * MIB, 64 * MIB, ["64 MiB", "64 MiB"]),
            (64 * MIB + (10 << 10), 64 * MIB, ["64.01 MiB", "64 MiB"]),
            (64 * MIB + 1, 64 * MIB, ["64.000001 MiB", "64 MiB"]),
            ((1 << 40) + 1, 1 << 40, ["1099511627777 B", "1099511627776 B"]),
            (u64::MAX, u64::MAX - 1, ["18446744073709551615 B", "18446744073709551614 B"]),
        ] {
            let (one, other) = (Bytes(one), Bytes(other));
            assert_eq!([display_among(one, &[other]), display_among(other, &[one])], texts);
        }
        let [slice, largest] = [Nanos(2_000_001), Nanos(2_000_000)];
        assert_eq!(
            [display_among(slice, &[largest]), display_among(largest, &[slice])],
            ["2.000001 ms", "2 ms"]
        );
        let [wanted, left] = [BitsPerSecond(1_000_000_001), BitsPerSecond(1_000_000_000)];
        assert_eq!(display_among(wanted, &[left]), "1000000001 bit/s");
        // All of several amounts get the same number of decimals.
        let three = [Bytes(MIB + 1), Bytes(MIB), Bytes(2 * MIB)];
        let shown: Vec<_> = three.iter().map(|one| display_among(*one, &three)).collect();
        assert_eq!(shown, ["1.000001 MiB", "1 MiB", "2 MiB"]);
    }

    #[test]
    fn amounts_that_differ_by_one_have_different_texts() {
        for power in 0..64 {
            let amount = 1u64 << power;
            for other in [amount - 1, amount.saturating_add(1), amount + amount / 1_000, amount / 2] {
                if amount == other {
                    continue;
                }
                assert_ne!(
                    display_among(Bytes(amount), &[Bytes(other)]),
                    display_among(Bytes(other), &[Bytes(amount)]),
                    "{amount} {other}"
                );
                assert_ne!(
                    display_among(Nanos(amount), &[Nanos(other)]),
                    display_among(Nanos(other), &[Nanos(amount)])
                );
            }
        }
    }
}
