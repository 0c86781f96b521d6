//! Assessment of a module: its bounds, compared with the limits of a profile, and the resulting tier or refusal.

use crate::admit::{missing_value, parameter_values, read_module};
use crate::compare::compare;
use crate::environment::environment;
use crate::excess::largest_contribution;
use crate::tcp::resolve_layer;
use crate::{
    Admitted, Calibration, Comparison, Excess, FuelLimits, LimitStatus, Manifest, ModuleInfo,
    ModuleParameter, ModuleRefusal, ParameterSetting, ParameterValue, Profile, TcpSettings, TickPeriod, Tier,
    ValueError, escaped,
};
use weir_abi::host::HostFunction;
use weir_bounds::{Analysis, CostTable, EntryPoint, ParsedModule};
use weir_units::{Bytes, Nanos};
use weir_wire::WriteFields;
use weir_wire::stream::StreamLayer;

/// The shortest period of ticks. A parameter with a shorter period counts as this period.
const TICK_PERIOD_MIN: Nanos = Nanos(1_000);
/// The most calls of `patch` that a refusal names.
const WRITE_PLACES_MAX: usize = 3;

/// A profile, with the calibration of the node that converts its limits in time to fuel. The default is for a node that is
/// not calibrated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalibratedProfile {
    profile: Profile,
    /// The calibration for the code in which the profile lets modules run.
    calibration: Calibration,
}

impl CalibratedProfile {
    /// Joins a profile and a node's calibration. The times of the back ends count in whose code the profile lets modules
    /// run.
    pub fn new(profile: Profile, calibration: Calibration) -> Self {
        let calibration = calibration.for_use(profile.verified);
        Self { profile, calibration }
    }

    /// Returns the operator's profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the time that fuel takes on the node, in the slower of the back ends that may run a module.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Returns the limits for each call, converted to fuel for the slowest kind of work.
    pub fn limits(&self) -> FuelLimits {
        self.profile.limits(&self.calibration)
    }
}

impl From<Profile> for CalibratedProfile {
    /// Returns the profile with the calibration of a node that is not calibrated.
    fn from(profile: Profile) -> Self {
        Self::new(profile, Calibration::default())
    }
}

/// A valid module with its parameter values, bounds and limits, and the verdict: the tier in which the module may run,
/// or the reason for refusing it.
///
/// An assessment owns the bytes that were checked, so they cannot change between check and use.
#[derive(Clone, Debug)]
pub struct Assessment {
    module: ParsedModule,
    manifest: Manifest,
    values: Vec<Option<ParameterValue>>,
    info: ModuleInfo,
    layer: StreamLayer,
    tcp: Option<TcpSettings>,
    tick: Option<Nanos>,
    calibrated: CalibratedProfile,
    analysis: Analysis,
    limits: FuelLimits,
    comparisons: Vec<Comparison>,
    verdict: Result<Tier, ModuleRefusal>,
}

impl Assessment {
    /// Checks a module's bytes (WebAssembly, imports, exports, manifest) and its settings, and finds its bounds.
    ///
    /// # Errors
    /// A [`ModuleRefusal`] for the first violation that no profile could allow. A violation of the given profile is no
    /// error, but the [verdict](Self::verdict).
    pub fn assess(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        calibrated: &CalibratedProfile,
    ) -> Result<Self, ModuleRefusal> {
        let (module, manifest, info) = read_module(bytes)?;
        let values = parameter_values(&manifest, settings)?;
        match manifest.parameters.iter().zip(&values).find(|(_, value)| value.is_none()) {
            Some((parameter, _)) => Err(missing_value(parameter).into()),
            None => Self::with_values(module, manifest, info, values, calibrated),
        }
    }

    /// Assesses a module as [`assess`](Self::assess) does, but accepts parameters that have neither a value nor a
    /// default. The bounds hold for every legal value of these open parameters. An assessment with open parameters
    /// cannot be [admitted](Self::admit).
    ///
    /// # Errors
    /// The errors of [`assess`](Self::assess).
    pub fn assess_open(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        calibrated: &CalibratedProfile,
    ) -> Result<Self, ModuleRefusal> {
        let (module, manifest, info) = read_module(bytes)?;
        let values = parameter_values(&manifest, settings)?;
        Self::with_values(module, manifest, info, values, calibrated)
    }

