//! Tests that the workspace follows its own rules, such as the trust level of each folder (docs/ARCHITECTURE.md).
//!
//! Cargo's metadata is checked against the table of allowed dependencies. Sources are searched for what the compiler and clippy
//! do not check, such as where `unsafe` is allowed, and that the core uses no clock, no I/O and no environment variables.

mod documents;
mod imports;
mod keys;
mod names;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates of this workspace that each crate may depend on. Those in apps/ and lab/ may depend on all.
const MAY_USE: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("core/units", &[]),
    ("core/wire", &["abi", "core/units"]),
    ("core/bounds", &["abi", "core/units"]),
    ("core/verify", &[]),
    ("core/lower", &["core/verify"]),
    ("core/sched", &["core/units"]),
    ("core/demux", &["abi", "core/units", "core/wire"]),
    ("core/filter", &["core/demux", "core/wire"]),
    ("core/admission", &["abi", "core/bounds", "core/units", "core/wire"]),
    ("core/session", &["abi", "core/admission", "core/units"]),
    ("core/ledger", &["core/admission", "core/units"]),
    ("core/rows", &["abi", "core/admission", "core/session", "core/units"]),
    ("core/exports", &["abi", "core/admission", "core/rows", "core/session", "core/units"]),
    ("core/trust", &["core/units", "core/wire"]),
    ("core/anep", &["core/trust", "core/units", "core/wire"]),
    (
        "core/compilation",
        &["abi", "core/admission", "core/bounds", "core/lower", "core/trust", "core/units", "core/verify"],
    ),
    ("core/graph", &["core/units", "core/wire"]),
    ("core/elements", &["core/graph", "core/units", "core/wire"]),
    ("edge/http", &[]),
    ("edge/os", &["core/units"]),
    (
        "edge/sandbox",
        &[
            "abi",
            "core/admission",
            "core/bounds",
            "core/lower",
            "core/session",
            "core/units",
            "core/verify",
            "core/wire",
            "edge/native",
            "edge/os",
        ],
    ),
    ("edge/native", &["core/lower", "core/verify"]),
    ("edge/netio", &["abi", "core/demux", "core/filter", "core/units", "core/wire", "edge/os"]),
    (
        "edge/datapath",
        &["abi", "core/demux", "core/sched", "core/units", "core/wire", "edge/netio", "edge/sandbox"],
    ),
    ("edge/ledger-files", &["core/admission", "core/ledger", "core/units", "edge/os"]),
    ("edge/export-files", &["core/admission", "core/exports", "core/session", "core/units", "edge/os"]),
    (
        "edge/graph-io",
        &["abi", "core/elements", "core/graph", "core/units", "core/wire", "edge/netio", "edge/os"],
    ),
    ("edge/records", &["abi", "core/admission", "core/session", "core/units", "edge/os"]),
    ("edge/remote", &["core/anep", "core/trust", "core/units", "edge/os"]),
];

/// The layers, lowest first. Tests of a crate may use crates of the same layer and below.
const LAYERS: &[&str] = &["abi", "core", "edge", "apps", "lab"];

/// Names that the core may not use, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("std::time::SystemTime", "take the time as an argument"),
    ("Instant::now", "take the time as an argument"),
    ("SystemTime::now", "take the time as an argument"),
    ("std::env", "take the value as an argument"),
    ("std::fs", "take bytes, leave files to edge/"),
    ("std::net", "leave sockets to edge/; addresses are in core::net"),
    ("std::process", "leave processes to edge/"),
    ("std::thread", "leave threads to edge/ and apps/"),
];

/// Longer files are hard to review.
const LINES_MAX: usize = 800;

/// The maximum distance in lines between a SAFETY comment and its unsafe block.
const SAFETY_LINES: usize = 12;

#[test]
fn crates_depend_only_on_the_allowed_crates() {
    let mut broken = Vec::new();
    for package in packages() {
        for dependency in
            package.dependencies.iter().filter(|dependency| !is_allowed(&package.folder, dependency))
        {
            broken.push(format!(
                "{}/Cargo.toml: {} must not depend on {}{}; the table is MAY_USE in {}",
                package.folder,
                package.name,
                dependency.folder,
                if dependency.for_tests { ", not even in its tests" } else { "" },
                file!(),
            ));
        }
        if !is_free(&package.folder) && !MAY_USE.iter().any(|(folder, _)| *folder == package.folder) {
            broken.push(format!(
                "{}/Cargo.toml: the crate has no row in MAY_USE in {}",
                package.folder,
                file!()
            ));
        }
    }
    assert_none(&broken);
}

