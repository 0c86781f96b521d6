//! Values that tests look at: numbers computed from a packet, each kept once.

use crate::error::Fault;
use crate::ranges::Ranges;
use std::collections::HashMap;
use weir_demux::{Alu, Width};

/// Values of one filter, at most. A filter of 4,096 bytes has a few thousand.
const VALUES_MAX: usize = 16_384;
/// Operators between a value and its deepest operand, at most: values are computed recursively.
const DEPTH_MAX: u16 = 700;

/// An index into [`Values`].
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
pub(crate) enum Value {
    Constant(u32),
    /// The length of the packet on the link.
    Length,
    /// The bytes at `offset`, or at `base + offset`. A packet without them is rejected.
    Load {
        base: Option<ValueId>,
        offset: u32,
        width: Width,
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
pub(crate) struct Values {
    all: Vec<Value>,
    known: HashMap<Value, ValueId>,
    depths: Vec<u16>,
    /// Words of scratch memory that computing it takes.
    words: Vec<u8>,
    stored: u32,
}

impl Values {
    pub(crate) fn get(&self, id: ValueId) -> Value {
        self.all.get(id.0).copied().unwrap_or(Value::Constant(0))
    }

    /// The words of scratch memory that computing a value takes, as Sethi and Ullman count registers.
    pub(crate) fn words(&self, id: ValueId) -> u8 {
        self.words.get(id.0).copied().unwrap_or(0)
    }

    pub(crate) fn constant_of(&self, id: ValueId) -> Option<u32> {
        match self.get(id) {
            Value::Constant(number) => Some(number),
            _ => None,
        }
    }

    fn make(&mut self, value: Value) -> Result<ValueId, Fault> {
        if let Some(&id) = self.known.get(&value) {
            return Ok(id);
        }
        if self.all.len() >= VALUES_MAX {
            return Err(Fault::Complex);
        }
        let depth = |id: ValueId| self.depths.get(id.0).copied().unwrap_or(0);
        let (depth, words) = match value {
            Value::Load { base: Some(of), .. } | Value::Negate(of) => (depth(of), self.words(of)),
            Value::Compute(_, a, b) | Value::Compare(_, a, b) => {
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
            return Err(Fault::Complex);
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
            Value::Constant(_) | Value::Length | Value::HeaderLength(_) | Value::Scratch { .. }
        )
    }

    pub(crate) fn constant(&mut self, number: u32) -> Result<ValueId, Fault> {
        self.make(Value::Constant(number))
    }

    pub(crate) fn length(&mut self) -> Result<ValueId, Fault> {
        self.make(Value::Length)
    }

    pub(crate) fn header_length(&mut self, offset: u32) -> Result<ValueId, Fault> {
        self.make(Value::HeaderLength(offset))
    }

    pub(crate) fn load(
        &mut self,
        base: Option<ValueId>,
        offset: u32,
        width: Width,
    ) -> Result<ValueId, Fault> {
        match base.map(|base| (base, self.constant_of(base))) {
            Some((_, Some(constant))) => {
                self.make(Value::Load { base: None, offset: offset.wrapping_add(constant), width })
            }
            Some((base, None)) => self.make(Value::Load { base: Some(base), offset, width }),
            None => self.make(Value::Load { base: None, offset, width }),
        }
    }

    /// A new version of a word of scratch memory.
    pub(crate) fn stored(&mut self, word: u8) -> Result<ValueId, Fault> {
        self.stored += 1;
        self.make(Value::Scratch { word, version: self.stored })
    }

    pub(crate) fn negate(&mut self, of: ValueId) -> Result<ValueId, Fault> {
        match self.constant_of(of) {
            Some(number) => self.constant(number.wrapping_neg()),
            None => self.make(Value::Negate(of)),
        }
    }

    /// `a operator b`. Where a constant decides the result alone, nothing else is computed, as in libpcap.
    pub(crate) fn compute(&mut self, operator: Alu, a: ValueId, b: ValueId) -> Result<ValueId, Fault> {
        use Alu::{Add, And, Div, Lsh, Mod, Mul, Or, Rsh, Sub, Xor};
        let (left, right) = (self.constant_of(a), self.constant_of(b));
        match (operator, left) {
            (Add | Or | Xor, Some(0)) => return Ok(b),
            (Mul | Div | Mod | And | Lsh | Rsh, Some(0)) => return self.constant(0),
            _ => {}
        }
        match (operator, right) {
            (Div | Mod, Some(0)) => return Err(Fault::DivisionByZero),
            (Lsh | Rsh, Some(bits)) if bits > 31 => return Err(Fault::Shift(bits)),
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
            return self.make(Value::Compute(operator, b, a));
        }
        self.make(Value::Compute(operator, a, b))
    }

    /// A value, and the numbers that it has if the relation holds.
    pub(crate) fn relate(
        &mut self,
        relation: Relation,
        a: ValueId,
        b: ValueId,
    ) -> Result<(ValueId, Ranges), Fault> {
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
            (None, None) => (self.make(Value::Compare(relation, a, b))?, Ranges::one(1)),
        })
    }

    /// The greatest number that it can be.
    pub(crate) fn max(&self, id: ValueId) -> u32 {
        match self.get(id) {
            Value::Load { width, .. } => width.max(),
            Value::Compute(Alu::And, a, b) => {
                self.constant_of(b).unwrap_or(u32::MAX).min(match self.get(a) {
                    Value::Load { width, .. } => width.max(),
                    _ => u32::MAX,
                })
            }
            Value::Compare(..) => 1,
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
                Value::Load { base, offset, width } => {
                    demands.push(Demand::Bytes { base, end: u64::from(offset) + u64::from(width.bytes()) });
                    left.extend(base);
                }
                Value::HeaderLength(offset) => {
                    demands.push(Demand::Bytes { base: None, end: u64::from(offset) + 1 });
                }
                Value::Compute(operator, a, b) => {
                    if matches!(operator, Alu::Div | Alu::Mod) && self.constant_of(b).is_none() {
                        demands.push(Demand::Quotient(id));
                    }
                    left.extend([a, b]);
                }
                Value::Compare(_, a, b) => left.extend([a, b]),
                Value::Negate(of) => left.push(of),
                Value::Constant(_) | Value::Length | Value::Scratch { .. } => {}
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
