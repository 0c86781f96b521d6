//! Arguments that are texts.

use super::text::{shift_word, unquote};
use super::{ArgumentContext, ArgumentFault, ArgumentValue};

/// A string of any bytes: one word, whose quotes and backslashes are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ByteString(pub Vec<u8>);

impl ArgumentValue for ByteString {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        string(text).map(Self)
    }

    fn placeholder() -> Self {
        Self(Vec::new())
    }
}

/// A string as [`ByteString`]. Bytes that are not UTF-8 are replaced.
impl ArgumentValue for String {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        string(text).map(|bytes| Self::from_utf8_lossy(&bytes).into_owned())
    }

    fn placeholder() -> Self {
        Self::new()
    }
}

fn string(text: &str) -> Result<Vec<u8>, ArgumentFault> {
    let (word, rest) = shift_word(text);
    if word.is_empty() || !rest.is_empty() {
        return Err(ArgumentFault::Type("string"));
    }
    Ok(unquote(word))
}

/// The whole text of an argument, with its quotes, for elements that have a language of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawArgument(pub String);

impl ArgumentValue for RawArgument {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        Ok(Self(text.to_owned()))
    }

    fn placeholder() -> Self {
        Self(String::new())
    }
}

/// A word: printable ASCII characters without spaces, quotes, backslashes and commas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WordArgument(pub String);

impl ArgumentValue for WordArgument {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let bytes = string(text)?;
        let is_word = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\,".contains(byte);
        if bytes.is_empty() || !bytes.iter().all(is_word) {
            return Err(ArgumentFault::Type("word"));
        }
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn placeholder() -> Self {
        Self(String::new())
    }
}

/// The name of a file, with single slashes. A `~` is not replaced, as the core knows no home folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileName(pub String);

impl ArgumentValue for FileName {
    fn parse_argument(text: &str, _: &ArgumentContext<'_>) -> Result<Self, ArgumentFault> {
        let bytes = string(text)?;
        let name = String::from_utf8(bytes).ok().filter(|name| !name.is_empty() && !name.contains('\0'));
        let name = name.ok_or(ArgumentFault::Type("filename"))?;
        let mut single = String::with_capacity(name.len());
        for part in name.split_inclusive('/') {
            if part != "/" || !single.ends_with('/') {
                single.push_str(part);
            }
        }
        Ok(Self(single))
    }

    fn placeholder() -> Self {
        Self(String::new())
    }
}