/// Crates for sessions, credentials, the ledger, records and protocols, on which the packet path may not depend.
const NOT_IN_THE_PACKET_PATH: &[&str] = &[
    "weir_admission",
    "weir_session",
    "weir_ledger",
    "weir_ledger_files",
    "weir_trust",
    "weir_anep",
    "weir_records",
    "weir_remote",
    "weir_os",
    "weir_node",
    "serde",
];

/// The packet path gets plain data and small traits from the node. Indirect dependencies count as well.
#[test]
fn the_packet_path_depends_on_no_session_management_and_no_protocol() {
    let crate_of = |name: &str| name.replace("weir_", "weir-");
    let manifest = read(&workspace().join("edge/datapath/Cargo.toml"));
    let is_named =
        |name: &&&str| manifest.lines().any(|line| line.starts_with(&format!("{}.", crate_of(name))));
    let in_manifest = NOT_IN_THE_PACKET_PATH.iter().filter(is_named);
    let mut broken: Vec<String> =
        in_manifest.map(|name| format!("edge/datapath/Cargo.toml: depends on {}", crate_of(name))).collect();
    let mut files = 0;
    broken.extend(in_all_sources(|path, text| {
        if !path.starts_with("edge/datapath/src/") {
            return Vec::new();
        }
        files += 1;
        let code = blank_out(text);
        let named =
            NOT_IN_THE_PACKET_PATH.iter().flat_map(|name| find_words(&code, name).map(move |at| (at, name)));
        named.map(|(at, name)| (line_of(text, at), format!("the packet path must not name {name}"))).collect()
    }));
    assert!(files > 10, "only {files} files of the packet path");
    assert_none(&broken);
}

#[test]
fn crates_are_named_after_their_folders() {
    let mut broken = Vec::new();
    for package in packages() {
        let folder = package.folder.rsplit('/').next().unwrap_or_default();
        let expected =
            if package.folder == "apps/weir" { "weir".to_owned() } else { format!("weir-{folder}") };
        if package.name != expected {
            broken.push(format!(
                "{}/Cargo.toml: is named {}, expected {expected}",
                package.folder, package.name
            ));
        }
    }
    assert_none(&broken);
}

/// `lab/fuzz` stops when it reaches a target without seeds.
#[test]
fn every_fuzz_target_has_seeds() {
    let fuzz = workspace().join("fuzz");
    // `lab/fuzz` generates the seeds of these two from modules and the sample capture.
    let made = ["bounds", "module"];
    let mut broken = Vec::new();
    let targets =
        std::fs::read_dir(fuzz.join("fuzz_targets")).expect("the fuzz targets are in fuzz/fuzz_targets");
    for target in targets {
        let path = target.expect("the folder can be read").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let seeds = std::fs::read_dir(fuzz.join("seeds").join(&*name)).map_or(0, Iterator::count);
        if seeds == 0 && !made.contains(&&*name) {
            broken.push(format!("fuzz/seeds/{name}: no seeds; add them to fuzz/seeds.py and run it"));
        }
    }
    assert_none(&broken);
}

