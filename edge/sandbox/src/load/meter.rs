//! The charging code that the loader inserts, so that a module stops when its allowance is used up.
//!
//! The allowance is in a global that no instruction of the module can name. A charge subtracts from it. If the result is
//! below zero, a branch that is hinted as unlikely is taken:
//!
//! - A metered module calls a host function, which aborts the call.
//! - A supervised module sets a global that marks the call as over its limit, reads the poll page, by which the watchdog
//!   can end the call, and adds a piece of fuel. It calls the host function after the packet. A host call at this place,
//!   which can return into a loop, would make the loop slower even if the call is never made: the compiler could not keep
//!   live values in registers.
//!
//! - A module whose calls can be suspended always calls the host function, which aborts or suspends the call, or
//!   returns a new counter. In such a module the global is a counter: the rest of the allowance or of the slice,
//!   whichever is smaller.
//!
//! The subtraction never overflows. Before a charge the allowance is at least 0, because a negative one aborts the call
//! or is refilled. No charge is so large that the result is below the smallest 64-bit number.

use wasm_encoder::{BlockType, BranchHint, Function, MemArg, MemArgTarget, ValType};
use weir_abi::POLL_PAGE;
use weir_abi::host::ValueType;
use weir_bounds::charge::ChargeAmount;
use weir_bounds::{Length, OnEntry, OverLength};

/// An upper bound on all allowances, in fuel.
pub(crate) const ALLOWANCE_MAX: u64 = 1 << 59;

/// Indices of the meter's parts in the rewritten module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuelMeter {
    /// The global with the allowance.
    pub(crate) fuel: u32,
    /// The host function that is called when the allowance is used up.
    pub(crate) limit: u32,
    pub(crate) on_exhausted: OnExhausted,
    /// True if the poll page is read after each packet and each host call.
    pub(crate) polls: bool,
}

/// The action when a call has used up its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnExhausted {
    /// The call is aborted.
    Abort,
    /// The call gets another piece of fuel, and the global `over` notes that it was over its limit.
    Refill { piece: u64, over: u32 },
    /// The host decides. Without `slice` there is no allowance, and the counter is the slice.
    AskHost { slice: Option<SliceGlobals> },
}

/// The part of a suspendable call's fuel that is not in the counter, which holds the smaller one of allowance and
/// slice. If `beyond` is greater than 0 it is valid, and the slice is the larger one; otherwise `held` is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SliceGlobals {
    /// The global with the excess of the slice over the allowance; 0 if the allowance is larger.
    pub(crate) beyond: u32,
    /// The global with the excess of the allowance over the slice, if it is larger.
    pub(crate) held: u32,
}

/// Indices of the locals that charging needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    /// An i64: the allowance, during a charge or during the function.
    pub(crate) fuel: u32,
    /// An i64: an operand of type i64 above a length on the stack.
    above: u32,
    /// An i32: a length.
    length: u32,
    /// An i32: an operand of type i32 above a length on the stack, or the result of an instruction.
    answer: u32,
}

impl Scratch {
    /// The types of the locals, in order.
    pub(crate) const TYPES: [(u32, ValType); 2] = [(2, ValType::I64), (2, ValType::I32)];

    /// Returns the indices after `locals` other locals.
    pub(crate) const fn after(locals: u32) -> Self {
        Self { fuel: locals, above: locals + 1, length: locals + 2, answer: locals + 3 }
    }
}

/// A function body under construction.
pub(crate) struct MeteredBody {
    pub(crate) code: Function,
    pub(crate) hints: Vec<BranchHint>,
    /// The locals for charging. Only functions that make charges have them.
    pub(crate) scratch: Scratch,
    /// True if the allowance is in a local during the function, instead of the global.
    pub(crate) keeps_fuel: bool,
}

impl MeteredBody {
    pub(crate) fn new(locals: impl IntoIterator<Item = (u32, ValType)>, scratch: Scratch) -> Self {
        let locals: Vec<_> = locals.into_iter().collect();
        Self { code: Function::new(locals), hints: Vec::new(), scratch, keeps_fuel: false }
    }

    /// Adds a hint for the branch that is written next: true if it is likely to be taken.
    pub(crate) fn hint(&mut self, taken: bool) {
        self.hints.push(BranchHint {
            branch_func_offset: u32::try_from(self.code.byte_len()).unwrap_or(u32::MAX),
            branch_hint_value: u32::from(taken),
        });
    }

