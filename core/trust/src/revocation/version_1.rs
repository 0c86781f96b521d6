//! Revocation lists of version 1: identifiers without times, and one signature over all lines before it.
//!
//! ```text
//! weir revocation list 1
//! root weir-key:…
//! sequence 7
//! issued 2026-11-21T12:30:00Z
//! weir-id:…
//! signature …
//! ```
//!
//! weir reads lists of version 1 from files and from a node's state folder, and no longer makes them. Their entries have
//! no expiry time, so a node keeps them until a later list states one.

use super::list::RevocationList;
use super::{LIST_IDS_MAX, RevocationError, RevokedSet};
use crate::base32;
use crate::credential::DelegationId;
use crate::grant::UnixSecond;
use crate::key::{PublicKey, Signature, SignatureContext};

const SIGNED: SignatureContext = SignatureContext::new("revocation list");
const FIRST_LINE: &str = "weir revocation list 1";

/// Returns true if a text begins as a list of version 1.
pub(super) fn is_of_version_1(text: &str) -> bool {
    text.lines().next() == Some(FIRST_LINE)
}

/// Reads a list of version 1, and verifies its signature.
pub(super) fn read(text: &str) -> Result<RevocationList, RevocationError> {
    let mut lines = text.lines().zip(1..).skip(1);
    let wrong = |line, wanted| RevocationError::Line { line, wanted };
    let mut value = |line: usize, key: &str, wanted: &'static str| {
        lines.next().and_then(|(text, _)| text.strip_prefix(key)).ok_or(wrong(line, wanted))
    };
    let wanted = "`root` and a public key";
    let root: PublicKey = value(2, "root ", wanted)?.parse().map_err(|_| wrong(2, wanted))?;
    let wanted = "`sequence` and a number";
    let sequence: u64 = value(3, "sequence ", wanted)?.parse().map_err(|_| wrong(3, wanted))?;
    let wanted = "`issued` and a time such as 2026-11-21T12:30:00Z";
    let issued: UnixSecond = value(4, "issued ", wanted)?.parse().map_err(|_| wrong(4, wanted))?;
    let wanted = "an identifier that follows the one before, or `signature` and the signature";
    let mut revoked = RevokedSet::default();
    let mut last: Option<DelegationId> = None;
    let (line, signature) = loop {
        let (text, line) = lines.next().ok_or(wrong(5 + revoked.len(), wanted))?;
        if let Some(signature) = text.strip_prefix("signature ") {
            break (line, signature);
        }
        let id: DelegationId = text.parse().map_err(|_| wrong(line, wanted))?;
        if last.is_some_and(|last| last >= id) || revoked.len() >= LIST_IDS_MAX {
            return Err(wrong(line, wanted));
        }
        last = Some(id);
        revoked.insert(id.into());
    };
    let signature = base32::decode(signature).and_then(|bytes| bytes.try_into().ok());
    let signature = Signature(signature.ok_or(wrong(line, "`signature` and the whole signature"))?);
    let ids: String = revoked.iter().map(|entry| format!("{entry}\n")).collect();
    let signed = format!("{FIRST_LINE}\nroot {root}\nsequence {sequence}\nissued {issued}\n{ids}");
    // Each list has only one text, so a text in another form, or with more text at its end, is refused.
    if text != format!("{signed}signature {}\n", base32::encode(&signature.0)) {
        return Err(RevocationError::Forged(root));
    }
    root.verify(SIGNED, signed.as_bytes(), &signature).map_err(|_| RevocationError::Forged(root))?;
    Ok(RevocationList::of_version_1(root, sequence, issued, revoked, text))
}
