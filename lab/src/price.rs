//! The price of safety: what a module costs in its sandbox, and what the same source costs compiled natively.

use crate::contest::{Clock, Contestant, Deeds, Effort, Entry, contest};
use crate::module::{Class, Module};
use crate::native::{Build, Compiler, Native, Space};
use crate::packets::{Packets, Ready, packets_of, ticks};
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::{Table, kept_by};
use crate::{BenchError, finite, reference};
use weir_abi::DESCRIPTOR_BYTES;
use weir_sandbox::{Control, Engine, Foreign, Options};
use weir_session::Tier;

/// How a module is built and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As `weir run` does: in the tier that it is admitted in.
    Sandbox,
    /// In the sandbox with the checks of a tier, whatever it is admitted in.
    Tier(Tier),
    /// In the sandbox with wasmtime's checks in place of weir's.
    Wasmtime(Foreign),
    /// In the sandbox with what finite-wasm puts into it in place of weir's checks.
    FiniteWasm,
    /// In the sandbox, as it is but for a loop over the batch that is not the loader's.
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

/// What builds need: compilers, and the packets mapped for native code.
pub struct Workshop<'a> {
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

impl<'a> Workshop<'a> {
    /// Engines without a cache, and what compilers there are.
    ///
    /// # Errors
    /// Where there is no memory for it.
    pub fn open(packets: &'a Packets) -> Result<Self, BenchError> {
        let engine = |control, foreign| Engine::new(Options { control, foreign, ..Options::default() }, None);
        let tier = |tier: &Tier| Ok::<_, BenchError>((*tier, engine(Control::As(*tier), None)?));
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
    ///
    /// # Errors
    /// Where it cannot be built or does not start.
    pub fn make(&self, module: &Module, how: How) -> Result<Box<dyn Contestant + '_>, BenchError> {
        let sandboxed = |engine: &Engine, module: &Module| Sandboxed::start(engine, module, self.packets);
        let native = |compiler: &Option<Compiler>, build: Build, name: &str| {
            let missing = || BenchError::Program {
                program: name.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            };
            let library = build.compile(module, compiler.as_ref().ok_or_else(missing)?)?;
            Native::load(&library, module, &self.space)
        };
        let refused = |how: &str, said: String| BenchError::Variant {
            module: module.name.clone(),
            how: how.to_owned(),
            said,
        };
        Ok(match how {
            How::Sandbox => Box::new(sandboxed(&self.admitted, module)?),
            How::Tier(tier) => Box::new(sandboxed(self.tier(tier), module)?),
            How::Wasmtime(Foreign::Fuel) => Box::new(sandboxed(&self.fuel, module)?),
            How::Wasmtime(Foreign::Epochs) => Box::new(sandboxed(&self.epochs, module)?),
            How::FiniteWasm => {
                let wasm = finite::instrumented(&module.wasm).map_err(|said| refused(how.name(), said))?;
                Box::new(sandboxed(self.tier(Tier::Proved), &Module { wasm, ..module.clone() })?)
            }
            How::Reference => {
                let admitted = module.admit()?;
                let wasm = reference::with_batch(&module.wasm, admitted.facts(), DESCRIPTOR_BYTES)
                    .map_err(|error| refused(how.name(), error.to_string()))?;
                Box::new(sandboxed(self.tier(Tier::Proved), &Module { wasm, ..module.clone() })?)
            }
            How::Clang(build) => Box::new(native(&self.clang, build, "clang-19")?),
            How::Gcc(build) => Box::new(native(&self.gcc, build, "gcc")?),
        })
    }

    /// Measures a module, in all ways, over these batches. It is a differential test too.
    ///
    /// # Errors
    /// Where a build fails, has a fault, or does other things than the others.
    pub fn measure(&self, module: &Module, batches: &[Ready], effort: Effort) -> Result<Price, BenchError> {
        let mut entries = Vec::new();
        for how in self.ways(module) {
            entries.push(Entry::new(how.name(), module, self.packets, self.make(module, how)?));
        }
        let ticks = ticks(batches, module.admit()?.tick());
        let deeds = contest(&module.name, &mut entries, batches, &ticks, effort)?;
        let samples = entries.into_iter().map(|entry| (entry.name, entry.nanos)).collect();
        Ok(Price { module: module.clone(), clock: self.clock, packets: packets_of(batches), deeds, samples })
    }
}

/// What a module costs.
#[derive(Debug)]
pub struct Price {
    /// Which module.
    pub module: Module,
    /// Over how many packets.
    pub packets: u64,
    /// What all of its builds did.
    pub deeds: Deeds,
    clock: Clock,
    samples: Vec<(String, Sample)>,
}

impl Price {
    /// Nanoseconds a packet of one build.
    pub fn nanos(&self, how: How) -> Option<&Sample> {
        self.samples.iter().find(|(name, _)| name == how.name()).map(|(_, sample)| sample)
    }

    /// How many times as long one build took as another, round by round.
    pub fn ratio(&self, how: How, than: How) -> Option<Sample> {
        Some(self.nanos(how)?.over(self.nanos(than)?))
    }
}

