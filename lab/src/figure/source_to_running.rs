//! The time from a module to its running machine code, by stage: with a bundle, and with compilers on the node.

use super::network::ip;
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::error::LabError;
use crate::machine::{CORE, bind};
use crate::module::Module;
use crate::statistics::{Action, Sample, measure_values_in_turn};
use crate::table::Table;
use rand_core::OsRng;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;
use weir_admission::{Admitted, Calibration, Profile};
use weir_compilation::bundle::{Bundle, ObjectForm};
use weir_compilation::compiler_keys::{CompilerKey, CompilerPolicy, Judgement, VouchedCode, VouchedFor};
use weir_compilation::envelope::Envelope;
use weir_compilation::expected::{Compiled, profile_digest, profile_of_record};
use weir_compilation::statement::{Bounds, Compilation, Inputs, Isolated, Predicate, Statement};
use weir_sandbox::{
    Cache, Engine, EngineOptions, GivenObject, Instance, IsolatedAccesses, LlvmUse, LoadedModule,
};
use weir_trust::digest::Sha256Digest;
use weir_trust::grant::UnixSecond;
use weir_trust::key::Identity;
use weir_units::Nanos;
use weir_verify::CpuFeatures;

pub const FIGURE: Figure = Figure {
    name: "source-to-running",
    title: "From source to running, by stage: a bundle, and compilers on the node",
    experiment: "The shipped modules. With a bundle, clang compiles both object files on one machine (*compile*), which signs the records (*sign*) and sends the \
bundle over a TCP connection (*transfer*, here on loopback: a network adds its own time). The node, which has no compiler, judges the signatures, admits the \
module and compares the records (*check*), makes the text for LLVM, links and verifies the object file (*verify*), and starts an instance (*start*). Beside it, nodes with \
compilers: they admit the module, compile it with Cranelift, or with clang and verify the code, and start an instance, without a cache (*cold*) and with the \
code in the cache (*cached*). Times are by the clock on an idle machine, medians of 15 rounds, all in turn; compilers run without a process of their own, whose \
confinement adds milliseconds. Bars go from the fastest module to the slowest, with a line at the median.",
    paper: "",
    without: "the node does not trust the key, so it compiles the module of the bundle with Cranelift",
    run,
};

const ROUNDS: usize = 15;
/// The promised limit of the node's time for a bundle, as a multiple of that of a node that compiles with Cranelift.
const RATIO_MAX: f64 = 0.5;

/// The stages of a bundle, then the whole times of nodes with compilers.
const STAGES: [&str; 10] = [
    "compile",
    "sign",
    "transfer",
    "check",
    "verify",
    "start",
    "Cranelift, cold",
    "Cranelift, cached",
    "LLVM, cold",
    "LLVM, cached",
];
/// The number of stages of a bundle.
const BUNDLE_STAGES: usize = 6;
/// The first stage of a bundle that happens on the node.
const FIRST_ON_NODE: usize = 3;
const CRANELIFT_COLD: usize = 6;

/// The times of a module, one sample for each of [`STAGES`], in ms.
#[derive(Clone, Debug)]
struct StageTimes {
    module: String,
    bundle_bytes: usize,
    millis: [Sample; STAGES.len()],
}

impl StageTimes {
    /// The time from a bundle's arrival to the running module, as a multiple of the time of compiling with Cranelift, cold.
    fn ratio(&self) -> f64 {
        let on_node = self.millis[FIRST_ON_NODE..BUNDLE_STAGES].iter().map(Sample::median).sum::<f64>();
        on_node / self.millis[CRANELIFT_COLD].median()
    }
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    bind(CORE)?;
    // The experiment is in a network namespace of its own, where loopback is down.
    ip("link set dev lo up")?;
    let folder = tempfile::tempdir().map_err(LabError::file(&std::env::temp_dir()))?;
    let machines = MeasuredMachines::start(folder.path(), mechanism)?;
    let mut all = Vec::new();
    for module in Module::shipped()? {
        all.push(machines.measure(&module)?);
    }
    Ok(Outcome::new(&FIGURE, csv(&all), chart(&all), judge(&all)?, remarks(&all)))
}

/// The compiler's machine, and nodes.
struct MeasuredMachines {
    compiler: Engine,
    signer: Identity,
    policy: CompilerPolicy,
    without_compiler: Engine,
    /// Engines with Cranelift and with LLVM, cold and cached.
    compiling: [Engine; 4],
    nanoseconds: u64,
}

