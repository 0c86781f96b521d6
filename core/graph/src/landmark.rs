//! Places of declarations, as messages name them.

use std::fmt;
use std::sync::Arc;

/// The file and the line of a declaration, as messages name them. A line directive (`# 12 "file"`) changes both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Landmark {
    /// The name of the file.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u32,
}

impl fmt::Display for Landmark {
    /// Writes `FILE:LINE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
