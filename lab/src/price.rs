//! The price of safety: the cost of a module in its sandbox, compared with the same source compiled natively.

use crate::contest::{Clock, Contestant, Deeds, Effort, Entry, contest};
use crate::criterion::{self, Criterion};
use crate::error::{Doing, LabError};
use crate::module::{Class, Module};
use crate::native::{Build, Compiler, Native, Space};
use crate::packets::{Packets, Ready, packets_of, ticks};
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use crate::{finite, place, reference};
use std::fmt::Write as _;
use std::path::Path;
use weir_abi::DESCRIPTOR_BYTES;
use weir_admission::Tier;
use weir_sandbox::{Control, Engine, EngineOptions, Foreign};

/// A way to build and run a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As `weir run` does, in the tier of its admission.
    Sandbox,
    /// In the sandbox with the checks of a tier.
    Tier(Tier),
    /// In the sandbox with wasmtime's checks in place of weir's.
    Wasmtime(Foreign),
    /// In the sandbox with finite-wasm's checks in place of weir's.
    FiniteWasm,
    /// In the sandbox, unchanged but for a plain loop over the batch in place of the loader's.
    Reference,
    /// Natively by clang, -O3.
    Clang(Build),
    /// Natively by gcc, -O3.
    Gcc(Build),
}

const PLAIN: Build = Build { this_processor: false, one_unit: false, naive_find: false };
const THIS_PROCESSOR: Build = Build { this_processor: true, ..PLAIN };
const ONE_UNIT: Build = Build { one_unit: true, ..PLAIN };
const NAIVE: Build = Build { naive_find: true, ..PLAIN };
const PROVED: How = How::Tier(Tier::Proved);

impl How {
    /// All ways for a module of this class, with the compilers that are there.
    pub fn all(class: Class, clang: bool, gcc: bool) -> Vec<Self> {
        let mut all = vec![Self::Sandbox];
        all.extend(Tier::ALL.iter().map(|tier| Self::Tier(*tier)));
        all.extend([Self::Wasmtime(Foreign::Fuel), Self::Wasmtime(Foreign::Epochs), Self::FiniteWasm]);
        if clang {
            all.extend([Self::Clang(PLAIN), Self::Clang(THIS_PROCESSOR), Self::Clang(ONE_UNIT)]);
        }
        if gcc {
            all.extend([Self::Gcc(PLAIN), Self::Gcc(THIS_PROCESSOR)]);
        }
        if clang && class == Class::Search {
            all.push(Self::Clang(NAIVE));
        }
        all
    }

    /// The ways whose instructions are counted: not those with instructions that valgrind does not know.
    pub const COUNTED: [Self; 6] = [
        PROVED,
        Self::Reference,
        Self::Tier(Tier::Supervised),
        Self::Tier(Tier::Metered),
        Self::Clang(PLAIN),
        Self::Gcc(PLAIN),
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Tier(tier) => tier.name(),
            Self::Wasmtime(Foreign::Fuel) => "wasmtime fuel",
            Self::Wasmtime(Foreign::Epochs) => "wasmtime epochs",
            Self::FiniteWasm => "finite-wasm",
            Self::Reference => "unmetered",
            Self::Clang(Build { naive_find: true, .. }) => "clang, byte loop",
            Self::Clang(Build { one_unit: true, .. }) => "clang, inlined",
            Self::Clang(Build { this_processor: true, .. }) => "clang -march=native",
            Self::Clang(_) => "clang",
            Self::Gcc(Build { this_processor: true, .. }) => "gcc -march=native",
            Self::Gcc(_) => "gcc",
        }
    }

    /// The way of that name.
    pub fn named(name: &str) -> Option<Self> {
        let all = Self::all(Class::Search, true, true).into_iter().chain([Self::Reference]);
        all.into_iter().find(|how| how.name() == name)
    }
}

/// Compilers and engines for builds, and the packets mapped for native code.
pub struct Builder<'a> {
    packets: &'a Packets,
    space: Space,
    admitted: Engine,
    tiers: Vec<(Tier, Engine)>,
    fuel: Engine,
    epochs: Engine,
    clang: Option<Compiler>,
    gcc: Option<Compiler>,
    clock: Clock,
}

impl<'a> Builder<'a> {
    /// Starts engines without a cache, and finds compilers.
    pub fn open(packets: &'a Packets) -> Result<Self, LabError> {
        let engine = |control, foreign| {
            Engine::new(EngineOptions { control, foreign, ..EngineOptions::default() }, None)
        };
        let tier = |tier: &Tier| Ok::<_, LabError>((*tier, engine(Control::As(*tier), None)?));
        let foreign = |foreign| engine(Control::As(Tier::Proved), Some(foreign));
        Ok(Self {
            packets,
            space: Space::map(packets)?,
            admitted: engine(Control::Admitted, None)?,
            tiers: Tier::ALL.iter().map(tier).collect::<Result<_, _>>()?,
            fuel: foreign(Foreign::Fuel)?,
            epochs: foreign(Foreign::Epochs)?,
            clang: Compiler::clang(),
            gcc: Compiler::gcc(),
            clock: Clock::calibrate(),
        })
    }

