//! Sets of 32-bit numbers, as lists of ranges.

use std::rc::Rc;

/// A set of numbers: its ranges in ascending order, both ends included. The ranges neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ranges(Rc<[(u32, u32)]>);

impl Ranges {
    pub(crate) fn none() -> Self {
        Self(Rc::new([]))
    }

    pub(crate) fn one(number: u32) -> Self {
        Self::between(number, number)
    }

    /// The numbers from `low` to `high`; the empty set if `low` is greater.
    pub(crate) fn between(low: u32, high: u32) -> Self {
        if low > high { Self::none() } else { Self(Rc::new([(low, high)])) }
    }

    /// The numbers of a list.
    pub(crate) fn from_numbers(numbers: &[u32]) -> Self {
        let mut sorted: Vec<(u32, u32)> = numbers.iter().map(|&number| (number, number)).collect();
        sorted.sort_unstable();
        Self(merge_ranges(sorted).into())
    }

    /// The ranges.
    pub(crate) fn parts(&self) -> &[(u32, u32)] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        let at = self.0.partition_point(|&(_, high)| high < number);
        self.0.get(at).is_some_and(|&(low, _)| low <= number)
    }

    /// The complement.
    pub(crate) fn not(&self) -> Self {
        let mut parts = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0);
        for &(low, high) in self.0.iter() {
            if let (Some(next), Some(before)) = (next, low.checked_sub(1))
                && next <= before
            {
                parts.push((next, before));
            }
            next = high.checked_add(1);
        }
        parts.extend(next.map(|next| (next, u32::MAX)));
        Self(parts.into())
    }

    /// The intersection.
    pub(crate) fn and(&self, other: &Self) -> Self {
        let (mut parts, mut i, mut j) = (Vec::new(), 0, 0);
        while let (Some(&(a, b)), Some(&(c, d))) = (self.0.get(i), other.0.get(j)) {
            if a.max(c) <= b.min(d) {
                parts.push((a.max(c), b.min(d)));
            }
            if b < d { i += 1 } else { j += 1 }
        }
        Self(parts.into())
    }

    /// The union.
    pub(crate) fn or(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        let mut parts: Vec<(u32, u32)> = self.0.iter().chain(other.0.iter()).copied().collect();
        parts.sort_unstable();
        Self(merge_ranges(parts).into())
    }

    /// Returns true if every number of this set is in the other one.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().all(|&(low, high)| {
            let at = other.0.partition_point(|&(_, end)| end < low);
            other.0.get(at).is_some_and(|&(start, end)| start <= low && high <= end)
        })
    }

    /// Returns true if the sets have a number in common.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        let (mut i, mut j) = (0, 0);
        while let (Some(&(a, b)), Some(&(c, d))) = (self.0.get(i), other.0.get(j)) {
            if a.max(c) <= b.min(d) {
                return true;
            }
            if b < d { i += 1 } else { j += 1 }
        }
        false
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Merges sorted ranges that overlap or touch.
fn merge_ranges(sorted: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let mut parts: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
    for (low, high) in sorted {
        match parts.last_mut() {
            Some((_, end)) if low <= end.saturating_add(1) => *end = high.max(*end),
            _ => parts.push((low, high)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations_are_right_at_the_ends_of_ranges() {
        let ports = Ranges::from_numbers(&[443, 80, 81, 80]);
        assert_eq!(ports.parts(), [(80, 81), (443, 443)]);
        assert_eq!(ports.not().parts(), [(0, 79), (82, 442), (444, u32::MAX)]);
        assert_eq!(ports.not().not(), ports);
        assert_eq!(Ranges::between(0, u32::MAX).not(), Ranges::none());
        assert_eq!(Ranges::none().not(), Ranges::between(0, u32::MAX));
        assert_eq!(ports.or(&ports.not()), Ranges::between(0, u32::MAX));
        assert_eq!(ports.and(&ports.not()), Ranges::none());
        assert_eq!(ports.and(&Ranges::between(81, 500)).parts(), [(81, 81), (443, 443)]);
        assert!(Ranges::one(81).is_within(&ports) && !Ranges::between(81, 82).is_within(&ports));
        assert!(Ranges::between(82, 443).intersects(&ports) && !Ranges::between(82, 442).intersects(&ports));
        assert!(ports.contains(443) && !ports.contains(442) && !ports.contains(0));
        assert!(Ranges::between(5, 4).is_empty() && ports.len() == 2);
        assert!(Ranges::one(u32::MAX).or(&Ranges::between(0, u32::MAX - 1)) == Ranges::between(0, u32::MAX));
    }
}
