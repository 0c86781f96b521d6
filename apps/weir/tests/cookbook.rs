//! docs/COOKBOOK.md: each command prints what the page says.
//!
//! `WEIR_WRITE=1 cargo test -p weir --test main cookbook` writes what the commands print into the page.

use crate::run::document::path_with_weir;
use crate::run::{outside, root, sample};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// `duckdb -csv -c QUERY`, for machines that have DuckDB as a Python module.
const DUCKDB: &str = r"
import csv, duckdb, sys
assert sys.argv[1:3] == ['-csv', '-c'], sys.argv
result = duckdb.sql(sys.argv[3])
rows = csv.writer(sys.stdout, lineterminator='\n')
rows.writerow(result.columns)
rows.writerows(result.fetchall())
";

/// A command of the page, with the lines that it prints.
struct Example {
    command: String,
    printed: String,
}

/// A part of the page.
enum Part {
    /// Text outside of examples, with its line feeds.
    Text(String),
    /// An example within a block that begins with ```` ```console ````.
    Example(Example),
}

/// Splits the page into its parts.
fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut is_inside = false;
    for line in page.split_inclusive('\n') {
        let is_fence = line.starts_with("```");
        if !is_inside || is_fence {
            is_inside = line.trim_end() == "```console";
            parts.push(Part::Text(line.to_owned()));
        } else if let Some(command) = line.strip_prefix("$ ") {
            parts.push(Part::Example(Example { command: command.to_owned(), printed: String::new() }));
        } else if let Some(Part::Example(example)) = parts.last_mut() {
            // A command goes on after a line that ends in a backslash, or inside quotes.
            let is_open =
                example.command.trim_end().ends_with('\\') || example.command.matches('\'').count() % 2 == 1;
            let text = if is_open { &mut example.command } else { &mut example.printed };
            text.push_str(line);
        }
    }
    parts
}

/// Returns what a command prints in the folder.
fn printed(folder: &Path, command: &str) -> String {
    let output = Command::new("bash")
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", format!("{}:{}", folder.join("bin").display(), path_with_weir().display()))
        .envs(["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"].map(|name| (name, folder)))
        .envs([("TZ", "UTC"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [text, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command}\n{text}\n{errors}");
    text
}

#[test]
fn every_command_of_the_cookbook_prints_what_the_page_says() {
    let page = std::fs::read_to_string(root().join("docs/COOKBOOK.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(sample(), folder.path().join("traffic.pcap")).unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    let has_duckdb = match outside::python(&["duckdb"]) {
        Some(python) => {
            std::fs::write(folder.path().join("query.py"), DUCKDB).unwrap();
            let script = format!(
                "#!/bin/sh\nexec {} {} \"$@\"\n",
                python.display(),
                folder.path().join("query.py").display()
            );
            let path = folder.path().join("bin/duckdb");
            std::fs::write(&path, script).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
            true
        }
        None => false,
    };
    let (mut written, mut examples, mut skipped) = (String::new(), 0, 0);
    for part in parts(&page) {
        match part {
            Part::Text(text) => written.push_str(&text),
            Part::Example(example) => {
                let missing = [("duckdb", has_duckdb), ("jq", outside::has("jq"))]
                    .into_iter()
                    .any(|(program, is_present)| example.command.contains(program) && !is_present);
                let text = if missing {
                    skipped += 1;
                    example.printed
                } else {
                    examples += 1;
                    printed(folder.path(), &example.command)
                };
                _ = write!(written, "$ {}{text}", example.command);
            }
        }
    }
    if skipped > 0 {
        _ = writeln!(std::io::stderr(), "skipped: {skipped} examples need duckdb (Python) or jq");
    }
    assert!(examples + skipped >= 20, "{examples} examples");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(root().join("docs/COOKBOOK.md"), written).unwrap();
        return;
    }
    for (line, (stated, printed)) in page.lines().zip(written.lines()).enumerate() {
        assert_eq!(stated, printed, "line {}: WEIR_WRITE=1 writes the page", line + 1);
    }
    assert_eq!(page, written);
}

#[test]
fn the_cookbook_has_at_least_twenty_questions_with_an_example_each() {
    let page = std::fs::read_to_string(root().join("docs/COOKBOOK.md")).unwrap();
    let questions: Vec<&str> = page.split("\n### ").skip(1).collect();
    assert!(questions.len() >= 20, "{}", questions.len());
    for question in questions {
        let title = question.lines().next().unwrap();
        assert!(title.ends_with('?') && question.contains("```console\n$ "), "{title}");
    }
}
