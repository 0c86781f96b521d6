//! Expressions over all sources of numbers that a module has.

use super::pieces::{Maker, Type};
use weir_abi::TABLES_BASE;

/// Numbers at which arithmetic wraps or overflows.
const EDGES: [i64; 14] = [
    0,
    1,
    -1,
    2,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0xffff_fff0,
    0x7fff_fff0,
    255,
    256,
    65_535,
    65_536,
    -16,
];

impl Maker<'_, '_> {
    /// A constant: mostly small, sometimes at the edge of a width.
    pub fn constant(&mut self, ty: Type) -> String {
        let value = match self.below(8) {
            0 => EDGES[self.below(EDGES.len())],
            1 => i64::try_from(self.below(2000)).unwrap_or(0),
            _ => i64::try_from(self.below(40)).unwrap_or(0),
        };
        match ty {
            Type::I32 => format!(
                "(i32.const {})",
                i32::from_le_bytes(value.to_le_bytes()[..4].try_into().unwrap_or_default())
            ),
            Type::I64 => format!("(i64.const {value})"),
        }
    }

    /// An unknown number that is not large.
    pub fn small(&mut self, ty: Type) -> String {
        let t = ty.name();
        match self.below(11) {
            0 => self.constant(ty),
            1 => format!(
                "({t}.and {} ({t}.const {}))",
                self.value(ty, 1),
                [1, 3, 7, 15, 31, 60, 255, 256][self.below(8)]
            ),
            2 => format!("({t}.load8_u {})", self.address()),
            3 => {
                format!("({t}.and ({t}.load {}) ({t}.const {}))", self.address(), [7, 15, 63][self.below(3)])
            }
            4 => {
                let (a, b) = (self.value(ty, 1), self.constant(ty));
                let value = self.local(ty);
                let cmp = ["lt_u", "lt_s", "gt_u", "le_u"][self.below(4)];
                self.line(&format!("(local.set {value} {a})"));
                format!("(select (local.get {value}) {b} ({t}.{cmp} (local.get {value}) {b}))")
            }
            5 => self.parameter(ty),
            6 if self.has_packet => self.length(ty),
            7 if self.has_packet => {
                let field = [32, 34, 36, 40][self.below(4)];
                self.widened(ty, &format!("(i32.load16_u offset={field} (local.get $d))"))
            }
            8 => format!(
                "({t}.shr_u {} ({t}.const {}))",
                self.value(ty, 1),
                if ty == Type::I32 { 26 } else { 58 }
            ),
            9 => format!("({t}.rem_u {} ({t}.const {}))", self.value(ty, 1), 1 + self.below(50)),
            _ => match ty {
                Type::I32 => format!("(i32.wrap_i64 {})", self.small(Type::I64)),
                Type::I64 => {
                    format!("(i64.extend_i32_{} {})", ["u", "s"][self.below(2)], self.small(Type::I32))
                }
            },
        }
    }

    /// The captured length of the packet.
    pub fn length(&mut self, ty: Type) -> String {
        self.widened(ty, "(i32.load offset=12 (local.get $d))")
    }

    fn widened(&mut self, ty: Type, value: &str) -> String {
        match ty {
            Type::I32 => value.to_owned(),
            Type::I64 => format!("(i64.extend_i32_{} {value})", ["u", "u", "s"][self.below(3)]),
        }
    }

    fn parameter(&mut self, ty: Type) -> String {
        let call = format!("(call $param_int (i32.const {}))", [0, 0, 0, 1, 3, 9][self.below(6)]);
        match ty {
            Type::I32 => format!("(i32.wrap_i64 {call})"),
            Type::I64 => call,
        }
    }

    /// An address for a load or store: mostly in private memory, often one of a few cells.
    pub fn address(&mut self) -> String {
        match self.below(10) {
            0..=3 => format!("(i32.const {})", 8 * self.below(8)),
            4 => format!("(i32.and {} (i32.const 56))", self.value(Type::I32, 1)),
            5 => format!("(i32.and {} (i32.const 65528))", self.value(Type::I32, 1)),
            6 if self.has_packet => "(i32.load offset=8 (local.get $d))".to_owned(),
            7 => format!("(i32.sub (global.get $sp) (i32.const {}))", 8 * (1 + self.below(4))),
            8 => self.value(Type::I32, 1),
            9 => self.in_table(),
            _ => "(i32.const 16)".to_owned(),
        }
    }