impl MeasuredMachines {
    fn start(folder: &Path, mechanism: Mechanism) -> Result<Self, LabError> {
        let engine = |llvm, compiles, cache: Option<&str>| {
            let cache = cache.map(|name| Cache::open(&folder.join(name))).transpose();
            let cache = cache.map_err(|error| LabError::failed("the cache", error.to_string()))?;
            Ok::<_, LabError>(Engine::new(
                EngineOptions { llvm, compiles, ..EngineOptions::default() },
                cache,
            )?)
        };
        let signer = Identity::generate(&mut OsRng);
        let trusted_for = BTreeSet::from(VouchedFor::ALL);
        let key = CompilerKey { key: signer.public(), trusted_for, expires: None, revoked_by: None };
        let is_trusted = mechanism == Mechanism::On;
        let keys = if is_trusted { vec![key] } else { Vec::new() };
        let [.., nanoseconds] = Calibration::default().spread();
        Ok(Self {
            compiler: engine(LlvmUse::AtLoad, true, None)?,
            signer,
            policy: CompilerPolicy { keys, signatures: 1 },
            // A node that does not trust the key needs a compiler.
            without_compiler: engine(LlvmUse::Never, !is_trusted, None)?,
            compiling: [
                engine(LlvmUse::Never, true, None)?,
                engine(LlvmUse::Never, true, Some("cranelift"))?,
                engine(LlvmUse::AtLoad, true, None)?,
                engine(LlvmUse::AtLoad, true, Some("llvm"))?,
            ],
            nanoseconds,
        })
    }

    fn measure(&self, module: &Module) -> Result<StageTimes, LabError> {
        let bytes = module.wasm.clone();
        let mut bundle_bytes = 0;
        let of_bundle: Action<'_, Vec<f64>> = Box::new(|| {
            let (times, bytes) = self.by_bundle(module, &bytes)?;
            bundle_bytes = bytes;
            Ok(times.to_vec())
        });
        let compiling = self.compiling.iter().map(|engine| {
            let bytes = &bytes;
            Box::new(move || {
                let begin = Instant::now();
                let admitted = admit(module, bytes.clone(), self.nanoseconds)?;
                let loaded = engine.load_suspendable(admitted)?;
                start(engine, &loaded)?;
                Ok(vec![millis(begin)])
            }) as Action<'_, Vec<f64>>
        });
        let mut actions: Vec<Action<'_, Vec<f64>>> = std::iter::once(of_bundle).chain(compiling).collect();
        let values = measure_values_in_turn(ROUNDS, &mut actions)?;
        drop(actions);
        let mut samples: [Sample; STAGES.len()] = Default::default();
        for (round, times) in values[0].iter().enumerate() {
            let others = values[1..].iter().filter_map(|values| values[round].first());
            for (sample, time) in samples.iter_mut().zip(times.iter().chain(others)) {
                sample.push(*time);
            }
        }
        Ok(StageTimes { module: module.name.clone(), bundle_bytes, millis: samples })
    }

    /// Takes a module from its bytes to a running instance by a bundle. Returns the times of the stages, and the bundle's bytes.
    fn by_bundle(&self, module: &Module, bytes: &[u8]) -> Result<([f64; BUNDLE_STAGES], usize), LabError> {
        let failed = |why: String| LabError::failed(&module.name, why);
        let mut times = [0.0; BUNDLE_STAGES];
        let begin = Instant::now();
        let admitted = admit(module, bytes.to_vec(), self.nanoseconds)?;
        let mut objects = Vec::new();
        for form in ObjectForm::ALL {
            let features = weir_native::cpu_features();
            let features = CpuFeatures::of_level(features.level()).unwrap_or_default();
            let compiled = self
                .compiler
                .compile_object(&admitted, form.is_suspendable(), features)
                .map_err(|error| failed(error.to_string()))?;
            objects.push((form, features, compiled));
        }
        times[0] = millis(begin);

        let begin = Instant::now();
        let mut bundle = Bundle::new(bytes.to_vec());
        for (form, features, compiled) in objects {
            let inputs = Inputs::of(Compiled {
                admitted: &admitted,
                customisation_type: profile_digest(admitted.profile()),
                settings: &[],
                form,
                features,
                nanoseconds_per_1000_fuel: self.nanoseconds,
                isolated: Isolated::from(&compiled.isolated),
                text: Sha256Digest::of(compiled.text.as_bytes()),
            });
            let digest = Sha256Digest::of(&compiled.object);
            let record = Compilation::new("urn:weir:lab".to_owned(), inputs, Vec::new());
            bundle.set(form.record(), self.signed(form, digest, record));
            bundle.set(form.bounds(), self.signed(form, digest, Bounds::of(&admitted, compiled.stack_bound)));
            bundle.set(form.object(), compiled.object);
        }
        let sent = bundle.to_bytes();
        times[1] = millis(begin);

        let begin = Instant::now();
        let received = transferred(&sent).map_err(|error| failed(error.to_string()))?;
        times[2] = millis(begin);

        let begin = Instant::now();
        let bundle = Bundle::parse(&received).map_err(|error| failed(error.to_string()))?;
        let judgement = Judgement { now: UnixSecond::MAX, is_revoked: &|_| false };
        let of_node = (&Profile::default(), self.nanoseconds);
        let vouched = self.policy.vouched(&bundle, ObjectForm::Suspendable, of_node, judgement);
        let admitted = admit(module, bundle.module().to_vec(), self.nanoseconds)?;
        if let Ok(vouched) = &vouched {
            vouched.check(&admitted, &[]).map_err(|error| failed(error.to_string()))?;
        }
        times[3] = millis(begin);

        let begin = Instant::now();
        let engine = &self.without_compiler;
        let loaded = match vouched {
            Err(_) => engine.load_suspendable(admitted)?,
            Ok(VouchedCode { object, inputs, bounds, features, .. }) => {
                let isolated = IsolatedAccesses::from(&inputs.isolated_accesses);
                let text = inputs.text.sha256.0;
                let given = GivenObject { object, features, isolated, text, stack_bytes: bounds.stack_bytes };
                engine.load_code(engine.take_object(admitted, true, &given, &mut Nanos(0))?)?
            }
        };
        times[4] = millis(begin);

        let begin = Instant::now();
        start(engine, &loaded)?;
        times[5] = millis(begin);
        Ok((times, sent.len()))
    }

    /// The text of a signed statement about an object file.
    fn signed<P: Predicate>(&self, form: ObjectForm, object: Sha256Digest, predicate: P) -> Vec<u8> {
        let statement = Statement { name: form.object().name().to_owned(), object, predicate };
        let mut envelope = Envelope::new(statement.to_json().into_bytes());
        envelope.sign(&self.signer);
        envelope.to_json().into_bytes()
    }
}

