//! The expressions that filters compute from a packet, without duplicates across filters.

use crate::interpret::{header_length, holds};
use crate::machine::{Alu, LoadWidth};
use crate::packet::{LoadFailure, Packet};
use crate::program::Test;
use crate::values::Bit;
use std::collections::HashMap;

/// The most operations in an expression. The limit bounds the time for each packet.
const SIZE_MAX: u8 = 16;

/// The identifier of an expression in its [`Expressions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExpressionId(u32);

/// A number that a filter computes from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expression {
    Constant(u32),
    /// The packet's length on the link.
    Length,
    /// Four times the lower half of the byte at this offset: the length of an IPv4 header.
    HeaderLength(u32),
    /// The packet's bytes at `at`.
    Load {
        width: LoadWidth,
        at: u32,
    },
    /// The packet's bytes at `base + k`.
    LoadIndexed {
        width: LoadWidth,
        base: ExpressionId,
        k: u32,
    },
    Alu(Alu, ExpressionId, ExpressionId),
    /// 1 if the test holds, else 0.
    Test(Test, ExpressionId, ExpressionId),
}

/// The reason why an expression cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoExpression {
    /// The expression never has a value: a program that computes it rejects the packet.
    Reject,
    /// The expression is too large to be computed for each packet.
    TooLarge,
}

/// All expressions of the joined filters.
#[derive(Debug)]
pub(crate) struct Expressions {
    all: Vec<Expression>,
    sizes: Vec<u8>,
    known: HashMap<Expression, ExpressionId>,
}

impl Default for Expressions {
    fn default() -> Self {
        Self::new()
    }
}

impl Expressions {
    pub(crate) fn new() -> Self {
        let zero = Expression::Constant(0);
        Self { all: vec![zero], sizes: vec![1], known: HashMap::from([(zero, Self::ZERO)]) }
    }

    /// The constant 0.
    pub(crate) const ZERO: ExpressionId = ExpressionId(0);

    pub(crate) fn get(&self, id: ExpressionId) -> Expression {
        self.all[index(id)]
    }

    pub(crate) fn constant_of(&self, id: ExpressionId) -> Option<u32> {
        match self.get(id) {
            Expression::Constant(k) => Some(k),
            _ => None,
        }
    }

    /// The identifier of an expression, which is added if it is new.
    pub(crate) fn make(&mut self, expression: Expression) -> Result<ExpressionId, NoExpression> {
        if let Some(&id) = self.known.get(&expression) {
            return Ok(id);
        }
        let size = match expression {
            Expression::LoadIndexed { base, .. } => self.sizes[index(base)].saturating_add(1),
            Expression::Alu(_, a, b) | Expression::Test(_, a, b) => {
                self.sizes[index(a)].saturating_add(self.sizes[index(b)]).saturating_add(1)
            }
            _ => 1,
        };
        if size > SIZE_MAX {
            return Err(NoExpression::TooLarge);
        }
        let id = ExpressionId(u32::try_from(self.all.len()).map_err(|_| NoExpression::TooLarge)?);
        self.all.push(expression);
        self.sizes.push(size);
        self.known.insert(expression, id);
        Ok(id)
    }

    pub(crate) fn constant(&mut self, k: u32) -> Result<ExpressionId, NoExpression> {
        self.make(Expression::Constant(k))
    }

    /// The packet's bytes at `base + k`.
    pub(crate) fn load_indexed(
        &mut self,
        width: LoadWidth,
        base: ExpressionId,
        k: u32,
    ) -> Result<ExpressionId, NoExpression> {
        match self.constant_of(base) {
            Some(x) => {
                let at = x.checked_add(k).ok_or(NoExpression::Reject)?;
                self.make(Expression::Load { width, at })
            }
            None => self.make(Expression::LoadIndexed { width, base, k }),
        }
    }

