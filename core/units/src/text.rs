//! Text that a stranger wrote, in messages and on terminals.

/// Whether a character shows as itself and changes nothing around it: no control character, and none of the invisible ones that hide, reorder
/// or break text (Unicode categories Cc, Cf, Zl and Zp).
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_format
}

/// A stranger's text in a message: at most 200 characters, what is not plain escaped.
pub fn shown(text: &str) -> String {
    escaped(text, 200)
}

/// The first characters of a stranger's text, at most so many, what is not plain escaped.
pub fn escaped(text: &str, most: usize) -> String {
    let escape = |c: char| if is_plain(c) { String::from(c) } else { c.escape_default().collect() };
    text.chars().take(most).map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_command_a_terminal_is_escaped() {
        assert_eq!(shown("a\u{1b}[31m é\u{202e}\n"), r"a\u{1b}[31m é\u{202e}\n");
        assert_eq!(shown(&"x".repeat(300)).len(), 200);
    }
}
