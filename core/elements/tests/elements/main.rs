//! Runs the tests in tests/graphs, and holds the table of classes to them.

#![forbid(unsafe_code)]

mod any_packet;
mod binary_summaries;
mod clock;
mod feed;
mod large_arguments;
mod limits;
mod translation;
mod waiting;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_elements::testing::GraphTest;
use weir_elements::{AllElements, CLASSES};
use weir_graph::engine::{ElementClass, ElementClasses as _, PortCounts};

/// Returns all element classes.
fn classes() -> impl Iterator<Item = &'static ElementClass> {
    CLASSES.iter().flat_map(|(_, classes)| classes.iter().copied())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs")
}

/// Returns the name and the text of each test.
fn tests() -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

#[test]
fn each_graph_gives_its_results_in_batches_and_one_by_one() {
    let mut failures = Vec::new();
    for (name, text) in tests() {
        if let Err(error) = GraphTest::read(&text).and_then(|test| test.check()) {
            failures.push(format!("{name}: {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A test has the name of its element, or that name with a word behind a dash.
#[test]
fn each_element_has_a_test_of_its_name() {
    let of_element = |name: &str| name.split('-').next().unwrap().to_owned();
    let tested: BTreeSet<String> = tests().iter().map(|(name, _)| of_element(name)).collect();
    let missing: Vec<&str> = AllElements.names().into_iter().filter(|name| !tested.contains(*name)).collect();
    assert!(missing.is_empty(), "no test in tests/graphs for {missing:?}");
    let unknown: Vec<&String> = tested.iter().filter(|name| AllElements.find(name).is_none()).collect();
    assert!(unknown.is_empty(), "tests of unknown elements: {unknown:?}");
}

#[test]
fn each_record_of_a_class_has_codes_and_a_manual() {
    let mut names = BTreeSet::new();
    for class in classes() {
        assert!(names.insert(class.name), "{} is there twice", class.name);
        assert!(PortCounts::read(class.ports).is_ok(), "{}: ports {}", class.name, class.ports);
        let (summary, rest) =
            class.manual.split_once("\n\n").unwrap_or_else(|| panic!("{}: no manual", class.name));
        assert!(!summary.contains('\n') && !summary.ends_with('.'), "{}: {summary}", class.name);
        assert!(rest.starts_with(&format!("{}(", class.name)), "{}: {rest}", class.name);
    }
}
