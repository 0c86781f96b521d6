//! The price of safety: the cost of a sandboxed module, compared with that of the same source compiled natively. The part
//! `price` of the benchmark.

use crate::comparison::{Clock, MeasuredBuild, ModuleBuild, OutputDigest, Repetitions, compare_builds};
use crate::criterion::{self, Criterion};
use crate::error::LabError;
use crate::module::{Class, Module};
use crate::native::{Build, Compiler, Native, Space};
use crate::packets::{Packets, ReadyBatch, packets_of, ticks};
use crate::paths;
use crate::sandboxed::{self, Sandboxed};
use crate::statistics::Sample;
use crate::table::Table;
use std::fmt::Write as _;
use std::path::Path;
use weir_admission::Tier;
use weir_sandbox::{BackEnd, CheckMode, Engine, EngineOptions, WasmtimeCheck};

/// A way to build and run a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildKind {
    /// In the sandbox as by `weir run`, in the tier that admission gives it.
    Sandbox,
    /// In the sandbox with the checks of a tier.
    Tier(Tier),
    /// In the sandbox with the checks of a tier, in verified code of LLVM.
    Verified(Tier),
    /// In the sandbox with wasmtime's checks in place of weir's.
    Wasmtime(WasmtimeCheck),
    /// Natively by clang, -O3.
    Clang(Build),
    /// Natively by gcc, -O3.
    Gcc(Build),
}

/// Native builds, by the options that differ from the plain one.
const PLAIN: Build = Build { this_processor: false, one_unit: false, naive_find: false };
const THIS_PROCESSOR: Build = Build { this_processor: true, ..PLAIN };
const ONE_UNIT: Build = Build { one_unit: true, ..PLAIN };
const NAIVE: Build = Build { naive_find: true, ..PLAIN };
const PROVED: BuildKind = BuildKind::Tier(Tier::Proved);
const VERIFIED: BuildKind = BuildKind::Verified(Tier::Proved);
const VERIFIED_METERED: BuildKind = BuildKind::Verified(Tier::Metered);

impl BuildKind {
    /// All kinds for a module of this class, with the available compilers.
    pub fn all(class: Class, clang: bool, gcc: bool) -> Vec<Self> {
        let mut all = vec![Self::Sandbox];
        all.extend(Tier::ALL.iter().map(|tier| Self::Tier(*tier)));
        all.extend([Self::Wasmtime(WasmtimeCheck::Fuel), Self::Wasmtime(WasmtimeCheck::Epochs)]);
        if clang {
            all.extend([VERIFIED, VERIFIED_METERED]);
            all.extend([Self::CLANG, Self::Clang(THIS_PROCESSOR), Self::Clang(ONE_UNIT)]);
        }
        if gcc {
            all.extend([Self::GCC, Self::Gcc(THIS_PROCESSOR)]);
        }
        if clang && class == Class::Search {
            all.push(Self::Clang(NAIVE));
        }
        all
    }

    /// The kinds whose instructions are counted. Builds with `-march=native` are left out, because valgrind does not know all
    /// of their instructions.
    pub const COUNTED: [Self; 5] =
        [PROVED, Self::Tier(Tier::Supervised), Self::Tier(Tier::Metered), Self::CLANG, Self::GCC];

    /// Natively by clang -O3, without further options.
    pub const CLANG: Self = Self::Clang(PLAIN);
    /// Natively by gcc -O3, without further options.
    pub const GCC: Self = Self::Gcc(PLAIN);

    /// In the sandbox with the checks of a tier, in the code of a back end.
    pub const fn in_tier(back_end: BackEnd, tier: Tier) -> Self {
        match back_end {
            BackEnd::Cranelift => Self::Tier(tier),
            BackEnd::Llvm => Self::Verified(tier),
        }
    }

