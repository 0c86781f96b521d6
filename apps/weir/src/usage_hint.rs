//! Hints for wrong command lines: the option or command that the user probably meant, and the faulty part of a filter.

use crate::cli::Cli;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use unicode_width::UnicodeWidthStr as _;
use weir_node::control::renamed_keys::present_option;
use weir_units::{Escape as _, escaped_lines};

/// Prints clap's error about the command line, or the requested help, with a hint if there is one. Then ends the
/// program.
pub fn exit(error: &clap::Error) -> ! {
    print(error, std::env::args_os());
    if let Some((old, new)) = renamed_option(error) {
        let _ = writeln!(std::io::stderr(), "\n  tip: `{old}` is now `{new}`");
    }
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    if lacks_read(error)
        && let Some(capture) = find_capture(&arguments, Path::exists)
    {
        let _ = writeln!(std::io::stderr(), "\n  tip: did you mean `-r {}`?", capture.escape_debug());
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(command) = command_for_file(&arguments, Path::exists)
    {
        let _ = writeln!(std::io::stderr(), "\n  tip: did you mean `{}`?", command.escape_debug());
    }
    std::process::exit(error.exit_code())
}

/// Prints the error as clap does. Clap prints arguments unescaped. If the arguments contain control characters, they
/// are escaped and parsed again, and the error about the escaped arguments is printed.
fn print(error: &clap::Error, arguments: impl Iterator<Item = OsString>) {
    let arguments: Vec<OsString> = arguments.collect();
    let escaped: Vec<OsString> =
        arguments.iter().map(|argument| argument.escaped().to_string().into()).collect();
    let _ = if escaped == arguments {
        error.print()
    } else if let Err(error) = Cli::try_parse_from(escaped) {
        error.print()
    } else {
        writeln!(std::io::stderr(), "{}", escaped_lines(&error.to_string()))
    };
}

/// Returns the unknown option of the error and its present name, if the option has been renamed.
fn renamed_option(error: &clap::Error) -> Option<(&str, &'static str)> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = given.split('=').next().unwrap_or(given);
    let new = present_option(option).filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    Some((option, new))
}

/// Returns true if the command line lacks the required `--read`.
fn lacks_read(error: &clap::Error) -> bool {
    let missing = error.get(ContextKind::InvalidArg);
    error.kind() == ErrorKind::MissingRequiredArgument
        && matches!(missing, Some(ContextValue::Strings(names)) if names.iter().any(|name| name.contains("--read")))
}

/// Returns the argument of `weir run` that is probably a capture: the first whose name has the suffix of a capture
/// file, or else the first that is an existing file.
fn find_capture(arguments: &[String], exists: impl Fn(&Path) -> bool) -> Option<&String> {
    let (command, words) = arguments.split_first()?;
    let mut words = words.iter().filter(|word| !word.starts_with('-'));
    let all_words = words.clone();
    (command == "run").then_some(())?;
    words
        .find(|word| has_capture_suffix(word))
        .or_else(|| all_words.into_iter().find(|word| exists(Path::new(word))))
}

/// Returns true for a word that ends as names of captures do.
fn has_capture_suffix(word: &str) -> bool {
    let name = word.trim_end_matches(".gz").trim_end_matches(".zst");
    [".pcap", ".pcapng", ".cap", ".ntar"].iter().any(|suffix| name.ends_with(suffix))
}

/// Returns the command that a user probably meant, if the first argument is a file instead of a command. A capture is
/// run, a module is checked, and a folder of a module is built.
fn command_for_file(arguments: &[String], exists: impl Fn(&Path) -> bool) -> Option<String> {
    let file = arguments.first()?;
    let path = Path::new(file);
    if file.ends_with(".wasm") {
        return Some(format!("weir check {file}"));
    }
    if exists(&path.join("weir.toml")) {
        return Some(format!("weir build {file}"));
    }
    (has_capture_suffix(file) || exists(path)).then(|| format!("weir run -r {file}"))
}

/// Returns a filter expression with a line of carets below its faulty part, which begins at byte `at` and has `len`
/// bytes. A long expression is shortened to the surroundings of the faulty part.
pub fn mark_fault(expression: &str, at: usize, len: usize) -> String {
    const BEFORE_MAX: usize = 50;
    const AFTER_MAX: usize = 25;
    let (before, rest) = expression.split_at_checked(at).unwrap_or((expression, ""));
    let (fault, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
    let (before, fault, after) =
        (before.escaped().to_string(), fault.escaped().to_string(), after.escaped().to_string());
    let skipped = before.chars().count().saturating_sub(BEFORE_MAX);
    let begin = if skipped > 0 { "…" } else { "" };
    let before: String = before.chars().skip(skipped).collect();
    let end = if after.chars().count() > AFTER_MAX { "…" } else { "" };
    let after: String = after.chars().take(AFTER_MAX).collect();
    let indent = " ".repeat(begin.width() + before.width());
    let carets = "^".repeat(fault.width().max(1));
    format!("  {begin}{before}{fault}{after}{end}\n  {indent}{carets}")
}

/// Returns the first word of a filter that looks like an option, such as `--json`, which clap takes for a part of the
/// filter. The filter's first word is not searched, because clap parses an option there itself.
pub fn option_in_filter(words: &[String]) -> Option<&String> {
    words.iter().skip(1).find(|word| {
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_capture_is_found_by_its_name_or_because_the_file_exists() {
        let exists = |path: &Path| path == Path::new("dump");
        let capture_in = |text: &str| find_capture(&words(text), exists).cloned();
        assert_eq!(capture_in("run traffic.pcap.gz").as_deref(), Some("traffic.pcap.gz"));
        assert_eq!(capture_in("run -m rtt dump").as_deref(), Some("dump"));
        assert_eq!(capture_in("run tcp port 80"), None);
        assert_eq!(capture_in("check dump"), None);
        assert_eq!(capture_in(""), None);
    }

    #[test]
    fn a_file_in_the_place_of_a_command_suggests_the_command_for_it() {
        let exists = |path: &Path| [Path::new("dump"), Path::new("mine/weir.toml")].contains(&path);
        let command = |text: &str| command_for_file(&words(text), exists);
        assert_eq!(command("x.pcap -m rtt").as_deref(), Some("weir run -r x.pcap"));
        assert_eq!(command("dump").as_deref(), Some("weir run -r dump"));
        assert_eq!(command("x.wasm").as_deref(), Some("weir check x.wasm"));
        assert_eq!(command("mine").as_deref(), Some("weir build mine"));
        assert_eq!(command("rum"), None);
    }

    #[test]
    fn the_faulty_part_of_a_filter_is_marked() {
        assert_eq!(mark_fault("tcp prot 80", 4, 4), "  tcp prot 80\n      ^^^^");
        assert_eq!(mark_fault("tcp and (", 9, 0), "  tcp and (\n           ^");
        let long = format!("{} or bad or {}", "tcp".repeat(40), "udp".repeat(40));
        let marked = mark_fault(&long, 124, 3);
        let lines: Vec<&str> = marked.lines().collect();
        assert!(lines[0].starts_with("  …") && lines[0].ends_with('…') && lines[0].chars().count() < 90);
        assert_eq!(lines[0].chars().skip(lines[1].chars().count() - 3).take(3).collect::<String>(), "bad");
        // Escapes shift the carets. For an offset inside a character, the caret is after the whole expression.
        assert_eq!(mark_fault("a\u{1b}b", 2, 1), "  a\\u{1b}b\n         ^");
        assert!(mark_fault("é", 1, 1).contains('é'));
    }

    #[test]
    fn an_option_of_an_earlier_version_is_refused_with_its_present_name() {
        for row in weir_node::control::renamed_keys::OPTIONS {
            let parse = |option: &str| {
                let command = ["weir"].into_iter().chain(row.place.split(' ')).chain([option, "x"]);
                Cli::try_parse_from(command).unwrap_err()
            };
            assert_eq!(renamed_option(&parse(row.old)), Some((row.old, row.new)), "{row:?}");
            let error = parse(row.new);
            assert_ne!(error.kind(), ErrorKind::UnknownArgument, "{row:?}: {error}");
        }
    }

    #[test]
    fn an_option_in_a_filter_is_distinguished_from_a_minus_sign() {
        let option = |text: &str| option_in_filter(&words(text)).cloned();
        assert_eq!(option("tcp port 80 --json").as_deref(), Some("--json"));
        assert_eq!(option("tcp -w out.pcap").as_deref(), Some("-w"));
        assert_eq!(option("ip[2:2] - 1 < -5"), None);
    }
}
