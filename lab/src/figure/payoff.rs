//! The number of packets after which compiling a module with LLVM has paid off.

use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::comparison::Repetitions;
use crate::error::LabError;
use crate::machine::{CORE, bind};
use crate::module::Module;
use crate::native::process_time;
use crate::packets::Packets;
use crate::paths;
use crate::price::{BuildKind, Builder};
use crate::sandboxed::{BACK_ENDS, start_engine};
use crate::statistics::{Action, Quartiles, Sample, measure_all_in_turn};
use crate::table::Table;
use std::time::Duration;
use weir_sandbox::{BackEnd, CheckMode, Engine, EngineOptions, LlvmUse};
use weir_units::Nanos;

pub const FIGURE: Figure = Figure {
    name: "payoff",
    title: "LLVM beside Cranelift: packets until compiling has paid off",
    experiment: "The shipped modules whose price `bench price` measures. A node compiles each module with Cranelift first, and then with LLVM as well, whose \
code it verifies before the module moves to it. So compiling with LLVM costs processor time in addition, and saves time with each packet. It has paid off \
after as many packets as that time holds savings. The experiment measures both kinds of time. Compiling with Cranelift is the loading of an admitted module. \
Compiling with LLVM is writing the text, clang, linking and verifying; confining clang's process is left out. Times of compiling are medians of 15 rounds, in \
turn, without a cache. The time for a packet is processor time over 4096 packets of the sample capture in batches, which stay in the processor's cache. In each of \
16 trials both builds are loaded anew, in alternating order, and take turns in 41 rounds, whose median is the value of the trial. LLVM counts as faster if at least three quarters \
of the trials agree. The second chart shows \
the total time with LLVM, divided by that with Cranelift alone.",
    paper: "",
    without: "LLVM compiles the modules, but they stay in Cranelift's code",
    run,
};

/// Packets that stay in the processor's cache.
const PACKETS: usize = 4096;
const REPETITIONS: Repetitions = Repetitions { rounds: 41, warm: true, passes: 4 };
/// The number of trials, for each of which both builds are loaded: the place of code and data in memory differs.
const TRIALS: usize = 16;
/// The number of measured compilations of each module by each back end.
const COMPILATIONS: usize = 15;
/// The promised limit of the time for a packet in LLVM's code, as a multiple of that in Cranelift's.
const RATIO_MAX: f64 = 1.05;
/// The promised limit of the number of packets: ten minutes at a million packets per second.
const PACKETS_MAX: f64 = 6e8;
/// The range of the charts, in packets.
const SHOWN: (f64, f64) = (1e5, 1e11);
/// The largest ratio of total times in the chart.
const TOTAL_RATIO_SHOWN: f64 = 2.0;

/// The times of a module.
#[derive(Clone, Debug)]
struct ModuleTimes {
    module: String,
    /// Processor time of compiling, in ms: by Cranelift, and by LLVM.
    compiling_ms: [Sample; 2],
    /// Processor time for a packet in the code of each, in ns: one value per trial.
    packet_ns: [Sample; 2],
}

impl ModuleTimes {
    /// The time that LLVM's code saves with each packet, in ns.
    fn saved_ns(&self) -> Quartiles {
        let [cranelift, llvm] = &self.packet_ns;
        cranelift.less(llvm).quartiles()
    }

    /// The number of packets that pay off the compilation with LLVM, if each saves so many ns; infinite if none are saved.
    fn packets_at(&self, saved_ns: f64) -> f64 {
        if saved_ns > 0.0 { self.compiling_ms[1].median() * 1e6 / saved_ns } else { f64::INFINITY }
    }

    /// Returns true if at least three quarters of the trials are faster in LLVM's code.
    fn is_faster(&self) -> bool {
        self.saved_ns().lower > 0.0
    }

    /// The number of packets after which LLVM has paid off; infinite if its code is not faster.
    fn packets(&self) -> f64 {
        if self.is_faster() { self.packets_at(self.saved_ns().median) } else { f64::INFINITY }
    }