    /// All sandboxed kinds, with those in verified code if clang is available.
    fn sandboxed(clang: bool) -> Vec<Self> {
        let mut kinds = Self::all(Class::Empty, false, false);
        if clang {
            kinds.extend(Tier::ALL.iter().map(|tier| Self::Verified(*tier)));
        }
        kinds
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Tier(tier) => tier.name(),
            Self::Verified(Tier::Proved) => "verified, proved",
            Self::Verified(Tier::Supervised) => "verified, supervised",
            Self::Verified(Tier::Metered) => "verified, metered",
            Self::Verified(Tier::Unmetered) => "verified, unmetered",
            Self::Wasmtime(WasmtimeCheck::Fuel) => "wasmtime fuel",
            Self::Wasmtime(WasmtimeCheck::Epochs) => "wasmtime epochs",
            Self::Clang(Build { naive_find: true, .. }) => "clang, byte loop",
            Self::Clang(Build { one_unit: true, .. }) => "clang, inlined",
            Self::Clang(Build { this_processor: true, .. }) => "clang -march=native",
            Self::Clang(_) => "clang",
            Self::Gcc(Build { this_processor: true, .. }) => "gcc -march=native",
            Self::Gcc(_) => "gcc",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::all(Class::Search, true, true).into_iter().find(|kind| kind.name() == name)
    }
}

/// A builder of modules in all kinds: it has the engines, the C compilers, and the packets mapped for native code.
pub struct Builder<'a> {
    packets: &'a Packets,
    space: Space,
    /// The engine of each sandboxed build.
    engines: Vec<(BuildKind, Engine)>,
    clang: Option<Compiler>,
    gcc: Option<Compiler>,
    clock: Clock,
}

impl<'a> Builder<'a> {
    /// Starts engines without a cache, and finds the C compilers.
    pub fn open(packets: &'a Packets) -> Result<Self, LabError> {
        let engine = |kind: BuildKind| {
            let back_end =
                if matches!(kind, BuildKind::Verified(_)) { BackEnd::Llvm } else { BackEnd::Cranelift };
            let llvm = sandboxed::llvm_use(back_end);
            let (check_mode, wasmtime_check) = match kind {
                BuildKind::Tier(tier) | BuildKind::Verified(tier) => (CheckMode::As(tier), None),
                BuildKind::Wasmtime(check) => (CheckMode::As(Tier::Proved), Some(check)),
                _ => (CheckMode::Admitted, None),
            };
            let options = EngineOptions { check_mode, wasmtime_check, llvm, ..EngineOptions::default() };
            Ok::<_, LabError>((kind, Engine::new(options, None)?))
        };
        let clang = Compiler::clang();
        Ok(Self {
            packets,
            space: Space::map(packets)?,
            engines: BuildKind::sandboxed(clang.is_some())
                .into_iter()
                .map(engine)
                .collect::<Result<_, _>>()?,
            clang,
            gcc: Compiler::gcc(),
            clock: Clock::calibrate(),
        })
    }

    /// The kinds of build that this machine supports for a module.
    pub fn kinds(&self, module: &Module) -> Vec<BuildKind> {
        BuildKind::all(module.class, self.clang.is_some(), self.gcc.is_some())
    }

    /// Builds and starts a module.
    pub fn make(&self, module: &Module, kind: BuildKind) -> Result<Box<dyn ModuleBuild + '_>, LabError> {
        let native = |compiler: &Option<Compiler>, build: Build| {
            let missing = || LabError::failed("a C compiler", "not installed");
            let library = build.compile(module, compiler.as_ref().ok_or_else(missing)?)?;
            Native::load(&library, module, &self.space)
        };
        Ok(match kind {
            BuildKind::Clang(build) => Box::new(native(&self.clang, build)?),
            BuildKind::Gcc(build) => Box::new(native(&self.gcc, build)?),
            in_sandbox => {
                let missing = || LabError::failed(kind.name(), "no engine was started");
                let (_, engine) =
                    self.engines.iter().find(|(kind, _)| *kind == in_sandbox).ok_or_else(missing)?;
                let build = Sandboxed::start(engine, module, self.packets)?;
                match kind {
                    BuildKind::Verified(_) => Box::new(build.in_verified_code()?),
                    _ => Box::new(build),
                }
            }
        })
    }

    /// Measures all builds of a module over these batches. Fails if their outputs differ.
    pub fn measure(
        &self,
        module: &Module,
        batches: &[ReadyBatch],
        repetitions: Repetitions,
    ) -> Result<Price, LabError> {
        self.measure_kinds(module, &self.kinds(module), batches, repetitions)
    }

    /// As [`measure`](Self::measure), with these kinds of build.
    pub fn measure_kinds(
        &self,
        module: &Module,
        kinds: &[BuildKind],
        batches: &[ReadyBatch],
        repetitions: Repetitions,
    ) -> Result<Price, LabError> {
        let mut builds = Vec::new();
        for kind in kinds.iter().copied() {
            builds.push(MeasuredBuild::new(kind.name(), module, self.packets, self.make(module, kind)?));
        }
        let ticks = ticks(batches, module.admit()?.tick_period());
        let digest = compare_builds(&module.name, &mut builds, batches, &ticks, repetitions)?;
        let samples = builds.into_iter().map(|build| (build.name, build.nanos)).collect();
        Ok(Price { module: module.clone(), clock: self.clock, digest, samples })
    }
}

