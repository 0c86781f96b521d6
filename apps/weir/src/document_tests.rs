//! Test of the commands in documents: the command line's own parser reads each of them.

use crate::cli::Cli;
use clap::Parser as _;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};
use weir_trust::key::Identity;
use weir_units::Escape as _;

/// Folders with third-party text or generated pages.
const LEFT_OUT: [&str; 6] = ["target", "out", "templates", "data", "node_modules", "tests"];
/// The fewest commands of all documents.
const COMMANDS_MIN: usize = 200;

/// Returns all Markdown files below a folder.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.filter(|path| !path.is_symlink()).flat_map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !LEFT_OUT.contains(&name.as_str()) {
            documents(&path)
        } else if name.ends_with(".md") {
            vec![path]
        } else {
            Vec::new()
        }
    });
    found.collect()
}

/// Returns the commands of a document's fenced and indented blocks, with their lines from 1. A line that ends in a backslash
/// goes on in the next one.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        is_fenced ^= line.starts_with("```");
        let trimmed = line.trim().trim_start_matches("$ ");
        if !(is_fenced || line.starts_with("    ")) || !trimmed.starts_with("weir ") {
            continue;
        }
        let mut command = trimmed.to_owned();
        while let Some(part) = command.strip_suffix('\\') {
            let (_, next) = lines.next().expect("a line follows a backslash");
            command = format!("{} {}", part.trim_end(), next.trim());
        }
        found.push((number + 1, command));
    }
    found
}

/// Returns a command with values in place of what stands for some: keys, times and addresses that a shell inserts, and names in
/// capital letters behind `weir-key:`.
fn with_values(command: &str) -> String {
    let key = Identity::from_seed(&[1; 32]).public().to_string();
    let mut filled = String::new();
    let mut rest = command;
    while let Some(at) = rest.find("$(") {
        let (before, inserted) = rest.split_at(at);
        let end = inserted.find(')').map_or(inserted.len(), |end| end + 1);
        let value = if inserted.starts_with("$(date") { "2027-01-01" } else { &key };
        filled.push_str(before);
        filled.push_str(value);
        rest = &inserted[end..];
    }
    filled.push_str(rest);
    let mut parts = filled.split("weir-key:");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.find(|c: char| !c.is_ascii_uppercase() && c != '-').unwrap_or(part.len());
        let begin = if name == 0 { "weir-key:" } else { &key };
        text.push_str(begin);
        text.push_str(&part[name..]);
    }
    text.replace("$ix", "ix")
}

/// Splits a command into words, as a shell does, without what follows it: a comment, another command, a redirection, or words
/// behind two spaces. `None` for a form with `…` or brackets, which stands for several commands.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = command.chars().peekable();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => {
                words.extend(word.take());
                if matches!(rest.peek(), Some(' ' | '#')) {
                    break;
                }
            }
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (None, '[' | '…') => return None,
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

#[test]
fn each_command_of_a_document_is_one_that_weir_knows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut parsed, mut wrong) = (0, Vec::new());
    for document in documents(&root) {
        for (line, command) in commands(&std::fs::read_to_string(&document).unwrap()) {
            let Some(words) = words(&with_values(&command)) else { continue };
            match Cli::try_parse_from(&words) {
                Ok(_) => parsed += 1,
                Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
                    parsed += 1;
                }
                // The first line of a file or a message, as in `weir private key 1`.
                Err(_) if words.last().is_some_and(|word| word.parse::<u8>().is_ok()) && words.len() <= 4 => {
                }
                Err(error) => wrong.push(format!("{}:{line}: {command}\n{error}", document.escaped())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed >= COMMANDS_MIN, "only {parsed} commands were found");
}

#[test]
fn a_command_ends_where_a_shell_ends_it() {
    let of = |command: &str| words(command).map(|words| words.join("|"));
    assert_eq!(of("weir run -r a.pcap 'tcp port 80' > out").unwrap(), "weir|run|-r|a.pcap|tcp port 80");
    assert_eq!(of("weir check rtt      a shipped module").unwrap(), "weir|check|rtt");
    assert_eq!(of("weir sign m.wasm # a comment").unwrap(), "weir|sign|m.wasm");
    let granted = with_values(
        "weir grant --to \"$(weir key show x)\" --until $(date -u +%F) --to weir-key:SECURITY-TEAM",
    );
    let key = Identity::from_seed(&[1; 32]).public().to_string();
    let expected = format!("weir|grant|--to|{key}|--until|2027-01-01|--to|{key}");
    assert_eq!(of(&granted).unwrap(), expected);
    assert_eq!(of("weir run -r … -w x"), None);
    let split = commands("text\n\n    weir run \\\n        -r x\n```\n$ weir top\n```\nweir is text\n");
    assert_eq!(split, [(3, "weir run -r x".to_owned()), (6, "weir top".to_owned())]);
    // The form that a document once had.
    assert!(Cli::try_parse_from(["weir", "load", "--session", "study", "rtt.weir"]).is_err());
}
