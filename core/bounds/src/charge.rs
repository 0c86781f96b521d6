//! The charge plan of a module: the places in the code where the meter takes fuel, and the amounts.
//!
//! The plan uses the same cost table as the bounds. The charged fuel is never less than the cost of the executed
//! instructions by that table. These rules place the charges:
//!
//! - A charge covers the code from its place up to the next charges. Its amount is the cost of the most expensive path
//!   through this code. Charges are placed at the entry of functions, at the headers of loops, before
//!   [expensive](ChargeRules::expensive_min) instructions, and wherever more than [`ChargeRules::ahead_max`] would be
//!   charged in advance otherwise.
//! - A function that is only called directly, and is not recursive, is charged together with the code that calls it.
//! - A loop with a small bound is charged together with the code around it. A loop whose trip count follows from locals is
//!   charged before it begins.
//! - A cost that depends on a length is charged where the length is on the operand stack. Added pages and table elements
//!   are charged after the memory or table has grown.

use crate::analyse::Malformed;
use crate::injected::InjectedRead;
use crate::length::Length;
use crate::region::plan_function;
use crate::report::TripCountFormula;
use crate::{Analysis, CostTable, Environment, ParsedModule};
use wasmparser::{BinaryReaderError, Operator};
use weir_abi::entry::EntryPoint;
use weir_abi::host::{HostFunction, LimitedOutput};

/// The most fuel that one charge takes: far above the allowance of any call, and far below an overflow.
pub const CHARGE_MAX: u64 = 1 << 60;

/// The rules of a charge plan. Amounts are in fuel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeRules {
    /// True to charge each basic block by itself, so that the charged fuel equals the cost of the executed
    /// instructions. Used by tests and measurements.
    pub exact: bool,
    /// The most fuel that one charge takes in advance, wherever a further charge can keep it below this limit. A larger
    /// advance could abort a call because of fuel that the call would not have used.
    pub ahead_max: u64,
    /// The largest bound of a loop that is charged before it begins. Other loops are charged in each iteration.
    pub loop_max: u64,
    /// The least cost of an expensive instruction. An expensive instruction is charged directly before it runs, and a
    /// loop that contains one is charged at its header. So a path that avoids the instruction is not charged for it.
    /// The time that the further charge takes is small compared with the instruction.
    pub expensive_min: u64,
}

/// A charge: a place in the code and the fuel that is taken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Offset of an instruction in the module's bytes.
    pub offset: u64,
    /// The side of that instruction.
    pub side: ChargeSide,
    /// The fuel that is taken.
    pub amount: ChargeAmount,
}

/// The side of an instruction that a charge is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChargeSide {
    /// Before the instruction.
    Before,
    /// After the instruction; for a `loop`, this is the begin of its body.
    After,
}

/// The amount of a charge, in fuel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChargeAmount {
    /// A fixed amount.
    Constant(u64),
    /// The trip count that the formula gives, times this amount.
    Trips(TripCountFormula, u64),
    /// The number of bytes or elements that the length on the operand stack stands for, times this amount.
    Length(Length, u64),
    /// The number of pages or elements that `memory.grow` or `table.grow` requests, times this amount. The fuel is
    /// taken after the instruction, if memory or table has grown.
    Grown(u64),
}

/// The charges of one function of the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionPlan {
    /// The charge at the function's entry, in fuel. 0 for a function that is charged with its callers.
    pub entry: u64,
    /// The charges in the function's code, sorted by offset and side.
    pub charges: Vec<Charge>,
    /// True if a call of the function takes no fuel except at the function's entry: neither its own code nor a callee
    /// contains a charge.
    pub has_only_entry_charge: bool,
    /// True if the function contains a loop that is charged at its header, and in which only functions without charges
    /// are called. In such a function, the meter can keep the remaining fuel in a local.
    pub has_hot_loop: bool,
    /// True if the module can call the function, directly or indirectly.
    pub is_called: bool,
    /// The calls that the loader replaces by a parameter's value, in code order.
    pub replaced: Vec<ReplacedCall>,
}

/// A call that the loader replaces by a parameter's value, together with the instructions of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedCall {
    /// Offset of the first removed instruction in the module's bytes.
    pub from: u64,
    /// Offset of the call, which is the last removed instruction.
    pub call: u64,
    /// The read that the value replaces.
    pub injected: InjectedRead,
}

/// The charge plan of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargePlan {
    /// The imported functions; `None` for an import that weir does not provide. Admission refuses a module with such
    /// an import.
    pub imports: Vec<Option<HostFunction>>,
    /// The functions that can be called in another way than by a `call` instruction, sorted: those in element segments,
    /// exports and `ref.func`, and the start function.
    pub referenced: Vec<u32>,
    /// The entry points of the module, except those for packets and batches, and the indices of their functions.
    pub entries: Vec<(EntryPoint, u32)>,
    /// The plans of the module's own functions, in index order.
    pub functions: Vec<FunctionPlan>,
    /// True if a function contains `memory.copy`.
    pub has_memory_copy: bool,
}

impl ChargePlan {
    /// The plan of a function; `None` for an imported one.
    pub fn function(&self, index: u32) -> Option<&FunctionPlan> {
        self.functions.get((index as usize).checked_sub(self.imports.len())?)
    }

