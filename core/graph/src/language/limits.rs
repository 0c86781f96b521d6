//! The limits of the language. Every loop, table and recursion that a configuration can drive has one.

/// The longest text of a configuration and of each library, in bytes.
pub const SOURCE_BYTES_MAX: usize = 16 << 20;
/// The deepest nesting of braces and groups, as in Click.
pub const NESTING_MAX: usize = 50;
/// The deepest nesting of compound elements whose classes use each other.
pub const EXPANSION_DEPTH_MAX: usize = 100;
/// The most elements after expansion. Each compound element counts, too.
pub const FLAT_ELEMENTS_MAX: usize = 1_000_000;
/// The most connections, before expansion and after it.
pub const FLAT_CONNECTIONS_MAX: usize = 4_000_000;
/// The most parameters of a definition.
pub const PARAMETERS_MAX: usize = 1000;
/// The most comparisons of arguments with parameters, over all uses of compound elements.
pub const CHOICE_STEPS_MAX: usize = 100_000_000;
/// The most steps through the inputs and outputs of compound elements, over all connections.
pub const CONNECTION_STEPS_MAX: usize = 10_000_000;
/// The most bytes of names and of configurations after expansion.
pub const FLAT_TEXT_BYTES_MAX: usize = 64 << 20;
/// The highest port number. The engine keeps port numbers in 16 bits, and 65,535 stands for packets that are discarded.
pub const PORT_MAX: u32 = 65_534;
/// The deepest nesting of variables whose values use each other.
pub const VARIABLE_DEPTH_MAX: usize = 100;
/// The most library files.
pub const LIBRARIES_MAX: usize = 100;
/// The most errors, and the most warnings, that are collected.
pub const ERRORS_MAX: usize = 1000;
/// The most errors that name the nearest existing name, which takes a search over all names.
pub const SUGGESTIONS_MAX: usize = 20;
