//! Commands as lines for a shell, for people who copy them.

use crate::is_plain;

/// Returns a command as a line for a POSIX shell. A word that could mean anything to the shell is quoted, so that the line
/// runs exactly this command. Returns `None` if a word has a character that is not [plain](is_plain): a terminal acts on
/// some of them before the shell reads the quotes.
pub fn shell_line<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> Option<String> {
    let words: Option<Vec<String>> = words.into_iter().map(|word| shell_word(word.as_ref())).collect();
    Some(words?.join(" "))
}

fn shell_word(word: &str) -> Option<String> {
    if !word.chars().all(is_plain) {
        return None;
    }
    // A word such as `=ls` is a path in some shells.
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_safe) && !word.starts_with('=') {
        return Some(word.to_owned());
    }
    Some(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_words_are_quoted_and_those_that_a_terminal_acts_on_have_no_line() {
        for (word, line) in [
            ("weir-id:abc@2027-01-01T00:00:00Z", "weir-id:abc@2027-01-01T00:00:00Z"),
            ("--cpu=5%", "--cpu=5%"),
            ("", "''"),
            ("=ls", "'=ls'"),
            ("$(reboot)", "'$(reboot)'"),
            ("`reboot`", "'`reboot`'"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("';reboot;'", r"''\'';reboot;'\'''"),
            ("~/x", "'~/x'"),
            ("a\\", "'a\\'"),
            ("!!", "'!!'"),
            ("{a,b}", "'{a,b}'"),
        ] {
            assert_eq!(shell_line([word]).as_deref(), Some(line));
        }
        assert_eq!(shell_line(["weir", "a b"]).as_deref(), Some("weir 'a b'"));
        for word in ["a\nreboot\n", "\u{3}", "\u{1b}[201~", "\r", "a\u{202e}b", "\0"] {
            assert_eq!(shell_line(["weir", word]), None, "{word:?}");
        }
    }

    #[test]
    fn a_shell_reads_the_words_back() {
        let words =
            ["", "a b", "it's", "$(exit 3)", "`exit 3`", "';exit 3;'", "-n", "*", "~", "\\", "\"", "&", "é"];
        let line = shell_line(["printf", "%s|"].into_iter().chain(words)).unwrap();
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), words.map(|word| format!("{word}|")).concat());
    }
}
