//! From a value to its class: values that no filter tells apart are one class.
//!
//! A tree over the value's bytes, the highest first. Each step is one load, and all values take the same number of steps without a branch:
//! a cell that is already a class leads to itself.

use crate::budget::{Exceeded, LookupBudget};
use crate::values::{ValueSet, ValueSets};
use std::collections::HashMap;

/// The class of what has no value.
pub(crate) const NO_VALUE: usize = 0;

/// Cells of one tree, at most: what fits beside the mask.
const CELLS_MAX: usize = 1 << 23;
const CELLS_OF_NODE: usize = 256;

/// Looks values up.
#[derive(Debug)]
pub(crate) struct Tree {
    /// First one for each class, then 256 for each node. The upper 24 bits say where to go on, the lower eight what to add of the value's byte:
    /// all of it, or nothing.
    cells: Vec<u32>,
    root: u32,
    bytes: u8,
}

/// The classes of one expression's values.
pub(crate) struct Classes {
    pub(crate) tree: Tree,
    /// For each class, which of the sets its values are in, lowest first.
    pub(crate) members: Vec<Vec<u16>>,
}

impl Tree {
    /// The class of a value that has no more significant bits than was said when the tree was made.
    #[inline(always)]
    pub(crate) fn class(&self, value: u32) -> usize {
        let mut cell = self.root;
        let bytes = value.to_le_bytes();
        if self.bytes == 4 {
            cell = self.step(self.step(cell, bytes[3]), bytes[2]);
        }
        if self.bytes != 1 {
            cell = self.step(cell, bytes[1]);
        }
        place(self.step(cell, bytes[0]))
    }

    #[inline(always)]
    fn step(&self, cell: u32, byte: u8) -> u32 {
        let to = (cell >> 8) + (u32::from(byte) & cell & 0xff);
        usize::try_from(to).ok().and_then(|to| self.cells.get(to)).copied().unwrap_or(0)
    }

    pub(crate) fn memory(&self) -> usize {
        self.cells.len() * size_of::<u32>()
    }
}

#[inline(always)]
fn place(cell: u32) -> usize {
    usize::try_from(cell >> 8).unwrap_or(0)
}

/// Where a cell leads while the tree is made.
#[derive(Clone, Copy)]
enum Cell {
    Class(usize),
    Node(usize),
}

/// What is left to decide about some values: the sets that they may be in, and those that they are in.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Open {
    bits: u8,
    live: Vec<(u16, ValueSet)>,
    held: Vec<u16>,
}

struct Making<'a> {
    values: &'a ValueSets,
    budget: &'a mut LookupBudget,
    nodes: Vec<Cell>,
    known: HashMap<Open, Cell>,
    classes: HashMap<Vec<u16>, usize>,
    members: Vec<Vec<u16>>,
}

impl Classes {
    /// Classes for the membership in these sets, of values with so many significant bits (8, 16 or 32).
    pub(crate) fn new(
        sets: &[ValueSet],
        significant_bits: u8,
        values: &ValueSets,
        budget: &mut LookupBudget,
    ) -> Result<Classes, Exceeded> {
        let mut open = Open { bits: significant_bits, live: Vec::new(), held: Vec::new() };
        for (number, &set) in sets.iter().enumerate() {
            let number = u16::try_from(number).map_err(|_| Exceeded)?;
            // The bits above are 0.
            let set = (significant_bits..32).rev().fold(set, |set, bit| values.halves(set, bit).0);
            open.add(number, set);
        }
        // The first class is that of what has no value. It is nobody's member, as may be that of other values: they are not the same.
        let mut making = Making {
            values,
            budget,
            nodes: Vec::new(),
            known: HashMap::new(),
            classes: HashMap::new(),
            members: vec![Vec::new()],
        };
        let root = making.cell(open)?;
        let leaves = making.members.len();
        let total = leaves + making.nodes.len();
        if total > CELLS_MAX {
            return Err(Exceeded);
        }
        let encode = |cell: &Cell| match *cell {
            Cell::Class(class) => u32::try_from(class << 8).unwrap_or(0),
            Cell::Node(at) => u32::try_from((leaves + at) << 8).unwrap_or(0) | 0xff,
        };
        let own = (0..leaves).map(Cell::Class).collect::<Vec<_>>();
        let cells = own.iter().chain(&making.nodes).map(encode).collect();
        let tree = Tree { cells, root: encode(&root), bytes: significant_bits / 8 };
        Ok(Classes { tree, members: making.members })
    }
}

impl Open {
    fn add(&mut self, number: u16, set: ValueSet) {
        match set {
            ValueSet::NONE => {}
            ValueSet::ALL => self.held.push(number),
            _ => self.live.push((number, set)),
        }
    }

