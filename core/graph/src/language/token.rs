//! The tokens of the language.

/// A kind of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LanguageTokenKind {
    /// The name of an element or class, or a number.
    Identifier,
    /// `$name`.
    Variable,
    /// A word of [`KEYWORDS`].
    Keyword(Keyword),
    /// A sequence of [`SYMBOLS`].
    Symbol(Symbol),
    /// A character that begins no token.
    Unknown,
    End,
}

/// A reserved word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyword {
    ElementClass,
    Require,
    Provide,
    Define,
}

/// A sequence of other characters than letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Arrow,
    DoubleArrow,
    DoubleColon,
    DoubleBar,
    Ellipsis,
    Semicolon,
    Comma,
    Bar,
    Dash,
    OpenParenthesis,
    CloseParenthesis,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
}

/// The reserved words.
pub(crate) const KEYWORDS: &[(&str, Keyword)] = &[
    ("elementclass", Keyword::ElementClass),
    ("require", Keyword::Require),
    ("provide", Keyword::Provide),
    ("define", Keyword::Define),
];

/// The sequences, longer ones before those that they begin with.
pub(crate) const SYMBOLS: &[(&str, Symbol)] = &[
    ("...", Symbol::Ellipsis),
    ("->", Symbol::Arrow),
    ("=>", Symbol::DoubleArrow),
    ("::", Symbol::DoubleColon),
    ("||", Symbol::DoubleBar),
    (";", Symbol::Semicolon),
    (",", Symbol::Comma),
    ("|", Symbol::Bar),
    ("-", Symbol::Dash),
    ("(", Symbol::OpenParenthesis),
    (")", Symbol::CloseParenthesis),
    ("[", Symbol::OpenBracket),
    ("]", Symbol::CloseBracket),
    ("{", Symbol::OpenBrace),
    ("}", Symbol::CloseBrace),
];

impl Symbol {
    /// Returns the characters of the symbol.
    pub fn text(self) -> &'static str {
        SYMBOLS.iter().find(|(_, symbol)| *symbol == self).map_or("", |(text, _)| text)
    }
}

/// A token, as the range of its bytes in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LanguageToken {
    pub kind: LanguageTokenKind,
    pub start: usize,
    pub end: usize,
}

impl LanguageToken {
    pub fn is(self, symbol: Symbol) -> bool {
        self.kind == LanguageTokenKind::Symbol(symbol)
    }

    pub fn is_arrow(self) -> bool {
        self.is(Symbol::Arrow) || self.is(Symbol::DoubleArrow)
    }
}

/// Returns true for the bytes of identifiers, without the slash.
pub(crate) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@')
}

/// Returns true for the bytes of the names of variables.
pub(crate) fn is_variable_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns true for the name of a variable, without `$`.
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_variable_byte)
}