    /// Returns true if a function can be called in another way than by a `call` instruction.
    pub fn is_referenced(&self, index: u32) -> bool {
        self.referenced.binary_search(&index).is_ok()
    }
}

/// The cost of a host call with unknown arguments: a constant amount of fuel, and the fuel for each unit of its length
/// argument. The constant includes the most strings that a record can have, because only the host knows their lengths.
/// If `exact` is true, strings are left out.
pub fn host_call_cost(
    function: HostFunction,
    costs: &CostTable,
    environment: &Environment,
    exact: bool,
) -> (u64, Option<(Length, u64)>) {
    let cost = costs.host(function);
    let has_strings = function.definition().output == LimitedOutput::Record && !exact;
    let strings = environment.string_bytes.iter().copied().max().filter(|_| has_strings);
    let constant = u64::from(cost.call) + u64::from(cost.per_byte) * u64::from(strings.unwrap_or(0));
    (constant, per_unit(Length::for_host_call(function, None, environment), cost.per_byte))
}

/// The length together with the fuel for each of its units; `None` if the units cost nothing.
pub(crate) fn per_unit(length: Option<Length>, unit_cost: u32) -> Option<(Length, u64)> {
    length.filter(|_| unit_cost > 0).map(|length| (length, unit_cost.into()))
}

/// The inputs of planning a function.
pub(crate) struct ChargeContext<'a> {
    pub(crate) module: &'a ParsedModule,
    /// True if a function body contains `memory.copy`.
    has_memory_copy: bool,
    pub(crate) analysis: &'a Analysis,
    pub(crate) costs: &'a CostTable,
    pub(crate) environment: &'a Environment,
    pub(crate) rules: ChargeRules,
}

/// The charges of a function of the module, as its callers see them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CalleeCharge {
    /// The fuel that the caller is charged for each call; 0 if the callee has charges of its own instead.
    pub(crate) charged_to_caller: u64,
    /// True if a call takes no fuel in the callee, not even at its entry.
    pub(crate) has_no_charge: bool,
}

/// Plans the charges of a valid module. `analysis` must be of the same module and cost table.
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
    Ok(ChargeContext { module, has_memory_copy: false, analysis, costs, environment, rules }.plan()?)
}

impl ChargeContext<'_> {
    /// For each function, the functions of the module that it calls directly; and all functions that a `ref.func`
    /// names.
    fn calls(&mut self) -> Result<(Vec<Vec<usize>>, Vec<u32>), BinaryReaderError> {
        let mut callees = Vec::with_capacity(self.module.bodies().len());
        let mut named = Vec::new();
        for body in self.module.bodies() {
            let mut called = Vec::new();
            for operator in body.get_operators_reader()? {
                match operator? {
                    Operator::Call { function_index } => {
                        called.extend(self.module.defined_index(function_index))
                    }
                    Operator::RefFunc { function_index } => named.push(function_index),
                    Operator::MemoryCopy { .. } => self.has_memory_copy = true,
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
        for function in
            module.indirect.iter().chain(&named).filter_map(|function| module.defined_index(*function))
        {
            is_called[function] = true;
        }
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut unplanned_callees: Vec<usize> = vec![0; count];
        for (caller, callees) in callees.iter().enumerate() {
            unplanned_callees[caller] = callees.len();
            for callee in callees {
                callers[*callee].push(caller);
                is_called[*callee] = true;
            }
        }
        // Topological order, callees first. Functions that are left over are recursive or call recursive ones.
        let mut order: Vec<usize> = (0..count).filter(|function| unplanned_callees[*function] == 0).collect();
        let mut next = 0;
        while let Some(callee) = order.get(next).copied() {
            next += 1;
            for caller in &callers[callee] {
                unplanned_callees[*caller] -= 1;
                if unplanned_callees[*caller] == 0 {
                    order.push(*caller);
                }
            }
        }
        let acyclic = order.len();
        order.extend((0..count).filter(|function| unplanned_callees[*function] > 0));
        let mut referenced = module.referenced.clone();
        referenced.extend(module.exported_functions().chain(named).chain(module.start));
        referenced.sort_unstable();
        referenced.dedup();
        let mut callee_charges = vec![CalleeCharge::default(); count];
        let mut functions = vec![FunctionPlan::default(); count];
        for (position, function) in order.into_iter().enumerate() {
            let index = u32::try_from(function + imported).unwrap_or(u32::MAX);
            let Some(body) = module.body(index) else { continue };
            let mut plan = plan_function(&self, &callee_charges, &body)?;
            let is_only_called_directly = position < acyclic && referenced.binary_search(&index).is_err();
            if is_only_called_directly && !self.rules.exact && plan.entry <= self.rules.ahead_max {
                callee_charges[function].charged_to_caller = std::mem::take(&mut plan.entry);
            }
            plan.is_called = is_called[function];
            plan.has_only_entry_charge &= plan.charges.is_empty();
            callee_charges[function].has_no_charge = plan.has_only_entry_charge && plan.entry == 0;
            functions[function] = plan;
        }
        let entries = module.entries.iter().copied().filter(|(entry, _)| entry.packets() == 0).collect();
        Ok(ChargePlan {
            imports: module.imported.clone(),
            referenced,
            entries,
            functions,
            has_memory_copy: self.has_memory_copy,
        })
    }
}