    /// The median over the trials of the time for a packet in LLVM's code, as a multiple of that in Cranelift's.
    fn ratio(&self) -> f64 {
        let [cranelift, llvm] = &self.packet_ns;
        llvm.ratio_to(cranelift).median()
    }

    /// The total time with LLVM as a multiple of that with Cranelift alone, after some packets.
    fn total_ratio(&self, packets: f64) -> f64 {
        let [cranelift, llvm] = self.compiling_ms.each_ref().map(|millis| millis.median() * 1e6);
        let cranelift_ns = self.packet_ns[0].median();
        let llvm_ns = cranelift_ns - self.saved_ns().median;
        (cranelift + llvm + packets * llvm_ns) / (cranelift + packets * cranelift_ns)
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    bind(CORE)?;
    let packets = Packets::read(&paths::sample(), PACKETS)?;
    let builder = Builder::open(&packets)?;
    let compilers = Compilers::start()?;
    let mut all = Vec::new();
    for module in Module::shipped()? {
        all.push(ModuleTimes {
            module: module.name.clone(),
            compiling_ms: compilers.measure(&module)?,
            packet_ns: packet_times(&builder, &packets, &module, mechanism)?,
        });
    }
    let mut outcome = Outcome::new(&FIGURE, csv(&all), chart(&all), judge(&all)?, remarks(&all));
    outcome.charts.push((format!("{}-total", FIGURE.name), totals(&all)));
    Ok(outcome)
}

/// The engines that compile modules, without a cache.
struct Compilers {
    cranelift: Engine,
    llvm: Engine,
}

impl Compilers {
    fn start() -> Result<Self, LabError> {
        let options = EngineOptions { llvm: LlvmUse::Later, ..EngineOptions::default() };
        let cranelift = start_engine(BackEnd::Cranelift, CheckMode::Admitted)?;
        Ok(Self { cranelift, llvm: Engine::new(options, None)? })
    }

    /// Processor time of compiling a module with Cranelift and with LLVM, in ms.
    fn measure(&self, module: &Module) -> Result<[Sample; 2], LabError> {
        let cranelift: Action<'_> = Box::new(|| {
            let admitted = module.admit()?;
            let begin = own_time();
            self.cranelift.load(admitted)?;
            Ok(millis(own_time().saturating_sub(begin)))
        });
        let llvm: Action<'_> = Box::new(|| {
            let program = self.llvm.load(module.admit()?)?;
            let (begin, mut of_clang) = (own_time(), Nanos(0));
            self.llvm.compile_with_llvm(&program, &mut of_clang);
            let taken = own_time().saturating_sub(begin) + Duration::from_nanos(of_clang.0);
            match program.why_not_llvm() {
                None => Ok(millis(taken)),
                Some(why) => Err(LabError::failed(&module.name, why.to_owned())),
            }
        });
        measure_all_in_turn(COMPILATIONS, [cranelift, llvm])
    }
}

