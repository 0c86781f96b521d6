//! The analysis of a module: runs the abstract interpreter on each entry point and turns the results into a report.

use crate::interpreter::{FunctionSummary, Interpreter};
use crate::range::{BitWidth, Range, USUAL_PACKET};
use crate::reach::reachable_functions;
use crate::report::{
    CallBound, CodeLocation, HostCall, LoopBound, PathStep, ResourceBound, StepKind, TopContributors,
    contributor,
};
use crate::state::{AnalysisStop, CostSite, HotPath, StackSite, UNBOUNDED_STACK};
use crate::value::{Op, ValueId, dependency};
use crate::{
    Analysis, CostTable, EntryBound, Environment, Linear, ParsedModule, UnboundedCause, UnboundedReason,
    WorkClass,
};
use weir_abi::entry::{EntryPoint, EntryType};
use weir_abi::host::ValueType;

/// The error for bytes that cannot be parsed as a module. It does not occur in admission, which validates a module
/// before the analysis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid module, at byte {offset}: {reason}")]
pub struct Malformed {
    /// Offset of the error in the module's bytes.
    pub offset: u64,
    /// The parser's message.
    pub reason: String,
}

impl From<wasmparser::BinaryReaderError> for Malformed {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self { offset: error.offset(), reason: error.message().to_owned() }
    }
}

/// The most steps of the analysis of one module. Each visit of an instruction takes several steps, and an instruction
/// is visited in each walk of a loop around it. An analysis that needs more steps ends with
/// [`UnboundedCause::TooLarge`]. With this limit the analysis of any module takes at most a few tens of milliseconds.
const STEPS_MAX: u64 = 2_400_000;

/// The most steps that a report gives of the path to the location that contributes most.
const HOTTEST_PATH_MAX: usize = 12;

/// Finds upper bounds for every entry point of a valid module.
///
/// # Errors
/// [`Malformed`] where a function cannot be parsed. A valid module always has an analysis.
pub fn analyse(
    module: &ParsedModule,
    environment: &Environment,
    costs: &CostTable,
) -> Result<Analysis, Malformed> {
    let mut interpreter = Interpreter::new(module, environment, costs, STEPS_MAX);
    let mut found = Vec::new();
    let mut is_complete = true;
    for (entry, function) in module.entries.iter().copied() {
        match interpreter.analyse_entry(entry, function) {
            Ok(bound) => found.push(bound),
            Err(AnalysisStop::Malformed(error)) => return Err(error),
            Err(AnalysisStop::TooLarge) => {
                is_complete = false;
                found.push(interpreter.unbounded_entry(entry, function));
                interpreter.call_stack.clear();
                interpreter.unrecorded = 0;
            }
        }
    }
    // The results for a loop or call are valid only if all paths that lead to it were walked.
    let RecordedSites { loops, calls, host_calls } =
        if is_complete { interpreter.recorded_sites()? } else { RecordedSites::default() };
    Ok(Analysis { entries: found, loops, calls, host_calls })
}

/// The results for single code locations.
#[derive(Default)]
struct RecordedSites {
    loops: Vec<LoopBound>,
    calls: Vec<CallBound>,
    host_calls: Vec<HostCall>,
}

