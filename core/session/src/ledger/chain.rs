//! Lines, and how each holds the one before it.

use super::{Digest, Entry};
use serde::{Deserialize, Serialize};

/// The most bytes of a line, with its end. No entry needs more.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// What stands between a line's content and its hash.
const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
const HASH_DIGITS: usize = 64;

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    prev: Digest,
}

#[derive(Deserialize)]
struct OwnedBody {
    #[serde(flatten)]
    entry: Entry,
    prev: Digest,
}

/// An entry as a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The line, with its end.
    pub line: Vec<u8>,
    /// Its hash.
    pub hash: Digest,
}

/// A line as an entry. Its own hash is right; whether it follows the line before is for the [`super::Verifier`] to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub entry: Entry,
    /// The hash of the line before, as it says.
    pub prev: Digest,
    /// Its own.
    pub hash: Digest,
}

/// Why bytes are no line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It does not end with a hash.
    #[error("it does not end with a hash")]
    NoHash,
    /// The hash is not that of the line.
    #[error("its hash is not that of its bytes")]
    Hash,
    /// The hash is right, and the content not as weir writes it: another field, another order, a space.
    #[error("its hash is right, but it is not as weir writes a line")]
    Foreign,
}

/// Writes an entry as the line after the one with hash `prev`.
pub fn seal(entry: &Entry, prev: Digest) -> Sealed {
    let mut line = body(entry, prev);
    let hash = Digest::of(&line);
    line.extend_from_slice(BEFORE_HASH);
    line.extend_from_slice(hash.to_string().as_bytes());
    line.extend_from_slice(AFTER_HASH);
    line.push(b'\n');
    Sealed { line, hash }
}

/// Reads a line, without its end.
///
/// # Errors
/// See [`LineError`]. Any bytes may be given.
pub fn unseal(line: &[u8]) -> Result<Line, LineError> {
    let line = line.strip_suffix(AFTER_HASH).ok_or(LineError::NoHash)?;
    let (content, digits) = line
        .len()
        .checked_sub(HASH_DIGITS)
        .and_then(|at| line.split_at_checked(at))
        .ok_or(LineError::NoHash)?;
    let content = content.strip_suffix(BEFORE_HASH).ok_or(LineError::NoHash)?;
    let said: Option<Digest> = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    let hash = Digest::of(content);
    if said.ok_or(LineError::NoHash)? != hash {
        return Err(LineError::Hash);
    }
    let text = [content, b"}"].concat();
    let OwnedBody { entry, prev } = serde_json::from_slice(&text).map_err(|_| LineError::Foreign)?;
    // One entry has one line: what jq or a person reads in it cannot differ from what weir does.
    if body(&entry, prev) != content || entry.end < entry.begin {
        return Err(LineError::Foreign);
    }
    Ok(Line { entry, prev, hash })
}

/// The content of a line: the JSON object without its closing brace.
fn body(entry: &Entry, prev: Digest) -> Vec<u8> {
    // Writing into memory cannot fail, and all keys are texts. Were it to fail, the line would be empty, and every reader would see that.
    let mut content = serde_json::to_vec(&Body { entry, prev }).unwrap_or_default();
    content.pop();
    content
}
