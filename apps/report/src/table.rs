//! Tables and texts of the page.

use maud::{Markup, Render, html};
use weir_units::Escape as _;

/// Maximum number of characters of a message or parameter that the page shows.
const CHARS_MAX: usize = 400;

/// An untrusted text, such as one of a module or a capture, or the name of a file. Markup is escaped. Characters that are not
/// plain are shown as escapes, as they could make one text look like another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Untrusted<'a>(pub(crate) &'a str);

impl Render for Untrusted<'_> {
    fn render_to(&self, out: &mut String) {
        self.0.escaped().to_string().render_to(out);
    }
}

/// An untrusted text, cut to the maximum length of a message; a cut text ends with `…`.
pub(crate) fn shortened(text: &str) -> Markup {
    let end = text.char_indices().nth(CHARS_MAX).map(|(at, _)| at);
    html! { (Untrusted(text.get(..end.unwrap_or(text.len())).unwrap_or(text))) @if end.is_some() { "…" } }
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct HtmlCell {
    pub(crate) text: String,
    /// True for alignment to the right, as for numbers.
    pub(crate) right: bool,
}

impl HtmlCell {
    pub(crate) fn left(text: &str) -> Self {
        Self { text: text.to_owned(), right: false }
    }

    pub(crate) fn right(text: &str) -> Self {
        Self { text: text.to_owned(), right: true }
    }

    fn class(&self) -> Option<&'static str> {
        self.right.then_some("n")
    }
}

/// Renders a table, which scrolls if it is too large. Its accessible name, `label`, must be unique on the page.
pub(crate) fn table(label: &str, head: &[HtmlCell], rows: impl Iterator<Item = Vec<HtmlCell>>) -> Markup {
    scrolled(
        label,
        &html! {
            thead { tr { (headings(head)) } }
            tbody { @for row in rows { tr { (cells(&row)) } } }
        },
    )
}

/// Renders a table with a bar in the last column; the share is from 0 to 1.
pub(crate) fn table_with_bars(
    label: &str,
    head: &[HtmlCell],
    rows: impl Iterator<Item = (Vec<HtmlCell>, f64)>,
) -> Markup {
    scrolled(
        label,
        &html! {
            thead { tr { (headings(head)) td.bar {} } }
            tbody {
                @for (row, share) in rows {
                    tr {
                        (cells(&row))
                        td.bar { i style={ "width:" (format!("{:.1}", (share * 100.0).clamp(0.0, 100.0))) "%" } {} }
                    }
                }
            }
        },
    )
}

/// Renders a container that scrolls, also by keyboard.
pub(crate) fn scrolled(label: &str, rows: &Markup) -> Markup {
    html! { div.scroll role="region" tabindex="0" aria-label=(Untrusted(label)) { table { (rows) } } }
}

pub(crate) fn headings(head: &[HtmlCell]) -> Markup {
    html! { @for cell in head { th scope="col" class=[cell.class()] { (Untrusted(&cell.text)) } } }
}

pub(crate) fn cells(row: &[HtmlCell]) -> Markup {
    html! { @for cell in row { td class=[cell.class()] { (Untrusted(&cell.text)) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_characters_that_are_not_plain_are_escaped() {
        let text = "<b a='\"'>&\u{7}\u{202e}";
        assert_eq!(html! { (Untrusted(text)) }.into_string(), r"&lt;b a='&quot;'&gt;&amp;\u{7}\u{202e}");
        assert_eq!(
            html! { p title=(Untrusted(text)) {} }.into_string(),
            r#"<p title="&lt;b a='&quot;'&gt;&amp;\u{7}\u{202e}"></p>"#
        );
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let cut = shortened(&"é".repeat(CHARS_MAX + 1)).into_string();
        assert_eq!(cut, "é".repeat(CHARS_MAX) + "…");
        assert_eq!(shortened(&"é".repeat(CHARS_MAX)).into_string(), "é".repeat(CHARS_MAX));
    }
}
