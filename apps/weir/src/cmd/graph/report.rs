//! Messages about errors of configurations.

use std::io::{self, Write};
use unicode_width::UnicodeWidthStr as _;
use weir_graph::language::{LanguageError, LanguageErrors};
use weir_units::{escaped, escaped_lines};

/// The most characters of a source line that are shown.
const SHOWN_CHARS: usize = 100;

/// Writes errors and warnings, each as `FILE:LINE: text`. On a terminal, the line of the source follows, with a mark
/// below the place, and the most similar name.
pub fn write(out: &mut impl Write, errors: &LanguageErrors, is_terminal: bool) -> io::Result<()> {
    for warning in &errors.warnings {
        let text = warning.to_string();
        let place = warning.landmark.to_string();
        let text = text.strip_prefix(&place).map_or(text.clone(), |rest| format!("{place}: warning{rest}"));
        write_one(out, &text, warning, is_terminal)?;
    }
    for error in &errors.errors {
        write_one(out, &error.to_string(), error, is_terminal)?;
    }
    if errors.uncollected > 0 {
        writeln!(out, "and {} more errors", errors.uncollected)?;
    }
    Ok(())
}

fn write_one(out: &mut impl Write, text: &str, error: &LanguageError, is_terminal: bool) -> io::Result<()> {
    if !is_terminal {
        return writeln!(out, "{}", escaped_lines(text));
    }
    let (first, notes) = text.split_once('\n').unwrap_or((text, ""));
    write!(out, "{}", escaped(first))?;
    match &error.nearest {
        Some(nearest) => writeln!(out, " (did you mean '{}'?)", escaped(nearest))?,
        None => writeln!(out)?,
    }
    let column = usize::try_from(error.column).unwrap_or(usize::MAX).saturating_sub(1);
    if !error.line_text.trim().is_empty() {
        let skipped = column.saturating_sub(SHOWN_CHARS * 2 / 3);
        // A tab has a different width at each place.
        let shown = |count: usize| -> String {
            let part: String = error.line_text.replace('\t', " ").chars().skip(skipped).take(count).collect();
            escaped(&part).to_string()
        };
        writeln!(out, "    {}", shown(SHOWN_CHARS).trim_end())?;
        writeln!(out, "    {:1$}^", "", shown(column - skipped).width())?;
    }
    if notes.is_empty() { Ok(()) } else { writeln!(out, "{}", escaped_lines(notes)) }
}

#[cfg(test)]
mod tests {
    use weir_graph::language::{AnyClass, ConfigurationSource, parse};

    fn shown(text: &str, is_terminal: bool) -> String {
        let source = ConfigurationSource { name: "r.click", bytes: text.as_bytes() };
        let errors = parse(&source, &[], &AnyClass).unwrap_err();
        let mut out = Vec::new();
        super::write(&mut out, &errors, is_terminal).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn terminals_get_the_line_a_mark_and_the_nearest_name() {
        let text = "counter :: Counter;\n\tä -> A;\nA -> countr;";
        assert_eq!(
            shown(text, false),
            "r.click:2: syntax error near 'ä'\nr.click:3: undeclared element 'countr'\n"
        );
        assert_eq!(
            shown(text, true),
            "r.click:2: syntax error near 'ä'\n     ä -> A;\n     ^\n\
             r.click:3: undeclared element 'countr' (did you mean 'counter'?)\n    A -> countr;\n         ^\n"
        );
        assert!(
            shown("provide(x); y -> A", true).starts_with("r.click:1: warning: 'provide' has no effect\n")
        );
    }

    #[test]
    fn long_lines_are_cut_and_control_characters_escaped() {
        let long = format!("{}x -> A;{}", " ".repeat(150), " A;".repeat(100));
        let shown_long = shown(&long, true);
        let lines: Vec<&str> = shown_long.lines().collect();
        assert_eq!(lines[1].find("x -> A"), lines[2].find('^'));
        assert!(lines[1].len() < 110, "{shown_long}");
        assert!(!shown("A(\u{1b}[1m) \u{1b} x -> A", true).contains('\u{1b}'));
    }
}
