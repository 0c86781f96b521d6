//! A function's instructions with what each of them costs by itself.

use crate::charge::{Replaced, Survey, per_unit};
use crate::cost::CostClass;
use crate::injected::injected;
use crate::length::Length;
use std::collections::VecDeque;
use wasmparser::{
    BinaryReaderError, BlockType, ContType, FrameKind, FuncType, FunctionBody, ModuleArity, Operator,
    RefType, SubType,
};
use weir_abi::host::{HostFunction, UsedAllowance};

/// An instruction.
pub(crate) struct Item<'a> {
    pub(crate) offset: u64,
    pub(crate) operator: Operator<'a>,
    /// What it costs each time that it runs: with a length that is constant, without what it calls.
    pub(crate) cost: u64,
    /// A length that is only known when it runs, and what each unit of it costs.
    pub(crate) length: Option<(Length, u64)>,
    /// What each page or element costs that it adds.
    pub(crate) grown: Option<u64>,
    /// For a call that is replaced by a parameter's value: what goes.
    pub(crate) replaced: Option<Replaced>,
}

/// How many instructions before a call can go with it.
const PATTERN: usize = 3;

/// Reads a function, instruction by instruction: a long one would take a lot of memory as a whole.
pub(crate) fn decode<'a>(
    survey: &Survey<'_>,
    body: &FunctionBody<'a>,
    mut act: impl FnMut(&Item<'a>),
) -> Result<(), BinaryReaderError> {
    // The last few, which may still turn out to be replaced.
    let mut last: VecDeque<Item<'a>> = VecDeque::with_capacity(PATTERN + 1);
    let mut constants = Constants::default();
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        let mut item = Item {
            offset,
            cost: survey.costs.operator(&operator).into(),
            length: None,
            grown: None,
            replaced: None,
            operator,
        };
        match &item.operator {
            Operator::Call { function_index } => {
                // A call of an import that weir does not have is never run.
                if let Some(Some(function)) = survey.module.imported.get(*function_index as usize).copied() {
                    let before: Vec<Operator<'_>> = last.iter().map(|item| item.operator.clone()).collect();
                    match injected(function, &before) {
                        Some(injected) => {
                            item.cost = survey.costs.class(CostClass::Move).into();
                            let mut from = offset;
                            for gone in last.iter_mut().rev().take(injected.before) {
                                gone.cost = 0;
                                from = gone.offset;
                            }
                            item.replaced = Some(Replaced { from, call: offset, injected });
                        }
                        None => host_call(survey, function, &constants, &mut item),
                    }
                }
            }
            Operator::MemoryGrow { .. } => item.grown = Some(survey.costs.page().into()),
            Operator::TableGrow { .. } => item.grown = Some(survey.costs.element().into()),
            operator => {
                let length = Length::of_bulk(operator, survey.environment);
                let is_table = matches!(
                    operator,
                    Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. }
                );
                let each = if is_table { survey.costs.element() } else { survey.costs.bulk_byte() };
                take_length(&mut item, length, each, &constants);
            }
        }
        item.grown = item.grown.filter(|each| *each > 0);
        constants.step(&item.operator);
        last.push_back(item);
        if last.len() > PATTERN {
            last.pop_front().iter().for_each(&mut act);
        }
    }
    last.iter().for_each(&mut act);
    Ok(())
}

fn host_call(survey: &Survey<'_>, function: HostFunction, constants: &Constants, item: &mut Item<'_>) {
    let definition = function.definition();
    let cost = survey.costs.host(function);
    item.cost += u64::from(cost.call);
    let first = definition.parameters.len().checked_sub(1).and_then(|above| constants.argument(above));
    if definition.uses == UsedAllowance::Record && !survey.rules.exact {
        // Only the host sees how long the strings are that a row points to.
        let strings = &survey.environment.string_bytes;
        let most = match first {
            Some(stream) => strings.get(stream as usize).copied(),
            None => strings.iter().copied().max(),
        };
        item.cost += u64::from(cost.per_byte) * u64::from(most.unwrap_or(0));
    }
    take_length(item, Length::of_host(function, first, survey.environment), cost.per_byte, constants);
}

fn take_length(item: &mut Item<'_>, length: Option<Length>, each: u32, constants: &Constants) {
    let Some((length, each)) = per_unit(length, each) else { return };
    match constants.argument(usize::from(length.above.is_some())) {
        Some(known) => item.cost += each * u64::from(length.of(known)),
        None => item.length = Some((length, each)),
    }
}

/// The i32 constants on the operand stack, as far as they are known from straight code.
#[derive(Default)]
struct Constants(Vec<Option<u32>>);

/// More operands than any call of the host has between its first and its last argument are forgotten.
const OPERANDS_MAX: usize = 64;

impl Constants {
    /// The operand below `above` others.
    fn argument(&self, above: usize) -> Option<u32> {
        let place = self.0.len().checked_sub(above + 1)?;
        self.0.get(place).copied().flatten()
    }

    fn step(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::I32Const { value } => self.0.push(Some(value.cast_unsigned())),
            // Leaves on the stack what was there.
            Operator::LocalTee { .. } => {}
            _ => match operator.operator_arity(&NoModule) {
                Some((taken, given)) => {
                    self.0.truncate(self.0.len().saturating_sub(taken as usize));
                    self.0.extend((0..given).map(|_| None));
                }
                // The others end what is known.
                None => self.0.clear(),
            },
        }
        if self.0.len() > OPERANDS_MAX {
            self.0.drain(..OPERANDS_MAX / 2);
        }
    }
}

/// Without types and labels, `operator_arity` knows only instructions that have the same number of operands everywhere.
pub(crate) struct NoModule;

impl ModuleArity for NoModule {
    fn sub_type_at(&self, _: u32) -> Option<&SubType> {
        None
    }

    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }

    fn type_index_of_function(&self, _: u32) -> Option<u32> {
        None
    }

    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }

    fn sub_type_of_ref_type(&self, _: &RefType) -> Option<&SubType> {
        None
    }

    fn control_stack_height(&self) -> u32 {
        0
    }

    fn label_block(&self, _: u32) -> Option<(BlockType, FrameKind)> {
        None
    }
}
