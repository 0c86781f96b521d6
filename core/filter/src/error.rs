//! Errors of filter texts.

/// An invalid filter text: the fault and its place in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {fault}")]
pub struct FilterError {
    /// The offset of the faulty part of the text, in bytes from 0.
    pub at: usize,
    /// The length of the faulty part in bytes; 0 if something is missing at the offset.
    pub len: usize,
    /// The fault.
    pub fault: FilterFault,
}

/// A fault of a filter text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterFault {
    /// The text is too long.
    #[error("the text has {0} bytes; a filter has at most {max}", max = crate::TEXT_BYTES_MAX)]
    TextTooLong(usize),
    /// Parentheses, brackets or operators are nested too deeply.
    #[error("more than {max} levels of parentheses, brackets and `not`; write the filter flatter", max = crate::DEPTH_MAX)]
    TooDeep,
    /// The filter has too many tests or values.
    #[error("the filter has too many tests; write a shorter one, or several")]
    TooComplex,
    /// The filter compiles to more instructions than a program can have.
    #[error("the filter compiles to {0} instructions; {max} are the limit", max = weir_demux::INSTRUCTIONS_MAX)]
    TooManyInstructions(usize),
    /// The filter can select no packet of the link type.
    #[error("the filter selects no packet of this link type")]
    SelectsNothing,
    /// A character that the language does not use.
    #[error("syntax error: `{}` cannot be in a filter", .0.escape_debug())]
    Character(char),
    /// A word or sign that the grammar does not allow at this place.
    #[error("syntax error: expected {expected}, found {found}")]
    Expected {
        /// The words or signs that are allowed at this place.
        expected: &'static str,
        /// The text at this place, shortened, or "the end".
        found: String,
    },
    /// An invalid number, or one that is too large.
    #[error("`{text}` is not a number: {why}")]
    Number {
        /// The faulty text.
        text: String,
        /// The reason, worded as a main clause.
        why: &'static str,
    },
    /// A number that is too large for its use.
    #[error("{what} {value} is over the limit {max}")]
    Limit {
        /// The field or parameter.
        what: &'static str,
        /// The given value.
        value: u32,
        /// The greatest allowed value.
        max: u32,
    },
    /// An invalid address.
    #[error("`{text}` is not {what}")]
    Address {
        /// The faulty text.
        text: String,
        /// The kind of address.
        what: &'static str,
    },
    /// An address with bits outside its network mask.
    #[error("`{0}` has nonzero bits outside of the network mask: write zeros for these bits")]
    HostBits(String),
    /// A name that has no known number.
    #[error("`{name}` is not a known {kind}; names are not looked up: write the address or the number")]
    Name {
        /// The name in the text.
        name: String,
        /// The kind of name.
        kind: &'static str,
    },
    /// The name of a port that belongs to another protocol.
    #[error("port `{name}` is not one of {protocol}")]
    PortProtocol {
        /// The name in the text.
        name: String,
        /// The protocol that the filter names.
        protocol: &'static str,
    },
    /// Qualifiers that cannot be combined with each other or with the operand after them.
    #[error("{0}")]
    Qualifier(&'static str),
    /// A part of the language that weir does not support.
    #[error("`{word}` is not supported: {why}")]
    Unsupported {
        /// The unsupported word.
        word: &'static str,
        /// The reason, worded as a main clause.
        why: &'static str,
    },
    /// A test that does not apply to packets of the link type.
    #[error("{what} does not apply to {link} packets")]
    Link {
        /// The test in words.
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
    /// A load of a width that the machine does not have.
    #[error("{0} bytes cannot be loaded: write 1, 2 or 4")]
    Width(u32),
}
