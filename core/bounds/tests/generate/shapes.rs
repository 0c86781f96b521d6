//! Loops that broke an earlier proof, and variants of them: conditions differ by the path taken, and sums look alike.

use super::pieces::{Maker, Type};
use Type::{I32, I64};
use arbitrary::Unstructured;
use weir_abi::{DESCRIPTOR_BYTES, DESCRIPTORS_BASE};

/// The shift that turns an index into a descriptor's offset.
const SHIFT: usize = DESCRIPTOR_BYTES.ilog2() as usize;

/// The address of numbers that the analysis cannot know.
const CELLS: u32 = 1024;
/// The address of a forged packet descriptor with a great length.
const FORGED: u32 = 4096;
const FORGED_BYTES: usize = 512;

/// The numbers in the cells: those where a limit of the loops below is reached or missed, and where arithmetic wraps.
fn cells() -> Vec<i64> {
    let index = (FORGED.wrapping_sub(DESCRIPTORS_BASE) >> DESCRIPTOR_BYTES.ilog2()).into();
    let mut all =
        vec![index, 0, 1, 2, 3, 5, 8, 9, 10, 11, 16, 20, 40, 100, 255, 256, 257, 300, 65_535, 65_536, 65_537];
    all.extend([1 << 20, 1 << 26, i64::from(i32::MAX), 1 << 31, (1 << 32) - 1, (1 << 32) - 16, 1 << 32]);
    all.extend([(1 << 32) + 5, i64::MAX, i64::MIN, -1, -16, -300, 1 << 58]);
    all
}

/// The initial contents of memory.
pub fn data() -> String {
    let cells: String = cells().iter().flat_map(|n| n.to_le_bytes()).map(|b| format!("\\{b:02x}")).collect();
    let forged = "\\ff".repeat(FORGED_BYTES);
    format!("(data (i32.const {CELLS}) \"{cells}\") (data (i32.const {FORGED}) \"{forged}\")\n")
}

/// A function that only globals refer to, until the module copies it to a table; with the table and the globals.
pub fn unlisted(choices: &mut Unstructured<'_>) -> String {
    let mut maker = Maker::new(choices, &[("$x", I32), ("$y", I32)], false, 0);
    if maker.seldom(4) {
        maker.line("(loop $ever (br $ever))");
    }
    maker.long_loop();
    let function = maker.finish("$lone (param $x i32) (param $y i32) (result i32)", 2, "(local.get $y)");
    format!(
        "(table $late 3 funcref)\n(global $kept funcref (ref.func $lone))\n\
        (global $free (mut funcref) (ref.null func))\n{function}"
    )
}

/// A function that costs more with some arguments than with others.
pub fn argument_dependent(choices: &mut Unstructured<'_>) -> String {
    let mut maker = Maker::new(choices, &[("$x", I32)], false, 0);
    let guard = maker.comparison_with(I32, "(local.get $x)");
    maker.line(&format!("(if {guard} (then"));
    maker.long_loop();
    maker.line("))");
    if maker.seldom(2) {
        maker.up_to(I32, "(i32.and (local.get $x) (i32.const 65535))");
    }
    maker.finish("$picky (param $x i32)", 1, "")
}

fn get(local: &str) -> String {
    format!("(local.get {local})")
}

fn number(ty: Type, value: i64) -> String {
    let value = if ty == I32 { i64::from((value & 0xffff_ffff) as i32) } else { value };
    format!("({}.const {value})", ty.name())
}

impl Maker<'_, '_> {
    /// A loop of one of the shapes.
    pub fn shape(&mut self) {
        match self.below(16) {
            0 => self.two_edges(),
            1 => self.sums_from_two_paths(),
            2 => self.counter_on_the_stack(),
            3 => self.indirect_counter(),
            4 => self.summed_limits(),
            5 => self.indexed_descriptors(),
            6 => self.coefficients(),
            7 => self.remainders(),
            8 => self.triangular(),
            9 => self.remainder_parser(),
            10 => self.smaller_limit(),
            11 => self.narrow_counter(),
            12 => self.mixed_widths(),
            13 => self.both_ends(),
            14 => self.guarded_fields(),
            _ => self.table_function(),
        }
    }

    fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }

    fn some_number(&mut self, ty: Type, all: &[i64]) -> String {
        number(ty, all[self.below(all.len())])
    }

    /// A new local with a value.
    fn local_with(&mut self, ty: Type, value: &str) -> String {
        let local = self.local(ty);
        self.line(&format!("(local.set {local} {value})"));
        local
    }

    /// An expression for an unknown number; of some, only the width is known.
    fn unknown(&mut self, ty: Type) -> String {
        let t = ty.name();
        let at = CELLS as usize + 8 * self.below(cells().len());
        match self.below(10) {
            0 => self.value(ty, 1),
            1 => format!("({t}.load {})", self.address()),
            2 => format!("({t}.load8_u (i32.const {at}))"),
            3 | 4 => format!("({t}.load16_{} (i32.const {at}))", self.one_of(&["u", "u", "s"])),
            5 if ty == I64 => format!("(i64.load32_{} (i32.const {at}))", self.one_of(&["u", "s"])),
            6 if self.has_packet => self.length(ty),
            _ => format!("({t}.load (i32.const {at}))"),
        }
    }

    /// A sum with a value in it. Sums of the same value are often equal.
    fn sum_of(&mut self, ty: Type, value: &str) -> String {
        let t = ty.name();
        let by = self.some_number(ty, &[1, 1, 1, 2, 3, -1, 16, -16]);
        match self.below(8) {
            0 => value.to_owned(),
            1 => format!("({t}.sub {value} {by})"),
            2 => format!("({t}.add ({t}.mul {value} {}) {by})", self.some_number(ty, &[2, 3, 4, -1])),
            3 => format!("({t}.add ({t}.shl {value} ({t}.const 2)) {by})"),
            _ => format!("({t}.add {value} {by})"),
        }
    }

    fn comparison_with(&mut self, ty: Type, value: &str) -> String {
        let cmp = self.one_of(&["lt_u", "ge_u", "lt_s", "ge_s", "gt_u", "le_s", "eq", "ne"]);
        let to = self.some_number(ty, &[10, 10, 10, 0, 1, 20, -1, 256]);
        format!("({}.{cmp} {value} {to})", ty.name())
    }

    /// A test that continues the loop, with the step in it.
    fn stepped(&mut self, ty: Type, counter: &str, limit: &str) -> String {
        let (t, cmp) = (ty.name(), self.one_of(&["lt_u", "lt_u", "lt_s", "ne", "le_u"]));
        let by = self.some_number(ty, &[1, 1, 1, 1, 2, 4]);
        format!("({t}.{cmp} (local.tee {counter} ({t}.add {} {by})) {limit})", get(counter))
    }

    /// A long loop that ends: an analysis that takes it for unreachable finds too low a bound.
    fn long_loop(&mut self) {
        let counter = self.local(I32);
        let label = self.open("loop");
        let again = format!("(i32.lt_u (local.tee {counter} (i32.add {} (i32.const 1)))", get(&counter));
        self.line(&format!("(br_if {label} {again} (i32.const 9000)))"));
        self.close();
    }

    /// A plain loop up to a limit.
    fn up_to(&mut self, ty: Type, limit: &str) {
        let counter = self.local_with(ty, &number(ty, 0));
        let out = self.open("block");
        if self.seldom(3) {
            self.line(&format!("(br_if {out} ({}.eqz {limit}))", ty.name()));
        }
        let label = self.open("loop");
        self.body(&counter, ty);
        let again = self.stepped(ty, &counter, limit);
        self.line(&format!("(br_if {label} {again})"));
        self.close();
        self.close();
    }

    /// Back edges with similar tests: more is known on one than on the other, or before than after.
    fn two_edges(&mut self) {
        let ty = self.any_type();
        let value = self.unknown(ty);
        let base = self.local_with(ty, &value);
        let start = if self.seldom(2) { get(&base) } else { number(ty, 0) };
        let counter = self.local_with(ty, &start);
        let (mut one, mut other) = (self.sum_of(ty, &get(&base)), self.sum_of(ty, &get(&base)));
        if !self.seldom(3) {
            other.clone_from(&one);
        }
        if self.seldom(4) {
            one = get(&self.local_with(ty, &one));
        }
        let (out, long) = (self.open("block"), self.open("block"));
        let label = self.open("loop");
        let first = self.stepped(ty, &counter, &one);
        let second = self.stepped(ty, &counter, &other);
        let guard = self.comparison_with(ty, &get(&base));
        match self.below(3) {
            0 => self.line(&format!(
                "(if {guard} (then (br_if {label} {first})) (else (br_if {label} {second})))"
            )),
            1 => {
                self.line(&format!("(br_if {label} {first})"));
                self.body(&counter, ty);
                self.line(&format!("(br_if {out} {guard})"));
                self.line(&format!("(br_if {label} {second})"));
            }
            _ => {
                let enough = self.comparison_with(ty, &get(&counter));
                self.line(&format!("(br_if {long} {enough})"));
                self.line(&format!("(br_if {out} {guard})"));
                self.line(&format!("(br_if {label} {first})"));
            }
        }
        self.close();
        self.line(&format!("(br {out})"));
        self.close();
        self.long_loop();
        self.close();
    }

    /// Equal sums from two paths, one of them guarded; and a comparison on one path that is used after they meet.
    fn sums_from_two_paths(&mut self) {
        let ty = self.any_type();
        let value = self.unknown(ty);
        let base = self.local_with(ty, &value);
        let one = self.sum_of(ty, &get(&base));
        let other = if self.seldom(3) { self.sum_of(ty, &get(&base)) } else { one.clone() };
        let (limit, flag) = (self.local(ty), self.local(I32));
        let (guard, later) = (self.comparison_with(ty, &get(&base)), self.comparison_with(ty, &one));
        let both = [format!("(local.set {limit} {one})"), format!("(local.set {limit} {other})")];
        match self.below(4) {
            0 | 1 => self.line(&format!("(if {guard} (then {}) (else {}))", both[0], both[1])),
            2 => {
                self.line(&both[0]);
                self.line(&format!("(if {guard} (then (local.set {flag} {later})) (else {}))", both[1]));
                self.line(&format!("(if (i32.eqz {}) (then {}))", get(&flag), both[1]));
            }
            _ => {
                let out = self.open("block");
                self.line(&both[0]);
                self.line(&format!("(br_if {out} {guard})"));
                self.line(&format!("(local.set {flag} {later})"));
                self.line(&format!("(br_if {out} {})", get(&flag)));
                self.line(&both[1]);
                self.close();
            }
        }
        self.up_to(ty, &get(&limit));
    }

    /// The counter and the limit are operands of the loop, which may differ in each iteration.
    fn counter_on_the_stack(&mut self) {
        let (counter, limit) = (self.local(I32), self.local(I32));
        let (start, end) = (self.constant(I32), self.unknown(I32));
        self.line(&start);
        self.line(&end);
        let label = self.open("loop");
        self.line("(param i32 i32)");
        let mask = self.some_number(I32, &[15, 63, 255, -1]);
        self.line(&format!("(local.set {limit} (i32.and {mask}))"));
        self.line(&format!("(local.set {counter})"));
        let hidden = std::mem::take(&mut self.labels);
        self.statements(2);
        self.labels = hidden;
        let cmp = self.one_of(&["ne", "lt_u", "lt_s"]);
        let (c, l) = (get(&counter), get(&limit));
        self.line(&format!("(if (i32.{cmp} {c} {l}) (then"));
        self.line(&format!("(local.set {counter} (i32.add {c} (i32.const 1)))"));
        let next = match self.below(6) {
            0 => self.sum_of(I32, &c),
            1 => self.unknown(I32),
            2 => self.sum_of(I32, &l),
            _ => l.clone(),
        };
        let (a, b) = if self.seldom(8) { (next, c) } else { (c, next) };
        self.line(&format!("{a} {b} (br {label})))"));
        self.close();
    }

    /// The counter goes through other locals, selects and joins.
    fn indirect_counter(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let (start, end) = (self.small(ty), self.limit(ty));
        let (counter, next) = (self.local_with(ty, &start), self.local(ty));
        let (c, n) = (get(&counter), get(&next));
        let step = |by: String| format!("({t}.add {c} {by})");
        let by = [1, 1, 2, 3, 0, -1];
        let label = self.open("loop");
        let condition = self.condition(1);
        let (one, other) = (step(self.some_number(ty, &by)), step(self.some_number(ty, &by)));
        match self.below(5) {
            0 => self.line(&format!("(local.set {next} (select {one} {other} {condition}))")),
            1 => self.line(&format!(
                "(if {condition} (then (local.set {next} {one})) (else (local.set {next} {other})))"
            )),
            2 => {
                self.line(&format!("(local.set {next} {one})"));
                self.line(&format!("(if {condition} (then (local.set {next} {other})))"));
            }
            3 => self
                .line(&format!("(local.set {next} (if (result {t}) {condition} (then {one}) (else {c})))")),
            // The value is one iteration late.
            _ => {
                self.line(&format!("(local.set {counter} {n})"));
                self.line(&format!("(local.set {next} {one})"));
            }
        }
        self.body(&next, ty);
        let cmp = self.one_of(&["lt_u", "lt_s", "ne"]);
        if self.seldom(2) {
            self.line(&format!("(local.set {counter} {n})"));
            self.line(&format!("(br_if {label} ({t}.{cmp} {c} {end}))"));
        } else {
            self.line(&format!("(br_if {label} ({t}.{cmp} (local.tee {counter} {n}) {end}))"));
        }
        self.close();
    }

    /// The limit is computed in each iteration, from values that the body may have written.
    fn summed_limits(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let cells: Vec<String> = (0..2).map(|_| format!("(i32.const {})", 8 * self.below(8))).collect();
        let load = self.one_of(&["load", "load8_u", "load16_u"]);
        let op = self.one_of(&["add", "add", "sub", "or", "xor"]);
        let mut limit = format!("({t}.{op} ({t}.{load} {}) ({t}.{load} {}))", cells[0], cells[1]);
        if self.seldom(3) {
            limit = format!("({t}.and {limit} {})", self.some_number(ty, &[15, 255]));
        }
        let counter = self.local_with(ty, &number(ty, 0));
        let label = self.open("loop");
        self.body(&counter, ty);
        if !self.seldom(3) {
            let kept = self.sum_of(ty, &get(&counter));
            self.line(&format!("({t}.store {} {kept})", cells[0]));
        }
        let again = self.stepped(ty, &counter, &limit);
        self.line(&format!("(br_if {label} {again})"));
        self.close();
    }

    /// A limit from a descriptor at an index, which may lead out of the descriptors.
    fn indexed_descriptors(&mut self) {
        if !self.has_packet {
            return;
        }
        let mut index = self.unknown(I32);
        if self.seldom(2) {
            index = format!("(i32.load (i32.const {CELLS}))");
        }
        if self.seldom(2) {
            index = format!("(i32.and {index} {})", self.some_number(I32, &[1, 3, 63, 255, -1]));
        }
        let scaled = match self.below(4) {
            0 => format!("(i32.mul {index} (i32.const {DESCRIPTOR_BYTES}))"),
            1 => format!("(i32.shl {index} (i32.const {}))", SHIFT - 1 + self.below(3)),
            _ => format!("(i32.shl {index} (i32.const {SHIFT}))"),
        };
        let load = [
            "load offset=12",
            "load offset=12",
            "load16_u offset=32",
            "load16_u offset=36",
            "load16_u offset=80",
            "load offset=16",
        ];
        let limit = format!("(i32.{} (i32.add (local.get $d) {scaled}))", self.one_of(&load));
        let limit = if self.seldom(3) { limit } else { get(&self.local_with(I32, &limit)) };
        self.up_to(I32, &limit);
    }

    /// Sums with coefficients so large that they wrap.
    fn coefficients(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let bits = if ty == I32 { 32 } else { 64 };
        let mut sum = number(ty, 0);
        for _ in 0..=self.below(3) {
            let value = self.unknown(ty);
            let value = get(&self.local_with(ty, &value));
            let term = match self.below(4) {
                0 | 1 => format!(
                    "({t}.shl {value} {})",
                    self.some_number(ty, &[bits - 1, bits - 1, bits - 2, bits])
                ),
                2 => format!(
                    "({t}.mul {value} {})",
                    self.some_number(ty, &[1 << (bits - 1), -1, i64::MAX, 0xffff_fffb])
                ),
                _ => value,
            };
            sum = format!("({t}.{} {sum} {term})", self.one_of(&["add", "add", "sub"]));
        }
        if self.seldom(2) {
            sum = get(&self.local_with(ty, &sum));
        }
        let out = self.open("block");
        let guard = match self.below(3) {
            0 => format!("({t}.eqz {sum})"),
            1 => format!("({t}.ne {sum} {})", number(ty, 0)),
            _ => self.comparison_with(ty, &sum),
        };
        self.line(&format!("(br_if {out} {guard})"));
        if self.seldom(2) {
            self.up_to(ty, &sum)
        } else {
            self.long_loop()
        }
        self.close();
    }

    /// A loop unrolled by a power of two, and one for the remainder.
    fn remainders(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let value = self.unknown(ty);
        let n = get(&self.local_with(ty, &value));
        let by = [2, 4, 8][self.below(3)];
        let main = match self.below(3) {
            0 => format!("({t}.and {n} {})", number(ty, -by)),
            1 => format!("({t}.and {n} {})", number(ty, (i64::from(i32::MAX) + 1) - by)),
            // The trips, as they are counted when the step is two.
            _ => {
                let (less, one) = (self.some_number(ty, &[-2, -2, -1, -4]), number(ty, 1));
                format!("({t}.add ({t}.shr_u ({t}.add {n} {less}) {one}) {one})")
            }
        };
        let (main, rest) = (
            self.local_with(ty, &main),
            self.local_with(ty, &format!("({t}.and {n} {})", number(ty, by - 1))),
        );
        let counter = self.local_with(ty, &number(ty, 0));
        let out = self.open("block");
        match self.below(4) {
            0 => {}
            1 => self.line(&format!("(br_if {out} ({t}.eqz {n}))")),
            2 => self.line(&format!("(br_if {out} ({t}.lt_s {n} {}))", number(ty, 1))),
            _ => self.line(&format!("(br_if {out} ({t}.lt_u {n} {}))", number(ty, by))),
        }
        let step = if self.seldom(3) { number(ty, 1) } else { number(ty, by) };
        let label = self.open("loop");
        self.body(&counter, ty);
        let next = format!("(local.tee {counter} ({t}.add {} {step}))", get(&counter));
        let cmp = self.one_of(&["ne", "ne", "lt_u"]);
        self.line(&format!("(br_if {label} ({t}.{cmp} {next} {}))", get(&main)));
        self.close();
        self.close();
        let out = self.open("block");
        if !self.seldom(3) {
            self.line(&format!("(br_if {out} ({t}.eqz {}))", get(&rest)));
        }
        let label = self.open("loop");
        self.body(&rest, ty);
        let next = format!("(local.tee {rest} ({t}.add {} {}))", get(&rest), number(ty, -1));
        self.line(&format!("(br_if {label} ({t}.ne {next} {}))", number(ty, 0)));
        self.close();
        self.close();
    }

    /// Nested rotated loops: the inner one begins at the outer one's position, and only the entry is guarded.
    fn triangular(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let value = self.unknown(ty);
        let mask = self.some_number(ty, &[15, 31, 255, -1]);
        let n = get(&self.local_with(ty, &format!("({t}.and {value} {mask})")));
        let (outer, inner) = (self.local_with(ty, &number(ty, 0)), self.local(ty));
        let out = self.open("block");
        match self.below(4) {
            0 => {}
            1 => self.line(&format!("(br_if {out} ({t}.eqz {n}))")),
            2 => self.line(&format!("(br_if {out} ({t}.le_s {n} {}))", number(ty, 0))),
            _ => {
                let guard = self.comparison_with(ty, &n);
                self.line(&format!("(br_if {out} {guard})"));
            }
        }
        let label = self.open("loop");
        let start = if self.seldom(3) { self.sum_of(ty, &get(&outer)) } else { get(&outer) };
        self.line(&format!("(local.set {inner} {start})"));
        let again = self.open("loop");
        self.body(&inner, ty);
        let end = if self.seldom(4) { get(&outer) } else { n.clone() };
        let test = self.stepped(ty, &inner, &end);
        self.line(&format!("(br_if {again} {test})"));
        self.close();
        self.body(&outer, ty);
        let test = self.stepped(ty, &outer, &n);
        self.line(&format!("(br_if {label} {test})"));
        self.close();
        self.close();
    }

    /// Takes amounts from a remainder, as a parser does, whether or not enough is left.
    fn remainder_parser(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let value = if self.has_packet && !self.seldom(3) { self.length(ty) } else { self.unknown(ty) };
        let (rest, amount) = (self.local_with(ty, &value), self.local(ty));
        let out = self.open("block");
        if self.seldom(2) {
            self.line(&format!("(br_if {out} ({t}.eqz {}))", get(&rest)));
        }
        let label = self.open("loop");
        let by = match self.below(4) {
            0 => self.some_number(ty, &[1, 2, 4, 8]),
            1 => format!("({t}.add ({t}.and {} {}) {})", self.unknown(ty), number(ty, 7), number(ty, 1)),
            2 => format!("({t}.add {} {})", self.unknown(ty), number(ty, 1)),
            _ => self.unknown(ty),
        };
        self.line(&format!("(local.set {amount} {by})"));
        if !self.seldom(3) {
            let cmp = self.one_of(&["gt_u", "gt_u", "gt_s", "ge_u"]);
            self.line(&format!("(br_if {out} ({t}.{cmp} {} {}))", get(&amount), get(&rest)));
        }
        if self.seldom(3) {
            self.line(&format!("(br_if {out} ({t}.eqz {}))", get(&amount)));
        }
        self.body(&rest, ty);
        self.line(&format!("(local.set {rest} ({t}.sub {} {}))", get(&rest), get(&amount)));
        let cmp = self.one_of(&["ne", "gt_s", "gt_u", "ge_u"]);
        let end = self.some_number(ty, &[0, 0, 1, 4]);
        self.line(&format!("(br_if {label} ({t}.{cmp} {} {end}))", get(&rest)));
        self.close();
        self.close();
    }

    /// The remainder is counted from the start on one back edge and from the end on another, and one may give back what
    /// the other takes.
    fn both_ends(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let value = self.unknown(ty);
        let (base, counter) = (self.local_with(ty, &value), self.local_with(ty, &number(ty, 0)));
        let (b, c) = (get(&base), get(&counter));
        let out = self.open("block");
        let label = self.open("loop");
        let first = if self.seldom(3) { self.condition(1) } else { format!("({t}.eqz {c})") };
        let ways = [0, 1].map(|_| {
            let by = self.some_number(ty, &[1, 1, 1, 2, 4]);
            let ways = [("add", "sub"), ("add", "sub"), ("sub", "add"), ("sub", "add"), ("add", "add")];
            let (rest, step) = ways[self.below(ways.len())];
            format!(
                "(br_if {out} ({t}.gt_u {by} ({t}.{rest} {b} {c}))) (local.set {counter} ({t}.{step} {c} {by})) (br {label})"
            )
        });
        self.line(&format!("(if {first} (then {}))", ways[0]));
        self.line(&ways[1]);
        self.close();
        self.close();
    }

    /// Calls a function twice with the same sum of a packet's field, where more is known of the field than of the sum.
    fn guarded_fields(&mut self) {
        if !self.has_packet {
            return;
        }
        let load = ["load offset=12", "load offset=12", "load offset=40", "load16_u offset=32"];
        let field = format!("(i32.{} (local.get $d))", self.one_of(&load));
        let sum = self.sum_of(I32, &field);
        let sum = get(&self.local_with(I32, &sum));
        let most = self.some_number(I32, &[256, 1000, 65_536]);
        let guard = self.comparison_with(I32, &field);
        let call = format!("(call $picky {sum})");
        self.line(&format!("(if (i32.lt_u {sum} {most}) (then (if {guard} (then {call})) {call}))"));
    }

    /// The smaller of two numbers as the limit; or the larger one, or one chosen by a wrong comparison.
    fn smaller_limit(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let (one, other) = (self.unknown(ty), if self.seldom(2) { self.unknown(ty) } else { self.small(ty) });
        let (one, other) = (get(&self.local_with(ty, &one)), get(&self.local_with(ty, &other)));
        let cmp = self.one_of(&["lt_u", "lt_u", "lt_s", "gt_u", "gt_s", "le_u", "ne"]);
        let picked = if self.seldom(2) { (&other, &one) } else { (&one, &other) };
        let limit = format!("(select {} {} ({t}.{cmp} {one} {other}))", picked.0, picked.1);
        let limit = if self.seldom(3) { self.sum_of(ty, &limit) } else { limit };
        let limit = if self.seldom(2) { limit } else { get(&self.local_with(ty, &limit)) };
        self.up_to(ty, &limit);
    }

    /// The counter has 8 or 16 bits.
    fn narrow_counter(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let (mask, bits) = [(255, 8), (65_535, 16)][self.below(2)];
        let limit = self.unknown(ty);
        let limit = match self.below(3) {
            0 => format!("({t}.and {limit} {})", number(ty, mask)),
            1 => self.some_number(ty, &[127, 128, 200, 255, 256, 300, 65_536, -1]),
            _ => limit,
        };
        let limit = get(&self.local_with(ty, &limit));
        let start = self.constant(ty);
        let counter = self.local_with(ty, &start);
        let narrow = |value: &str, way: usize| match way {
            0 => format!("({t}.extend{bits}_s {value})"),
            _ => format!("({t}.and {value} {})", number(ty, mask)),
        };
        let label = self.open("loop");
        self.body(&counter, ty);
        let step = self.some_number(ty, &[1, 1, 1, 2, 3, -1]);
        let (way, cmp) = (self.below(3), self.one_of(&["lt_u", "lt_s", "ne", "le_u"]));
        let next = format!("({t}.add {} {step})", get(&counter));
        let again = if self.seldom(2) {
            // Only the compared value is narrowed.
            narrow(&format!("(local.tee {counter} {next})"), way)
        } else {
            format!("(local.tee {counter} {})", narrow(&next, way))
        };
        self.line(&format!("(br_if {label} ({t}.{cmp} {again} {limit}))"));
        self.close();
    }

    /// Counter and limit have different widths.
    fn mixed_widths(&mut self) {
        let (short, long) = (self.unknown(I32), self.unknown(I64));
        let (short, long) = (self.local_with(I32, &short), self.local_with(I64, &long));
        let sign = self.one_of(&["u", "s"]);
        let extended = |local: &str| format!("(i64.extend_i32_{sign} {})", get(local));
        let wrapped = |local: &str| format!("(i32.wrap_i64 {})", get(local));
        let ty = self.any_type();
        let counter = self.local_with(ty, &number(ty, 0));
        let step = self.some_number(ty, &[1, 1, 1, 2, 1 << 31, 1 << 32]);
        let cmp = self.one_of(&["lt_u", "lt_s", "ne", "le_u"]);
        let end = if ty == I32 { wrapped(&long) } else { extended(&short) };
        let end = if self.seldom(2) { end } else { get(&self.local_with(ty, &end)) };
        let again = match (self.below(3), ty) {
            (0, I32) => format!("(i64.{cmp} {} {})", extended(&counter), get(&long)),
            (0, I64) => format!("(i32.{cmp} {} {})", wrapped(&counter), get(&short)),
            _ => format!("({}.{cmp} {} {end})", ty.name(), get(&counter)),
        };
        let out = self.open("block");
        let label = self.open("loop");
        let at_top = self.seldom(2);
        if at_top {
            self.line(&format!("(br_if {out} (i32.eqz {again}))"));
        }
        self.body(&counter, ty);
        self.line(&format!("(local.set {counter} ({}.add {} {step}))", ty.name(), get(&counter)));
        self.line(&if at_top { format!("(br {label})") } else { format!("(br_if {label} {again})") });
        self.close();
        self.close();
    }

    /// Calls a function that came into a table from a global, or from another reference to a function.
    fn table_function(&mut self) {
        let slot = self.below(3);
        match self.below(5) {
            0 => self.line(&format!("(table.set $late (i32.const {slot}) (ref.func $lone))")),
            1 => self.line(&format!("(table.fill $late (i32.const {slot}) (global.get $kept) (i32.const 1))")),
            2 => self.line(&format!("(drop (table.grow $late (global.get $kept) (i32.const {})))", slot + 1)),
            3 => self.line(&format!("(global.set $free (global.get $kept)) (table.set $late (i32.const {slot}) (global.get $free))")),
            _ => self.line(&format!("(table.set $late (i32.const {slot}) (global.get $kept))")),
        }
        let (result, x, y) = (self.local(I32), self.unknown(I32), self.small(I32));
        let index = if self.seldom(2) { self.small(I32) } else { format!("(i32.const {slot})") };
        self.line(&format!("(local.set {result} (call_indirect $late (type $helper) {x} {y} {index}))"));
    }
}
