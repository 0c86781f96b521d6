//! The price of safety: what a module costs in its sandbox, and what the same source costs compiled natively.

use crate::BenchError;
use crate::contest::{Clock, Contestant, Deeds, Effort, Entry, contest};
use crate::module::{Class, Module};
use crate::native::{Build, Compiler, Native, Space};
use crate::packets::{Packets, Ready, packets_of, ticks};
use crate::sandboxed::Sandboxed;
use crate::statistics::Sample;
use crate::table::Table;
use weir_sandbox::{Engine, Options};

/// How a module is built and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As `weir run` does.
    Sandbox,
    /// Without the checks that end a call which runs too long.
    SandboxWithoutLimit,
    /// Natively by clang, -O3.
    Clang(Build),
    /// Natively by gcc, -O3.
    Gcc(Build),
}

const PLAIN: Build = Build { this_processor: false, one_unit: false, naive_find: false };
const THIS_PROCESSOR: Build = Build { this_processor: true, ..PLAIN };
const ONE_UNIT: Build = Build { one_unit: true, ..PLAIN };
const NAIVE: Build = Build { naive_find: true, ..PLAIN };

impl How {
    /// All ways for a module of this class, with the compilers that are there.
    pub fn all(class: Class, clang: bool, gcc: bool) -> Vec<Self> {
        let mut all = vec![Self::Sandbox, Self::SandboxWithoutLimit];
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
    pub const COUNTED: [Self; 4] =
        [Self::Sandbox, Self::SandboxWithoutLimit, Self::Clang(PLAIN), Self::Gcc(PLAIN)];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::SandboxWithoutLimit => "sandbox, no time limit",
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
        Self::all(Class::Search, true, true).into_iter().find(|how| how.name() == name)
    }
}

/// What builds need: engines, compilers, and the packets mapped for native code.
pub struct Workshop<'a> {
    packets: &'a Packets,
    space: Space,
    limited: Engine,
    unlimited: Engine,
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
        let unlimited = Options { interruptible: false, ..Options::default() };
        Ok(Self {
            packets,
            space: Space::map(packets)?,
            limited: Engine::new(Options::default(), None)?,
            unlimited: Engine::new(unlimited, None)?,
            clang: Compiler::clang(),
            gcc: Compiler::gcc(),
            clock: Clock::calibrate(),
        })
    }

    /// The ways in which a module can be built here.
    pub fn ways(&self, module: &Module) -> Vec<How> {
        How::all(module.class, self.clang.is_some(), self.gcc.is_some())
    }

    /// Builds and starts a module.
    ///
    /// # Errors
    /// Where it cannot be built or does not start.
    pub fn make(&self, module: &Module, how: How) -> Result<Box<dyn Contestant + '_>, BenchError> {
        let native = |compiler: &Option<Compiler>, build: Build, name: &str| {
            let missing = || BenchError::Program {
                program: name.to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            };
            let library = build.compile(module, compiler.as_ref().ok_or_else(missing)?)?;
            Native::load(&library, module, &self.space)
        };
        Ok(match how {
            How::Sandbox => Box::new(Sandboxed::start(&self.limited, module, self.packets)?),
            How::SandboxWithoutLimit => Box::new(Sandboxed::start(&self.unlimited, module, self.packets)?),
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
            entries.push(Entry::new(how.name(), module, self.make(module, how)?));
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
        "without the time limit ÷ clang -O3",
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
            ratio(How::SandboxWithoutLimit, How::Clang(PLAIN)),
            ratio(How::Sandbox, How::Clang(NAIVE)),
        ]);
    }
    table
}

/// The promises about prices, and whether they are kept.
pub fn verdicts(prices: &[Price], set: &str) -> Table {
    let mut table = Table::new(&["promise", "packets", "at most", "measured", "kept"]);
    for price in prices {
        let mut add = |promise: String, at_most: f64, measured: Option<f64>| {
            let Some(measured) = measured else { return };
            let kept = if measured <= at_most {
                "yes".to_owned()
            } else {
                format!("no, by {:.0} %", (measured / at_most - 1.0) * 100.0)
            };
            table.row([promise, set.to_owned(), format!("{at_most:.2}"), format!("{measured:.2}"), kept]);
        };
        let name = &price.module.name;
        let ratio = |than| price.ratio(How::Sandbox, than).map(|sample| sample.median());
        match price.module.class {
            Class::Header => add(format!("{name} ÷ clang -O3"), 1.10, ratio(How::Clang(PLAIN))),
            Class::Search => {
                add(format!("{name} ÷ clang -O3 with a byte loop"), 1.0, ratio(How::Clang(NAIVE)));
                add(format!("{name} ÷ clang -O3 with the same search"), 1.15, ratio(How::Clang(PLAIN)));
            }
            Class::Empty => {
                let cycles =
                    price.nanos(How::Sandbox).map(|nanos| nanos.median() / price.clock.nanos_per_cycle);
                add("empty module, cycles a packet".to_owned(), 10.0, cycles);
            }
        }
    }
    table
}
