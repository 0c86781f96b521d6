//! Sets of 32-bit values, each as the one reduced ordered binary decision diagram that it has: equal sets have equal numbers.
//!
//! R. Bryant: "Graph-Based Algorithms for Boolean Function Manipulation", IEEE Transactions on Computers, 1986. The highest bit is
//! looked at first, so that addresses, networks and ranges take at most two nodes for each bit.

use crate::budget::{Exceeded, LookupBudget};
use crate::program::Test;
use std::collections::HashMap;

/// A set, by its number in its [`ValueSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueSet(u32);

impl ValueSet {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const ALL: Self = Self(1);

    pub(crate) fn is_decided(self) -> bool {
        self.0 < 2
    }
}

/// A bit of a computed number, in terms of the number from which it was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bit {
    Always(bool),
    /// This bit of the original, or its opposite.
    Of {
        bit: u8,
        flipped: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    bit: u8,
    zero: ValueSet,
    one: ValueSet,
}

/// All sets that were made.
pub(crate) struct ValueSets {
    nodes: Vec<Node>,
    known: HashMap<Node, ValueSet>,
    joined: HashMap<(bool, ValueSet, ValueSet), ValueSet>,
    opposites: HashMap<ValueSet, ValueSet>,
}

impl ValueSets {
    pub(crate) fn new() -> Self {
        // The two decided sets have places of their own, which nobody looks into.
        let decided = |set| Node { bit: 0, zero: set, one: set };
        Self {
            nodes: vec![decided(ValueSet::NONE), decided(ValueSet::ALL)],
            known: HashMap::new(),
            joined: HashMap::new(),
            opposites: HashMap::new(),
        }
    }

    /// The values of the set whose `bit` is 0, and those where it is 1. No higher bit may decide over the set.
    pub(crate) fn halves(&self, set: ValueSet, bit: u8) -> (ValueSet, ValueSet) {
        match self.nodes.get(usize::try_from(set.0).unwrap_or(usize::MAX)) {
            Some(node) if !set.is_decided() && node.bit == bit => (node.zero, node.one),
            _ => (set, set),
        }
    }

    fn node(&self, set: ValueSet) -> Node {
        self.nodes[usize::try_from(set.0).unwrap_or(0)]
    }

    fn make(
        &mut self,
        bit: u8,
        zero: ValueSet,
        one: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        if zero == one {
            return Ok(zero);
        }
        budget.spend(1)?;
        let node = Node { bit, zero, one };
        let next = ValueSet(u32::try_from(self.nodes.len()).map_err(|_| Exceeded)?);
        let set = *self.known.entry(node).or_insert(next);
        if set == next {
            self.nodes.push(node);
        }
        Ok(set)
    }

    /// The originals for which a test of the computed number against `k` holds. `bits` are the number's, lowest first, each of a
    /// higher bit of the original than the one before.
    pub(crate) fn test(
        &mut self,
        test: Test,
        bits: &[Bit; 32],
        k: u32,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        // What holds where all bits looked at so far are those of k.
        let mut set = match test {
            Test::Eq | Test::Ge => ValueSet::ALL,
            Test::Gt | Test::Set => ValueSet::NONE,
        };
        for (at, bit) in bits.iter().enumerate() {
            let wanted = k >> at & 1 == 1;
            let (zero, one) = match (test, wanted) {
                (Test::Eq, true) => (ValueSet::NONE, set),
                (Test::Eq, false) => (set, ValueSet::NONE),
                (Test::Gt | Test::Ge, true) => (ValueSet::NONE, set),
                (Test::Gt | Test::Ge, false) | (Test::Set, true) => (set, ValueSet::ALL),
                (Test::Set, false) => (set, set),
            };
            set = match *bit {
                Bit::Always(value) => {
                    if value {
                        one
                    } else {
                        zero
                    }
                }
                Bit::Of { bit, flipped: false } => self.make(bit, zero, one, budget)?,
                Bit::Of { bit, flipped: true } => self.make(bit, one, zero, budget)?,
            };
        }
        Ok(set)
    }

    /// The values that are in both.
    pub(crate) fn and(
        &mut self,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        self.join(false, a, b, budget)
    }

