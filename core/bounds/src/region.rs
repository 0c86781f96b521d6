//! Plans the charges of one function: the places of the charges, the code that each charge covers, and the cost of the
//! most expensive path through that code.

use crate::charge::{
    CHARGE_MAX, CalleeCharge, Charge, ChargeAmount, ChargeContext, ChargeSide, FunctionPlan, ReplacedCall,
};
use crate::decode::{ChargedInstruction, for_each_instruction};
use crate::{LoopBound, TripCountFormula};
use std::collections::BTreeMap;
use wasmparser::{BinaryReaderError, FunctionBody, Operator};

/// The most charges that cover one place. Where paths with more charges meet, a new charge is placed.
const COVERING_MAX: usize = 4;

/// The largest bound of a loop that is charged in full even if its trip count follows from locals. Computing the trip
/// count at run time would cost about as much.
const FULL_CHARGE_MAX: u64 = 256;

/// The most fuel of one iteration of a loop that is charged by its trip count, so that the product does not overflow.
const ITERATION_FUEL_MAX: u64 = 1 << 28;

/// The charges that cover a place in the code: the index of each in [`ChargePlanner::constant_charges`], and the cost of
/// the most expensive path from the charge to the place. An empty list means that a new charge has to be placed.
type CoveringCharges = Vec<(usize, u64)>;

/// The way in which a loop is charged.
#[derive(Clone, Debug)]
enum LoopCharge {
    /// Each iteration is charged at the loop's header.
    Header,
    /// This amount, for all iterations, is charged together with the code around the loop.
    Ahead(u64),
    /// Before the loop, the trip count that the formula gives, times this amount, is charged.
    Trips(TripCountFormula, u64),
}

/// A `block`, `loop` or `if` that is not ended yet, or the function itself.
struct OpenBlock {
    kind: BlockKind,
    /// The charges that cover the block's end, from the branches that lead to it.
    at_end: Option<CoveringCharges>,
    /// The number of regions around the region that contains the block's end.
    enclosing_regions: usize,
    /// The number of loops of this region that contain the block and are charged before they begin.
    precharged_loops: usize,
}

enum BlockKind {
    Block,
    /// With the charges that cover the begin of the code for a false condition.
    If(Option<CoveringCharges>),
    Loop(LoopCharge),
}

/// The state of planning one function.
///
/// A *region* is the code of the function or of a loop that is charged at its header, without inner loops that are
/// charged at their headers.
struct ChargePlanner<'a> {
    context: &'a ChargeContext<'a>,
    callees: &'a [CalleeCharge],
    /// The way in which each loop is charged, by the offset of its `loop` instruction.
    loop_charges: BTreeMap<u64, LoopCharge>,
    /// The blocks around the current instruction, innermost last.
    blocks: Vec<OpenBlock>,
    /// The charges that cover the current place; `None` if the place is unreachable.
    covering: Option<CoveringCharges>,
    /// For each enclosing region, the charges that cover the place where the next inner region begins.
    enclosing_regions: Vec<Option<CoveringCharges>>,
    /// The number of loops of the current region that contain the current place and are charged before they begin.
    precharged_loops: usize,
    /// The constant charges: offset, side and fuel. The first one is the charge at the function's entry.
    constant_charges: Vec<(u64, ChargeSide, u64)>,
    /// All other charges.
    charges: Vec<Charge>,
    replaced: Vec<ReplacedCall>,
    /// For each loop around the current place that is charged at its header: true if a function with charges of its own
    /// is called in the loop.
    has_charged_call: Vec<bool>,
    /// False if a function with charges of its own is called.
    has_only_entry_charge: bool,
    has_hot_loop: bool,
}

