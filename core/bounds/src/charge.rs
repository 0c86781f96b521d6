//! Where a module is charged for what it does while it runs, and how much.
//!
//! The plan is made from the same cost table as the bounds. What is charged is never less than what the instructions that ran cost by that table:
//!
//! - A charge covers the code from where it stands up to the next charges, along the dearest path. Charges stand at the entry of functions, at the
//!   headers of loops, before what is [dear](ChargeRules::dear), and wherever else more than [`ChargeRules::ahead`] would be charged before it is used.
//! - A function that is called only directly, by functions that do not call each other in a circle, is charged for with its caller.
//! - A loop that is known to cost little is charged for with what is around it, and one whose trips follow from locals, before it.
//! - What depends on a length is charged where that length is on the stack; pages and elements, when memory and tables have grown by them.

use crate::analyse::Malformed;
use crate::injected::Injected;
use crate::length::Length;
use crate::region::walk;
use crate::report::OnEntry;
use crate::{Analysis, CostTable, Environment, ParsedModule};
use wasmparser::{BinaryReaderError, Operator};
use weir_abi::entry::EntryPoint;
use weir_abi::host::{HostFunction, UsedAllowance};

/// The most that one charge takes: far more than any allowance, far less than what overflows.
pub const CHARGE_MAX: u64 = 1 << 60;

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRules {
    /// Every basic block is charged for by itself, so that what was charged is what was used. For tests and measurements.
    pub exact: bool,
    /// The most that is charged before it is used, where it can be helped: else a call could be abandoned for what it would not have used.
    pub ahead: u64,
    /// The most that a loop may use which is charged for before it.
    pub piece: u64,
    /// What costs so much or more is charged for where it stands, and a loop with it at its header: so nothing of it is taken on the way past it. A
    /// charge costs little beside it.
    pub dear: u64,
}

/// A charge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Offset of an instruction in the module's bytes.
    pub offset: u64,
    /// On which side of that instruction.
    pub side: ChargeSide,
    /// How much.
    pub amount: ChargeAmount,
}

/// Before or after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChargeSide {
    /// Before it.
    Before,
    /// After it; of a `loop`, where its body begins.
    After,
}

/// How much a charge takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargeAmount {
    /// So much.
    Constant(u64),
    /// For each trip that a loop can make, so much.
    Trips(OnEntry, u64),
    /// For each unit of the length that is on the stack, so much.
    Length(Length, u64),
    /// After `memory.grow` or `table.grow`: for each page or element that the argument asked for, so much, if it was granted.
    Grown(u64),
}

/// What is charged in a function of the module's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPlan {
    /// At its entry. What callers are charged for with theirs is not in it.
    pub entry: u64,
    /// In its code, in the order of offset and side.
    pub charges: Vec<Charge>,
    /// Whether nothing is charged in it after its entry, nor in what it calls.
    pub is_silent: bool,
    /// Whether it has a loop that is charged for at its header and in which no function is called that is charged for itself.
    pub has_hot_loop: bool,
    /// Whether anything but weir can call it: a function of the module, or an indirect call.
    pub is_called: bool,
    /// Calls that are replaced by a parameter's value, in order.
    pub replaced: Vec<Replaced>,
}

/// A call that is replaced by a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Offset of the first instruction that goes.
    pub from: u64,
    /// Offset of the call, the last one that goes.
    pub call: u64,
    /// What stands there instead.
    pub injected: Injected,
}

/// What is charged in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargePlan {
    /// The imported functions. `None` for one that weir does not have, with which no module is admitted.
    pub imports: Vec<Option<HostFunction>>,
    /// Functions that are not only called directly: those in element segments, exports, and `ref.func`, sorted.
    pub referenced: Vec<u32>,
    /// The functions that weir calls, but for packets and batches.
    pub entries: Vec<(EntryPoint, u32)>,
    /// Its own functions, in their order.
    pub functions: Vec<FunctionPlan>,
    /// Whether `memory.copy` is in any of them.
    pub copies: bool,
}

impl ChargePlan {
    /// The plan of a function, unless it is imported.
    pub fn function(&self, index: u32) -> Option<&FunctionPlan> {
        self.functions.get((index as usize).checked_sub(self.imports.len())?)
    }

    /// Whether a function is in an element segment, an export or a `ref.func`.
    pub fn is_referenced(&self, index: u32) -> bool {
        self.referenced.binary_search(&index).is_ok()
    }
}

