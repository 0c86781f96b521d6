//! The accepting paths of a filter program. A path is a list of demands on the packet.
//!
//! The program is executed symbolically. A forward pass finds the states in which each instruction can be reached. A
//! backward pass finds the paths from each state to acceptance. Paths that differ only in one demand are merged. So a
//! test for a list of hosts is one path, and so is the conjunction of a list of hosts and a list of ports.

use crate::budget::{Exceeded, LookupBudget};
use crate::expression::{Expression, ExpressionId, Expressions, NoExpression};
use crate::machine::Alu;
use crate::program::{DecodedInstruction, FilterProgram, Operand, SCRATCH, Test};
use crate::values::{ValueSet, ValueSets};
use std::collections::HashMap;

/// An accepting path: a list of demands, sorted by expression and without duplicates. A demand says that an expression
/// has a value and that the value is in a set.
pub(crate) type Path = Vec<(ExpressionId, ValueSet)>;

/// The most accepting paths from one state, before they are merged.
const PATHS_MAX: usize = 256;

/// The error for a program with too many paths or too large expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooComplex;

impl From<Exceeded> for TooComplex {
    fn from(_: Exceeded) -> Self {
        Self
    }
}

/// The expressions and value sets of all programs.
pub(crate) struct ProgramTerms {
    pub(crate) expressions: Expressions,
    pub(crate) values: ValueSets,
}

/// An instruction, and the contents of the registers before it. Registers that are not read any more count as 0, so
/// that they do not distinguish states.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SymbolicState {
    /// The index of the instruction.
    at: usize,
    a: ExpressionId,
    x: ExpressionId,
    scratch: [ExpressionId; SCRATCH],
}

/// The end of a segment. States are given by their index.
enum Outcome {
    Accept,
    Reject,
    /// The program continues in this state.
    Next(usize),
    /// The program continues in the state `yes` if the value of `tested` is in `set`, else in the state `no`.
    Branch {
        tested: ExpressionId,
        set: ValueSet,
        yes: usize,
        no: usize,
    },
}

/// The instructions from a state up to the next branch, jump or return.
struct Segment {
    /// The index of the first instruction.
    at: usize,
    /// The expressions that must have values; otherwise the packet is rejected.
    needs: Vec<ExpressionId>,
    outcome: Outcome,
}

/// The accepting paths of a program.
pub(crate) fn paths(
    program: &FilterProgram,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Path>, TooComplex> {
    let segments = explore(program, terms, budget)?;
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(segments[i].at));
    // The accepting paths from each segment on.
    let mut all: Vec<Vec<Path>> = vec![Vec::new(); segments.len()];
    for i in order {
        let segment = &segments[i];
        let mut found = match segment.outcome {
            Outcome::Reject => Vec::new(),
            Outcome::Accept => vec![Path::new()],
            Outcome::Next(next) => all[next].clone(),
            Outcome::Branch { tested, set, yes, no } => {
                let opposite = terms.values.not(set, budget)?;
                let mut found = with_demand(&all[yes], tested, set, terms, budget)?;
                found.extend(with_demand(&all[no], tested, opposite, terms, budget)?);
                found
            }
        };
        for &need in &segment.needs {
            found = with_demand(&found, need, ValueSet::ALL, terms, budget)?;
        }
        if found.len() > PATHS_MAX {
            return Err(TooComplex);
        }
        all[i] = merge_paths(found, terms, budget)?;
    }
    let mut found = std::mem::take(&mut all[0]);
    relax(&mut found, terms, budget)?;
    for path in &mut found {
        budget.spend(path.len() * path.len())?;
        drop_implied_demands(path, &terms.expressions);
    }
    Ok(merge_paths(found, terms, budget)?)
}

/// Widens the demands of a path by values that another path accepts anyway, and removes paths that another path covers.
/// For example, "the source is not host A, and the destination is host A" becomes "the destination is host A" if
/// another path is "the source is host A". All paths together accept the same packets as before.
fn relax(paths: &mut Vec<Path>, terms: &mut ProgramTerms, budget: &mut LookupBudget) -> Result<(), Exceeded> {
    let mut is_covered = vec![false; paths.len()];
    for one in 0..paths.len() {
        for other in (0..paths.len()).filter(|&other| other != one) {
            budget.spend(1 + paths[other].len())?;
            if is_covered[other] {
                continue;
            }
            match difference(&paths[one], &paths[other], terms, budget)? {
                Difference::None => {
                    is_covered[one] = true;
                    break;
                }
                Difference::OneDemand { index, union } => paths[one][index].1 = union,
                Difference::More => {}
            }
        }
    }
    let mut is_covered = is_covered.into_iter();
    paths.retain(|_| !is_covered.next().unwrap_or(false));
    Ok(())
}

