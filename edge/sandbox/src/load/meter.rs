//! The code that charges: what the loader puts into a module so that it stops when its allowance is used up.
//!
//! The allowance is in a global that no instruction of the module can name. A charge takes from it. Below zero, out of the way of what runs, a metered
//! module calls a host function, which abandons the call. A supervised one comes to a poll point: it notes that it was over its limit, reads the poll
//! page, by which the host can end it, and is given another piece; the host function is called after the packet. A call that comes back from
//! the middle of a loop would cost much more though it is never made: what is alive around it cannot stay in registers.
//!
//! In a module whose calls can be suspended the counter is what is left of the allowance or of the slice, whichever is less. Below zero the host function is
//! called in any case: it abandons the call, or suspends it, and says what it may use next.
//!
//! The allowance never wraps around. It is not negative before a charge, because whoever has less than nothing left does not go on or is given a
//! piece; it is at most [`ALLOWANCE_MAX`]; and no charge takes more than the largest negative number leaves room for.

use wasm_encoder::{BlockType, BranchHint, Function, MemArg, MemArgTarget, ValType};
use weir_abi::POLL_PAGE;
use weir_abi::host::ValueType;
use weir_bounds::charge::ChargeAmount;
use weir_bounds::{Beyond, Length, OnEntry};

/// More fuel than any call is given.
pub(crate) const ALLOWANCE_MAX: u64 = 1 << 59;

/// Where the loader's own things are in the rewritten module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuelMeter {
    /// The global with the allowance.
    pub(crate) fuel: u32,
    /// The host function for whoever has used it up.
    pub(crate) limit: u32,
    pub(crate) then: Then,
    /// Whether the poll page is read after each packet and each call of the host.
    pub(crate) polls: bool,
}

/// What becomes of a call that has used up its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is abandoned.
    Abandon,
    /// It is given so much more, and the global says that it was over its limit.
    GoOn { piece: u64, over: u32 },
    /// The host says what becomes of it. Without a slice there is no allowance, and the counter is the slice.
    Ask { slice: Option<Slice> },
}

/// What is not in the counter while a call runs that can be suspended: at any time one of the two globals counts, and which one the first tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The global with what the slice has left beyond the allowance. Where it is 0, the allowance is the greater.
    pub(crate) beyond: u32,
    /// The global with what the allowance has left beyond the slice, where it is the greater.
    pub(crate) held: u32,
}

/// Locals that charging needs, by their indices in the function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    /// An i64: the allowance, for the time of a charge or of the function.
    pub(crate) fuel: u32,
    /// An i64: what is on the stack above a length.
    above: u32,
    /// An i32: a length.
    length: u32,
    /// An i32: what is on the stack above a length, or the answer of an instruction.
    answer: u32,
}

impl Scratch {
    /// Types of the locals, from the first one on.
    pub(crate) const TYPES: [(u32, ValType); 2] = [(2, ValType::I64), (2, ValType::I32)];

    /// After so many locals.
    pub(crate) const fn after(locals: u32) -> Self {
        Self { fuel: locals, above: locals + 1, length: locals + 2, answer: locals + 3 }
    }
}

/// A function body that is being written.
pub(crate) struct MeteredBody {
    pub(crate) code: Function,
    pub(crate) hints: Vec<BranchHint>,
    /// Where charging keeps its things. Only in functions in which something is charged.
    pub(crate) scratch: Scratch,
    /// Whether the allowance is in the local while the function runs.
    pub(crate) keeps_fuel: bool,
}

impl MeteredBody {
    pub(crate) fn new(locals: impl IntoIterator<Item = (u32, ValType)>, scratch: Scratch) -> Self {
        let locals: Vec<_> = locals.into_iter().collect();
        Self { code: Function::new(locals), hints: Vec::new(), scratch, keeps_fuel: false }
    }

    /// Marks the branch that is written next.
    pub(crate) fn hint(&mut self, taken: bool) {
        self.hints.push(BranchHint {
            branch_func_offset: u32::try_from(self.code.byte_len()).unwrap_or(u32::MAX),
            branch_hint_value: u32::from(taken),
        });
    }

    /// Reads a byte of the poll page, which is gone when the call's time is over. Atomic, because the compiler would otherwise take one of two
    /// reads for superfluous.
    pub(crate) fn poll(&mut self) {
        let page = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
        self.code.instructions().i32_const(POLL_PAGE.cast_signed()).i32_atomic_load8_u(page).drop();
    }
}

impl FuelMeter {
    /// Loads the allowance into its local, for the time of the function.
    pub(crate) fn load(self, body: &mut MeteredBody) {
        body.code.instructions().global_get(self.fuel).local_set(body.scratch.fuel);
    }

    /// Puts the allowance back, for whoever charges next.
    pub(crate) fn store(self, body: &mut MeteredBody) {
        body.code.instructions().local_get(body.scratch.fuel).global_set(self.fuel);
    }

    /// Charges a constant.
    pub(crate) fn charge_constant(self, body: &mut MeteredBody, amount: u64) {
        self.take(body, |body| {
            body.code.instructions().i64_const(amount.cast_signed());
        });
    }

    /// Charges, where this charge stands before an instruction. For one that stands after it, keeps what it depends on. The function's locals are
    /// `shift` further than in the plan.
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

    /// Charges, where this charge stands after an instruction.
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

    /// Charges for a length that is on the stack, which stays there.
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
            match length.beyond {
                _ if length.most == u32::MAX => {
                    code.local_get(local).i64_extend_i32_u();
                }
                Beyond::Nothing => {
                    code.local_get(local).i64_extend_i32_u().i64_const(0);
                    code.local_get(local).i32_const(most).i32_le_u().select();
                }
                Beyond::Most => {
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

    /// Takes from the allowance what `amount` leaves on the stack, an i64.
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
        match self.then {
            Then::Abandon => {
                body.code.instructions().call(self.limit).unreachable();
            }
            Then::Ask { .. } => self.ask(body),
            Then::GoOn { piece, over } => {
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

    /// Has the host say what becomes of a call whose counter, which is in the local, is below zero.
    fn ask(self, body: &mut MeteredBody) {
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

    /// Gives a packet or a call its allowance: what is on the stack, from which so much has been taken for its entry. In a module whose calls can be
    /// suspended it gets no more than its slice has left, and what the last one left over goes back to the slice.
    pub(crate) fn allow(self, body: &mut MeteredBody, taken: u64) {
        let Scratch { fuel, above, .. } = body.scratch;
        let Then::Ask { slice } = self.then else {
            if body.keeps_fuel {
                body.code.instructions().local_set(fuel);
            } else {
                body.code.instructions().global_set(self.fuel);
            }
            return;
        };
        let Some(Slice { beyond, held }) = slice else {
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
        self.ask(body);
        body.code.instructions().end().end();
    }

    /// Whether the host is asked what becomes of a call, which it may suspend.
    pub(crate) fn asks(self) -> bool {
        matches!(self.then, Then::Ask { .. })
    }

    /// After a packet or batch: tells the host if it was over its limit.
    pub(crate) fn note(self, body: &mut MeteredBody) {
        let Then::GoOn { over, .. } = self.then else { return };
        body.code.instructions().global_get(over).i64_eqz().i32_eqz();
        body.hint(false);
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty).i64_const(0).global_set(over);
        code.call(self.limit).end();
    }
}

/// Leaves on the stack what the trips of a loop cost.
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
