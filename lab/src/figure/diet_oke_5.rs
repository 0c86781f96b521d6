//! Diet-OKE, figure 5: the time per packet of four applications, checked in both back ends and unchecked, alone and
//! together.

use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::comparison::{MeasuredBuild, Repetitions, compare_builds};
use crate::error::LabError;
use crate::machine::{CORE, OTHER_CORE, bind};
use crate::module::Module;
use crate::packets::{Packets, Tick, ticks};
use crate::paths;
use crate::price::{BuildKind, Builder};
use crate::sandboxed::BACK_ENDS;
use crate::statistics::Sample;
use std::fmt::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_sandbox::{BackEnd, WasmtimeCheck};

pub const FIGURE: Figure = Figure {
    name: "diet-oke-5",
    title: "Diet-OKE, figure 5: time for a packet, checked and unchecked, alone and together",
    experiment: "The paper's four applications as modules that come with weir: SYN flood detection, packet counts per port, string search, and marking of \
packets. *Checked* is the module as a node runs it, in its tier, in the code of each back end. *Unchecked* is the same C source compiled by clang -O3. All get the \
same packets: 4096 of the sample capture, in batches. In each of 15 trials the three builds are loaded anew, in another order, and take turns in 41 rounds, whose median is the value of the trial. \
The chart shows medians over the trials. *Together*: the other three \
modules run on another core at the same time, without pause, in verified code of LLVM. The experiment fails unless all builds give the same output for each \
packet.",
    paper: "on microengines of an IXP1200 at 200 MHz (simulated), checks cost most in the search for \"/bin\", which loops over bytes, and little \
elsewhere; about 20 % is called typical. All four take slightly longer while the others run, as they share the memory bus.",
    without: "wasmtime's fuel, charged in each basic block of Cranelift's code, replaces the bounds that are proved in advance, and verified code",
    run,
};

const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
/// Packets that stay in the processor's cache.
const PACKETS: usize = 4096;
const REPETITIONS: Repetitions = Repetitions { rounds: 41, warm: true, passes: 4 };
/// The number of trials, for each of which all builds are loaded: the place of code and data in memory differs.
const TRIALS: usize = 15;
/// The typical time of checked code as a multiple of that of unchecked code, according to the paper.
const TYPICAL_RATIO: f64 = 1.2;
const SITUATIONS: [&str; 2] = ["alone", "together"];

/// Nanoseconds per packet of one module in a situation: one value per trial.
#[derive(Clone, Debug)]
struct Row {
    module: &'static str,
    situation: &'static str,
    /// In the code of each of [`BACK_ENDS`].
    checked: [Sample; 2],
    unchecked: Sample,
}