/// The packets that a path accepts and another path does not accept.
enum Difference {
    /// No packets: the other path covers the path.
    None,
    /// Packets with certain values of one expression. `index` is the index of its demand in the path, and `union` the
    /// values that either path accepts.
    OneDemand { index: usize, union: ValueSet },
    /// Other packets.
    More,
}

/// Compares the packets that `one` accepts with the packets that `other` accepts.
fn difference(
    one: &Path,
    other: &Path,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Difference, Exceeded> {
    let mut found = Difference::None;
    for &(id, set) in other {
        let Ok(index) = one.binary_search_by_key(&id, |&(id, _)| id) else { return Ok(Difference::More) };
        let union = terms.values.or(one[index].1, set, budget)?;
        if union != set {
            if !matches!(found, Difference::None) {
                return Ok(Difference::More);
            }
            found = Difference::OneDemand { index, union };
        }
    }
    Ok(found)
}

/// Removes demands that follow from another demand of the same path.
fn drop_implied_demands(path: &mut Path, expressions: &Expressions) {
    let mut i = 0;
    while let Some(&(id, set)) = path.get(i) {
        let is_implied = set == ValueSet::ALL
            && path.iter().any(|&(other, _)| other != id && expressions.implies(other, id));
        if is_implied {
            path.remove(i);
        } else {
            i += 1;
        }
    }
}

/// Adds a demand to each of these paths. Paths that cannot be satisfied are left out.
fn with_demand(
    paths: &[Path],
    tested: ExpressionId,
    set: ValueSet,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Path>, Exceeded> {
    let mut demanded = Vec::with_capacity(paths.len());
    for path in paths {
        budget.spend(1 + path.len())?;
        let mut path = path.clone();
        match path.binary_search_by_key(&tested, |&(id, _)| id) {
            Ok(i) => path[i].1 = terms.values.and(path[i].1, set, budget)?,
            Err(i) => path.insert(i, (tested, set)),
        }
        if path.iter().all(|&(_, set)| set != ValueSet::NONE) {
            demanded.push(path);
        }
    }
    Ok(demanded)
}

/// Merges paths that differ only in the values of one expression.
fn merge_paths(
    mut paths: Vec<Path>,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Path>, Exceeded> {
    let mut before = usize::MAX;
    while paths.len() < before && paths.len() > 1 {
        before = paths.len();
        let mut ids: Vec<ExpressionId> = paths.iter().flatten().map(|&(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let mut kept: Vec<Path> = Vec::with_capacity(paths.len());
            let mut known: HashMap<Path, usize> = HashMap::new();
            for path in paths {
                budget.spend(1 + path.len())?;
                let Ok(i) = path.binary_search_by_key(&id, |&(id, _)| id) else {
                    kept.push(path);
                    continue;
                };
                let mut others = path.clone();
                others.remove(i);
                match known.get(&others) {
                    Some(&same) => kept[same][i].1 = terms.values.or(kept[same][i].1, path[i].1, budget)?,
                    None => {
                        known.insert(others, kept.len());
                        kept.push(path);
                    }
                }
            }
            paths = kept;
        }
    }
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

/// The segments of a program. The first one begins at the program's start.
fn explore(
    program: &FilterProgram,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Segment>, TooComplex> {
    let steps = program.steps();
    let live = liveness(steps);
    let zero = Expressions::ZERO;
    let first = SymbolicState { at: 0, a: zero, x: zero, scratch: [zero; SCRATCH] };
    let (mut states, mut known) = (vec![first], HashMap::from([(first, 0)]));
    let mut segments = Vec::new();
    while let Some(&state) = states.get(segments.len()) {
        let mut run = SymbolicRun { state, needs: Vec::new() };
        let end = run.run_segment(steps, terms, budget)?;
        let mut reach = |mut next: SymbolicState| {
            live[next.at].clear_dead(&mut next);
            *known.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() - 1
            })
        };
        let outcome = match end {
            SegmentEnd::Return(true) => Outcome::Accept,
            SegmentEnd::Return(false) => Outcome::Reject,
            SegmentEnd::Accept { tested, set } => {
                let end = steps.len();
                let accepted = SymbolicState { at: end, a: zero, x: zero, scratch: [zero; SCRATCH] };
                let rejected = SymbolicState { at: end + 1, ..accepted };
                Outcome::Branch { tested, set, yes: reach(accepted), no: reach(rejected) }
            }
            SegmentEnd::Jump(to) => Outcome::Next(reach(SymbolicState { at: to, ..run.state })),
            SegmentEnd::Branch { tested, set, yes, no } => Outcome::Branch {
                tested,
                set,
                yes: reach(SymbolicState { at: yes, ..run.state }),
                no: reach(SymbolicState { at: no, ..run.state }),
            },
        };
        segments.push(Segment { at: state.at, needs: run.needs, outcome });
    }
    Ok(segments)
}

/// The last instruction of a segment. Targets are given by the index of an instruction.
enum SegmentEnd {
    /// A return that accepts the packet (true) or rejects it.
    Return(bool),
    /// A return that accepts the packet if the value of `tested` is in `set`. Such a return is treated as a branch to two
    /// states after the program's end, one that accepts and one that rejects.
    Accept {
        tested: ExpressionId,
        set: ValueSet,
    },
    Jump(usize),
    Branch {
        tested: ExpressionId,
        set: ValueSet,
        yes: usize,
        no: usize,
    },
}

/// The symbolic execution of one segment.
struct SymbolicRun {
    state: SymbolicState,
    needs: Vec<ExpressionId>,
}

impl SymbolicRun {
    /// Executes instructions up to the end of the segment.
    fn run_segment(
        &mut self,
        steps: &[DecodedInstruction],
        terms: &mut ProgramTerms,
        budget: &mut LookupBudget,
    ) -> Result<SegmentEnd, TooComplex> {
        // The two states after the program's end: see [`SegmentEnd::Accept`].
        if self.state.at >= steps.len() {
            return Ok(SegmentEnd::Return(self.state.at == steps.len()));
        }
        loop {
            budget.spend(1)?;
            let step = steps[self.state.at];
            self.state.at += 1;
            match self.step(step, terms, budget) {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(NoExpression::Reject) => return Ok(SegmentEnd::Return(false)),
                Err(NoExpression::TooLarge) => return Err(TooComplex),
            }
        }
    }

    /// Executes one instruction. Returns the end of the segment if the instruction is the last one.
    fn step(
        &mut self,
        step: DecodedInstruction,
        terms: &mut ProgramTerms,
        budget: &mut LookupBudget,
    ) -> Result<Option<SegmentEnd>, NoExpression> {
        let expressions = &mut terms.expressions;
        let SymbolicState { a, x, .. } = self.state;
        match step {
            DecodedInstruction::Load { width, indexed, k } => {
                let base = if indexed { x } else { Expressions::ZERO };
                self.state.a = expressions.load_indexed(width, base, k)?;
                self.needs.push(self.state.a);
            }
            DecodedInstruction::HeaderLength { k } => {
                self.state.x = expressions.make(Expression::HeaderLength(k))?;
                self.needs.push(self.state.x);
            }
            DecodedInstruction::Constant { to_x, k } => self.set_register(to_x, expressions.constant(k)?),
            DecodedInstruction::Length { to_x } => {
                self.set_register(to_x, expressions.make(Expression::Length)?)
            }
            DecodedInstruction::LoadScratch { to_x, word } => {
                self.set_register(to_x, self.state.scratch[word])
            }
            DecodedInstruction::Store { from_x, word } => {
                self.state.scratch[word] = if from_x { x } else { a }
            }
            DecodedInstruction::Alu(alu, operand) => {
                let right = match operand {
                    Operand::K(k) => expressions.constant(k)?,
                    Operand::X => x,
                };
                self.state.a = expressions.alu(alu, a, right)?;
                // A division by 0 rejects the packet, so the quotient must have a value.
                if matches!(alu, Alu::Div | Alu::Mod) && expressions.constant_of(right).is_none() {
                    self.needs.push(self.state.a);
                }
            }
            DecodedInstruction::Negate => self.state.a = expressions.alu(Alu::Sub, Expressions::ZERO, a)?,
            DecodedInstruction::Tax => self.state.x = a,
            DecodedInstruction::Txa => self.state.a = x,
            DecodedInstruction::Jump(to) => return Ok(Some(SegmentEnd::Jump(to))),
            DecodedInstruction::ReturnConstant(k) => return Ok(Some(SegmentEnd::Return(k != 0))),
            DecodedInstruction::ReturnA => {
                let (tested, is_zero) = condition(Test::Eq, a, Expressions::ZERO, terms, budget)?;
                let set = terms.values.not(is_zero, budget).map_err(|Exceeded| NoExpression::TooLarge)?;
                return Ok(Some(match set {
                    ValueSet::ALL => SegmentEnd::Return(true),
                    ValueSet::NONE => SegmentEnd::Return(false),
                    _ => SegmentEnd::Accept { tested, set },
                }));
            }
            DecodedInstruction::Branch { test, operand, yes, no } => {
                let other = match operand {
                    Operand::K(k) => expressions.constant(k)?,
                    Operand::X => x,
                };
                let (tested, set) = condition(test, a, other, terms, budget)?;
                return Ok(Some(match set {
                    ValueSet::ALL => SegmentEnd::Jump(yes),
                    ValueSet::NONE => SegmentEnd::Jump(no),
                    _ if yes == no => SegmentEnd::Jump(yes),
                    _ => SegmentEnd::Branch { tested, set, yes, no },
                }));
            }
        }
        Ok(None)
    }

    fn set_register(&mut self, to_x: bool, value: ExpressionId) {
        if to_x {
            self.state.x = value;
        } else {
            self.state.a = value;
        }
    }
}

/// The expression that the result of a test depends on, and the set of the expression's values for which the test
/// holds.
fn condition(
    test: Test,
    a: ExpressionId,
    b: ExpressionId,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<(ExpressionId, ValueSet), NoExpression> {
    let mut with_constant = |test, a, k, terms: &mut ProgramTerms| {
        let (tested, bits) = terms.expressions.bits(a);
        let set = terms.values.test(test, &bits, k, budget).map_err(|Exceeded| NoExpression::TooLarge)?;
        Ok((tested, set))
    };
    match terms.expressions.constant_of(b) {
        // A test of a constant always holds or never holds.
        Some(k) => match terms.expressions.constant_of(a) {
            Some(a) if crate::interpret::holds(test, a, k) => Ok((Expressions::ZERO, ValueSet::ALL)),
            Some(_) => Ok((Expressions::ZERO, ValueSet::NONE)),
            None => with_constant(test, a, k, terms),
        },
        None => {
            let compared = terms.expressions.make(Expression::Test(test, a, b))?;
            with_constant(Test::Eq, compared, 1, terms)
        }
    }
}

/// The live registers and words of scratch memory before an instruction: this or a later instruction reads their
/// contents before they are overwritten.
#[derive(Clone, Copy, Default)]
struct Live {
    a: bool,
    x: bool,
    scratch: [bool; SCRATCH],
}

impl Live {
    /// Sets all registers and words that are not live to 0.
    fn clear_dead(&self, state: &mut SymbolicState) {
        if !self.a {
            state.a = Expressions::ZERO;
        }
        if !self.x {
            state.x = Expressions::ZERO;
        }
        for (word, live) in state.scratch.iter_mut().zip(self.scratch) {
            if !live {
                *word = Expressions::ZERO;
            }
        }
    }

    fn insert_all(&mut self, other: &Live) {
        self.a |= other.a;
        self.x |= other.x;
        self.scratch.iter_mut().zip(other.scratch).for_each(|(word, other)| *word |= other);
    }

    fn set(&mut self, is_x: bool, live: bool) {
        if is_x {
            self.x = live;
        } else {
            self.a = live;
        }
    }
}

/// The live registers before each instruction.
fn liveness(steps: &[DecodedInstruction]) -> Vec<Live> {
    // Two entries more, for the states after the program's end: see [`SegmentEnd::Accept`].
    let mut all = vec![Live::default(); steps.len() + 2];
    for (at, step) in steps.iter().enumerate().rev() {
        let mut live = all[at + 1];
        match *step {
            DecodedInstruction::Load { indexed, .. } => (live.a, live.x) = (false, live.x | indexed),
            DecodedInstruction::HeaderLength { .. } => live.x = false,
            DecodedInstruction::Constant { to_x, .. } | DecodedInstruction::Length { to_x } => {
                live.set(to_x, false)
            }
            DecodedInstruction::LoadScratch { to_x, word } => {
                live.set(to_x, false);
                live.scratch[word] = true;
            }
            DecodedInstruction::Store { from_x, word } => {
                live.scratch[word] = false;
                live.set(from_x, true);
            }
            DecodedInstruction::Alu(_, operand) => {
                (live.a, live.x) = (true, live.x | (operand == Operand::X))
            }
            DecodedInstruction::Negate => live.a = true,
            DecodedInstruction::Tax => (live.a, live.x) = (true, false),
            DecodedInstruction::Txa => (live.a, live.x) = (false, true),
            DecodedInstruction::Jump(to) => live = all[to],
            DecodedInstruction::Branch { operand, yes, no, .. } => {
                live = all[yes];
                live.insert_all(&all[no]);
                (live.a, live.x) = (true, live.x | (operand == Operand::X));
            }
            DecodedInstruction::ReturnConstant(_) => live = Live::default(),
            DecodedInstruction::ReturnA => live = Live { a: true, ..Live::default() },
        }
        all[at] = live;
    }
    all
}
