//! Loops of the kinds that LLVM emits, and similar loops that are wrong.

use super::pieces::{Maker, Type};
use super::shapes;
use arbitrary::Unstructured;

const IMPORTS: &str = r#"
    (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
    (import "weir" "patch" (func $patch (param i32 i32 i32 i32) (result i32)))
    (import "weir" "send" (func $send (param i32 i32 i32) (result i32)))
    (import "weir" "keep" (func $keep (param i32) (result i32)))
    (import "weir" "release" (func $release (param i32) (result i32)))
    (import "weir" "publish" (func $publish (param i32 i32 i32) (result i32)))
    (import "weir" "find" (func $find (param i32 i32 i32) (result i64)))
    (import "weir" "hash" (func $hash (param i32 i32 i64) (result i64)))
    (import "weir" "log" (func $log (param i32 i32 i32) (result i32)))
    (import "weir" "param_int" (func $param_int (param i32) (result i64)))
    (import "weir" "param_bytes" (func $param_bytes (param i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data $bytes "0123456789abcdefghijklmnopqrstuvwxyz")
    (data (i32.const 8) "\09\00\00\00\00\00\00\00\07\00\00\00\00\00\00\00\ff\ff\ff\ff\01\00\00\00")
    (type $helper (func (param i32 i32) (result i32)))"#;

/// Writes bytes that go up by one and publishes some of them, so that a reader can verify them.
const PUBLISH: &str = r#"
    (func $publish_sequence (param $first i32) (result i32) (local $i i32)
      (loop $next
        (i32.store8 offset=3072 (local.get $i) (i32.add (local.get $first) (local.get $i)))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 48))))
      (call $publish (i32.const 2) (i32.const 3072) (i32.sub (i32.const 48) (i32.and (local.get $first) (i32.const 15)))))
"#;

/// The index of the table that only `$publish_sequence` publishes to.
pub const PUBLISHED_TABLE: u32 = 2;

/// Returns true if these bytes are a published value: their number follows from the first byte, and each further byte is
/// one more than the byte before it.
pub fn is_published_value(bytes: &[u8]) -> bool {
    let Some(first) = bytes.first() else { return false };
    bytes.len() == 48 - usize::from(first & 15)
        && bytes.windows(2).all(|two| two[1] == two[0].wrapping_add(1))
}

