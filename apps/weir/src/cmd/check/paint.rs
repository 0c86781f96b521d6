//! Text for terminals: colours, escaping and line wrapping. The other files of `weir check` print through these
//! functions.

use std::io::IsTerminal;
use weir_admission::is_plain;

/// Maximum number of columns of a wrapped line.
pub const WIDTH: usize = 100;

/// A painter of text: adds colours if its value is true, and leaves the text plain otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(bool);

/// A text style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextStyle {
    /// Plain text.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Secondary information.
    Faint,
    /// A good result.
    Good,
    /// A warning.
    Warm,
    /// A problem.
    Bad,
}

impl TextStyle {
    /// The parameters of the SGR control sequence (ECMA-48, 8.3.117).
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warm => "33",
            Self::Bad => "1;31",
        }
    }
}

impl Paint {
    /// A painter without colours.
    #[cfg(test)]
    pub const NEVER: Self = Self(false);

    /// Returns a painter for standard output. It adds colours if standard output is a terminal, NO_COLOR
    /// (https://no-color.org) is not set and TERM is not `dumb`.
    pub fn for_stdout() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb)
    }

    /// Returns the text in a style.
    pub fn paint(self, style: TextStyle, text: &str) -> String {
        if self.0 && style != TextStyle::Plain && !text.is_empty() {
            format!("\u{1b}[{}m{text}\u{1b}[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}

/// Makes a line of an untrusted source file safe to print: expands tabs, escapes control characters, and cuts the line
/// to `width` columns.
pub fn plain_line(line: &str, width: usize) -> String {
    let mut shown = String::new();
    let mut columns = 0;
    for c in line.trim_end_matches(['\n', '\r']).chars() {
        let text = match c {
            '\t' => " ".repeat(4 - columns % 4),
            c if is_plain(c) => String::from(c),
            c => c.escape_default().collect(),
        };
        columns += text.chars().count();
        if columns > width {
            shown.push('…');
            break;
        }
        shown.push_str(&text);
    }
    shown
}

/// Returns `first` and the text, wrapped to lines of at most [`WIDTH`] columns. Each line after the first is indented
/// by `indent` columns. A word that is longer than a line is not broken.
pub fn wrapped(first: &str, indent: usize, text: &str) -> String {
    let mut lines = first.to_owned();
    let mut columns = first.chars().count();
    let mut is_first_word = true;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if !is_first_word && columns + 1 + len > WIDTH {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            columns = indent;
        } else if !is_first_word {
            lines.push(' ');
            columns += 1;
        }
        lines.push_str(word);
        columns += len;
        is_first_word = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_added_only_if_enabled() {
        assert_eq!(Paint(true).paint(TextStyle::Bad, "x"), "\u{1b}[1;31mx\u{1b}[0m");
        assert_eq!(Paint(true).paint(TextStyle::Plain, "x"), "x");
        assert_eq!(Paint::NEVER.paint(TextStyle::Bad, "x"), "x");
    }

    #[test]
    fn untrusted_lines_are_escaped_and_cut() {
        assert_eq!(plain_line("\tif (x)\t// \u{1b}[2J\r\n", 80), "    if (x)  // \\u{1b}[2J");
        assert_eq!(plain_line("abcdef", 4), "abcd…");
        assert_eq!(plain_line("abcd", 4), "abcd");
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        let text = wrapped("- ", 4, &"word ".repeat(30));
        assert!(
            text.lines().count() == 2 && text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.starts_with("- word word") && text.contains("\n    word"), "{text}");
    }
}
