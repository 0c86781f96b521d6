//! The values that tests use: numbers computed from a packet, without duplicates.

use crate::error::FilterFault;
use crate::ranges::Ranges;
use std::collections::HashMap;
use weir_demux::{Alu, LoadWidth};

/// The most values of one filter. A filter of 4,096 bytes has a few thousand.
const VALUES_MAX: usize = 16_384;
/// The most nested operators of a value: values are computed recursively.
const DEPTH_MAX: u16 = 700;

/// The identifier of a value in its [`FilterValues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FilterValueId(usize);

/// The machine's comparisons, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Relation {
    Equal,
    Greater,
    GreaterOrEqual,
}

/// A number computed from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PacketValue {
    Constant(u32),
    /// The length of the packet on the link.
    Length,
    /// The bytes at `offset`, or at `base + offset`. A packet without them is rejected.
    Load {
        base: Option<FilterValueId>,
        offset: u32,
        width: LoadWidth,
    },
    /// Four times the lower half of the byte at the offset: the length of an IPv4 header.
    HeaderLength(u32),
    /// The result of an operation on two values.
    Compute(Alu, FilterValueId, FilterValueId),
    /// The value times -1, modulo 2^32.
    Negate(FilterValueId),
    /// 1 where the relation holds, else 0.
    Compare(Relation, FilterValueId, FilterValueId),
    /// The content of a word of scratch memory. The version distinguishes the values that are stored in the word one
    /// after another.
    Scratch {
        word: u8,
        version: u32,
    },
}

/// All values of a filter.
#[derive(Debug, Default)]
pub(crate) struct FilterValues {
    all: Vec<PacketValue>,
    known: HashMap<PacketValue, FilterValueId>,
    /// For each value, the nesting of its operators.
    depths: Vec<u16>,
    /// For each value, the number of words of scratch memory that its computation needs.
    words: Vec<u8>,
    /// The last version of a word of scratch memory.
    last_version: u32,
}

impl FilterValues {
    pub(crate) fn get(&self, id: FilterValueId) -> PacketValue {
        self.all.get(id.0).copied().unwrap_or(PacketValue::Constant(0))
    }

    /// The number of words of scratch memory that the computation of a value needs (R. Sethi, J. D. Ullman: "The
    /// Generation of Optimal Code for Arithmetic Expressions", Journal of the ACM, 1970).
    pub(crate) fn words(&self, id: FilterValueId) -> u8 {
        self.words.get(id.0).copied().unwrap_or(0)
    }

    pub(crate) fn constant_of(&self, id: FilterValueId) -> Option<u32> {
        match self.get(id) {
            PacketValue::Constant(number) => Some(number),
            _ => None,
        }
    }

    /// The identifier of a value, which is added if it is new.
    fn make(&mut self, value: PacketValue) -> Result<FilterValueId, FilterFault> {
        if let Some(&id) = self.known.get(&value) {
            return Ok(id);
        }
        if self.all.len() >= VALUES_MAX {
            return Err(FilterFault::TooComplex);
        }
        let depth = |id: FilterValueId| self.depths.get(id.0).copied().unwrap_or(0);
        let (depth, words) = match value {
            PacketValue::Load { base: Some(of), .. } | PacketValue::Negate(of) => (depth(of), self.words(of)),
            PacketValue::Compute(_, a, b) | PacketValue::Compare(_, a, b) => {
                let words = if self.fits_x(b) {
                    self.words(a)
                } else if self.words(a) == self.words(b) {
                    self.words(a) + 1
                } else {
                    self.words(a).max(self.words(b))
                };
                (depth(a).max(depth(b)), words.max(u8::from(!self.fits_x(b))))
            }
            _ => (0, 0),
        };
        if depth >= DEPTH_MAX {
            return Err(FilterFault::TooComplex);
        }
        let id = FilterValueId(self.all.len());
        self.all.push(value);
        self.depths.push(depth + 1);
        self.words.push(words);
        self.known.insert(value, id);
        Ok(id)
    }

    /// Returns true for a value that can be loaded into the index register without changing the accumulator.
    pub(crate) fn fits_x(&self, id: FilterValueId) -> bool {
        matches!(
            self.get(id),
            PacketValue::Constant(_)
                | PacketValue::Length
                | PacketValue::HeaderLength(_)
                | PacketValue::Scratch { .. }
        )
    }

    pub(crate) fn constant(&mut self, number: u32) -> Result<FilterValueId, FilterFault> {
        self.make(PacketValue::Constant(number))
    }

    pub(crate) fn length(&mut self) -> Result<FilterValueId, FilterFault> {
        self.make(PacketValue::Length)
    }

    pub(crate) fn header_length(&mut self, offset: u32) -> Result<FilterValueId, FilterFault> {
        self.make(PacketValue::HeaderLength(offset))
    }

    pub(crate) fn load(
        &mut self,
        base: Option<FilterValueId>,
        offset: u32,
        width: LoadWidth,
    ) -> Result<FilterValueId, FilterFault> {
        match base.map(|base| (base, self.constant_of(base))) {
            Some((_, Some(constant))) => {
                self.make(PacketValue::Load { base: None, offset: offset.wrapping_add(constant), width })
            }
            Some((base, None)) => self.make(PacketValue::Load { base: Some(base), offset, width }),
            None => self.make(PacketValue::Load { base: None, offset, width }),
        }
    }

