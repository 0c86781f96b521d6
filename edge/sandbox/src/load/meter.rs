//! The meter: code that the loader inserts to charge a module's work to its allowance of fuel.
//!
//! The rest of the allowance is in a global that no instruction of the module can name. A charge subtracts from this rest.
//! If the result is below zero, the module takes a branch that is hinted as unlikely:
//!
//! - A metered module calls a host function, which aborts the call.
//! - A supervised module sets a global that marks the call as over its limit, reads the poll page, and gets a refill of
//!   fuel. The watchdog ends a call by making the poll page inaccessible, so that the read traps. The module calls the
//!   host function only after the packet. If the call were in the branch, and the branch in a loop, the loop would be
//!   slower even if the branch is never taken: the compiler could not keep the loop's values in registers.
//! - A module whose calls can be suspended calls the host function, which aborts or suspends the call, or returns a new
//!   counter. In such a module the global is a counter: the rest of the allowance or of the slice, whichever is smaller.
//!
//! The subtraction never overflows. Before a charge the rest is at least 0, because a negative rest aborts the call or is
//! refilled. And no charge is so large that the result would be below the smallest 64-bit number.

use wasm_encoder::{BlockType, BranchHint, Function, MemArg, MemArgTarget, ValType};
use weir_abi::POLL_PAGE;
use weir_abi::host::ValueType;
use weir_bounds::charge::ChargeAmount;
use weir_bounds::{Length, OverLength, TripCountFormula};

/// An upper bound on all allowances, in fuel.
pub(crate) const ALLOWANCE_MAX: u64 = 1 << 59;

/// The globals and functions of the meter by their indices in the rewritten module, and the action when fuel runs out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FuelMeter {
    /// The global with the allowance.
    pub(crate) fuel_global: u32,
    /// The host function that is called when an allowance or a slice is used up.
    pub(crate) limit_function: u32,
    pub(crate) on_exhausted: OnExhausted,
    /// True if the poll page is read after each packet and each host call.
    pub(crate) reads_poll_page: bool,
}

/// The action when a call has used up its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnExhausted {
    /// The call is aborted.
    Abort,
    /// The call gets `amount` more fuel, and the global with the index `over_limit` is set to 1.
    Refill { amount: u64, over_limit: u32 },
    /// The host function aborts or suspends the call, or returns a new counter. `globals` is `None` if calls have a slice but
    /// no allowance; then the counter is the rest of the slice.
    CallHost { globals: Option<ExcessGlobals> },
}

/// The globals with the difference between the rest of a suspendable call's allowance and the rest of its slice. The
/// counter has the smaller of the two rests.
///
/// If `slice_excess` is greater than 0, the slice is larger. Otherwise the allowance is larger or equal, and
/// `allowance_excess` has the difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExcessGlobals {
    /// The global with the excess of the slice over the allowance; 0 if the allowance is larger.
    pub(crate) slice_excess: u32,
    /// The global with the excess of the allowance over the slice. Its value is not used if the slice is larger.
    pub(crate) allowance_excess: u32,
}

/// The locals that charging code needs, by their indices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scratch {
    /// An i64, for the rest of the allowance during a charge or during the whole function.
    pub(crate) fuel: u32,
    /// An i64, for an operand that is above a length on the stack. Also for an allowance and then an excess in
    /// [`FuelMeter::set_allowance`].
    operand_i64: u32,
    /// An i32, for a length.
    length: u32,
    /// An i32, for an operand that is above a length on the stack, and for the result of an instruction.
    operand_i32: u32,
}

impl Scratch {
    /// The types of the locals, in order.
    pub(crate) const TYPES: [(u32, ValType); 2] = [(2, ValType::I64), (2, ValType::I32)];

    /// Returns the indices after `locals` other locals.
    pub(crate) const fn after(locals: u32) -> Self {
        Self { fuel: locals, operand_i64: locals + 1, length: locals + 2, operand_i32: locals + 3 }
    }
}

/// A function body under construction.
pub(crate) struct MeteredBody {
    pub(crate) code: Function,
    pub(crate) hints: Vec<BranchHint>,
    /// The locals for charging. Their indices are valid only in functions that charge.
    pub(crate) scratch: Scratch,
    /// True if the rest of the allowance is in a local during the function, instead of the global.
    pub(crate) has_fuel_local: bool,
}

impl MeteredBody {
    pub(crate) fn new(locals: impl IntoIterator<Item = (u32, ValType)>, scratch: Scratch) -> Self {
        let locals: Vec<_> = locals.into_iter().collect();
        Self { code: Function::new(locals), hints: Vec::new(), scratch, has_fuel_local: false }
    }

