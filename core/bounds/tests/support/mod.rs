//! Helpers for the tests of the analyser: modules from their text, and an environment.

use std::path::Path;
use weir_bounds::{Analysis, CostTable, Environment, ParamBound, ParsedModule, analyse};

/// The module text with all imports, a memory of one page and a shadow stack as in LLVM's output, followed by `body`.
pub fn wat(body: &str) -> String {
    format!("(module {PRELUDE} {body})")
}

/// The text before the body in [`wat`].
pub const PRELUDE: &str = include_str!("prelude.wat");

/// The module with this body.
pub fn module(body: &str) -> Vec<u8> {
    wat::parse_str(wat(body)).unwrap_or_else(|error| panic!("{error}"))
}

/// Two parameters: a number from 1 to 9, and a text of at most 20 bytes.
pub fn environment() -> Environment {
    Environment {
        parameters: vec![ParamBound::Int { min: 1, max: 9 }, ParamBound::Bytes { min: 0, max: 20 }],
        string_bytes: vec![0],
        packet_max: 16 << 20,
        pages_max: 16,
    }
}

/// The analysis of the module with this body, by the standard table.
pub fn analysed(body: &str) -> Analysis {
    ParsedModule::parse(module(body))
        .and_then(|module| analyse(&module, &environment(), &CostTable::standard()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The names and texts of the modules in a folder beside this file.
pub fn texts(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut texts: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|file| {
            let path = file.unwrap_or_else(|error| panic!("{error}")).path();
            let text =
                std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text)
        })
        .collect();
    texts.sort();
    texts
}
