//! The ways through a program that end with "accept", each as what it demands of the packet.
//!
//! The program is executed with expressions in place of numbers: first forwards, for the states that each instruction can be reached in, then
//! backwards, for the ways from each state to acceptance. Ways that differ in one demand only become one, so that a
//! list of hosts is one way, and a list of hosts and a list of ports are one too.

use crate::budget::{Exceeded, LookupBudget};
use crate::expression::{Expression, ExpressionId, Expressions, NoExpression};
use crate::machine::Alu;
use crate::program::{DecodedInstruction, FilterProgram, Operand, SCRATCH, Test};
use crate::values::{ValueSet, ValueSets};
use std::collections::HashMap;

/// What a way demands: these expressions have values, and the values are in these sets. Sorted by expression, each one once.
pub(crate) type Path = Vec<(ExpressionId, ValueSet)>;

/// Ways that are looked at at one time, at most, before they are put together.
const PATHS_MAX: usize = 256;

/// Why a program is not taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooHard;

impl From<Exceeded> for TooHard {
    fn from(_: Exceeded) -> Self {
        Self
    }
}

/// What programs are made of, shared by all of them.
pub(crate) struct ProgramTerms {
    pub(crate) expressions: Expressions,
    pub(crate) values: ValueSets,
}

/// The registers before an instruction. What is never read again is 0, so that states are not told apart by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    a: ExpressionId,
    x: ExpressionId,
    scratch: [ExpressionId; SCRATCH],
}

/// What comes of a state.
enum Outcome {
    Accept,
    Reject,
    Next(usize),
    Branch { on: ExpressionId, set: ValueSet, yes: usize, no: usize },
}

/// A state with what has to be computed from there to its outcome.
struct Stretch {
    at: usize,
    needs: Vec<ExpressionId>,
    outcome: Outcome,
}

