//! A function under construction: its locals, its labels, and statements other than loops.

use arbitrary::Unstructured;
use std::fmt::Write as _;

/// Types of locals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    I32,
    I64,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }
}

/// Generates a function's text from choices.
pub struct Maker<'a, 'b> {
    choices: &'a mut Unstructured<'b>,
    /// The text of the body so far.
    pub out: String,
    locals: Vec<(String, Type)>,
    /// The blocks and loops around the current place.
    pub labels: Vec<String>,
    made_labels: usize,
    /// True if the first parameter, `$d`, is a packet's descriptor.
    pub has_packet: bool,
    /// The number of helper functions that may be called: those before this one, so that nothing is recursive.
    pub helpers: usize,
    /// The number of loops around the current place.
    pub loops: u32,
    /// The statements left to generate.
    budget: usize,
}

impl<'a, 'b> Maker<'a, 'b> {
    /// A function with these parameters, and with a local of each type, `$a` and `$b`.
    pub fn new(
        choices: &'a mut Unstructured<'b>,
        params: &[(&str, Type)],
        has_packet: bool,
        helpers: usize,
    ) -> Self {
        let locals = params.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect();
        Self {
            choices,
            out: String::new(),
            locals,
            labels: Vec::new(),
            made_labels: 0,
            has_packet,
            helpers,
            loops: 0,
            budget: 40,
        }
    }

    /// A number below `n`; 0 when no choices are left.
    pub fn below(&mut self, n: usize) -> usize {
        self.choices.choose_index(n).unwrap_or(0)
    }

    /// True once in `n` times.
    pub fn seldom(&mut self, n: usize) -> bool {
        !self.is_spent() && self.below(n) == 0
    }

    pub fn is_spent(&self) -> bool {
        self.choices.is_empty()
    }

    pub fn any_type(&mut self) -> Type {
        if self.below(3) == 2 { Type::I64 } else { Type::I32 }
    }

