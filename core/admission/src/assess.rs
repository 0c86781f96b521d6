//! What a module may use, held against what it is let: the whole answer, whether it is admitted or not.

use crate::admit::{missing, read, values};
use crate::compare::compare;
use crate::environment::environment;
use crate::excess::most;
use crate::{
    Admitted, Calibration, Comparison, Excess, FuelLimits, LimitStatus, Manifest, ModuleInfo,
    ModuleParameter, ModuleRefusal, ParameterSetting, ParameterValue, Profile, TickPeriod, Tier, ValueError,
    shown,
};
use weir_bounds::{Analysis, CostTable, EntryPoint, ParsedModule};
use weir_units::{Bytes, Nanos};

/// Ticks come no faster, whatever a parameter asks for.
const TICK_PERIOD_MIN: Nanos = Nanos(1_000);

/// By what modules are admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionTerms {
    /// What they may use.
    pub profile: Profile,
    /// How long fuel takes on this node.
    pub calibration: Calibration,
}

/// A valid module with its values, its bounds and its limits; and in which tier it may run, or why it may not.
///
/// Owns what was looked at, so that there is nothing between the look and the use.
#[derive(Clone, Debug)]
pub struct Assessment {
    module: ParsedModule,
    manifest: Manifest,
    values: Vec<Option<ParameterValue>>,
    facts: ModuleInfo,
    tick: Option<Nanos>,
    terms: AdmissionTerms,
    analysis: Analysis,
    limits: FuelLimits,
    comparisons: Vec<Comparison>,
    verdict: Result<Tier, ModuleRefusal>,
}

impl Assessment {
    /// Checks a module's bytes (WebAssembly, imports, exports, manifest) and the settings for it, and finds its bounds.
    ///
    /// # Errors
    /// A [`ModuleRefusal`] for the first thing that is wrong whatever the profile says. What the profile has against it is in the
    /// [verdict](Self::verdict).
    pub fn of(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        terms: &AdmissionTerms,
    ) -> Result<Self, ModuleRefusal> {
        let (module, manifest, facts) = read(bytes)?;
        let values = values(&manifest, settings)?;
        match manifest.parameters.iter().zip(&values).find(|(_, value)| value.is_none()) {
            Some((parameter, _)) => Err(missing(parameter).into()),
            None => Self::look(module, manifest, facts, values, terms),
        }
    }

