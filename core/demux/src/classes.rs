//! Classes of values: values that no filter distinguishes form one class.
//!
//! The class of a value is looked up in a tree over the bytes of the value, the highest byte first. Each step is one
//! load. All values take the same number of steps, so that no branch is needed: a cell that stands for a class leads to
//! itself.

use crate::budget::{Exceeded, LookupBudget};
use crate::values::{ValueSet, ValueSets};
use std::collections::HashMap;

/// The class of an expression that has no value for a packet, because the packet ends before the bytes to load.
pub(crate) const NO_VALUE: usize = 0;

/// The most cells of one tree. The index of a cell has 24 bits, because a mask takes the other eight. Half of
/// the indices stay unused, so a tree takes at most 32 MiB.
const CELLS_MAX: usize = 1 << 23;
const CELLS_OF_NODE: usize = 256;

/// A look-up table from values to classes.
#[derive(Debug)]
pub(crate) struct ClassTree {
    /// One cell for each class, followed by 256 cells for each node. The upper 24 bits of a cell are the index of the
    /// next cell; the next byte of the value is added to the index. The lower eight bits are a mask for that byte: 255
    /// in a cell that leads to a node, and 0 in a cell that leads to a class.
    cells: Vec<u32>,
    /// The first cell, which leads to the root.
    root: u32,
    /// The number of bytes of a value.
    bytes: u8,
}

/// The classes of one expression's values. The filters test whether a value is in certain sets; the values of a class are
/// in the same sets.
pub(crate) struct Classes {
    pub(crate) tree: ClassTree,
    /// For each class, the indices (in the argument of [`Classes::new`]) of the sets that contain its values, lowest
    /// first.
    pub(crate) sets_of_class: Vec<Vec<u16>>,
}

impl ClassTree {
    /// The class of a value. The value must fit into the number of bits that the tree was made for.
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
        target(self.step(cell, bytes[0]))
    }

    #[inline(always)]
    fn step(&self, cell: u32, byte: u8) -> u32 {
        let to = (cell >> 8) + (u32::from(byte) & cell & 0xff);
        usize::try_from(to).ok().and_then(|to| self.cells.get(to)).copied().unwrap_or(0)
    }

    /// The bytes of memory that the tree takes.
    pub(crate) fn memory(&self) -> usize {
        self.cells.len() * size_of::<u32>()
    }
}

#[inline(always)]
fn target(cell: u32) -> usize {
    usize::try_from(cell >> 8).unwrap_or(0)
}

/// A cell while the tree is built: the class or node that it leads to. A node is the index of its first cell.
#[derive(Clone, Copy)]
enum Cell {
    Class(usize),
    Node(usize),
}

/// The sets that contain the values with certain highest bits. The other bits of these values are unknown.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PartialMembership {
    /// The number of unknown bits.
    unknown_bits: u8,
    /// The sets that contain some of the values, each with its index.
    undecided: Vec<(u16, ValueSet)>,
    /// The indices of the sets that contain all the values.
    containing_sets: Vec<u16>,
}

/// The state of building a [`ClassTree`].
struct TreeBuilder<'a> {
    values: &'a ValueSets,
    budget: &'a mut LookupBudget,
    nodes: Vec<Cell>,
    known: HashMap<PartialMembership, Cell>,
    classes: HashMap<Vec<u16>, usize>,
    sets_of_class: Vec<Vec<u16>>,
}

impl Classes {
    /// Makes a class of all values that the same of these `sets` contain. The values have 8, 16 or 32 `significant_bits`.
    pub(crate) fn new(
        sets: &[ValueSet],
        significant_bits: u8,
        values: &ValueSets,
        budget: &mut LookupBudget,
    ) -> Result<Classes, Exceeded> {
        // The membership of all values: no bit is known.
        let mut all_values = PartialMembership {
            unknown_bits: significant_bits,
            undecided: Vec::new(),
            containing_sets: Vec::new(),
        };
        for (number, &set) in sets.iter().enumerate() {
            let number = u16::try_from(number).map_err(|_| Exceeded)?;
            // All bits above the significant ones are 0.
            let set = (significant_bits..32).rev().fold(set, |set, bit| values.halves(set, bit).0);
            all_values.add(number, set);
        }
        // The first class is that of expressions without a value, which are in no set. Values that are in no set form
        // another class.
        let mut builder = TreeBuilder {
            values,
            budget,
            nodes: Vec::new(),
            known: HashMap::new(),
            classes: HashMap::new(),
            sets_of_class: vec![Vec::new()],
        };
        let root = builder.cell(all_values)?;
        let leaves = builder.sets_of_class.len();
        let total = leaves + builder.nodes.len();
        if total > CELLS_MAX {
            return Err(Exceeded);
        }
        let encode = |cell: &Cell| match *cell {
            Cell::Class(class) => u32::try_from(class << 8).unwrap_or(0),
            Cell::Node(at) => u32::try_from((leaves + at) << 8).unwrap_or(0) | 0xff,
        };
        let class_cells = (0..leaves).map(Cell::Class).collect::<Vec<_>>();
        let cells = class_cells.iter().chain(&builder.nodes).map(encode).collect();
        let tree = ClassTree { cells, root: encode(&root), bytes: significant_bits / 8 };
        Ok(Classes { tree, sets_of_class: builder.sets_of_class })
    }
}

