//! Measurements that this program makes in a network namespace of its own, gone when they end.

use crate::{BenchError, place};
use std::process::Command;

/// Runs this program again with these arguments in a new network namespace. Returns its standard output.
///
/// # Errors
/// Namespaces cannot be made here, or the measurement fails.
pub fn measure(arguments: &[&str]) -> Result<String, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file(&place::root()))?;
    let mut command = Command::new("unshare");
    let output = command.arg("--net").arg(program).args(arguments).output();
    let output = output.map_err(|source| BenchError::Program { program: "unshare".to_owned(), source })?;
    let [text, error] =
        [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
    if !output.status.success() {
        return Err(failed(arguments, text + &error));
    }
    Ok(text)
}

/// The error of a measurement that said something else than figures.
pub fn failed(arguments: &[&str], said: String) -> BenchError {
    BenchError::Failed { command: format!("bench {}", arguments.join(" ")), said }
}
