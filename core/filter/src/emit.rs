//! Code generation from the decision graph. At a node, a register's content is reused if all paths to the node leave
//! the same value in the register.

use crate::error::FilterFault;
use crate::graph::{DecisionNode, Graph, NodeId};
use crate::layout::{CodeLabel, Layout};
use crate::ranges::Ranges;
use crate::value::{FilterValueId, FilterValues, PacketValue, Relation};
use weir_demux::{Alu, code};

/// The most numbers that a value is compared with one by one. With more numbers, a binary search is used.
const COMPARED_SINGLY_MAX: usize = 4;

/// The values in the accumulator and the index register; `None` if a register's content is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers {
    a: Option<FilterValueId>,
    x: Option<FilterValueId>,
}

/// The state of code generation.
struct Emitter<'a> {
    values: &'a FilterValues,
    layout: Layout,
    registers: Registers,
    /// For each node, the values in the registers when it is reached, as far as they are the same on all paths to it.
    /// `None` if no path has been seen yet.
    entry: Vec<Option<Registers>>,
    /// The most numbers that a value is compared with one by one.
    compared_singly_max: usize,
    /// The number of words of scratch memory for temporary values.
    words: u8,
}

/// Generates the instructions of a graph. `snap` is the value that the program returns for an accepted packet. `words`
/// is the number of words of scratch memory for temporary values.
pub(crate) fn emit(
    graph: &Graph,
    values: &FilterValues,
    (words, snap): (u8, u32),
) -> Result<Vec<weir_demux::Instruction>, FilterFault> {
    let with_search = emit_with(graph, values, words, COMPARED_SINGLY_MAX)?.instructions(snap);
    if with_search.len() <= weir_demux::INSTRUCTIONS_MAX {
        return Ok(with_search);
    }
    // A binary search takes more instructions than single comparisons.
    let instructions = emit_with(graph, values, words, usize::MAX)?.instructions(snap);
    if instructions.len() > weir_demux::INSTRUCTIONS_MAX {
        return Err(FilterFault::TooManyInstructions(instructions.len()));
    }
    Ok(instructions)
}

fn emit_with(
    graph: &Graph,
    values: &FilterValues,
    words: u8,
    compared_singly_max: usize,
) -> Result<Layout, FilterFault> {
    let mut emitter = Emitter {
        values,
        layout: Layout::new(graph.len()),
        registers: Registers::default(),
        entry: vec![None; graph.len()],
        compared_singly_max,
        words,
    };
    let order = graph.topological_order();
    if let Some(&root) = order.first()
        && matches!(graph.get(root), DecisionNode::Accept | DecisionNode::Reject)
    {
        emitter.layout.push_jump(label(root));
        return Ok(emitter.layout);
    }
    for id in order {
        emitter.registers = emitter.entry.get(id.index()).copied().flatten().unwrap_or_default();
        match graph.get(id) {
            DecisionNode::Accept | DecisionNode::Reject => {}
            DecisionNode::Store { word, value, next } => {
                emitter.layout.bind(label(id));
                emitter.load_a(*value, 0)?;
                emitter.layout.push(code::ST, u32::from(*word));
                emitter.merge_registers(*next);
                emitter.layout.push_jump(label(*next));
            }
            DecisionNode::Branch { value, numbers, yes, no } => {
                emitter.layout.bind(label(id));
                emitter.branch(*value, numbers, (label(*yes), label(*no)))?;
                emitter.merge_registers(*yes);
                emitter.merge_registers(*no);
            }
        }
    }
    Ok(emitter.layout)
}

fn label(id: NodeId) -> CodeLabel {
    match id {
        NodeId::REJECT => CodeLabel::Reject,
        NodeId::ACCEPT => CodeLabel::Accept,
        _ => CodeLabel::At(id.index()),
    }
}