    /// Writes code that reads a byte of the poll page, which traps if the call's time is over. The read is atomic,
    /// because the compiler could otherwise merge two reads.
    pub(crate) fn poll(&mut self) {
        let page = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
        self.code.instructions().i32_const(POLL_PAGE.cast_signed()).i32_atomic_load8_u(page).drop();
    }
}

impl FuelMeter {
    /// Writes code that loads the allowance into its local, for the duration of the function.
    pub(crate) fn load(self, body: &mut MeteredBody) {
        body.code.instructions().global_get(self.fuel).local_set(body.scratch.fuel);
    }

    /// Writes code that stores the allowance back into its global, for the next function that charges.
    pub(crate) fn store(self, body: &mut MeteredBody) {
        body.code.instructions().local_get(body.scratch.fuel).global_set(self.fuel);
    }

    /// Writes a charge of a constant.
    pub(crate) fn charge_constant(self, body: &mut MeteredBody, amount: u64) {
        self.take(body, |body| {
            body.code.instructions().i64_const(amount.cast_signed());
        });
    }

    /// Writes a charge before an instruction. For a charge that is made after the instruction, writes code that saves the
    /// operand on which it depends. `shift` is added to the plan's indices of locals.
    pub(crate) fn charge_before(self, body: &mut MeteredBody, amount: &ChargeAmount, shift: u32) {
        match amount {
            ChargeAmount::Constant(amount) => self.charge_constant(body, *amount),
            ChargeAmount::Trips(on_entry, each) => {
                self.take(body, |body| trips(body, on_entry, *each, shift))
            }
            ChargeAmount::Length(length, each) => self.charge_length(body, *length, *each),
            ChargeAmount::Grown(_) => {
                body.code.instructions().local_tee(body.scratch.length);
            }
        }
    }

    /// Writes a charge after an instruction.
    pub(crate) fn charge_after(self, body: &mut MeteredBody, amount: &ChargeAmount, shift: u32) {
        match amount {
            ChargeAmount::Grown(each) => {
                let Scratch { length, answer, .. } = body.scratch;
                body.code.instructions().local_tee(answer);
                self.take(body, |body| {
                    let mut code = body.code.instructions();
                    code.local_get(length).i64_extend_i32_u().i64_const(each.cast_signed()).i64_mul();
                    code.i64_const(0).local_get(answer).i32_const(-1).i32_ne().select();
                });
            }
            other => self.charge_before(body, other, shift),
        }
    }

    /// Writes a charge for a length on the stack. The operands stay on the stack.
    pub(crate) fn charge_length(self, body: &mut MeteredBody, length: Length, each: u64) {
        let Scratch { above, length: local, answer, .. } = body.scratch;
        let above = match length.above {
            None => None,
            Some(ValueType::I32) => Some(answer),
            Some(ValueType::I64 | ValueType::F64) => Some(above),
        };
        let mut code = body.code.instructions();
        if let Some(above) = above {
            code.local_set(above);
        }
        code.local_tee(local);
        self.take(body, |body| {
            let mut code = body.code.instructions();
            let most = length.most.cast_signed();
            match length.over_length {
                _ if length.most == u32::MAX => {
                    code.local_get(local).i64_extend_i32_u();
                }
                OverLength::Refuse => {
                    code.local_get(local).i64_extend_i32_u().i64_const(0);
                    code.local_get(local).i32_const(most).i32_le_u().select();
                }
                OverLength::Truncate => {
                    code.local_get(local).i32_const(most);
                    code.local_get(local).i32_const(most).i32_le_u().select().i64_extend_i32_u();
                }
            }
            code.i64_const(each.cast_signed()).i64_mul();
        });
        if let Some(above) = above {
            body.code.instructions().local_get(above);
        }
    }

    /// Writes a charge: subtracts from the allowance the i64 that the code of `amount` leaves on the stack.
    fn take(self, body: &mut MeteredBody, amount: impl FnOnce(&mut MeteredBody)) {
        let fuel = body.scratch.fuel;
        if body.keeps_fuel {
            body.code.instructions().local_get(fuel);
        } else {
            body.code.instructions().global_get(self.fuel);
        }
        amount(body);
        body.code.instructions().i64_sub().local_tee(fuel);
        if !body.keeps_fuel {
            body.code.instructions().global_set(self.fuel).local_get(fuel);
        }
        body.code.instructions().i64_const(0).i64_lt_s();
        body.hint(false);
        body.code.instructions().if_(BlockType::Empty);
        match self.on_exhausted {
            OnExhausted::Abort => {
                body.code.instructions().call(self.limit).unreachable();
            }
            OnExhausted::AskHost { .. } => self.ask_host(body),
            OnExhausted::Refill { piece, over } => {
                body.poll();
                let mut code = body.code.instructions();
                code.i64_const(1).global_set(over).i64_const(piece.min(ALLOWANCE_MAX).cast_signed());
                if body.keeps_fuel {
                    code.local_set(fuel)
                } else {
                    code.global_set(self.fuel)
                };
            }
        }
        body.code.instructions().end();
    }

