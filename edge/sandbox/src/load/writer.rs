//! Rewriting of one function of a module.

use crate::load::batch::{LOCALS, descriptor};
use crate::load::meter::{FuelMeter, MeteredBody, Scratch};
use crate::load::rewrite::Pass;
use std::convert::Infallible;
use wasm_encoder::ValType;
use wasm_encoder::reencode::{Error, Reencode};
use wasmparser::Operator;
use weir_bounds::charge::{Charge, ChargeAmount, ChargeSide, FunctionPlan, ReplacedCall};

/// Writes a function of the module with its charges, and with the replacements of reads of parameters.
pub(crate) struct FunctionWriter<'a> {
    pub(crate) body: MeteredBody,
    /// The meter; `None` if no charges are made in this function.
    meter: Option<FuelMeter>,
    /// The remaining charges of the plan.
    charges: &'a [Charge],
    /// The remaining reads of parameters, which are replaced by their values.
    replaced: &'a [ReplacedCall],
    /// The number of open blocks, without the function itself.
    depth: u32,
    place: Place,
    /// The number that is added to the indices of locals.
    shift: u32,
}

/// The context of a function's code.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A function of its own.
    Plain,
    /// A function of its own, in a block at whose end the allowance is stored back.
    Wrapped,
    /// Inlined into the batch loop, in a block that yields the verdict.
    Loop,
}

impl<'a> FunctionWriter<'a> {
    /// Begins the function with this index, number of parameters and further locals.
    pub(crate) fn begin(
        pass: &Pass<'_>,
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
        let keeps_fuel = meter.is_some() && plan.has_hot_loop && !pass.is_exact() && result.is_some();
        let mut locals = function_locals.to_vec();
        let mut shift = 0;
        if is_in_loop {
            // The function's parameter, the descriptor's address, becomes a local.
            locals.insert(0, (parameters, ValType::I32));
            shift = LOCALS;
        }
        let count =
            function_locals.iter().fold(shift + parameters, |sum, (number, _)| sum.saturating_add(*number));
        if meter.is_some() || (is_in_loop && pass.meter.is_some_and(FuelMeter::asks_host)) {
            locals.extend(Scratch::TYPES);
        }
        let mut body = MeteredBody::new(locals, Scratch::after(count));
        body.keeps_fuel = keeps_fuel;
        if is_in_loop {
            pass.batch_layout().begin(&mut body, pass.loop_charges().as_ref());
            descriptor(&mut body);
            body.code.instructions().local_set(shift);
            clear(&mut body, shift + parameters, function_locals);
        }
        if let Some(meter) = meter {
            if keeps_fuel && !is_in_loop {
                meter.load(&mut body);
            }
            if entry > 0 {
                meter.charge_constant(&mut body, entry);
            }
        }
        let place = match result {
            Some(_) if is_in_loop => Place::Loop,
            Some(_) if keeps_fuel => Place::Wrapped,
            _ => Place::Plain,
        };
        if let (Place::Loop | Place::Wrapped, Some(result)) = (place, result) {
            body.code.instructions().block(result);
        }
        Self { body, meter, charges: &plan.charges, replaced: &plan.replaced, depth: 0, place, shift }
    }

    /// Writes the instruction that the module has at this offset, with its charges and the module's own branch hint.
    pub(crate) fn write(
        &mut self,
        pass: &mut Pass<'_>,
        operator: Operator<'_>,
        offset: u64,
        hint: Option<bool>,
    ) -> Result<(), Error<Infallible>> {
        let here = self.charges.iter().take_while(|charge| charge.offset == offset).count();
        let (here, later) = self.charges.split_at(here);
        self.charges = later;
        for (charge, meter) in here.iter().zip(std::iter::repeat(self.meter)) {
            let Some(meter) = meter else { break };
            // A `Grown` charge follows the instruction, but depends on an operand, which is saved here.
            if charge.side == ChargeSide::Before || matches!(charge.amount, ChargeAmount::Grown(_)) {
                meter.charge_before(&mut self.body, &charge.amount, self.shift);
            }
        }
        match self.replaced.first() {
            Some(replaced) if offset == replaced.call => {
                pass.inject(&mut self.body, replaced);
                self.replaced = &self.replaced[1..];
            }
            Some(replaced) if (replaced.from..replaced.call).contains(&offset) => {}
            _ => {
                if let Some(taken) = hint {
                    self.body.hint(taken);
                }
                self.instruction(pass, operator)?;
            }
        }
        for charge in here.iter().filter(|charge| charge.side == ChargeSide::After) {
            if let Some(meter) = self.meter {
                meter.charge_after(&mut self.body, &charge.amount, self.shift);
            }
        }
        Ok(())
    }

    fn instruction(&mut self, pass: &mut Pass<'_>, operator: Operator<'_>) -> Result<(), Error<Infallible>> {
        match operator {
            Operator::Call { function_index } if function_index < pass.imported() => {
                pass.call_host(&mut self.body, function_index);
                return Ok(());
            }
            Operator::Call { .. } | Operator::CallIndirect { .. } => {
                let callee = match operator {
                    Operator::Call { function_index } => pass.task.plan.function(function_index),
                    _ => None,
                };
                let charges = callee.is_none_or(|callee| callee.entry > 0 || !callee.has_only_entry_charge);
                let instruction = pass.instruction(operator)?;
                let meter = self.meter.filter(|_| charges && self.body.keeps_fuel);
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
                self.body.code.instructions().call(pass.copier());
                return Ok(());
            }
            Operator::Return if self.place != Place::Plain => {
                self.body.code.instructions().br(self.depth);
                return Ok(());
            }
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => self.depth += 1,
            Operator::End if self.depth > 0 => self.depth -= 1,
            Operator::End => match (self.place, self.meter) {
                (Place::Wrapped, Some(meter)) => {
                    self.body.code.instructions().end();
                    meter.store(&mut self.body);
                }
                (Place::Loop, _) => {
                    self.body.code.instructions().end();
                    pass.batch_layout().end(&mut self.body, pass.loop_charges().as_ref());
                    return Ok(());
                }
                _ => {}
            },
            Operator::LocalGet { local_index } => {
                self.body.code.instructions().local_get(local_index + self.shift);
                return Ok(());
            }
            Operator::LocalSet { local_index } => {
                self.body.code.instructions().local_set(local_index + self.shift);
                return Ok(());
            }
            Operator::LocalTee { local_index } => {
                self.body.code.instructions().local_tee(local_index + self.shift);
                return Ok(());
            }
            _ => {}
        }
        self.body.code.instruction(&pass.instruction(operator)?);
        Ok(())
    }
}

/// Writes code that sets locals to zero, the value that they have at the entry of a function.
fn clear(body: &mut MeteredBody, first: u32, locals: &[(u32, ValType)]) {
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