/// Processor time of this process so far.
fn own_time() -> Duration {
    process_time(std::process::id()).unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The time for a packet in the code of each back end, in ns.
fn packet_times(
    builder: &Builder<'_>,
    packets: &Packets,
    module: &Module,
    mechanism: Mechanism,
) -> Result<[Sample; 2], LabError> {
    let tier = module.admit()?.tier();
    let [cranelift, llvm] = BACK_ENDS.map(|back_end| BuildKind::in_tier(back_end, tier));
    // Without the mechanism, both builds run in Cranelift's code: with the checks of the tier that admission gives.
    let kinds = if mechanism == Mechanism::On { [cranelift, llvm] } else { [cranelift, BuildKind::Sandbox] };
    let mut samples = [Sample::default(), Sample::default()];
    for trial in 0..TRIALS {
        // The order of loading decides places in memory.
        let mut order = kinds;
        order.rotate_left(trial % kinds.len());
        let price = builder.measure_kinds(module, &order, packets.batches(), REPETITIONS)?;
        for (sample, kind) in samples.iter_mut().zip(kinds) {
            let missing = || LabError::NoData(format!("{} was not measured", kind.name()));
            sample.push(price.nanos(kind).ok_or_else(missing)?.median());
        }
    }
    Ok(samples)
}

fn judge(all: &[ModuleTimes]) -> Result<Vec<Criterion>, LabError> {
    if all.is_empty() {
        return Err(LabError::NoData("no module was measured".to_owned()));
    }
    let ratios: Sample = all.iter().map(ModuleTimes::ratio).collect();
    // Half of the modules have to reach a median. The middle of a finite and an infinite number is infinite.
    let mut packets: Vec<f64> = all.iter().map(ModuleTimes::packets).collect();
    packets.sort_by(f64::total_cmp);
    let median = packets.get(packets.len() / 2).copied().unwrap_or(f64::INFINITY);
    Ok(vec![
        Criterion::at_most(
            "time for a packet, LLVM ÷ Cranelift, worst of the modules",
            ratios.max(),
            RATIO_MAX,
            "×",
        ),
        Criterion::at_most(
            "millions of packets until more than half of the modules have paid off",
            median / 1e6,
            PACKETS_MAX / 1e6,
            "",
        ),
    ])
}

fn csv(all: &[ModuleTimes]) -> Csv {
    let mut csv = Csv::new(&[
        "module",
        "compiling_cranelift_ms",
        "compiling_llvm_ms",
        "packet_cranelift_ns",
        "packet_llvm_ns",
        "saved_ns",
        "saved_lower_quartile_ns",
        "saved_upper_quartile_ns",
        "paid_off_packets",
    ]);
    for times in all {
        let [cranelift_ms, llvm_ms] = &times.compiling_ms;
        let [cranelift, llvm] = &times.packet_ns;
        let saved = times.saved_ns();
        csv.row([
            times.module.as_str().into(),
            cranelift_ms.median().into(),
            llvm_ms.median().into(),
            cranelift.median().into(),
            llvm.median().into(),
            saved.median.into(),
            saved.lower.into(),
            saved.upper.into(),
            times.packets().round().into(),
        ]);
    }
    csv
}

fn remarks(all: &[ModuleTimes]) -> String {
    let mut table = Table::new(
        "module | compiling, Cranelift, ms | compiling, LLVM, ms | packet, Cranelift, ns | packet, LLVM, ns | saved, ns (quartiles) | packets until paid off | at 1 million packets/s",
    );
    for times in all {
        let [cranelift_ms, llvm_ms] = &times.compiling_ms;
        let [cranelift, llvm] = &times.packet_ns;
        let saved = times.saved_ns();
        let packets = times.packets();
        let paid_off = if packets.is_finite() {
            format!("{:.0} million | {:.0} s", packets / 1e6, packets / 1e6)
        } else {
            "LLVM is not faster | –".to_owned()
        };
        table.row(format_args!(
            "{} | {:.1} | {:.1} | {:.2} | {:.2} | {:.2} ({}) | {paid_off}",
            times.module,
            cranelift_ms.median(),
            llvm_ms.median(),
            cranelift.median(),
            llvm.median(),
            saved.median,
            saved.spread(2)
        ));
    }
    table.to_string()
}

/// Bars up to the number of packets, with a thin line from the number at the upper to that at the lower quartile of savings.
fn chart(all: &[ModuleTimes]) -> Chart {
    let label = |times: &ModuleTimes| match times.is_faster() {
        true => times.module.clone(),
        false => format!("{}: LLVM is not faster", times.module),
    };
    // The legend is in the empty rows above the others.
    let names: Vec<String> = all.iter().rev().map(label).chain([String::new(), String::new()]).collect();
    let mut chart = Chart::new(
        ChartAxis::logarithmic("packets until LLVM has paid off", SHOWN.0, SHOWN.1),
        ChartAxis::rows(&names.iter().map(String::as_str).collect::<Vec<_>>()),
    );
    let (mut bars, mut quartiles) = (Vec::new(), Vec::new());
    let mut row = 0.0;
    for times in all.iter().rev() {
        if times.is_faster() {
            let saved = times.saved_ns();
            bars.push((SHOWN.0, times.packets().min(SHOWN.1), row));
            let [fewest, most] = [saved.upper, saved.lower].map(|saved| times.packets_at(saved).min(SHOWN.1));
            quartiles.push(vec![(fewest, row), (most, row)]);
        }
        row += 1.0;
    }
    chart.add("median", 1, Mark::Spans(bars));
    for line in quartiles {
        chart.add("quartiles of savings", 5, Mark::Line(line));
    }
    chart.add(
        "10 minutes at 1 million packets/s",
        3,
        Mark::Expected(vec![(PACKETS_MAX, -0.6), (PACKETS_MAX, row - 0.4)]),
    );
    chart
}

/// The total time with LLVM, divided by that with Cranelift alone, by the number of packets.
fn totals(all: &[ModuleTimes]) -> Chart {
    // Twenty points for each power of ten.
    let points: Vec<f64> = (100..=220).map(|twentieth| 10f64.powf(f64::from(twentieth) / 20.0)).collect();
    let smallest = all.iter().map(|times| times.total_ratio(SHOWN.1)).fold(1.0, f64::min);
    let mut chart = Chart::new(
        ChartAxis::logarithmic("packets", SHOWN.0, SHOWN.1),
        ChartAxis::linear("total time, LLVM too ÷ Cranelift alone", smallest - 0.05, TOTAL_RATIO_SHOWN),
    );
    for (number, times) in all.iter().enumerate() {
        let line = points.iter().map(|packets| (*packets, times.total_ratio(*packets)));
        let shown = line.filter(|(_, ratio)| *ratio <= TOTAL_RATIO_SHOWN).collect();
        chart.add(&times.module, number, Mark::Line(shown));
    }
    chart.add("", 5, Mark::Expected(vec![(SHOWN.0, 1.0), (SHOWN.1, 1.0)]));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Sample {
        values.iter().copied().collect()
    }

    /// A module that LLVM compiles in 100 ms, with packets of 10 ns in Cranelift's code.
    fn made(llvm_ns: &[f64]) -> ModuleTimes {
        ModuleTimes {
            module: "made".to_owned(),
            compiling_ms: [of(&[20.0]), of(&[100.0])],
            packet_ns: [llvm_ns.iter().map(|_| 10.0).collect(), of(llvm_ns)],
        }
    }

    #[test]
    fn a_module_has_paid_off_when_its_savings_are_the_time_of_compiling() {
        let faster = made(&[8.0, 8.0, 8.0]);
        assert!(faster.is_faster());
        assert_eq!(faster.packets(), 50e6);
        assert!((faster.total_ratio(50e6) - 1.0).abs() < 1e-9);
        let slower = made(&[10.5, 10.5, 10.5]);
        assert!(!slower.is_faster() && slower.packets().is_infinite());
        // Half of the trials are no proof of a faster module.
        assert!(!made(&[9.0, 9.0, 11.0, 11.0]).is_faster());
    }

    #[test]
    fn a_slower_module_breaks_one_criterion_and_few_savings_break_the_other() {
        let kept = |all: &[ModuleTimes]| -> Vec<bool> {
            judge(all).unwrap().iter().map(|criterion| criterion.is_kept).collect()
        };
        let (faster, slower, equal) = (made(&[8.0]), made(&[11.0]), made(&[10.0]));
        assert_eq!(kept(&[faster.clone(), faster.clone(), equal.clone()]), [true, true]);
        assert_eq!(kept(&[faster.clone(), faster.clone(), slower]), [false, true]);
        // Half of the modules do not suffice.
        assert_eq!(kept(&[faster, equal]), [true, false]);
        assert_eq!(kept(&[made(&[9.9])]), [true, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn a_module_that_is_not_faster_is_named_as_such() {
        let all = [made(&[8.0]), made(&[11.0])];
        let svg = chart(&all).svg("payoff").unwrap();
        assert!(svg.contains("made: LLVM is not faster"));
        let table = remarks(&all);
        for text in ["LLVM is not faster", " 50 million |", " 50 s |"] {
            assert!(table.contains(text), "{text}: {table}");
        }
        assert!(totals(&all).svg("payoff-total").is_ok());
    }
}