impl Interpreter<'_, '_> {
    /// The bounds of an entry point, which is the function with this index.
    fn analyse_entry(&mut self, entry: EntryPoint, function: u32) -> Result<EntryBound, AnalysisStop> {
        if (function as usize) < self.module.imported.len() {
            // The entry point is an imported function that the module exports again. Imported functions are not
            // analysed.
            return Err(AnalysisStop::TooLarge);
        }
        self.descriptor_bytes = entry.packets().max(1) as usize * weir_abi::DESCRIPTOR_BYTES;
        let arguments = self.entry_arguments(entry);
        let globals = self.entry_globals();
        let summary = self.walk_function(function, arguments, globals)?;
        let mut usage = summary.usage;
        if entry == EntryPoint::Stream {
            usage.fuel = usage.fuel.plus(self.costs.stream_event_bound());
        }
        let records = match entry.packets() {
            0 => weir_abi::limit::RECORDS_PER_CALL,
            packets => weir_abi::limit::RECORDS_PER_PACKET * packets,
        };
        // The host drops records beyond this number, and counts them.
        if usage.records.at(USUAL_PACKET) > records.into() {
            usage.records = Linear::constant(records.into());
        }
        // The module's memory cannot grow beyond this number of pages.
        if usage.pages.at(0) > self.environment.pages_max {
            usage.pages = Linear::constant(self.environment.pages_max);
        }
        let unbounded = self.reasons(&summary);
        Ok(EntryBound {
            entry,
            usage,
            stack: (summary.stack < UNBOUNDED_STACK).then_some(summary.stack),
            shadow_stack: summary.shadow_depth,
            class: if usage.fuel.is_bounded() {
                class_of(summary.work.dependencies)
            } else {
                WorkClass::Unbounded
            },
            unbounded,
            hottest: self.hottest_path(summary.top_costs.0[0].as_deref()),
            top: self.top_contributors(&summary),
        })
    }

    /// The abstract arguments of an entry point.
    fn entry_arguments(&mut self, entry: EntryPoint) -> Vec<ValueId> {
        let mut arguments = Vec::new();
        for parameter in entry.definition().parameters {
            let width = match parameter.ty.value_type() {
                ValueType::I32 => BitWidth::W32,
                ValueType::I64 => BitWidth::W64,
                ValueType::F64 => BitWidth::Other,
            };
            let (least, most) = parameter.ty.range();
            let range = Range::unsigned(width, least, most);
            arguments.push(match parameter.ty {
                EntryType::Descriptor | EntryType::Descriptors => self.descriptor,
                EntryType::StreamEvent => self.event,
                _ if range == Range::any(width) => self.values.any(width),
                _ => self.values.add(Op::Opaque, width, range, 0),
            });
        }
        arguments
    }

    /// The code location of an instruction, for the report.
    fn location(&self, function: u32, offset: u32) -> CodeLocation {
        CodeLocation {
            function,
            name: self.lines.name(function),
            offset: offset.into(),
            line: self.lines.line(offset.into()),
        }
    }

    /// The code locations without a bound, for the report.
    fn reasons(&self, summary: &FunctionSummary) -> Vec<UnboundedReason> {
        let reasons = summary.work.reasons.iter();
        reasons
            .map(|(function, offset, cause)| UnboundedReason {
                place: self.location(*function, *offset),
                cause: cause.clone(),
            })
            .collect()
    }

    /// The result for an entry point whose analysis needs too much work: no resource has a bound.
    fn unbounded_entry(&mut self, entry: EntryPoint, function: u32) -> EntryBound {
        let offset = self.module.body_offset(function);
        let unbounded = Linear::UNBOUNDED;
        EntryBound {
            entry,
            usage: ResourceBound {
                fuel: unbounded,
                records: unbounded,
                patches: unbounded,
                frames: unbounded,
                pages: unbounded,
            },
            stack: None,
            shadow_stack: None,
            class: WorkClass::Unbounded,
            unbounded: vec![UnboundedReason {
                place: self.location(function, offset),
                cause: UnboundedCause::TooLarge,
            }],
            hottest: Vec::new(),
            top: TopContributors::default(),
        }
    }

    /// The locations that contribute most to each resource except fuel.
    fn top_contributors(&self, summary: &FunctionSummary) -> TopContributors {
        let [_, records, patches, frames, pages] = summary
            .top_costs
            .0
            .each_ref()
            .map(|path| contributor(&self.hottest_path(path.as_deref())).cloned());
        let stack_step = |site: StackSite, kind| PathStep {
            place: self.location(site.function, site.offset),
            kind,
            amount: site.bytes.map_or(Linear::UNBOUNDED, Linear::constant),
        };
        TopContributors {
            records,
            patches,
            frames,
            pages,
            stack: Some(stack_step(summary.stack_site, StepKind::StackFrame)),
            shadow_stack: summary.shadow_site.map(|site| stack_step(site, StepKind::ShadowStackFrame)),
        }
    }