    /// The content of a word of scratch memory after the next store to it: a new version.
    pub(crate) fn stored(&mut self, word: u8) -> Result<FilterValueId, FilterFault> {
        self.last_version += 1;
        self.make(PacketValue::Scratch { word, version: self.last_version })
    }

    pub(crate) fn negate(&mut self, of: FilterValueId) -> Result<FilterValueId, FilterFault> {
        match self.constant_of(of) {
            Some(number) => self.constant(number.wrapping_neg()),
            None => self.make(PacketValue::Negate(of)),
        }
    }

    /// `a operator b`. If a constant operand decides the result, the other operand is not computed, as in libpcap.
    pub(crate) fn compute(
        &mut self,
        operator: Alu,
        a: FilterValueId,
        b: FilterValueId,
    ) -> Result<FilterValueId, FilterFault> {
        use Alu::{Add, And, Div, Lsh, Mod, Mul, Or, Rsh, Sub, Xor};
        let (left, right) = (self.constant_of(a), self.constant_of(b));
        match (operator, left) {
            (Add | Or | Xor, Some(0)) => return Ok(b),
            (Mul | Div | Mod | And | Lsh | Rsh, Some(0)) => return self.constant(0),
            _ => {}
        }
        match (operator, right) {
            (Div | Mod, Some(0)) => return Err(FilterFault::DivisionByZero),
            (Lsh | Rsh, Some(bits)) if bits > 31 => return Err(FilterFault::Shift(bits)),
            (Mul | And, Some(0)) => return self.constant(0),
            (Add | Sub | Or | Xor | Lsh | Rsh, Some(0)) | (Mul | Div, Some(1)) | (And, Some(u32::MAX)) => {
                return Ok(a);
            }
            _ => {}
        }
        if let (Some(a), Some(b)) = (left, right) {
            return self.constant(operator.compute(a, b).unwrap_or(0));
        }
        // A constant is made the right operand, where it is a part of the instruction.
        let commutes = matches!(operator, Add | Mul | And | Or | Xor);
        if commutes && left.is_some() {
            return self.make(PacketValue::Compute(operator, b, a));
        }
        self.make(PacketValue::Compute(operator, a, b))
    }

    /// Writes a relation of two values as a test of one value: returns that value, and the numbers for which the
    /// relation holds.
    pub(crate) fn relate(
        &mut self,
        relation: Relation,
        a: FilterValueId,
        b: FilterValueId,
    ) -> Result<(FilterValueId, Ranges), FilterFault> {
        Ok(match (self.constant_of(a), self.constant_of(b)) {
            (_, Some(b)) => (
                a,
                match relation {
                    Relation::Equal => Ranges::one(b),
                    Relation::Greater => {
                        b.checked_add(1).map_or(Ranges::none(), |b| Ranges::between(b, u32::MAX))
                    }
                    Relation::GreaterOrEqual => Ranges::between(b, u32::MAX),
                },
            ),
            (Some(a), None) => (
                b,
                match relation {
                    Relation::Equal => Ranges::one(a),
                    Relation::Greater => a.checked_sub(1).map_or(Ranges::none(), |a| Ranges::between(0, a)),
                    Relation::GreaterOrEqual => Ranges::between(0, a),
                },
            ),
            (None, None) => (self.make(PacketValue::Compare(relation, a, b))?, Ranges::one(1)),
        })
    }

    /// The greatest number that the value can be.
    pub(crate) fn max(&self, id: FilterValueId) -> u32 {
        match self.get(id) {
            PacketValue::Load { width, .. } => width.max(),
            PacketValue::Compute(Alu::And, a, b) => {
                self.constant_of(b).unwrap_or(u32::MAX).min(match self.get(a) {
                    PacketValue::Load { width, .. } => width.max(),
                    _ => u32::MAX,
                })
            }
            PacketValue::Compare(..) => 1,
            _ => u32::MAX,
        }
    }

    /// The demands of a value on the packet, from its loads and divisions.
    pub(crate) fn demands(&self, id: FilterValueId) -> Vec<Demand> {
        let (mut demands, mut pending) = (Vec::new(), vec![id]);
        let mut seen = std::collections::HashSet::new();
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.get(id) {
                PacketValue::Load { base, offset, width } => {
                    demands.push(Demand::Bytes { base, end: u64::from(offset) + u64::from(width.bytes()) });
                    pending.extend(base);
                }
                PacketValue::HeaderLength(offset) => {
                    demands.push(Demand::Bytes { base: None, end: u64::from(offset) + 1 });
                }
                PacketValue::Compute(operator, a, b) => {
                    if matches!(operator, Alu::Div | Alu::Mod) && self.constant_of(b).is_none() {
                        demands.push(Demand::Quotient(id));
                    }
                    pending.extend([a, b]);
                }
                PacketValue::Compare(_, a, b) => pending.extend([a, b]),
                PacketValue::Negate(of) => pending.push(of),
                PacketValue::Constant(_) | PacketValue::Length | PacketValue::Scratch { .. } => {}
            }
        }
        demands
    }
}

/// A condition that a value needs to be computed. A packet that does not meet it is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Demand {
    /// The packet has all bytes before `base + end`.
    Bytes { base: Option<FilterValueId>, end: u64 },
    /// The divisor of this quotient is not 0.
    Quotient(FilterValueId),
}
