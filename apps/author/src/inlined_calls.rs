//! Finds the call sites of inlined code in the compiler's debug information (DWARF 5, section 3.3.8), for the line table.
//!
//! The code of a loop over a slice has lines of the library's iterator, and the code of an `emit_…` call has lines of a
//! generated header. The author needs the lines of the calls in their own code instead.

use gimli::{AttributeValue, Dwarf, EndianSlice, LittleEndian, Unit};
use std::collections::HashMap;
use std::ops::Range;
use wasmparser::{Parser, Payload};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The inlined calls of a module, sorted by their nesting depth.
#[derive(Debug, Default)]
pub(crate) struct InlinedCalls(Vec<InlinedCall>);

/// A range of code that was inlined at a call site.
#[derive(Debug)]
struct InlinedCall {
    /// The range, as offsets in the code section's contents.
    code: Range<u64>,
    /// The nesting depth of the call's scope, by which calls are sorted.
    depth: isize,
    /// The file of the call site, as the compiler recorded it.
    file: String,
    line: u32,
}

impl InlinedCalls {
    /// Reads the inlined calls from the debug information of a linked module. Without readable information there are none.
    pub(crate) fn read(linked: &[u8]) -> Self {
        let mut sections = HashMap::new();
        for payload in Parser::new(0).parse_all(linked).flatten() {
            if let Payload::CustomSection(section) = payload {
                sections.insert(section.name(), section.data());
            }
        }
        let load = |id: gimli::SectionId| {
            let data = sections.get(id.name()).copied().unwrap_or_default();
            Ok::<_, gimli::Error>(EndianSlice::new(data, LittleEndian))
        };
        let mut calls = Self::default();
        if let Ok(dwarf) = Dwarf::load(load) {
            let mut units = dwarf.units();
            while let Ok(Some(header)) = units.next() {
                // Calls that were read before an error in a unit are kept.
                let _ = dwarf.unit(header).and_then(|unit| calls.add_unit(&dwarf, &unit));
            }
        }
        // Of two nested calls, the outer one then has the lower index.
        calls.0.sort_by_key(|call| call.depth);
        calls
    }

    /// Adds the inlined calls of one compilation unit.
    fn add_unit(&mut self, dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>) -> gimli::Result<()> {
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                continue;
            }
            let number =
                |name| entry.attr_value(name).and_then(|value: AttributeValue<_>| value.udata_value());
            let (Some(file), Some(line)) =
                (file(dwarf, unit, entry.attr_value(gimli::DW_AT_call_file)), number(gimli::DW_AT_call_line))
            else {
                continue;
            };
            let Ok(line) = u32::try_from(line) else { continue };
            let mut ranges = dwarf.die_ranges(unit, entry)?;
            while let Some(range) = ranges.next()? {
                let (code, file) = (range.begin..range.end, file.clone());
                self.0.push(InlinedCall { code, depth: entry.depth(), file, line });
            }
        }
        Ok(())
    }

    /// Returns the indices of the calls that contain the code at an address, outermost first.
    pub(crate) fn containing(&self, address: u32) -> Vec<usize> {
        let calls = self.0.iter().enumerate();
        calls.filter(|(_, call)| call.code.contains(&address.into())).map(|(index, _)| index).collect()
    }

    /// Returns the file and line of a call site.
    pub(crate) fn call_site(&self, call: usize) -> Option<(&str, u32)> {
        self.0.get(call).map(|call| (call.file.as_str(), call.line))
    }

    /// Returns the addresses at which the inlined code of a call begins or ends.
    pub(crate) fn boundaries(&self) -> impl Iterator<Item = u32> {
        self.0
            .iter()
            .flat_map(|call| [call.code.start, call.code.end])
            .filter_map(|at| u32::try_from(at).ok())
    }
}

/// Returns the path of the file with this number in a unit's line table. Returns `None` for `None` or an unknown number.
fn file(
    dwarf: &Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    number: Option<AttributeValue<Slice<'_>>>,
) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let number = match number? {
        AttributeValue::FileIndex(number) => number,
        other => other.udata_value()?,
    };
    let file = header.file(number)?;
    let text = |value| Some(dwarf.attr_string(unit, value).ok()?.to_string_lossy().into_owned());
    let name = text(file.path_name())?;
    let folder = file.directory(header).and_then(text);
    // In DWARF 5, all folders but folder 0 are relative to folder 0.
    let base = header.include_directories().first().filter(|_| header.version() >= 5);
    let base = base.filter(|_| file.directory_index() != 0).and_then(|base| text(*base));
    Some([base, folder].into_iter().flatten().rfold(name, |path, folder| {
        if folder.is_empty() || path.starts_with('/') { path } else { format!("{folder}/{path}") }
    }))
}