    pub fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "  {text}");
    }

    /// Adds a local and returns its name.
    pub fn local(&mut self, ty: Type) -> String {
        let name = format!("$v{}", self.locals.len());
        self.locals.push((name.clone(), ty));
        name
    }

    /// An existing local of a type; each function has one of each.
    pub fn any_local(&mut self, ty: Type) -> String {
        let known: Vec<String> =
            self.locals.iter().filter(|(_, of)| *of == ty).map(|(name, _)| name.clone()).collect();
        if known.is_empty() {
            return self.local(ty);
        }
        // Recent ones more often: they are the counters in use.
        let choice = if self.below(2) == 0 {
            known.len() - 1 - self.below(known.len().min(3))
        } else {
            self.below(known.len())
        };
        known[choice].clone()
    }

    /// Opens a block or loop, with a new label.
    pub fn open(&mut self, what: &str) -> String {
        self.made_labels += 1;
        let label = format!("$l{}", self.made_labels);
        self.line(&format!("({what} {label}"));
        self.labels.push(label.clone());
        label
    }

    pub fn close(&mut self) {
        self.labels.pop();
        self.line(")");
    }

    /// Any label that a branch can reach.
    fn any_label(&mut self) -> Option<String> {
        let count = self.labels.len();
        let index = if count == 0 { return None } else { self.below(count) };
        self.labels.get(index).cloned()
    }

    /// Up to `most` statements.
    pub fn statements(&mut self, most: usize) {
        for _ in 0..self.below(most + 1) {
            self.statement();
        }
    }

    /// One statement of any kind.
    pub fn statement(&mut self) {
        if self.budget == 0 || self.is_spent() {
            return;
        }
        self.budget -= 1;
        match self.below(16) {
            0 | 1 => {
                let ty = self.any_type();
                let value = self.value(ty, 2);
                // A new local, or one that other code depends on.
                let local = if self.seldom(3) { self.any_local(ty) } else { self.local(ty) };
                self.line(&format!("(local.set {local} {value})"));
            }
            2 | 3 => {
                let ty = self.any_type();
                let (address, value) = (self.address(), self.value(ty, 2));
                self.line(&format!("({}.store {address} {value})", ty.name()));
            }
            4 => {
                let (address, value) = (self.address(), self.value(Type::I32, 1));
                let bits = [8, 16][self.below(2)];
                self.line(&format!("(i32.store{bits} {address} {value})"));
            }
            5 => {
                let condition = self.condition(1);
                self.line(&format!("(if {condition} (then"));
                self.statements(3);
                self.line(") (else");
                self.statements(2);
                self.line("))");
            }
            6 => {
                self.open("block");
                self.statements(4);
                self.close();
            }
            7 => {
                let condition = self.condition(1);
                if let Some(label) = self.any_label() {
                    self.line(&format!("(br_if {label} {condition})"));
                }
            }
            8 => self.host_call(),
            9 => self.bulk(),
            10 => self.call(),
            11 => self.shadow_stack(),
            12 => self.table_branch(),
            _ if self.loops < 3 => self.any_loop(),
            _ => {}
        }
    }

    fn host_call(&mut self) {
        let len = if self.seldom(4) { self.value(Type::I32, 1) } else { self.small(Type::I32) };
        let address = self.address();
        let text = match self.below(11) {
            0 => "(drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))".to_owned(),
            1 if self.has_packet => {
                format!("(drop (call $patch (local.get $d) (i32.const 0) {address} {len}))")
            }
            2 => format!("(drop (call $log (i32.const 2) {address} {len}))"),
            3 => format!("(drop (call $hash {address} {len} (i64.const 0)))"),
            4 => format!("(drop (call $find (i32.const 0) {address} {len}))"),
            5 => format!("(drop (call $send (i32.const 0) {address} {len}))"),
            6 if self.has_packet => "(drop (call $keep (local.get $d)))".to_owned(),
            7 => format!("(drop (call $release {len}))"),
            8 => {
                let table = [1, 1, 0, 7][self.below(4)];
                format!("(drop (call $publish (i32.const {table}) {address} {len}))")
            }
            9 => format!("(drop (call $publish_sequence {len}))"),
            // It writes to memory.
            _ => format!(
                "(drop (call $param_bytes (i32.const {}) {address} {len}))",
                [1, 1, 2, 7][self.below(4)]
            ),
        };
        self.line(&text);
    }

    fn bulk(&mut self) {
        let len = if self.seldom(4) { self.value(Type::I32, 1) } else { self.small(Type::I32) };
        let (to, from) = (self.address(), self.address());
        let text = match self.below(4) {
            0 => format!("(memory.fill {to} (i32.const 3) {len})"),
            1 => format!("(memory.copy {to} {from} {len})"),
            2 => format!("(memory.init $bytes {to} (i32.const 0) {len})"),
            _ => format!("(drop (memory.grow (i32.and {len} (i32.const 3))))"),
        };
        self.line(&text);
    }

    fn call(&mut self) {
        let (x, y) = (self.value(Type::I32, 1), self.small(Type::I32));
        let result = self.any_local(Type::I32);
        if self.helpers == 0 {
            return;
        }
        let index = self.below(self.helpers);
        if self.seldom(4) {
            self.line(&format!(
                "(local.set {result} (call_indirect (type $helper) {x} {y} (i32.const {index})))"
            ));
        } else {
            self.line(&format!("(local.set {result} (call $helper{index} {x} {y}))"));
        }
    }

    /// A frame of the shadow stack, as LLVM makes it.
    fn shadow_stack(&mut self) {
        let frame = self.local(Type::I32);
        let bytes = 16 * (1 + self.below(4));
        self.line(&format!("(local.set {frame} (i32.sub (global.get $sp) (i32.const {bytes})))"));
        self.line(&format!("(global.set $sp (local.get {frame}))"));
        let value = self.value(Type::I32, 1);
        self.line(&format!("(i32.store offset=8 (local.get {frame}) {value})"));
        self.statements(3);
        // Rarely, the frame is not released.
        if !self.seldom(12) {
            self.line(&format!("(global.set $sp (i32.add (local.get {frame}) (i32.const {bytes})))"));
        }
    }

    fn table_branch(&mut self) {
        let index = self.small(Type::I32);
        let labels: Vec<String> = (0..4).filter_map(|_| self.any_label()).collect();
        if !labels.is_empty() && !self.seldom(2) {
            // As the cases of a switch: within blocks of its own, so that the code after it is reached.
            let outer = self.open("block");
            let inner = self.open("block");
            self.line(&format!("(br_table {inner} {outer} {} {index})", labels[0]));
            self.close();
            self.statements(2);
            self.close();
        }
    }

    /// The function's text.
    pub fn finish(self, header: &str, params: usize, result: &str) -> String {
        let locals: String = self.locals.iter().skip(params).fold(String::new(), |mut text, (name, ty)| {
            let _ = write!(text, " (local {name} {})", ty.name());
            text
        });
        format!("(func {header} (local $a i32) (local $b i64){locals}\n{}  {result})\n", self.out)
    }
}
