//! Generates loops that are easily mistaken for others: few locals, several back edges and exits, limits and steps of
//! every kind, near the ends of their widths.

use std::fmt::Write as _;

/// The memory and globals of all generated modules.
const HEAD: &str = "(type $unary (func (param i32 i32) (result i32)))
(memory (export \"memory\") 1)
(global $g (mut i32) (i32.const 7)) (global $h (mut i64) (i64.const 0))
(table 2 funcref) (elem (i32.const 0) func $first $second)";

const COMPARISONS: [&str; 10] = ["lt_u", "lt_s", "gt_u", "ge_u", "le_u", "ne", "eq", "le_s", "gt_s", "ge_s"];

/// The code where the module shows one of its values.
#[derive(Clone, Copy, Debug)]
pub enum Probe {
    /// Stores the value to show it.
    Show,
    /// Loops for ever if the value is this.
    Equal(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    I32,
    I64,
}

impl Type {
    const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::I32 => Self::I64,
            Self::I64 => Self::I32,
        }
    }
}

struct Maker<'a> {
    choices: &'a [u8],
    out: String,
    labels: Vec<usize>,
    label_count: usize,
    loops: usize,
    statements: usize,
    /// Two base numbers: most constants of the module are near one of them.
    near: [i64; 2],
    /// The number of statements before the probe.
    probe_at: usize,
    probe: Probe,
    /// True inside a helper function, which has no packet.
    in_helper: bool,
    /// True if there are helper functions to call.
    has_helpers: bool,
}

/// The text of a module, from choices.
pub fn module(choices: &[u8], probe: Probe) -> String {
    let mut maker = Maker {
        choices,
        out: String::new(),
        labels: Vec::new(),
        label_count: 0,
        loops: 0,
        statements: 0,
        near: [0; 2],
        probe_at: 0,
        probe,
        in_helper: false,
        has_helpers: false,
    };
    let probe_at = 3 + maker.below(14);
    maker.near = [maker.edge(), maker.edge()];
    let mut text = format!("(module {HEAD}\n");
    let helpers = maker.below(4) == 3;
    maker.probe_at = usize::MAX;
    for name in ["$first", "$second"] {
        maker.out = format!(
            "(func {name} (param $a i32) (param $b i32) (result i32) (local $c i32) (local $d i32) (local $x i64) (local $y i64)\n"
        );
        if helpers {
            maker.in_helper = true;
            maker.body(1);
            let result = maker.value(Type::I32, 1);
            maker.line(&result);
            maker.in_helper = false;
        } else {
            maker.line("(local.get $a)");
        }
        text += &maker.out;
        text += ")\n";
    }
    maker.out = "(func (export \"weir_packet\") (param $p i32) (result i32)
  (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $x i64) (local $y i64)\n"
        .to_owned();
    maker.probe_at = probe_at;
    maker.statements = 0;
    maker.has_helpers = helpers;
    maker.body(2);
    if maker.statements < maker.probe_at {
        maker.probe_at = 0;
        maker.probe();
    }
    text += &maker.out;
    text + "  (i32.const 0)))\n"
}

