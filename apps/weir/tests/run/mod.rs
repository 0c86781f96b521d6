//! Shared helpers of the end-to-end tests: running the program, captures, modules, and optional programs.

pub mod document;
pub mod module;
pub mod net;
pub mod outside;
pub mod packets;
pub mod process;
pub mod schema_coverage;
pub mod traces;

pub use process::{Ended, run, run_with, weir};

use std::path::{Path, PathBuf};

/// Returns the folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the repository is two folders up")
}

/// Returns the sample capture of the repository, with packets of real TCP/IP stacks.
pub fn sample() -> PathBuf {
    root().join("lab/sample/sample.pcap")
}

/// Returns every file below a folder with its relative path, sorted.
pub fn files_below(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("it is below").display().to_string();
                found.push((name, path));
            }
        }
    }
    found.sort();
    found
}

/// Returns the relative path and bytes of every file below a folder.
pub fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |(name, path)| (name, std::fs::read(path).expect("a record file can be read"));
    files_below(folder).into_iter().map(read).collect()
}

/// Returns the relative path of every Parquet file below a folder, with its rows as text. Unlike [`contents`], this does not depend on
/// the files' metadata, which have the captures and the filter.
pub fn rows_below(folder: &Path) -> Vec<(String, Vec<String>)> {
    let rows = |path: &Path| {
        let file = std::fs::File::open(path).expect("a record file can be opened");
        let reader =
            parquet::file::serialized_reader::SerializedFileReader::new(file).expect("complete Parquet");
        let rows = reader.into_iter();
        rows.map(|row| row.expect("a row").to_string()).collect()
    };
    let files = files_below(folder).into_iter().filter(|(name, _)| name.ends_with(".parquet"));
    files.map(|(name, path)| (name, rows(&path))).collect()
}