    /// Writes the call of the host function when the counter, which is in the local, is below zero.
    fn ask_host(self, body: &mut MeteredBody) {
        let fuel = body.scratch.fuel;
        body.code.instructions().local_get(fuel).call(self.limit);
        if body.keeps_fuel {
            body.code.instructions().local_set(fuel);
        } else {
            body.code.instructions().global_set(self.fuel);
        }
        if self.polls {
            body.poll();
        }
    }

    /// Writes code that sets the allowance of a packet or a call to the value on the stack. `taken` is the charge for its
    /// entry, which has been subtracted from the value already.
    ///
    /// In a module whose calls can be suspended the counter becomes the smaller one of allowance and slice. `taken` is
    /// subtracted from the slice.
    pub(crate) fn set_allowance(self, body: &mut MeteredBody, taken: u64) {
        let Scratch { fuel, above, .. } = body.scratch;
        let OnExhausted::AskHost { slice } = self.on_exhausted else {
            if body.keeps_fuel {
                body.code.instructions().local_set(fuel);
            } else {
                body.code.instructions().global_set(self.fuel);
            }
            return;
        };
        let Some(SliceGlobals { beyond, held }) = slice else {
            body.code.instructions().drop();
            if taken > 0 {
                self.charge_constant(body, taken);
            }
            return;
        };
        let mut code = body.code.instructions();
        code.local_set(above).global_get(beyond);
        if body.keeps_fuel {
            code.local_get(fuel);
        } else {
            code.global_get(self.fuel);
        }
        code.i64_add().local_get(above).i64_sub();
        if taken > 0 {
            code.i64_const(taken.cast_signed()).i64_sub();
        }
        code.local_get(above).local_set(fuel);
        code.local_tee(above).global_set(beyond);
        if !body.keeps_fuel {
            code.local_get(fuel).global_set(self.fuel);
        }
        code.local_get(above).i64_const(0).i64_le_s();
        body.hint(false);
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty);
        code.i64_const(0).local_get(above).i64_sub().global_set(held).i64_const(0).global_set(beyond);
        code.local_get(fuel).local_get(above).i64_add().local_tee(fuel);
        if !body.keeps_fuel {
            code.global_set(self.fuel).local_get(fuel);
        }
        code.i64_const(0).i64_lt_s().if_(BlockType::Empty);
        self.ask_host(body);
        body.code.instructions().end().end();
    }

    /// Returns true if the module's calls can be suspended: the host function decides about a used-up counter.
    pub(crate) fn asks_host(self) -> bool {
        matches!(self.on_exhausted, OnExhausted::AskHost { .. })
    }

    /// Writes code for the end of a packet, batch or call: calls the host function if it was over its limit.
    pub(crate) fn report_excess(self, body: &mut MeteredBody) {
        let OnExhausted::Refill { over, .. } = self.on_exhausted else { return };
        body.code.instructions().global_get(over).i64_eqz().i32_eqz();
        body.hint(false);
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty).i64_const(0).global_set(over);
        code.call(self.limit).end();
    }
}

/// Writes code that leaves the cost of all trips of a loop on the stack. `shift` is added to the plan's indices of
/// locals.
fn trips(body: &mut MeteredBody, on_entry: &OnEntry, each: u64, shift: u32) {
    let mut code = body.code.instructions();
    code.i32_const(on_entry.constant);
    for (local, coefficient) in &on_entry.terms {
        code.local_get(local.saturating_add(shift));
        if *coefficient == -1 {
            code.i32_sub();
            continue;
        }
        if *coefficient != 1 {
            code.i32_const(*coefficient).i32_mul();
        }
        code.i32_add();
    }
    code.i64_extend_i32_u();
    let shift = on_entry.step.trailing_zeros();
    if shift > 0 {
        code.i64_const(shift.into()).i64_shr_u();
    }
    code.i64_const(1).i64_add().i64_const(each.cast_signed()).i64_mul();
}