    /// What is left where `bit` is 0 and where it is 1.
    fn halves(&self, bit: u8, values: &ValueSets) -> (Open, Open) {
        let empty = Open { bits: bit, live: Vec::new(), held: self.held.clone() };
        let mut halves = (empty.clone(), empty);
        for &(number, set) in &self.live {
            let (zero, one) = values.halves(set, bit);
            halves.0.add(number, zero);
            halves.1.add(number, one);
        }
        halves
    }
}

impl Making<'_> {
    fn cell(&mut self, mut open: Open) -> Result<Cell, Exceeded> {
        self.budget.spend(1 + open.live.len() + open.held.len())?;
        open.held.sort_unstable();
        if open.live.is_empty() {
            return self.class(open.held);
        }
        if let Some(&cell) = self.known.get(&open) {
            return Ok(cell);
        }
        // A cell is a dozen bytes while the tree is made.
        self.budget.spend(CELLS_OF_NODE / 4)?;
        let at = self.nodes.len();
        self.nodes.resize(at + CELLS_OF_NODE, Cell::Class(NO_VALUE));
        self.known.insert(open.clone(), Cell::Node(at));
        self.fill(at, CELLS_OF_NODE, open)?;
        Ok(Cell::Node(at))
    }

    /// Fills `len` cells from `at` on, between which the bits below `open.bits` decide. As deep as there are bits.
    fn fill(&mut self, at: usize, len: usize, open: Open) -> Result<(), Exceeded> {
        if len == 1 || open.live.is_empty() {
            let cell = self.cell(open)?;
            self.nodes[at..at + len].fill(cell);
            return Ok(());
        }
        self.budget.spend(1 + open.live.len() + open.held.len())?;
        let (zero, one) = open.halves(open.bits - 1, self.values);
        let half = len / 2;
        let same = zero == one;
        self.fill(at, half, zero)?;
        if same {
            self.nodes.copy_within(at..at + half, at + half);
            return Ok(());
        }
        self.fill(at + half, half, one)
    }

    fn class(&mut self, held: Vec<u16>) -> Result<Cell, Exceeded> {
        if let Some(&class) = self.classes.get(&held) {
            return Ok(Cell::Class(class));
        }
        self.budget.spend(1 + held.len())?;
        let class = self.members.len();
        self.classes.insert(held.clone(), class);
        self.members.push(held);
        Ok(Cell::Class(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::holds;
    use crate::program::Test;
    use crate::values::Bit;
    use proptest::prelude::*;

    fn classes_of(tests: &[(Test, u32, u32)], bits: u8) -> Classes {
        let (mut values, mut budget) = (ValueSets::new(), LookupBudget::new(10_000_000));
        let sets: Vec<ValueSet> = tests
            .iter()
            .map(|&(test, mask, k)| {
                let masked = std::array::from_fn(|bit| match u8::try_from(bit) {
                    Ok(number) if mask >> bit & 1 == 1 => Bit::Of { bit: number, flipped: false },
                    _ => Bit::Always(false),
                });
                values.test(test, &masked, k, &mut budget).unwrap()
            })
            .collect();
        Classes::new(&sets, bits, &values, &mut budget).unwrap()
    }

    fn any_test() -> impl Strategy<Value = (Test, u32, u32)> {
        let test = prop_oneof![Just(Test::Eq), Just(Test::Gt), Just(Test::Ge), Just(Test::Set)];
        let mask = prop_oneof![Just(u32::MAX), (0..32_u32).prop_map(|bit| u32::MAX << bit), any::<u32>()];
        (test, mask, prop_oneof![any::<u32>(), 0..300_u32])
    }

    proptest! {
        #[test]
        fn a_class_has_the_values_for_which_the_same_tests_hold(
            tests in prop::collection::vec(any_test(), 1..8),
            bits in prop_oneof![Just(8_u8), Just(16), Just(32)],
            values in prop::collection::vec(prop_oneof![any::<u32>(), 0..300_u32], 20),
        ) {
            let classes = classes_of(&tests, bits);
            for value in values.into_iter().chain(tests.iter().map(|test| test.2)) {
                let value = value & (u32::MAX >> (32 - bits));
                let class = classes.tree.class(value);
                let expected: Vec<u16> = (0_u16..)
                    .zip(&tests)
                    .filter(|&(_, &(test, mask, k))| holds(test, value & mask, k))
                    .map(|(number, _)| number)
                    .collect();
                prop_assert_ne!(class, NO_VALUE);
                prop_assert_eq!(&classes.members[class], &expected);
            }
        }
    }

    #[test]
    fn there_are_not_more_classes_than_can_be_told_apart() {
        let ports = [(Test::Eq, u32::MAX, 80), (Test::Eq, u32::MAX, 443), (Test::Ge, u32::MAX, 400)];
        // None, 80, from 400 on, 443.
        assert_eq!(classes_of(&ports, 16).members.len() - 1, 4);
    }
}