/// The measured cost of a module in all kinds of build.
#[derive(Debug)]
pub struct Price {
    /// The measured module.
    pub module: Module,
    /// The digest of the output, which is the same for all builds.
    pub digest: OutputDigest,
    clock: Clock,
    samples: Vec<(String, Sample)>,
}

impl Price {
    /// Nanoseconds per packet of one build.
    pub fn nanos(&self, kind: BuildKind) -> Option<&Sample> {
        self.samples.iter().find(|(name, _)| name == kind.name()).map(|(_, sample)| sample)
    }

    /// The time of one kind of build divided by that of the kind `base`, round by round.
    pub fn ratio(&self, kind: BuildKind, base: BuildKind) -> Option<Sample> {
        Some(self.nanos(kind)?.ratio_to(self.nanos(base)?))
    }

    /// Cycles of the time stamp counter per packet of one build.
    pub fn cycles(&self, kind: BuildKind) -> Option<Sample> {
        Some(self.nanos(kind)?.scaled(self.clock.nanos_per_cycle.recip()))
    }
}

/// The tables of prices, over packets in the processor's cache and over the whole trace.
pub fn tables(
    modules: &[Module],
    trace: &Path,
    cached_packets: usize,
    rounds: usize,
) -> Result<String, LabError> {
    let packets = Packets::read(trace, usize::MAX)?;
    let builder = Builder::open(&packets)?;
    let (mut text, mut criteria) = (String::new(), Vec::new());
    for (packet_set, title, batches, repetitions) in [
        (
            "cached",
            format!("{cached_packets} packets repeatedly, in the processor's cache"),
            packets.first(cached_packets),
            Repetitions::cached(rounds),
        ),
        ("trace", "the whole trace".to_owned(), packets.batches(), Repetitions::streamed(rounds)),
    ] {
        let prices = modules
            .iter()
            .map(|module| builder.measure(module, batches, repetitions))
            .collect::<Result<Vec<_>, _>>()?;
        criteria.extend(self::criteria(&prices, packet_set));
        let mut outputs = Table::new("module | records | patches");
        for Price { module, digest, .. } in &prices {
            outputs
                .row(format_args!("{} | {} | {}", module.name, digest.records.count, digest.patches.count));
        }
        _ = writeln!(
            text,
            "`{}`, {} packets: {title}; medians of {} rounds.\n\n{}\n\
             Verified code of LLVM:\n\n{}\n\
             The cost of each kind of check, and its multiple of the cost without checks:\n\n{}\n\
             The output, which was the same in all builds, row by row:\n\n{outputs}",
            paths::display(trace),
            packets_of(batches),
            repetitions.rounds,
            table(&prices),
            verified_table(&prices),
            check_costs(&prices)
        );
    }
    Ok(format!("{}\n{text}", criterion::table(&criteria)))
}

