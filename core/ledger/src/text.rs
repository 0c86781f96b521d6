//! Short texts in ledger entries, for people.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use weir_units::{escaped_prefix, is_plain};

/// A short text that is safe on every terminal: characters that are not [plain](is_plain) are escaped, and a long text
/// is cut off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LedgerText(String);

/// The mark at the end of a text that was cut off.
const CUT: &str = "…";
/// The longest word that is left out at the end of a text that was cut off. A longer word is cut in the middle.
const WORD_BYTES_MAX: usize = 40;

impl LedgerText {
    /// The maximum length in bytes.
    pub const MAX: usize = 320;

    /// Escapes and shortens untrusted text. Of a text that is too long the beginning is kept, up to the end of a word if
    /// possible, with `…` after it.
    pub fn new(text: &str) -> Self {
        let mut text = escaped_prefix(text, Self::MAX + 1);
        if text.len() > Self::MAX {
            let bytes_max = Self::MAX - CUT.len();
            let at_char = (0..=bytes_max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let at_word = text.get(..at_char).and_then(|text| text.rfind(' '));
            text.truncate(at_word.filter(|at| at_char - at <= WORD_BYTES_MAX).unwrap_or(at_char));
            text.push_str(CUT);
        }
        Self(text)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LedgerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for LedgerText {
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
    fn a_text_is_short_and_plain_and_is_read_again() {
        for (given, taken) in [("a\nb", "a\\nb"), ("é", "é"), ("\u{202e}x", "\\u{202e}x")] {
            assert_eq!(LedgerText::new(given).as_str(), taken);
        }
        for given in
            ["é".repeat(500), "\u{10ffff}".repeat(500), "\u{e0001}".repeat(200), "\u{1f980}".repeat(122)]
        {
            let text = LedgerText::new(&given);
            assert!((310..=LedgerText::MAX).contains(&text.as_str().len()), "{}", text.as_str().len());
            assert!(text.as_str().ends_with('…'));
            assert_eq!(LedgerText::new(text.as_str()), text);
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<LedgerText>(&json).unwrap(), text);
        }
        assert!(serde_json::from_str::<LedgerText>(r#""\n""#).is_err());
        let cut = LedgerText::new(&"seven-7 ".repeat(60));
        assert!(cut.as_str().ends_with(" seven-7…"), "{cut}");
        let whole = "x".repeat(LedgerText::MAX);
        assert_eq!(LedgerText::new(&whole).as_str(), whole);
    }
}
