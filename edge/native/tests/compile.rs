//! Machine code of modules: lowered, compiled with clang, and verified.

use std::io::Write;
use std::process::{Command, Stdio};
use weir_lower::{
    CLANG_ARGUMENTS, IsolatedAccesses, LowerError, LowerOptions, Lowered, Unsupported, link, lower_with,
};
use weir_native::{CODE_MAX, cpu_features, verify_limits};
use weir_verify::{VerifiedCode, verify};

/// Compiles IR with clang; `None` if it is not installed.
pub fn clang(ir: &str) -> Option<Vec<u8>> {
    let child =
        Command::new("clang-19").args(CLANG_ARGUMENTS).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        _ = writeln!(std::io::stderr(), "SKIPPED: native code is not compiled here: no clang-19");
        return None;
    };
    let mut input = child.stdin.take().unwrap();
    input.write_all(ir.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(output.stdout)
}

/// A module with its verified code.
pub struct Compiled {
    pub lowered: Lowered,
    /// For each function of the module that is not imported, its index in the code.
    pub functions: Vec<u32>,
    pub code: VerifiedCode,
}

/// Lowers, compiles and verifies a module. `None` without clang; an error for a module that cannot be lowered.
pub fn compile(wasm: &[u8]) -> Option<Result<Compiled, Unsupported>> {
    compile_with(wasm, IsolatedAccesses::None)
}

/// As [`compile()`], with these accesses isolated.
pub fn compile_with(wasm: &[u8], isolated: IsolatedAccesses) -> Option<Result<Compiled, Unsupported>> {
    let options = LowerOptions { features: cpu_features(), isolated, ..LowerOptions::default() };
    let lowered = match lower_with(wasm, &options) {
        Ok(lowered) => lowered,
        Err(LowerError::Unsupported(unsupported)) => return Some(Err(unsupported)),
        Err(error) => panic!("{error}"),
    };
    let object = clang(&lowered.ir)?;
    let linked = link(&object, &lowered, CODE_MAX).unwrap();
    let code = verify(linked.image, &verify_limits(lowered.thunks.len()))
        .unwrap_or_else(|rejections| panic!("{rejections}"));
    Some(Ok(Compiled { lowered, functions: linked.functions, code }))
}
