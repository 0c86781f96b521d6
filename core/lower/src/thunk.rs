//! Thunks: the functions of the host that machine code can call, by number.

/// A function of the host that machine code can call. Its number is its index in [`Lowered::thunks`](crate::Lowered).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thunk {
    /// A function that the module imports, by its index.
    Import(u32),
    /// A function that replaces an instruction.
    Guest(GuestThunk),
}

/// A function of the host that replaces an instruction. The number of a variant is its index in [`GUEST_THUNKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestThunk {
    /// `memory.size`: returns the size in pages.
    MemorySize,
    /// `memory.grow`: gets a number of pages, and returns the size before, or -1.
    MemoryGrow,
    /// `memory.fill`: gets address, value and length.
    MemoryFill,
    /// `memory.copy`: gets the addresses of destination and source, and the length.
    MemoryCopy,
}

/// A thunk with its type. All parameters are of type i32.
pub(crate) struct GuestThunkDefinition {
    pub(crate) thunk: GuestThunk,
    pub(crate) parameters: usize,
    pub(crate) has_result: bool,
}

const fn define(thunk: GuestThunk, parameters: usize, has_result: bool) -> GuestThunkDefinition {
    GuestThunkDefinition { thunk, parameters, has_result }
}

/// All thunks that replace instructions.
pub(crate) const GUEST_THUNKS: [GuestThunkDefinition; 4] = [
    define(GuestThunk::MemorySize, 0, true),
    define(GuestThunk::MemoryGrow, 1, true),
    define(GuestThunk::MemoryFill, 3, false),
    define(GuestThunk::MemoryCopy, 3, false),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_thunk_is_its_index() {
        for (index, definition) in GUEST_THUNKS.iter().enumerate() {
            assert_eq!(definition.thunk as usize, index);
        }
    }
}