    /// An address in the window of a table: its version, its length, its bytes, or beyond them.
    fn in_table(&mut self) -> String {
        let at = |offset: u32| format!("(i32.const {})", (TABLES_BASE + offset).cast_signed());
        match self.below(4) {
            0 => at(0),
            1 => at(8),
            2 => at(64 + [0, 8, 16, 4032][self.below(4)]),
            _ => format!("(i32.add {} (i32.and {} (i32.const 16383)))", at(64), self.value(Type::I32, 1)),
        }
    }

    /// Any expression.
    pub fn value(&mut self, ty: Type, deep: u32) -> String {
        let t = ty.name();
        if deep == 0 || self.is_spent() {
            return if self.below(3) == 0 {
                self.constant(ty)
            } else {
                format!("(local.get {})", self.any_local(ty))
            };
        }
        match self.below(12) {
            0 => self.constant(ty),
            1..=3 => format!("(local.get {})", self.any_local(ty)),
            4 => self.small(ty),
            5 => format!("({t}.load {})", self.address()),
            6 => {
                let op = ["add", "sub", "and", "or", "xor", "mul", "shl", "shr_u", "shr_s", "rotl"]
                    [self.below(10)];
                format!("({t}.{op} {} {})", self.value(ty, deep - 1), self.value(ty, deep - 1))
            }
            7 => format!(
                "({t}.{} {} {})",
                ["add", "sub"][self.below(2)],
                self.value(ty, deep - 1),
                self.constant(ty)
            ),
            8 => match ty {
                Type::I32 => format!("(i32.wrap_i64 {})", self.value(Type::I64, deep - 1)),
                Type::I64 => format!(
                    "(i64.extend_i32_{} {})",
                    ["u", "s"][self.below(2)],
                    self.value(Type::I32, deep - 1)
                ),
            },
            9 => format!(
                "(select {} {} {})",
                self.value(ty, deep - 1),
                self.value(ty, deep - 1),
                self.condition(deep - 1)
            ),
            10 => {
                let narrow = match ty {
                    Type::I32 => ["load8_u", "load8_s", "load16_u", "load16_s"][self.below(4)],
                    Type::I64 => ["load8_u", "load16_s", "load32_u", "load32_s"][self.below(4)],
                };
                format!("({t}.{narrow} {})", self.address())
            }
            _ => match ty {
                Type::I32 => [
                    "(global.get $sp)",
                    "(memory.size)",
                    "(i32.clz (local.get $a))",
                    "(i32.ctz (local.get $a))",
                ][self.below(4)]
                .to_owned(),
                Type::I64 => self.hash(),
            },
        }
    }

    fn hash(&mut self) -> String {
        let len = self.small(Type::I32);
        format!("(call $hash (i32.const 0) (i32.and {len} (i32.const 255)) (i64.const 1))")
    }

    /// A condition.
    pub fn condition(&mut self, deep: u32) -> String {
        let ty = self.any_type();
        match self.below(6) {
            0 if deep > 0 => format!("(i32.eqz {})", self.condition(deep - 1)),
            1 if deep > 0 => {
                let op = ["and", "or"][self.below(2)];
                format!("(i32.{op} {} {})", self.condition(deep - 1), self.condition(deep - 1))
            }
            2 => format!("({}.eqz {})", ty.name(), self.value(ty, deep)),
            _ => {
                let (a, b) = (self.value(ty, deep), self.value(ty, deep));
                self.compared(ty, &a, &b)
            }
        }
    }

    /// Any comparison of two values.
    pub fn compared(&mut self, ty: Type, a: &str, b: &str) -> String {
        const ALL: [&str; 10] = ["eq", "ne", "lt_u", "lt_s", "le_u", "le_s", "gt_u", "gt_s", "ge_u", "ge_s"];
        format!("({}.{} {a} {b})", ty.name(), ALL[self.below(ALL.len())])
    }
}
