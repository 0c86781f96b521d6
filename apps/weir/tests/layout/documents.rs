//! Tests that links in the documents lead to existing files and headings, and that the source files they name exist.

use super::{assert_none, read, workspace};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_ledger::Usage;

/// Folders with third-party text or generated pages.
const LEFT_OUT: &[&str] = &["target", "out", "templates", "data", "node_modules"];

/// Returns all Markdown files of the repository.
fn documents() -> Vec<PathBuf> {
    let (mut documents, mut folders) = (Vec::new(), vec![workspace()]);
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("the workspace can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && !LEFT_OUT.contains(&&*name) {
                folders.push(path);
            } else if name.ends_with(".md") {
                documents.push(path);
            }
        }
    }
    documents
}

/// Returns a document's text without fenced and indented blocks.
fn prose(text: &str) -> String {
    let mut is_fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        is_fenced ^= line.starts_with("```");
        if !is_fenced && !line.starts_with("    ") {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the targets of a text's links to files and headings of this repository.
fn targets(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let documents = documents();
    assert!(documents.len() > 20, "only {} documents were found", documents.len());
    let mut broken = Vec::new();
    for document in documents {
        let text = read(&document);
        for target in targets(&prose(&text)) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => document.clone(),
                file => document.parent().unwrap_or(Path::new("")).join(file),
            };
            let is_there =
                path.exists() && (anchor.is_empty() || anchors(&prose(&read(&path))).contains(anchor));
            if !is_there {
                broken.push(format!("{}: {target} leads nowhere", document.display()));
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn source_paths_in_documents_exist() {
    let mut broken = Vec::new();
    for document in documents().iter().filter(|document| !document.ends_with("CHANGELOG.md")) {
        let text = prose(&read(document));
        for word in text.split('`').skip(1).step_by(2) {
            let is_path = ["abi/", "apps/", "core/", "edge/", "fuzz/", "guest/", "lab/"];
            let is_path = is_path.iter().any(|folder| word.starts_with(folder));
            if is_path && !word.contains(char::is_whitespace) && !word.contains(['*', '(', '<']) {
                let path = workspace().join(word);
                if !path.exists() && !word.contains("NAME") {
                    broken.push(format!("{}: there is no {word}", document.display()));
                }
            }
        }
    }
    assert_none(&broken);
}

#[test]
fn the_specification_of_the_protocol_has_each_field_of_a_snapshot() {
    let status = read(&workspace().join("apps/node/src/control/status/mod.rs"));
    let document = read(&workspace().join("docs/WIRE.md"));
    let fields = status.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": "));
    // Two are renamed in JSON, and one is not sent.
    let other = ["offers", "uses", "counts_others"];
    let fields: Vec<&str> = fields.map(|(name, _)| name).filter(|name| !other.contains(name)).collect();
    assert!(fields.len() > 100, "only {} fields were found", fields.len());
    let missing = fields.iter().filter(|name| !document.contains(&format!("`{name}`")));
    assert_none(&missing.map(|name| format!("docs/WIRE.md does not have `{name}`")).collect::<Vec<_>>());
}

#[test]
fn the_documents_have_each_counter_of_usage() {
    let node = read(&workspace().join("docs/reference/NODE.md"));
    let wire = read(&workspace().join("docs/WIRE.md"));
    let used =
        wire.lines().find(|line| line.starts_with("| used |")).expect("WIRE.md lists the fields of `used`");
    let mut missing = Vec::new();
    for counter in Usage::counters() {
        let unit = if counter.metric_unit.is_empty() { "" } else { "_" };
        let metric = format!("weir_session_{}{unit}{}_total", counter.metric, counter.metric_unit);
        if !node.contains(&format!("`{metric}`")) {
            missing.push(format!("docs/reference/NODE.md does not have the metric `{metric}`"));
        }
        if !node.contains(&format!("`{}`", counter.column.key)) {
            missing.push(format!("docs/reference/NODE.md does not have the column `{}`", counter.column.key));
        }
        if !used.contains(&format!("`{}`", counter.field)) {
            missing.push(format!("docs/WIRE.md does not have `{}` in the fields of `used`", counter.field));
        }
    }
    assert_none(&missing);
}