    /// The ways in which a module can be built here.
    pub fn ways(&self, module: &Module) -> Vec<How> {
        let mut ways = How::all(module.class, self.clang.is_some(), self.gcc.is_some());
        if finite::instrumented(&module.wasm).is_err() {
            ways.retain(|how| *how != How::FiniteWasm);
        }
        ways
    }

    /// The engine that runs a module with the checks of a tier.
    fn tier(&self, tier: Tier) -> &Engine {
        self.tiers.iter().find(|(found, _)| *found == tier).map_or(&self.admitted, |(_, engine)| engine)
    }

    /// Builds and starts a module.
    pub fn make(&self, module: &Module, how: How) -> Result<Box<dyn Contestant + '_>, LabError> {
        let sandboxed = |engine: &Engine, wasm: Option<Vec<u8>>| {
            let changed = wasm.map(|wasm| Module { wasm, ..module.clone() });
            Sandboxed::start(engine, changed.as_ref().unwrap_or(module), self.packets)
        };
        let native = |compiler: &Option<Compiler>, build: Build| {
            let missing = || LabError::failed("a C compiler", "not installed");
            let library = build.compile(module, compiler.as_ref().ok_or_else(missing)?)?;
            Native::load(&library, module, &self.space)
        };
        let what = || format!("{}, {}", module.name, how.name());
        Ok(match how {
            How::Sandbox => Box::new(sandboxed(&self.admitted, None)?),
            How::Tier(tier) => Box::new(sandboxed(self.tier(tier), None)?),
            How::Wasmtime(Foreign::Fuel) => Box::new(sandboxed(&self.fuel, None)?),
            How::Wasmtime(Foreign::Epochs) => Box::new(sandboxed(&self.epochs, None)?),
            How::FiniteWasm => {
                let wasm = finite::instrumented(&module.wasm).doing(what())?;
                Box::new(sandboxed(self.tier(Tier::Proved), Some(wasm))?)
            }
            How::Reference => {
                let admitted = module.admit()?;
                let wasm =
                    reference::with_batch(&module.wasm, admitted.facts(), DESCRIPTOR_BYTES).doing(what())?;
                Box::new(sandboxed(self.tier(Tier::Proved), Some(wasm))?)
            }
            How::Clang(build) => Box::new(native(&self.clang, build)?),
            How::Gcc(build) => Box::new(native(&self.gcc, build)?),
        })
    }

    /// Measures a module, in all ways, over these batches. Fails where builds do different things.
    pub fn measure(&self, module: &Module, batches: &[Ready], effort: Effort) -> Result<Price, LabError> {
        let mut entries = Vec::new();
        for how in self.ways(module) {
            entries.push(Entry::new(how.name(), module, self.packets, self.make(module, how)?));
        }
        let ticks = ticks(batches, module.admit()?.tick());
        let deeds = contest(&module.name, &mut entries, batches, &ticks, effort)?;
        let samples = entries.into_iter().map(|entry| (entry.name, entry.nanos)).collect();
        Ok(Price { module: module.clone(), clock: self.clock, deeds, samples })
    }
}

/// The cost of a module.
#[derive(Debug)]
pub struct Price {
    /// The measured module.
    pub module: Module,
    /// The results of all builds, which are the same.
    pub deeds: Deeds,
    clock: Clock,
    samples: Vec<(String, Sample)>,
}

impl Price {
    /// Nanoseconds a packet of one build.
    pub fn nanos(&self, how: How) -> Option<&Sample> {
        self.samples.iter().find(|(name, _)| name == how.name()).map(|(_, sample)| sample)
    }

    /// The time of one build as a multiple of another's, round by round.
    pub fn ratio(&self, how: How, than: How) -> Option<Sample> {
        Some(self.nanos(how)?.over(self.nanos(than)?))
    }

    /// Cycles a packet of one build, in the median.
    fn cycles(&self, how: How) -> Option<f64> {
        Some(self.nanos(how)?.median() / self.clock.nanos_per_cycle)
    }
}

/// All tables about prices: over packets in the processor's cache, and over the whole trace.
pub fn tables(modules: &[Module], trace: &Path, most: usize, rounds: usize) -> Result<String, LabError> {
    let packets = Packets::read(trace, usize::MAX)?;
    let builder = Builder::open(&packets)?;
    let (mut text, mut criteria) = (String::new(), Vec::new());
    for (set, title, batches, effort) in [
        (
            "cached",
            format!("{most} packets again and again, in the processor's cache"),
            packets.first(most),
            Effort::cached(rounds),
        ),
        ("trace", "the whole trace".to_owned(), packets.batches(), Effort::streamed(rounds)),
    ] {
        let prices = modules
            .iter()
            .map(|module| builder.measure(module, batches, effort))
            .collect::<Result<Vec<_>, _>>()?;
        criteria.extend(self::criteria(&prices, set));
        let mut deeds = Table::new("module | records | patches");
        for Price { module, deeds: done, .. } in &prices {
            deeds.row(format_args!("{} | {} | {}", module.name, done.records, done.patches));
        }
        _ = writeln!(
            text,
            "`{}`, {} packets: {title}; medians of {} rounds.\n\n{}\n\
             The cost of each way to be safe, and its multiple of the cost without checks:\n\n{}\n\
             The same in all builds, row by row, while this was measured:\n\n{deeds}",
            place::shown(trace),
            packets_of(batches),
            effort.rounds,
            table(&prices),
            safety(&prices)
        );
    }
    Ok(format!("{}\n{text}", criterion::table(&criteria)))
}

