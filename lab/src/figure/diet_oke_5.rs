//! Diet-OKE, figure 5: the time per packet of four applications, checked and unchecked, alone and together.

use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::comparison::{MeasuredBuild, Repetitions, compare_builds};
use crate::error::LabError;
use crate::machine::{CORE, OTHER_CORE, bind};
use crate::module::Module;
use crate::native::Build;
use crate::packets::{Packets, ticks};
use crate::paths;
use crate::price::{BuildKind, Builder};
use crate::statistics::Sample;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_sandbox::WasmtimeCheck;

pub const FIGURE: Figure = Figure {
    name: "diet-oke-5",
    title: "Diet-OKE, figure 5: time for a packet, checked and unchecked, alone and together",
    experiment: "The paper's four applications as modules that come with weir: SYN flood detection, packet counts per port, string search, and marking of \
packets. *Checked* is the module as a node runs it. *Unchecked* is the same C source compiled by clang -O3 (or gcc, if there is no \
clang), over the same packets: 4096 of the sample capture, in batches. *Together*: the other three run on another core at the same time, \
without pause. The experiment fails unless both builds give the same output for each packet.",
    paper: "on microengines of an IXP1200 at 200 MHz (simulated), checks cost most in the search for \"/bin\", which loops over bytes, and little \
elsewhere; about 20 % is called typical. All four take slightly longer while the others run, as they share the memory bus.",
    without: "wasmtime's fuel, charged in each basic block, replaces the bounds that are proved in advance",
    run,
};

const MODULES: [&str; 4] = ["syn-flood", "port-count", "payload-match", "dscp-mark"];
/// Packets that stay in the processor's cache.
const PACKETS: usize = 4096;
const REPETITIONS: Repetitions = Repetitions { rounds: 41, warm: true, passes: 4 };
/// The typical time of checked code as a multiple of that of unchecked code, according to the paper.
const TYPICAL_RATIO: f64 = 1.2;
const SITUATIONS: [&str; 2] = ["alone", "together"];

/// Nanoseconds per packet of one module in a situation.
#[derive(Clone, Debug)]
struct Row {
    module: &'static str,
    situation: &'static str,
    checked: Sample,
    unchecked: Sample,
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let rows = record(mechanism)?;
    let criteria = judge(&rows)?;
    let mut csv = Csv::new(&["module", "situation", "checked_ns", "unchecked_ns", "ratio"]);
    let mut remarks = String::from("Checked ÷ unchecked:");
    for row in &rows {
        let ratio = row.checked.ratio_to(&row.unchecked).median();
        csv.row([
            row.module.into(),
            row.situation.into(),
            row.checked.median().into(),
            row.unchecked.median().into(),
            ratio.into(),
        ]);
        _ = write!(remarks, " {} {} {ratio:.2},", row.module, row.situation);
    }
    remarks.pop();
    remarks.push('.');
    Ok(Outcome::new(&FIGURE, csv, chart(&rows), criteria, remarks))
}

fn record(mechanism: Mechanism) -> Result<Vec<Row>, LabError> {
    let packets = Packets::read(&paths::sample(), PACKETS)?;
    // Each thread writes descriptors for its modules, so each has packets of its own.
    let other_packets = Packets::read(&paths::sample(), PACKETS)?;
    let mut rows = Vec::new();
    for module in MODULES {
        for situation in SITUATIONS {
            let is_over = AtomicBool::new(false);
            let row = std::thread::scope(|scope| {
                let others = (situation == SITUATIONS[1]).then(|| {
                    let (packets, is_over) = (&other_packets, &is_over);
                    scope.spawn(move || disturb(module, packets, is_over))
                });
                let row = measure(module, situation, &packets, mechanism);
                is_over.store(true, Ordering::Release);
                let disturbed = others.map(|others| others.join().unwrap_or(Ok(())));
                disturbed.unwrap_or(Ok(())).and(row)
            })?;
            rows.push(row);
        }
    }
    Ok(rows)
}

