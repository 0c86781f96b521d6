//! Lines, and how each holds the one before it.

use super::{Digest, EntryRef, LedgerEntry};
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
    entry: EntryRef<'a>,
    prev: Digest,
}

#[derive(Deserialize)]
struct OwnedBody {
    #[serde(flatten)]
    entry: LedgerEntry,
    prev: Digest,
}

/// A line as an entry. Its own hash is right; whether it follows the line before is for the [`super::Verifier`] to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    /// What it says.
    pub entry: LedgerEntry,
    /// The hash of the line before, as it says.
    pub prev: Digest,
    /// Its own.
    pub hash: Digest,
}

/// Why bytes are no line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerLineError {
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

/// Writes an entry as the line after the one with hash `prev`, with its end, behind whatever `lines` holds. Returns the line's own hash.
pub fn seal(entry: EntryRef<'_>, prev: Digest, lines: &mut Vec<u8>) -> Digest {
    let begin = lines.len();
    write_body(entry, prev, lines);
    let hash = Digest::of(lines.get(begin..).unwrap_or_default());
    lines.extend_from_slice(BEFORE_HASH);
    lines.extend_from_slice(hash.digits().as_str().as_bytes());
    lines.extend_from_slice(AFTER_HASH);
    lines.push(b'\n');
    hash
}

/// Reads a line, without its end.
///
/// # Errors
/// See [`LedgerLineError`]. Any bytes may be given.
pub fn unseal(line: &[u8]) -> Result<LedgerLine, LedgerLineError> {
    let line = line.strip_suffix(AFTER_HASH).ok_or(LedgerLineError::NoHash)?;
    let (content, digits) = line
        .len()
        .checked_sub(HASH_DIGITS)
        .and_then(|at| line.split_at_checked(at))
        .ok_or(LedgerLineError::NoHash)?;
    let content = content.strip_suffix(BEFORE_HASH).ok_or(LedgerLineError::NoHash)?;
    let said: Option<Digest> = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    let hash = Digest::of(content);
    if said.ok_or(LedgerLineError::NoHash)? != hash {
        return Err(LedgerLineError::Hash);
    }
    let text = [content, b"}"].concat();
    let OwnedBody { entry, prev } = serde_json::from_slice(&text).map_err(|_| LedgerLineError::Foreign)?;
    // One entry has one line: what jq or a person reads in it cannot differ from what weir does.
    let mut written = Vec::with_capacity(content.len() + 1);
    write_body(EntryRef::from(&entry), prev, &mut written);
    if written != content || entry.end < entry.begin {
        return Err(LedgerLineError::Foreign);
    }
    Ok(LedgerLine { entry, prev, hash })
}

/// Writes the content of a line: the JSON object without its closing brace.
fn write_body(entry: EntryRef<'_>, prev: Digest, lines: &mut Vec<u8>) {
    let begin = lines.len();
    // Writing into memory cannot fail, and all keys are texts. Were it to fail, the line would be empty, and every reader would see that.
    match serde_json::to_writer(&mut *lines, &Body { entry, prev }) {
        Ok(()) => _ = lines.pop(),
        Err(_) => lines.truncate(begin),
    }
}
