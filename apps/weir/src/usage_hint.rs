//! Hints for wrong command lines: a guess at the intended option.

use crate::cli::Cli;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use weir_node::control::renamed_keys::present_option;
use weir_units::{Shown as _, shown_lines};

/// Prints the error of the command line (or the help, if requested) and a hint, and exits.
pub fn exit(error: &clap::Error) -> ! {
    print(error, std::env::args_os());
    if let Some((old, new)) = renamed(error) {
        let _ = writeln!(std::io::stderr(), "\n  tip: `{old}` is now `{new}`");
    }
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    if lacks_read(error)
        && let Some(capture) = capture(&arguments, Path::exists)
    {
        let _ = writeln!(std::io::stderr(), "\n  tip: did you mean `-r {}`?", capture.escape_debug());
    }
    std::process::exit(error.exit_code())
}

/// Prints the error as clap does. Clap prints arguments unescaped, so if they contain control characters, the escaped arguments are
/// parsed again and that error is printed.
fn print(error: &clap::Error, arguments: impl Iterator<Item = OsString>) {
    let arguments: Vec<OsString> = arguments.collect();
    let escaped: Vec<OsString> =
        arguments.iter().map(|argument| argument.shown().to_string().into()).collect();
    let _ = if escaped == arguments {
        error.print()
    } else if let Err(error) = Cli::try_parse_from(escaped) {
        error.print()
    } else {
        writeln!(std::io::stderr(), "{}", shown_lines(&error.to_string()))
    };
}

/// Returns the unknown option of the error and its present name, if the option has been renamed.
fn renamed(error: &clap::Error) -> Option<(&str, &'static str)> {
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

/// Returns the first word after `run` that ends as the name of a capture; otherwise the first word that is an existing file.
fn capture(arguments: &[String], exists: impl Fn(&Path) -> bool) -> Option<&String> {
    let is_capture = |word: &str| {
        let name = word.trim_end_matches(".gz").trim_end_matches(".zst");
        [".pcap", ".pcapng", ".cap", ".ntar"].iter().any(|end| name.ends_with(end))
    };
    let (command, words) = arguments.split_first()?;
    let mut words = words.iter().filter(|word| !word.starts_with('-'));
    let begin = words.clone();
    (command == "run").then_some(())?;
    words.find(|word| is_capture(word)).or_else(|| begin.into_iter().find(|word| exists(Path::new(word))))
}

/// The first word of a filter, except its very first, that looks like an option.
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
        let there = |path: &Path| path == Path::new("dump");
        let capture_in = |text: &str| capture(&words(text), there).cloned();
        assert_eq!(capture_in("run traffic.pcap.gz").as_deref(), Some("traffic.pcap.gz"));
        assert_eq!(capture_in("run -m rtt dump").as_deref(), Some("dump"));
        assert_eq!(capture_in("run tcp port 80"), None);
        assert_eq!(capture_in("check dump"), None);
        assert_eq!(capture_in(""), None);
    }

    #[test]
    fn an_option_of_an_earlier_version_is_refused_with_its_present_name() {
        for row in weir_node::control::renamed_keys::OPTIONS {
            let parse = |option: &str| {
                let command = ["weir"].into_iter().chain(row.place.split(' ')).chain([option, "x"]);
                Cli::try_parse_from(command).unwrap_err()
            };
            assert_eq!(renamed(&parse(row.old)), Some((row.old, row.new)), "{row:?}");
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
