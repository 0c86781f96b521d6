//! The text in which a node stores the revocations of a root.
//!
//! ```text
//! weir revocations 1
//! root weir-key:…
//! sequence 7
//! taken 9f86d081884c7d65…
//! all-before 2026-01-01T00:00:00Z
//! weir-id:…@2027-01-01T00:00:00Z
//! delegator weir-key:… weir-id:…@2027-06-01T00:00:00Z weir-id:…
//! sequence 1
//! weir-id:…@2027-01-01T00:00:00Z
//! digest 60303ae22b998861…
//! ```
//!
//! The entries of the root come first, then those of each delegator. The entries of one signer are:
//!
//! - `sequence`: the highest sequence number of the signer's lists;
//! - `taken`, for each *complete list*: one of the latest lists whose entries are all in the state. Its value is the
//!   SHA-256 of the list's body; in version 1, of the whole list. When the list is offered again, the node recognises it by
//!   this digest in its header, and does not read its body;
//! - `all-before`: the signer has revoked every block that it signed before this time;
//! - a line for each revoked block: the block's identifier, with the time at which the block expires.
//!
//! A line `delegator` has the delegator's key, the identifier of the block that gave the delegator its right, with the time
//! at which this block expires, and the identifiers of the blocks before it, root first. The line `digest` has the SHA-256 of all lines before it, which detects damage. A
//! signature is not needed, because the folder belongs to the node.

use super::RootRevocations;
use super::root::{COMPLETE_LISTS_MAX, Delegator, SignerEntries};
use crate::credential::{BLOCKS_MAX, DatedId, DelegationId};
use crate::digest::Sha256Digest;
use crate::grant::UnixSecond;
use crate::key::PublicKey;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The longest text of a state, in bytes.
pub const STATE_BYTES_MAX: usize = 16 << 20;

const FIRST_LINE: &str = "weir revocations 1";

/// The reason why a text is not the stored state of a root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// A text that is not a stored state, or one of a later version.
    #[error("the text is no stored state of revocations, which begins with `{FIRST_LINE}`")]
    Other,
    /// A text that was cut off or changed.
    #[error("the stored revocations are cut off or damaged")]
    Damaged,
    /// A line with an illegal content.
    #[error("line {0} of the stored revocations is not legal")]
    Line(usize),
}

impl RootRevocations {
    /// Returns the state as text.
    pub fn to_text(&self, root: &PublicKey) -> String {
        // Writing to a string cannot fail.
        let mut text = format!("{FIRST_LINE}\nroot {root}\n");
        write_entries(&mut text, &self.own);
        for (own_block, Delegator { holder, ancestors, until, entries }) in &self.delegators {
            let _ = write!(text, "delegator {holder} {}", DatedId { id: *own_block, expires: Some(*until) });
            ancestors.iter().for_each(|id| _ = write!(text, " {id}"));
            text.push('\n');
            write_entries(&mut text, entries);
        }
        let _ = writeln!(text, "digest {}", Sha256Digest(Sha256::digest(&text).into()));
        text
    }

    /// Reads the text of [`RootRevocations::to_text`], and returns the root and its state.
    ///
    /// # Errors
    /// Fails if the text is damaged, or another kind of text.
    pub fn from_text(text: &str) -> Result<(PublicKey, Self), StateError> {
        let body = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix('\n'));
        let (before, digest) = body
            .ok_or(StateError::Other)
            .and_then(|_| text.trim_end_matches('\n').rsplit_once("\ndigest ").ok_or(StateError::Damaged))?;
        let hashed = text.get(..=before.len()).ok_or(StateError::Damaged)?;
        if digest.parse() != Ok(Sha256Digest(Sha256::digest(hashed).into())) {
            return Err(StateError::Damaged);
        }
        let mut lines = hashed.lines().zip(1..).skip(1);
        let root = lines.next().and_then(|(line, _)| line.strip_prefix("root ")?.parse().ok());
        let root = root.ok_or(StateError::Line(2))?;
        let mut state = Self::default();
        let mut current: Option<DelegationId> = None;
        for (line, number) in lines {
            let wrong = StateError::Line(number);
            if let Some(line) = line.strip_prefix("delegator ") {
                let (own_block, delegator) = read_delegator(line).ok_or(wrong)?;
                state.delegators.insert(own_block, delegator);
                current = Some(own_block);
                continue;
            }
            let entries = match current {
                None => &mut state.own,
                Some(own_block) => &mut state.delegators.get_mut(&own_block).ok_or(wrong.clone())?.entries,
            };
            read_line(entries, line).ok_or(wrong)?;
        }
        Ok((root, state))
    }
}

fn write_entries(text: &mut String, SignerEntries { set, sequence, complete_lists }: &SignerEntries) {
    let _ = writeln!(text, "sequence {sequence}");
    for digest in complete_lists {
        let _ = writeln!(text, "taken {}", Sha256Digest(*digest));
    }
    if let Some(time) = set.all_before() {
        let _ = writeln!(text, "all-before {time}");
    }
    for entry in set.iter() {
        let _ = writeln!(text, "{entry}");
    }
}

fn read_delegator(line: &str) -> Option<(DelegationId, Delegator)> {
    let mut words = line.split(' ');
    let holder = words.next()?.parse().ok()?;
    let DatedId { id, expires } = words.next()?.parse().ok()?;
    let until: UnixSecond = expires?;
    let ancestors: Vec<DelegationId> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let fits = ancestors.len() < BLOCKS_MAX;
    fits.then(|| (id, Delegator { holder, ancestors, until, entries: SignerEntries::default() }))
}

fn read_line(entries: &mut SignerEntries, line: &str) -> Option<()> {
    match line.split_once(' ') {
        Some(("sequence", number)) => entries.sequence = number.parse().ok()?,
        Some(("taken", digest)) if entries.complete_lists.len() < COMPLETE_LISTS_MAX => {
            entries.complete_lists.push_back(digest.parse::<Sha256Digest>().ok()?.0);
        }
        Some(("all-before", time)) => _ = entries.set.revoke_all_before(time.parse().ok()?),
        Some(_) => return None,
        None => _ = entries.set.insert(line.parse().ok()?),
    }
    Some(())
}