    /// Assesses a module as [`assess_open`](Self::assess_open) does, but a parameter with a default counts as open, too,
    /// unless `settings` has a value for it. So the bounds hold for every value that an operator can set.
    ///
    /// # Errors
    /// The errors of [`assess`](Self::assess).
    pub fn assess_any_value(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        calibrated: &CalibratedProfile,
    ) -> Result<Self, ModuleRefusal> {
        let (module, manifest, info) = read_module(bytes)?;
        let mut values = parameter_values(&manifest, settings)?;
        for (parameter, value) in manifest.parameters.iter().zip(&mut values) {
            if !settings.iter().any(|(name, _)| parameter.name.as_str() == name) {
                *value = None;
            }
        }
        Self::with_values(module, manifest, info, values, calibrated)
    }

    /// Finds the bounds for these parameter values, and compares them with the limits.
    fn with_values(
        module: ParsedModule,
        manifest: Manifest,
        info: ModuleInfo,
        values: Vec<Option<ParameterValue>>,
        calibrated: &CalibratedProfile,
    ) -> Result<Self, ModuleRefusal> {
        let tick = match manifest.tick {
            _ if !info.entries.has(EntryPoint::Tick) => None,
            Some(TickPeriod::Every(period)) => Some(period),
            Some(TickPeriod::Parameter(index)) => {
                // For an open parameter the shortest period that its limits allow applies.
                let shortest = || manifest.parameters.get(index).and_then(|parameter| parameter.min.as_ref());
                match values.get(index) {
                    Some(Some(ParameterValue::Duration(period))) => Some((*period).max(TICK_PERIOD_MIN)),
                    Some(None) => match shortest() {
                        Some(ParameterValue::Duration(period)) => Some((*period).max(TICK_PERIOD_MIN)),
                        _ => Some(TICK_PERIOD_MIN),
                    },
                    _ => None,
                }
            }
            None => None,
        };
        let given = (manifest.parameters.as_slice(), values.as_slice());
        let layer = resolve_layer(&manifest.layer, given)?;
        let tcp = manifest.tcp.as_ref().map(|tcp| tcp.resolve(layer, given)).transpose()?;
        if let Some(tcp) = &tcp {
            let streams = tcp.config.memory();
            if streams.0.saturating_add(info.memory.0) > manifest.memory.0 {
                return Err(ModuleRefusal::StreamMemory { streams, own: info.memory, max: manifest.memory });
            }
        }
        let environment = environment(&manifest, tcp.as_ref(), &values);
        let analysis =
            weir_bounds::analyse(&module, &environment, &CostTable::standard()).map_err(|error| {
                ModuleRefusal::Invalid { offset: error.offset, reason: escaped(&error.reason) }
            })?;
        let limits = calibrated.limits();
        let comparisons = compare(&analysis, &info, &manifest, tcp.as_ref(), &calibrated.profile, &limits);
        let verdict = check_limits_of_all_tiers(&module, &info, tick, &calibrated.profile)
            .and_then(|()| cheapest_tier(&comparisons, &analysis, calibrated).map_err(ModuleRefusal::from));
        Ok(Self {
            module,
            manifest,
            values,
            info,
            layer,
            tcp,
            tick,
            calibrated: calibrated.clone(),
            analysis,
            limits,
            comparisons,
            verdict,
        })
    }

    /// Admits the module.
    ///
    /// # Errors
    /// The [`ModuleRefusal`] of the [verdict](Self::verdict), or a [`ModuleRefusal::Setting`] for an open parameter.
    pub fn admit(self) -> Result<Admitted, ModuleRefusal> {
        let tier = self.verdict.clone()?;
        let parameters = self.manifest.parameters.iter().zip(&self.values);
        let values: Result<Vec<ParameterValue>, ValueError> = parameters
            .map(|(parameter, value)| value.clone().ok_or_else(|| missing_value(parameter)))
            .collect();
        Ok(Admitted::new(tier, values?, self))
    }