    /// The path from an entry point to the location that contributes most. The amount inside a loop is multiplied by
    /// the loop's trips.
    fn hottest_path(&self, hottest: Option<&HotPath>) -> Vec<PathStep> {
        let mut steps = Vec::new();
        let mut times = Linear::constant(1);
        let mut next = hottest;
        while let Some(hot) = next.filter(|_| steps.len() < HOTTEST_PATH_MAX) {
            let amount = hot.amount.times(times, self.packet_max());
            let kind = match hot.site {
                CostSite::Loop(trips) => StepKind::Loop(trips),
                CostSite::Call(callee) => StepKind::Call(self.callee_name(callee)),
                CostSite::Host(name) => StepKind::Host(name),
                CostSite::Bulk => StepKind::Bulk,
                CostSite::Grow => StepKind::Grow,
            };
            steps.push(PathStep { place: self.location(hot.function, hot.offset), kind, amount });
            if let CostSite::Loop(trips) = hot.site {
                times = times.times(trips, self.packet_max());
            }
            next = hot.inner.as_deref();
        }
        steps
    }

    /// The name of a called function, for the report.
    fn callee_name(&self, callee: Option<u32>) -> String {
        match callee {
            Some(function) => self.lines.name(function).unwrap_or_else(|| format!("function {function}")),
            None => "a function of the table".to_owned(),
        }
    }

    /// The results for loops and calls, without those in partly analysed functions.
    fn recorded_sites(&mut self) -> Result<RecordedSites, Malformed> {
        // The functions that may be called with arguments that were not analysed: recursive functions, and all functions that
        // these call.
        let excluded = reachable_functions(self.module, self.recursive.iter().copied())?;
        let loops = self.loops.iter().filter(|(_, found)| !excluded.contains(&found.function)).map(
            |(offset, found)| LoopBound {
                place: self.location(found.function, *offset),
                depth: found.depth,
                trips: found.trips,
                body: found.body,
                total: found.total,
                class: if found.cause.is_some() {
                    WorkClass::Unbounded
                } else {
                    class_of(found.dependencies)
                },
                reason: found
                    .cause
                    .clone()
                    .map(|cause| UnboundedReason { place: self.location(found.function, *offset), cause }),
                trip_formula: found.trip_formula.clone(),
            },
        );
        let hosts = self.host_calls.iter().filter(|(_, found)| !excluded.contains(&found.function));
        let host_calls = hosts.map(|(offset, found)| HostCall {
            place: self.location(found.function, *offset),
            name: found.name,
            fuel: found.fuel,
        });
        let calls = self.calls.iter().filter(|(_, found)| !excluded.contains(&found.function));
        let calls = calls.map(|(offset, found)| CallBound {
            place: self.location(found.function, *offset),
            callee: self.callee_name(found.callee),
            fuel: found.fuel,
        });
        Ok(RecordedSites { loops: loops.collect(), calls: calls.collect(), host_calls: host_calls.collect() })
    }
}

/// The work class for a set of dependencies, as bits of [`dependency`]: the class that is hardest to predict.
fn class_of(dependencies: u8) -> WorkClass {
    let order = [
        (dependency::HEADER_FIELD, WorkClass::HeaderField),
        (dependency::CONFIGURATION_VALUE, WorkClass::ConfigurationValue),
        (dependency::CONFIGURATION_LENGTH, WorkClass::ConfigurationLength),
        (dependency::HEADER_LENGTH, WorkClass::HeaderLength),
        (dependency::PACKET_LENGTH, WorkClass::PacketLength),
    ];
    order.iter().find(|(bit, _)| dependencies & bit != 0).map_or(WorkClass::Constant, |(_, class)| *class)
}