/// What a call of a host function costs whose arguments are not known: a constant, and what it is charged for its length. Where the charge is to be
/// `exact`, without the strings that a record points to: only the host sees these.
pub fn of_host(
    function: HostFunction,
    costs: &CostTable,
    environment: &Environment,
    exact: bool,
) -> (u64, Option<(Length, u64)>) {
    let cost = costs.host(function);
    let has_strings = function.definition().uses == UsedAllowance::Record && !exact;
    let strings = environment.string_bytes.iter().copied().max().filter(|_| has_strings);
    let constant = u64::from(cost.call) + u64::from(cost.per_byte) * u64::from(strings.unwrap_or(0));
    (constant, per_unit(Length::of_host(function, None, environment), cost.per_byte))
}

pub(crate) fn per_unit(length: Option<Length>, each: u32) -> Option<(Length, u64)> {
    length.filter(|_| each > 0).map(|length| (length, each.into()))
}

/// What the walk through a function needs to know of the module.
pub(crate) struct Survey<'a> {
    pub(crate) module: &'a ParsedModule,
    /// Whether `memory.copy` is in a body.
    copies: bool,
    pub(crate) analysis: &'a Analysis,
    pub(crate) costs: &'a CostTable,
    pub(crate) environment: &'a Environment,
    pub(crate) rules: ChargeRules,
}

/// What a call of a function of the module's own means for its caller.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Callee {
    /// What the caller is charged for it.
    pub(crate) folded: u64,
    pub(crate) is_silent: bool,
}

/// Plans the charges of a valid module. `analysis` is one of the same module and table.
///
/// # Errors
/// [`Malformed`] where a function cannot be parsed.
pub fn plan(
    module: &ParsedModule,
    analysis: &Analysis,
    costs: &CostTable,
    environment: &Environment,
    rules: ChargeRules,
) -> Result<ChargePlan, Malformed> {
    Ok(Survey { module, copies: false, analysis, costs, environment, rules }.plan()?)
}

impl Survey<'_> {
    /// The functions of the module's own that each of them calls directly; and those that a `ref.func` names.
    fn calls(&mut self) -> Result<(Vec<Vec<usize>>, Vec<u32>), BinaryReaderError> {
        let mut callees = Vec::with_capacity(self.module.bodies().len());
        let mut named = Vec::new();
        for body in self.module.bodies() {
            let mut called = Vec::new();
            for operator in body.get_operators_reader()? {
                match operator? {
                    Operator::Call { function_index } => called.extend(self.module.own(function_index)),
                    Operator::RefFunc { function_index } => named.push(function_index),
                    Operator::MemoryCopy { .. } => self.copies = true,
                    _ => {}
                }
            }
            callees.push(called);
        }
        Ok((callees, named))
    }

    fn plan(mut self) -> Result<ChargePlan, BinaryReaderError> {
        let (callees, named) = self.calls()?;
        let module = self.module;
        let (count, imported) = (callees.len(), module.imported.len());
        let mut is_called = vec![false; count];
        for function in module.indirect.iter().chain(&named).filter_map(|function| module.own(*function)) {
            is_called[function] = true;
        }
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut waits: Vec<usize> = vec![0; count];
        for (caller, callees) in callees.iter().enumerate() {
            waits[caller] = callees.len();
            for callee in callees {
                callers[*callee].push(caller);
                is_called[*callee] = true;
            }
        }
        // Callees before their callers. What is left then calls itself, or something that does.
        let mut order: Vec<usize> = (0..count).filter(|function| waits[*function] == 0).collect();
        let mut next = 0;
        while let Some(callee) = order.get(next).copied() {
            next += 1;
            for caller in &callers[callee] {
                waits[*caller] -= 1;
                if waits[*caller] == 0 {
                    order.push(*caller);
                }
            }
        }
        let acyclic = order.len();
        order.extend((0..count).filter(|function| waits[*function] > 0));
        let mut referenced = module.referenced.clone();
        referenced.extend(named.into_iter().chain(module.start));
        referenced.sort_unstable();
        referenced.dedup();
        let mut known = vec![Callee::default(); count];
        let mut functions = vec![FunctionPlan::default(); count];
        for (place, function) in order.into_iter().enumerate() {
            let index = u32::try_from(function + imported).unwrap_or(u32::MAX);
            let Some(body) = module.body(index) else { continue };
            let mut plan = walk(&self, &known, &body)?;
            let is_direct = place < acyclic && referenced.binary_search(&index).is_err();
            if is_direct && !self.rules.exact && plan.entry <= self.rules.ahead {
                known[function].folded = std::mem::take(&mut plan.entry);
            }
            plan.is_called = is_called[function];
            plan.is_silent &= plan.charges.is_empty();
            known[function].is_silent = plan.is_silent && plan.entry == 0;
            functions[function] = plan;
        }
        let entries = module.entries.iter().copied().filter(|(entry, _)| entry.packets() == 0).collect();
        Ok(ChargePlan {
            imports: module.imported.clone(),
            referenced,
            entries,
            functions,
            copies: self.copies,
        })
    }
}
