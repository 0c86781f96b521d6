//! The measured tables of docs/SPECIFICATION.md: between `<!-- bench:SECTION -->` and `<!-- /bench:SECTION -->` only this program writes.

use crate::BenchError;
use std::path::Path;

/// What one part of the benchmark has to say, as Markdown.
#[derive(Clone, Debug)]
pub struct Section {
    /// The name of its place in the document.
    pub name: &'static str,
    /// The text.
    pub text: String,
}

/// Replaces the sections of a document.
///
/// # Errors
/// [`BenchError::NoPlace`] where one has no place in it; then nothing is changed.
pub fn update(path: &Path, sections: &[Section]) -> Result<(), BenchError> {
    let mut text = std::fs::read_to_string(path).map_err(BenchError::file(path))?;
    for section in sections {
        text = replaced(&text, section)
            .ok_or_else(|| BenchError::NoPlace { path: path.to_owned(), section: section.name.to_owned() })?;
    }
    std::fs::write(path, text).map_err(BenchError::file(path))
}

fn replaced(text: &str, section: &Section) -> Option<String> {
    let (open, close) =
        (format!("<!-- bench:{} -->", section.name), format!("<!-- /bench:{} -->", section.name));
    let (before, rest) = text.split_once(&open)?;
    let (_, after) = rest.split_once(&close)?;
    Some(format!("{before}{open}\n{}\n{close}{after}", section.text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_everything_else_stays() {
        let section = Section { name: "run", text: "new\n".into() };
        let text = "a\n<!-- bench:run -->\nold\n<!-- /bench:run -->\nb";
        let after = "a\n<!-- bench:run -->\nnew\n<!-- /bench:run -->\nb";
        assert_eq!(replaced(text, &section).as_deref(), Some(after));
        assert_eq!(replaced(after, &section).as_deref(), Some(after));
        assert_eq!(replaced("a", &section), None);
    }
}
