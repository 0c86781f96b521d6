//! The abstract state between two instructions: registers, and values spilled to the frame.

use crate::value::{AddressBase, Value, Width};

/// The number of the stack pointer.
pub(crate) const RSP: usize = 4;

/// The callee-saved registers apart from the stack pointer: RBX, RBP, R12 to R15.
pub(crate) const CALLEE_SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];

/// The registers that a call changes: all others.
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// The most slots whose values are tracked. Joins and copies of a state cost as much time as it has slots.
const SLOTS_MAX: usize = 256;

/// The values of all registers, and of slots in the frame.
#[derive(Clone, Debug)]
pub(crate) struct State {
    registers: [Value; 16],
    slots: Slots,
}

impl State {
    /// The state at the entry of a function. Arguments are arbitrary.
    pub(crate) fn at_entry() -> Self {
        let mut registers = [Value::TOP; 16];
        for number in CALLEE_SAVED {
            registers[usize::from(number)] = Value::exact(AddressBase::entry(number), 0);
        }
        registers[RSP] = Value::exact(AddressBase::STACK, 0);
        Self { registers, slots: Slots::default() }
    }

    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.registers = other.registers;
        self.slots.0.clone_from(&other.slots.0);
    }

    /// Takes the number of a 64-bit register.
    #[inline]
    pub(crate) fn register(&self, number: usize) -> Value {
        self.registers[number & 15]
    }

    #[inline]
    pub(crate) fn set_register(&mut self, number: usize, value: Value) {
        self.registers[number & 15] = value;
    }

    /// The distance of the stack pointer from its value at entry.
    #[inline]
    pub(crate) fn stack_pointer(&self) -> Option<i64> {
        self.registers[RSP].offset_from(AddressBase::STACK)
    }

    pub(crate) fn load(&self, offset: i64, width: Width) -> Value {
        self.slots.load(offset, width)
    }

    pub(crate) fn store(&mut self, offset: i64, width: Width, value: Value) {
        self.slots.store(offset, width, value);
    }

    /// Forgets each slot that has a byte from `from` up to `to`.
    pub(crate) fn forget(&mut self, from: i64, to: i64) {
        let overlapping = self.slots.overlapping(from, to);
        self.slots.0.drain(overlapping);
    }

    /// Forgets each slot that begins below an offset. Memory below the stack pointer belongs to callees.
    pub(crate) fn forget_below(&mut self, offset: i64) {
        let end = self.slots.0.partition_point(|slot| slot.offset < offset);
        self.slots.0.drain(..end);
    }

    /// Forgets the registers that a callee may change.
    pub(crate) fn forget_caller_saved(&mut self) {
        for number in CALLER_SAVED {
            self.registers[number] = Value::TOP;
        }
    }

    /// The number of values, as a measure of the time that a copy or a join takes.
    pub(crate) fn cells(&self) -> u64 {
        (self.registers.len() + self.slots.0.len()) as u64
    }

    /// Joins another state into this one. Returns true if this one has changed.
    pub(crate) fn join(&mut self, other: &Self, widen: bool) -> bool {
        let join = |value: Value, other| if widen { value.widen(other) } else { value.join(other) };
        let mut changed = false;
        for (register, other) in self.registers.iter_mut().zip(other.registers) {
            let joined = join(*register, other);
            if joined != *register {
                *register = joined;
                changed = true;
            }
        }
        let mut others = other.slots.0.iter().peekable();
        self.slots.0.retain_mut(|slot| {
            while others.next_if(|other| other.offset < slot.offset).is_some() {}
            let same = others.peek().filter(|other| other.offset == slot.offset && other.width == slot.width);
            let joined = same.map(|other| join(slot.value, other.value));
            let joined = joined.filter(|value| *value != Value::any(slot.width));
            changed |= joined != Some(slot.value);
            slot.value = joined.unwrap_or(Value::TOP);
            joined.is_some()
        });
        changed
    }
}

/// Four or eight bytes of the frame about which more is known than their size.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Relative to the stack pointer at entry.
    offset: i64,
    width: Width,
    value: Value,
}

impl Slot {
    fn end(&self) -> i64 {
        self.offset + bytes(self.width)
    }
}

fn bytes(width: Width) -> i64 {
    (width.bits() / 8).into()
}

/// Slots, sorted by offset. They do not overlap.
#[derive(Clone, Debug, Default)]
struct Slots(Vec<Slot>);

impl Slots {
    /// The indices of the slots that have a byte from `from` up to `to`.
    fn overlapping(&self, from: i64, to: i64) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|slot| slot.end() <= from);
        let end = self.0.partition_point(|slot| slot.offset < to);
        start..end.max(start)
    }

    fn load(&self, offset: i64, width: Width) -> Value {
        match self.0.binary_search_by_key(&offset, |slot| slot.offset) {
            Ok(found) if self.0[found].width.bits() >= width.bits() => self.0[found].value.low(width),
            _ => Value::any(width),
        }
    }

    fn store(&mut self, offset: i64, width: Width, value: Value) {
        let overlapping = self.overlapping(offset, offset + bytes(width));
        let value = value.low(width);
        let is_known = matches!(width, Width::W32 | Width::W64) && value != Value::any(width);
        let new = is_known.then_some(Slot { offset, width, value });
        match new {
            // Usually a store replaces one slot. Then the other slots need not be moved.
            Some(new) if overlapping.len() == 1 => self.0[overlapping.start] = new,
            new => {
                let start = overlapping.start;
                self.0.drain(overlapping);
                if let Some(new) = new.filter(|_| self.0.len() < SLOTS_MAX) {
                    self.0.insert(start, new);
                }
            }
        }
    }
}
