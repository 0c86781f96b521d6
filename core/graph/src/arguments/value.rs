//! The trait of argument types.

use super::{ArgumentContext, ArgumentFault, NoNames};
use crate::Landmark;

/// A type that an argument can have.
pub trait ArgumentValue: Sized {
    /// Parses the text of an argument, without its keyword and without comments.
    ///
    /// # Errors
    ///
    /// [`ArgumentFault::Type`] if the text is not of this type, or a more precise fault.
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault>;

    /// Returns a value that stands for one that could not be read. It is not used, because the element is not configured.
    fn placeholder() -> Self;
}

/// Reads a value outside of a configuration, such as that of a write handler, as an argument without names.
///
/// # Errors
///
/// Fails with a reason if the text is no value of the type.
pub fn read_value<T: ArgumentValue>(text: &str) -> Result<T, String> {
    let landmark = Landmark { file: "handler".into(), line: 0 };
    let context = ArgumentContext { element: "", class: "", landmark: &landmark, names: &NoNames };
    T::parse_argument(text.trim(), &context).map_err(|fault| fault.to_string())
}

/// A list of values, as the words of one argument.
impl<T: ArgumentValue> ArgumentValue for Vec<T> {
    fn parse_argument(text: &str, context: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        super::text::split_words(text).map(|word| T::parse_argument(word, context)).collect()
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

impl ArgumentValue for bool {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        match text {
            "1" | "true" | "yes" | "t" | "y" => Ok(true),
            "0" | "false" | "no" | "f" | "n" => Ok(false),
            _ => Err(ArgumentFault::Type("boolean")),
        }
    }

    fn placeholder() -> Self {
        false
    }
}
