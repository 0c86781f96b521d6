//! Source files, and places in them.

use crate::arguments::text::{line_directive, line_end, unquote};
use crate::landmark::Landmark;
use std::sync::Arc;

/// A place in one of the source files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub file: u32,
    /// The byte in the file.
    pub at: u32,
}

/// A place as a person finds it.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlace {
    pub landmark: Landmark,
    /// The column in characters, from 1.
    pub column: u32,
    pub line_text: String,
}

/// A line directive: the lines from `first_line` on are named differently.
struct RenamedLines {
    first_line: u32,
    line: u32,
    file: Arc<str>,
}

/// One source file.
pub(crate) struct SourceFile {
    name: Arc<str>,
    pub text: Arc<str>,
    /// The first byte of each line.
    lines: Vec<u32>,
    renamed: Vec<RenamedLines>,
}

/// The longest excerpt of a source line in an error, in characters.
const LINE_CHARS_MAX: usize = 400;

impl SourceFile {
    /// `text` has at most [`super::limits::SOURCE_BYTES_MAX`] bytes, so every index fits into 32 bits.
    pub fn new(name: Arc<str>, text: Arc<str>) -> Self {
        let mut lines = vec![0];
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let end = line_end(bytes, at);
            if end == bytes.len() {
                break;
            }
            at = end + if bytes[end..].starts_with(b"\r\n") { 2 } else { 1 };
            lines.push(index(at));
        }
        Self { name, text, lines, renamed: Vec::new() }
    }

    /// Obeys the line directive at `at`, if there is one. Returns false if there is none.
    pub fn rename_lines(&mut self, at: usize) -> bool {
        let text = Arc::clone(&self.text);
        let Some((line, rest)) = line_directive(text.as_bytes(), at) else { return false };
        let previous = self.renamed.last().map_or(&self.name, |last| &last.file);
        let file = match rest.strip_prefix(b"\"") {
            None => Arc::clone(previous),
            Some(_) => match name_in_quotes(rest).as_str() {
                "" => Arc::clone(&self.name),
                name if name == &**previous => Arc::clone(previous),
                name => name.into(),
            },
        };
        // The scanner may pass a directive again after it has stepped back.
        let first_line = self.line_index(at) + 1;
        if self.renamed.last().is_none_or(|last| last.first_line < first_line) {
            self.renamed.push(RenamedLines { first_line, line, file });
        }
        true
    }

    /// Returns the index of the line that contains a byte, from 0.
    fn line_index(&self, at: usize) -> u32 {
        index(self.lines.partition_point(|start| *start as usize <= at).saturating_sub(1))
    }

    pub fn landmark(&self, at: u32) -> Landmark {
        let line = self.line_index(at as usize);
        let after = self.renamed.partition_point(|renamed| renamed.first_line <= line);
        match after.checked_sub(1).and_then(|last| self.renamed.get(last)) {
            Some(last) => Landmark {
                file: Arc::clone(&last.file),
                line: last.line.saturating_add(line - last.first_line),
            },
            None => Landmark { file: Arc::clone(&self.name), line: line + 1 },
        }
    }

    pub fn place(&self, at: u32) -> SourcePlace {
        let start = self.lines[self.line_index(at as usize) as usize] as usize;
        let bytes = self.text.as_bytes();
        let is_first_byte = |byte: &&u8| **byte & 0xc0 != 0x80;
        let before = bytes[start..(at as usize).max(start)].iter().filter(is_first_byte).count();
        let line_text = if before < LINE_CHARS_MAX {
            let is_inside = |c: &char| !matches!(c, '\n' | '\r');
            self.text[start..].chars().take_while(is_inside).take(LINE_CHARS_MAX).collect()
        } else {
            // The caret would stand outside the excerpt.
            String::new()
        };
        SourcePlace { landmark: self.landmark(at), column: index(before) + 1, line_text }
    }
}

/// Returns the file name at the begin of `rest`, without its quotes. The closing quote may be missing.
fn name_in_quotes(rest: &[u8]) -> String {
    let mut end = 1;
    while end < rest.len() && rest[end] != b'"' {
        end += if rest[end] == b'\\' { 2 } else { 1 };
    }
    let quoted = String::from_utf8_lossy(&rest[..end.min(rest.len())]);
    String::from_utf8_lossy(&unquote(&format!("{quoted}\""))).into_owned()
}

/// Converts an index into a text of at most [`super::limits::SOURCE_BYTES_MAX`] bytes.
pub(crate) fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
