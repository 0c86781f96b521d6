//! `weir graph test`.

use super::GraphCommandError;
use super::load::read;
use crate::Failure;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use weir_elements::testing::GraphTest;
use weir_units::{Escape as _, escaped_lines};

/// The form of tests in the help of `weir graph test`.
pub const HELP: &str = "\
Each test runs in simulated time, with batches of 64 packets and of 1. Its files exist in memory only. Sections:

  A Counter counts packets.
  --- graph
  FromDump(in, STOP true) -> c :: Counter -> ToDump(out);
  --- capture in
  1.000000000 000102
  --- handlers
  c.count 1
  --- capture out
  1.000000000 000102

Other sections: file NAME, write (handlers), stderr, stdout, errors (of the configuration), ends (seconds).

Exit status: 0 if all tests are passed; 1 if not.";

/// `weir graph test`.
#[derive(Debug, Args)]
pub struct GraphTestArgs {
    /// The tests
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs tests.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn test(out: &mut impl Write, args: &GraphTestArgs) -> Result<(), Failure> {
    let mut failed = 0;
    for path in &args.files {
        let file = std::fs::File::open(path)
            .map_err(|source| GraphCommandError::Read { path: path.clone(), source })?;
        let bytes = read(file, path)?;
        let text = String::from_utf8_lossy(&bytes);
        match GraphTest::read(&text).and_then(|test| test.check().map(|()| test)) {
            Ok(test) => writeln!(out, "passed: {}: {}", path.escaped(), test.title.escaped())?,
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED: {}: {}", path.escaped(), escaped_lines(&error.to_string()))?;
            }
        }
    }
    if failed > 0 { Err(GraphCommandError::Tests { failed, all: args.files.len() }.into()) } else { Ok(()) }
}
