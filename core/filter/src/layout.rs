//! The layout of instructions. A test can jump over at most 255 instructions. For a longer jump, the test leads to a
//! separate jump instruction.

use std::collections::HashMap;
use weir_demux::{Instruction, code};

/// The most rounds in which jumps are lengthened. In the last round all jumps become long.
const ROUNDS_MAX: usize = 32;

/// The target of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeLabel {
    Reject,
    Accept,
    /// The place where the label with this number is bound.
    At(usize),
}

/// An instruction, or a label of the instruction after it.
#[derive(Clone, Copy, Debug)]
enum LayoutItem {
    /// An instruction that does not jump.
    Plain { code: u16, k: u32 },
    /// A test. A far target takes a separate jump instruction.
    Test { code: u16, k: u32, yes: CodeLabel, no: CodeLabel, is_yes_far: bool, is_no_far: bool },
    /// A jump.
    Jump(CodeLabel),
    /// Binds a label to the next instruction.
    Bind(CodeLabel),
}

/// Instructions whose jumps lead to labels.
#[derive(Debug)]
pub(crate) struct Layout {
    items: Vec<LayoutItem>,
    labels: usize,
}

impl Layout {
    /// Creates a layout in which the first `labels` labels are already in use.
    pub(crate) fn new(labels: usize) -> Self {
        Self { items: Vec::new(), labels }
    }

    /// A new label.
    pub(crate) fn label(&mut self) -> CodeLabel {
        self.labels += 1;
        CodeLabel::At(self.labels - 1)
    }

    /// Adds an instruction that does not jump.
    pub(crate) fn push(&mut self, code: u16, k: u32) {
        self.items.push(LayoutItem::Plain { code, k });
    }

    /// Adds a test that leads to `yes` or `no`.
    pub(crate) fn push_test(&mut self, code: u16, k: u32, yes: CodeLabel, no: CodeLabel) {
        if yes == no {
            return self.push_jump(yes);
        }
        self.items.push(LayoutItem::Test { code, k, yes, no, is_yes_far: false, is_no_far: false });
    }

    /// Adds a jump.
    pub(crate) fn push_jump(&mut self, to: CodeLabel) {
        self.items.push(LayoutItem::Jump(to));
    }

    /// Binds a label to the next instruction.
    pub(crate) fn bind(&mut self, label: CodeLabel) {
        self.items.push(LayoutItem::Bind(label));
    }

    /// The number of instructions of an item.
    fn size(&self, i: usize) -> usize {
        match self.items.get(i) {
            Some(LayoutItem::Plain { .. }) => 1,
            Some(&LayoutItem::Test { is_yes_far, is_no_far, .. }) => {
                1 + usize::from(is_yes_far) + usize::from(is_no_far)
            }
            Some(&LayoutItem::Jump(to)) => usize::from(!self.is_here(i + 1, to)),
            Some(LayoutItem::Bind(_)) | None => 0,
        }
    }

    /// Returns true if a label is bound to the first instruction from item `i` on.
    fn is_here(&self, mut i: usize, label: CodeLabel) -> bool {
        while let Some(LayoutItem::Bind(bound)) = self.items.get(i) {
            if *bound == label {
                return true;
            }
            i += 1;
        }
        false
    }

    /// The index of the instruction that each label is bound to, and of the first instruction of each item.
    fn positions(&self) -> (HashMap<CodeLabel, usize>, Vec<usize>) {
        let (mut labels, mut positions, mut at) = (HashMap::new(), Vec::with_capacity(self.items.len()), 0);
        for (i, item) in self.items.iter().enumerate() {
            if let LayoutItem::Bind(label) = item {
                labels.insert(*label, at);
            }
            positions.push(at);
            at += self.size(i);
        }
        let uses = |label| {
            self.items.iter().any(|item| match *item {
                LayoutItem::Test { yes, no, is_yes_far, is_no_far, .. } => {
                    yes == label && !is_yes_far || no == label && !is_no_far
                }
                _ => false,
            })
        };
        // The two return instructions come last. Each exists only if a test leads to it directly.
        if uses(CodeLabel::Accept) {
            labels.insert(CodeLabel::Accept, at);
            at += 1;
        }
        if uses(CodeLabel::Reject) {
            labels.insert(CodeLabel::Reject, at);
        }
        (labels, positions)
    }