impl Maker<'_> {
    fn below(&mut self, n: usize) -> usize {
        let Some((first, rest)) = self.choices.split_first() else { return 0 };
        self.choices = rest;
        usize::from(*first) % n
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "  {text}");
    }

    fn edge(&mut self) -> i64 {
        const EDGES: [i64; 14] = [
            0,
            1,
            10,
            -1,
            0x7fff_ffff,
            -0x8000_0000,
            0xffff_ffff,
            0x8000_0000,
            i64::MAX,
            i64::MIN,
            255,
            65_535,
            0x1_0000_0000,
            100,
        ];
        EDGES[self.below(14)]
    }

    fn number(&mut self) -> i64 {
        let small = i64::try_from(self.below(9)).unwrap_or(0);
        match self.below(8) {
            0..=3 => small,
            4 => -small,
            5 => self.near[0].wrapping_add(small - 4),
            6 => self.near[1].wrapping_sub(small),
            _ => small * 17,
        }
    }

    fn constant(&mut self, ty: Type) -> String {
        let value = self.number();
        Self::literal(ty, value)
    }

    fn literal(ty: Type, value: i64) -> String {
        match ty {
            Type::I32 => format!(
                "(i32.const {})",
                i32::from_le_bytes(value.to_le_bytes()[..4].try_into().unwrap_or_default())
            ),
            Type::I64 => format!("(i64.const {value})"),
        }
    }

    fn local(&mut self, ty: Type) -> &'static str {
        match ty {
            Type::I32 => ["$a", "$b", "$a", "$c", "$b", "$d"][self.below(6)],
            Type::I64 => ["$x", "$y"][self.below(2)],
        }
    }

    fn any_type(&mut self) -> Type {
        if self.below(4) == 3 { Type::I64 } else { Type::I32 }
    }

    /// A load whose value the interpreter invents each time.
    fn read(&mut self, ty: Type) -> String {
        let load = match ty {
            Type::I32 => ["load8_u", "load", "load8_u", "load16_u", "load8_s", "load16_s"][self.below(6)],
            Type::I64 => ["load8_u", "load", "load32_u", "load32_s", "load16_u"][self.below(5)],
        };
        format!("({}.{load} (i32.const 0x80000000))", ty.name())
    }

    fn field(&mut self, ty: Type) -> String {
        if self.in_helper {
            return self.read(ty);
        }
        let load = match ty {
            Type::I32 => {
                ["load offset=12", "load16_u offset=32", "load offset=40", "load offset=16"][self.below(4)]
            }
            Type::I64 => ["load32_u offset=12", "load32_u offset=40", "load offset=0", "load16_u offset=34"]
                [self.below(4)],
        };
        format!("({}.{load} (local.get $p))", ty.name())
    }

    fn leaf(&mut self, ty: Type) -> String {
        match self.below(8) {
            0..=4 => format!("(local.get {})", self.local(ty)),
            5 => self.constant(ty),
            6 => self.read(ty),
            _ => match (self.below(3), ty) {
                (0, Type::I32) => "(global.get $g)".to_owned(),
                (0, Type::I64) => "(global.get $h)".to_owned(),
                _ => self.field(ty),
            },
        }
    }

    fn value(&mut self, ty: Type, deep: usize) -> String {
        let t = ty.name();
        if deep == 0 {
            return self.leaf(ty);
        }
        match self.below(20) {
            0..=4 => {
                let (op, a, b) = (["add", "sub"][self.below(2)], self.leaf(ty), self.constant(ty));
                format!("({t}.{op} {a} {b})")
            }
            5..=7 => {
                let (op, a, b) = (["sub", "add"][self.below(2)], self.value(ty, deep - 1), self.leaf(ty));
                format!("({t}.{op} {a} {b})")
            }
            8 => {
                let by =
                    [2, 3, -1, -2, 5, 0x1000_0001, -0x8000_0000, 0x4000_0000, 12, i64::MIN][self.below(10)];
                format!("({t}.mul {} {})", self.value(ty, deep - 1), Self::literal(ty, by))
            }
            9 => {
                let by = [1, 2, 3, 8, 31, 63, 16][self.below(7)];
                let op = ["shl", "shr_u", "shr_s", "rotl"][self.below(4)];
                format!("({t}.{op} {} ({t}.const {by}))", self.value(ty, deep - 1))
            }
            10 | 11 => {
                let mask = [7, -8, 15, 255, 1, -4, 0x7fff_ffff, 0xfff0, -0x8000_0000][self.below(9)];
                format!("({t}.and {} {})", self.value(ty, deep - 1), Self::literal(ty, mask))
            }
            12 => {
                let op = ["or", "xor", "and", "mul", "shl", "shr_u"][self.below(6)];
                format!("({t}.{op} {} {})", self.value(ty, deep - 1), self.leaf(ty))
            }
            13 => {
                let by = [1, 2, 3, 7, 10, 100, -1, -7][self.below(8)];
                let op = ["div_u", "rem_u", "rem_s", "div_s"][self.below(4)];
                format!("({t}.{op} {} {})", self.value(ty, deep - 1), Self::literal(ty, by))
            }
            14 | 15 => {
                let inner = self.value(ty.other(), deep - 1);
                match ty {
                    Type::I32 => format!("(i32.wrap_i64 {inner})"),
                    Type::I64 => format!("(i64.extend_i32_{} {inner})", ["u", "s"][self.below(2)]),
                }
            }
            16 => {
                let (a, b) = (self.leaf(ty), self.leaf(ty));
                let cmp = COMPARISONS[self.below(10)];
                format!("(select {a} {b} ({t}.{cmp} {a} {b}))")
            }
            17 => format!(
                "({t}.{} {})",
                ["extend8_s", "clz", "ctz", "popcnt", "extend16_s"][self.below(5)],
                self.leaf(ty)
            ),
            18 => {
                let local = self.local(ty);
                format!("({t}.and (local.get {local}) ({t}.sub (local.get {local}) ({t}.const 1)))")
            }
            _ => format!("(select {} {} {})", self.leaf(ty), self.leaf(ty), self.condition(deep - 1)),
        }
    }

    fn condition(&mut self, deep: usize) -> String {
        let ty = self.any_type();
        let t = ty.name();
        match self.below(12) {
            0 => format!("({t}.eqz {})", self.value(ty, deep)),
            1 if deep > 0 => format!("(i32.eqz {})", self.condition(deep - 1)),
            2 if deep > 0 => {
                let op = ["and", "or"][self.below(2)];
                format!("(i32.{op} {} {})", self.condition(deep - 1), self.condition(deep - 1))
            }
            3 => "(i32.and (i32.load8_u (i32.const 0x80000000)) (i32.const 1))".to_owned(),
            4 | 5 => {
                let (local, by) = (self.local(ty), self.constant(ty));
                let op = ["add", "sub"][self.below(2)];
                let (limit, cmp) = (self.value(ty, deep.min(1)), COMPARISONS[self.below(10)]);
                format!("({t}.{cmp} (local.tee {local} ({t}.{op} (local.get {local}) {by})) {limit})")
            }
            _ => {
                let (a, b, cmp) =
                    (self.value(ty, deep.min(1)), self.value(ty, deep), COMPARISONS[self.below(10)]);
                format!("({t}.{cmp} {a} {b})")
            }
        }
    }

    fn set(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let local = self.local(ty);
        let value = match self.below(7) {
            0..=2 => {
                let (op, by) = (["add", "sub"][self.below(2)], 1 + self.below(4));
                format!("({t}.{op} (local.get {local}) ({t}.const {by}))")
            }
            3 => {
                let op = ["sub", "add"][self.below(2)];
                format!("({t}.{op} (local.get {local}) (local.get {}))", self.local(ty))
            }
            4 => self.read(ty),
            5 => self.value(ty, 1),
            _ => self.value(ty, 2),
        };
        self.line(&format!("(local.set {local} {value})"));
    }

    /// The body of a function: locals get values, some are compared, and loops follow.
    fn body(&mut self, loops: usize) {
        match self.below(6) {
            0 | 1 => {}
            2 => return self.unrolled_loop(),
            3 => return self.split_loop(),
            _ => return self.similar_back_edges(),
        }
        for _ in 0..self.below(5) {
            let ty = self.any_type();
            let value = match self.below(4) {
                0 => self.field(ty),
                1 => self.read(ty),
                2 => self.constant(ty),
                _ => self.value(ty, 2),
            };
            let local = self.local(ty);
            self.line(&format!("(local.set {local} {value})"));
        }
        for _ in 0..self.below(3) {
            let condition = self.condition(1);
            self.line(&format!("(if {condition} (then (return (i32.const 0))))"));
        }
        for _ in 0..=self.below(loops) {
            if self.below(2) == 0 {
                self.similar_back_edges();
            } else {
                self.block(true);
            }
            let more = self.below(2);
            self.several(more);
        }
    }

    fn open(&mut self, what: &str) {
        self.label_count += 1;
        self.line(&format!("({what} $l{}", self.label_count));
        self.labels.push(self.label_count);
    }

    fn close(&mut self) {
        self.labels.pop();
        self.line(")");
    }

    /// A block, optionally with a loop in it.
    fn block(&mut self, has_loop: bool) {
        self.open("block");
        if has_loop {
            self.loops += 1;
            self.open("loop");
            let count = 1 + self.below(5);
            self.several(count);
            let last = self.labels.last().copied().unwrap_or(0);
            match self.below(4) {
                0 => self.line(&format!("(br $l{last})")),
                1 => {}
                _ => {
                    let condition = self.condition(1);
                    self.line(&format!("(br_if $l{last} {condition})"));
                }
            }
            self.close();
            self.loops -= 1;
        } else {
            let count = 1 + self.below(3);
            self.several(count);
        }
        self.close();
    }

    /// A loop with a few back edges, each of which tests and moves one counter, all in similar ways.
    fn similar_back_edges(&mut self) {
        let ty = self.any_type();
        let (t, counter, other) = (ty.name(), self.local(ty), self.local(ty));
        if self.below(2) == 0 {
            self.line(&format!("(local.set {other} ({t}.load8_u (i32.const 0x80000000)))"));
        }
        self.open("block");
        let out = self.label_count;
        self.loops += 1;
        self.open("loop");
        let again = self.label_count;
        let (cmp, swapped, at_end) = (COMPARISONS[self.below(10)], self.below(2), self.below(3));
        let (bound, kind) = (self.below(3), self.below(4));
        let arms = 1 + self.below(3);
        for arm in 0..arms {
            let is_last = arm + 1 == arms;
            if !is_last {
                let condition = match self.below(4) {
                    0 => self.condition(1),
                    _ => "(i32.and (i32.load8_u (i32.const 0x80000000)) (i32.const 1))".to_owned(),
                };
                self.line(&format!("(if {condition} (then"));
            }
            let amount = self.local(ty);
            if self.below(3) == 0 {
                let value = self.read(ty);
                self.line(&format!("(local.set {amount} {value})"));
                for _ in 0..self.below(3) {
                    let (cmp, by) = (COMPARISONS[self.below(10)], self.constant(ty));
                    self.line(&format!("(br_if $l{out} ({t}.{cmp} (local.get {amount}) {by}))"));
                }
            }
            // Mostly the same as on the other back edges.
            let kind = if self.below(3) == 0 { self.below(4) } else { kind };
            let cmp = if self.below(4) == 0 { COMPARISONS[self.below(10)] } else { cmp };
            let mut tested = format!("(local.get {counter})");
            if kind != 0 {
                let op = ["add", "sub"][self.below(2)];
                let with = if kind == 3 { self.constant(ty) } else { format!("(local.get {other})") };
                tested = if self.below(2) == 0 {
                    format!("({t}.{op} {with} {tested})")
                } else {
                    format!("({t}.{op} {tested} {with})")
                };
            }
            let limit = match if self.below(4) == 0 { self.below(3) } else { bound } {
                0 => format!("({t}.const {})", self.below(3)),
                1 => format!("(local.get {amount})"),
                _ => self.leaf(ty),
            };
            let guard = if swapped == 0 {
                format!("({t}.{cmp} {limit} {tested})")
            } else {
                format!("({t}.{cmp} {tested} {limit})")
            };
            let (op, by) = (["add", "sub"][self.below(2)], 1 + self.below(2));
            let by = match self.below(6) {
                0 | 1 => format!("(local.get {amount})"),
                2 => format!("({t}.sub (local.get {amount}) {})", self.constant(ty)),
                _ => format!("({t}.const {by})"),
            };
            let moved = format!("(local.set {counter} ({t}.{op} (local.get {counter}) {by}))");
            if at_end != 0 {
                self.line(&format!("(br_if $l{out} {guard})"));
            }
            self.line(&moved);
            if self.below(8) == 7 {
                self.statement();
            }
            let back =
                if at_end == 0 { format!("(br_if $l{again} {guard})") } else { format!("(br $l{again})") };
            self.line(&back);
            if !is_last {
                self.line("))");
            }
        }
        self.close();
        self.loops -= 1;
        self.close();
    }

    /// A loop that a compiler split in two by what its paths change: the inner and the outer loop advance one counter,
    /// mostly by the same step and up to the same limit; or with a small error.
    fn split_loop(&mut self) {
        let ty = if self.below(2) == 0 { Type::I64 } else { Type::I32 };
        let (t, counter, other) = (ty.name(), self.local(ty), self.local(ty));
        if self.below(3) != 0 {
            let value = if self.below(3) == 0 { self.read(ty) } else { self.constant(ty) };
            self.line(&format!("(local.set {counter} {value})"));
        }
        let limit = match self.below(4) {
            0 => self.constant(ty),
            1 => self.leaf(ty),
            2 => format!("({t}.load8_s (i32.const 0x80000000))"),
            _ => format!("({t}.load8_u (i32.const 0x80000000))"),
        };
        let cmp = ["lt_s", "lt_u", "le_s", "ne", "gt_s", "ge_u"][self.below(6)];
        let (op, by) = (["add", "add", "sub"][self.below(3)], [1, 1, 1, 2, 3][self.below(5)]);
        self.open("block");
        let out = self.label_count;
        if self.below(3) == 0 {
            let condition = self.condition(0);
            self.line(&format!("(br_if $l{out} {condition})"));
        }
        self.loops += 2;
        self.open("loop");
        let outer = self.label_count;
        if self.below(4) == 0 {
            self.statement();
        }
        self.open("block");
        let rare = self.label_count;
        self.open("loop");
        let inner = self.label_count;
        for (label, is_inner) in [(inner, true), (outer, false)] {
            if is_inner {
                let condition = match self.below(4) {
                    0 => self.condition(1),
                    _ => "(i32.and (i32.load8_u (i32.const 0x80000000)) (i32.const 1))".to_owned(),
                };
                self.line(&format!("(br_if $l{rare} {condition})"));
            }
            if self.below(6) == 0 {
                self.statement();
            }
            let (mut cmp, mut op, mut by, mut limit) = (cmp, op, by, limit.clone());
            match self.below(12) {
                0 => cmp = COMPARISONS[self.below(10)],
                1 => op = ["sub", "add"][self.below(2)],
                2 => by = self.below(4),
                3 => limit = self.leaf(ty),
                4 => limit = format!("(local.get {other})"),
                _ => {}
            }
            let moved = format!("({t}.{op} (local.get {counter}) ({t}.const {by}))");
            let test = match self.below(6) {
                0 => {
                    self.line(&format!("(local.set {counter} {moved})"));
                    format!("({t}.{cmp} {limit} (local.get {counter}))")
                }
                1 => {
                    self.line(&format!("(br_if $l{out} ({t}.{cmp} (local.get {counter}) {limit}))"));
                    self.line(&format!("(local.set {counter} {moved})"));
                    "(i32.const 1)".to_owned()
                }
                _ => format!("({t}.{cmp} (local.tee {counter} {moved}) {limit})"),
            };
            self.line(&format!("(br_if $l{label} {test})"));
            if is_inner {
                self.close();
                if self.below(4) != 0 {
                    self.line(&format!("(br $l{out})"));
                }
                self.close();
            }
        }
        self.close();
        self.loops -= 2;
        self.close();
    }

    /// A loop as compilers unroll it: in steps of a power of two, over a number whose lowest bits were masked or
    /// handled before; or with a small error.
    fn unrolled_loop(&mut self) {
        let ty = self.any_type();
        let (t, counter, whole) = (ty.name(), self.local(ty), self.local(ty));
        let number = match self.below(4) {
            0 => self.read(ty),
            1 => format!("({t}.shl {} ({t}.const {}))", self.read(ty), 1 + self.below(3)),
            _ => format!("({t}.load8_u (i32.const 0x80000000))"),
        };
        self.line(&format!("(local.set {whole} {number})"));
        // At most, and at least, a constant.
        for (cmp, limits) in [("lt_u", [9, 64, 100]), ("gt_u", [1, 3, 4])] {
            if self.below(2) == 0 {
                let limit = limits[self.below(3)];
                let cmp = if self.below(8) == 0 { COMPARISONS[self.below(10)] } else { cmp };
                self.line(&format!(
                    "(local.set {whole} (select (local.get {whole}) ({t}.const {limit}) ({t}.{cmp} (local.get {whole}) ({t}.const {limit}))))"
                ));
            }
        }
        self.open("block");
        let out = self.label_count;
        let low = [1, 3, 7, 2][self.below(4)];
        let masked = format!("({t}.and (local.get {whole}) ({t}.const {low}))");
        for first in [true, false] {
            for _ in 0..self.below(3) {
                let (of, cmp) = (if first { whole } else { counter }, COMPARISONS[self.below(10)]);
                let limit = match self.below(4) {
                    0 => format!("(local.get {whole})"),
                    1 => masked.clone(),
                    _ => format!("({t}.const {})", self.below(6)),
                };
                self.line(&format!("(br_if $l{out} ({t}.{cmp} (local.get {of}) {limit}))"));
            }
            if first {
                let cut = format!("(local.set {counter} ({t}.sub (local.get {whole})");
                match self.below(4) {
                    0 => self.line(&format!("{cut} {masked}))")),
                    1 => {
                        let by = 1 + self.below(3);
                        let condition = match self.below(2) {
                            0 => format!("({t}.eqz {masked})"),
                            _ => format!("({t}.ne {masked} ({t}.const 0))"),
                        };
                        self.line(&format!("(local.set {counter} (local.get {whole}))"));
                        self.line(&format!("(if {condition} (then {cut} ({t}.const {by})))))"));
                    }
                    2 => {
                        let mask = [60, -4, 124, -8, 6, 62, 12][self.below(7)];
                        self.line(&format!(
                            "(local.set {counter} ({t}.and (local.get {whole}) ({t}.const {mask})))"
                        ));
                    }
                    _ => self.line(&format!("(local.set {counter} (local.get {whole}))")),
                }
            }
        }
        self.loops += 1;
        self.open("loop");
        let again = self.label_count;
        let (op, by) = (["sub", "add"][self.below(4) / 3], [1, 2, 4, 8, 4, 3, 2, 4][self.below(8)]);
        let moved = format!("({t}.{op} (local.get {counter}) ({t}.const {by}))");
        let end = match self.below(4) {
            0 => format!("(local.get {whole})"),
            1 => format!("({t}.const {})", self.below(9)),
            _ => format!("({t}.const 0)"),
        };
        if self.below(4) == 3 {
            self.statement();
        }
        let cmp = if self.below(5) == 0 { COMPARISONS[self.below(10)] } else { "ne" };
        self.line(&format!("(br_if $l{again} ({t}.{cmp} (local.tee {counter} {moved}) {end}))"));
        self.close();
        self.loops -= 1;
        if self.below(2) == 0 {
            self.statement();
        }
        self.close();
    }

    fn several(&mut self, count: usize) {
        for _ in 0..count {
            self.statement();
        }
    }

    fn probe(&mut self) {
        let ty = self.any_type();
        let (value, t) = (self.value(ty, 1), ty.name());
        let text = match self.probe {
            Probe::Show => format!("({t}.store (i32.const 61440) {value})"),
            Probe::Equal(what) => {
                let what = Self::literal(ty, what.cast_signed());
                format!("(if ({t}.eq {value} {what}) (then (loop $ever (br $ever))))")
            }
        };
        self.line(&text);
    }

    fn target(&mut self) -> Option<usize> {
        let count = self.labels.len();
        if count == 0 {
            return None;
        }
        // Mostly the innermost loop, or the block around it.
        let far = [0, 1, 0, 1, 2, 3, 0, 1][self.below(8)];
        Some(self.labels[count.saturating_sub(1 + far)])
    }

    fn statement(&mut self) {
        self.statements += 1;
        if self.statements == self.probe_at {
            self.probe();
        }
        if self.statements > 24 {
            return;
        }
        let target = self.target();
        match (self.below(20), target) {
            (0..=5, _) => self.set(),
            (6..=10, Some(to)) => {
                let condition = self.condition(1);
                self.line(&format!("(br_if $l{to} {condition})"));
            }
            (11..=13, _) => {
                let condition = self.condition(1);
                self.line(&format!("(if {condition} (then"));
                let count = 1 + self.below(3);
                self.several(count);
                if let Some(to) = target.filter(|_| self.below(2) == 0) {
                    self.line(&format!("(br $l{to})"));
                }
                if self.below(2) == 0 {
                    self.line(") (else");
                    let count = 1 + self.below(2);
                    self.several(count);
                }
                self.line("))");
            }
            (14, _) if self.loops < 2 => self.block(true),
            (15, _) => self.block(false),
            (16, Some(to)) => {
                let (other, selector) = (self.target().unwrap_or(to), self.value(Type::I32, 1));
                self.open("block");
                let here = self.label_count;
                self.line(&format!("(br_table $l{here} $l{to} $l{other} {selector})"));
                self.close();
            }
            (17, _) if self.has_helpers => {
                let (a, b, to) = (self.value(Type::I32, 1), self.value(Type::I32, 1), self.local(Type::I32));
                let call = match self.below(3) {
                    0 => format!("(call $first {a} {b})"),
                    1 => format!("(call $second {a} {b})"),
                    _ => format!("(call_indirect (type $unary) {a} {b} {})", self.leaf(Type::I32)),
                };
                self.line(&format!("(local.set {to} {call})"));
            }
            (18, _) => {
                let value = self.value(Type::I32, 1);
                self.line(&format!("(global.set $g {value})"));
            }
            (19, _) => {
                // A value from one of two branches.
                let (to, first, second, condition) = (
                    self.local(Type::I32),
                    self.value(Type::I32, 1),
                    self.value(Type::I32, 1),
                    self.condition(1),
                );
                self.line(&format!(
                    "(local.set {to} (block $v (result i32) (br_if $v {first} {condition}) (drop) {second}))"
                ));
            }
            _ => self.set(),
        }
    }
}