impl Emitter<'_> {
    /// Records that an edge leads to a node with the current contents of the registers.
    fn merge_registers(&mut self, id: NodeId) {
        let here = self.registers;
        if let Some(entry) = self.entry.get_mut(id.index()) {
            *entry = Some(match *entry {
                None => here,
                Some(other) => Registers {
                    a: other.a.filter(|_| other.a == here.a),
                    x: other.x.filter(|_| other.x == here.x),
                },
            });
        }
    }

    /// Checks that a word of scratch memory can hold a temporary value.
    fn temporary(&self, word: u8) -> Result<u32, FilterFault> {
        if word < self.words { Ok(u32::from(word)) } else { Err(FilterFault::TooComplex) }
    }

    /// Computes a value into the accumulator. Words of scratch memory from `word` on are free.
    fn load_a(&mut self, id: FilterValueId, word: u8) -> Result<(), FilterFault> {
        if self.registers.a == Some(id) {
            return Ok(());
        }
        if self.registers.x == Some(id) {
            self.layout.push(code::TXA, 0);
            self.registers.a = Some(id);
            return Ok(());
        }
        match self.values.get(id) {
            PacketValue::Constant(number) => self.layout.push(code::LD_IMM, number),
            PacketValue::Length => self.layout.push(code::LD_LEN, 0),
            PacketValue::Scratch { word, .. } => self.layout.push(code::LD_MEM, u32::from(word)),
            PacketValue::HeaderLength(_) => {
                self.load_x(id, word)?;
                self.layout.push(code::TXA, 0);
            }
            PacketValue::Load { base, offset, width } => {
                let mode = match base {
                    Some(base) => {
                        self.load_x(base, word)?;
                        code::LD_IND
                    }
                    None => code::LD_ABS,
                };
                self.layout.push(mode | width.code(), offset);
            }
            PacketValue::Negate(of) => {
                self.load_a(of, word)?;
                self.layout.push(code::NEG, 0);
            }
            PacketValue::Compute(operator, a, b) => {
                let operation = code::ALU | operator.code();
                if let Some(number) = self.values.constant_of(b) {
                    self.load_a(a, word)?;
                    self.layout.push(operation, number);
                } else {
                    self.load_both(a, b, word)?;
                    self.layout.push(operation | code::BY_X, 0);
                }
            }
            PacketValue::Compare(..) => return Err(FilterFault::TooComplex),
        }
        self.registers.a = Some(id);
        Ok(())
    }

    /// Computes a value into the index register. Words of scratch memory from `word` on are free.
    fn load_x(&mut self, id: FilterValueId, word: u8) -> Result<(), FilterFault> {
        if self.registers.x == Some(id) {
            return Ok(());
        }
        match self.values.get(id) {
            PacketValue::Constant(number) => self.layout.push(code::LDX_IMM, number),
            PacketValue::Length => self.layout.push(code::LDX_LEN, 0),
            PacketValue::Scratch { word, .. } => self.layout.push(code::LDX_MEM, u32::from(word)),
            PacketValue::HeaderLength(offset) => self.layout.push(code::LDX_MSH, offset),
            _ => {
                self.load_a(id, word)?;
                self.layout.push(code::TAX, 0);
            }
        }
        self.registers.x = Some(id);
        Ok(())
    }

    /// Computes `a` into the accumulator and `b` into the index register. Words of scratch memory from `word` on are
    /// free.
    fn load_both(&mut self, a: FilterValueId, b: FilterValueId, word: u8) -> Result<(), FilterFault> {
        if self.values.fits_x(b) {
            self.load_a(a, word)?;
            return self.load_x(b, word);
        }
        let temporary = self.temporary(word)?;
        // The operand that needs more words is computed first, when all words are free.
        let (first, second) = if self.values.words(a) > self.values.words(b) { (a, b) } else { (b, a) };
        self.load_a(first, word)?;
        self.layout.push(code::ST, temporary);
        self.load_a(second, word + 1)?;
        if first == a {
            self.layout.push(code::TAX, 0);
            self.layout.push(code::LD_MEM, temporary);
        } else {
            self.layout.push(code::LDX_MEM, temporary);
        }
        self.registers = Registers { a: Some(a), x: Some(b) };
        Ok(())
    }

    /// Jumps to `yes` if a value is one of these numbers, else to `no`.
    fn branch(
        &mut self,
        value: FilterValueId,
        numbers: &Ranges,
        (yes, no): (CodeLabel, CodeLabel),
    ) -> Result<(), FilterFault> {
        if let PacketValue::Compare(relation, a, b) = self.values.get(value) {
            self.load_both(a, b, 0)?;
            let jump = match relation {
                Relation::Equal => code::JEQ,
                Relation::Greater => code::JGT,
                Relation::GreaterOrEqual => code::JGE,
            };
            let (true_to, false_to) =
                (if numbers.contains(1) { yes } else { no }, if numbers.contains(0) { yes } else { no });
            self.layout.push_test(jump | code::BY_X, 0, true_to, false_to);
            return Ok(());
        }
        let max = self.values.max(value);
        let numbers = numbers.and(&Ranges::between(0, max));
        let zero = Ranges::one(0);
        let zero_to = if numbers == zero {
            Some((yes, no))
        } else if numbers == zero.not().and(&Ranges::between(0, max)) {
            Some((no, yes))
        } else {
            None
        };
        if let (Some((zero_to, other_to)), PacketValue::Compute(Alu::And, of, mask)) =
            (zero_to, self.values.get(value))
            && let Some(mask) = self.values.constant_of(mask)
            && self.registers.a != Some(value)
        {
            self.load_a(of, 0)?;
            self.layout.push_test(code::JSET, mask, other_to, zero_to);
            return Ok(());
        }
        self.load_a(value, 0)?;
        let mut pieces = Vec::new();
        let mut next = 0;
        for &(low, high) in numbers.parts() {
            if low > next {
                pieces.push((next, false));
            }
            pieces.push((low, true));
            next = high.saturating_add(1);
        }
        if numbers.parts().last().is_none_or(|&(_, high)| high < max) {
            pieces.push((next, false));
        }
        self.search(&pieces, max, (yes, no));
        Ok(())
    }

    /// Jumps to `yes` or `no` according to the piece that contains the accumulator's value. A piece is a range of
    /// numbers, given by its first number, and true if `yes` is the target. A piece ends where the next one begins, and
    /// the last piece ends at `max`.
    fn search(&mut self, pieces: &[(u32, bool)], max: u32, (yes, no): (CodeLabel, CodeLabel)) {
        let to = |is_in: bool| if is_in { yes } else { no };
        let end = |i: usize| pieces.get(i + 1).map_or(max, |&(start, _)| start.saturating_sub(1));
        let [first, rest @ ..] = pieces else { return self.layout.push_jump(no) };
        let Some(last) = rest.last() else { return self.layout.push_jump(to(first.1)) };
        for wanted in [true, false] {
            let matching = || pieces.iter().enumerate().filter(move |(_, (_, is_in))| *is_in == wanted);
            if matching().count() <= self.compared_singly_max
                && matching().all(|(i, &(start, _))| start == end(i))
            {
                let singles: Vec<u32> = matching().map(|(_, &(start, _))| start).collect();
                if let Some((last, others)) = singles.split_last() {
                    for &number in others {
                        let next = self.layout.label();
                        self.layout.push_test(code::JEQ, number, to(wanted), next);
                        self.layout.bind(next);
                    }
                    self.layout.push_test(code::JEQ, *last, to(wanted), to(!wanted));
                    return;
                }
            }
        }
        if rest.len() == 1 {
            self.layout.push_test(code::JGE, last.0, to(last.1), to(first.1));
            return;
        }
        let (left, right) = pieces.split_at(pieces.len() / 2);
        let Some(&(middle, _)) = right.first() else { return };
        let (left_at, right_at) = (self.layout.label(), self.layout.label());
        let only = |part: &[(u32, bool)], otherwise| match part {
            [(_, is_in)] => to(*is_in),
            _ => otherwise,
        };
        self.layout.push_test(code::JGE, middle, only(right, right_at), only(left, left_at));
        if right.len() > 1 {
            self.layout.bind(right_at);
            self.search(right, max, (yes, no));
        }
        if left.len() > 1 {
            self.layout.bind(left_at);
            self.search(left, middle.saturating_sub(1), (yes, no));
        }
    }
}