impl Row {
    /// The ratios of checked to unchecked code, median over the trials, for each of [`BACK_ENDS`].
    fn ratios(&self) -> [f64; 2] {
        self.checked.each_ref().map(|checked| checked.ratio_to(&self.unchecked).median())
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let rows = record(mechanism)?;
    let criteria = judge(&rows)?;
    let mut csv = Csv::new(&[
        "module",
        "situation",
        "unchecked_ns",
        "checked_cranelift_ns",
        "checked_llvm_ns",
        "cranelift_ratio",
        "llvm_ratio",
    ]);
    for row in &rows {
        let [cranelift, llvm] = &row.checked;
        let ratios = row.ratios();
        csv.row([
            row.module.into(),
            row.situation.into(),
            row.unchecked.median().into(),
            cranelift.median().into(),
            llvm.median().into(),
            ratios[0].into(),
            ratios[1].into(),
        ]);
    }
    Ok(Outcome::new(&FIGURE, csv, chart(&rows), criteria, remarks(&rows)))
}

fn remarks(rows: &[Row]) -> String {
    let mut text = String::from("Checked ÷ unchecked, in code of Cranelift and of LLVM:");
    for row in rows {
        let [cranelift, llvm] = row.ratios();
        _ = write!(text, " {} {} {cranelift:.2} and {llvm:.2},", row.module, row.situation);
    }
    text.pop();
    text + "."
}

fn record(mechanism: Mechanism) -> Result<Vec<Row>, LabError> {
    let packets = Packets::read(&paths::sample(), PACKETS)?;
    // Each thread writes descriptors for its modules, so each has packets of its own.
    let other_packets = Packets::read(&paths::sample(), PACKETS)?;
    let mut rows = Vec::new();
    for module in MODULES {
        for situation in SITUATIONS {
            let is_together = situation == SITUATIONS[1];
            let neighbours = Neighbours {
                are_ready: Barrier::new(1 + usize::from(is_together)),
                is_over: AtomicBool::new(false),
            };
            let row = std::thread::scope(|scope| {
                let others = is_together.then(|| {
                    let (packets, neighbours) = (&other_packets, &neighbours);
                    scope.spawn(move || neighbours.run(module, packets))
                });
                let measured = measure(module, &packets, mechanism, &neighbours);
                neighbours.is_over.store(true, Ordering::Release);
                let disturbed = others.map(|others| others.join().unwrap_or(Ok(())));
                disturbed.unwrap_or(Ok(())).and(measured)
            });
            let [cranelift, llvm, unchecked] = row?;
            rows.push(Row { module, situation, checked: [cranelift, llvm], unchecked });
        }
    }
    Ok(rows)
}

/// Measures the builds of a module while the neighbours run: checked in the code of each back end, and unchecked.
fn measure(
    name: &str,
    packets: &Packets,
    mechanism: Mechanism,
    neighbours: &Neighbours,
) -> Result<[Sample; 3], LabError> {
    let bound = bind(CORE);
    neighbours.are_ready.wait();
    bound?;
    let module = Module::named(name)?;
    let builder = Builder::open(packets)?;
    let tier = module.admit()?.tier();
    let [cranelift, llvm] = BACK_ENDS.map(|back_end| match mechanism {
        Mechanism::On => BuildKind::in_tier(back_end, tier),
        Mechanism::Off => BuildKind::Wasmtime(WasmtimeCheck::Fuel),
    });
    let kinds = [cranelift, llvm, BuildKind::CLANG];
    let batches = packets.batches();
    let ticks = ticks(batches, module.admit()?.tick_period());
    let mut samples: [Sample; 3] = Default::default();
    // The order of loading decides places in memory.
    let mut order = [0, 1, 2];
    for _ in 0..TRIALS {
        order.rotate_left(1);
        let mut builds = Vec::new();
        for kind in order.map(|place| kinds[place]) {
            builds.push(MeasuredBuild::new(kind.name(), &module, packets, builder.make(&module, kind)?));
        }
        compare_builds(name, &mut builds, batches, &ticks, REPETITIONS)?;
        for (place, build) in order.into_iter().zip(builds) {
            samples[place].push(build.nanos.median());
        }
    }
    Ok(samples)
}

/// The modules that run on another core during a measurement.
struct Neighbours {
    /// The start of the measurement, once the modules are loaded.
    are_ready: Barrier,
    /// Set at the end of the measurement.
    is_over: AtomicBool,
}

impl Neighbours {
    /// Runs the other three modules on another core until the measurement is over.
    fn run(&self, measured: &str, packets: &Packets) -> Result<(), LabError> {
        let builder = bind(OTHER_CORE).and_then(|()| Builder::open(packets));
        // The measurement waits for this thread also if the modules cannot be loaded.
        let builder = match builder {
            Ok(builder) => builder,
            Err(error) => {
                self.are_ready.wait();
                return Err(error);
            }
        };
        let builds = load_others(&builder, measured, packets);
        self.are_ready.wait();
        let mut builds = builds?;
        while !self.is_over.load(Ordering::Acquire) {
            for (build, ticks) in &mut builds {
                build.pass(packets.batches(), ticks)?;
            }
        }
        Ok(())
    }
}

/// Loads the other three modules, in verified code.
fn load_others<'a>(
    builder: &'a Builder<'_>,
    measured: &str,
    packets: &'a Packets,
) -> Result<Vec<(MeasuredBuild<'a>, Vec<Tick>)>, LabError> {
    let mut builds = Vec::new();
    for name in MODULES.iter().filter(|name| **name != measured) {
        let module = Module::named(name)?;
        let admitted = module.admit()?;
        let kind = BuildKind::in_tier(BackEnd::Llvm, admitted.tier());
        builds.push((
            MeasuredBuild::new(*name, &module, packets, builder.make(&module, kind)?),
            ticks(packets.batches(), admitted.tick_period()),
        ));
    }
    Ok(builds)
}