/// The table of sandboxed against native builds.
fn table(prices: &[Price]) -> Table {
    let mut table = Table::new(
        "module | sandbox, ns (quartiles) | cycles | clang -O3, cycles | ÷ clang -O3 (quartiles) | ÷ gcc -O3 | ÷ clang -O3 -march=native | ÷ gcc -O3 -march=native | ÷ clang -O3, loop and module in one | ÷ clang -O3, byte loop",
    );
    let cell = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    for price in prices {
        let cycles = |kind| cell(price.cycles(kind).map(|cycles| format!("{:.1}", cycles.median())));
        let ratio = |base| cell(price.ratio(BuildKind::Sandbox, base).map(|r| format!("{:.2}", r.median())));
        let [ns, clang] =
            [price.nanos(BuildKind::Sandbox).cloned(), price.ratio(BuildKind::Sandbox, BuildKind::CLANG)]
                .map(|sample| sample.map(|sample| sample.quartiles()));
        table.row(format_args!(
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            price.module.name,
            cell(ns.map(|q| format!("{:.2} ({})", q.median, q.spread(2)))),
            cycles(BuildKind::Sandbox),
            cycles(BuildKind::CLANG),
            cell(clang.map(|q| format!("**{:.2}** ({})", q.median, q.spread(2)))),
            ratio(BuildKind::GCC),
            ratio(BuildKind::Clang(THIS_PROCESSOR)),
            ratio(BuildKind::Gcc(THIS_PROCESSOR)),
            ratio(BuildKind::Clang(ONE_UNIT)),
            ratio(BuildKind::Clang(NAIVE))
        ));
    }
    table
}

/// The table of verified code against native builds and against Cranelift, in the proved and the metered tier.
fn verified_table(prices: &[Price]) -> Table {
    let mut table = Table::new(
        "module | proved, ns (quartiles) | ÷ clang -O3 (quartiles) | metered ÷ clang -O3 (quartiles) | ÷ clang -O3, loop and module in one | ÷ Cranelift, proved (quartiles)",
    );
    let mut logarithms = [0.0; 4];
    let mut counted = 0.0;
    for price in prices {
        let ratio = |kind, base| price.ratio(kind, base).map(|ratio| ratio.quartiles());
        let ratios = [
            ratio(VERIFIED, BuildKind::CLANG),
            ratio(VERIFIED_METERED, BuildKind::CLANG),
            ratio(VERIFIED, BuildKind::Clang(ONE_UNIT)),
            ratio(VERIFIED, PROVED),
        ];
        let (Some(nanos), [Some(clang), Some(metered), Some(one_unit), Some(cranelift)]) =
            (price.nanos(VERIFIED).map(|nanos| nanos.quartiles()), &ratios)
        else {
            continue;
        };
        table.row(format_args!(
            "{} | {:.2} ({}) | **{:.2}** ({}) | {:.2} ({}) | {:.2} | {:.2} ({})",
            price.module.name,
            nanos.median,
            nanos.spread(2),
            clang.median,
            clang.spread(2),
            metered.median,
            metered.spread(2),
            one_unit.median,
            cranelift.median,
            cranelift.spread(2)
        ));
        if price.module.class != Class::Empty {
            counted += 1.0;
            for (sum, ratio) in logarithms.iter_mut().zip([clang, metered, one_unit, cranelift]) {
                *sum += ratio.median.ln();
            }
        }
    }
    if counted > 0.0 {
        let [clang, metered, one_unit, cranelift] = logarithms.map(|sum| (sum / counted).exp());
        table.row(format_args!(
            "geometric mean without `empty` | | **{clang:.2}** | {metered:.2} | {one_unit:.2} | {cranelift:.2}"
        ));
    }
    table
}

/// The table of the cost of each kind of check (FLAME, figure 6): nanoseconds per packet, and the multiple of the cost
/// without checks.
fn check_costs(prices: &[Price]) -> Table {
    let kinds = [
        BuildKind::GCC,
        BuildKind::CLANG,
        PROVED,
        BuildKind::Tier(Tier::Supervised),
        BuildKind::Tier(Tier::Metered),
        BuildKind::Wasmtime(WasmtimeCheck::Fuel),
        BuildKind::Wasmtime(WasmtimeCheck::Epochs),
    ];
    let mut table = Table::new(format_args!("module | tier | {}", kinds.map(BuildKind::name).join(" | ")));
    for price in prices {
        let tier =
            price.module.admit().map_or_else(|_| String::new(), |admitted| admitted.tier().to_string());
        let mut row = format!("{} | {tier}", price.module.name);
        for kind in kinds {
            _ = match (price.nanos(kind), price.ratio(kind, PROVED)) {
                (Some(nanos), _) if kind == PROVED => write!(row, " | {:.2} ns", nanos.median()),
                (Some(nanos), Some(ratio)) => {
                    write!(row, " | {:.2} ns, ×{:.2}", nanos.median(), ratio.median())
                }
                _ => write!(row, " | –"),
            };
        }
        table.row(row);
    }
    table
}

