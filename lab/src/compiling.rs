//! The time of compiling modules with LLVM and of verifying their code: the part `compile` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::LabError;
use crate::module::Module;
use crate::statistics::Sample;
use crate::table::Table;
use weir_sandbox::{Engine, EngineOptions, LlvmUse, thread_time};
use weir_units::Nanos;
use weir_verify::{CodeImage, ImageFunction};

/// The promised limit of clang's processor time for a shipped module.
const CLANG_MILLIS_MAX: f64 = 200.0;
/// The promised limit of the time of verifying a shipped module.
const VERIFIER_MILLIS_MAX: f64 = 1.0;

/// The promised limit of the time of verifying a megabyte of code.
const MEGABYTE_MILLIS_MAX: f64 = 50.0;
/// `mov eax, edi; add eax, 5; mov ecx, gs:[rax + 8]; imul ecx, eax`, which is repeated in that megabyte.
const LINE: [u8; 12] = [0x89, 0xf8, 0x83, 0xc0, 0x05, 0x65, 0x8b, 0x48, 0x08, 0x0f, 0xaf, 0xc8];

/// Measures the verification of a function of 1 MiB without a branch.
fn megabyte(rounds: usize) -> Result<Sample, LabError> {
    let mut code = LINE.repeat((1 << 20) / LINE.len());
    // ret
    code.push(0xc3);
    let functions = vec![ImageFunction { offset: 0, stack_arguments: 0 }];
    let image = CodeImage { code, constants: Vec::new(), functions };
    let mut sample = Sample::default();
    for _ in 0..rounds {
        let image = image.clone();
        let start = thread_time();
        let verdict = weir_verify::verify(image, &weir_native::verify_limits(0));
        let time = Nanos(thread_time().0.saturating_sub(start.0));
        verdict.map_err(|why| LabError::failed("a megabyte of code", why.to_string()))?;
        sample.push(millis(time));
    }
    Ok(sample)
}

/// The tables: the criteria, and the times of each module.
///
/// # Errors
/// A module has no machine code.
pub fn tables(modules: &[Module], rounds: usize) -> Result<String, LabError> {
    let engine = Engine::new(EngineOptions { llvm: LlvmUse::AtLoad, ..EngineOptions::default() }, None)?;
    if let Some(why) = engine.why_not_llvm() {
        return Ok(format!("Not measured: {why}.\n"));
    }
    let mut table =
        Table::new("module | code, bytes | instructions | clang, ms | quartiles | verifying, ms | quartiles");
    let mut worst = [("", 0.0); 2];
    for module in modules {
        let (mut clang, mut verifier) = (Sample::default(), Sample::default());
        let mut size = (0, 0);
        for _ in 0..rounds {
            let explained = engine.explain_llvm(&module.admit()?)?;
            let code = explained.code.map_err(|why| LabError::failed(&module.name, format!("{why:?}")))?;
            clang.push(millis(explained.compiler_time));
            verifier.push(millis(code.verifier_time));
            size = (code.code.len(), code.instructions.len());
        }
        for (worst, sample) in worst.iter_mut().zip([&clang, &verifier]) {
            if sample.median() > worst.1 {
                *worst = (&module.name, sample.median());
            }
        }
        let (bytes, instructions) = size;
        table.row(format_args!(
            "{} | {bytes} | {instructions} | {} | {}",
            module.name,
            clang.cells(0),
            verifier.cells(2)
        ));
    }
    let criteria = [("clang", CLANG_MILLIS_MAX), ("verifying", VERIFIER_MILLIS_MAX)].into_iter().zip(worst);
    let criteria: Vec<Criterion> = criteria
        .map(|((what, limit), (module, millis))| {
            Criterion::at_most(format!("{what}, processor time, worst ({module})"), millis, limit, "ms")
        })
        .collect();
    let whole = megabyte(rounds)?;
    let megabyte =
        Criterion::at_most("verifying 1 MiB without a branch", whole.median(), MEGABYTE_MILLIS_MAX, "ms");
    let criteria: Vec<Criterion> = criteria.into_iter().chain([megabyte]).collect();
    Ok(format!(
        "{}\nProcessor time; medians of {rounds} compilations without a cache.\n\n{table}",
        criterion::table(&criteria)
    ))
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^53 ns")]
fn millis(time: Nanos) -> f64 {
    time.0 as f64 / 1e6
}
