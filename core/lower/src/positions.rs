//! The positions of machine code in the module, from the debug information of the object file.
//!
//! The lowering gives offsets in the rewritten module as line numbers. All instructions but conditional branches have one.
//! The compiler is not trusted, so a position can be wrong; no safety depends on it.

use crate::object::{ObjectError, SectionPlaces};
use gimli::{DebugLine, DebugLineOffset, LittleEndian};
use object::elf::R_X86_64_64;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget};

/// The most positions that are read. They are kept with the code, so a compiler's answer must not fill the memory with them.
const POSITIONS_MAX: usize = 1 << 18;

/// The position of the code from one offset to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePosition {
    /// The offset of the first instruction in the code of the image.
    pub offset: u32,
    /// The offset in the module; `None` for code without a position.
    pub module_offset: Option<u32>,
}

/// The positions of an object file's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodePositions(Vec<CodePosition>);

impl CodePositions {
    /// Returns the positions, sorted by offset in the code.
    pub fn list(&self) -> &[CodePosition] {
        &self.0
    }

    /// Returns the offset in the module of the instruction at an offset in the code, if the compiler states one.
    pub fn module_offset(&self, offset: u32) -> Option<u32> {
        let after = self.0.partition_point(|position| position.offset <= offset);
        self.0.get(after.checked_sub(1)?)?.module_offset
    }
}

/// Reads the positions of an object file's code. The image is the one that [`link`](crate::link()) makes with the same limit.
/// A file without debug information has none.
///
/// # Errors
/// [`ObjectError`], if the file is no object file.
pub fn positions(bytes: &[u8], bytes_max: u32) -> Result<CodePositions, ObjectError> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let places = SectionPlaces::of(&file, bytes_max)?;
    let Some(section) = file.section_by_name(".debug_line") else { return Ok(CodePositions::default()) };
    let mut table = section.data()?.to_vec();
    for (at, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = file.symbol_by_index(index)?;
        let start = symbol.section_index().and_then(|section| places.code_place(section));
        let address = start.map(|start| start.wrapping_add(symbol.address()));
        let address = address.map(|address| address.wrapping_add_signed(relocation.addend()));
        let is_known = relocation.flags() == RelocationFlags::Elf { r_type: R_X86_64_64 };
        let field = usize::try_from(at).ok().and_then(|at| table.get_mut(at..at.checked_add(8)?));
        if let (Some(address), Some(field), true) = (address, field, is_known) {
            field.copy_from_slice(&address.to_le_bytes());
        }
    }
    // Positions up to an error are kept.
    let mut found = Vec::new();
    _ = read_rows(&table, &mut found);
    found.sort_by_key(|position| position.offset);
    // The last row of an offset holds.
    found.reverse();
    found.dedup_by_key(|position| position.offset);
    found.reverse();
    Ok(CodePositions(found))
}

fn read_rows(table: &[u8], found: &mut Vec<CodePosition>) -> gimli::Result<()> {
    let program = DebugLine::new(table, LittleEndian).program(DebugLineOffset(0), 8, None, None)?;
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        if found.len() >= POSITIONS_MAX {
            break;
        }
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        if let Ok(offset) = u32::try_from(row.address()) {
            found.push(CodePosition { offset, module_offset: line.filter(|_| !row.end_sequence()) });
        }
    }
    Ok(())
}
