//! The analysis of a module.

use crate::range::{BitWidth, Range, USUAL_PACKET};
use crate::report::{
    CallBound, CodeLocation, HostCall, LoopBound, PathStep, ResourceBound, TopContributor, What, contributor,
};
use crate::state::{AnalysisLimit, CostSite, Hot, StackSite};
use crate::value::{BoundValueId, Op, from};
use crate::walk::{FunctionSummary, Walker};
use crate::{
    Analysis, CostTable, EntryBound, Environment, Linear, ParsedModule, UnboundedReason, Why, WorkClass,
};
use std::collections::BTreeSet;
use wasmparser::Operator;
use weir_abi::entry::{EntryPoint, EntryType};
use weir_abi::host::ValueType;

/// Bytes that are no valid module. Admission validates them before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid module, at byte {offset}: {reason}")]
pub struct Malformed {
    /// Offset in the bytes.
    pub offset: u64,
    /// What the parser says.
    pub reason: String,
}

impl From<wasmparser::BinaryReaderError> for Malformed {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self { offset: error.offset(), reason: error.message().to_owned() }
    }
}

/// How many instructions are looked at for each entry point, loops several times. Where that is not enough, the answer is
/// [`Why::TooLarge`]: so an analysis takes some ten milliseconds at most, whatever the module.
const STEPS_MAX: u64 = 2_400_000;

/// Steps on the way to what contributes most.
const HOTTEST_MAX: usize = 12;

/// Finds upper bounds for every entry point of a valid module.
///
/// # Errors
/// [`Malformed`] where a function cannot be parsed. For a valid module there is always an analysis.
pub fn analyse(
    module: &ParsedModule,
    environment: &Environment,
    costs: &CostTable,
) -> Result<Analysis, Malformed> {
    let mut walker = Walker::new(module, environment, costs, STEPS_MAX);
    let mut found = Vec::new();
    let mut is_whole = true;
    for (entry, function) in module.entries.iter().copied() {
        match walker.entry(entry, function) {
            Ok(bound) => found.push(bound),
            Err(AnalysisLimit::Malformed(error)) => return Err(error),
            Err(AnalysisLimit::TooLarge) => {
                is_whole = false;
                found.push(walker.too_large(entry, function));
                walker.active.clear();
                walker.probing = 0;
            }
        }
    }
    // What was seen of a loop counts only where all ways to it were.
    let Places { loops, calls, host_calls } = if is_whole { walker.places()? } else { Places::default() };
    Ok(Analysis { entries: found, loops, calls, host_calls })
}

/// What was found about places that have a cost of their own.
#[derive(Default)]
struct Places {
    loops: Vec<LoopBound>,
    calls: Vec<CallBound>,
    host_calls: Vec<HostCall>,
}

impl Walker<'_, '_> {
    fn entry(&mut self, entry: EntryPoint, function: u32) -> Result<EntryBound, AnalysisLimit> {
        if (function as usize) < self.module.imported.len() {
            // An imported function that is exported again: the host's own, with any arguments.
            return Err(AnalysisLimit::TooLarge);
        }
        self.descriptor_bytes = entry.packets().max(1) as usize * weir_abi::DESCRIPTOR_BYTES;
        let arguments = self.arguments(entry);
        let globals = self.globals();
        let summary = self.function(function, arguments, globals)?;
        let mut usage = summary.usage;
        let records = match entry.packets() {
            0 => weir_abi::limit::RECORDS_PER_CALL,
            packets => weir_abi::limit::RECORDS_PER_PACKET * packets,
        };
        // More are dropped and counted by the host.
        if usage.records.at(USUAL_PACKET) > records.into() {
            usage.records = Linear::constant(records.into());
        }
        if usage.pages.at(0) > self.environment.pages_max {
            usage.pages = Linear::constant(self.environment.pages_max);
        }
        let unbounded = self.reasons(&summary);
        Ok(EntryBound {
            entry,
            usage,
            stack: (summary.stack < u64::MAX / 4).then_some(summary.stack),
            shadow_stack: summary.shadow,
            class: if usage.fuel.is_bounded() { class_of(summary.tally.from) } else { WorkClass::Unbounded },
            unbounded,
            hottest: self.way(summary.best.0[0].as_deref()),
            most: self.most(&summary),
        })
    }

