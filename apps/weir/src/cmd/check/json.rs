//! The results of `weir check` as one JSON document. The field names are stable; `docs/CHECK.md` documents them.

use super::any_value::AnyValue;
use super::loop_source::{LoopStatement, statement_of};
use super::{CheckResults, Compilation};
use serde::Serialize;
use std::io::{self, Write};
use weir_admission::{
    Comparison, Excess, LimitStatus, LimitedResource, ModuleRefusal, Name, ParameterValue, TableAccess,
};
use weir_bounds::{
    CallBound, CodeLocation, CostTable, EntryPoint, HostCall, Linear, LoopBound, PathStep, StepKind,
    UnboundedReason,
};
use weir_sandbox::BackEnd;

/// Returns the names of the compilers in whose code a module can run.
fn back_ends(compilation: &Compilation) -> Vec<String> {
    let llvm = compilation.why_not_llvm.is_none().then_some(BackEnd::Llvm);
    [BackEnd::Cranelift].into_iter().chain(llvm).map(|back_end| back_end.to_string()).collect()
}

/// The document of a module that could not be analysed.
#[derive(Serialize)]
struct Refused<'a> {
    module: &'a str,
    admitted: bool,
    refusal: &'a str,
}

/// The document of an analysed module.
#[derive(Serialize)]
struct Document<'a> {
    module: &'a str,
    version: &'a str,
    size_bytes: u64,
    admitted: bool,
    tier: Option<&'static str>,
    tier_reason: Option<&'a str>,
    refusal: Option<String>,
    excess: Option<Exceeded>,
    profile: Option<&'a str>,
    parameters: Vec<Parameter<'a>>,
    any_value: Option<&'a AnyValue>,
    imports: &'a [&'static str],
    tables: Vec<Table<'a>>,
    calibration: Calibration<'a>,
    memory: Option<Bound>,
    entry_points: Vec<Entry>,
    loops: Vec<Loop>,
    calls: Vec<Call>,
    host_calls: Vec<Call>,
    compiled_ns: Option<u64>,
    /// The compilers in whose code the module can run; empty if the module was not compiled.
    back_ends: Vec<String>,
    /// The reason why LLVM is not among them.
    llvm_refusal: Option<&'a str>,
}

#[derive(Serialize)]
struct Parameter<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: &'static str,
    /// `None` for a parameter without a value.
    value: Option<String>,
    min: Option<String>,
    max: Option<String>,
    /// The legal values of an enum; empty for other types.
    values: Vec<&'a str>,
}

#[derive(Serialize)]
struct Table<'a> {
    name: &'a str,
    access: &'static str,
    bytes: u32,
}

/// The limit that caused a refusal.
#[derive(Serialize)]
struct Exceeded {
    /// `None` for a limit of the module as a whole.
    entry_point: Option<&'static str>,
    #[serde(flatten)]
    bound: Bound,
    /// The ratio of the bound to the limit.
    factor: Option<f64>,
    /// The largest contributor.
    contributor: Option<Contributor>,
    /// The reason why the resource has no bound; `None` if it has a bound.
    unbounded: Option<Unbounded>,
    /// The tier that the profile would have to allow.
    required_tier: &'static str,
    tiers: Vec<&'static str>,
}

#[derive(Serialize)]
struct Calibration<'a> {
    measured: bool,
    processor: Option<&'a str>,
    cost_table: u32,
    /// Nanoseconds per 1000 units of fuel.
    ns_min: u64,
    ns_median: u64,
    ns_max: u64,
}

/// An upper bound, linear in the packet's captured length.
#[derive(Serialize)]
struct LinearBound {
    constant: u64,
    per_byte: f64,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    class: Option<String>,
    bounds: Vec<Bound>,
    hottest: Vec<Contributor>,
    unbounded: Vec<Unbounded>,
}

/// The bound of a resource, and its limit.
#[derive(Serialize)]
struct Bound {
    resource: &'static str,
    unit: &'static str,
    bound: Option<LinearBound>,
    limit: Option<LinearBound>,
    status: &'static str,
    /// The bound in nanoseconds, for fuel.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_ns: Option<LinearBound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_ns: Option<LinearBound>,
    /// True if the nanoseconds are estimates, because the machine is not calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    ns_estimated: Option<bool>,
}

/// A location in the code.
#[derive(Serialize)]
struct Location {
    function: u32,
    name: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    offset: u64,
}

/// A loop, call or other step that contributes to a bound.
#[derive(Serialize)]
struct Contributor {
    kind: &'static str,
    name: Option<String>,
    trips: Option<LinearBound>,
    fuel: Option<LinearBound>,
    at: Location,
}

