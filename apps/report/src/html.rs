//! Escapes text for HTML.

use weir_units::is_plain;

/// Escapes untrusted text for use between tags and in quoted attributes. Control characters and characters
/// that change the direction of writing are shown as escapes, as they could make one name look like another.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if is_plain(c) => out.push(c),
            c => out.extend(c.escape_default()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<b a='\"'>&\u{7}\u{202e}"), r"&lt;b a=&#39;&quot;&#39;&gt;&amp;\u{7}\u{202e}");
    }
}
