//! Rewrites one function of a module for the loader's pass in `rewrite.rs`.

use crate::load::batch::{LOCALS, write_descriptor_address};
use crate::load::meter::{FuelMeter, MeteredBody, Scratch};
use crate::load::origin::FunctionOrigins;
use crate::load::rewrite::RewritePass;
use std::convert::Infallible;
use wasm_encoder::ValType;
use wasm_encoder::reencode::{Error, Reencode};
use wasmparser::Operator;
use weir_bounds::charge::{Charge, ChargeAmount, ChargeSide, FunctionPlan, ReplacedCall};

/// Writes a function of the module, instruction by instruction, with its charges and with values in place of reads of
/// parameters.
pub(crate) struct FunctionWriter<'a> {
    pub(crate) body: MeteredBody,
    pub(crate) origins: FunctionOrigins,
    /// The meter; `None` if no charges are made in this function.
    meter: Option<FuelMeter>,
    /// The charges of the plan that have not been written yet.
    charges: &'a [Charge],
    /// The reads of parameters that have not been replaced by their values yet.
    replaced: &'a [ReplacedCall],
    /// The number of open blocks of the module's code, without the function itself.
    depth: u32,
    context: CodeContext,
    /// The number that is added to the indices of locals.
    local_shift: u32,
}

/// The code around a function's instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodeContext {
    /// A function of its own.
    Plain,
    /// A function of its own. The instructions are in a block, after which the rest of the allowance is stored in its global.
    Wrapped,
    /// The batch function's loop. The instructions are in a block that yields the verdict.
    Loop,
}

impl<'a> FunctionWriter<'a> {
    /// Begins the function with this index, number of parameters and further locals. Writes the code before its first
    /// instruction.
    pub(crate) fn begin(
        pass: &RewritePass<'_>,
        index: u32,
        plan: &'a FunctionPlan,
        parameters: u32,
        function_locals: &[(u32, ValType)],
    ) -> Self {
        let is_in_loop = pass.is_in_loop(index);
        let is_charged_outside = pass.is_charged_outside(index);
        let entry = if is_charged_outside { 0 } else { plan.entry };
        let meter = pass.meter.filter(|_| entry > 0 || !plan.charges.is_empty());
        let result = pass.signature(index).result;
        let has_fuel_local = meter.is_some() && plan.has_hot_loop && !pass.is_exact() && result.is_some();
        let mut locals = function_locals.to_vec();
        let mut local_shift = 0;
        if is_in_loop {
            // The function's parameter, the descriptor's address, becomes a local.
            locals.insert(0, (parameters, ValType::I32));
            local_shift = LOCALS;
        }
        let count = function_locals
            .iter()
            .fold(local_shift + parameters, |sum, (number, _)| sum.saturating_add(*number));
        if meter.is_some() || (is_in_loop && pass.meter.is_some_and(FuelMeter::has_suspendable_calls)) {
            locals.extend(Scratch::TYPES);
        }
        let mut body = MeteredBody::new(locals, Scratch::after(count));
        body.has_fuel_local = has_fuel_local;
        if is_in_loop {
            pass.batch_layout().begin_loop(&mut body, pass.loop_charges().as_ref());
            write_descriptor_address(&mut body);
            body.code.instructions().local_set(local_shift);
            zero_locals(&mut body, local_shift + parameters, function_locals);
        }
        if let Some(meter) = meter {
            if has_fuel_local && !is_in_loop {
                meter.load(&mut body);
            }
            if entry > 0 {
                meter.charge_constant(&mut body, entry);
            }
        }
        let context = match result {
            Some(_) if is_in_loop => CodeContext::Loop,
            Some(_) if has_fuel_local => CodeContext::Wrapped,
            _ => CodeContext::Plain,
        };
        if let (CodeContext::Loop | CodeContext::Wrapped, Some(result)) = (context, result) {
            body.code.instructions().block(result);
        }
        Self {
            body,
            origins: FunctionOrigins::default(),
            meter,
            charges: &plan.charges,
            replaced: &plan.replaced,
            depth: 0,
            context,
            local_shift,
        }
    }