fn judge(rows: &[Row]) -> Result<Vec<Criterion>, LabError> {
    let mut criteria = Vec::new();
    for (place, back_end) in BACK_ENDS.into_iter().enumerate() {
        for situation in SITUATIONS {
            let ratios: Sample =
                rows.iter().filter(|row| row.situation == situation).map(|row| row.ratios()[place]).collect();
            if ratios.median().is_nan() {
                return Err(LabError::NoData(format!("no module was measured {situation}")));
            }
            let what = format!("{back_end}: checked ÷ unchecked, {situation}, median of the four");
            criteria.push(Criterion::at_most(what, ratios.median(), TYPICAL_RATIO, "×"));
        }
    }
    Ok(criteria)
}

fn chart(rows: &[Row]) -> Chart {
    // Rows count from the bottom, with an empty row between situations.
    let mut names: Vec<String> = Vec::new();
    let mut spans: [Vec<(f64, f64, f64)>; 3] = Default::default();
    let (mut line, mut nanos_max) = (0.0, 1.0_f64);
    for row in rows.iter().rev() {
        let [cranelift, llvm] = &row.checked;
        let bars = [(2, llvm), (1, cranelift), (0, &row.unchecked)];
        for (series, sample) in bars {
            spans[series].push((0.0, sample.median(), line));
            nanos_max = nanos_max.max(sample.median());
            names.push(if series == 1 {
                format!("{}, {}", row.module, row.situation)
            } else {
                String::new()
            });
            line += 1.0;
        }
        names.push(String::new());
        line += 1.0;
    }
    names.pop();
    // The legend is beside the bars.
    let mut chart = Chart::new(
        ChartAxis::linear("ns for a packet", 0.0, nanos_max * 1.4),
        ChartAxis::rows(&names.iter().map(String::as_str).collect::<Vec<_>>()),
    );
    let legend = [("unchecked", 5), ("checked, Cranelift", 0), ("checked, LLVM", 1)];
    for ((name, colour), spans) in legend.into_iter().zip(spans) {
        chart.add(name, colour, Mark::Spans(spans));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with these ratios of the four modules, in code of Cranelift and of LLVM.
    fn made(cranelift: [f64; 4], llvm: [f64; 4]) -> Vec<Row> {
        let sample = |value: f64| -> Sample { [value].into_iter().collect() };
        let ratios = cranelift.into_iter().zip(llvm);
        let rows = MODULES.iter().zip(ratios).flat_map(|(module, (cranelift, llvm))| {
            SITUATIONS.map(|situation| Row {
                module,
                situation,
                checked: [sample(cranelift * 10.0), sample(llvm * 10.0)],
                unchecked: sample(10.0),
            })
        });
        rows.collect()
    }

    #[test]
    fn the_typical_cost_keeps_the_criteria_and_a_higher_cost_breaks_them() {
        let kept = |cranelift, llvm| -> Vec<bool> {
            judge(&made(cranelift, llvm)).unwrap().iter().map(|criterion| criterion.is_kept).collect()
        };
        let (typical, high) = ([1.1, 1.15, 2.0, 0.9], [1.3, 1.4, 2.0, 0.9]);
        assert_eq!(kept(typical, typical), [true; 4]);
        assert_eq!(kept(high, typical), [false, false, true, true]);
        assert_eq!(kept(typical, high), [true, true, false, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn every_module_is_drawn_in_each_situation() {
        let rows = made([1.1, 1.2, 1.3, 1.4], [1.0, 1.0, 1.1, 1.5]);
        let svg = chart(&rows).svg("latency").unwrap();
        for text in ["syn-flood, alone", "dscp-mark, together", "checked, LLVM", "unchecked"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(remarks(&rows).contains("dscp-mark together 1.40 and 1.50."));
    }
}
