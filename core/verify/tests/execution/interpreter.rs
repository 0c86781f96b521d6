//! A plain interpreter for the instructions of the random programs. It panics where a promise is broken.

use std::collections::HashMap;

use iced_x86::{Decoder, Instruction, Mnemonic, OpKind, Register};

use super::source::Source;
use crate::support::{FRAME_MAX, GLOBALS_BYTES, GUARD_BYTES};

/// The stack pointer at entry.
const ENTRY: u64 = 0x7fff_1234_5008;

/// Endless loops end here.
const STEPS_MAX: u32 = 300;

const RSP: usize = 4;

/// The record of a run.
pub struct Run {
    pub accesses: u64,
    pub returned: bool,
}

struct Machine<'a> {
    registers: [u64; 16],
    /// The bytes of the stack that have been written.
    stack: HashMap<u64, u8>,
    source: &'a mut Source,
    accesses: u64,
}

/// Runs code with random arguments.
pub fn run(code: &[u8], source: &mut Source) -> Run {
    let mut machine = Machine { registers: [0; 16], stack: HashMap::new(), source, accesses: 0 };
    machine.registers = std::array::from_fn(|_| machine.source.value());
    machine.registers[RSP] = ENTRY;
    let at_entry = machine.registers;
    let mut next = 0;
    for _ in 0..STEPS_MAX {
        let at = usize::try_from(next).expect("in the code");
        let instruction = Decoder::with_ip(64, &code[at..], next, 0).decode();
        next = instruction.next_ip();
        match instruction.mnemonic() {
            Mnemonic::Jne => {
                if machine.source.one_in(2) {
                    next = instruction.near_branch64();
                }
            }
            Mnemonic::Ret => {
                assert_eq!(machine.registers[RSP], ENTRY, "the stack pointer at the return");
                for saved in [3, 5, 12, 13, 14, 15] {
                    assert_eq!(machine.registers[saved], at_entry[saved], "register {saved} at the return");
                }
                return Run { accesses: machine.accesses, returned: true };
            }
            _ => machine.step(&instruction),
        }
        let depth =
            ENTRY.checked_sub(machine.registers[RSP]).expect("the stack pointer is not above the entry");
        assert!(depth <= FRAME_MAX.into());
    }
    Run { accesses: machine.accesses, returned: false }
}