/// Plans the charges of a function. `callees` are the charges of functions that were planned before.
pub(crate) fn plan_function(
    context: &ChargeContext<'_>,
    callees: &[CalleeCharge],
    body: &FunctionBody<'_>,
) -> Result<FunctionPlan, BinaryReaderError> {
    let begin = body.get_operators_reader()?.original_position();
    let function =
        OpenBlock { kind: BlockKind::Block, at_end: None, enclosing_regions: 0, precharged_loops: 0 };
    let mut planner = ChargePlanner {
        context,
        callees,
        loop_charges: BTreeMap::new(),
        blocks: vec![function],
        covering: Some(vec![(0, 0)]),
        enclosing_regions: Vec::new(),
        precharged_loops: 0,
        constant_charges: vec![(begin, ChargeSide::Before, 0)],
        charges: Vec::new(),
        replaced: Vec::new(),
        has_charged_call: Vec::new(),
        has_only_entry_charge: true,
        has_hot_loop: false,
    };
    if !context.rules.exact {
        planner.choose_loop_charges(body)?;
    }
    for_each_instruction(context, body, |instruction| planner.step(instruction))?;
    let mut constant_charges = planner.constant_charges.into_iter();
    let entry = constant_charges.next().map_or(0, |(.., amount)| amount);
    let mut charges = planner.charges;
    charges.extend(
        constant_charges.filter(|(.., amount)| *amount > 0).map(|(offset, side, amount)| Charge {
            offset,
            side,
            amount: ChargeAmount::Constant(amount),
        }),
    );
    charges.sort_by_key(|charge| (charge.offset, charge.side));
    Ok(FunctionPlan {
        entry,
        charges,
        replaced: planner.replaced,
        has_only_entry_charge: planner.has_only_entry_charge,
        has_hot_loop: planner.has_hot_loop,
        is_called: false,
    })
}