    /// As [`of`](Self::of), but a parameter that must be given and is not is left open: the bounds hold for whatever value may be given for it. It
    /// is not [admitted](Self::admit) so.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_open(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        terms: &AdmissionTerms,
    ) -> Result<Self, ModuleRefusal> {
        let (module, manifest, facts) = read(bytes)?;
        let values = values(&manifest, settings)?;
        Self::look(module, manifest, facts, values, terms)
    }

    fn look(
        module: ParsedModule,
        manifest: Manifest,
        facts: ModuleInfo,
        values: Vec<Option<ParameterValue>>,
        terms: &AdmissionTerms,
    ) -> Result<Self, ModuleRefusal> {
        let tick = match manifest.tick {
            _ if !facts.entries.has(EntryPoint::Tick) => None,
            Some(TickPeriod::Every(period)) => Some(period),
            Some(TickPeriod::Parameter(index)) => {
                // The shortest of all that it may be.
                let least = || manifest.parameters.get(index).and_then(|parameter| parameter.min.as_ref());
                match values.get(index) {
                    Some(Some(ParameterValue::Duration(period))) => Some((*period).max(TICK_PERIOD_MIN)),
                    Some(None) => match least() {
                        Some(ParameterValue::Duration(period)) => Some((*period).max(TICK_PERIOD_MIN)),
                        _ => Some(TICK_PERIOD_MIN),
                    },
                    _ => None,
                }
            }
            None => None,
        };
        let environment = environment(&manifest, &values);
        let analysis = weir_bounds::analyse(&module, &environment, &CostTable::standard())
            .map_err(|error| ModuleRefusal::Invalid { offset: error.offset, reason: shown(&error.reason) })?;
        let limits = terms.profile.limits(&terms.calibration);
        let comparisons = compare(&analysis, &facts, &manifest, &terms.profile, &limits);
        let verdict = allowed(&facts, tick, &terms.profile)
            .and_then(|()| tier(&comparisons, &analysis, terms).map_err(ModuleRefusal::from));
        Ok(Self {
            module,
            manifest,
            values,
            facts,
            tick,
            terms: terms.clone(),
            analysis,
            limits,
            comparisons,
            verdict,
        })
    }

    /// Admits the module by what was found.
    ///
    /// # Errors
    /// The [`ModuleRefusal`] of the [verdict](Self::verdict); or that a parameter was left open.
    pub fn admit(self) -> Result<Admitted, ModuleRefusal> {
        let tier = self.verdict.clone()?;
        let parameters = self.manifest.parameters.iter().zip(&self.values);
        let values: Result<Vec<ParameterValue>, ValueError> =
            parameters.map(|(parameter, value)| value.clone().ok_or_else(|| missing(parameter))).collect();
        Ok(Admitted::new(tier, values?, self))
    }

    /// The parameters that were left open.
    pub fn open(&self) -> impl Iterator<Item = &ModuleParameter> {
        let parameters = self.manifest.parameters.iter().zip(&self.values);
        parameters.filter(|(_, value)| value.is_none()).map(|(parameter, _)| parameter)
    }

    /// Why it is not proved, in a few words; `None` where it is, or is refused.
    pub fn why(&self) -> Option<String> {
        let forced = || "the profile asks for it".to_owned();
        let is_checked = matches!(self.verdict, Ok(Tier::Supervised | Tier::Metered));
        is_checked.then(|| self.worst().map_or_else(forced, ToString::to_string))
    }

    /// The tier that it would run in, or what the profile has against it.
    pub fn verdict(&self) -> Result<Tier, &ModuleRefusal> {
        self.verdict.as_ref().copied()
    }

    /// Every bound beside its limit: by entry point, in the order in which weir calls them, and last for the module as a whole.
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons
    }

    /// What is furthest over its limit; `None` where nothing is.
    pub fn worst(&self) -> Option<&Comparison> {
        worst(&self.comparisons)
    }

    /// What was found about its bytes.
    pub fn analysis(&self) -> &Analysis {
        &self.analysis
    }

    /// What a call of it may use, in fuel of this node.
    pub fn limits(&self) -> &FuelLimits {
        &self.limits
    }

    /// What it was held against.
    pub fn terms(&self) -> &AdmissionTerms {
        &self.terms
    }

    /// The module's bytes, as they were checked, with what its sections say.
    pub fn module(&self) -> &ParsedModule {
        &self.module
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The value of each parameter, in the manifest's order; `None` where it was left open.
    pub fn values(&self) -> &[Option<ParameterValue>] {
        &self.values
    }

    /// What the loader needs to know.
    pub fn facts(&self) -> &ModuleInfo {
        &self.facts
    }

    /// The most private memory it may have: what it asks for, as far as the profile allows it.
    pub fn memory(&self) -> Bytes {
        self.manifest.memory.min(self.terms.profile.memory)
    }

    /// The period of its ticks in packet time, if it has them; the shortest that can be, where the parameter that gives it was left open.
    pub fn tick(&self) -> Option<Nanos> {
        self.tick
    }
}

/// What no tier can make up for.
fn allowed(facts: &ModuleInfo, tick: Option<Nanos>, profile: &Profile) -> Result<(), ModuleRefusal> {
    if let Some(name) = facts.imports.iter().copied().find(|name| !profile.imports.contains(name)) {
        let allowed: Vec<String> = profile.imports.iter().map(|name| format!("`{name}`")).collect();
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        return Err(ModuleRefusal::Import { name, allowed });
    }
    if facts.memory > profile.memory {
        return Err(ModuleRefusal::MemoryLimit {
            given: facts.memory,
            at: facts.memory_declared,
            max: profile.memory,
        });
    }
    match tick {
        Some(given) if given < profile.tick_period => {
            Err(ModuleRefusal::TickPeriod { given, min: profile.tick_period })
        }
        _ => Ok(()),
    }
}

/// The cheapest tier that the bounds and the profile allow.
fn tier(
    comparisons: &[Comparison],
    analysis: &Analysis,
    terms: &AdmissionTerms,
) -> Result<Tier, Box<Excess>> {
    let worst = worst(comparisons);
    let cheapest = match worst.map(Comparison::standing) {
        None | Some(LimitStatus::Within) => Tier::Proved,
        Some(LimitStatus::Over) => Tier::Supervised,
        Some(LimitStatus::Beyond | LimitStatus::Unbounded) => Tier::Metered,
    };
    let mut tiers = Tier::ALL.iter().copied().filter(|tier| *tier >= cheapest);
    match (tiers.find(|tier| terms.profile.allows(*tier)), worst) {
        (Some(tier), _) => Ok(tier),
        (None, Some(worst)) => {
            let found = worst.entry.and_then(|entry| analysis.entry(entry));
            Err(Box::new(Excess {
                comparison: *worst,
                reason: found.and_then(|found| found.unbounded.first().cloned()),
                most: most(worst, analysis),
                tiers: terms.profile.tiers.clone(),
                calibration: terms.calibration.clone(),
            }))
        }
        // A profile that allows no tier at all allows the dearest: no check is left out for it.
        (None, None) => Ok(Tier::Metered),
    }
}

