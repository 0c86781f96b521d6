//! Places of instructions. A test jumps over 255 instructions at most; further jumps take an instruction of their own.

use std::collections::HashMap;
use weir_demux::{Instruction, code};

/// Rounds in which jumps become long, at most; then all are.
const ROUNDS_MAX: usize = 32;

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CodeLabel {
    Reject,
    Accept,
    At(usize),
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Plain { code: u16, k: u32 },
    Test { code: u16, k: u32, yes: CodeLabel, no: CodeLabel, is_yes_far: bool, is_no_far: bool },
    Go(CodeLabel),
    Bind(CodeLabel),
}

/// Instructions whose jumps lead to labels.
#[derive(Debug)]
pub(crate) struct Layout {
    items: Vec<Item>,
    labels: usize,
}

impl Layout {
    /// With so many labels that are given away already.
    pub(crate) fn new(labels: usize) -> Self {
        Self { items: Vec::new(), labels }
    }

    /// A new label.
    pub(crate) fn label(&mut self) -> CodeLabel {
        self.labels += 1;
        CodeLabel::At(self.labels - 1)
    }

    pub(crate) fn push(&mut self, code: u16, k: u32) {
        self.items.push(Item::Plain { code, k });
    }

    pub(crate) fn jump(&mut self, code: u16, k: u32, yes: CodeLabel, no: CodeLabel) {
        if yes == no {
            return self.go(yes);
        }
        self.items.push(Item::Test { code, k, yes, no, is_yes_far: false, is_no_far: false });
    }

    pub(crate) fn go(&mut self, to: CodeLabel) {
        self.items.push(Item::Go(to));
    }

    pub(crate) fn bind(&mut self, label: CodeLabel) {
        self.items.push(Item::Bind(label));
    }

    /// The instructions that an item takes.
    fn size(&self, i: usize) -> usize {
        match self.items.get(i) {
            Some(Item::Plain { .. }) => 1,
            Some(&Item::Test { is_yes_far, is_no_far, .. }) => {
                1 + usize::from(is_yes_far) + usize::from(is_no_far)
            }
            Some(&Item::Go(to)) => usize::from(!self.is_here(i + 1, to)),
            Some(Item::Bind(_)) | None => 0,
        }
    }

    /// Returns true if a label is bound at item `i`, with no instruction before it.
    fn is_here(&self, mut i: usize, label: CodeLabel) -> bool {
        while let Some(Item::Bind(bound)) = self.items.get(i) {
            if *bound == label {
                return true;
            }
            i += 1;
        }
        false
    }

    /// The place of each label, and of each item.
    fn places(&self) -> (HashMap<CodeLabel, usize>, Vec<usize>) {
        let (mut labels, mut places, mut at) = (HashMap::new(), Vec::with_capacity(self.items.len()), 0);
        for (i, item) in self.items.iter().enumerate() {
            if let Item::Bind(label) = item {
                labels.insert(*label, at);
            }
            places.push(at);
            at += self.size(i);
        }
        let uses = |label| {
            self.items.iter().any(|item| match *item {
                Item::Test { yes, no, is_yes_far, is_no_far, .. } => {
                    yes == label && !is_yes_far || no == label && !is_no_far
                }
                _ => false,
            })
        };
        // The two returns come last, where something leads to them.
        if uses(CodeLabel::Accept) {
            labels.insert(CodeLabel::Accept, at);
            at += 1;
        }
        if uses(CodeLabel::Reject) {
            labels.insert(CodeLabel::Reject, at);
        }
        (labels, places)
    }

    /// Makes jumps long that are too far for a test, until none is left.
    fn stretch(&mut self) {
        for round in 0..=ROUNDS_MAX {
            let (labels, places) = self.places();
            let mut is_done = true;
            for (item, place) in self.items.iter_mut().zip(&places) {
                let Item::Test { yes, no, is_yes_far, is_no_far, .. } = item else { continue };
                for (to, is_far) in [(*yes, is_yes_far), (*no, is_no_far)] {
                    // Two more, for long jumps that are between the test and what follows it.
                    let distance = labels.get(&to).map_or(0, |to| to.saturating_sub(*place));
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

    /// The instructions.
    pub(crate) fn instructions(mut self, snap: u32) -> Vec<Instruction> {
        self.stretch();
        let (labels, _) = self.places();
        let mut all: Vec<Instruction> = Vec::new();
        let far = |all: &mut Vec<Instruction>, to: CodeLabel| {
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
                Item::Plain { code, k } => all.push(Instruction { code, jt: 0, jf: 0, k }),
                Item::Go(to) if self.size(i) > 0 => far(&mut all, to),
                Item::Go(_) | Item::Bind(_) => {}
                Item::Test { code, k, yes, no, is_yes_far, is_no_far } => {
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
                        far(&mut all, yes);
                    }
                    if is_no_far {
                        far(&mut all, no);
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
