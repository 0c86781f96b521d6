//! Writes the measured tables into docs/SPECIFICATION.md, each between `<!-- bench:SECTION -->` and
//! `<!-- /bench:SECTION -->`.

use crate::error::LabError;
use std::path::Path;

/// The text of one part of the benchmark, as Markdown.
#[derive(Clone, Debug)]
pub struct Section {
    pub name: &'static str,
    pub text: String,
}

/// Replaces these sections of a document. Fails, and changes nothing, if the document lacks one of them.
pub fn update(path: &Path, sections: &[Section]) -> Result<(), LabError> {
    let mut text = std::fs::read_to_string(path).map_err(LabError::file(path))?;
    for section in sections {
        text = replaced(&text, section).ok_or_else(|| {
            LabError::failed(path.display(), format!("the document has no section `bench:{}`", section.name))
        })?;
    }
    std::fs::write(path, text).map_err(LabError::file(path))
}

/// The text with the section replaced, or `None` if the text has no such section.
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
