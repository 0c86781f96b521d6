//! docs/MODULES.md and docs/reference/MODULE.md: every example builds, and the reference is complete.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use weir_author::{ModuleLanguage, build, new};
use weir_bounds::{CounterProblem, UnboundedCause};

const GUIDE: &str = include_str!("../../../docs/MODULES.md");
const REFERENCE: &str = include_str!("../../../docs/reference/MODULE.md");

/// The fenced code blocks: language, name, text.
fn blocks() -> Vec<(&'static str, &'static str, String)> {
    let mut blocks = Vec::new();
    let mut lines = GUIDE.lines().chain(REFERENCE.lines());
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let (lang, name) = info.split_once(' ').unwrap_or((info, ""));
            let text: String =
                lines.by_ref().take_while(|line| *line != "```").flat_map(|line| [line, "\n"]).collect();
            blocks.push((lang, name, text));
        }
    }
    blocks
}

#[test]
fn every_example_is_a_module_that_builds_without_a_warning() {
    let blocks = blocks();
    let manifests: BTreeMap<_, _> =
        blocks.iter().filter(|(lang, ..)| *lang == "toml").map(|(_, name, text)| (*name, text)).collect();
    let home = tempfile::tempdir().unwrap();
    let mut built = 0;
    for (lang, name, text) in blocks.iter().filter(|(lang, ..)| *lang != "toml") {
        let (lang, file, present, options) = match *lang {
            "c" => (ModuleLanguage::C, format!("{name}.c"), has_c(), options()),
            "rust" => (ModuleLanguage::Rust, "src/lib.rs".to_owned(), has_rust(), rust_options()),
            other => panic!("the example `{name}` is in {other:?}, which no test builds"),
        };
        if !present {
            continue;
        }
        let dir = home.path().join(format!("{lang:?}").to_lowercase()).join(name);
        new(&dir, lang)
            .unwrap_or_else(|error| panic!("the example `{name}` needs a name of its own: {error}"));
        std::fs::write(dir.join("weir.toml"), manifests[name]).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
        let result = build(&dir, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((result.messages.as_str(), result.manifest.name.as_str()), ("", *name));
        built += 1;
    }
    let _ = writeln!(std::io::stderr(), "{built} of {} examples built", blocks.len() - manifests.len());
    assert!(blocks.len() - manifests.len() >= 5, "the guide has lost its examples");
}

#[test]
fn the_guide_mentions_every_part_of_the_contract() {
    let mut missing = Vec::new();
    let mut wanted: Vec<String> = Vec::new();
    wanted.extend(weir_abi::host::HOST_FUNCTIONS.iter().map(|import| format!("| `{}(", import.name)));
    wanted.extend(weir_abi::row::FieldType::ALL.iter().map(|ty| format!("`{}`", ty.name())));
    wanted.extend(weir_admission::ParameterType::ALL.iter().map(|ty| format!("`{}`", ty.name())));
    // Flags and fields, from the descriptor's source.
    let descriptor = include_str!("../../../abi/src/descriptor.rs");
    for line in descriptor.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix("pub const ").and_then(|line| line.split_once(':')) {
            wanted.push(format!("`{name}`"));
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": u")) {
            // Only the SDK uses the address.
            if name != "data" {
                wanted.push(format!("`{name}`"));
            }
        }
    }
    assert!(wanted.len() > 50, "{wanted:?}");
    for want in wanted {
        if !REFERENCE.contains(&want) {
            missing.push(want);
        }
    }
    assert!(missing.is_empty(), "docs/reference/MODULE.md does not mention {missing:?}");
}

#[test]
fn the_guide_has_advice_for_every_reason_why_a_module_is_not_proved() {
    // Exhaustive, so that a new reason without a row does not compile.
    let row = |why: &UnboundedCause| match why {
        UnboundedCause::NoCounter(problem) => match problem {
            CounterProblem::Narrow(_) => "the counter has 8 bits and wraps around",
            CounterProblem::Multiplied => "the counter is multiplied",
            CounterProblem::StepMayBeZero => "the counter's step can be 0",
            CounterProblem::StepUnknown => "the counter's step can be any number",
            CounterProblem::BothMove => "both sides of the loop's test change",
            CounterProblem::EndsByData => "the loop ends by what each iteration reads or computes",
            CounterProblem::Unknown => "no counter was found that ends this loop",
        },
        UnboundedCause::MayMiss => "the counter can step over its end and wrap around",
        UnboundedCause::LimitUnknown => "the loop's limit can be any number",
        UnboundedCause::Endless => "this loop has no way out",
        UnboundedCause::Recursion(_) => "NAME calls itself",
        UnboundedCause::Overflow => {
            "the loop's trip count times the cost of its body is more than can be counted"
        }
        UnboundedCause::TooLarge => "unbounded: too large",
    };
    let recursion = UnboundedCause::Recursion(vec!["NAME".to_owned()]);
    let others = [
        UnboundedCause::MayMiss,
        UnboundedCause::LimitUnknown,
        UnboundedCause::Endless,
        recursion,
        UnboundedCause::Overflow,
        UnboundedCause::TooLarge,
    ];
    for why in CounterProblem::ALL.map(UnboundedCause::NoCounter).into_iter().chain(others) {
        let row = row(&why);
        assert!(why.to_string().starts_with(row), "the message is now: {why}");
        assert!(REFERENCE.contains(&format!("| {row} |")), "docs/reference/MODULE.md has no row for {row:?}");
    }
}

#[test]
fn links_of_guide_and_reference_have_targets() {
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    let anchors = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
    };
    let own = [(GUIDE, "](#", anchors(GUIDE)), (REFERENCE, "](#", anchors(REFERENCE))];
    let across = (GUIDE, "](reference/MODULE.md#", anchors(REFERENCE));
    for (text, begin, anchors) in own.into_iter().chain([across]) {
        for link in text.split(begin).skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(
                anchors.iter().any(|anchor| anchor == link),
                "#{link} is no heading; there is {anchors:?}"
            );
        }
    }
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap");
    assert!(sample.is_file(), "the guide names lab/sample/sample.pcap");
}