    pub(crate) fn alu(
        &mut self,
        alu: Alu,
        a: ExpressionId,
        b: ExpressionId,
    ) -> Result<ExpressionId, NoExpression> {
        match (self.constant_of(a), self.constant_of(b)) {
            (_, Some(0)) if matches!(alu, Alu::Div | Alu::Mod) => Err(NoExpression::Reject),
            (Some(a), Some(b)) => self.constant(alu.compute(a, b).ok_or(NoExpression::Reject)?),
            (_, Some(0)) if !matches!(alu, Alu::Mul | Alu::And) => Ok(a),
            _ => self.make(Expression::Alu(alu, a, b)),
        }
    }

    /// Writes an expression as bits of another expression, lowest bit first. Masks, shifts and the like need not be
    /// computed, because a test of their result can be made as a test of their operand.
    pub(crate) fn bits(&self, id: ExpressionId) -> (ExpressionId, [Bit; 32]) {
        let (mut original, mut operations) = (id, Vec::new());
        while let Expression::Alu(alu @ (Alu::And | Alu::Or | Alu::Xor | Alu::Lsh | Alu::Rsh), inner, right) =
            self.get(original)
        {
            let Some(k) = self.constant_of(right) else { break };
            operations.push((alu, k));
            original = inner;
        }
        let significant = self.significant_bits(original);
        let mut bits: [Bit; 32] = std::array::from_fn(|bit| match u8::try_from(bit) {
            Ok(bit) if bit < significant => Bit::Of { bit, flipped: false },
            _ => Bit::Always(false),
        });
        for (alu, k) in operations.into_iter().rev() {
            let before = bits;
            let shift = usize::try_from(k).unwrap_or(usize::MAX);
            bits = std::array::from_fn(|at| {
                let set = k >> at & 1 == 1;
                match (alu, before[at]) {
                    (Alu::And, _) if !set => Bit::Always(false),
                    (Alu::Or, _) if set => Bit::Always(true),
                    (Alu::Xor, Bit::Always(value)) if set => Bit::Always(!value),
                    (Alu::Xor, Bit::Of { bit, flipped }) if set => Bit::Of { bit, flipped: !flipped },
                    (Alu::Lsh, _) => at.checked_sub(shift).map_or(Bit::Always(false), |from| before[from]),
                    (Alu::Rsh, _) => at
                        .checked_add(shift)
                        .and_then(|from| before.get(from))
                        .copied()
                        .unwrap_or(Bit::Always(false)),
                    (_, bit) => bit,
                }
            });
        }
        (original, bits)
    }

    /// Copies an expression to `others`. The recursion is at most as deep as the expression is large.
    pub(crate) fn copy_to(
        &self,
        id: ExpressionId,
        others: &mut Expressions,
    ) -> Result<ExpressionId, NoExpression> {
        let copy = match self.get(id) {
            Expression::LoadIndexed { width, base, k } => {
                Expression::LoadIndexed { width, base: self.copy_to(base, others)?, k }
            }
            Expression::Alu(alu, a, b) => {
                Expression::Alu(alu, self.copy_to(a, others)?, self.copy_to(b, others)?)
            }
            Expression::Test(test, a, b) => {
                Expression::Test(test, self.copy_to(a, others)?, self.copy_to(b, others)?)
            }
            simple => simple,
        };
        others.make(copy)
    }

    /// The number of lowest bits that can be nonzero; all higher bits are 0.
    pub(crate) fn significant_bits(&self, id: ExpressionId) -> u8 {
        match self.get(id) {
            Expression::HeaderLength(_) | Expression::Test(..) => 8,
            Expression::Load { width, .. } | Expression::LoadIndexed { width, .. } => match width {
                LoadWidth::Byte => 8,
                LoadWidth::Half => 16,
                LoadWidth::Word => 32,
            },
            _ => 32,
        }
    }