impl Machine<'_> {
    fn step(&mut self, i: &Instruction) {
        let bits = match i.op0_kind() {
            OpKind::Register => i.op0_register().size() * 8,
            _ => i.memory_size().size() * 8,
        };
        let sign = |value: u64| i64::from_ne_bytes((value << (64 - bits)).to_ne_bytes()) >> (64 - bits);
        let unsigned = |value: i64| u64::from_ne_bytes(value.to_ne_bytes());
        match i.mnemonic() {
            Mnemonic::Push => {
                let value = self.read(i, 0);
                self.registers[RSP] -= 8;
                self.store(self.registers[RSP], 8, value);
                return;
            }
            Mnemonic::Pop => {
                let value = self.load(self.registers[RSP], 8);
                self.registers[RSP] += 8;
                self.write(i, value);
                return;
            }
            Mnemonic::Call => {
                assert_eq!(self.registers[RSP] % 16, 0, "the alignment at a call");
                for number in [0, 1, 2, 6, 7, 8, 9, 10, 11] {
                    self.registers[number] = self.source.value();
                }
                let pointer = self.registers[RSP];
                self.stack.retain(|address, _| *address >= pointer);
                return;
            }
            Mnemonic::Lea => {
                let address = self.address(i);
                self.write(i, address);
                return;
            }
            _ => {}
        }
        let (left, right) = match i.mnemonic() {
            Mnemonic::Imul if i.op_count() == 3 => (self.read(i, 1), self.read(i, 2)),
            Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd => (0, self.read(i, 1)),
            Mnemonic::Neg | Mnemonic::Not | Mnemonic::Inc | Mnemonic::Dec => (self.read(i, 0), 0),
            Mnemonic::Sete => (0, 0),
            _ => (self.read(i, 0), self.read(i, 1)),
        };
        let count = u32::try_from(right % if bits == 64 { 64 } else { 32 }).expect("small");
        let result = match i.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => right,
            Mnemonic::Movsxd => unsigned(i64::from(i32::from_ne_bytes(
                u32::try_from(right & 0xffff_ffff).expect("32 bits").to_ne_bytes(),
            ))),
            Mnemonic::Add => left.wrapping_add(right),
            Mnemonic::Sub => left.wrapping_sub(right),
            Mnemonic::And => left & right,
            Mnemonic::Or => left | right,
            Mnemonic::Xor => left ^ right,
            Mnemonic::Shl => left << count,
            Mnemonic::Shr => left >> count,
            Mnemonic::Sar => unsigned(sign(left) >> count),
            Mnemonic::Imul => left.wrapping_mul(right),
            Mnemonic::Neg => left.wrapping_neg(),
            Mnemonic::Not => !left,
            Mnemonic::Inc => left.wrapping_add(1),
            Mnemonic::Dec => left.wrapping_sub(1),
            Mnemonic::Cmove => {
                if self.source.one_in(2) {
                    left
                } else {
                    right
                }
            }
            Mnemonic::Sete => self.source.word() % 2,
            mnemonic => panic!("{mnemonic:?}"),
        };
        self.write(i, result);
    }

    fn register(&self, register: Register) -> u64 {
        let value = self.registers[register.full_register().number()];
        match register.size() {
            8 => value,
            4 => value & 0xffff_ffff,
            1 => value & 0xff,
            _ => panic!("{register:?}"),
        }
    }

    fn read(&mut self, i: &Instruction, operand: u32) -> u64 {
        match i.op_kind(operand) {
            OpKind::Register => self.register(i.op_register(operand)),
            OpKind::Memory => {
                let size = i.memory_size().size();
                let address = self.address(i);
                if i.segment_prefix() == Register::GS {
                    self.check_region(address, size);
                    let word = self.source.value();
                    if size == 8 { word } else { word & ((1 << (8 * size)) - 1) }
                } else {
                    self.load(address, size)
                }
            }
            _ => i.immediate(operand),
        }
    }

    fn write(&mut self, i: &Instruction, value: u64) {
        if i.op0_kind() == OpKind::Memory {
            let (address, size) = (self.address(i), i.memory_size().size());
            if i.segment_prefix() == Register::GS {
                self.check_region(address, size);
            } else {
                self.store(address, size, value);
            }
            return;
        }
        let register = &mut self.registers[i.op0_register().full_register().number()];
        *register = match i.op0_register().size() {
            8 => value,
            4 => value & 0xffff_ffff,
            _ => *register & !0xff | value & 0xff,
        };
    }

    fn address(&self, i: &Instruction) -> u64 {
        let part = |register: Register| if register == Register::None { 0 } else { self.register(register) };
        let scaled = part(i.memory_index()).wrapping_mul(i.memory_index_scale().into());
        let sum = part(i.memory_base()).wrapping_add(scaled).wrapping_add(i.memory_displacement64());
        let is_32_bit = [i.memory_base(), i.memory_index()].iter().any(|register| register.is_gpr32());
        if is_32_bit { sum & 0xffff_ffff } else { sum }
    }

    fn check_region(&mut self, address: u64, size: usize) {
        self.accesses += 1;
        let offset = i128::from(i64::from_ne_bytes(address.to_ne_bytes()));
        let end = offset + i128::try_from(size).expect("small");
        assert!(offset >= -i128::from(GLOBALS_BYTES), "an access at {offset}");
        assert!(end <= (1 << 32) + i128::from(GUARD_BYTES), "an access up to {end}");
    }

    fn check_frame(&mut self, address: u64, size: usize) {
        self.accesses += 1;
        let pointer = self.registers[RSP];
        assert!(address >= pointer && address + size as u64 <= ENTRY, "{address:#x} with {pointer:#x}");
    }

    fn load(&mut self, address: u64, size: usize) -> u64 {
        self.check_frame(address, size);
        let mut bytes = [0; 8];
        for (at, byte) in (address..).zip(&mut bytes[..size]) {
            let source = &mut self.source;
            *byte = *self.stack.entry(at).or_insert_with(|| source.word().to_le_bytes()[0]);
        }
        u64::from_le_bytes(bytes)
    }

    fn store(&mut self, address: u64, size: usize, value: u64) {
        self.check_frame(address, size);
        self.stack.extend((address..).zip(value.to_le_bytes()).take(size));
    }
}