/// Sends bytes over a TCP connection on loopback, and returns those that arrive.
fn transferred(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // The connection is made before the other end accepts it.
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            stream.write_all(bytes)?;
            stream.shutdown(Shutdown::Write)
        });
        let (mut stream, _) = listener.accept()?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        sender.join().unwrap_or_else(|_| Err(std::io::Error::other("the sender has panicked")))?;
        Ok(received)
    })
}

fn admit(module: &Module, bytes: Vec<u8>, nanoseconds: u64) -> Result<Admitted, LabError> {
    let failed = |why: String| LabError::failed(&module.name, why);
    let profile = profile_of_record(Profile::default(), nanoseconds)
        .ok_or_else(|| failed("the calibration is out of range".to_owned()))?;
    Admitted::admit_by(bytes, &[], &profile).map_err(|error| failed(error.to_string()))
}

fn start(engine: &Engine, loaded: &LoadedModule) -> Result<(), LabError> {
    Instance::start(engine, loaded)?;
    Ok(())
}

fn millis(begin: Instant) -> f64 {
    begin.elapsed().as_secs_f64() * 1e3
}

fn judge(all: &[StageTimes]) -> Result<Vec<Criterion>, LabError> {
    if all.is_empty() {
        return Err(LabError::NoData("no module was measured".to_owned()));
    }
    let ratios: Sample = all.iter().map(StageTimes::ratio).collect();
    let what = "a bundle's time on the node (check, verify, start) ÷ compiling with Cranelift, cold, worst of the modules";
    Ok(vec![Criterion::at_most(what, ratios.max(), RATIO_MAX, "×")])
}