    /// Returns true if `inner` has a value in every packet in which `outer` has one.
    pub(crate) fn implies(&self, outer: ExpressionId, inner: ExpressionId) -> bool {
        if outer == inner {
            return true;
        }
        let is_within_first = |bytes: Option<u32>| match (self.get(inner), bytes) {
            (Expression::Load { width, at }, Some(end)) => {
                at.checked_add(width.bytes()).is_some_and(|e| e <= end)
            }
            (Expression::HeaderLength(at), Some(end)) => at < end,
            (Expression::Length | Expression::Constant(_), _) => true,
            _ => false,
        };
        match self.get(outer) {
            Expression::Load { width, at } => is_within_first(at.checked_add(width.bytes())),
            Expression::HeaderLength(at) => is_within_first(at.checked_add(1)),
            Expression::LoadIndexed { width, base, k } => {
                is_within_first(k.checked_add(width.bytes())) || self.implies(base, inner)
            }
            Expression::Alu(_, a, b) | Expression::Test(_, a, b) => {
                self.implies(a, inner) || self.implies(b, inner)
            }
            Expression::Constant(_) | Expression::Length => is_within_first(None),
        }
    }

    /// An estimate of the highest packet offset that the expression reads. Expressions with a lower offset are computed
    /// first.
    pub(crate) fn highest_offset(&self, id: ExpressionId) -> u32 {
        match self.get(id) {
            Expression::Constant(_) | Expression::Length => 0,
            Expression::HeaderLength(at) | Expression::Load { at, .. } => at,
            Expression::LoadIndexed { base, k, .. } => k.saturating_add(20).max(self.highest_offset(base)),
            Expression::Alu(_, a, b) | Expression::Test(_, a, b) => {
                self.highest_offset(a).max(self.highest_offset(b))
            }
        }
    }

    /// The value of an expression for a packet. The recursion is at most as deep as the expression is large.
    pub(crate) fn value(&self, id: ExpressionId, packet: &Packet<'_>) -> Result<u32, LoadFailure> {
        match self.get(id) {
            Expression::Constant(k) => Ok(k),
            Expression::Length => Ok(packet.wire_len),
            Expression::HeaderLength(at) => header_length(packet, at),
            Expression::Load { width, at } => packet.load(width, at),
            Expression::LoadIndexed { width, base, k } => {
                let at = self.value(base, packet)?.checked_add(k).ok_or(LoadFailure::Reject)?;
                packet.load(width, at)
            }
            Expression::Alu(alu, a, b) => {
                alu.compute(self.value(a, packet)?, self.value(b, packet)?).ok_or(LoadFailure::Reject)
            }
            Expression::Test(test, a, b) => {
                Ok(u32::from(holds(test, self.value(a, packet)?, self.value(b, packet)?)))
            }
        }
    }
}

fn index(id: ExpressionId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_shifts_are_expressed_as_bits_of_their_operand() {
        let mut all = Expressions::new();
        let load = all.make(Expression::Load { width: LoadWidth::Half, at: 3 }).unwrap();
        let by = |all: &mut Expressions, k| all.constant(k).unwrap();
        let (mask, two, flip) = (by(&mut all, 0xff3), by(&mut all, 2), by(&mut all, 0b100));
        let masked = all.alu(Alu::And, load, mask).unwrap();
        let shifted = all.alu(Alu::Rsh, masked, two).unwrap();
        let flipped = all.alu(Alu::Xor, shifted, flip).unwrap();
        let (original, bits) = all.bits(flipped);
        assert_eq!(original, load);
        let of = |bit, flipped| Bit::Of { bit, flipped };
        assert_eq!(bits[..4], [Bit::Always(false), Bit::Always(false), of(4, true), of(5, false)]);
        assert_eq!(bits[9..11], [of(11, false), Bit::Always(false)]);
        assert_eq!(all.alu(Alu::Add, load, Expressions::ZERO), Ok(load));
        assert_eq!(all.alu(Alu::Div, two, Expressions::ZERO), Err(NoExpression::Reject));
    }

    #[test]
    fn the_size_of_an_expression_is_limited() {
        let mut all = Expressions::new();
        let mut sum = all.make(Expression::Length).unwrap();
        let grown = (0..100).find_map(|_| match all.alu(Alu::Add, sum, sum) {
            Ok(more) => {
                sum = more;
                None
            }
            Err(why) => Some(why),
        });
        assert_eq!(grown, Some(NoExpression::TooLarge));
    }
}
