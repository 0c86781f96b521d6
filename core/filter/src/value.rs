//! Values that tests look at: numbers computed from a packet, each kept once.

use crate::error::FilterFault;
use crate::ranges::Ranges;
use std::collections::HashMap;
use weir_demux::{Alu, LoadWidth};

/// Values of one filter, at most. A filter of 4,096 bytes has a few thousand.
const VALUES_MAX: usize = 16_384;
/// Operators between a value and its deepest operand, at most: values are computed recursively.
const DEPTH_MAX: u16 = 700;

/// An index into [`FilterValues`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(usize);

/// Comparisons of the machine, unsigned.
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
        base: Option<ValueId>,
        offset: u32,
        width: LoadWidth,
    },
    /// Four times the lower half of the byte at the offset: the length of an IPv4 header.
    HeaderLength(u32),
    Compute(Alu, ValueId, ValueId),
    Negate(ValueId),
    /// 1 where the relation holds, else 0.
    Compare(Relation, ValueId, ValueId),
    /// A word of scratch memory. The version tells apart what is stored there one after the other.
    Scratch {
        word: u8,
        version: u32,
    },
}

/// All values of a filter.
#[derive(Debug, Default)]
pub(crate) struct FilterValues {
    all: Vec<PacketValue>,
    known: HashMap<PacketValue, ValueId>,
    depths: Vec<u16>,
    /// Words of scratch memory that computing it takes.
    words: Vec<u8>,
    stored: u32,
}

impl FilterValues {
    pub(crate) fn get(&self, id: ValueId) -> PacketValue {
        self.all.get(id.0).copied().unwrap_or(PacketValue::Constant(0))
    }

    /// The words of scratch memory that computing a value takes, as Sethi and Ullman count registers.
    pub(crate) fn words(&self, id: ValueId) -> u8 {
        self.words.get(id.0).copied().unwrap_or(0)
    }

    pub(crate) fn constant_of(&self, id: ValueId) -> Option<u32> {
        match self.get(id) {
            PacketValue::Constant(number) => Some(number),
            _ => None,
        }
    }

    fn make(&mut self, value: PacketValue) -> Result<ValueId, FilterFault> {
        if let Some(&id) = self.known.get(&value) {
            return Ok(id);
        }
        if self.all.len() >= VALUES_MAX {
            return Err(FilterFault::Complex);
        }
        let depth = |id: ValueId| self.depths.get(id.0).copied().unwrap_or(0);
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
            return Err(FilterFault::Complex);
        }
        let id = ValueId(self.all.len());
        self.all.push(value);
        self.depths.push(depth + 1);
        self.words.push(words);
        self.known.insert(value, id);
        Ok(id)
    }

    /// A value that goes straight into the index register, and leaves the accumulator as it is.
    pub(crate) fn fits_x(&self, id: ValueId) -> bool {
        matches!(
            self.get(id),
            PacketValue::Constant(_)
                | PacketValue::Length
                | PacketValue::HeaderLength(_)
                | PacketValue::Scratch { .. }
        )
    }

    pub(crate) fn constant(&mut self, number: u32) -> Result<ValueId, FilterFault> {
        self.make(PacketValue::Constant(number))
    }

    pub(crate) fn length(&mut self) -> Result<ValueId, FilterFault> {
        self.make(PacketValue::Length)
    }

    pub(crate) fn header_length(&mut self, offset: u32) -> Result<ValueId, FilterFault> {
        self.make(PacketValue::HeaderLength(offset))
    }

    pub(crate) fn load(
        &mut self,
        base: Option<ValueId>,
        offset: u32,
        width: LoadWidth,
    ) -> Result<ValueId, FilterFault> {
        match base.map(|base| (base, self.constant_of(base))) {
            Some((_, Some(constant))) => {
                self.make(PacketValue::Load { base: None, offset: offset.wrapping_add(constant), width })
            }
            Some((base, None)) => self.make(PacketValue::Load { base: Some(base), offset, width }),
            None => self.make(PacketValue::Load { base: None, offset, width }),
        }
    }

    /// A new version of a word of scratch memory.
    pub(crate) fn stored(&mut self, word: u8) -> Result<ValueId, FilterFault> {
        self.stored += 1;
        self.make(PacketValue::Scratch { word, version: self.stored })
    }

    pub(crate) fn negate(&mut self, of: ValueId) -> Result<ValueId, FilterFault> {
        match self.constant_of(of) {
            Some(number) => self.constant(number.wrapping_neg()),
            None => self.make(PacketValue::Negate(of)),
        }
    }

    /// `a operator b`. Where a constant decides the result alone, nothing else is computed, as in libpcap.
    pub(crate) fn compute(&mut self, operator: Alu, a: ValueId, b: ValueId) -> Result<ValueId, FilterFault> {
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
        // A constant on the right is part of the instruction.
        let commutes = matches!(operator, Add | Mul | And | Or | Xor);
        if commutes && left.is_some() {
            return self.make(PacketValue::Compute(operator, b, a));
        }
        self.make(PacketValue::Compute(operator, a, b))
    }

    /// A value, and the numbers that it has if the relation holds.
    pub(crate) fn relate(
        &mut self,
        relation: Relation,
        a: ValueId,
        b: ValueId,
    ) -> Result<(ValueId, Ranges), FilterFault> {
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

    /// The greatest number that it can be.
    pub(crate) fn max(&self, id: ValueId) -> u32 {
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

    /// The parts of a value that can reject a packet: bytes that have to be there, and divisions.
    pub(crate) fn demands(&self, id: ValueId) -> Vec<Demand> {
        let (mut demands, mut left) = (Vec::new(), vec![id]);
        let mut seen = std::collections::HashSet::new();
        while let Some(id) = left.pop() {
            if !seen.insert(id) {
                continue;
            }
            match self.get(id) {
                PacketValue::Load { base, offset, width } => {
                    demands.push(Demand::Bytes { base, end: u64::from(offset) + u64::from(width.bytes()) });
                    left.extend(base);
                }
                PacketValue::HeaderLength(offset) => {
                    demands.push(Demand::Bytes { base: None, end: u64::from(offset) + 1 });
                }
                PacketValue::Compute(operator, a, b) => {
                    if matches!(operator, Alu::Div | Alu::Mod) && self.constant_of(b).is_none() {
                        demands.push(Demand::Quotient(id));
                    }
                    left.extend([a, b]);
                }
                PacketValue::Compare(_, a, b) => left.extend([a, b]),
                PacketValue::Negate(of) => left.push(of),
                PacketValue::Constant(_) | PacketValue::Length | PacketValue::Scratch { .. } => {}
            }
        }
        demands
    }
}

/// A condition without which a packet is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Demand {
    /// The packet has the bytes before `base + end`.
    Bytes { base: Option<ValueId>, end: u64 },
    /// The divisor is not 0.
    Quotient(ValueId),
}
