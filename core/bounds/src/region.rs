//! The charges of one function: which code each of them covers, and what the dearest path through that costs.

use crate::charge::{CHARGE_MAX, Callee, Charge, ChargeAmount, ChargeSide, FunctionPlan, Replaced, Survey};
use crate::decode::{Item, decode};
use crate::{LoopBound, OnEntry};
use std::collections::BTreeMap;
use wasmparser::{BinaryReaderError, FunctionBody, Operator};

/// No place is covered by more charges than this: where more ways meet, a new one stands.
const SOURCES_MAX: usize = 4;

/// A loop whose trips follow from locals is charged for by its known maximum all the same where that is no more than this: working out
/// the number costs about as much.
const SMALL: u64 = 256;

/// What a trip of a loop may cost that is charged for by the number of its trips, so that no product overflows.
const TRIP_MAX: u64 = 1 << 28;

/// The charges that cover a place, each with what the dearest path from it to here costs. None of them: a new one has to stand here.
type Sources = Vec<(usize, u64)>;

/// How a loop is charged for.
#[derive(Clone, Debug)]
enum Manner {
    /// At its header, each time around.
    Header,
    /// With what is around it: so much.
    Ahead(u64),
    /// Before it: so much for each trip.
    Trips(OnEntry, u64),
}

/// A `block`, `loop`, `if`, or the function itself.
struct Frame {
    kind: Kind,
    /// What the branches to its end bring there.
    joined: Option<Sources>,
    /// How many regions lie around the one that its end is in.
    around: usize,
    /// How many of the loops around it are charged for from outside, in its region.
    covered: usize,
}

enum Kind {
    Block,
    /// With what is known where the condition does not hold.
    If(Option<Sources>),
    Loop(Manner),
}

/// One function's charges, as they are found. A region is the code of a loop that is charged for at its header, or of the function, without
/// such loops in it.
struct Walk<'a> {
    survey: &'a Survey<'a>,
    known: &'a [Callee],
    manners: BTreeMap<u64, Manner>,
    frames: Vec<Frame>,
    /// What covers the place; nothing where no way leads to it.
    sources: Option<Sources>,
    /// The same of the regions around this one, where they were left.
    around: Vec<Option<Sources>>,
    covered: usize,
    /// The constant charges; the first is that of the function's entry.
    slots: Vec<(u64, ChargeSide, u64)>,
    charges: Vec<Charge>,
    replaced: Vec<Replaced>,
    /// For each region around: whether something was called in it that is charged for itself.
    calls: Vec<bool>,
    is_silent: bool,
    has_hot_loop: bool,
}

/// Finds the charges of a function.
pub(crate) fn walk(
    survey: &Survey<'_>,
    known: &[Callee],
    body: &FunctionBody<'_>,
) -> Result<FunctionPlan, BinaryReaderError> {
    let begin = body.get_operators_reader()?.original_position();
    let function = Frame { kind: Kind::Block, joined: None, around: 0, covered: 0 };
    let mut walk = Walk {
        survey,
        known,
        manners: BTreeMap::new(),
        frames: vec![function],
        sources: Some(vec![(0, 0)]),
        around: Vec::new(),
        covered: 0,
        slots: vec![(begin, ChargeSide::Before, 0)],
        charges: Vec::new(),
        replaced: Vec::new(),
        calls: Vec::new(),
        is_silent: true,
        has_hot_loop: false,
    };
    if !survey.rules.exact {
        walk.choose_manners(body)?;
    }
    decode(survey, body, |item| walk.step(item))?;
    let mut slots = walk.slots.into_iter();
    let entry = slots.next().map_or(0, |(.., amount)| amount);
    let mut charges = walk.charges;
    charges.extend(slots.filter(|(.., amount)| *amount > 0).map(|(offset, side, amount)| Charge {
        offset,
        side,
        amount: ChargeAmount::Constant(amount),
    }));
    charges.sort_by_key(|charge| (charge.offset, charge.side));
    Ok(FunctionPlan {
        entry,
        charges,
        replaced: walk.replaced,
        is_silent: walk.is_silent,
        has_hot_loop: walk.has_hot_loop,
        is_called: false,
    })
}

