//! Errors and warnings about configurations.

use super::landmark::SourcePlace;
use super::limits;
use super::token::Symbol;
use crate::arguments::text::TextUnit;
use crate::landmark::Landmark;
use std::fmt;
use std::sync::Arc;

/// A fault of a configuration. Its text is the text of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LanguageFault {
    /// A token that cannot stand at this place.
    #[error("syntax error near '{0}'")]
    Syntax(String),
    /// The file ends inside a statement.
    #[error("syntax error at the end of the file")]
    SyntaxAtEnd,
    /// A bracket or another symbol is missing.
    #[error("expected '{0}'")]
    Expected(&'static str),
    /// The name of a class is missing after `elementclass`.
    #[error("expected element type name")]
    ExpectedClassName,
    /// The class is missing after `::`.
    #[error("missing element type in declaration")]
    MissingClass,
    /// A comma or a bar is missing among the parameters of a compound element.
    #[error("expected ',' or '|'")]
    ExpectedParameterEnd,
    /// A parameter of a compound element has no variable.
    #[error("expected variable")]
    ExpectedVariable,
    /// A comment has no end.
    #[error("comment without its end '*/'")]
    OpenComment,
    /// A quoted string has no end.
    #[error("string without its closing quote {0}")]
    OpenQuote(char),
    /// `\<` has no `>`.
    #[error("data without its closing '>'")]
    OpenData,
    /// A line begins with `#` and is no line directive.
    #[error("unknown preprocessor directive")]
    UnknownDirective,
    /// A port that is no number.
    #[error("syntax error: port number should be integer")]
    PortNotANumber,
    /// A port number is missing.
    #[error("syntax error: expected port number")]
    ExpectedPort,
    /// A port number is too high.
    #[error("port number {0} is over the limit of {max}", max = limits::PORT_MAX)]
    PortTooHigh(String),
    /// A port in front of something that is no element.
    #[error("stranded port ignored")]
    StrandedPort,
    /// A statement contains a connection without an element between two arrows.
    #[error("implicit ports used in the middle of a chain")]
    ImplicitInChain,
    /// The output ports of the last elements of a chain.
    #[error("output ports ignored at end of chain")]
    OutputPortsAtEnd,
    /// The input ports of the first elements of a chain.
    #[error("input ports ignored at start of chain")]
    InputPortsAtStart,
    /// Both sides of a connection take as many ports as the other side has.
    #[error("at most one expandable port allowed per connection")]
    TwoExpandable,
    /// Several outputs and several inputs with `->`.
    #[error("syntax error: many-to-many connections require '=>'")]
    ManyToMany,
    /// The numbers of outputs and inputs differ.
    #[error("connection mismatch: {outputs}{} outputs connected to {inputs}{} inputs", or_more(*.outputs_expand), or_more(*.inputs_expand))]
    Mismatch {
        /// Number of outputs.
        outputs: usize,
        /// True if the outputs can be more.
        outputs_expand: bool,
        /// Number of inputs.
        inputs: usize,
        /// True if the inputs can be more.
        inputs_expand: bool,
    },
    /// A name that is neither an element nor a class.
    #[error("undeclared element '{0}'")]
    Undeclared(String),
    /// A class that the program does not have.
    #[error("unknown element class '{0}'")]
    UnknownClass(String),
    /// An element has the name of a class.
    #[error("class '{0}' used as element name")]
    ClassAsName(String),
    /// Two elements have the same name.
    #[error("redeclaration of element '{0}'")]
    Redeclared(String),
    /// A component of a name consists of digits.
    #[error("element name '{0}' has all-digit component")]
    DigitName(String),
    /// A configuration string after the name of a declared element.
    #[error("configuration string ignored on element reference")]
    ConfigurationOnReference,
    /// `...` of a class that does not exist.
    #[error("cannot extend unknown element class '{0}'")]
    ExtendUnknown(String),
    /// `...` in an anonymous compound element.
    #[error("cannot extend anonymous compound element class")]
    ExtendAnonymous,
    /// `...` is not the last definition.
    #[error("'...' should occur last, after one or more compounds")]
    EllipsisNotLast,
    /// The same variable twice in a scope.
    #[error("parameter '${0}' multiply defined")]
    VariableTwice(String),
    /// The same keyword twice among the parameters.
    #[error("repeated keyword parameter '{0}' in compound element")]
    KeywordTwice(String),
    /// Parameters in the wrong order.
    #[error(
        "compound element parameters out of order; the correct order is '[positional], [keywords], [__REST__]'"
    )]
    ParameterOrder,
    /// `define` without a variable.
    #[error("bad 'define' declaration: not a variable")]
    NotAVariable,
    /// `input` as a destination, or `output` as a source.
    #[error("'{element}' pseudoelement '{}' may only be used as {}", pseudo(*.is_output), pseudo(!*.is_output))]
    PseudoElementUse {
        /// Name of the class or group.
        element: String,
        /// True for `output`.
        is_output: bool,
    },
    /// A gap among the ports of `input` or `output`.
    #[error("'{element}' {} {port} missing", pseudo(*.is_output))]
    PortMissing {
        /// Name of the class or group.
        element: String,
        /// True for an output.
        is_output: bool,
        /// The first missing port.
        port: u32,
    },
    /// A connection to a port that the compound element does not have.
    #[error("'{element}' has no {} {port}", pseudo(*.is_output))]
    NoSuchPort {
        /// Name of the compound element.
        element: String,
        /// True for an output.
        is_output: bool,
        /// The port.
        port: u32,
    },
    /// A port of a compound element without a connection.
    #[error("'{element}' {} {port} unused", pseudo(*.is_output))]
    PortUnused {
        /// Name of the compound element.
        element: String,
        /// True for an output.
        is_output: bool,
        /// The port.
        port: u32,
    },
    /// No definition of a compound element fits its use.
    #[error("no match for '{0}'")]
    NoMatch(String),
    /// A requirement that is not understood.
    #[error("syntax error at requirement")]
    Requirement,
    /// A library inside a compound element.
    #[error("'require library' must be used at file scope")]
    LibraryScope,
    /// A library that cannot be read.
    #[error("library '{name}' not found: {reason}")]
    Library {
        /// The name in the requirement.
        name: String,
        /// The reason that the caller gave.
        reason: String,
    },
    /// A variable whose value needs the value itself.
    #[error("the value of '${0}' contains '${0}'")]
    VariableInItself(String),
    /// A configuration is no longer one string after substitution.
    #[error("after substitution, '{0}' has unbalanced quotes or parentheses, a comment, or a new variable")]
    BrokenSubstitution(String),
    /// `provide` has no effect.
    #[error("'provide' has no effect")]
    Provide,
    /// The text is not UTF-8.
    #[error("bytes that are not UTF-8 were replaced")]
    NotUtf8,
    /// The archive cannot be read.
    #[error("bad archive: {0}")]
    Archive(ArchiveFault),
    /// A limit of [`limits`].
    #[error("{what} over the limit of {max}")]
    Limit {
        /// Description of the limited amount.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}

/// A fault of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveFault {
    /// A member's header does not end as headers do.
    #[error("missing header magic number")]
    Magic,
    /// A member is longer than the archive.
    #[error("truncated archive")]
    Truncated,
    /// A number of a header is no number.
    #[error("bad number in header")]
    Number,
    /// A long name is missing.
    #[error("bad long name")]
    LongName,
    /// There is no member with the configuration.
    #[error("no member 'config'")]
    NoConfiguration,
}

