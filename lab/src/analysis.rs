//! What an analysis itself takes: it reads what strangers send.

use crate::module::Module;
use crate::native::thread_time;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, adversarial, memory, place};
use std::path::Path;
use std::process::Command;
use weir_bounds::{Analysis, Costs, Environment, analyse};

/// In ms: for a shipped module, and for a hostile one of a megabyte.
const PROMISE: f64 = 5.0;
const PROMISE_HOSTILE: f64 = 50.0;
/// In bytes.
const PROMISE_MEMORY: u64 = 64 << 20;

/// The time of an analysis of each shipped module, and time and memory of analyses of modules that are made to be hard.
///
/// # Errors
/// Where a module is not admitted, or the child in which memory is measured fails.
pub fn tables(modules: &[Module], rounds: usize) -> Result<String, BenchError> {
    let mut shipped = Table::new(&["module", "bytes", "ms", "quartiles", "under 5 ms"]);
    for module in modules {
        let environment = module.admit()?.environment();
        let mut sample = Sample::default();
        for _ in 0..rounds {
            sample.push(timed(&module.wasm, &environment).0);
        }
        let q = sample.quartiles();
        shipped.row([
            module.name.clone(),
            module.wasm.len().to_string(),
            format!("{:.2}", q.median),
            q.spread(2),
            yes_or_no(q.median < PROMISE),
        ]);
    }
    let mut hostile = Table::new(&["module", "bytes", "ms", "MB", "under 50 ms and 64 MB", "answer"]);
    for (name, wasm) in adversarial::all() {
        let said = in_child(&wasm)?;
        let kept = said.millis < PROMISE_HOSTILE && said.memory < PROMISE_MEMORY;
        hostile.row([
            name.to_owned(),
            wasm.len().to_string(),
            format!("{:.1}", said.millis),
            format!("{}.{}", said.memory >> 20, ((said.memory & 0xF_FFFF) * 10) >> 20),
            yes_or_no(kept),
            said.answer,
        ]);
    }
    Ok(format!(
        "Medians of {rounds} analyses.\n\n{shipped}\nHostile ones, each analysed once in a process of its own; the memory is what its peak grew by.\n\n{hostile}"
    ))
}

/// An analysis, and the processor time that it took, in ms.
fn timed(wasm: &[u8], environment: &Environment) -> (f64, Result<Analysis, weir_bounds::Malformed>) {
    let begin = thread_time();
    let parsed = weir_bounds::Module::parse(wasm.to_vec());
    let analysis = parsed.and_then(|module| analyse(&module, environment, &Costs::standard()));
    (thread_time().saturating_sub(begin).as_secs_f64() * 1e3, analysis)
}

/// What a child says about its analysis.
struct Said {
    millis: f64,
    memory: u64,
    answer: String,
}

fn in_child(wasm: &[u8]) -> Result<Said, BenchError> {
    let folder = place::scratch();
    std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
    let path = folder.join(format!("hostile-{}.wasm", std::process::id()));
    std::fs::write(&path, wasm).map_err(BenchError::file(&path))?;
    let failed = |source| BenchError::Program { program: "bench".to_owned(), source };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("--analyse").arg(&path);
    let output = command.output().map_err(failed)?;
    let _ = std::fs::remove_file(&path);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.trim().splitn(3, ' ');
    let mut number = || parts.next().and_then(|part| part.parse::<f64>().ok());
    match (number(), number(), output.status.success()) {
        (Some(millis), Some(memory), true) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
            let memory = memory as u64;
            Ok(Said { millis, memory, answer: parts.next().unwrap_or_default().to_owned() })
        }
        _ => Err(BenchError::Failed {
            command: format!("{command:?}"),
            said: format!("{}{text}", String::from_utf8_lossy(&output.stderr)),
        }),
    }
}

/// In the child: analyses a file, and says in a line how many ms and bytes it took and what came out.
///
/// # Errors
/// Where the file cannot be read.
pub fn child(path: &Path) -> Result<String, BenchError> {
    let wasm = std::fs::read(path).map_err(BenchError::file(path))?;
    let environment =
        Environment { parameters: Vec::new(), string_bytes: Vec::new(), packet_max: 16 << 20, pages_max: 16 };
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        memory::bytes(&status, "VmHWM:")
    };
    let before = peak();
    let (millis, analysis) = timed(&wasm, &environment);
    let memory = peak().saturating_sub(before);
    let answer = match analysis {
        Err(malformed) => malformed.to_string(),
        Ok(analysis) if analysis.is_bounded() => {
            let bounds = analysis.entries.iter().map(|entry| entry.usage.fuel.to_string());
            format!("bounded: {}", bounds.collect::<Vec<_>>().join(", "))
        }
        Ok(analysis) => {
            let why = analysis
                .entries
                .iter()
                .flat_map(|entry| &entry.unbounded)
                .map(|reason| format!("{:?}", reason.why));
            format!("unbounded: {}", why.take(1).collect::<String>())
        }
    };
    Ok(format!("{millis} {memory} {answer}"))
}