impl Walk<'_> {
    /// Says for each loop how it is charged for, inner ones before outer ones.
    fn choose_manners(&mut self, body: &FunctionBody<'_>) -> Result<(), BinaryReaderError> {
        // Where each open block begins, whether it is a loop, and what is charged for the code in it with what is around it: more than
        // can be, where something in it is so dear that it is charged for where it stands.
        let mut open: Vec<(u64, bool, u64)> = vec![(0, false, 0)];
        let mut manners = BTreeMap::new();
        decode(self.survey, body, |item| {
            let cost = self.cost(item);
            let cost = if cost < self.survey.rules.dear { cost } else { u64::MAX };
            if let Some((.., sum)) = open.last_mut() {
                *sum = sum.saturating_add(cost);
            }
            match item.operator {
                Operator::Loop { .. } => open.push((item.offset, true, 0)),
                Operator::Block { .. } | Operator::If { .. } => open.push((item.offset, false, 0)),
                Operator::End => {
                    let Some((begin, is_loop, sum)) = open.pop() else { return };
                    let mut outside = sum;
                    if is_loop {
                        let manner = self.manner(self.survey.analysis.loop_at(begin), sum);
                        outside = if let Manner::Ahead(cost) = manner { cost } else { 0 };
                        manners.insert(begin, manner);
                    }
                    if let Some((.., sum)) = open.last_mut() {
                        *sum = sum.saturating_add(outside);
                    }
                }
                _ => {}
            }
        })?;
        self.manners = manners;
        Ok(())
    }

    /// How a loop is charged for in whose body `sum` is not charged for otherwise.
    fn manner(&self, found: Option<&LoopBound>, sum: u64) -> Manner {
        let Some(found) = found.filter(|_| sum < u64::MAX) else { return Manner::Header };
        let rules = self.survey.rules;
        let packet = u64::from(self.survey.environment.packet_max);
        // The analysis knows the dearest path, and counts what is called with it.
        let trip = sum.min(found.body.at(packet));
        let worst = trip.saturating_mul(found.trips.at(packet)).min(found.total.at(packet));
        match &found.on_entry {
            _ if worst <= SMALL.min(rules.ahead) => Manner::Ahead(worst),
            Some(on_entry) if worst <= rules.piece && trip <= TRIP_MAX => {
                Manner::Trips(on_entry.clone(), trip)
            }
            _ if worst <= rules.piece.min(rules.ahead) => Manner::Ahead(worst),
            _ => Manner::Header,
        }
    }

    /// What an instruction costs that is not charged for otherwise.
    fn cost(&self, item: &Item<'_>) -> u64 {
        let callee = match item.operator {
            Operator::Call { function_index } => {
                self.survey.module.own(function_index).and_then(|place| self.known.get(place))
            }
            _ => None,
        };
        item.cost.saturating_add(callee.map_or(0, |callee| callee.folded))
    }

    fn step(&mut self, item: &Item<'_>) {
        let cost = self.cost(item);
        self.add(item.offset, cost);
        self.replaced.extend(item.replaced);
        if self.sources.is_some() {
            let charge = |side, amount| Charge { offset: item.offset, side, amount };
            self.charges.extend(
                item.length
                    .map(|(length, each)| charge(ChargeSide::Before, ChargeAmount::Length(length, each))),
            );
            self.charges.extend(item.grown.map(|each| charge(ChargeSide::After, ChargeAmount::Grown(each))));
        }
        match &item.operator {
            Operator::Block { .. } => self.open(Kind::Block),
            Operator::If { .. } => {
                let otherwise = self.sources.clone();
                self.open(Kind::If(otherwise));
                self.boundary(item.offset);
            }
            Operator::Else => {
                let otherwise = self.frames.last_mut().and_then(|frame| match &mut frame.kind {
                    Kind::If(otherwise) => otherwise.take(),
                    _ => None,
                });
                let then = std::mem::replace(&mut self.sources, otherwise);
                if let Some(frame) = self.frames.last_mut() {
                    join(&mut frame.joined, then.as_ref());
                }
                self.boundary(item.offset);
            }
            Operator::Loop { .. } => self.open_loop(item.offset),
            Operator::End => self.end(item.offset),
            Operator::Br { relative_depth } => {
                self.branch(*relative_depth);
                self.sources = None;
            }
            Operator::BrIf { relative_depth } => {
                self.branch(*relative_depth);
                self.boundary(item.offset);
            }
            Operator::BrTable { targets } => {
                for target in targets.targets().flatten().chain([targets.default()]) {
                    self.branch(target);
                }
                self.sources = None;
            }
            Operator::Return | Operator::Unreachable => self.sources = None,
            Operator::Call { function_index } => {
                let callee = self.survey.module.own(*function_index).and_then(|place| self.known.get(place));
                if callee.is_some_and(|callee| !callee.is_silent) {
                    self.calls_others();
                }
            }
            Operator::CallIndirect { .. } => self.calls_others(),
            _ => {}
        }
    }

    fn calls_others(&mut self) {
        self.is_silent = false;
        self.calls.fill(true);
    }

    /// A place where another basic block begins.
    fn boundary(&mut self, offset: u64) {
        if self.survey.rules.exact && self.sources.is_some() {
            self.stand(offset, ChargeSide::After);
        }
    }

    /// Has a new charge cover what follows.
    fn stand(&mut self, offset: u64, side: ChargeSide) {
        self.sources = Some(vec![(self.slots.len(), 0)]);
        self.slots.push((offset, side, 0));
    }

    /// Adds to what the charges that cover this place take.
    fn add(&mut self, offset: u64, cost: u64) {
        if self.covered > 0 || cost == 0 {
            return;
        }
        let Some(sources) = &self.sources else { return };
        let so_far = sources.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
        let rules = self.survey.rules;
        let is_too_much = so_far.saturating_add(cost) > rules.ahead || cost >= rules.dear;
        if so_far > 0 && is_too_much && !rules.exact {
            self.stand(offset, ChargeSide::Before);
        }
        for (slot, so_far) in self.sources.iter_mut().flatten() {
            *so_far = so_far.saturating_add(cost).min(CHARGE_MAX);
            let taken = &mut self.slots[*slot].2;
            *taken = (*taken).max(*so_far);
        }
    }

    fn open(&mut self, kind: Kind) {
        let (around, covered) = (self.around.len(), self.covered);
        self.frames.push(Frame { kind, joined: None, around, covered });
    }

    fn open_loop(&mut self, offset: u64) {
        let manner = self.manners.get(&offset).cloned().unwrap_or(Manner::Header);
        self.open(Kind::Loop(manner.clone()));
        match manner {
            Manner::Header => {
                let outside = self.sources.clone();
                let is_reached = outside.is_some();
                self.around.push(outside);
                self.calls.push(false);
                self.covered = 0;
                if is_reached {
                    self.stand(offset, ChargeSide::After);
                }
            }
            Manner::Ahead(cost) => {
                self.add(offset, cost);
                self.covered += 1;
            }
            Manner::Trips(on_entry, each) => {
                if self.sources.is_some() {
                    let amount = ChargeAmount::Trips(on_entry, each);
                    self.charges.push(Charge { offset, side: ChargeSide::Before, amount });
                }
                self.covered += 1;
            }
        }
    }

    fn end(&mut self, offset: u64) {
        let Some(frame) = self.frames.pop() else { return };
        let is_reached = self.sources.is_some();
        self.covered = frame.covered;
        match frame.kind {
            Kind::Loop(Manner::Header) => {
                // The code after the loop is the region's that the loop is in.
                let outside = self.around.pop().flatten();
                self.sources = outside.filter(|_| is_reached);
                let calls = self.calls.pop().unwrap_or(true);
                self.has_hot_loop |= !calls;
            }
            Kind::Loop(_) => {}
            Kind::Block => join(&mut self.sources, frame.joined.as_ref()),
            Kind::If(otherwise) => {
                join(&mut self.sources, frame.joined.as_ref());
                join(&mut self.sources, otherwise.as_ref());
            }
        }
        if self.sources.as_ref().is_some_and(Vec::is_empty) {
            self.stand(offset, ChargeSide::After);
        }
        self.boundary(offset);
    }

    /// Has the label so many frames out know what covers this place.
    fn branch(&mut self, depth: u32) {
        let Some(place) = self.frames.len().checked_sub(depth as usize + 1) else { return };
        let Some(frame) = self.frames.get_mut(place) else { return };
        if matches!(frame.kind, Kind::Loop(_)) || self.sources.is_none() {
            // The header of a loop is covered already.
            return;
        }
        let here = self.around.get(frame.around).unwrap_or(&self.sources);
        join(&mut frame.joined, here.as_ref());
    }
}

/// What covers a place that two ways lead to.
fn join(into: &mut Option<Sources>, other: Option<&Sources>) {
    let Some(other) = other else { return };
    let Some(sources) = into else {
        *into = Some(other.clone());
        return;
    };
    if sources.is_empty() || other.is_empty() {
        sources.clear();
        return;
    }
    for (slot, cost) in other {
        match sources.iter_mut().find(|(known, _)| known == slot) {
            Some((_, so_far)) => *so_far = (*so_far).max(*cost),
            None => sources.push((*slot, *cost)),
        }
    }
    if sources.len() > SOURCES_MAX {
        sources.clear();
    }
}