/// The ways to acceptance.
pub(crate) fn paths(
    program: &FilterProgram,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Path>, TooHard> {
    let stretches = forwards(program, terms, budget)?;
    let mut order: Vec<usize> = (0..stretches.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(stretches[i].at));
    let mut all: Vec<Vec<Path>> = vec![Vec::new(); stretches.len()];
    for i in order {
        let stretch = &stretches[i];
        let mut found = match stretch.outcome {
            Outcome::Reject => Vec::new(),
            Outcome::Accept => vec![Path::new()],
            Outcome::Next(next) => all[next].clone(),
            Outcome::Branch { on, set, yes, no } => {
                let opposite = terms.values.not(set, budget)?;
                let mut found = demanded(&all[yes], on, set, terms, budget)?;
                found.extend(demanded(&all[no], on, opposite, terms, budget)?);
                found
            }
        };
        for &need in &stretch.needs {
            found = demanded(&found, need, ValueSet::ALL, terms, budget)?;
        }
        if found.len() > PATHS_MAX {
            return Err(TooHard);
        }
        all[i] = merged(found, terms, budget)?;
    }
    let mut found = std::mem::take(&mut all[0]);
    relax(&mut found, terms, budget)?;
    for path in &mut found {
        budget.spend(path.len() * path.len())?;
        drop_implied(path, &terms.expressions);
    }
    Ok(merged(found, terms, budget)?)
}

/// Lets a way take what another one takes anyway: "the source is not this host, and the destination is" becomes "the destination is",
/// where there is a way for the source. The ways accept together what they accepted before.
fn relax(paths: &mut Vec<Path>, terms: &mut ProgramTerms, budget: &mut LookupBudget) -> Result<(), Exceeded> {
    let mut needless = vec![false; paths.len()];
    for one in 0..paths.len() {
        for other in (0..paths.len()).filter(|&other| other != one) {
            budget.spend(1 + paths[other].len())?;
            if needless[other] {
                continue;
            }
            match difference(&paths[one], &paths[other], terms, budget)? {
                Difference::None => {
                    needless[one] = true;
                    break;
                }
                Difference::In { place, all } => paths[one][place].1 = all,
                Difference::More => {}
            }
        }
    }
    let mut needless = needless.into_iter();
    paths.retain(|_| !needless.next().unwrap_or(false));
    Ok(())
}

/// What one way takes that another one does not.
enum Difference {
    None,
    /// It demands other values of one expression; these are all that either of them takes.
    In {
        place: usize,
        all: ValueSet,
    },
    More,
}

fn difference(
    one: &Path,
    other: &Path,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Difference, Exceeded> {
    let mut found = Difference::None;
    for &(id, set) in other {
        let Ok(place) = one.binary_search_by_key(&id, |&(id, _)| id) else { return Ok(Difference::More) };
        let all = terms.values.or(one[place].1, set, budget)?;
        if all != set {
            if !matches!(found, Difference::None) {
                return Ok(Difference::More);
            }
            found = Difference::In { place, all };
        }
    }
    Ok(found)
}

/// Demands which hold wherever another one of the path holds are not made twice.
fn drop_implied(path: &mut Path, expressions: &Expressions) {
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

/// These ways, with one demand more.
fn demanded(
    paths: &[Path],
    on: ExpressionId,
    set: ValueSet,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Path>, Exceeded> {
    let mut demanded = Vec::with_capacity(paths.len());
    for path in paths {
        budget.spend(1 + path.len())?;
        let mut path = path.clone();
        match path.binary_search_by_key(&on, |&(id, _)| id) {
            Ok(i) => path[i].1 = terms.values.and(path[i].1, set, budget)?,
            Err(i) => path.insert(i, (on, set)),
        }
        if path.iter().all(|&(_, set)| set != ValueSet::NONE) {
            demanded.push(path);
        }
    }
    Ok(demanded)
}

/// Makes one of those that differ in the values of one expression only.
fn merged(
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

/// The states that the program can be in where ways part or meet, the first one first.
fn forwards(
    program: &FilterProgram,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<Vec<Stretch>, TooHard> {
    let steps = program.steps();
    let live = live(steps);
    let zero = Expressions::ZERO;
    let first = State { at: 0, a: zero, x: zero, scratch: [zero; SCRATCH] };
    let (mut states, mut known) = (vec![first], HashMap::from([(first, 0)]));
    let mut stretches = Vec::new();
    while let Some(&state) = states.get(stretches.len()) {
        let mut run = Run { state, needs: Vec::new() };
        let arrival = run.go(steps, terms, budget)?;
        let mut reach = |mut next: State| {
            live[next.at].forget_the_rest(&mut next);
            *known.entry(next).or_insert_with(|| {
                states.push(next);
                states.len() - 1
            })
        };
        let outcome = match arrival {
            Arrival::Return(true) => Outcome::Accept,
            Arrival::Return(false) => Outcome::Reject,
            Arrival::Accept { on, set } => {
                let end = steps.len();
                let accepted = State { at: end, a: zero, x: zero, scratch: [zero; SCRATCH] };
                let rejected = State { at: end + 1, ..accepted };
                Outcome::Branch { on, set, yes: reach(accepted), no: reach(rejected) }
            }
            Arrival::Jump(to) => Outcome::Next(reach(State { at: to, ..run.state })),
            Arrival::Branch { on, set, yes, no } => Outcome::Branch {
                on,
                set,
                yes: reach(State { at: yes, ..run.state }),
                no: reach(State { at: no, ..run.state }),
            },
        };
        stretches.push(Stretch { at: state.at, needs: run.needs, outcome });
    }
    Ok(stretches)
}

/// Where a stretch without branches leads.
enum Arrival {
    Return(bool),
    /// To acceptance, if so.
    Accept {
        on: ExpressionId,
        set: ValueSet,
    },
    Jump(usize),
    Branch {
        on: ExpressionId,
        set: ValueSet,
        yes: usize,
        no: usize,
    },
}

struct Run {
    state: State,
    needs: Vec<ExpressionId>,
}

impl Run {
    fn go(
        &mut self,
        steps: &[DecodedInstruction],
        terms: &mut ProgramTerms,
        budget: &mut LookupBudget,
    ) -> Result<Arrival, TooHard> {
        // The two states after the program's end: see `Arrival::Accept`.
        if self.state.at >= steps.len() {
            return Ok(Arrival::Return(self.state.at == steps.len()));
        }
        loop {
            budget.spend(1)?;
            let step = steps[self.state.at];
            self.state.at += 1;
            match self.step(step, terms, budget) {
                Ok(None) => {}
                Ok(Some(arrival)) => return Ok(arrival),
                Err(NoExpression::Reject) => return Ok(Arrival::Return(false)),
                Err(NoExpression::TooLarge) => return Err(TooHard),
            }
        }
    }

    fn step(
        &mut self,
        step: DecodedInstruction,
        terms: &mut ProgramTerms,
        budget: &mut LookupBudget,
    ) -> Result<Option<Arrival>, NoExpression> {
        let expressions = &mut terms.expressions;
        let State { a, x, .. } = self.state;
        match step {
            DecodedInstruction::Load { width, indexed, k } => {
                let base = if indexed { x } else { Expressions::ZERO };
                self.state.a = expressions.load_behind(width, base, k)?;
                self.needs.push(self.state.a);
            }
            DecodedInstruction::HeaderLength { k } => {
                self.state.x = expressions.make(Expression::HeaderLength(k))?;
                self.needs.push(self.state.x);
            }
            DecodedInstruction::Constant { to_x, k } => self.put(to_x, expressions.constant(k)?),
            DecodedInstruction::Length { to_x } => self.put(to_x, expressions.make(Expression::Length)?),
            DecodedInstruction::Recall { to_x, word } => self.put(to_x, self.state.scratch[word]),
            DecodedInstruction::Store { from_x, word } => {
                self.state.scratch[word] = if from_x { x } else { a }
            }
            DecodedInstruction::Alu(alu, operand) => {
                let by = match operand {
                    Operand::K(k) => expressions.constant(k)?,
                    Operand::X => x,
                };
                self.state.a = expressions.alu(alu, a, by)?;
                // A division by 0 rejects the packet at once.
                if matches!(alu, Alu::Div | Alu::Mod) && expressions.constant_of(by).is_none() {
                    self.needs.push(self.state.a);
                }
            }
            DecodedInstruction::Negate => self.state.a = expressions.alu(Alu::Sub, Expressions::ZERO, a)?,
            DecodedInstruction::Tax => self.state.x = a,
            DecodedInstruction::Txa => self.state.a = x,
            DecodedInstruction::Jump(to) => return Ok(Some(Arrival::Jump(to))),
            DecodedInstruction::ReturnConstant(k) => return Ok(Some(Arrival::Return(k != 0))),
            DecodedInstruction::ReturnA => {
                let (on, is_zero) = condition(Test::Eq, a, Expressions::ZERO, terms, budget)?;
                let set = terms.values.not(is_zero, budget).map_err(|Exceeded| NoExpression::TooLarge)?;
                return Ok(Some(match set {
                    ValueSet::ALL => Arrival::Return(true),
                    ValueSet::NONE => Arrival::Return(false),
                    _ => Arrival::Accept { on, set },
                }));
            }
            DecodedInstruction::Branch { test, operand, yes, no } => {
                let other = match operand {
                    Operand::K(k) => expressions.constant(k)?,
                    Operand::X => x,
                };
                let (on, set) = condition(test, a, other, terms, budget)?;
                return Ok(Some(match set {
                    ValueSet::ALL => Arrival::Jump(yes),
                    ValueSet::NONE => Arrival::Jump(no),
                    _ if yes == no => Arrival::Jump(yes),
                    _ => Arrival::Branch { on, set, yes, no },
                }));
            }
        }
        Ok(None)
    }

    fn put(&mut self, to_x: bool, value: ExpressionId) {
        if to_x {
            self.state.x = value;
        } else {
            self.state.a = value;
        }
    }
}

/// For which values of which expression a test holds.
fn condition(
    test: Test,
    a: ExpressionId,
    b: ExpressionId,
    terms: &mut ProgramTerms,
    budget: &mut LookupBudget,
) -> Result<(ExpressionId, ValueSet), NoExpression> {
    let mut ask = |test, a, k, terms: &mut ProgramTerms| {
        let (on, bits) = terms.expressions.bits(a);
        let set = terms.values.test(test, &bits, k, budget).map_err(|Exceeded| NoExpression::TooLarge)?;
        Ok((on, set))
    };
    match terms.expressions.constant_of(b) {
        // Of a constant no bit is asked for: the test always holds, or never.
        Some(k) => match terms.expressions.constant_of(a) {
            Some(a) if crate::interpret::holds(test, a, k) => Ok((Expressions::ZERO, ValueSet::ALL)),
            Some(_) => Ok((Expressions::ZERO, ValueSet::NONE)),
            None => ask(test, a, k, terms),
        },
        None => {
            let compared = terms.expressions.make(Expression::Test(test, a, b))?;
            ask(Test::Eq, compared, 1, terms)
        }
    }
}

/// What is read after an instruction was reached, before it is written.
#[derive(Clone, Copy, Default)]
struct Live {
    a: bool,
    x: bool,
    scratch: [bool; SCRATCH],
}

impl Live {
    fn forget_the_rest(&self, state: &mut State) {
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

    fn or(&mut self, other: &Live) {
        self.a |= other.a;
        self.x |= other.x;
        self.scratch.iter_mut().zip(other.scratch).for_each(|(word, other)| *word |= other);
    }

    fn set(&mut self, x: bool, live: bool) {
        if x {
            self.x = live;
        } else {
            self.a = live;
        }
    }
}

fn live(steps: &[DecodedInstruction]) -> Vec<Live> {
    // Two more: see `Arrival::Accept`.
    let mut all = vec![Live::default(); steps.len() + 2];
    for (at, step) in steps.iter().enumerate().rev() {
        let mut live = all[at + 1];
        match *step {
            DecodedInstruction::Load { indexed, .. } => (live.a, live.x) = (false, live.x | indexed),
            DecodedInstruction::HeaderLength { .. } => live.x = false,
            DecodedInstruction::Constant { to_x, .. } | DecodedInstruction::Length { to_x } => {
                live.set(to_x, false)
            }
            DecodedInstruction::Recall { to_x, word } => {
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
                live.or(&all[no]);
                (live.a, live.x) = (true, live.x | (operand == Operand::X));
            }
            DecodedInstruction::ReturnConstant(_) => live = Live::default(),
            DecodedInstruction::ReturnA => live = Live { a: true, ..Live::default() },
        }
        all[at] = live;
    }
    all
}