    /// Adds a hint for the branch that is written next: true if it is likely to be taken.
    pub(crate) fn hint(&mut self, is_likely: bool) {
        self.hints.push(BranchHint {
            branch_func_offset: u32::try_from(self.code.byte_len()).unwrap_or(u32::MAX),
            branch_hint_value: u32::from(is_likely),
        });
    }

    /// Writes code that reads a byte of the poll page. The read traps if the call's time is over. It is atomic, so that the
    /// compiler cannot merge two reads.
    pub(crate) fn poll(&mut self) {
        let page = MemArg { offset: 0, align: 0, target: MemArgTarget::Memory(0), ordering: None };
        self.code.instructions().i32_const(POLL_PAGE.cast_signed()).i32_atomic_load8_u(page).drop();
    }
}

impl FuelMeter {
    /// Writes code that loads the allowance into its local, for the duration of the function.
    pub(crate) fn load(self, body: &mut MeteredBody) {
        body.code.instructions().global_get(self.fuel_global).local_set(body.scratch.fuel);
    }

    /// Writes code that stores the allowance back into its global, for the next function that charges.
    pub(crate) fn store(self, body: &mut MeteredBody) {
        body.code.instructions().local_get(body.scratch.fuel).global_set(self.fuel_global);
    }

    /// Writes a charge of a constant.
    pub(crate) fn charge_constant(self, body: &mut MeteredBody, amount: u64) {
        self.charge(body, |body| {
            body.code.instructions().i64_const(amount.cast_signed());
        });
    }

    /// Writes a charge before an instruction. [`ChargeAmount::Grown`] is charged only after the instruction; for it, writes code
    /// that saves the operand on which the charge depends. `shift` is the number of locals that the loader has put before
    /// the module's own, and is added to the indices of locals in `amount`.
    pub(crate) fn charge_before(self, body: &mut MeteredBody, amount: &ChargeAmount, shift: u32) {
        match amount {
            ChargeAmount::Constant(amount) => self.charge_constant(body, *amount),
            ChargeAmount::Trips(trip_formula, each) => {
                self.charge(body, |body| trips(body, trip_formula, *each, shift))
            }
            ChargeAmount::Length(length, each) => self.charge_length(body, *length, *each),
            ChargeAmount::Grown(_) => {
                body.code.instructions().local_tee(body.scratch.length);
            }
        }
    }

    /// Writes a charge after an instruction. `shift` is that of [`Self::charge_before`].
    pub(crate) fn charge_after(self, body: &mut MeteredBody, amount: &ChargeAmount, shift: u32) {
        match amount {
            ChargeAmount::Grown(each) => {
                let Scratch { length, operand_i32: result, .. } = body.scratch;
                body.code.instructions().local_tee(result);
                self.charge(body, |body| {
                    let mut code = body.code.instructions();
                    code.local_get(length).i64_extend_i32_u().i64_const(each.cast_signed()).i64_mul();
                    code.i64_const(0).local_get(result).i32_const(-1).i32_ne().select();
                });
            }
            other => self.charge_before(body, other, shift),
        }
    }