    /// Returns the open parameters, which have neither a value nor a default.
    pub fn open_parameters(&self) -> impl Iterator<Item = &ModuleParameter> {
        let parameters = self.manifest.parameters.iter().zip(&self.values);
        parameters.filter(|(_, value)| value.is_none()).map(|(parameter, _)| parameter)
    }

    /// Returns in a few words why the module is not proved; `None` for a proved or refused module.
    pub fn reason_for_tier(&self) -> Option<String> {
        let asked_for = || "the profile asks for it".to_owned();
        let is_checked = matches!(self.verdict, Ok(Tier::Supervised | Tier::Metered));
        is_checked.then(|| self.worst().map_or_else(asked_for, ToString::to_string))
    }

    /// Returns the tier in which the module may run, or the refusal by the profile.
    pub fn verdict(&self) -> Result<Tier, &ModuleRefusal> {
        self.verdict.as_ref().copied()
    }

    /// Returns every bound with its limit: for each entry point, in the order in which weir calls them, and last for the
    /// module as a whole.
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons
    }

    /// Returns the bound that exceeds its limit by the highest ratio; `None` if all bounds are within their limits.
    pub fn worst(&self) -> Option<&Comparison> {
        worst(&self.comparisons)
    }

    /// Returns the bound on the work for a packet, in fuel: of the entry points for packets, the one with the highest part of
    /// its limit. `None` for a module without such an entry point.
    pub fn packet_bound(&self) -> Option<weir_bounds::Linear> {
        let is_packet = |it: &&Comparison| {
            it.resource == crate::LimitedResource::Fuel && it.entry.is_some_and(|entry| entry.packets() > 0)
        };
        let packets = self.comparisons.iter().filter(is_packet);
        packets.max_by(|one, other| one.ratio().total_cmp(&other.ratio())).map(|it| it.bound)
    }

    /// Returns the bounds that the analysis found.
    pub fn analysis(&self) -> &Analysis {
        &self.analysis
    }

    /// Returns the limits for each call, converted to fuel by the node's calibration.
    pub fn limits(&self) -> &FuelLimits {
        &self.limits
    }

    /// Returns the profile and the calibration of the assessment.
    pub fn calibrated_profile(&self) -> &CalibratedProfile {
        &self.calibrated
    }

    /// Returns the checked module: its bytes, and the contents of its sections.
    pub fn module(&self) -> &ParsedModule {
        &self.module
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the value of each parameter, in the manifest's order; `None` for an open parameter.
    pub fn values(&self) -> &[Option<ParameterValue>] {
        &self.values
    }

    /// Returns the facts about the module that the loader needs.
    pub fn info(&self) -> &ModuleInfo {
        &self.info
    }

    /// Returns the maximum private memory: the manifest's, or the profile's if that is less.
    pub fn memory(&self) -> Bytes {
        self.manifest.memory.min(self.calibrated.profile.memory)
    }

    /// Returns the TCP streams that the module follows; `None` without.
    pub fn tcp(&self) -> Option<&TcpSettings> {
        self.tcp.as_ref()
    }

    /// Returns the layer of the packets whose flows the module follows.
    pub fn layer(&self) -> StreamLayer {
        self.layer
    }

    /// Returns the period of ticks, in packet time; `None` for a module without ticks. If an open parameter sets the
    /// period, returns the shortest legal period.
    pub fn tick_period(&self) -> Option<Nanos> {
        self.tick
    }
}

/// Checks the limits of the profile that hold in every tier.
fn check_limits_of_all_tiers(
    module: &ParsedModule,
    info: &ModuleInfo,
    tick: Option<Nanos>,
    profile: &Profile,
) -> Result<(), ModuleRefusal> {
    if let Some(name) = info.imports.iter().copied().find(|name| !profile.imports.contains(name)) {
        let allowed: Vec<String> = profile.imports.iter().map(|name| format!("`{name}`")).collect();
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        return Err(ModuleRefusal::Import { name, allowed });
    }
    if info.memory > profile.memory {
        return Err(ModuleRefusal::MemoryLimit {
            given: info.memory,
            at: info.memory_declared,
            max: profile.memory,
        });
    }
    match tick {
        Some(given) if given < profile.tick_period => {
            Err(ModuleRefusal::TickPeriod { given, min: profile.tick_period })
        }
        _ => check_writes(module, profile),
    }
}