/// Adds the criteria about verified code.
fn criteria_of_verified_code(prices: &[Price], add: &mut impl FnMut(String, f64, Option<f64>)) {
    let some = |value: f64| Some(value).filter(|value| value.is_finite());
    for (name, kind, base, [mean, worst]) in [
        ("verified ÷ clang -O3", VERIFIED, BuildKind::CLANG, [1.0, 1.05]),
        ("verified, metered ÷ clang -O3", VERIFIED_METERED, BuildKind::CLANG, [1.0, 1.1]),
        ("verified ÷ clang -O3, loop and module in one", VERIFIED, BuildKind::Clang(ONE_UNIT), [1.1, 1.25]),
    ] {
        let ratios: Sample = prices
            .iter()
            .filter(|price| price.module.class != Class::Empty)
            .filter_map(|price| Some(price.ratio(kind, base)?.median()))
            .collect();
        add(format!("{name}, geometric mean"), mean, some(ratios.geometric_mean()));
        add(format!("{name}, worst"), worst, some(ratios.max()));
    }
}

/// The criteria about prices over one set of packets.
fn criteria(prices: &[Price], packet_set: &str) -> Vec<Criterion> {
    let mut criteria = Vec::new();
    let mut add = |what: String, at_most, measured: Option<f64>| {
        let what = format!("{packet_set}: {what}");
        criteria.extend(measured.map(|measured| Criterion::at_most(what, measured, at_most, "")));
    };
    for price in prices {
        let name = &price.module.name;
        let ratio = |base| price.ratio(BuildKind::Sandbox, base).map(|sample| sample.median());
        match price.module.class {
            Class::Header => add(format!("{name} ÷ clang -O3"), 1.10, ratio(BuildKind::CLANG)),
            Class::Search => {
                add(format!("{name} ÷ clang -O3 with a byte loop"), 1.0, ratio(BuildKind::Clang(NAIVE)));
                add(format!("{name} ÷ clang -O3 with the same search"), 1.15, ratio(BuildKind::CLANG));
            }
            // There is no promise about modules that send or load the processor.
            Class::Active => {}
            Class::Empty => add(
                "empty module, cycles a packet".to_owned(),
                10.0,
                price.cycles(BuildKind::Sandbox).map(|cycles| cycles.median()),
            ),
        }
    }
    let measured = prices.iter().filter(|price| matches!(price.module.class, Class::Header | Class::Search));
    let all: Sample = measured
        .filter_map(|price| Some(price.ratio(BuildKind::Sandbox, BuildKind::CLANG)?.median()))
        .collect();
    // Without a measured module there is no value.
    let some = |value: f64| Some(value).filter(|value| value.is_finite());
    add("all modules ÷ clang -O3, geometric mean".to_owned(), 1.12, some(all.geometric_mean()));
    add("all modules ÷ clang -O3, worst".to_owned(), 1.25, some(all.max()));
    criteria_of_verified_code(prices, &mut add);
    // The promises about the cost of the meter.
    for tier in [Tier::Metered, Tier::Supervised] {
        let costs: Sample = prices
            .iter()
            .filter(|price| price.module.class != Class::Empty)
            .filter_map(|price| Some(price.ratio(BuildKind::Tier(tier), PROVED)?.median()))
            .collect();
        add(format!("{tier} ÷ proved, median of the modules"), 1.08, Some(costs.median()));
        add(format!("{tier} ÷ proved, worst of the modules"), 1.15, Some(costs.max()));
    }
    criteria
}