/// A table of prices.
pub fn table(prices: &[Price]) -> Table {
    let mut table = Table::new(&[
        "module",
        "sandbox, ns (quartiles)",
        "cycles",
        "clang -O3, cycles",
        "÷ clang -O3 (quartiles)",
        "÷ gcc -O3",
        "÷ clang -O3 -march=native",
        "÷ gcc -O3 -march=native",
        "÷ clang -O3, loop and module in one",
        "÷ clang -O3, byte loop",
    ]);
    for price in prices {
        let sandbox = price.nanos(How::Sandbox).cloned().unwrap_or_default();
        let ns = sandbox.quartiles();
        let cycles = |nanos: &Sample| format!("{:.1}", nanos.median() / price.clock.nanos_per_cycle);
        let ratio = |how, than| {
            price.ratio(how, than).map_or_else(|| "–".to_owned(), |r| format!("{:.2}", r.median()))
        };
        let clang = price.ratio(How::Sandbox, How::Clang(PLAIN)).map(|sample| sample.quartiles());
        table.row([
            price.module.name.clone(),
            format!("{:.2} ({:.2}–{:.2})", ns.median, ns.lower, ns.upper),
            cycles(&sandbox),
            price.nanos(How::Clang(PLAIN)).map_or_else(|| "–".to_owned(), cycles),
            clang.map_or_else(
                || "–".to_owned(),
                |q| format!("**{:.2}** ({:.2}–{:.2})", q.median, q.lower, q.upper),
            ),
            ratio(How::Sandbox, How::Gcc(PLAIN)),
            ratio(How::Sandbox, How::Clang(THIS_PROCESSOR)),
            ratio(How::Sandbox, How::Gcc(THIS_PROCESSOR)),
            ratio(How::Sandbox, How::Clang(ONE_UNIT)),
            ratio(How::Sandbox, How::Clang(NAIVE)),
        ]);
    }
    table
}

/// What each way to be safe costs (FLAME, figure 6): nanoseconds a packet, and times as much as the same module without checks.
pub fn safety(prices: &[Price]) -> Table {
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
    let mut head = vec!["module", "tier"];
    head.extend(ways.iter().map(|how| how.name()));
    let mut table = Table::new(&head);
    for price in prices {
        let tier =
            price.module.admit().map_or_else(|_| String::new(), |admitted| admitted.tier().to_string());
        let mut row = vec![price.module.name.clone(), tier];
        row.extend(ways.iter().map(|how| match (price.nanos(*how), price.ratio(*how, PROVED)) {
            (Some(nanos), _) if *how == PROVED => format!("{:.2} ns", nanos.median()),
            (Some(nanos), Some(ratio)) => format!("{:.2} ns, ×{:.2}", nanos.median(), ratio.median()),
            _ if *how == How::FiniteWasm => "not taken".to_owned(),
            _ => "–".to_owned(),
        }));
        table.row(row);
    }
    table
}

/// Whether the meter costs as little as promised: at most this much of the same module without it, in the median over the modules and in the worst.
pub fn meter_verdicts(prices: &[Price], set: &str) -> Table {
    const MEDIAN: f64 = 1.08;
    const WORST: f64 = 1.15;
    let mut table = Table::new(VERDICT_HEAD);
    for tier in [Tier::Metered, Tier::Supervised] {
        let mut costs = Sample::default();
        for price in prices.iter().filter(|price| price.module.class != Class::Empty) {
            if let Some(ratio) = price.ratio(How::Tier(tier), PROVED) {
                costs.push(ratio.median());
            }
        }
        verdict(
            &mut table,
            format!("{tier} ÷ proved, median of the modules"),
            set,
            MEDIAN,
            Some(costs.median()),
        );
        verdict(&mut table, format!("{tier} ÷ proved, worst of the modules"), set, WORST, Some(costs.most()));
    }
    table
}

const VERDICT_HEAD: &[&str] = &["promise", "packets", "at most", "measured", "kept"];

/// Appends whether a promise is kept; nothing where it was not measured.
fn verdict(table: &mut Table, promise: String, set: &str, at_most: f64, measured: Option<f64>) {
    let Some(measured) = measured else { return };
    let kept = kept_by(measured / at_most - 1.0);
    table.row([promise, set.to_owned(), format!("{at_most:.2}"), format!("{measured:.2}"), kept]);
}

/// The promises about prices, and whether they are kept.
pub fn verdicts(prices: &[Price], set: &str) -> Table {
    let mut table = Table::new(VERDICT_HEAD);
    for price in prices {
        let mut add = |promise, at_most, measured| verdict(&mut table, promise, set, at_most, measured);
        let name = &price.module.name;
        let ratio = |than| price.ratio(How::Sandbox, than).map(|sample| sample.median());
        match price.module.class {
            Class::Header => add(format!("{name} ÷ clang -O3"), 1.10, ratio(How::Clang(PLAIN))),
            Class::Search => {
                add(format!("{name} ÷ clang -O3 with a byte loop"), 1.0, ratio(How::Clang(NAIVE)));
                add(format!("{name} ÷ clang -O3 with the same search"), 1.15, ratio(How::Clang(PLAIN)));
            }
            // Nothing is promised of these.
            Class::Active => {}
            Class::Empty => {
                let cycles =
                    price.nanos(How::Sandbox).map(|nanos| nanos.median() / price.clock.nanos_per_cycle);
                add("empty module, cycles a packet".to_owned(), 10.0, cycles);
            }
        }
    }
    table
}