fn or_more(expands: bool) -> &'static str {
    if expands { " or more" } else { "" }
}

fn pseudo(is_output: bool) -> &'static str {
    if is_output { "output" } else { "input" }
}

impl LanguageFault {
    /// Returns the fault of a unit without an end.
    pub(crate) fn open(unit: TextUnit) -> Self {
        match unit {
            TextUnit::Single => Self::OpenQuote('\''),
            TextUnit::Double => Self::OpenQuote('"'),
            TextUnit::Data => Self::OpenData,
            _ => Self::OpenComment,
        }
    }

    pub(crate) fn expected(symbol: Symbol) -> Self {
        Self::Expected(symbol.text())
    }
}

/// A further place or fact that belongs to an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LanguageNote {
    /// The place, if the note has one of its own.
    pub landmark: Landmark,
    /// The text.
    pub text: String,
}

/// An error or a warning, with its place.
#[derive(Clone, Debug)]
pub struct LanguageError {
    /// File and line, with regard to line directives.
    pub landmark: Landmark,
    /// The column in characters, from 1.
    pub column: u32,
    /// The line's text, which may contain control characters. Empty if there is none.
    pub line_text: String,
    /// The fault.
    pub fault: LanguageFault,
    /// The existing name that is most similar to an unknown name.
    pub nearest: Option<String>,
    /// Further places.
    pub notes: Vec<LanguageNote>,
}

impl LanguageError {
    pub(crate) fn new(place: SourcePlace, fault: LanguageFault) -> Self {
        let SourcePlace { landmark, column, line_text } = place;
        Self { landmark, column, line_text, fault, nearest: None, notes: Vec::new() }
    }

    /// Returns an error about a whole file.
    pub(crate) fn of_file(file: Arc<str>, fault: LanguageFault) -> Self {
        let landmark = Landmark { file, line: 1 };
        Self::new(SourcePlace { landmark, column: 1, line_text: String::new() }, fault)
    }
}

impl fmt::Display for LanguageError {
    /// Writes `FILE:LINE: text`, and each note in a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.landmark, self.fault)?;
        for note in &self.notes {
            write!(f, "\n{}:   {}", note.landmark, note.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for LanguageError {}

/// All errors of a configuration, in the order in which they were found, and its warnings.
#[derive(Clone, Debug, Default)]
pub struct LanguageErrors {
    /// The errors.
    pub errors: Vec<LanguageError>,
    /// The warnings.
    pub warnings: Vec<LanguageError>,
    /// The errors beyond [`limits::ERRORS_MAX`], which were only counted.
    pub uncollected: usize,
}

impl fmt::Display for LanguageErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        match self.uncollected {
            0 => Ok(()),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for LanguageErrors {}