#[test]
fn every_crate_outside_the_edge_forbids_unsafe_code() {
    let mut broken = Vec::new();
    for package in packages().iter().filter(|package| !["edge", "lab"].contains(&layer(&package.folder))) {
        for root in &package.roots {
            let text = read(root);
            if !blank_out(&text).lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
                broken.push(format!(
                    "{}:1: a crate root outside edge/ must say #![forbid(unsafe_code)]",
                    relative(root)
                ));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn unsafe_code_is_only_in_the_edge_and_has_safety_comments() {
    let broken = in_all_sources(|path, text| match layer(path) {
        "guest" => Vec::new(), // contained by the sandbox, not by us
        "edge" => undocumented_unsafe(text),
        "lab" if path.contains("native") => undocumented_unsafe(text),
        _ => find_words(&blank_out(text), "unsafe")
            .map(|at| {
                (
                    line_of(text, at),
                    "unsafe is allowed only under edge/ and in lab's native baselines".to_owned(),
                )
            })
            .collect(),
    });
    assert_none(&broken);
}

#[test]
fn the_core_has_no_clock_no_files_and_no_environment() {
    let broken = in_all_sources(|path, text| match layer(path) {
        "abi" | "core" if !is_test_file(path) => impurities(text),
        _ => Vec::new(),
    });
    assert_none(&broken);
}

/// `Path::display` does not escape control characters of terminals.
#[test]
fn file_names_are_displayed_by_the_function_that_escapes_them() {
    let broken = in_all_sources(|path, text| match layer(path) {
        "core" | "edge" | "apps" if !is_test_file(path) => displayed(text),
        _ => Vec::new(),
    });
    assert_none(&broken);
}

/// Returns the lines at which code outside tests calls `display()`.
fn displayed(source: &str) -> Vec<(usize, String)> {
    let code = without_test_items(&blank_out(source));
    let dense = Dense::new(&code);
    let found = dense.text.match_indices(".display()").map(|(at, _)| dense.origin[at]);
    found.map(|at| (line_of(source, at), "use weir_units::Escape: `path.escaped()`".to_owned())).collect()
}

#[test]
fn no_source_file_is_too_long_to_review() {
    let broken = in_all_sources(|_, text| {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            vec![(lines, format!("{lines} lines; split it, {LINES_MAX} are the limit"))]
        } else {
            Vec::new()
        }
    });
    assert_none(&broken);
}

/// Each test program links the same libraries again, so each further one needs a comment with the reason above its `[[test]]`.
#[test]
fn a_crate_has_one_test_program_and_a_reason_for_each_further_one() {
    let mut broken = Vec::new();
    for package in packages() {
        let manifest = read(&workspace().join(&package.folder).join("Cargo.toml"));
        let without_reason = test_programs_without_reason(&manifest);
        let declared = manifest.lines().filter(|line| *line == "[[test]]").count();
        // A program that cargo discovers has no `[[test]]` section for the comment.
        if without_reason > 1 || (package.test_programs > 1 && package.test_programs != declared) {
            broken.push(format!(
                "{0}/Cargo.toml: {1} test programs, and {2} without a reason; make them modules of {0}/tests/main.rs",
                package.folder,
                package.test_programs,
                package.test_programs - declared + without_reason
            ));
        }
    }
    assert_none(&broken);
}

fn test_programs_without_reason(manifest: &str) -> usize {
    let lines: Vec<&str> = manifest.lines().collect();
    lines.windows(2).filter(|pair| pair[1] == "[[test]]" && !pair[0].starts_with("# ")).count()
}

/// In the last column of the tables of docs/THREATS.md, every word that can be a test's name is one, and every word that can be a file's is one.
#[test]
fn every_test_named_in_threats_md_exists() {
    let document = read(&workspace().join("docs/THREATS.md"));
    let named: Vec<(usize, &str)> = document
        .lines()
        .enumerate()
        .filter_map(|(line, text)| {
            Some((line + 1, text.strip_prefix('|')?.trim_end().strip_suffix('|')?.rsplit_once('|')?.1))
        })
        .flat_map(|(line, shown_by)| shown_by.split('`').skip(1).step_by(2).map(move |word| (line, word)))
        .filter(|(_, word)| names_a_test(word) || names_a_source(word))
        .collect();
    assert!(named.len() > 100, "only {} tests and files are named", named.len());
    let (mut functions, mut files) = (std::collections::BTreeSet::new(), Vec::new());
    in_all_sources(|path, text| {
        files_and_functions(path, text, &mut files, &mut functions);
        Vec::new()
    });
    let is_there = |word: &str| {
        functions.contains(word)
            || files.iter().any(|file: &String| file == word || file.ends_with(&format!("/{word}")))
    };
    let missing = named.iter().filter(|(_, word)| !is_there(word));
    let missing = missing.map(|(line, word)| format!("docs/THREATS.md:{line}: there is no `{word}`"));
    assert_none(&missing.collect::<Vec<_>>());
}

/// Tests have names of three or more words.
fn names_a_test(word: &str) -> bool {
    word.split('_').count() > 2
        && word.split('_').all(|part| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
        })
}

fn names_a_source(word: &str) -> bool {
    word.ends_with(".rs") && !word.contains(char::is_whitespace)
}

fn files_and_functions(
    path: &str,
    text: &str,
    files: &mut Vec<String>,
    functions: &mut std::collections::BTreeSet<String>,
) {
    files.push(path.to_owned());
    let code = blank_out(text);
    for at in find_words(&code, "fn") {
        let name = code[at + 2..].trim_start();
        let end = name.find(|c: char| !is_word(c)).unwrap_or(name.len());
        functions.insert(name[..end].to_owned());
    }
}

#[test]
fn the_source_scan_ignores_comments_and_strings() {
    let harmless = "// unsafe { }\n/* unsafe /* std::fs */ */ let a = \"unsafe \\\" std::env\"; let b = r#\"unsafe \" \"#;\n\
                    let c = '\"'; fn d<'a>(e: &'a str) {} // unsafe_code\n#![forbid(unsafe_code)]\n";
    assert_eq!(undocumented_unsafe(harmless), []);
    assert_eq!(impurities(harmless), []);
    assert_eq!(find_words(&blank_out(harmless), "unsafe").count(), 0);

    let bare = "fn f() {\n    let x = '\\'';\n    unsafe { g() }\n}\nunsafe fn g() {}\nunsafe extern \"C\" fn h() {}\n";
    assert_eq!(undocumented_unsafe(bare).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3]);
    assert_eq!(undocumented_unsafe("// SAFETY: g has no conditions.\nlet x =\n    unsafe { g() };\n"), []);
    assert_eq!(undocumented_unsafe("let safety = \"SAFETY\";\nunsafe impl Send for X {}\n").len(), 1);

    let impure = "use std::{collections::BTreeMap, fs::File};\nlet t = std::time::Instant::now();\nuse std :: env;\n\
                  #[cfg(test)]\nmod tests {\n    use std::fs;\n}\nfn f() { std::net::lookup() }\n";
    assert_eq!(impurities(impure).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 8]);

    let shows = "//! a.display()\nfn f() { a\n    .display (); }\n#[cfg(test)]\nmod tests { fn g() { b.display() } }\n";
    assert_eq!(displayed(shows).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3]);

    let manifest =
        "[[test]]\nname = \"a\"\n\n[[test]]\nname = \"b\"\n\n# It forks.\n[[test]]\nname = \"c\"\n";
    assert_eq!(test_programs_without_reason(&format!("[package]\n\n{manifest}")), 2);

    let (mut files, mut functions) = (Vec::new(), std::collections::BTreeSet::new());
    files_and_functions(
        "a.rs",
        "// fn not_this_one()\nfn this_one<'a>() {} const A: &str = \"fn nor_this\";",
        &mut files,
        &mut functions,
    );
    assert_eq!((files, functions), (vec!["a.rs".to_owned()], ["this_one".to_owned()].into()));
    assert!(
        names_a_test("this_is_one")
            && !names_a_test("weir_start")
            && !names_a_test("weir__x")
            && !names_a_test("A_B_C")
    );
    assert!(
        names_a_source("core/trust/tests/gate.rs") && !names_a_source("x.toml") && !names_a_source("a b.rs")
    );

    let upward = Dependency { folder: "edge/netio".to_owned(), for_tests: true };
    assert!(!is_allowed("core/wire", &upward));
    assert!(is_allowed("apps/weir", &upward));
    assert!(!is_allowed("edge/sandbox", &Dependency { folder: "edge/netio".to_owned(), for_tests: false }));
}