    /// The values that are in one or both.
    pub(crate) fn or(
        &mut self,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        self.join(true, a, b, budget)
    }

    fn join(
        &mut self,
        or: bool,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        let (neutral, winner) =
            if or { (ValueSet::NONE, ValueSet::ALL) } else { (ValueSet::ALL, ValueSet::NONE) };
        if a == b || b == neutral {
            return Ok(a);
        }
        if a == neutral {
            return Ok(b);
        }
        if a == winner || b == winner {
            return Ok(winner);
        }
        let key = (or, a.min(b), a.max(b));
        if let Some(&set) = self.joined.get(&key) {
            return Ok(set);
        }
        budget.spend(1)?;
        // 32 deep at most: one for each bit.
        let bit = self.node(a).bit.max(self.node(b).bit);
        let ((a0, a1), (b0, b1)) = (self.halves(a, bit), self.halves(b, bit));
        let zero = self.join(or, a0, b0, budget)?;
        let one = self.join(or, a1, b1, budget)?;
        let set = self.make(bit, zero, one, budget)?;
        self.joined.insert(key, set);
        Ok(set)
    }

    /// The values that are not in it.
    pub(crate) fn not(&mut self, set: ValueSet, budget: &mut LookupBudget) -> Result<ValueSet, Exceeded> {
        if set.is_decided() {
            return Ok(if set == ValueSet::NONE { ValueSet::ALL } else { ValueSet::NONE });
        }
        if let Some(&opposite) = self.opposites.get(&set) {
            return Ok(opposite);
        }
        budget.spend(1)?;
        let Node { bit, zero, one } = self.node(set);
        let zero = self.not(zero, budget)?;
        let one = self.not(one, budget)?;
        let opposite = self.make(bit, zero, one, budget)?;
        self.opposites.insert(set, opposite);
        self.opposites.insert(opposite, set);
        Ok(opposite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::holds;
    use proptest::prelude::*;

    fn contains(values: &ValueSets, mut set: ValueSet, value: u32) -> bool {
        for bit in (0..32).rev() {
            let (zero, one) = values.halves(set, bit);
            set = if value >> bit & 1 == 1 { one } else { zero };
        }
        set == ValueSet::ALL
    }

    fn plain() -> [Bit; 32] {
        std::array::from_fn(|bit| Bit::Of { bit: u8::try_from(bit).unwrap(), flipped: false })
    }

    fn any_test() -> impl Strategy<Value = Test> {
        prop_oneof![Just(Test::Eq), Just(Test::Gt), Just(Test::Ge), Just(Test::Set)]
    }

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![any::<u32>(), 0..20_u32, (0..32_u32).prop_map(|bit| u32::MAX << bit)]
    }

    proptest! {
        #[test]
        fn sets_hold_what_they_should(test in any_test(), other in any_test(), k in number(), l in number(), value in number()) {
            let (mut values, mut budget) = (ValueSets::new(), LookupBudget::new(100_000));
            let a = values.test(test, &plain(), k, &mut budget).unwrap();
            let b = values.test(other, &plain(), l, &mut budget).unwrap();
            let and = values.and(a, b, &mut budget).unwrap();
            let or = values.or(a, b, &mut budget).unwrap();
            let not = values.not(a, &mut budget).unwrap();
            for value in [value, k, l, k.wrapping_add(1), l.wrapping_sub(1)] {
                let (in_a, in_b) = (holds(test, value, k), holds(other, value, l));
                prop_assert_eq!(contains(&values, a, value), in_a);
                prop_assert_eq!(contains(&values, and, value), in_a && in_b);
                prop_assert_eq!(contains(&values, or, value), in_a || in_b);
                prop_assert_eq!(contains(&values, not, value), !in_a);
            }
            // Equal sets have equal numbers.
            prop_assert_eq!(values.or(a, not, &mut budget).unwrap(), ValueSet::ALL);
            prop_assert_eq!(values.not(not, &mut budget).unwrap(), a);
        }
    }

    #[test]
    fn work_is_bounded() {
        let mut budget = LookupBudget::new(10);
        assert_eq!(ValueSets::new().test(Test::Eq, &plain(), 1, &mut budget), Err(Exceeded));
    }
}