/// A location whose cost has no bound, with the reason.
#[derive(Serialize)]
struct Unbounded {
    reason: String,
    at: Location,
    /// The loop statement in the source, if it is there.
    statement: Option<Statement>,
}

#[derive(Serialize)]
struct Statement {
    line: u32,
    /// The statement in a form of which one iteration beyond `MAX` traps.
    bounded: String,
    /// The statement in a form that leaves the loop after `MAX` iterations.
    counted: Option<String>,
}

#[derive(Serialize)]
struct Loop {
    at: Location,
    depth: u32,
    class: String,
    trips: Option<LinearBound>,
    body: Option<LinearBound>,
    fuel: Option<LinearBound>,
    reason: Option<String>,
}

/// A call of a function of the module or of a host function, with the bound of its cost.
#[derive(Serialize)]
struct Call {
    name: String,
    fuel: Option<LinearBound>,
    at: Location,
}

/// Prints the document.
pub fn print(out: &mut impl Write, results: &CheckResults<'_>) -> io::Result<()> {
    write(out, &document(results))
}

/// Prints the document of a module that could not be analysed.
pub fn print_refusal(out: &mut impl Write, module: &str, refusal: &str) -> io::Result<()> {
    write(out, &Refused { module, admitted: false, refusal })
}

fn write(out: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    crate::json::document(out, document)
}

fn document<'a>(results: &'a CheckResults<'_>) -> Document<'a> {
    let [ns_min, ns_median, ns_max] = results.calibration.spread();
    let calls =
        results.comparisons.iter().filter(|c| c.resource == LimitedResource::Fuel).filter_map(|c| c.entry);
    let memory = results.comparisons.iter().find(|c| c.resource == LimitedResource::Memory);
    Document {
        module: results.manifest.name.as_str(),
        version: &results.manifest.version,
        size_bytes: results.size.0,
        admitted: results.verdict.is_ok(),
        tier: results.verdict.as_ref().ok().map(|tier| tier.name()),
        tier_reason: results.tier_reason.as_deref(),
        refusal: results.verdict.err().map(ToString::to_string),
        excess: match results.verdict {
            Err(ModuleRefusal::Excess(excess)) => Some(exceeded(excess, results)),
            _ => None,
        },
        profile: results.profile.as_deref(),
        parameters: results
            .parameters()
            .map(|(parameter, value)| Parameter {
                name: parameter.name.as_str(),
                ty: parameter.ty.name(),
                value: value.map(ParameterValue::to_string),
                min: parameter.min.as_ref().map(ParameterValue::to_string),
                max: parameter.max.as_ref().map(ParameterValue::to_string),
                values: parameter.values.iter().map(Name::as_str).collect(),
            })
            .collect(),
        any_value: results.any_value.as_ref(),
        imports: &results.info.imports,
        tables: results
            .manifest
            .tables
            .iter()
            .map(|table| Table {
                name: table.name.as_str(),
                access: if table.access == TableAccess::Publish { "publish" } else { "read" },
                bytes: table.bytes,
            })
            .collect(),
        calibration: Calibration {
            measured: results.calibration.is_measured(),
            processor: results.calibration.processor(),
            cost_table: CostTable::VERSION,
            ns_min,
            ns_median,
            ns_max,
        },
        memory: memory.map(|comparison| bound(comparison, results)),
        entry_points: calls.map(|entry| entry_point(entry, results)).collect(),
        loops: results.analysis.loops.iter().map(loop_bound).collect(),
        calls: results.analysis.calls.iter().map(call).collect(),
        host_calls: results.analysis.host_calls.iter().map(host_call).collect(),
        compiled_ns: results.compilation.map(|compilation| compilation.time.0),
        back_ends: results.compilation.map(back_ends).unwrap_or_default(),
        llvm_refusal: results.compilation.and_then(|compilation| compilation.why_not_llvm.as_deref()),
    }
}

fn entry_point(entry: EntryPoint, results: &CheckResults<'_>) -> Entry {
    let found = results.analysis.entry(entry);
    Entry {
        name: entry.name(),
        class: found.map(|found| found.class.to_string()),
        bounds: results
            .comparisons
            .iter()
            .filter(|comparison| comparison.entry == Some(entry))
            .map(|comparison| bound(comparison, results))
            .collect(),
        hottest: found.map_or(Vec::new(), |found| found.hottest.iter().map(contributor).collect()),
        unbounded: found.map_or(Vec::new(), |found| {
            found.unbounded.iter().map(|reason| unbounded(reason, results)).collect()
        }),
    }
}

