//! Machine code of modules: lowered, compiled with clang, and verified.

use std::io::Write;
use std::process::{Command, Stdio};
use weir_lower::{CLANG_ARGUMENTS, LowerError, Lowered, Unsupported, link, lower};
use weir_native::{CODE_MAX, verify_limits};
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

/// A lowered module, the offsets of its functions, and its code.
type CompiledParts = (Lowered, Vec<u32>, VerifiedCode);

/// Lowers, compiles and verifies a module. `None` without clang; an error for a module that cannot be lowered.
pub fn compile(wasm: &[u8]) -> Option<Result<CompiledParts, Unsupported>> {
    let lowered = match lower(wasm) {
        Ok(lowered) => lowered,
        Err(LowerError::Unsupported(unsupported)) => return Some(Err(unsupported)),
        Err(error) => panic!("{error}"),
    };
    let object = clang(&lowered.ir)?;
    let linked = link(&object, &lowered, CODE_MAX).unwrap();
    let code = verify(linked.image, &verify_limits(lowered.thunks.len()))
        .unwrap_or_else(|rejections| panic!("{rejections}"));
    Some(Ok((lowered, linked.functions, code)))
}