impl ChargePlanner<'_> {
    /// Chooses for each loop how it is charged, inner loops before outer ones.
    fn choose_loop_charges(&mut self, body: &FunctionBody<'_>) -> Result<(), BinaryReaderError> {
        // For each open block: its offset, true for a loop, and the fuel of its code, without inner loops that are
        // charged separately. The fuel is `u64::MAX` if the block contains an expensive instruction, which is charged
        // directly before it runs.
        let mut open: Vec<(u64, bool, u64)> = vec![(0, false, 0)];
        let mut loop_charges = BTreeMap::new();
        for_each_instruction(self.context, body, |instruction| {
            let cost = self.cost(instruction);
            let cost = if cost < self.context.rules.expensive_min { cost } else { u64::MAX };
            if let Some((.., sum)) = open.last_mut() {
                *sum = sum.saturating_add(cost);
            }
            match instruction.operator {
                Operator::Loop { .. } => open.push((instruction.offset, true, 0)),
                Operator::Block { .. } | Operator::If { .. } => open.push((instruction.offset, false, 0)),
                Operator::End => {
                    let Some((begin, is_loop, sum)) = open.pop() else { return };
                    let mut charged_outside = sum;
                    if is_loop {
                        let charge = self.loop_charge(self.context.analysis.loop_at(begin), sum);
                        charged_outside = if let LoopCharge::Ahead(cost) = charge { cost } else { 0 };
                        loop_charges.insert(begin, charge);
                    }
                    if let Some((.., sum)) = open.last_mut() {
                        *sum = sum.saturating_add(charged_outside);
                    }
                }
                _ => {}
            }
        })?;
        self.loop_charges = loop_charges;
        Ok(())
    }

    /// Chooses how a loop is charged. `sum` is the fuel of its body, without inner loops that are charged separately.
    fn loop_charge(&self, found: Option<&LoopBound>, sum: u64) -> LoopCharge {
        let Some(found) = found.filter(|_| sum < u64::MAX) else { return LoopCharge::Header };
        let rules = self.context.rules;
        let packet = u64::from(self.context.environment.packet_max);
        // The sum counts all instructions of the body and of the callees that are charged with it. The analysis bounds
        // the most expensive path. Both are upper bounds, so the smaller one is used.
        let iteration = sum.min(found.body.at(packet));
        let total = iteration.saturating_mul(found.trips.at(packet)).min(found.total.at(packet));
        match &found.trip_formula {
            _ if total <= FULL_CHARGE_MAX.min(rules.ahead_max) => LoopCharge::Ahead(total),
            Some(trip_formula) if total <= rules.loop_max && iteration <= ITERATION_FUEL_MAX => {
                LoopCharge::Trips(trip_formula.clone(), iteration)
            }
            _ if total <= rules.loop_max.min(rules.ahead_max) => LoopCharge::Ahead(total),
            _ => LoopCharge::Header,
        }
    }

    /// The constant cost of an instruction. The cost of a call includes the fuel of a callee that is charged to its caller.
    fn cost(&self, instruction: &ChargedInstruction<'_>) -> u64 {
        let callee = match instruction.operator {
            Operator::Call { function_index } => {
                self.context.module.defined_index(function_index).and_then(|index| self.callees.get(index))
            }
            _ => None,
        };
        instruction.cost.saturating_add(callee.map_or(0, |callee| callee.charged_to_caller))
    }

    /// Plans one instruction.
    fn step(&mut self, instruction: &ChargedInstruction<'_>) {
        let cost = self.cost(instruction);
        self.add_cost(instruction.offset, cost);
        self.replaced.extend(instruction.replaced);
        if self.covering.is_some() {
            let charge = |side, amount| Charge { offset: instruction.offset, side, amount };
            self.charges.extend(
                instruction
                    .length
                    .map(|(length, unit)| charge(ChargeSide::Before, ChargeAmount::Length(length, unit))),
            );
            self.charges
                .extend(instruction.grown.map(|unit| charge(ChargeSide::After, ChargeAmount::Grown(unit))));
        }
        match &instruction.operator {
            Operator::Block { .. } => self.open(BlockKind::Block),
            Operator::If { .. } => {
                let if_false = self.covering.clone();
                self.open(BlockKind::If(if_false));
                self.begin_basic_block(instruction.offset);
            }
            Operator::Else => {
                let if_false = self.blocks.last_mut().and_then(|block| match &mut block.kind {
                    BlockKind::If(if_false) => if_false.take(),
                    _ => None,
                });
                let at_then_end = std::mem::replace(&mut self.covering, if_false);
                if let Some(block) = self.blocks.last_mut() {
                    join_charges(&mut block.at_end, at_then_end.as_ref());
                }
                self.begin_basic_block(instruction.offset);
            }
            Operator::Loop { .. } => self.open_loop(instruction.offset),
            Operator::End => self.end(instruction.offset),
            Operator::Br { relative_depth } => {
                self.branch(*relative_depth);
                self.covering = None;
            }
            Operator::BrIf { relative_depth } => {
                self.branch(*relative_depth);
                self.begin_basic_block(instruction.offset);
            }
            Operator::BrTable { targets } => {
                for target in targets.targets().flatten().chain([targets.default()]) {
                    self.branch(target);
                }
                self.covering = None;
            }
            Operator::Return | Operator::Unreachable => self.covering = None,
            Operator::Call { function_index } => {
                let callee = self
                    .context
                    .module
                    .defined_index(*function_index)
                    .and_then(|index| self.callees.get(index));
                if callee.is_some_and(|callee| !callee.has_no_charge) {
                    self.note_charged_call();
                }
            }
            Operator::CallIndirect { .. } => self.note_charged_call(),
            _ => {}
        }
    }

    /// Records a call of a function with charges of its own.
    fn note_charged_call(&mut self) {
        self.has_only_entry_charge = false;
        self.has_charged_call.fill(true);
    }

    /// Begins a basic block after the instruction at this offset. With exact charges, each basic block has its own
    /// charge.
    fn begin_basic_block(&mut self, offset: u64) {
        if self.context.rules.exact && self.covering.is_some() {
            self.place_charge(offset, ChargeSide::After);
        }
    }

    /// Places a new charge, which covers the code after it.
    fn place_charge(&mut self, offset: u64, side: ChargeSide) {
        self.covering = Some(vec![(self.constant_charges.len(), 0)]);
        self.constant_charges.push((offset, side, 0));
    }

    /// Adds a cost to the charges that cover the current place. If a charge would become too large, a new charge is
    /// placed before the instruction at this offset.
    fn add_cost(&mut self, offset: u64, cost: u64) {
        if self.precharged_loops > 0 || cost == 0 {
            return;
        }
        let Some(covering) = &self.covering else { return };
        let so_far = covering.iter().map(|(_, cost)| *cost).max().unwrap_or(0);
        let rules = self.context.rules;
        let is_over_limit = so_far.saturating_add(cost) > rules.ahead_max || cost >= rules.expensive_min;
        if so_far > 0 && is_over_limit && !rules.exact {
            self.place_charge(offset, ChargeSide::Before);
        }
        for (index, so_far) in self.covering.iter_mut().flatten() {
            *so_far = so_far.saturating_add(cost).min(CHARGE_MAX);
            let fuel = &mut self.constant_charges[*index].2;
            *fuel = (*fuel).max(*so_far);
        }
    }

    /// Begins a block.
    fn open(&mut self, kind: BlockKind) {
        let enclosing_regions = self.enclosing_regions.len();
        let precharged_loops = self.precharged_loops;
        self.blocks.push(OpenBlock { kind, at_end: None, enclosing_regions, precharged_loops });
    }

    /// Begins the loop at this offset.
    fn open_loop(&mut self, offset: u64) {
        let charge = self.loop_charges.get(&offset).cloned().unwrap_or(LoopCharge::Header);
        self.open(BlockKind::Loop(charge.clone()));
        match charge {
            LoopCharge::Header => {
                let outside = self.covering.clone();
                let is_reached = outside.is_some();
                self.enclosing_regions.push(outside);
                self.has_charged_call.push(false);
                self.precharged_loops = 0;
                if is_reached {
                    self.place_charge(offset, ChargeSide::After);
                }
            }
            LoopCharge::Ahead(cost) => {
                self.add_cost(offset, cost);
                self.precharged_loops += 1;
            }
            LoopCharge::Trips(trip_formula, iteration) => {
                if self.covering.is_some() {
                    let amount = ChargeAmount::Trips(trip_formula, iteration);
                    self.charges.push(Charge { offset, side: ChargeSide::Before, amount });
                }
                self.precharged_loops += 1;
            }
        }
    }

    /// Ends the innermost block. `offset` is that of its `end`.
    fn end(&mut self, offset: u64) {
        let Some(block) = self.blocks.pop() else { return };
        let is_reached = self.covering.is_some();
        self.precharged_loops = block.precharged_loops;
        match block.kind {
            BlockKind::Loop(LoopCharge::Header) => {
                // The code after the loop belongs to the region that contains the loop.
                let outside = self.enclosing_regions.pop().flatten();
                self.covering = outside.filter(|_| is_reached);
                let has_charged_call = self.has_charged_call.pop().unwrap_or(true);
                self.has_hot_loop |= !has_charged_call;
            }
            BlockKind::Loop(_) => {}
            BlockKind::Block => join_charges(&mut self.covering, block.at_end.as_ref()),
            BlockKind::If(if_false) => {
                join_charges(&mut self.covering, block.at_end.as_ref());
                join_charges(&mut self.covering, if_false.as_ref());
            }
        }
        if self.covering.as_ref().is_some_and(Vec::is_empty) {
            self.place_charge(offset, ChargeSide::After);
        }
        self.begin_basic_block(offset);
    }

    /// Applies a branch: the charges that cover the current place also cover the end of the block `depth` blocks
    /// further out.
    fn branch(&mut self, depth: u32) {
        let Some(index) = self.blocks.len().checked_sub(depth as usize + 1) else { return };
        let Some(block) = self.blocks.get_mut(index) else { return };
        if matches!(block.kind, BlockKind::Loop(_)) || self.covering.is_none() {
            // A branch to a loop leads to its header, which is covered already.
            return;
        }
        // A branch out of inner regions: the charges of the region that contains the block's end are those that cover
        // the begin of the next inner region.
        let here = self.enclosing_regions.get(block.enclosing_regions).unwrap_or(&self.covering);
        join_charges(&mut block.at_end, here.as_ref());
    }
}

/// Merges the charges of two paths that meet. The result is an empty list if there are more than [`COVERING_MAX`].
fn join_charges(into: &mut Option<CoveringCharges>, other: Option<&CoveringCharges>) {
    let Some(other) = other else { return };
    let Some(charges) = into else {
        *into = Some(other.clone());
        return;
    };
    if charges.is_empty() || other.is_empty() {
        charges.clear();
        return;
    }
    for (index, cost) in other {
        match charges.iter_mut().find(|(known, _)| known == index) {
            Some((_, so_far)) => *so_far = (*so_far).max(*cost),
            None => charges.push((*index, *cost)),
        }
    }
    if charges.len() > COVERING_MAX {
        charges.clear();
    }
}