/// Sandboxed against native builds.
fn table(prices: &[Price]) -> Table {
    let mut table = Table::new(
        "module | sandbox, ns (quartiles) | cycles | clang -O3, cycles | ÷ clang -O3 (quartiles) | ÷ gcc -O3 | ÷ clang -O3 -march=native | ÷ gcc -O3 -march=native | ÷ clang -O3, loop and module in one | ÷ clang -O3, byte loop",
    );
    let shown = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    for price in prices {
        let cycles = |how| shown(price.cycles(how).map(|cycles| format!("{cycles:.1}")));
        let ratio = |than| shown(price.ratio(How::Sandbox, than).map(|r| format!("{:.2}", r.median())));
        let [ns, clang] = [price.nanos(How::Sandbox).cloned(), price.ratio(How::Sandbox, How::Clang(PLAIN))]
            .map(|sample| sample.map(|sample| sample.quartiles()));
        table.row(format_args!(
            "{} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            price.module.name,
            shown(ns.map(|q| format!("{:.2} ({})", q.median, q.spread(2)))),
            cycles(How::Sandbox),
            cycles(How::Clang(PLAIN)),
            shown(clang.map(|q| format!("**{:.2}** ({})", q.median, q.spread(2)))),
            ratio(How::Gcc(PLAIN)),
            ratio(How::Clang(THIS_PROCESSOR)),
            ratio(How::Gcc(THIS_PROCESSOR)),
            ratio(How::Clang(ONE_UNIT)),
            ratio(How::Clang(NAIVE))
        ));
    }
    table
}

/// The cost of each way to be safe (FLAME, figure 6): nanoseconds a packet, and the multiple of the same module without checks.
fn safety(prices: &[Price]) -> Table {
    let ways = [
        How::Gcc(PLAIN),
        How::Clang(PLAIN),
        PROVED,
        How::Tier(Tier::Supervised),
        How::Tier(Tier::Metered),
        How::Wasmtime(Foreign::Fuel),
        How::Wasmtime(Foreign::Epochs),
        How::FiniteWasm,
    ];
    let mut table = Table::new(format_args!("module | tier | {}", ways.map(How::name).join(" | ")));
    for price in prices {
        let tier =
            price.module.admit().map_or_else(|_| String::new(), |admitted| admitted.tier().to_string());
        let mut row = format!("{} | {tier}", price.module.name);
        for how in ways {
            _ = match (price.nanos(how), price.ratio(how, PROVED)) {
                (Some(nanos), _) if how == PROVED => write!(row, " | {:.2} ns", nanos.median()),
                (Some(nanos), Some(ratio)) => {
                    write!(row, " | {:.2} ns, ×{:.2}", nanos.median(), ratio.median())
                }
                _ if how == How::FiniteWasm => write!(row, " | not taken"),
                _ => write!(row, " | –"),
            };
        }
        table.row(row);
    }
    table
}

/// The promises about prices that were measured.
fn criteria(prices: &[Price], set: &str) -> Vec<Criterion> {
    let mut criteria = Vec::new();
    let mut add = |what: String, at_most, measured: Option<f64>| {
        let what = format!("{set}: {what}");
        criteria.extend(measured.map(|measured| Criterion::at_most(what, measured, at_most, "")));
    };
    for price in prices {
        let name = &price.module.name;
        let ratio = |than| price.ratio(How::Sandbox, than).map(|sample| sample.median());
        match price.module.class {
            Class::Header => add(format!("{name} ÷ clang -O3"), 1.10, ratio(How::Clang(PLAIN))),
            Class::Search => {
                add(format!("{name} ÷ clang -O3 with a byte loop"), 1.0, ratio(How::Clang(NAIVE)));
                add(format!("{name} ÷ clang -O3 with the same search"), 1.15, ratio(How::Clang(PLAIN)));
            }
            // There is no promise about these.
            Class::Active => {}
            Class::Empty => add("empty module, cycles a packet".to_owned(), 10.0, price.cycles(How::Sandbox)),
        }
    }
    // The meter, compared with the same module without it.
    for tier in [Tier::Metered, Tier::Supervised] {
        let costs: Sample = prices
            .iter()
            .filter(|price| price.module.class != Class::Empty)
            .filter_map(|price| Some(price.ratio(How::Tier(tier), PROVED)?.median()))
            .collect();
        add(format!("{tier} ÷ proved, median of the modules"), 1.08, Some(costs.median()));
        add(format!("{tier} ÷ proved, worst of the modules"), 1.15, Some(costs.most()));
    }
    criteria
}
