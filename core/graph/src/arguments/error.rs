//! Errors about arguments.

use crate::landmark::Landmark;
use std::fmt;

/// A fault of an argument. Its text is the text of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// A required argument is missing.
    #[error("required argument missing")]
    Missing,
    /// There are more arguments than the element has.
    #[error("too many arguments")]
    TooMany,
    /// The element has no argument with this keyword.
    #[error("unknown argument")]
    Unknown,
    /// The text is not of the argument's type.
    #[error("parse error: expected {0}")]
    Type(&'static str),
    /// A number is too large or too small.
    #[error("out of range, bound {0}")]
    OutOfRange(i128),
    /// There is no element with this name.
    #[error("does not name an element")]
    NoElement,
    /// The annotation does not have the size that the element needs, or ends after the last byte.
    #[error("expected an annotation of {0} bytes")]
    AnnotationSize(usize),
    /// A fault that the element found.
    #[error("{0}")]
    Other(String),
}

/// An error about an argument of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// The name of the argument; empty if the error is about all arguments.
    pub argument: String,
    /// The fault.
    pub fault: ArgumentFault,
    /// The keyword that is most similar to an unknown one.
    pub nearest: Option<String>,
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.argument.is_empty() {
            write!(f, "{}: ", self.argument)?;
        }
        write!(f, "{}", self.fault)?;
        match &self.nearest {
            Some(nearest) => write!(f, " (did you mean {nearest}?)"),
            None => Ok(()),
        }
    }
}

/// All errors about the arguments of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentErrors {
    /// The element's name.
    pub element: String,
    /// The element's class.
    pub class: String,
    /// The place of its declaration.
    pub landmark: Landmark,
    /// The errors, at least one.
    pub errors: Vec<ArgumentError>,
}

impl fmt::Display for ArgumentErrors {
    /// Writes a line with the element as Click does, and a line for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: While configuring '{} :: {}':", self.landmark, self.element, self.class)?;
        for error in &self.errors {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ArgumentErrors {}
