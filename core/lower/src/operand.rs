//! Facts about operands of addresses: upper bounds and sums, as far as they follow from the instructions before an access.
//!
//! An address that stays below 4 GiB is widened by a plain `zext`, which LLVM can fold into the operand of the access. The
//! verifier can follow the address in any form, because its bound follows from the instructions. A sum can be computed by
//! the access itself, in 32 bits.

use crate::function::{FunctionLowering, StackOperand};
use crate::module::Constant;
use std::collections::BTreeMap;
use wasmparser::{Operator, ValType};

/// Facts about the integers of a function.
#[derive(Default)]
pub(crate) struct OperandFacts {
    /// The largest values of integers, by the number of the value. A value without an entry can be any.
    value_max: BTreeMap<u32, u64>,
    /// The largest values of locals in the current block.
    local_max: BTreeMap<u32, u64>,
    /// The sums that values of type i32 are, by the number of the value.
    sums: BTreeMap<u32, Sum>,
}

/// Facts about the result of an instruction that is not lowered yet.
pub(crate) struct ResultFacts {
    max: u64,
    sum: Option<Sum>,
}

/// A sum, modulo 2^32, that a memory operand of x86-64 can express. It has a base, an index or both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    pub(crate) base: Option<StackOperand>,
    /// The index, and the factor that it is multiplied by: 1, 2, 4 or 8.
    pub(crate) index: Option<(StackOperand, u8)>,
    pub(crate) displacement: i32,
}

impl Sum {
    /// Returns the sum of two sums if it has no more than two registers.
    fn add(self, other: Self) -> Option<Self> {
        let displacement = self.displacement.wrapping_add(other.displacement);
        let (base, index) = match (self.base, self.index, other.base, other.index) {
            (base, index, None, None) | (None, None, base, index) => (base, index),
            (Some(a), None, Some(b), None) => (Some(a), Some((b, 1))),
            (Some(base), None, None, index) | (None, index, Some(base), None) => (Some(base), index),
            _ => return None,
        };
        Some(Self { base, index, displacement })
    }
}

impl FunctionLowering<'_, '_> {
    /// Returns the largest value that an operand can have. Without a known one, it is `u64::MAX`.
    pub(crate) fn max_of(&self, operand: StackOperand) -> u64 {
        match operand {
            StackOperand::Constant(Constant::I32(value)) => value.cast_unsigned().into(),
            StackOperand::Constant(Constant::I64(value)) => value.cast_unsigned(),
            StackOperand::Constant(_) => u64::MAX,
            StackOperand::Value(number, _) => self.facts.value_max.get(&number).copied().unwrap_or(u64::MAX),
        }
    }

    /// Returns the sum that an operand is, if it is one.
    pub(crate) fn sum_of(&self, operand: StackOperand) -> Option<Sum> {
        match operand {
            StackOperand::Value(number, _) => self.facts.sums.get(&number).copied(),
            StackOperand::Constant(_) => None,
        }
    }

    /// Returns an operand as a sum, of one part if there is no other.
    fn as_sum(&self, operand: StackOperand) -> Sum {
        match operand {
            StackOperand::Constant(Constant::I32(displacement)) => Sum { displacement, ..Sum::default() },
            _ => self.sum_of(operand).unwrap_or(Sum { base: Some(operand), ..Sum::default() }),
        }
    }

    /// Returns what is known about the result of the next instruction, which can be reached.
    pub(crate) fn result_facts(&self, operator: &Operator<'_>) -> ResultFacts {
        let mut operands = self.operands().iter().rev().copied();
        let (b, a) = (operands.next(), operands.next());
        let max = |operand: Option<StackOperand>| operand.map_or(u64::MAX, |operand| self.max_of(operand));
        let max = match operator {
            Operator::LocalGet { local_index } => {
                self.facts.local_max.get(local_index).copied().unwrap_or(u64::MAX)
            }
            Operator::LocalTee { .. } => max(b),
            // The condition is above the two values.
            Operator::Select => max(a).max(max(operands.next())),
            _ => result_max(operator, max(a), max(b)),
        };
        ResultFacts { max, sum: a.zip(b).and_then(|(a, b)| self.result_sum(operator, a, b)) }
    }

