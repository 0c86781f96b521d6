//! Encoding and parsing of a ledger's lines. Each line contains the hash of the line before it.

use super::{Digest, EntryRef, LedgerEntry};
use serde::{Deserialize, Serialize};

/// The maximum length of a line in bytes, with its line feed. No entry needs more.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// The text between a line's content and its hash.
const BEFORE_HASH: &[u8] = b",\"hash\":\"";
const AFTER_HASH: &[u8] = b"\"}";
const HASH_DIGITS: usize = 64;

/// The content of a line: the entry, and the hash of the line before.
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

/// A parsed line of a ledger, whose own hash was checked. [`super::Verifier`] checks that the line follows the line
/// before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    /// The entry.
    pub entry: LedgerEntry,
    /// The hash of the line before, as this line states it.
    pub prev: Digest,
    /// The hash of this line.
    pub hash: Digest,
}

/// The reason why bytes are not a line of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerLineError {
    /// The line does not end with a hash.
    #[error("it does not end with a hash")]
    NoHash,
    /// The hash does not match the line.
    #[error("its hash does not match its bytes")]
    Hash,
    /// The hash matches, but weir would write the entry differently: other fields, another order, or no space.
    #[error("its hash is right, but weir would write its entry differently")]
    Foreign,
}

/// Appends an entry to `lines` as a line. `prev` is the hash of the line before. Returns the hash of the new line.
pub fn append_line(entry: EntryRef<'_>, prev: Digest, lines: &mut Vec<u8>) -> Digest {
    let begin = lines.len();
    write_body(entry, prev, lines);
    let hash = Digest::of_bytes(lines.get(begin..).unwrap_or_default());
    lines.extend_from_slice(BEFORE_HASH);
    lines.extend_from_slice(hash.digits().as_str().as_bytes());
    lines.extend_from_slice(AFTER_HASH);
    lines.push(b'\n');
    hash
}

/// Parses a line, without its line feed, and checks the line's own hash.
///
/// # Errors
/// Fails with [`LedgerLineError`] for any bytes that are not a line of a ledger.
pub fn parse_line(line: &[u8]) -> Result<LedgerLine, LedgerLineError> {
    let line = line.strip_suffix(AFTER_HASH).ok_or(LedgerLineError::NoHash)?;
    let (content, digits) = line
        .len()
        .checked_sub(HASH_DIGITS)
        .and_then(|length| line.split_at_checked(length))
        .ok_or(LedgerLineError::NoHash)?;
    let content = content.strip_suffix(BEFORE_HASH).ok_or(LedgerLineError::NoHash)?;
    let stated: Option<Digest> = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    let hash = Digest::of_bytes(content);
    if stated.ok_or(LedgerLineError::NoHash)? != hash {
        return Err(LedgerLineError::Hash);
    }
    let text = [content, b"}"].concat();
    let OwnedBody { entry, prev } = serde_json::from_slice(&text).map_err(|_| LedgerLineError::Foreign)?;
    // Each entry has only one text, so that people and programs such as jq read exactly what weir reads.
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
    // Writing into memory cannot fail, and all keys are texts. An error would leave an empty line, which every reader
    // would detect.
    match serde_json::to_writer(&mut *lines, &Body { entry, prev }) {
        Ok(()) => _ = lines.pop(),
        Err(_) => lines.truncate(begin),
    }
}
