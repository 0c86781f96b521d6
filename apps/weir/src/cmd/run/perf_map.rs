//! The file in which `perf` looks for the names of functions that a process has compiled: a line for each function, with its
//! address and length in hexadecimal digits, and its name.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use weir_sandbox::LoadedModule;

/// Writes the file for the functions of modules, each with its label. Returns the file's path, which `perf` prescribes.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write<'a>(modules: impl Iterator<Item = (&'a str, &'a LoadedModule)>) -> io::Result<PathBuf> {
    let mut text = String::new();
    for (label, module) in modules {
        for symbol in module.symbols() {
            // A name with a line break would end the line.
            let name: String = symbol.name.chars().filter(|letter| !letter.is_control()).collect();
            _ = writeln!(text, "{:x} {:x} {label}::{name}", symbol.addresses.start, symbol.addresses.len());
        }
    }
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // Others can create files in this folder, too, so an existing file or link is not written to.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}
