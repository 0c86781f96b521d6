//! Short texts that people read.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use weir_units::{is_plain, shown};

/// A short text that shows as itself in every terminal: what is not plain was escaped, what is too long was cut off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Text(String);

impl Text {
    /// The most bytes of a text.
    pub const MAX: usize = 200;

    /// Takes anybody's text.
    pub fn new(text: &str) -> Self {
        let mut text = shown(text);
        let end = (0..=Self::MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        Self(text)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > Self::MAX || !text.chars().all(is_plain) {
            return Err(serde::de::Error::custom("no text"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_short_and_plain_and_stays_what_it_is() {
        for (given, taken) in [("a\nb", "a\\nb"), ("é", "é"), ("\u{202e}x", "\\u{202e}x")] {
            assert_eq!(Text::new(given).as_str(), taken);
        }
        for given in
            ["é".repeat(500), "\u{10ffff}".repeat(500), "\u{e0001}".repeat(200), "\u{1f980}".repeat(61)]
        {
            let text = Text::new(&given);
            assert!((190..=Text::MAX).contains(&text.as_str().len()), "{}", text.as_str().len());
            assert_eq!(Text::new(text.as_str()), text);
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), text);
        }
        assert!(serde_json::from_str::<Text>(r#""\n""#).is_err());
    }
}