    /// Writes a charge of `each` for each unit of a length that is an operand on the stack. The operands stay on the stack.
    pub(crate) fn charge_length(self, body: &mut MeteredBody, length: Length, each: u64) {
        let Scratch { operand_i64, operand_i32, length: local, .. } = body.scratch;
        let operand = match length.above {
            None => None,
            Some(ValueType::I32) => Some(operand_i32),
            Some(ValueType::I64 | ValueType::F64) => Some(operand_i64),
        };
        let mut code = body.code.instructions();
        if let Some(operand) = operand {
            code.local_set(operand);
        }
        code.local_tee(local);
        self.charge(body, |body| {
            let mut code = body.code.instructions();
            let most = length.units_max.cast_signed();
            match length.over_length {
                _ if length.units_max == u32::MAX => {
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
        if let Some(operand) = operand {
            body.code.instructions().local_get(operand);
        }
    }

    /// Writes a charge: subtracts from the allowance the i64 that the code of `amount` leaves on the stack.
    pub(crate) fn charge(self, body: &mut MeteredBody, amount: impl FnOnce(&mut MeteredBody)) {
        let fuel = body.scratch.fuel;
        if body.has_fuel_local {
            body.code.instructions().local_get(fuel);
        } else {
            body.code.instructions().global_get(self.fuel_global);
        }
        amount(body);
        body.code.instructions().i64_sub().local_tee(fuel);
        if !body.has_fuel_local {
            body.code.instructions().global_set(self.fuel_global).local_get(fuel);
        }
        body.code.instructions().i64_const(0).i64_lt_s();
        body.hint(false);
        body.code.instructions().if_(BlockType::Empty);
        match self.on_exhausted {
            OnExhausted::Abort => {
                body.code.instructions().call(self.limit_function).unreachable();
            }
            OnExhausted::CallHost { .. } => self.call_host(body),
            OnExhausted::Refill { amount, over_limit } => {
                body.poll();
                let mut code = body.code.instructions();
                code.i64_const(1).global_set(over_limit).i64_const(amount.min(ALLOWANCE_MAX).cast_signed());
                if body.has_fuel_local {
                    code.local_set(fuel)
                } else {
                    code.global_set(self.fuel_global)
                };
            }
        }
        body.code.instructions().end();
    }

    /// Writes the call of the host function for a counter below zero, which is in the local. The result is the new counter.
    fn call_host(self, body: &mut MeteredBody) {
        let fuel = body.scratch.fuel;
        body.code.instructions().local_get(fuel).call(self.limit_function);
        if body.has_fuel_local {
            body.code.instructions().local_set(fuel);
        } else {
            body.code.instructions().global_set(self.fuel_global);
        }
        if self.reads_poll_page {
            body.poll();
        }
    }

    /// Writes code that takes an i64 from the stack and begins a packet or a call with it as the allowance. The caller has
    /// already subtracted `entry_charge`, the charge for entering the function, from this i64.
    ///
    /// If calls can be suspended, `entry_charge` has to be subtracted from the rest of the slice, too, and the code does
    /// so. The counter becomes the smaller of the allowance and the rest of the slice.
    pub(crate) fn set_allowance(self, body: &mut MeteredBody, entry_charge: u64) {
        let Scratch { fuel, operand_i64, .. } = body.scratch;
        let OnExhausted::CallHost { globals } = self.on_exhausted else {
            if body.has_fuel_local {
                body.code.instructions().local_set(fuel);
            } else {
                body.code.instructions().global_set(self.fuel_global);
            }
            return;
        };
        let Some(ExcessGlobals { slice_excess, allowance_excess }) = globals else {
            body.code.instructions().drop();
            if entry_charge > 0 {
                self.charge_constant(body, entry_charge);
            }
            return;
        };
        // One local has the allowance first, and then the excess of the slice over the allowance.
        let (allowance, excess) = (operand_i64, operand_i64);
        let mut code = body.code.instructions();
        code.local_set(allowance).global_get(slice_excess);
        if body.has_fuel_local {
            code.local_get(fuel);
        } else {
            code.global_get(self.fuel_global);
        }
        code.i64_add().local_get(allowance).i64_sub();
        if entry_charge > 0 {
            code.i64_const(entry_charge.cast_signed()).i64_sub();
        }
        code.local_get(allowance).local_set(fuel);
        code.local_tee(excess).global_set(slice_excess);
        if !body.has_fuel_local {
            code.local_get(fuel).global_set(self.fuel_global);
        }
        code.local_get(excess).i64_const(0).i64_le_s();
        body.hint(false);
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty);
        code.i64_const(0)
            .local_get(excess)
            .i64_sub()
            .global_set(allowance_excess)
            .i64_const(0)
            .global_set(slice_excess);
        code.local_get(fuel).local_get(excess).i64_add().local_tee(fuel);
        if !body.has_fuel_local {
            code.global_set(self.fuel_global).local_get(fuel);
        }
        code.i64_const(0).i64_lt_s().if_(BlockType::Empty);
        self.call_host(body);
        body.code.instructions().end().end();
    }

    /// Returns true if the module's calls can be suspended.
    pub(crate) fn has_suspendable_calls(self) -> bool {
        matches!(self.on_exhausted, OnExhausted::CallHost { .. })
    }

    /// Writes code for the end of a packet, batch or call, which calls the host function if the limit was exceeded.
    pub(crate) fn report_excess(self, body: &mut MeteredBody) {
        let OnExhausted::Refill { over_limit, .. } = self.on_exhausted else { return };
        body.code.instructions().global_get(over_limit).i64_eqz().i32_eqz();
        body.hint(false);
        let mut code = body.code.instructions();
        code.if_(BlockType::Empty).i64_const(0).global_set(over_limit);
        code.call(self.limit_function).end();
    }
}

/// Writes code that leaves the cost of all trips of a loop on the stack. `shift` is added to the plan's indices of
/// locals.
fn trips(body: &mut MeteredBody, trip_formula: &TripCountFormula, each: u64, shift: u32) {
    let mut code = body.code.instructions();
    code.i32_const(trip_formula.constant);
    for (local, coefficient) in &trip_formula.terms {
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
    let shift = trip_formula.step.trailing_zeros();
    if shift > 0 {
        code.i64_const(shift.into()).i64_shr_u();
    }
    code.i64_const(1).i64_add().i64_const(each.cast_signed()).i64_mul();
}