fn measure(
    name: &'static str,
    situation: &'static str,
    packets: &Packets,
    mechanism: Mechanism,
) -> Result<Row, LabError> {
    bind(CORE)?;
    let module = Module::named(name)?;
    let builder = Builder::open(packets)?;
    let checked = if mechanism == Mechanism::On {
        BuildKind::Sandbox
    } else {
        BuildKind::Wasmtime(WasmtimeCheck::Fuel)
    };
    let plain = Build { this_processor: false, one_unit: false, naive_find: false };
    let natives = [BuildKind::Clang(plain), BuildKind::Gcc(plain)];
    let kinds = builder.kinds(&module);
    let unchecked = natives.into_iter().find(|kind| kinds.contains(kind)).unwrap_or(natives[0]);
    let mut builds = Vec::new();
    for kind in [checked, unchecked] {
        builds.push(MeasuredBuild::new(kind.name(), &module, packets, builder.make(&module, kind)?));
    }
    let batches = packets.batches();
    let ticks = ticks(batches, module.admit()?.tick_period());
    compare_builds(name, &mut builds, batches, &ticks, REPETITIONS)?;
    let mut samples = builds.into_iter().map(|build| build.nanos);
    let mut next = || samples.next().unwrap_or_default();
    Ok(Row { module: name, situation, checked: next(), unchecked: next() })
}

/// Runs the other three modules on another core until `is_over`.
fn disturb(measured: &str, packets: &Packets, is_over: &AtomicBool) -> Result<(), LabError> {
    bind(OTHER_CORE)?;
    let builder = Builder::open(packets)?;
    let mut builds = Vec::new();
    for name in MODULES.iter().filter(|name| **name != measured) {
        let module = Module::named(name)?;
        let build = builder.make(&module, BuildKind::Sandbox)?;
        builds.push((
            MeasuredBuild::new(*name, &module, packets, build),
            ticks(packets.batches(), module.admit()?.tick_period()),
        ));
    }
    while !is_over.load(Ordering::Acquire) {
        for (build, ticks) in &mut builds {
            build.pass(packets.batches(), ticks)?;
        }
    }
    Ok(())
}

fn judge(rows: &[Row]) -> Result<Vec<Criterion>, LabError> {
    let mut criteria = Vec::new();
    for situation in SITUATIONS {
        let mut ratios = Sample::default();
        for row in rows.iter().filter(|row| row.situation == situation) {
            ratios.push(row.checked.ratio_to(&row.unchecked).median());
        }
        if ratios.median().is_nan() {
            return Err(LabError::NoData(format!("no module was measured {situation}")));
        }
        let what = format!("checked ÷ unchecked, {situation}, median of the four");
        criteria.push(Criterion::at_most(what, ratios.median(), TYPICAL_RATIO, "×"));
    }
    Ok(criteria)
}

fn chart(rows: &[Row]) -> Chart {
    let names: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            ["unchecked", "checked"].map(|kind| format!("{}, {}, {kind}", row.module, row.situation))
        })
        .rev()
        .collect();
    let nanos_max =
        rows.iter().map(|row| row.checked.median().max(row.unchecked.median())).fold(1.0, f64::max);
    let mut chart = Chart::new(
        ChartAxis::linear("ns for a packet", 0.0, nanos_max * 1.1),
        ChartAxis::rows(&names.iter().map(String::as_str).collect::<Vec<_>>()),
    );
    let (mut checked, mut unchecked) = (Vec::new(), Vec::new());
    let mut line = 0.0;
    for row in rows.iter().rev() {
        checked.push((0.0, row.checked.median(), line));
        unchecked.push((0.0, row.unchecked.median(), line + 1.0));
        line += 2.0;
    }
    chart.add("checked", 0, Mark::Spans(checked));
    chart.add("unchecked", 5, Mark::Spans(unchecked));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(ratios: [f64; 4]) -> Vec<Row> {
        let sample = |value: f64| {
            let mut sample = Sample::default();
            sample.push(value);
            sample
        };
        let rows = MODULES.iter().zip(ratios).flat_map(|(module, ratio)| {
            SITUATIONS.map(|situation| Row {
                module,
                situation,
                checked: sample(ratio * 10.0),
                unchecked: sample(10.0),
            })
        });
        rows.collect()
    }

    #[test]
    fn the_typical_cost_keeps_the_criteria_and_a_higher_cost_breaks_them() {
        let kept = |ratios| judge(&made(ratios)).unwrap().iter().map(|v| v.is_kept).collect::<Vec<_>>();
        assert_eq!(kept([1.1, 1.15, 2.0, 0.9]), [true, true]);
        assert_eq!(kept([1.3, 1.4, 2.0, 0.9]), [false, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn every_module_is_drawn_in_each_situation() {
        let svg = chart(&made([1.1, 1.2, 1.3, 1.4])).svg("latency").unwrap();
        for text in ["syn-flood, alone, checked", "dscp-mark, together, unchecked"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