/// Refuses a module that can write packets, if the profile allows no field to be written. Otherwise the field of a write is
/// known at run time only: a write names an offset, and the headers of the packet decide what is there.
fn check_writes(module: &ParsedModule, profile: &Profile) -> Result<(), ModuleRefusal> {
    if profile.writes != WriteFields::NONE {
        return Ok(());
    }
    let (places, calls) = weir_bounds::reachable_host_calls(module, HostFunction::Patch, WRITE_PLACES_MAX)
        .map_err(|error| ModuleRefusal::Invalid { offset: error.offset, reason: escaped(&error.reason) })?;
    if calls == 0 { Ok(()) } else { Err(ModuleRefusal::Writes { places, calls }) }
}

/// Returns the cheapest tier that the bounds and the profile allow, or the excess if the profile allows none.
fn cheapest_tier(
    comparisons: &[Comparison],
    analysis: &Analysis,
    calibrated: &CalibratedProfile,
) -> Result<Tier, Box<Excess>> {
    let worst = worst(comparisons);
    let cheapest = match worst.map(Comparison::status) {
        None | Some(LimitStatus::Within) => Tier::Proved,
        Some(LimitStatus::OverWithinFactor) => Tier::Supervised,
        Some(LimitStatus::OverFactor | LimitStatus::Unbounded) => Tier::Metered,
    };
    let mut tiers = Tier::ALL.iter().copied().filter(|tier| *tier >= cheapest);
    match (tiers.find(|tier| calibrated.profile.allows(*tier)), worst) {
        (Some(tier), _) => Ok(tier),
        (None, Some(worst)) => {
            let found = worst.entry.and_then(|entry| analysis.entry(entry));
            Err(Box::new(Excess {
                comparison: *worst,
                reason: found.and_then(|found| found.unbounded.first().cloned()),
                contributor: largest_contribution(worst, analysis),
                tiers: calibrated.profile.tiers.clone(),
                calibration: calibrated.calibration.clone(),
            }))
        }
        // Only a profile without any tier leads here. It counts as a profile for metered modules, whose use is checked.
        (None, None) => Ok(Tier::Metered),
    }
}