    /// Marks each target as far that is too many instructions behind its test. The test then leads to a jump
    /// instruction. Such instructions lengthen the program and can move more targets out of reach, so the marking is
    /// repeated until every target that is not marked is in reach.
    fn lengthen_jumps(&mut self) {
        for round in 0..=ROUNDS_MAX {
            let (labels, positions) = self.positions();
            let mut is_done = true;
            for (item, position) in self.items.iter_mut().zip(&positions) {
                let LayoutItem::Test { yes, no, is_yes_far, is_no_far, .. } = item else { continue };
                for (to, is_far) in [(*yes, is_yes_far), (*no, is_no_far)] {
                    // The limit is 255, less two jump instructions that may stand between the test and the next item.
                    let distance = labels.get(&to).map_or(0, |to| to.saturating_sub(*position));
                    if !*is_far && (distance > 253 || round == ROUNDS_MAX) {
                        (*is_far, is_done) = (true, false);
                    }
                }
            }
            if is_done {
                return;
            }
        }
    }

    /// The instructions of the program. `snap` is the value that it returns for an accepted packet.
    pub(crate) fn instructions(mut self, snap: u32) -> Vec<Instruction> {
        self.lengthen_jumps();
        let (labels, _) = self.positions();
        let mut all: Vec<Instruction> = Vec::new();
        let push_far_jump = |all: &mut Vec<Instruction>, to: CodeLabel| {
            let next = all.len() + 1;
            let distance = labels.get(&to).map_or(0, |to| to.saturating_sub(next));
            all.push(match to {
                CodeLabel::Accept => Instruction { code: code::RET, jt: 0, jf: 0, k: snap },
                CodeLabel::Reject => Instruction { code: code::RET, jt: 0, jf: 0, k: 0 },
                CodeLabel::At(_) => Instruction {
                    code: code::JA,
                    jt: 0,
                    jf: 0,
                    k: u32::try_from(distance).unwrap_or(u32::MAX),
                },
            });
        };
        for (i, item) in self.items.iter().enumerate() {
            match *item {
                LayoutItem::Plain { code, k } => all.push(Instruction { code, jt: 0, jf: 0, k }),
                LayoutItem::Jump(to) if self.size(i) > 0 => push_far_jump(&mut all, to),
                LayoutItem::Jump(_) | LayoutItem::Bind(_) => {}
                LayoutItem::Test { code, k, yes, no, is_yes_far, is_no_far } => {
                    let next = all.len() + 1;
                    let near = |to: CodeLabel| {
                        let distance = labels.get(&to).map_or(0, |to| to.saturating_sub(next));
                        u8::try_from(distance).unwrap_or(u8::MAX)
                    };
                    let (jt, jf) = match (is_yes_far, is_no_far) {
                        (false, false) => (near(yes), near(no)),
                        (true, false) => (0, near(no)),
                        (false, true) => (near(yes), 0),
                        (true, true) => (0, 1),
                    };
                    all.push(Instruction { code, jt, jf, k });
                    if is_yes_far {
                        push_far_jump(&mut all, yes);
                    }
                    if is_no_far {
                        push_far_jump(&mut all, no);
                    }
                }
            }
        }
        for (label, k) in [(CodeLabel::Accept, snap), (CodeLabel::Reject, 0)] {
            if labels.contains_key(&label) {
                all.push(Instruction { code: code::RET, jt: 0, jf: 0, k });
            }
        }
        all
    }
}
