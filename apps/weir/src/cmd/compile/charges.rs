//! The charges of the meter in machine code.
//!
//! A charge subtracts from the counter of fuel, and branches to code that ends, suspends or refills the call if the counter is
//! below zero. Where the compiler keeps the counter in a register, the branch is the only sign of a charge.

use super::reason::{InstructionPurpose, ReasonedInstruction};
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};
use std::collections::BTreeMap;
use weir_sandbox::ExplainedCode;
use weir_verify::Callee;

/// The host functions that are called when the fuel is used up.
const LIMIT_FUNCTIONS: [&str; 2] = ["limit", "suspend"];
/// The most instructions from the begin of the code for used-up fuel to its call or poll point.
const HANDLER_INSTRUCTIONS_MAX: usize = 8;
/// The most instructions from the subtraction to its branch.
const INSTRUCTIONS_BETWEEN_MAX: usize = 4;

/// Marks the charges of a function: the subtraction, or else the branch.
pub(super) fn mark_charges(instructions: &mut [ReasonedInstruction<'_>], code: &ExplainedCode) {
    if !code.globals.values().any(|global| global.is_fuel) {
        return;
    }
    let by_offset: BTreeMap<u64, usize> = instructions
        .iter()
        .enumerate()
        .map(|(index, at)| (at.explained.facts.offset.into(), index))
        .collect();
    for index in 0..instructions.len() {
        let decoded = instructions[index].decoded;
        let exhausted = match decoded.mnemonic() {
            Mnemonic::Js | Mnemonic::Jl => by_offset.get(&decoded.near_branch_target()).copied(),
            Mnemonic::Jns | Mnemonic::Jge => Some(index + 1),
            _ => None,
        };
        if !exhausted.is_some_and(|start| is_handler(instructions.get(start..).unwrap_or_default(), code)) {
            continue;
        }
        let first = index.saturating_sub(INSTRUCTIONS_BETWEEN_MAX);
        let charge = (first..index).rev().find_map(|at| Some((at, amount(&instructions[at].decoded)?)));
        let (at, text) = match charge {
            Some((at, Some(amount))) => (at, format!("charge of {amount} fuel")),
            Some((at, None)) => (at, "charge of a computed amount of fuel".to_owned()),
            None => (index, "charge: the branch is taken once the fuel is used up".to_owned()),
        };
        let charged = &mut instructions[at];
        charged.purpose = Some(InstructionPurpose::Charge);
        charged.reason = Some(match charged.reason.take() {
            Some(place) => format!("{text}; {place}"),
            None => text,
        });
    }
}

/// Returns true for code that is executed once the fuel is used up: it calls the host function, or passes a poll point before it
/// sets a new allowance.
fn is_handler(code_from_start: &[ReasonedInstruction<'_>], code: &ExplainedCode) -> bool {
    for at in code_from_start.iter().take(HANDLER_INSTRUCTIONS_MAX) {
        if let Some(callee) = at.explained.facts.callee {
            let Callee::Thunk(thunk) = callee else { return false };
            let name = code.thunks.get(thunk as usize);
            return name.is_some_and(|name| LIMIT_FUNCTIONS.contains(&name.as_str()));
        }
        if at.purpose == Some(InstructionPurpose::Poll) {
            return true;
        }
        if at.decoded.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// Returns the constant that an instruction subtracts, or the inner `None` for a subtraction of a computed amount. Returns the
/// outer `None` for other instructions.
fn amount(decoded: &Instruction) -> Option<Option<i64>> {
    let immediate = (decoded.op_count() == 2).then(|| decoded.try_immediate(1).ok()).flatten();
    let immediate = immediate.map(u64::cast_signed);
    match (decoded.mnemonic(), immediate) {
        (Mnemonic::Sub, Some(amount)) => Some(Some(amount)),
        (Mnemonic::Add, Some(negative)) => Some(negative.checked_neg()),
        (Mnemonic::Dec, _) => Some(Some(1)),
        (Mnemonic::Sub, None) if decoded.op1_kind() == OpKind::Register => Some(None),
        (Mnemonic::Lea, _) => {
            let displacement = decoded.memory_displacement64().cast_signed();
            (displacement < 0).then_some(displacement.checked_neg())
        }
        _ => None,
    }
}