fn csv(all: &[StageTimes]) -> Csv {
    let names = STAGES.map(|stage| format!("{}_ms", stage.to_lowercase().replace(", ", "_")));
    let columns: Vec<&str> =
        ["module", "bundle_bytes"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut csv = Csv::new(&columns);
    for times in all {
        let bytes = crate::statistics::to_f64(times.bundle_bytes);
        let medians = times.millis.iter().map(|sample| sample.median().into());
        csv.row([times.module.as_str().into(), bytes.into()].into_iter().chain(medians));
    }
    csv
}

/// The medians of a stage over the modules, in rising order.
fn medians(all: &[StageTimes], stage: usize) -> Vec<f64> {
    let mut medians: Vec<f64> = all.iter().map(|times| times.millis[stage].median()).collect();
    medians.sort_by(f64::total_cmp);
    medians
}

fn remarks(all: &[StageTimes]) -> String {
    let mut table = Table::new("stage | fastest module, ms | median, ms | slowest module, ms");
    for (stage, name) in STAGES.iter().enumerate() {
        let medians = medians(all, stage);
        let at = |index: usize| medians.get(index).copied().unwrap_or(f64::NAN);
        let last = medians.len().saturating_sub(1);
        let place = if stage < BUNDLE_STAGES { "bundle: " } else { "" };
        table.row(format_args!("{place}{name} | {:.2} | {:.2} | {:.2}", at(0), at(last / 2), at(last)));
    }
    let sizes: Vec<String> =
        all.iter().map(|times| format!("{} {} KiB", times.module, times.bundle_bytes >> 10)).collect();
    format!("{table}\nBundles: {}.\n", sizes.join(", "))
}

/// Bars from the fastest to the slowest module, with a line at the median.
fn chart(all: &[StageTimes]) -> Chart {
    // The legend is in the empty rows above the others.
    let names: Vec<&str> = STAGES.iter().rev().copied().chain(["", "", "", ""]).collect();
    let (least, most) = (0..STAGES.len()).fold((f64::INFINITY, 0.0_f64), |(least, most), stage| {
        let medians = medians(all, stage);
        let first = medians.first().copied().unwrap_or(1.0);
        (least.min(first), most.max(medians.last().copied().unwrap_or(1.0)))
    });
    let mut chart =
        Chart::new(ChartAxis::logarithmic("ms", least / 1.5, most * 1.5), ChartAxis::rows(&names));
    let parts = [
        ("bundle, on the compiler's machine", 0..FIRST_ON_NODE),
        ("bundle, on the node", FIRST_ON_NODE..BUNDLE_STAGES),
        ("nodes with compilers", BUNDLE_STAGES..STAGES.len()),
    ];
    for (colour, (name, stages)) in parts.into_iter().enumerate() {
        let (mut bars, mut lines) = (Vec::new(), Vec::new());
        for stage in stages {
            let medians = medians(all, stage);
            let row = crate::statistics::to_f64(STAGES.len() - 1 - stage);
            if let (Some(first), Some(last)) = (medians.first(), medians.last()) {
                bars.push((*first, *last, row));
                let median = medians[(medians.len() - 1) / 2];
                lines.push(vec![(median, row - 0.35), (median, row + 0.35)]);
            }
        }
        chart.add(name, colour + 1, Mark::Spans(bars));
        lines.into_iter().for_each(|line| chart.add("median", 5, Mark::Line(line)));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(on_node: f64, cranelift: f64) -> StageTimes {
        let mut millis: [Sample; STAGES.len()] = std::array::from_fn(|_| [1.0].into_iter().collect());
        millis[FIRST_ON_NODE..BUNDLE_STAGES].fill_with(|| [on_node / 3.0].into_iter().collect());
        millis[CRANELIFT_COLD] = [cranelift].into_iter().collect();
        StageTimes { module: "made".to_owned(), bundle_bytes: 2048, millis }
    }

    #[test]
    fn the_worst_module_decides() {
        let kept = |all: &[StageTimes]| judge(all).unwrap()[0].is_kept;
        assert!(kept(&[made(3.0, 20.0), made(9.0, 20.0)]));
        assert!(!kept(&[made(3.0, 20.0), made(11.0, 20.0)]));
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn every_stage_is_in_the_chart_and_the_tables() {
        let all = [made(3.0, 20.0)];
        let (svg, table, csv) = (chart(&all).svg("made").unwrap(), remarks(&all), csv(&all));
        for stage in STAGES {
            assert!(svg.contains(stage) && table.contains(stage), "{stage}");
        }
        assert!(csv.text().contains("cranelift_cold_ms"), "{}", csv.text());
        assert_eq!(csv.text().lines().last().unwrap().split(',').count(), STAGES.len() + 2);
    }
}
