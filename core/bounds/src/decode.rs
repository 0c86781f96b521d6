//! Decodes a function for the charge plan: its instructions, each with its cost.

use crate::charge::{ChargeContext, ReplacedCall, per_unit};
use crate::cost::CostClass;
use crate::injected::find_injected;
use crate::length::Length;
use std::collections::VecDeque;
use wasmparser::{
    BinaryReaderError, BlockType, ContType, FrameKind, FuncType, FunctionBody, ModuleArity, Operator,
    RefType, SubType,
};
use weir_abi::host::{HostFunction, LimitedOutput};

/// An instruction with its cost.
pub(crate) struct ChargedInstruction<'a> {
    pub(crate) offset: u64,
    pub(crate) operator: Operator<'a>,
    /// The fuel of one execution. It includes the cost of a constant length, and excludes the callee of a call.
    pub(crate) cost: u64,
    /// A length argument that is known only at run time, and the fuel of each of its units.
    pub(crate) length: Option<(Length, u64)>,
    /// The fuel of each page or element that the instruction adds.
    pub(crate) grown: Option<u64>,
    /// For a call that the loader replaces by a parameter's value, the range of replaced instructions.
    pub(crate) replaced: Option<ReplacedCall>,
}

/// The most instructions before a call that are replaced together with it.
const REPLACED_BEFORE_MAX: usize = 3;

/// Calls `act` for each instruction of a function, in order. The decoded instructions are not kept, because those of a
/// long function take much memory.
pub(crate) fn for_each_instruction<'a>(
    context: &ChargeContext<'_>,
    body: &FunctionBody<'a>,
    mut act: impl FnMut(&ChargedInstruction<'a>),
) -> Result<(), BinaryReaderError> {
    // The latest instructions. If the loader replaces the next call, it also replaces the instructions of the call's
    // arguments, which then cost nothing.
    let mut last: VecDeque<ChargedInstruction<'a>> = VecDeque::with_capacity(REPLACED_BEFORE_MAX + 1);
    let mut constants = ConstantOperands::default();
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        let mut instruction = ChargedInstruction {
            offset,
            cost: context.costs.operator(&operator).into(),
            length: None,
            grown: None,
            replaced: None,
            operator,
        };
        match &instruction.operator {
            Operator::Call { function_index } => {
                // A call of an unknown import never runs: admission refuses the module.
                if let Some(Some(function)) = context.module.imported.get(*function_index as usize).copied() {
                    let before: Vec<Operator<'_>> =
                        last.iter().map(|instruction| instruction.operator.clone()).collect();
                    match find_injected(function, &before) {
                        Some(injected) => {
                            instruction.cost = context.costs.class(CostClass::Move).into();
                            let mut from = offset;
                            for removed in last.iter_mut().rev().take(injected.removed_before) {
                                removed.cost = 0;
                                from = removed.offset;
                            }
                            instruction.replaced = Some(ReplacedCall { from, call: offset, injected });
                        }
                        None => set_host_call_cost(context, function, &constants, &mut instruction),
                    }
                }
            }
            Operator::MemoryGrow { .. } => instruction.grown = Some(context.costs.page().into()),
            Operator::TableGrow { .. } => instruction.grown = Some(context.costs.element().into()),
            operator => {
                let length = Length::for_bulk_instruction(operator, context.environment);
                let is_table = matches!(
                    operator,
                    Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. }
                );
                let unit_cost = if is_table { context.costs.element() } else { context.costs.bulk_byte() };
                charge_length(&mut instruction, length, unit_cost, &constants);
            }
        }
        instruction.grown = instruction.grown.filter(|unit_cost| *unit_cost > 0);
        constants.apply(&instruction.operator);
        last.push_back(instruction);
        if last.len() > REPLACED_BEFORE_MAX {
            last.pop_front().iter().for_each(&mut act);
        }
    }
    last.iter().for_each(&mut act);
    Ok(())
}

/// Adds the cost of a host function to the cost of its `call` instruction.
fn set_host_call_cost(
    context: &ChargeContext<'_>,
    function: HostFunction,
    constants: &ConstantOperands,
    instruction: &mut ChargedInstruction<'_>,
) {
    let definition = function.definition();
    let cost = context.costs.host(function);
    instruction.cost += u64::from(cost.call);
    let first_argument =
        definition.parameters.len().checked_sub(1).and_then(|above| constants.argument(above));
    if definition.output == LimitedOutput::Record && !context.rules.exact {
        // Only the host knows the lengths of the strings in a record.
        let strings = &context.environment.string_bytes;
        let most = match first_argument {
            Some(stream) => strings.get(stream as usize).copied(),
            None => strings.iter().copied().max(),
        };
        instruction.cost += u64::from(cost.per_byte) * u64::from(most.unwrap_or(0));
    }
    charge_length(
        instruction,
        Length::for_host_call(function, first_argument, context.environment),
        cost.per_byte,
        constants,
    );
}

/// Adds the cost of a length argument to an instruction: as a part of its cost if the length is constant, else as a
/// length that is known only at run time.
fn charge_length(
    instruction: &mut ChargedInstruction<'_>,
    length: Option<Length>,
    unit_cost: u32,
    constants: &ConstantOperands,
) {
    let Some((length, unit_cost)) = per_unit(length, unit_cost) else { return };
    match constants.argument(usize::from(length.above.is_some())) {
        Some(known) => instruction.cost += unit_cost * u64::from(length.units_for(known)),
        None => instruction.length = Some((length, unit_cost)),
    }
}

/// The i32 constants on the operand stack, top last, as far as straight-line code shows them; `None` for operands with
/// unknown values.
#[derive(Default)]
struct ConstantOperands(Vec<Option<u32>>);

/// The most operands that are remembered: more than a host call has arguments.
const OPERANDS_MAX: usize = 64;

impl ConstantOperands {
    /// The operand that is below `above` other operands, if it is a known constant.
    fn argument(&self, above: usize) -> Option<u32> {
        let index = self.0.len().checked_sub(above + 1)?;
        self.0.get(index).copied().flatten()
    }

    /// Applies an instruction to the operands.
    fn apply(&mut self, operator: &Operator<'_>) {
        match operator {
            Operator::I32Const { value } => self.0.push(Some(value.cast_unsigned())),
            // The operand stays on the stack with its value.
            Operator::LocalTee { .. } => {}
            _ => match operator.operator_arity(&NoModule) {
                Some((popped, pushed)) => {
                    self.0.truncate(self.0.len().saturating_sub(popped as usize));
                    self.0.extend((0..pushed).map(|_| None));
                }
                // After any other instruction, no operand is known.
                None => self.0.clear(),
            },
        }
        if self.0.len() > OPERANDS_MAX {
            self.0.drain(..OPERANDS_MAX / 2);
        }
    }
}

/// An empty context for `operator_arity`: without types and labels, it knows only instructions with a fixed number of
/// operands.
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
