//! The effect of one instruction on the abstract state.

use iced_x86::{OpKind, Register};

use crate::access::{Place, address};
use crate::allow::InstructionClass;
use crate::decode::{Step, number};
use crate::state::State;
use crate::value::{AddressBase, Value, Width};

/// Applies an instruction that only changes registers and its memory operand, which is at `place`.
///
/// The value of the first operand is computed by class. Every other register that the decoder lists as written becomes
/// unknown, unless the class says more. So a class with too little knowledge costs precision, not safety.
pub(crate) fn apply(step: &Step, place: Option<Place>, state: &mut State) {
    let operands = Operands { step, place, state };
    let result = operands.result();
    let first = operands.first_after(result);
    let accumulator = operands.state.register(RAX);
    let mut written = step.written;
    while written != 0 {
        state.set_register(written.trailing_zeros() as usize, Value::TOP);
        written &= written - 1;
    }
    apply_second(step, accumulator, state);
    match (step.writes_first, step.instruction.op0_kind()) {
        (true, OpKind::Register) if step.instruction.op0_register().is_gpr() => {
            state.set_register(number(step.instruction.op0_register()), first);
        }
        (true, OpKind::Memory) => write_memory(step, place, result, state),
        _ => {}
    }
}

const RAX: usize = 0;
const RDX: usize = 2;

/// Narrows registers other than the first operand, which are unknown before.
fn apply_second(step: &Step, accumulator: Value, state: &mut State) {
    let instruction = &step.instruction;
    // Products of more than one operand write only that operand.
    let writes_both = step.written & (1 << RDX) != 0 && !step.writes_first;
    match step.class {
        InstructionClass::Wide | InstructionClass::Multiply
            if writes_both && first_width(step) == Some(Width::W32) =>
        {
            state.set_register(RAX, Value::any(Width::W32));
            state.set_register(RDX, Value::any(Width::W32));
        }
        InstructionClass::Mulx | InstructionClass::Exchange => {
            let second = instruction.op1_register();
            if second.is_gpr32() {
                state.set_register(number(second), Value::any(Width::W32));
            }
        }
        InstructionClass::Cwde => state.set_register(RAX, accumulator.sign_extended(Width::W16, Width::W32)),
        InstructionClass::Cdqe => state.set_register(RAX, accumulator.sign_extended(Width::W32, Width::W64)),
        InstructionClass::Cdq => state.set_register(RDX, Value::any(Width::W32)),
        _ => {}
    }
}

fn write_memory(step: &Step, place: Option<Place>, result: Option<Value>, state: &mut State) {
    let bytes = step.instruction.memory_size().size();
    match (place, result, Width::of_bytes(bytes)) {
        (Some(Place::Frame { lo, hi }), Some(value), Some(width)) if lo == hi => {
            state.store(lo, width, value)
        }
        (Some(Place::Frame { lo, hi }), ..) => {
            state.forget(lo, hi.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX)));
        }
        _ => {}
    }
}

/// The value of the only operand of a `push`.
pub(crate) fn pushed(step: &Step, place: Option<Place>, state: &State) -> Value {
    Operands { step, place, state }.read(0)
}

/// The width of the first operand if it is an integer.
fn first_width(step: &Step) -> Option<Width> {
    match step.instruction.op0_kind() {
        OpKind::Register if step.instruction.op0_register().is_gpr() => {
            Width::of_bytes(step.instruction.op0_register().size())
        }
        OpKind::Memory => Width::of_bytes(step.instruction.memory_size().size()),
        _ => None,
    }
}

/// The operands of an instruction before it.
struct Operands<'a> {
    step: &'a Step,
    place: Option<Place>,
    state: &'a State,
}