fn bound(comparison: &Comparison, results: &CheckResults<'_>) -> Bound {
    let calibration = results.calibration;
    let to_nanos = |fuel: Linear| {
        let nanos =
            Linear { constant: calibration.time(fuel.constant).0, per_kib: calibration.time(fuel.per_kib).0 };
        linear_bound(nanos)
    };
    let is_fuel = comparison.resource == LimitedResource::Fuel;
    let nanos_of_fuel = |amount: Linear| if is_fuel && amount.is_bounded() { to_nanos(amount) } else { None };
    Bound {
        resource: comparison.resource.name(),
        unit: match comparison.resource {
            LimitedResource::Fuel => "fuel",
            LimitedResource::Stack | LimitedResource::ShadowStack | LimitedResource::Memory => "bytes",
            LimitedResource::Records
            | LimitedResource::Patches
            | LimitedResource::SentFrames
            | LimitedResource::GrownPages => "number",
        },
        bound: linear_bound(comparison.bound),
        limit: linear_bound(comparison.limit),
        status: match comparison.status() {
            LimitStatus::Within => "within",
            LimitStatus::OverWithinFactor => "over",
            LimitStatus::OverFactor => "beyond",
            LimitStatus::Unbounded => "unbounded",
        },
        bound_ns: nanos_of_fuel(comparison.bound),
        limit_ns: nanos_of_fuel(comparison.limit),
        ns_estimated: is_fuel.then(|| !calibration.is_measured()),
    }
}

fn exceeded(excess: &Excess, results: &CheckResults<'_>) -> Exceeded {
    let comparison = &excess.comparison;
    let times = comparison.ratio();
    Exceeded {
        entry_point: comparison.entry.map(EntryPoint::name),
        bound: bound(comparison, results),
        factor: times.is_finite().then_some(times),
        contributor: excess.contributor.as_ref().map(|step| {
            let largest = contributor(step);
            // A contributor to another resource, such as records, has no amount of fuel.
            Contributor {
                fuel: largest.fuel.filter(|_| comparison.resource == LimitedResource::Fuel),
                ..largest
            }
        }),
        unbounded: excess
            .reason
            .as_ref()
            .filter(|_| !comparison.bound.is_bounded())
            .map(|reason| unbounded(reason, results)),
        required_tier: excess.needed_tier().name(),
        tiers: excess.tiers.iter().map(|tier| tier.name()).collect(),
    }
}

/// Converts the slope of a bound from units per KiB to units per byte. `None` for a resource without a bound.
#[expect(
    clippy::cast_precision_loss,
    reason = "a slope below 2^53 / 1024 is exact, and a steeper one does not occur in practice"
)]
fn linear_bound(bound: Linear) -> Option<LinearBound> {
    bound
        .is_bounded()
        .then(|| LinearBound { constant: bound.constant, per_byte: bound.per_kib as f64 / 1024.0 })
}

fn location(place: &CodeLocation) -> Location {
    Location {
        function: place.function,
        name: place.name.clone(),
        file: place.line.as_ref().map(|line| line.file.clone()),
        line: place.line.as_ref().map(|line| line.line),
        offset: place.offset,
    }
}

fn contributor(step: &PathStep) -> Contributor {
    let (kind, name, trips) = match &step.kind {
        StepKind::Loop(trips) => ("loop", None, linear_bound(*trips)),
        StepKind::Call(name) => ("call", Some(name.clone()), None),
        StepKind::Host(name) => ("host", Some((*name).to_owned()), None),
        StepKind::Bulk => ("bulk", None, None),
        StepKind::Grow => ("grow", None, None),
        StepKind::StackFrame => ("frame", None, None),
        StepKind::ShadowStackFrame => ("locals", None, None),
    };
    Contributor { kind, name, trips, fuel: linear_bound(step.amount), at: location(&step.place) }
}

fn unbounded(reason: &UnboundedReason, results: &CheckResults<'_>) -> Unbounded {
    let statement = statement_of(reason, &results.sources);
    let statement = statement.map(|LoopStatement { line, forms }| Statement {
        line,
        bounded: forms.bounded,
        counted: forms.counted,
    });
    Unbounded { reason: reason.cause.to_string(), at: location(&reason.place), statement }
}

fn loop_bound(found: &LoopBound) -> Loop {
    Loop {
        at: location(&found.place),
        depth: found.depth,
        class: found.class.to_string(),
        trips: linear_bound(found.trips),
        body: linear_bound(found.body),
        fuel: linear_bound(found.total),
        reason: found.reason.as_ref().map(|reason| reason.cause.to_string()),
    }
}

fn call(found: &CallBound) -> Call {
    Call { name: found.callee.clone(), fuel: linear_bound(found.fuel), at: location(&found.place) }
}

fn host_call(found: &HostCall) -> Call {
    Call { name: found.name.to_owned(), fuel: linear_bound(found.fuel), at: location(&found.place) }
}
