//! Reads the object file that clang makes of the lowered text, and places its parts in an image.
//!
//! The file comes from an untrusted process. Nothing that this file does is part of the argument for safety: the image is
//! verified as it is.

use crate::Lowered;
use object::elf::{R_X86_64_PC32, R_X86_64_PLT32};
use object::read::elf::ElfFile64;
use object::{
    Architecture, Endianness, Object, ObjectKind, ObjectSection, ObjectSymbol, RelocationFlags,
    RelocationTarget, SectionIndex, SectionKind,
};
use std::collections::{BTreeMap, HashMap};
use weir_verify::{CONSTANTS_ALIGNMENT, CodeImage, ImageFunction, PADDING, THUNK_BYTES};

/// An image, and the places of the module's functions in it.
#[derive(Debug)]
pub struct LinkedObject {
    /// The image, which has not been verified.
    pub image: CodeImage,
    /// For each function of the module that is not imported, its index in the image.
    pub functions: Vec<u32>,
}

/// The reason why an object file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The file is not an object file.
    #[error("not an object file: {0}")]
    Format(#[from] object::Error),
    /// The file is for another machine, or is no relocatable file.
    #[error("not a relocatable object file for x86-64")]
    Machine,
    /// A function is missing.
    #[error("function {0} is missing")]
    Function(u32),
    /// A relocation cannot be applied.
    #[error("the relocation at {0:#x} is of an unknown kind, or its target is")]
    Relocation(u64),
    /// The file is too long.
    #[error("the object file has more than {0} bytes of code or constants")]
    TooLong(u32),
}

/// The sections of an object file with code and constants, one after the other.
pub(crate) struct SectionPlaces {
    code: Vec<u8>,
    constants: Vec<u8>,
    /// The offsets of sections in the code.
    code_places: HashMap<SectionIndex, u64>,
    /// The offsets of sections in the constants.
    constant_places: HashMap<SectionIndex, u64>,
}

impl SectionPlaces {
    /// Places the sections of a file in at most `bytes_max` bytes of code, and as many of constants.
    pub(crate) fn of(file: &ElfFile64<'_, Endianness>, bytes_max: u32) -> Result<Self, ObjectError> {
        let (mut code, mut constants) = (Vec::new(), Vec::new());
        let (mut code_places, mut constant_places) = (HashMap::new(), HashMap::new());
        for section in file.sections() {
            let (to, places, fill) = match section.kind() {
                SectionKind::Text => (&mut code, &mut code_places, PADDING),
                SectionKind::ReadOnlyData | SectionKind::ReadOnlyString => {
                    (&mut constants, &mut constant_places, 0)
                }
                _ => continue,
            };
            let data = section.data()?;
            let align = usize::try_from(section.align().clamp(1, 64)).unwrap_or(1).next_power_of_two();
            to.resize(to.len().next_multiple_of(align), fill);
            if to.len().saturating_add(data.len()) > bytes_max as usize {
                return Err(ObjectError::TooLong(bytes_max));
            }
            places.insert(section.index(), to.len() as u64);
            to.extend_from_slice(data);
        }
        Ok(Self { code, constants, code_places, constant_places })
    }

    /// Returns the offset of a section in the code.
    pub(crate) fn code_place(&self, section: SectionIndex) -> Option<u64> {
        self.code_places.get(&section).copied()
    }
}

/// Places the sections of an object file in an image, and resolves the distances between them. The image has at most
/// `bytes_max` bytes of code, and as many of constants: sections of a file can overlap, and take more than the file.
///
/// # Errors
/// [`ObjectError`].
pub fn link(bytes: &[u8], lowered: &Lowered, bytes_max: u32) -> Result<LinkedObject, ObjectError> {
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    if file.architecture() != Architecture::X86_64 || file.kind() != ObjectKind::Relocatable {
        return Err(ObjectError::Machine);
    }
    let SectionPlaces { mut code, constants, code_places, constant_places } =
        SectionPlaces::of(&file, bytes_max)?;
    let constants_start = (code.len() as u64).next_multiple_of(CONSTANTS_ALIGNMENT.into());
    let place = |section: SectionIndex| -> Option<u64> {
        let in_constants = constant_places.get(&section).map(|offset| constants_start + offset);
        code_places.get(&section).copied().or(in_constants)
    };
    // The image addresses of symbols, by name.
    let mut functions: BTreeMap<u32, u64> = BTreeMap::new();
    for symbol in file.symbols() {
        let number = symbol.name().ok().and_then(|name| name.strip_prefix('f')?.parse().ok());
        let start = symbol.section_index().and_then(|section| code_places.get(&section));
        if let (Some(number), Some(start)) = (number, start) {
            functions.insert(number, start.saturating_add(symbol.address()));
        }
    }
    let address = |target: RelocationTarget| -> Option<i64> {
        let RelocationTarget::Symbol(index) = target else { return None };
        let symbol = file.symbol_by_index(index).ok()?;
        match symbol.section_index() {
            Some(section) => i64::try_from(place(section)?.checked_add(symbol.address())?).ok(),
            None => {
                let thunk: i64 = symbol.name().ok()?.strip_prefix('h')?.parse::<u32>().ok()?.into();
                Some(-i64::from(THUNK_BYTES) * (thunk + 1))
            }
        }
    };
    for section in file.sections() {
        let Some(start) = code_places.get(&section.index()) else { continue };
        for (offset, relocation) in section.relocations() {
            let at = start.saturating_add(offset);
            let failed = ObjectError::Relocation(at);
            let (RelocationFlags::Elf { r_type: R_X86_64_PC32 | R_X86_64_PLT32 }, Some(target)) =
                (relocation.flags(), address(relocation.target()))
            else {
                return Err(failed);
            };
            let distance = i64::try_from(at)
                .ok()
                .and_then(|at| target.checked_add(relocation.addend())?.checked_sub(at))
                .and_then(|distance| i32::try_from(distance).ok());
            let field = usize::try_from(at).ok().and_then(|at| code.get_mut(at..at.checked_add(4)?));
            let (Some(distance), Some(field)) = (distance, field) else { return Err(failed) };
            field.copy_from_slice(&distance.to_le_bytes());
        }
    }
    let mut placed = Vec::new();
    for (number, stack_arguments) in (lowered.imported..).zip(&lowered.stack_arguments) {
        let offset = functions.get(&number).and_then(|offset| u32::try_from(*offset).ok());
        let offset = offset.ok_or(ObjectError::Function(number))?;
        placed.push((number, ImageFunction { offset, stack_arguments: *stack_arguments }));
    }
    placed.sort_unstable_by_key(|(_, function)| function.offset);
    let mut indices = vec![0; placed.len()];
    for (index, (number, _)) in (0..).zip(&placed) {
        indices[(number - lowered.imported) as usize] = index;
    }
    let functions = placed.into_iter().map(|(_, function)| function).collect();
    Ok(LinkedObject { image: CodeImage { code, constants, functions }, functions: indices })
}