struct Package {
    name: String,
    /// The folder relative to the workspace, such as `core/wire`.
    folder: String,
    dependencies: Vec<Dependency>,
    /// The root source file of the library and of each program.
    roots: Vec<PathBuf>,
    test_programs: usize,
}

struct Dependency {
    folder: String,
    for_tests: bool,
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is two folders up")
}

/// Returns the crates of this workspace from `cargo metadata`.
fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--locked"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let packages: Vec<Package> = list(&metadata, "packages").iter().map(package).collect();
    assert!(packages.iter().any(|package| package.folder == "apps/weir"), "cargo metadata lists this crate");
    packages
}

fn package(metadata: &Value) -> Package {
    let manifest = Path::new(text(metadata, "manifest_path"));
    let is_any = |target: &Value, kinds: &[&str]| {
        list(target, "kind").iter().any(|kind| kinds.contains(&kind.as_str().unwrap_or_default()))
    };
    Package {
        name: text(metadata, "name").to_owned(),
        folder: relative(manifest.parent().expect("a manifest is in a folder")),
        dependencies: list(metadata, "dependencies")
            .iter()
            .filter_map(|dependency| {
                let folder = relative(Path::new(dependency["path"].as_str()?));
                Some(Dependency { folder, for_tests: dependency["kind"] == "dev" })
            })
            .collect(),
        roots: list(metadata, "targets")
            .iter()
            .filter(|target| is_any(target, &["lib", "bin", "proc-macro"]))
            .map(|target| PathBuf::from(text(target, "src_path")))
            .collect(),
        test_programs: list(metadata, "targets").iter().filter(|target| is_any(target, &["test"])).count(),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("cargo metadata has a list {key}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo metadata has a text {key}"))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).to_string_lossy().into_owned()
}