impl PartialMembership {
    /// Adds a set, which contains none, all or some of the values.
    fn add(&mut self, index: u16, set: ValueSet) {
        match set {
            ValueSet::NONE => {}
            ValueSet::ALL => self.containing_sets.push(index),
            _ => self.undecided.push((index, set)),
        }
    }

    /// The memberships of the values in which `bit` is 0, and of the values in which it is 1.
    fn halves(&self, bit: u8, values: &ValueSets) -> (PartialMembership, PartialMembership) {
        let empty = PartialMembership {
            unknown_bits: bit,
            undecided: Vec::new(),
            containing_sets: self.containing_sets.clone(),
        };
        let mut halves = (empty.clone(), empty);
        for &(index, set) in &self.undecided {
            let (zero, one) = values.halves(set, bit);
            halves.0.add(index, zero);
            halves.1.add(index, one);
        }
        halves
    }
}

impl TreeBuilder<'_> {
    /// The cell for values with this membership.
    fn cell(&mut self, mut membership: PartialMembership) -> Result<Cell, Exceeded> {
        self.budget.spend(1 + membership.undecided.len() + membership.containing_sets.len())?;
        membership.containing_sets.sort_unstable();
        if membership.undecided.is_empty() {
            return self.class(membership.containing_sets);
        }
        if let Some(&cell) = self.known.get(&membership) {
            return Ok(cell);
        }
        // A [`Cell`] takes 16 bytes while the tree is built, and four of them count as a unit of work.
        self.budget.spend(CELLS_OF_NODE / 4)?;
        let at = self.nodes.len();
        self.nodes.resize(at + CELLS_OF_NODE, Cell::Class(NO_VALUE));
        self.known.insert(membership.clone(), Cell::Node(at));
        self.fill(at, CELLS_OF_NODE, membership)?;
        Ok(Cell::Node(at))
    }

    /// Fills `len` cells from `at` on, for values with this membership. The unknown bits distinguish the cells.
    /// The recursion is at most as deep as there are bits in a byte.
    fn fill(&mut self, at: usize, len: usize, membership: PartialMembership) -> Result<(), Exceeded> {
        if len == 1 || membership.undecided.is_empty() {
            let cell = self.cell(membership)?;
            self.nodes[at..at + len].fill(cell);
            return Ok(());
        }
        self.budget.spend(1 + membership.undecided.len() + membership.containing_sets.len())?;
        let (zero, one) = membership.halves(membership.unknown_bits - 1, self.values);
        let half = len / 2;
        let same = zero == one;
        self.fill(at, half, zero)?;
        if same {
            self.nodes.copy_within(at..at + half, at + half);
            return Ok(());
        }
        self.fill(at + half, half, one)
    }

    /// The class of values that are in these sets.
    fn class(&mut self, containing_sets: Vec<u16>) -> Result<Cell, Exceeded> {
        if let Some(&class) = self.classes.get(&containing_sets) {
            return Ok(Cell::Class(class));
        }
        self.budget.spend(1 + containing_sets.len())?;
        let class = self.sets_of_class.len();
        self.classes.insert(containing_sets.clone(), class);
        self.sets_of_class.push(containing_sets);
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
                prop_assert_eq!(&classes.sets_of_class[class], &expected);
            }
        }
    }

    #[test]
    fn there_are_no_more_classes_than_the_tests_distinguish() {
        let ports = [(Test::Eq, u32::MAX, 80), (Test::Eq, u32::MAX, 443), (Test::Ge, u32::MAX, 400)];
        // None, 80, from 400 on, 443.
        assert_eq!(classes_of(&ports, 16).sets_of_class.len() - 1, 4);
    }
}