/// An entry point: its header, named parameters, and result.
type Entry = (&'static str, &'static [(&'static str, Type)], &'static str);

/// The text of a module with loops in all of its entry points.
pub fn module(input: &[u8]) -> String {
    let mut choices = Unstructured::new(input);
    let helpers = choices.choose_index(3).unwrap_or(0);
    let mut text = format!("(module {IMPORTS}\n");
    let bottom = [4096, 4096, 65_536, 64][choices.choose_index(4).unwrap_or(0)];
    text += &format!("(global $sp (mut i32) (i32.const {bottom}))\n");
    let names: String = (0..helpers).map(|i| format!(" $helper{i}")).collect();
    text += &format!("(table funcref (elem{names}))\n");
    text += PUBLISH;
    text += &shapes::data();
    text += &shapes::unlisted(&mut choices);
    text += &shapes::argument_dependent(&mut choices);
    for i in 0..helpers {
        let params = [("$x", Type::I32), ("$y", Type::I32)];
        text += &function(
            &mut choices,
            &format!("$helper{i} (param $x i32) (param $y i32) (result i32)"),
            &params,
            "(local.get $x)",
            i,
        );
    }
    let entries: [Entry; 4] = [
        ("(export \"weir_packet\") (param $d i32) (result i32)", &[("$d", Type::I32)], "(i32.const 0)"),
        ("(export \"weir_tick\") (param $t i64) (param $n i64)", &[("$t", Type::I64), ("$n", Type::I64)], ""),
        ("(export \"weir_stop\") (param $t i64)", &[("$t", Type::I64)], ""),
        ("(export \"weir_start\") (result i32)", &[], "(i32.const 0)"),
    ];
    for (header, params, result) in entries {
        if header.contains("packet") || choices.ratio(1, 3).unwrap_or(false) {
            text += &function(&mut choices, header, params, result, helpers);
        }
    }
    text + ")"
}

fn function(
    choices: &mut Unstructured<'_>,
    header: &str,
    params: &[(&str, Type)],
    result: &str,
    helpers: usize,
) -> String {
    let mut maker = Maker::new(choices, params, header.contains("$d"), helpers);
    maker.statements(2);
    maker.any_loop();
    maker.statements(3);
    maker.finish(header, params.len(), result)
}

/// The parts of a counting loop.
struct Counting {
    ty: Type,
    counter: String,
    /// The step of the counter.
    step: String,
    /// The condition for another iteration.
    again: String,
}

impl Maker<'_, '_> {
    /// A loop of any kind.
    pub fn any_loop(&mut self) {
        self.loops += 1;
        match self.below(24) {
            0..=4 => self.counting(),
            5 => self.pointer(),
            6 => self.bits(),
            7 => self.shifting(),
            8 => self.on_the_stack(),
            9 => self.through_memory(),
            10 => self.two_counters(),
            11 => self.arbitrary_loop(),
            _ => self.shape(),
        }
        self.loops -= 1;
    }

    /// A step: mostly one or a small power of two.
    fn step(&mut self, ty: Type) -> String {
        let t = ty.name();
        match self.below(10) {
            0..=4 => format!("({t}.const 1)"),
            5 | 6 => format!("({t}.const {})", [2, 4, 8, 16, 3, 5][self.below(6)]),
            7 => format!("({t}.const -1)"),
            8 => self.constant(ty),
            _ => self.value(ty, 1),
        }
    }

    /// A limit: kept in a local, or evaluated each time.
    pub fn limit(&mut self, ty: Type) -> String {
        let value = if self.seldom(5) { self.value(ty, 2) } else { self.small(ty) };
        if self.seldom(4) {
            return value;
        }
        let limit = self.local(ty);
        self.line(&format!("(local.set {limit} {value})"));
        format!("(local.get {limit})")
    }

    fn counting_parts(&mut self) -> Counting {
        let ty = self.any_type();
        let t = ty.name();
        let counter = self.local(ty);
        let limit = self.limit(ty);
        let step = self.step(ty);
        let get = format!("(local.get {counter})");
        let zero = format!("({t}.const 0)");
        let (start, step, again) = match self.below(8) {
            // Up to the limit.
            0..=2 => {
                let cmp = ["lt_u", "lt_s", "ne", "le_u", "le_s"][self.below(5)];
                (zero, format!("({t}.add {get} {step})"), format!("({t}.{cmp} {get} {limit})"))
            }
            3 => {
                let cmp = ["gt_u", "gt_s", "ne"][self.below(3)];
                (self.constant(ty), format!("({t}.add {get} {step})"), format!("({t}.{cmp} {limit} {get})"))
            }
            // Down from the limit.
            4 | 5 => {
                let cmp = ["ne", "gt_u", "gt_s", "ge_s", "ge_u"][self.below(5)];
                let end = if self.seldom(3) { self.constant(ty) } else { zero };
                (limit, format!("({t}.sub {get} {step})"), format!("({t}.{cmp} {get} {end})"))
            }
            6 => (limit, format!("({t}.add {get} ({t}.const -1))"), get.clone()),
            _ => {
                let again = self.compared(ty, &get, &limit);
                (self.value(ty, 1), format!("({t}.add {get} {step})"), again)
            }
        };
        self.line(&format!("(local.set {counter} {start})"));
        let again =
            if ty == Type::I64 && again == get { format!("(i64.ne {get} (i64.const 0))") } else { again };
        let again = match self.below(10) {
            0 => format!("(i32.and {again} {})", self.condition(1)),
            1 => format!("(i32.or {again} {})", self.condition(1)),
            2 => format!("(i32.eqz (i32.eqz {again}))"),
            _ => again,
        };
        Counting { ty, counter, step, again }
    }

    fn counting(&mut self) {
        let Counting { ty, counter, step, again } = self.counting_parts();
        let advance = format!("(local.set {counter} {step})");
        match self.below(6) {
            // The test at the top.
            0 => {
                let out = self.open("block");
                let label = self.open("loop");
                self.line(&format!("(br_if {out} (i32.eqz {again}))"));
                self.body(&counter, ty);
                self.line(&advance);
                self.line(&format!("(br {label})"));
            }
            // Rotated: the test at the bottom, and a guard before the loop, which may be missing or a different test.
            1..=3 => {
                let out = self.open("block");
                let guard = match self.below(4) {
                    0 => None,
                    1 => Some(self.condition(1)),
                    _ => Some(again.clone()),
                };
                if let Some(guard) = guard {
                    self.line(&format!("(br_if {out} (i32.eqz {guard}))"));
                }
                let label = self.open("loop");
                self.body(&counter, ty);
                if self.seldom(6) {
                    // On one path only.
                    let condition = self.condition(1);
                    self.line(&format!("(if {condition} (then {advance}))"));
                } else {
                    self.line(&advance);
                }
                self.line(&format!("(br_if {label} {again})"));
            }
            // The step first.
            4 => {
                self.open("block");
                let label = self.open("loop");
                self.line(&advance);
                self.body(&counter, ty);
                self.line(&format!("(br_if {label} {again})"));
            }
            // The test in the middle, on the value before the step, as a branch around the exit.
            _ => {
                let out = self.open("block");
                let label = self.open("loop");
                let next = self.open("block");
                self.line(&format!("(br_if {next} {again})"));
                self.line(&format!("(br {out})"));
                self.close();
                self.line(&advance);
                self.body(&counter, ty);
                self.line(&format!("(br {label})"));
            }
        }
        self.close();
        self.close();
    }

    /// The statements of a loop, which may overwrite its counter.
    pub fn body(&mut self, counter: &str, ty: Type) {
        self.statements(3);
        if self.seldom(9) {
            let value = self.value(ty, 1);
            if self.seldom(2) {
                let condition = self.condition(1);
                self.line(&format!("(if {condition} (then (local.set {counter} {value})))"));
            } else {
                self.line(&format!("(local.set {counter} {value})"));
            }
        }
    }

    /// A pointer that goes from the begin to the end of the packet or of a buffer.
    fn pointer(&mut self) {
        let (pointer, end) = (self.local(Type::I32), self.local(Type::I32));
        let in_packet = self.has_packet && !self.seldom(3);
        let base = if in_packet { "(i32.load offset=8 (local.get $d))".to_owned() } else { self.address() };
        let len = match (in_packet, self.below(4)) {
            (true, 0 | 1) => self.length(Type::I32),
            (true, 2) => format!("(i32.and {} (i32.const -4))", self.length(Type::I32)),
            _ => self.small(Type::I32),
        };
        self.line(&format!("(local.set {pointer} {base})"));
        self.line(&format!("(local.set {end} (i32.add (local.get {pointer}) {len}))"));
        let cmp = ["ne", "lt_u", "ne", "lt_u", "lt_s", "le_u"][self.below(6)];
        let again = format!("(i32.{cmp} (local.get {pointer}) (local.get {end}))");
        let by = [1, 1, 1, 2, 4, 3][self.below(6)];
        let out = self.open("block");
        if !self.seldom(4) {
            self.line(&format!("(br_if {out} (i32.eqz {again}))"));
        }
        let label = self.open("loop");
        let sum = self.any_local(Type::I32);
        self.line(&format!(
            "(local.set {sum} (i32.add (local.get {sum}) (i32.load8_u (local.get {pointer}))))"
        ));
        self.body(&pointer, Type::I32);
        if self.seldom(3) {
            self.line(&format!("(local.set {pointer} (i32.add (local.get {pointer}) (i32.const {by})))"));
            self.line(&format!("(br_if {label} {again})"));
        } else {
            let teed = format!("(local.tee {pointer} (i32.add (local.get {pointer}) (i32.const {by})))");
            self.line(&format!("(br_if {label} (i32.{cmp} {teed} (local.get {end})))"));
        }
        self.close();
        self.close();
    }

    /// Clears the lowest bit until none is left.
    fn bits(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let bits = self.local(ty);
        let value = self.value(ty, 2);
        self.line(&format!("(local.set {bits} {value})"));
        let out = self.open("block");
        if !self.seldom(3) {
            self.line(&format!("(br_if {out} ({t}.eqz (local.get {bits})))"));
        }
        let label = self.open("loop");
        self.body(&bits, ty);
        let less = match self.below(4) {
            0 => format!("({t}.sub (local.get {bits}) ({t}.const 1))"),
            1 => format!("({t}.sub (local.get {bits}) {})", self.step(ty)),
            _ => format!("({t}.add (local.get {bits}) ({t}.const -1))"),
        };
        let op = if self.seldom(8) { "or" } else { "and" };
        self.line(&format!(
            "(br_if {label} ({t}.ne (local.tee {bits} ({t}.{op} {less} (local.get {bits}))) ({t}.const 0)))"
        ));
        self.close();
        self.close();
    }

    /// Shifts, divides or doubles until a limit.
    fn shifting(&mut self) {
        let ty = self.any_type();
        let t = ty.name();
        let value = self.local(ty);
        let start = self.value(ty, 1);
        self.line(&format!("(local.set {value} {start})"));
        let by = if self.seldom(3) {
            self.small(ty)
        } else {
            format!("({t}.const {})", [1, 1, 2, 8, 0, 32, 64][self.below(7)])
        };
        let op = ["shr_u", "shr_u", "shl", "shr_s", "div_u", "mul", "rotl"][self.below(7)];
        let limit = self.limit(ty);
        let out = self.open("block");
        let label = self.open("loop");
        let again = if self.seldom(2) {
            self.compared(ty, &format!("(local.get {value})"), &limit)
        } else {
            format!("({t}.ne (local.get {value}) ({t}.const 0))")
        };
        self.line(&format!("(br_if {out} (i32.eqz {again}))"));
        self.body(&value, ty);
        self.line(&format!("(local.set {value} ({t}.{op} (local.get {value}) {by}))"));
        self.line(&format!("(br {label})"));
        self.close();
        self.close();
    }

    /// The counter is an operand that the loop takes and returns, not a local.
    fn on_the_stack(&mut self) {
        let (start, kept) = (self.small(Type::I32), self.local(Type::I32));
        let step = self.step(Type::I32);
        let op = ["sub", "sub", "add", "shr_u"][self.below(4)];
        self.line(&start);
        let label = self.open("loop");
        self.line("(param i32) (result i32)");
        self.line(&format!("(local.set {kept})"));
        let hidden = std::mem::take(&mut self.labels);
        self.statements(2);
        self.labels = hidden;
        let cmp = ["ne", "gt_s", "gt_u"][self.below(3)];
        self.line(&format!("(local.tee {kept} (i32.{op} (local.get {kept}) {step}))"));
        self.line(&format!("(br_if {label} (i32.{cmp} (local.get {kept}) (i32.const 0)))"));
        self.close();
        self.line("(drop)");
    }

    /// The counter, the limit, or both are in memory, as with -O0, where stores can alias them.
    fn through_memory(&mut self) {
        let frame = self.local(Type::I32);
        let at = if self.seldom(2) { "(i32.const 24)" } else { "(i32.sub (global.get $sp) (i32.const 32))" };
        self.line(&format!("(local.set {frame} {at})"));
        let limit = self.small(Type::I32);
        self.line(&format!("(i32.store offset=4 (local.get {frame}) {limit})"));
        self.line(&format!("(i32.store offset=0 (local.get {frame}) (i32.const 0))"));
        let out = self.open("block");
        let label = self.open("loop");
        let cmp = ["lt_u", "lt_s", "ne"][self.below(3)];
        let end = if self.seldom(2) {
            self.constant(Type::I32)
        } else {
            format!("(i32.load offset=4 (local.get {frame}))")
        };
        self.line(&format!("(br_if {out} (i32.eqz (i32.{cmp} (i32.load (local.get {frame})) {end})))"));
        self.statements(3);
        let step = self.step(Type::I32);
        self.line(&format!(
            "(i32.store (local.get {frame}) (i32.add (i32.load (local.get {frame})) {step}))"
        ));
        self.line(&format!("(br {label})"));
        self.close();
        self.close();
    }

    /// Two counters, either of which may end the loop.
    fn two_counters(&mut self) {
        let one = self.counting_parts();
        let other = self.counting_parts();
        let out = self.open("block");
        let label = self.open("loop");
        self.body(&one.counter, one.ty);
        self.line(&format!("(local.set {} {})", one.counter, one.step));
        if self.seldom(2) {
            self.line(&format!("(br_if {out} (i32.eqz {}))", one.again));
        }
        if self.seldom(4) {
            let condition = self.condition(1);
            self.line(&format!("(if {condition} (then (local.set {} {})))", other.counter, other.step));
        } else {
            self.line(&format!("(local.set {} {})", other.counter, other.step));
        }
        let again = if self.below(2) == 0 { one.again } else { other.again };
        self.line(&format!("(br_if {label} {again})"));
        self.close();
        self.close();
    }

    /// Any statements, and a back edge.
    fn arbitrary_loop(&mut self) {
        self.open("block");
        let label = self.open("loop");
        self.statements(5);
        let again = self.condition(2);
        self.line(&format!("(br_if {label} {again})"));
        self.close();
        self.close();
    }
}
