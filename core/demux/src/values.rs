//! Sets of 32-bit values as reduced ordered binary decision diagrams. The diagram of a set is unique, so equal sets
//! have equal identifiers.
//!
//! R. Bryant: "Graph-Based Algorithms for Boolean Function Manipulation", IEEE Transactions on Computers, 1986. The
//! highest bit is tested first, so that addresses, networks and ranges take at most two nodes for each bit.

use crate::budget::{Exceeded, LookupBudget};
use crate::program::Test;
use std::collections::HashMap;

/// The identifier of a set in its [`ValueSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ValueSet(u32);

impl ValueSet {
    /// The empty set.
    pub(crate) const NONE: Self = Self(0);
    /// The set of all values.
    pub(crate) const ALL: Self = Self(1);

    /// Returns true for the empty set and the set of all values.
    pub(crate) fn is_constant(self) -> bool {
        self.0 < 2
    }
}

/// A bit of a number that a filter computes from another number, the *original*. The filter computes it by AND, OR, XOR
/// and shifts with constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bit {
    /// The bit has the same value for every original.
    Always(bool),
    /// The bit equals this bit of the original, or its opposite if `flipped` is true.
    Of { bit: u8, flipped: bool },
}

/// A node of a diagram, which tests one bit of a value. The set has the values of `zero` in which the bit is 0, and the
/// values of `one` in which the bit is 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    bit: u8,
    zero: ValueSet,
    one: ValueSet,
}

/// All value sets of the joined filters.
pub(crate) struct ValueSets {
    nodes: Vec<Node>,
    /// The set of each node.
    known: HashMap<Node, ValueSet>,
    /// The results of earlier unions (true) and intersections (false) of two sets.
    combined: HashMap<(bool, ValueSet, ValueSet), ValueSet>,
    complements: HashMap<ValueSet, ValueSet>,
}

impl ValueSets {
    pub(crate) fn new() -> Self {
        // The contents of the nodes of the two constant sets are never used.
        let constant = |set| Node { bit: 0, zero: set, one: set };
        Self {
            nodes: vec![constant(ValueSet::NONE), constant(ValueSet::ALL)],
            known: HashMap::new(),
            combined: HashMap::new(),
            complements: HashMap::new(),
        }
    }

    /// The cofactors of a set: the values that are in the set if their bit number `bit` is replaced by 0, and by 1. The
    /// set's diagram must not test a higher bit.
    pub(crate) fn halves(&self, set: ValueSet, bit: u8) -> (ValueSet, ValueSet) {
        match self.nodes.get(usize::try_from(set.0).unwrap_or(usize::MAX)) {
            Some(node) if !set.is_constant() && node.bit == bit => (node.zero, node.one),
            _ => (set, set),
        }
    }

    fn node(&self, set: ValueSet) -> Node {
        self.nodes[usize::try_from(set.0).unwrap_or(0)]
    }

    /// The set that consists of `zero` where `bit` is 0 and of `one` where it is 1.
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

    /// The set of originals for which a test of the computed number against `k` holds. `bits` are the bits of the
    /// computed number, lowest first. The bits that come from the original are in ascending order of its bits.
    pub(crate) fn test(
        &mut self,
        test: Test,
        bits: &[Bit; 32],
        k: u32,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        // The set for which the test holds on the lowest bits alone, up to the current one. Before the first bit, both
        // numbers have no bits and are equal: `Eq` and `Ge` hold, `Gt` and `Set` do not.
        let mut set = match test {
            Test::Eq | Test::Ge => ValueSet::ALL,
            Test::Gt | Test::Set => ValueSet::NONE,
        };
        for (at, bit) in bits.iter().enumerate() {
            let k_bit = k >> at & 1 == 1;
            let (zero, one) = match (test, k_bit) {
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

    /// The intersection of two sets.
    pub(crate) fn and(
        &mut self,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        self.combine(false, a, b, budget)
    }

    /// The union of two sets.
    pub(crate) fn or(
        &mut self,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        self.combine(true, a, b, budget)
    }

    /// The union (`is_union`) or intersection of two sets.
    fn combine(
        &mut self,
        is_union: bool,
        a: ValueSet,
        b: ValueSet,
        budget: &mut LookupBudget,
    ) -> Result<ValueSet, Exceeded> {
        let (neutral, absorbing) =
            if is_union { (ValueSet::NONE, ValueSet::ALL) } else { (ValueSet::ALL, ValueSet::NONE) };
        if a == b || b == neutral {
            return Ok(a);
        }
        if a == neutral {
            return Ok(b);
        }
        if a == absorbing || b == absorbing {
            return Ok(absorbing);
        }
        let key = (is_union, a.min(b), a.max(b));
        if let Some(&set) = self.combined.get(&key) {
            return Ok(set);
        }
        budget.spend(1)?;
        // At most 32 levels deep: one for each bit.
        let bit = self.node(a).bit.max(self.node(b).bit);
        let ((a0, a1), (b0, b1)) = (self.halves(a, bit), self.halves(b, bit));
        let zero = self.combine(is_union, a0, b0, budget)?;
        let one = self.combine(is_union, a1, b1, budget)?;
        let set = self.make(bit, zero, one, budget)?;
        self.combined.insert(key, set);
        Ok(set)
    }

    /// The complement of a set.
    pub(crate) fn not(&mut self, set: ValueSet, budget: &mut LookupBudget) -> Result<ValueSet, Exceeded> {
        if set.is_constant() {
            return Ok(if set == ValueSet::NONE { ValueSet::ALL } else { ValueSet::NONE });
        }
        if let Some(&complement) = self.complements.get(&set) {
            return Ok(complement);
        }
        budget.spend(1)?;
        let Node { bit, zero, one } = self.node(set);
        let zero = self.not(zero, budget)?;
        let one = self.not(one, budget)?;
        let complement = self.make(bit, zero, one, budget)?;
        self.complements.insert(set, complement);
        self.complements.insert(complement, set);
        Ok(complement)
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
        fn sets_contain_exactly_the_values_that_satisfy_their_tests(test in any_test(), other in any_test(), k in number(), l in number(), value in number()) {
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
            // Equal sets have equal identifiers.
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