    /// What an entry point is called with.
    fn arguments(&mut self, entry: EntryPoint) -> Vec<BoundValueId> {
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
                _ if range == Range::any(width) => self.values.any(width),
                _ => self.values.add(Op::Opaque, width, range, 0),
            });
        }
        arguments
    }

    fn place(&self, function: u32, offset: u32) -> CodeLocation {
        CodeLocation {
            function,
            name: self.lines.name(function),
            offset: offset.into(),
            line: self.lines.line(offset.into()),
        }
    }

    fn reasons(&self, summary: &FunctionSummary) -> Vec<UnboundedReason> {
        let reasons = summary.tally.reasons.iter();
        reasons
            .map(|(function, offset, why)| UnboundedReason {
                place: self.place(*function, *offset),
                why: why.clone(),
            })
            .collect()
    }

    fn too_large(&mut self, entry: EntryPoint, function: u32) -> EntryBound {
        let offset = self.module.offset(function);
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
            unbounded: vec![UnboundedReason { place: self.place(function, offset), why: Why::TooLarge }],
            hottest: Vec::new(),
            most: TopContributor::default(),
        }
    }

    /// What contributes most to what is used beside fuel.
    fn most(&self, summary: &FunctionSummary) -> TopContributor {
        let [_, records, patches, frames, pages] =
            summary.best.0.each_ref().map(|peak| contributor(&self.way(peak.as_deref())).cloned());
        let taken = |taker: StackSite, what| PathStep {
            place: self.place(taker.function, taker.offset),
            what,
            amount: taker.bytes.map_or(Linear::UNBOUNDED, Linear::constant),
        };
        TopContributor {
            records,
            patches,
            frames,
            pages,
            stack: Some(taken(summary.widest, What::Frame)),
            shadow_stack: summary.shadow_taker.map(|taker| taken(taker, What::Locals)),
        }
    }

    /// The way from an entry point to what contributes most. What is inside a loop counts as often as the loop runs.
    fn way(&self, from: Option<&Hot>) -> Vec<PathStep> {
        let mut steps = Vec::new();
        let mut times = Linear::constant(1);
        let mut next = from;
        while let Some(hot) = next.filter(|_| steps.len() < HOTTEST_MAX) {
            let amount = hot.amount.times(times, self.packet_max());
            let what = match hot.spot {
                CostSite::Loop(trips) => What::Loop(trips),
                CostSite::Call(callee) => What::Call(self.callee(callee)),
                CostSite::Host(name) => What::Host(name),
                CostSite::Bulk => What::Bulk,
                CostSite::Grow => What::Grow,
            };
            steps.push(PathStep { place: self.place(hot.function, hot.offset), what, amount });
            if let CostSite::Loop(trips) = hot.spot {
                times = times.times(trips, self.packet_max());
            }
            next = hot.inner.as_deref();
        }
        steps
    }

    /// The name of a called function.
    fn callee(&self, callee: Option<u32>) -> String {
        match callee {
            Some(function) => self.lines.name(function).unwrap_or_else(|| format!("function {function}")),
            None => "a function of the table".to_owned(),
        }
    }

    /// The functions that can run with arguments that were not looked at: those that call themselves, and what they call.
    fn unseen(&mut self) -> Result<BTreeSet<u32>, Malformed> {
        let (mut unseen, mut types) = (BTreeSet::new(), BTreeSet::new());
        let mut next: Vec<u32> = self.again.iter().copied().collect();
        while let Some(function) = next.pop() {
            if !unseen.insert(function) {
                continue;
            }
            let Some(code) = self.bodies.code(function, self.costs, usize::MAX)? else { continue };
            for operator in &code.operators {
                match operator {
                    Operator::Call { function_index } => next.push(*function_index),
                    Operator::CallIndirect { type_index, .. } if types.insert(*type_index) => {
                        let wanted = self.module.type_at(*type_index);
                        let is_like = |function: &&u32| self.module.type_of(**function) == wanted;
                        next.extend(self.module.referenced.iter().filter(is_like));
                    }
                    _ => {}
                }
            }
        }
        Ok(unseen)
    }

    fn places(&mut self) -> Result<Places, Malformed> {
        let unseen = self.unseen()?;
        let loops = self.loops.iter().filter(|(_, found)| !unseen.contains(&found.function)).map(
            |(offset, found)| LoopBound {
                place: self.place(found.function, *offset),
                depth: found.depth,
                trips: found.trips,
                body: found.body,
                total: found.total,
                class: if found.why.is_some() { WorkClass::Unbounded } else { class_of(found.from) },
                reason: found
                    .why
                    .clone()
                    .map(|why| UnboundedReason { place: self.place(found.function, *offset), why }),
                on_entry: found.on_entry.clone(),
            },
        );
        let hosts = self.hosts.iter().filter(|(_, found)| !unseen.contains(&found.function));
        let host_calls = hosts.map(|(offset, found)| HostCall {
            place: self.place(found.function, *offset),
            name: found.name,
            fuel: found.fuel,
        });
        let calls = self.calls.iter().filter(|(_, found)| !unseen.contains(&found.function));
        let calls = calls.map(|(offset, found)| CallBound {
            place: self.place(found.function, *offset),
            callee: self.callee(found.callee),
            fuel: found.fuel,
        });
        Ok(Places { loops: loops.collect(), calls: calls.collect(), host_calls: host_calls.collect() })
    }
}

/// The class of what depends on these.
fn class_of(bits: u8) -> WorkClass {
    let order = [
        (from::HEADER_FIELD, WorkClass::HeaderField),
        (from::CONFIGURATION_VALUE, WorkClass::ConfigurationValue),
        (from::CONFIGURATION_LENGTH, WorkClass::ConfigurationLength),
        (from::HEADER_LENGTH, WorkClass::HeaderLength),
        (from::PACKET_LENGTH, WorkClass::PacketLength),
    ];
    order.iter().find(|(bit, _)| bits & bit != 0).map_or(WorkClass::Constant, |(_, class)| *class)
}