/// Returns the bound that exceeds its limit by the highest ratio; between equal ratios, the first.
fn worst(comparisons: &[Comparison]) -> Option<&Comparison> {
    let over = comparisons.iter().filter(|comparison| comparison.status() != LimitStatus::Within);
    over.rev().max_by(|a, b| a.status().cmp(&b.status()).then_with(|| a.ratio().total_cmp(&b.ratio())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LimitedResource;
    use weir_abi::entry::EntryPoints;
    use weir_bounds::{
        CodeLocation, EntryBound, Linear, PathStep, ResourceBound, StepKind, TopContributors, UnboundedCause,
        UnboundedReason, WorkClass,
    };

    const MANIFEST: &str =
        "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '1 MiB'\n";
    const PACKET_MAX: u64 = weir_abi::limit::PACKET_BYTES as u64;

    fn info() -> ModuleInfo {
        ModuleInfo {
            entries: EntryPoints::default().with(EntryPoint::Packet),
            entry_function: 0,
            stream_function: None,
            stack_pointer: None,
            types: 0,
            globals: 0,
            functions: 0,
            memory: Bytes(64 << 10),
            memory_declared: 0,
            states: Vec::new(),
            imports: vec!["emit", "patch", "send"],
            may_be_inlined: true,
        }
    }

    fn bound(entry: EntryPoint, usage: ResourceBound) -> EntryBound {
        EntryBound {
            entry,
            usage,
            stack: Some(1000),
            shadow_stack: Some(0),
            class: WorkClass::Constant,
            unbounded: Vec::new(),
            hottest: Vec::new(),
            top: TopContributors::default(),
        }
    }

    fn place(name: &str) -> CodeLocation {
        CodeLocation { function: 3, name: Some(name.to_owned()), offset: 77, line: None }
    }

    /// The verdict of this profile on a module with this packet function.
    fn outcome(packet: EntryBound, profile: &str) -> Result<Tier, String> {
        of(&[packet], &info(), profile)
    }

    fn of(entries: &[EntryBound], info: &ModuleInfo, profile: &str) -> Result<Tier, String> {
        let analysis = Analysis {
            entries: entries.to_vec(),
            loops: Vec::new(),
            calls: Vec::new(),
            host_calls: Vec::new(),
        };
        let calibrated = CalibratedProfile::from(Profile::parse(profile).unwrap());
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let limits = calibrated.limits();
        let comparisons = compare(&analysis, info, &manifest, None, &calibrated.profile, &limits);
        cheapest_tier(&comparisons, &analysis, &calibrated).map_err(|excess| excess.to_string())
    }

    fn fuel(constant: u64, per_kib: u64) -> EntryBound {
        bound(
            EntryPoint::Packet,
            ResourceBound { fuel: Linear { constant, per_kib }, ..ResourceBound::NOTHING },
        )
    }

    /// A profile in which 1 us is 4000 units of fuel, and 1 ns per byte is 4096 per KiB.
    const STRICT: &str = "packet = '1us'\nper-byte = '1ns'\n";

    #[test]
    fn the_tier_changes_exactly_at_the_limit_and_at_its_multiple() {
        for (constant, per_kib, tier) in [
            (0, 0, Tier::Proved),
            (4_000, 4096, Tier::Proved),
            (4_001, 0, Tier::Supervised),
            (0, 4097, Tier::Supervised),
            // A lower constant for short packets does not make up for a steeper slope.
            (4_000, 4097, Tier::Supervised),
            (160_000, 40 * 4096, Tier::Supervised),
            (160_001, 0, Tier::Metered),
            (0, 40 * 4096 + 10, Tier::Metered),
            (u64::MAX - 1, u64::MAX - 1, Tier::Metered),
            (u64::MAX, 0, Tier::Metered),
        ] {
            assert_eq!(outcome(fuel(constant, per_kib), STRICT), Ok(tier), "{constant} + {per_kib}/KiB");
        }
        // A steeper slope is within the limit as long as the longest packet is.
        let slack = 16 * 4096;
        let limit = format!("packet = '{}ns'\nper-byte = '0ns'\n", PACKET_MAX * 16);
        assert_eq!(outcome(fuel(0, slack), &limit), Ok(Tier::Proved));
        assert_eq!(outcome(fuel(1, slack), &limit), Ok(Tier::Supervised));
    }

    #[test]
    fn the_tiers_that_a_profile_allows_are_taken_in_the_order_of_their_cost() {
        let [within, over, beyond] = [1_000, 5_000, 500_000].map(|constant| fuel(constant, 0));
        let run =
            |bound: &EntryBound, tiers: &str| outcome(bound.clone(), &format!("{STRICT}tiers = {tiers}"));
        assert_eq!(run(&within, "['metered']"), Ok(Tier::Metered));
        assert_eq!(run(&within, "['metered', 'supervised']"), Ok(Tier::Supervised));
        assert_eq!(run(&over, "['proved', 'metered']"), Ok(Tier::Metered));
        assert_eq!(run(&over, "['supervised']"), Ok(Tier::Supervised));
        assert!(run(&over, "['proved']").is_err());
        assert!(run(&beyond, "['proved', 'supervised']").is_err());
    }

    #[test]
    fn each_resource_has_its_limit() {
        let usage = |change: fn(&mut EntryBound)| {
            let mut bound = fuel(1, 0);
            change(&mut bound);
            bound
        };
        let three = Linear::constant(3);
        let records = usage(|bound| bound.usage.records = Linear::constant(3));
        let patches = usage(|bound| bound.usage.patches = Linear::constant(3));
        let pages = usage(|bound| bound.usage.pages = Linear::constant(3));
        let frames = usage(|bound| bound.usage.frames = Linear::constant(3));
        let stack = usage(|bound| bound.stack = Some(3000));
        let shadow = usage(|bound| bound.shadow_stack = Some(3000));
        for (bound, key, within, over, beyond) in [
            (&records, "records", "3", "2", "0"),
            (&patches, "patches", "3", "1", "0"),
            (&frames, "frames", "3", "2", "0"),
            (&pages, "pages", "3", "2", "0"),
            (&stack, "stack", "'3000'", "'2999'", "'299'"),
            (&shadow, "shadow-stack", "'3000'", "'300'", "'299'"),
        ] {
            for (limit, tier) in [(within, Tier::Proved), (over, Tier::Supervised), (beyond, Tier::Metered)] {
                assert_eq!(outcome(bound.clone(), &format!("{key} = {limit}")), Ok(tier), "{key} = {limit}");
            }
        }
        assert_eq!(three.at(0), 3);
        // A module that asks for pages with each packet ends with all that its manifest allows, 1 MiB.
        assert_eq!(outcome(pages.clone(), "memory = '1 MiB'"), Ok(Tier::Proved));
        assert_eq!(outcome(pages.clone(), "memory = '960 KiB'"), Ok(Tier::Supervised));
        assert_eq!(outcome(pages, "memory = '64 KiB'"), Ok(Tier::Metered));
        // A module that grows only at the start has the pages that it asked for there.
        let info = ModuleInfo { entries: info().entries.with(EntryPoint::Start), ..info() };
        let start = |pages| {
            bound(
                EntryPoint::Start,
                ResourceBound { pages: Linear::constant(pages), ..ResourceBound::NOTHING },
            )
        };
        assert_eq!(of(&[start(1), fuel(1, 0)], &info, "memory = '128 KiB'"), Ok(Tier::Proved));
        assert_eq!(of(&[start(2), fuel(1, 0)], &info, "memory = '128 KiB'"), Ok(Tier::Supervised));
    }

    #[test]
    fn where_the_host_has_a_maximum_a_missing_bound_counts_as_the_maximum() {
        let mut unknown = fuel(1, 0);
        unknown.usage.records = Linear::per_byte(1);
        unknown.usage.patches = Linear::UNBOUNDED;
        unknown.stack = None;
        unknown.shadow_stack = None;
        assert_eq!(outcome(unknown.clone(), ""), Ok(Tier::Proved));
        assert_eq!(outcome(unknown.clone(), "records = 16"), Ok(Tier::Supervised));
        assert_eq!(outcome(unknown, "stack = '256 KiB'"), Ok(Tier::Supervised));
    }

    #[test]
    fn a_host_function_that_is_not_imported_counts_as_never_called() {
        let mut unknown = fuel(1, 0);
        (unknown.usage.records, unknown.usage.patches) = (Linear::UNBOUNDED, Linear::UNBOUNDED);
        unknown.usage.frames = Linear::UNBOUNDED;
        let with = |imports: Vec<&'static str>| ModuleInfo { imports, ..info() };
        for (imports, of_records, of_patches, of_frames) in [
            (vec![], Tier::Proved, Tier::Proved, Tier::Proved),
            (vec!["emit"], Tier::Metered, Tier::Proved, Tier::Proved),
            (vec!["patch", "hash"], Tier::Proved, Tier::Metered, Tier::Proved),
            (vec!["send"], Tier::Proved, Tier::Proved, Tier::Metered),
        ] {
            let by = |profile| of(&[unknown.clone()], &with(imports.clone()), profile);
            assert_eq!(
                (by("records = 0"), by("patches = 0"), by("frames = 0")),
                (Ok(of_records), Ok(of_patches), Ok(of_frames)),
                "{imports:?}"
            );
        }
    }

    #[test]
    fn an_entry_point_that_the_analysis_does_not_know_is_never_proved() {
        assert_eq!(of(&[], &info(), ""), Ok(Tier::Metered));
        let info = ModuleInfo { entries: info().entries.with(EntryPoint::Tick), ..info() };
        assert_eq!(of(&[fuel(1, 0)], &info, ""), Ok(Tier::Metered));
        let tick = bound(EntryPoint::Tick, ResourceBound::fuel(800_000_000));
        assert_eq!(of(&[fuel(1, 0), tick], &info, ""), Ok(Tier::Proved));
        let tick = bound(EntryPoint::Tick, ResourceBound::fuel(800_000_001));
        assert_eq!(of(&[fuel(1, 0), tick], &info, ""), Ok(Tier::Supervised));
    }

    #[test]
    fn the_limit_for_a_batch_is_the_sum_over_its_packets() {
        let info = ModuleInfo { entries: EntryPoints::default().with(EntryPoint::Batch), ..info() };
        let batch = |constant| bound(EntryPoint::Batch, ResourceBound::fuel(constant));
        assert_eq!(of(&[batch(64 * 4_000)], &info, STRICT), Ok(Tier::Proved));
        assert_eq!(of(&[batch(64 * 4_000 + 1)], &info, STRICT), Ok(Tier::Supervised));
    }

    #[test]
    fn a_refusal_names_the_limit_the_bound_and_what_contributes_most() {
        let strict = format!("{STRICT}tiers = ['proved']");
        let mut hot = fuel(10_000, 2048);
        let step = |name: &str, kind| PathStep { place: place(name), kind, amount: Linear::constant(9_000) };
        hot.hottest = vec![
            step("weir_packet", StepKind::Call("scan".to_owned())),
            step("scan", StepKind::Loop(Linear::constant(1500))),
        ];
        assert_eq!(
            outcome(hot.clone(), &strict).unwrap_err(),
            "weir_packet takes up to 2.5 us + 0.5 ns/byte (10000 + 2/byte fuel), 2.5 times its limit; the profile allows 1 us + 1 ns/byte \
             (4000 + 4/byte fuel) by `packet` and `per-byte`, and only proved modules; most of it is the loop in scan (byte 77), at most 1500 \
             times; with \"supervised\" among its `tiers` the module would run, up to 40 times the limit \
             (this node is not calibrated)"
        );
        hot.hottest = vec![step("weir_packet", StepKind::Host("find_compile"))];
        let message = outcome(hot.clone(), &strict).unwrap_err();
        assert!(
            message.contains("most of it is the call of `find_compile` in weir_packet (byte 77)"),
            "{message}"
        );
        hot.hottest = vec![step("weir_packet", StepKind::Bulk)];
        let message = outcome(hot.clone(), &strict).unwrap_err();
        assert!(
            message.contains("most of it is the copy or fill of memory in weir_packet (byte 77)"),
            "{message}"
        );
        hot.hottest = vec![step("weir_packet", StepKind::Call("other".to_owned()))];
        let message = outcome(hot, &strict).unwrap_err();
        assert!(message.contains("most of it is the call of other in weir_packet (byte 77)"), "{message}");

        let mut endless = fuel(u64::MAX, 0);
        endless.unbounded = vec![UnboundedReason { place: place("scan"), cause: UnboundedCause::Endless }];
        assert_eq!(
            outcome(endless, &strict).unwrap_err(),
            "weir_packet has no bound on its time: scan (byte 77): this loop has no way out: add one, remove the loop, or \
             count it with WEIR_FOR(MAX, ...) in C or .bounded::<MAX>() in Rust; the profile \
             allows 1 us + 1 ns/byte (4000 + 4/byte fuel) by `packet` and `per-byte`, and only proved modules; with \"metered\" among its \
             `tiers` the module would run (this node is not calibrated)"
        );

        let mut records = fuel(1, 0);
        records.usage.records = Linear::constant(3);
        assert_eq!(
            outcome(records.clone(), "tiers = ['proved']\nrecords = 2").unwrap_err(),
            "weir_packet uses up to 3 records, 1.5 times its limit; the profile allows 2 by `records`, and only proved modules; with \
             \"supervised\" among its `tiers` the module would run, up to 10 times the limit"
        );
        assert_eq!(
            outcome(records, "tiers = ['proved', 'supervised']\nrecords = 0").unwrap_err(),
            "weir_packet uses up to 3 records; the profile allows 0 by `records`, and only proved and supervised modules; with \
             \"metered\" among its `tiers` the module would run"
        );
    }

    #[test]
    fn a_refusal_names_the_place_for_every_resource() {
        let step = |kind, amount| PathStep { place: place("scan"), kind, amount };
        let three = Linear::constant(3);
        let mut all = fuel(1, 0);
        all.usage =
            ResourceBound { records: three, patches: three, frames: three, pages: three, ..all.usage };
        (all.stack, all.shadow_stack) = (Some(3000), Some(3000));
        all.top = TopContributors {
            records: Some(step(StepKind::Host("emit"), three)),
            patches: Some(step(StepKind::Loop(three), three)),
            frames: Some(step(StepKind::Host("send"), three)),
            pages: Some(step(StepKind::Grow, three)),
            stack: Some(step(StepKind::StackFrame, Linear::constant(2048))),
            shadow_stack: Some(step(StepKind::ShadowStackFrame, Linear::constant(1024))),
        };
        let refused = |bound: &EntryBound, profile: &str| {
            outcome(bound.clone(), &format!("tiers = ['proved']\n{profile}")).unwrap_err()
        };
        for (profile, words) in [
            ("records = 2", "most of it is the call of `emit` in scan (byte 77); with"),
            ("patches = 2", "most of it is the loop in scan (byte 77), at most 3 times; with"),
            ("frames = 2", "most of it is the call of `send` in scan (byte 77); with"),
            ("pages = 2", "most of it is the `memory.grow` in scan (byte 77); with"),
            ("stack = '2999'", "most of it is what scan (byte 77) takes, 2 KiB; with"),
            ("shadow-stack = '2999'", "most of it is what scan (byte 77) takes, 1 KiB; with"),
            ("memory = '128 KiB'", "most of it is the `memory.grow` in scan (byte 77); with"),
        ] {
            let message = refused(&all, profile);
            assert!(message.contains(words), "{profile}: {message}");
        }
        // The amount is known only at run time, or a function calls itself, so that there is none.
        (all.stack, all.shadow_stack) = (None, None);
        all.top.stack = Some(step(StepKind::StackFrame, Linear::UNBOUNDED));
        all.top.shadow_stack = Some(step(StepKind::ShadowStackFrame, Linear::UNBOUNDED));
        for (profile, words) in [
            ("stack = '2999'", "most of it is what scan (byte 77) calls again and again; with"),
            (
                "shadow-stack = '2999'",
                "most of it is what scan (byte 77) takes, which is only known when it runs; with",
            ),
        ] {
            let message = refused(&all, profile);
            assert!(message.contains(words), "{profile}: {message}");
        }
    }

    #[test]
    fn the_short_reason_names_the_bound_that_is_furthest_over_its_limit() {
        let words = |bound: &EntryBound, profile: &str| {
            let analysis = Analysis {
                entries: vec![bound.clone()],
                loops: Vec::new(),
                calls: Vec::new(),
                host_calls: Vec::new(),
            };
            let profile = Profile::parse(profile).unwrap();
            let limits = profile.limits(&Calibration::default());
            let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
            let comparisons = compare(&analysis, &info(), &manifest, None, &profile, &limits);
            worst(&comparisons).map(ToString::to_string)
        };
        assert_eq!(words(&fuel(1, 0), ""), None);
        assert_eq!(words(&fuel(4_001, 0), STRICT).as_deref(), Some("weir_packet: 1.1 x its time"));
        assert_eq!(words(&fuel(400_000, 0), STRICT).as_deref(), Some("weir_packet: 100 x its time"));
        assert_eq!(words(&fuel(u64::MAX, 0), STRICT).as_deref(), Some("weir_packet: no bound on its time"));
        let mut both = fuel(6_000, 0);
        both.usage.records = Linear::constant(4);
        assert_eq!(
            words(&both, &format!("{STRICT}records = 2")).as_deref(),
            Some("weir_packet: 2.0 x its records")
        );
        assert_eq!(
            words(&both, &format!("{STRICT}records = 0")).as_deref(),
            Some("weir_packet: records, where none may be used")
        );
        let memory = Comparison {
            entry: None,
            resource: LimitedResource::Memory,
            bound: Linear::constant(3 << 20),
            limit: Linear::constant(2 << 20),
            factor: 10,
        };
        assert_eq!(memory.to_string(), "1.5 x its memory");
    }
}