impl Operands<'_> {
    /// The value of an operand, zero-extended from its own width.
    fn read(&self, operand: u32) -> Value {
        let instruction = &self.step.instruction;
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                match Width::of_bytes(register.size()) {
                    Some(width) if register.is_gpr() && !is_high_byte(register) => {
                        self.state.register(number(register)).low(width)
                    }
                    Some(width) => Value::any(width),
                    None => Value::TOP,
                }
            }
            OpKind::Memory => match (self.place, Width::of_bytes(instruction.memory_size().size())) {
                (Some(Place::Frame { lo, hi }), Some(width)) if lo == hi => self.state.load(lo, width),
                (_, Some(width)) => Value::any(width),
                _ => Value::TOP,
            },
            _ => match instruction.try_immediate(operand) {
                Ok(immediate) => Value::exact(AddressBase::ZERO, immediate.cast_signed()),
                Err(_) => Value::TOP,
            },
        }
    }

    fn operand_width(&self, operand: u32) -> Option<Width> {
        let instruction = &self.step.instruction;
        match instruction.op_kind(operand) {
            OpKind::Register => Width::of_bytes(instruction.op_register(operand).size()),
            OpKind::Memory => Width::of_bytes(instruction.memory_size().size()),
            _ => None,
        }
    }

    /// The value that is written to the first operand, of its width. None if that is not an integer.
    fn result(&self) -> Option<Value> {
        let width = first_width(self.step)?;
        if !self.step.writes_first {
            return None;
        }
        let instruction = &self.step.instruction;
        let one = Value::exact(AddressBase::ZERO, 1);
        let zero = Value::exact(AddressBase::ZERO, 0);
        let carry = Value { base: AddressBase::ZERO, lo: 0, hi: 1 };
        // The two operands of arithmetic: the first and second, or the second and third.
        let (left, right) = if instruction.op_count() == 3 { (1, 2) } else { (0, 1) };
        let value = match self.step.class {
            InstructionClass::Move => self.read(1),
            InstructionClass::SignExtend => match self.operand_width(1) {
                Some(from) => self.read(1).sign_extended(from, width),
                None => Value::any(width),
            },
            InstructionClass::Lea => address(instruction, self.state),
            InstructionClass::Subtract | InstructionClass::Xor if self.is_same_register() => zero,
            InstructionClass::Add => self.read(0).add(self.read(1), width),
            InstructionClass::AddWithCarry => self.read(0).add(self.read(1), width).add(carry, width),
            InstructionClass::Subtract => self.read(0).sub(self.read(1), width),
            InstructionClass::SubtractWithBorrow => self.read(0).sub(self.read(1), width).sub(carry, width),
            InstructionClass::Increment => self.read(0).add(one, width),
            InstructionClass::Decrement => self.read(0).sub(one, width),
            InstructionClass::Negate => zero.sub(self.read(0), width),
            InstructionClass::Not => Value::exact(AddressBase::ZERO, -1).sub(self.read(0), width),
            InstructionClass::And => self.read(0).and(self.read(1), width),
            InstructionClass::Or | InstructionClass::Xor => self.read(0).or(self.read(1), width),
            InstructionClass::ShiftLeft => self.read(left).shift_left(self.read(right), width),
            InstructionClass::ShiftRight => self.read(left).shift_right(self.read(right), width),
            InstructionClass::ShiftRightSigned => self.read(left).shift_right_signed(self.read(right), width),
            InstructionClass::Multiply if instruction.op_count() > 1 => {
                self.read(left).mul(self.read(right), width)
            }
            InstructionClass::Count => Value { base: AddressBase::ZERO, lo: 0, hi: width.bits().into() },
            InstructionClass::ConditionalMove => self.read(0).join(self.read(1)),
            InstructionClass::Set => Value { base: AddressBase::ZERO, lo: 0, hi: 1 },
            _ => Value::any(width),
        };
        Some(value.low(width))
    }

    /// The 64-bit register of the first operand after `result` is written to it.
    fn first_after(&self, result: Option<Value>) -> Value {
        let register = self.step.instruction.op0_register();
        let (Some(result), true) = (result, self.step.instruction.op0_kind() == OpKind::Register) else {
            return Value::TOP;
        };
        let old = self.state.register(number(register));
        match Width::of_bytes(register.size()) {
            // The destination is unchanged if there is no bit.
            Some(Width::W32)
                if self.step.class == InstructionClass::BitScan && !old.is_within(Width::W32) =>
            {
                Value::TOP
            }
            Some(Width::W32 | Width::W64) => result,
            Some(width @ (Width::W8 | Width::W16))
                if self.step.class != InstructionClass::Exchange && !is_high_byte(register) =>
            {
                old.with_low(result, width)
            }
            _ => Value::TOP,
        }
    }

    fn is_same_register(&self) -> bool {
        let instruction = &self.step.instruction;
        instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register()
    }
}

fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}