    fn result_sum(&self, operator: &Operator<'_>, a: StackOperand, b: StackOperand) -> Option<Sum> {
        match (operator, b) {
            (Operator::I32Add, _) => {
                let registers = |operand| Sum { base: Some(operand), ..Sum::default() };
                let sum = self.as_sum(a).add(self.as_sum(b)).or_else(|| registers(a).add(registers(b)));
                // The sum of two constants has no register.
                sum.filter(|sum| sum.base.is_some() || sum.index.is_some())
            }
            (Operator::I32Shl, StackOperand::Constant(Constant::I32(distance @ 1..=3))) => {
                Some(Sum { index: Some((a, 1 << distance)), ..Sum::default() })
            }
            _ => None,
        }
    }

    /// Notes the facts about the instruction that was lowered last, whose result is the topmost operand.
    pub(crate) fn note_result(&mut self, facts: ResultFacts) {
        let Some(StackOperand::Value(number, ValType::I32 | ValType::I64)) = self.operands().last() else {
            return;
        };
        let number = *number;
        if facts.max < u64::MAX {
            self.facts.value_max.insert(number, facts.max);
        }
        if let Some(sum) = facts.sum {
            self.facts.sums.insert(number, sum);
        }
    }

    /// Notes that a local gets a value.
    pub(crate) fn note_local(&mut self, local: u32, value: StackOperand) {
        let max = self.max_of(value);
        self.facts.local_max.insert(local, max);
    }

    /// Forgets the values of locals, because code from several places continues here.
    pub(crate) fn forget_locals(&mut self) {
        self.facts.local_max.clear();
    }
}

/// Returns the largest value that an instruction can have, by the largest values of its two topmost operands, `b` above `a`.
fn result_max(operator: &Operator<'_>, a: u64, b: u64) -> u64 {
    const WORD: u64 = u32::MAX as u64;
    match operator {
        Operator::I32Load8U { .. } | Operator::I64Load8U { .. } => u8::MAX.into(),
        Operator::I32Load16U { .. } | Operator::I64Load16U { .. } => u16::MAX.into(),
        Operator::I64Load32U { .. } => WORD,
        Operator::I32And | Operator::I64And => a.min(b),
        Operator::I32Or | Operator::I64Or | Operator::I32Xor | Operator::I64Xor => low_bits(a | b),
        Operator::I32Add => exact_or(WORD, a.checked_add(b)),
        Operator::I64Add => exact_or(u64::MAX, a.checked_add(b)),
        Operator::I32Mul => exact_or(WORD, a.checked_mul(b)),
        Operator::I64Mul => exact_or(u64::MAX, a.checked_mul(b)),
        // The distance of a shift is taken modulo the width.
        Operator::I32Shl if b < 32 => exact_or(WORD, a.checked_mul(1 << b)),
        Operator::I64Shl if b < 64 => exact_or(u64::MAX, a.checked_mul(1 << b)),
        Operator::I32ShrU | Operator::I32DivU => a.min(WORD),
        Operator::I64ShrU | Operator::I64DivU => a,
        Operator::I32RemU | Operator::I64RemU => a.min(b.saturating_sub(1)),
        Operator::I32WrapI64 => exact_or(WORD, Some(b)),
        Operator::I64ExtendI32U => b.min(WORD),
        Operator::I32Clz | Operator::I32Ctz | Operator::I32Popcnt => 32,
        Operator::I64Clz | Operator::I64Ctz | Operator::I64Popcnt => 64,
        _ => u64::MAX,
    }
}

/// Returns the largest value with as many bits.
fn low_bits(value: u64) -> u64 {
    u64::MAX.checked_shr(value.leading_zeros()).unwrap_or(0)
}

/// Returns a value, or the largest one of the width if the value does not fit: the computation wraps then.
fn exact_or(max: u64, value: Option<u64>) -> u64 {
    value.filter(|value| *value <= max).unwrap_or(max)
}
