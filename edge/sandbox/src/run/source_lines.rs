//! The lines of the author's source for the code of a rewritten module.
//!
//! Reading them takes time and memory that depend on the module. So a thread that loads modules does it, and threads that
//! handle packets only look up a fault.

use crate::load::origin::RewrittenModule;
use std::collections::HashMap;
use weir_bounds::{Lines, ParsedModule, SourceLine};

/// The most changes of the line that are kept. The code after them has no lines. The memory of these rows is not charged to a
/// session, so a module must not be able to take much of it.
const ROWS_MAX: usize = 1 << 15;
/// The most source files. Code from others has no lines.
const FILES_MAX: usize = 256;

/// The lines by rising offset in the rewritten module. Each holds up to the next one.
#[derive(Debug, Default)]
pub(crate) struct SourceLines {
    /// Offset, index of the file, and line; line 0 stands for code without one.
    rows: Vec<(u32, u32, u32)>,
    files: Vec<String>,
}

impl SourceLines {
    /// Reads the lines of a module.
    pub(crate) fn new(rewritten: &RewrittenModule, module: &ParsedModule) -> Self {
        let lines = Lines::new(module);
        let (mut read, mut files) = (Self::default(), HashMap::new());
        for (offset, origin) in rewritten.origins() {
            let line = origin.and_then(|origin| lines.line(origin.into()));
            let place = line.and_then(|line| Some((read.file(line.file, &mut files)?, line.line)));
            let (file, line) = place.unwrap_or_default();
            if read.rows.last().is_some_and(|last| (last.1, last.2) == (file, line)) {
                continue;
            }
            if read.rows.len() == ROWS_MAX {
                read.rows.push((offset, 0, 0));
                break;
            }
            read.rows.push((offset, file, line));
        }
        read
    }

    /// Returns the index of a file; `None` if there are too many. `known` has the indices of files by their names.
    fn file(&mut self, name: String, known: &mut HashMap<String, u32>) -> Option<u32> {
        if let Some(index) = known.get(&name) {
            return Some(*index);
        }
        if self.files.len() == FILES_MAX {
            return None;
        }
        let index = u32::try_from(self.files.len()).ok()?;
        self.files.push(name.clone());
        known.insert(name, index);
        Some(index)
    }

    /// Returns the line of the instruction at an offset in the rewritten module.
    pub(crate) fn line(&self, offset: usize) -> Option<SourceLine> {
        let offset = u32::try_from(offset).ok()?;
        let after = self.rows.partition_point(|(start, ..)| *start <= offset);
        let (_, file, line) = *self.rows.get(after.checked_sub(1)?)?;
        let file = self.files.get(file as usize)?;
        (line > 0).then(|| SourceLine { file: file.clone(), line })
    }
}