fn layer(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

fn is_free(folder: &str) -> bool {
    ["apps", "lab"].contains(&layer(folder))
}

fn is_allowed(folder: &str, dependency: &Dependency) -> bool {
    let height = |folder: &str| LAYERS.iter().position(|name| *name == layer(folder));
    match (height(folder), height(&dependency.folder)) {
        (Some(user), Some(used)) if is_free(folder) || dependency.for_tests => used <= user,
        (Some(_), Some(_)) => {
            MAY_USE.iter().any(|(user, uses)| *user == folder && uses.contains(&dependency.folder.as_str()))
        }
        _ => false,
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.contains("/benches/")
        || path.contains("/examples/")
        || path.ends_with("/tests.rs")
}

/// Applies a rule to every Rust source of the repository, and formats the findings as `path:line: text`.
fn in_all_sources(mut rule: impl FnMut(&str, &str) -> Vec<(usize, String)>) -> Vec<String> {
    let (mut broken, mut files) = (Vec::new(), 0);
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the workspace can be read") {
            let path = entry.expect("the workspace can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir()
                && !path.is_symlink()
                && !name.starts_with('.')
                && !["target", "out"].contains(&&*name)
            {
                folders.push(path);
            } else if name.ends_with(".rs") && path.is_file() {
                files += 1;
                let (path, source) = (relative(&path), read(&path));
                broken.extend(
                    rule(&path, &source).into_iter().map(|(line, what)| format!("{path}:{line}: {what}")),
                );
            }
        }
    }
    assert!(files > 10, "only {files} sources were found under {}", workspace().display());
    broken.sort();
    broken
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn assert_none(broken: &[String]) {
    assert!(
        broken.is_empty(),
        "the layout's rules are broken in {} places:\n{}",
        broken.len(),
        broken.join("\n")
    );
}

/// Finds unsafe blocks, traits and implementations without a SAFETY comment close above them. (The requirements of an
/// `unsafe fn` on its callers are part of its documentation.)
fn undocumented_unsafe(source: &str) -> Vec<(usize, String)> {
    let code = blank_out(source);
    // Clippy checks the "# Safety" section of unsafe declarations.
    let declares = |at: usize| {
        let mut next = code[at..].split_whitespace().skip(1);
        let first = next.next().unwrap_or_default();
        first.starts_with("fn")
            || first == "trait"
            || (first == "extern" && next.next().unwrap_or_default().starts_with("fn"))
    };
    let is_said = |line: usize| {
        let above = source.lines().take(line).skip(line.saturating_sub(SAFETY_LINES + 1));
        above
            .into_iter()
            .any(|text| text.split_once("//").is_some_and(|(_, comment)| comment.contains("SAFETY")))
    };
    find_words(&code, "unsafe")
        .filter(|at| !declares(*at))
        .map(|at| line_of(source, at))
        .filter(|line| !is_said(*line))
        .map(|line| {
            (line, format!("unsafe without a // SAFETY: comment in the {SAFETY_LINES} lines above it"))
        })
        .collect()
}

/// Finds uses of `IMPURE` names outside tests, alone or in a group such as `std::{fs, io}`.
fn impurities(source: &str) -> Vec<(usize, String)> {
    let code = without_test_items(&blank_out(source));
    let mut found = Vec::new();
    let mut report = |at: usize, name: &str, instead: &str| {
        found.push((line_of(source, at), format!("{name} in the core; {instead}")))
    };
    let dense = Dense::new(&code);
    for (name, instead) in IMPURE {
        find_words(&dense.text, name).for_each(|at| report(dense.origin[at], name, instead));
        let Some(in_group) = name.strip_prefix("std::") else { continue };
        for (at, _) in dense.text.match_indices("std::{") {
            let group = &dense.text[at + "std::{".len()..];
            let group = &group[..group.find(';').unwrap_or(group.len())];
            if find_words(group, in_group).any(|place| group[..place].ends_with(['{', ',']) || place == 0) {
                report(dense.origin[at], name, instead);
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A source without white space, except between two words, and the original position of each byte.
struct Dense {
    text: String,
    origin: Vec<usize>,
}

impl Dense {
    fn new(code: &str) -> Dense {
        let mut dense = Dense { text: String::new(), origin: Vec::new() };
        let mut gap = false;
        for (at, character) in code.char_indices() {
            if character.is_whitespace() {
                gap = true;
                continue;
            }
            if gap && is_word(character) && dense.text.ends_with(is_word) {
                dense.push(' ', at);
            }
            gap = false;
            dense.push(character, at);
        }
        dense
    }

    fn push(&mut self, character: char, at: usize) {
        self.text.push(character);
        self.origin.resize(self.text.len(), at);
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the byte offsets of `word` as a whole word.
fn find_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(is_word) && !code[at + word.len()..].starts_with(is_word))
}

fn line_of(source: &str, at: usize) -> usize {
    source.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Replaces the items after `#[cfg(test)]` by spaces, to their closing brace or semicolon.
fn without_test_items(code: &str) -> String {
    let mut rest = code.to_owned();
    while let Some(begin) = rest.find("#[cfg(test)]") {
        let mut depth = 0_usize;
        let end = rest[begin..].char_indices().find_map(|(at, character)| {
            match character {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 && matches!(character, '}' | ';')).then_some(begin + at + 1)
        });
        let end = end.unwrap_or(rest.len());
        rest.replace_range(begin..end, &blanks(&rest[begin..end]));
    }
    rest
}

/// Replaces everything but line breaks by spaces, which keeps all offsets.
fn blanks(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// Replaces comments, strings and character literals by spaces.
fn blank_out(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while !rest.is_empty() {
        let after_word = code.ends_with(is_word);
        let len = comment_len(rest).or_else(|| literal_len(rest, after_word)).unwrap_or(0);
        if len > 0 {
            code.push_str(&blanks(&rest[..len]));
            rest = &rest[len..];
        } else if let Some(character) = rest.chars().next() {
            code.push(character);
            rest = &rest[character.len_utf8()..];
        }
    }
    code
}

/// The length in bytes of the comment at the start of `rest`.
fn comment_len(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(pair) = rest.as_bytes().get(at..at + 2) {
        match pair {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return Some(at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    Some(rest.len())
}

/// The length in bytes of the string or character literal at the start of `rest`. A lifetime is not a literal.
fn literal_len(rest: &str, after_word: bool) -> Option<usize> {
    let raw = rest
        .strip_prefix("br")
        .or_else(|| rest.strip_prefix("cr"))
        .or_else(|| rest.strip_prefix('r'))
        .filter(|_| !after_word);
    if let Some(body) = raw {
        let hashes = body.len() - body.trim_start_matches('#').len();
        if let Some(body) = body[hashes..].strip_prefix('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            return Some(
                body.find(&close).map_or(rest.len(), |at| rest.len() - body.len() + at + close.len()),
            );
        }
    }
    let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    if quote == '\'' {
        let mut inside = rest.chars().skip(1);
        if inside.next()? != '\\' && inside.next()? != '\'' {
            return None;
        }
    }
    let mut escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, character)| {
        let closes = *character == quote && !escaped;
        escaped = *character == '\\' && !escaped;
        closes
    });
    Some(end.map_or(rest.len(), |(at, _)| at + 1))
}