/// What is furthest over its limit; the first of its kind.
fn worst(comparisons: &[Comparison]) -> Option<&Comparison> {
    let over = comparisons.iter().filter(|comparison| comparison.standing() != LimitStatus::Within);
    over.rev().max_by(|a, b| a.standing().cmp(&b.standing()).then_with(|| a.times().total_cmp(&b.times())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LimitedResource;
    use weir_abi::entry::EntryPoints;
    use weir_bounds::{
        CodeLocation, EntryBound, Linear, PathStep, ResourceBound, TopContributor, UnboundedReason, What,
        Why, WorkClass,
    };

    const MANIFEST: &str =
        "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '1 MiB'\n";
    const PACKET_MAX: u64 = weir_abi::limit::PACKET_BYTES as u64;

    fn facts() -> ModuleInfo {
        ModuleInfo {
            entries: EntryPoints::default().with(EntryPoint::Packet),
            entry_function: 0,
            stack_pointer: None,
            types: 0,
            globals: 0,
            functions: 0,
            memory: Bytes(64 << 10),
            memory_declared: 0,
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
            most: TopContributor::default(),
        }
    }

    fn place(name: &str) -> CodeLocation {
        CodeLocation { function: 3, name: Some(name.to_owned()), offset: 77, line: None }
    }

    /// What a module with this packet function is told by this profile.
    fn outcome(packet: EntryBound, profile: &str) -> Result<Tier, String> {
        of(&[packet], &facts(), profile)
    }

    fn of(entries: &[EntryBound], facts: &ModuleInfo, profile: &str) -> Result<Tier, String> {
        let analysis = Analysis {
            entries: entries.to_vec(),
            loops: Vec::new(),
            calls: Vec::new(),
            host_calls: Vec::new(),
        };
        let terms = AdmissionTerms { profile: Profile::parse(profile).unwrap(), ..AdmissionTerms::default() };
        let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
        let limits = terms.profile.limits(&terms.calibration);
        let comparisons = compare(&analysis, facts, &manifest, &terms.profile, &limits);
        tier(&comparisons, &analysis, &terms).map_err(|excess| excess.to_string())
    }

    fn fuel(constant: u64, per_kib: u64) -> EntryBound {
        bound(
            EntryPoint::Packet,
            ResourceBound { fuel: Linear { constant, per_kib }, ..ResourceBound::NOTHING },
        )
    }

    /// 1 us are 4000 units of fuel, 1 ns a byte are 4096 a KiB.
    const STRICT: &str = "packet = '1us'\nper-byte = '1ns'\n";

    #[test]
    fn the_tier_changes_exactly_at_the_limit_and_at_its_multiple() {
        for (constant, per_kib, tier) in [
            (0, 0, Tier::Proved),
            (4_000, 4096, Tier::Proved),
            (4_001, 0, Tier::Supervised),
            (0, 4097, Tier::Supervised),
            // Less for short packets does not make up for more for long ones.
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
        // What asks for pages with each packet has all that it may have at last: 1 MiB of its manifest.
        assert_eq!(outcome(pages.clone(), "memory = '1 MiB'"), Ok(Tier::Proved));
        assert_eq!(outcome(pages.clone(), "memory = '960 KiB'"), Ok(Tier::Supervised));
        assert_eq!(outcome(pages, "memory = '64 KiB'"), Ok(Tier::Metered));
        // What grows only at the start has what it asked for there.
        let facts = ModuleInfo { entries: facts().entries.with(EntryPoint::Start), ..facts() };
        let start = |pages| {
            bound(
                EntryPoint::Start,
                ResourceBound { pages: Linear::constant(pages), ..ResourceBound::NOTHING },
            )
        };
        assert_eq!(of(&[start(1), fuel(1, 0)], &facts, "memory = '128 KiB'"), Ok(Tier::Proved));
        assert_eq!(of(&[start(2), fuel(1, 0)], &facts, "memory = '128 KiB'"), Ok(Tier::Supervised));
    }

    #[test]
    fn what_the_host_gives_nobody_more_of_needs_no_bound_of_the_analysis() {
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
    fn what_a_module_cannot_ask_for_it_does_not_get() {
        let mut unknown = fuel(1, 0);
        (unknown.usage.records, unknown.usage.patches) = (Linear::UNBOUNDED, Linear::UNBOUNDED);
        unknown.usage.frames = Linear::UNBOUNDED;
        let with = |imports: Vec<&'static str>| ModuleInfo { imports, ..facts() };
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
        assert_eq!(of(&[], &facts(), ""), Ok(Tier::Metered));
        let facts = ModuleInfo { entries: facts().entries.with(EntryPoint::Tick), ..facts() };
        assert_eq!(of(&[fuel(1, 0)], &facts, ""), Ok(Tier::Metered));
        let tick = bound(EntryPoint::Tick, ResourceBound::fuel(800_000_000));
        assert_eq!(of(&[fuel(1, 0), tick], &facts, ""), Ok(Tier::Proved));
        let tick = bound(EntryPoint::Tick, ResourceBound::fuel(800_000_001));
        assert_eq!(of(&[fuel(1, 0), tick], &facts, ""), Ok(Tier::Supervised));
    }

    #[test]
    fn a_batch_may_use_what_its_packets_may() {
        let facts = ModuleInfo { entries: EntryPoints::default().with(EntryPoint::Batch), ..facts() };
        let batch = |constant| bound(EntryPoint::Batch, ResourceBound::fuel(constant));
        assert_eq!(of(&[batch(64 * 4_000)], &facts, STRICT), Ok(Tier::Proved));
        assert_eq!(of(&[batch(64 * 4_000 + 1)], &facts, STRICT), Ok(Tier::Supervised));
    }

    #[test]
    fn a_refusal_names_the_limit_the_bound_and_what_contributes_most() {
        let strict = format!("{STRICT}tiers = ['proved']");
        let mut hot = fuel(10_000, 2048);
        let step = |name: &str, what| PathStep { place: place(name), what, amount: Linear::constant(9_000) };
        hot.hottest = vec![
            step("weir_packet", What::Call("scan".to_owned())),
            step("scan", What::Loop(Linear::constant(1500))),
        ];
        assert_eq!(
            outcome(hot.clone(), &strict).unwrap_err(),
            "weir_packet takes up to 2.5 us + 0.5 ns/byte (10000 + 2/byte fuel), 2.5 times its limit; the profile allows 1 us + 1 ns/byte \
             (4000 + 4/byte fuel) by `packet` and `per-byte`, and only proved modules; most of it is the loop in scan (byte 77), at most 1500 \
             times; with \"supervised\" among its `tiers` the module would run, up to 40 times the limit \
             (this node is not calibrated)"
        );
        hot.hottest = vec![step("weir_packet", What::Host("find_compile"))];
        let message = outcome(hot.clone(), &strict).unwrap_err();
        assert!(
            message.contains("most of it is the call of `find_compile` in weir_packet (byte 77)"),
            "{message}"
        );
        hot.hottest = vec![step("weir_packet", What::Bulk)];
        let message = outcome(hot.clone(), &strict).unwrap_err();
        assert!(
            message.contains("most of it is the copy or fill of memory in weir_packet (byte 77)"),
            "{message}"
        );
        hot.hottest = vec![step("weir_packet", What::Call("other".to_owned()))];
        let message = outcome(hot, &strict).unwrap_err();
        assert!(message.contains("most of it is the call of other in weir_packet (byte 77)"), "{message}");

        let mut endless = fuel(u64::MAX, 0);
        endless.unbounded = vec![UnboundedReason { place: place("scan"), why: Why::Endless }];
        assert_eq!(
            outcome(endless, &strict).unwrap_err(),
            "weir_packet has no bound on its time: scan (byte 77): this loop has no way out: add one, or remove the loop; the profile \
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
    fn a_refusal_names_the_place_whatever_it_is_that_is_exceeded() {
        let step = |what, amount| PathStep { place: place("scan"), what, amount };
        let three = Linear::constant(3);
        let mut all = fuel(1, 0);
        all.usage =
            ResourceBound { records: three, patches: three, frames: three, pages: three, ..all.usage };
        (all.stack, all.shadow_stack) = (Some(3000), Some(3000));
        all.most = TopContributor {
            records: Some(step(What::Host("emit"), three)),
            patches: Some(step(What::Loop(three), three)),
            frames: Some(step(What::Host("send"), three)),
            pages: Some(step(What::Grow, three)),
            stack: Some(step(What::Frame, Linear::constant(2048))),
            shadow_stack: Some(step(What::Locals, Linear::constant(1024))),
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
        // Where the amount is only known when it runs, or there is none because a function calls itself.
        (all.stack, all.shadow_stack) = (None, None);
        all.most.stack = Some(step(What::Frame, Linear::UNBOUNDED));
        all.most.shadow_stack = Some(step(What::Locals, Linear::UNBOUNDED));
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
    fn a_few_words_say_what_is_furthest_over_its_limit() {
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
            let comparisons = compare(&analysis, &facts(), &manifest, &profile, &limits);
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