    /// Writes the instruction `operator` at this offset of the module, with its charges and the module's own branch hint.
    pub(crate) fn write(
        &mut self,
        pass: &mut RewritePass<'_>,
        operator: Operator<'_>,
        offset: u64,
        hint: Option<bool>,
    ) -> Result<(), Error<Infallible>> {
        // At its end, the packet function continues with the loader's loop over a batch.
        let is_loop_end =
            self.context == CodeContext::Loop && self.depth == 0 && matches!(operator, Operator::End);
        self.origins.add(self.body.code.byte_len(), (!is_loop_end).then_some(offset));
        let count = self.charges.iter().take_while(|charge| charge.offset == offset).count();
        let (charges, later) = self.charges.split_at(count);
        self.charges = later;
        for (charge, meter) in charges.iter().zip(std::iter::repeat(self.meter)) {
            let Some(meter) = meter else { break };
            // A `Grown` charge follows the instruction, but depends on an operand. The code that saves the operand comes before
            // the instruction.
            if charge.side == ChargeSide::Before || matches!(charge.amount, ChargeAmount::Grown(_)) {
                meter.charge_before(&mut self.body, &charge.amount, self.local_shift);
            }
        }
        match self.replaced.first() {
            Some(replaced) if offset == replaced.call => {
                pass.write_parameter_value(&mut self.body, replaced);
                self.replaced = &self.replaced[1..];
            }
            Some(replaced) if (replaced.from..replaced.call).contains(&offset) => {}
            _ => {
                if let Some(is_likely) = hint {
                    self.body.hint(is_likely);
                }
                self.write_instruction(pass, operator)?;
            }
        }
        for charge in charges.iter().filter(|charge| charge.side == ChargeSide::After) {
            if let Some(meter) = self.meter {
                meter.charge_after(&mut self.body, &charge.amount, self.local_shift);
            }
        }
        Ok(())
    }

    /// Writes an instruction without its charges, changed as the loader requires.
    fn write_instruction(
        &mut self,
        pass: &mut RewritePass<'_>,
        operator: Operator<'_>,
    ) -> Result<(), Error<Infallible>> {
        match operator {
            Operator::Call { function_index } if function_index < pass.imported_count() => {
                pass.call_host(&mut self.body, function_index);
                return Ok(());
            }
            Operator::Call { .. } | Operator::CallIndirect { .. } => {
                let callee = match operator {
                    Operator::Call { function_index } => pass.task.plan.function(function_index),
                    _ => None,
                };
                let callee_charges =
                    callee.is_none_or(|callee| callee.entry > 0 || !callee.has_only_entry_charge);
                let instruction = pass.instruction(operator)?;
                let meter = self.meter.filter(|_| callee_charges && self.body.has_fuel_local);
                if let Some(meter) = meter {
                    meter.store(&mut self.body);
                }
                self.body.code.instruction(&instruction);
                if let Some(meter) = meter {
                    meter.load(&mut self.body);
                }
                return Ok(());
            }
            Operator::MemoryCopy { .. } => {
                self.body.code.instructions().call(pass.copy_function());
                return Ok(());
            }
            Operator::Return if self.context != CodeContext::Plain => {
                self.body.code.instructions().br(self.depth);
                return Ok(());
            }
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => self.depth += 1,
            Operator::End if self.depth > 0 => self.depth -= 1,
            Operator::End => match (self.context, self.meter) {
                (CodeContext::Wrapped, Some(meter)) => {
                    self.body.code.instructions().end();
                    meter.store(&mut self.body);
                }
                (CodeContext::Loop, _) => {
                    self.body.code.instructions().end();
                    pass.batch_layout().end_loop(&mut self.body, pass.loop_charges().as_ref());
                    return Ok(());
                }
                _ => {}
            },
            Operator::LocalGet { local_index } => {
                self.body.code.instructions().local_get(local_index + self.local_shift);
                return Ok(());
            }
            Operator::LocalSet { local_index } => {
                self.body.code.instructions().local_set(local_index + self.local_shift);
                return Ok(());
            }
            Operator::LocalTee { local_index } => {
                self.body.code.instructions().local_tee(local_index + self.local_shift);
                return Ok(());
            }
            _ => {}
        }
        self.body.code.instruction(&pass.instruction(operator)?);
        Ok(())
    }
}

/// Writes code that sets locals to zero, the value that they have at the entry of a function.
fn zero_locals(body: &mut MeteredBody, first: u32, locals: &[(u32, ValType)]) {
    let mut next = first;
    for (number, ty) in locals {
        for local in next..next.saturating_add(*number) {
            let mut code = body.code.instructions();
            match ty {
                ValType::I32 => code.i32_const(0),
                ValType::I64 => code.i64_const(0),
                ValType::F32 => code.f32_const(0.0.into()),
                ValType::F64 => code.f64_const(0.0.into()),
                ValType::V128 => code.v128_const(0),
                ValType::Ref(reference) => code.ref_null(reference.heap_type),
            };
            code.local_set(local);
        }
        next = next.saturating_add(*number);
    }
}
