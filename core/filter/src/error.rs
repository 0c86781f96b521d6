//! Faults of filter texts.

/// A text that is no filter, and the place in it that says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {fault}")]
pub struct FilterError {
    /// The first byte of the faulty part of the text, counted from 0.
    pub at: usize,
    /// The length of that part in bytes. It is 0 where something is missing.
    pub len: usize,
    /// The fault.
    pub fault: FilterFault,
}

/// The kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// The text is too long.
    #[error("the text has {0} bytes; a filter has at most {max}", max = crate::TEXT_BYTES_MAX)]
    Long(usize),
    /// Parentheses, brackets or operators are nested too deeply.
    #[error("more than {max} levels of parentheses, brackets and `not`; write the filter flatter", max = crate::DEPTH_MAX)]
    Deep,
    /// The filter has too many tests or values.
    #[error("the filter has too many tests; write a shorter one, or several")]
    Complex,
    /// The program does not fit into the machine.
    #[error("the filter compiles to {0} instructions; {max} are the limit", max = weir_demux::INSTRUCTIONS_MAX)]
    Instructions(usize),
    /// No packet of the link type can pass.
    #[error("the filter selects no packet of this link type")]
    Nothing,
    /// A character that the language does not use.
    #[error("syntax error: `{}` cannot be in a filter", .0.escape_debug())]
    Character(char),
    /// Another word or sign than the language allows at this place.
    #[error("syntax error: expected {expected}, found {found}")]
    Expected {
        /// The words or signs that can stand there.
        expected: &'static str,
        /// The text there, shortened, or "the end".
        found: String,
    },
    /// A number that is none, or too large.
    #[error("`{text}` is not a number: {why}")]
    Number {
        /// The text.
        text: String,
        /// The reason.
        why: &'static str,
    },
    /// A number over its limit.
    #[error("{what} {value} is over the limit {max}")]
    Limit {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The greatest value of the field.
        max: u32,
    },
    /// An address that is none.
    #[error("`{text}` is not {what}")]
    Address {
        /// The text.
        text: String,
        /// The kind of address.
        what: &'static str,
    },
    /// Bits of an address outside of its network mask.
    #[error("`{0}` has bits outside of its mask: write zeros there")]
    HostBits(String),
    /// A name that has no known number.
    #[error("`{name}` is not a known {kind}; names are not looked up: write the address or the number")]
    Name {
        /// The name.
        name: String,
        /// The kind of name.
        kind: &'static str,
    },
    /// A name of a port of another protocol.
    #[error("port `{name}` is not one of {protocol}")]
    PortProtocol {
        /// The name.
        name: String,
        /// The protocol that the filter names.
        protocol: &'static str,
    },
    /// Qualifiers that do not go together, or not with what follows.
    #[error("{0}")]
    Qualifier(&'static str),
    /// A part of the language that weir does not have.
    #[error("`{word}` is not supported: {why}")]
    Unsupported {
        /// The word.
        word: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A test that packets of the link type cannot answer.
    #[error("{what} makes no sense for {link} packets")]
    Link {
        /// The test.
        what: &'static str,
        /// The link type or inner protocol.
        link: &'static str,
    },
    /// A division by the constant 0.
    #[error("division by 0")]
    DivisionByZero,
    /// A shift by too many bits.
    #[error("shift by {0} bits; 31 are the limit")]
    Shift(u32),
    /// A load of another width than the machine has.
    #[error("{0} bytes cannot be loaded: write 1, 2 or 4")]
    Width(u32),
}
