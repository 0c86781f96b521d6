//! Revocation lists: signing, encoding and parsing.
//!
//! ```text
//! weir revocation list 2
//! signer weir-key:…
//! under weir-id:… of weir-key:…
//! sequence 7
//! issued 2026-11-21T12:30:00Z
//! body 110 9f86d081884c7d65…
//! signature …
//! all-before 2026-01-01T00:00:00Z
//! weir-id:…@2027-01-01T00:00:00Z
//! weir-id:…
//! ```
//!
//! The header ends with the signature, which is over all lines before it. `body` is the length of the body in bytes,
//! and its SHA-256. A root's list has no `under`. In the list of a delegator `under` is the identifier of the
//! delegator's own block, and the root of its chain; the list revokes only blocks that were delegated from this block.
//! Each line of the body is an entry: the identifier of a revoked block, with the time at which it expires if that is
//! known. Entries are sorted by identifier. Before them there may be one `all-before`. It revokes every block that the
//! list's signer signed before this time.

use super::{LIST_IDS_MAX, RevocationError, RevokedSet, version_1};
use crate::base32;
use crate::credential::{Credential, DatedId, DelegationId};
use crate::digest::Sha256Digest;
use crate::grant::UnixSecond;
use crate::key::{Identity, PublicKey, Signature, SignatureContext};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::str::FromStr;

/// The longest header, in bytes.
pub const HEADER_BYTES_MAX: usize = 512;
/// The longest text of a list, in bytes: a header, the line of `all-before`, and the most entries with times.
pub const LIST_BYTES_MAX: usize = HEADER_BYTES_MAX + 64 + LIST_IDS_MAX * 62;

const SIGNED: SignatureContext = SignatureContext::new("revocation list header");
pub(super) const FIRST_LINE: &str = "weir revocation list 2";
const ALL_BEFORE: &str = "all-before ";

/// The party that signs a list, with its right to revoke: a root, or the holder of a block of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Issuer {
    root: PublicKey,
    signer: PublicKey,
    own_block: Option<DelegationId>,
}

impl Issuer {
    /// Returns the issuer of a root's lists. A root may revoke every credential that it has signed, and all that were
    /// delegated from these.
    pub fn root(root: PublicKey) -> Self {
        Self { root, signer: root, own_block: None }
    }

    /// Returns the issuer of a delegator's lists: the holder of the block `own_block`, in a chain of `root`. A delegator
    /// may revoke blocks that were delegated from its own block.
    pub fn delegator(root: PublicKey, holder: PublicKey, own_block: DelegationId) -> Self {
        Self { root, signer: holder, own_block: Some(own_block) }
    }

    /// Returns the issuer as which the holder of a credential revokes what the holder has delegated.
    pub fn of_holder(credential: &Credential) -> Option<Self> {
        let block = credential.claimed_blocks().last()?;
        Some(Self::delegator(*credential.claimed_root(), block.holder, block.id))
    }

    /// Returns the root of the chains that the list affects.
    pub fn affected_root(&self) -> &PublicKey {
        &self.root
    }

    /// Returns the key that signs.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// Returns the identifier of the delegator's block; `None` for a root.
    pub fn own_block(&self) -> Option<&DelegationId> {
        self.own_block.as_ref()
    }
}

/// The header of a list. It names the issuer, and the digest by which a node recognises a list that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListHeader {
    issuer: Issuer,
    sequence: u64,
    issued: UnixSecond,
    /// The length and SHA-256 of the body.
    body: (usize, [u8; 32]),
    signature: Signature,
}

impl ListHeader {
    /// Reads the header at the beginning of a text, and returns the header and the rest. Only [`ListHeader::verify`]
    /// checks the signature.
    ///
    /// # Errors
    /// Fails if the text does not begin with a header of at most [`HEADER_BYTES_MAX`] bytes.
    pub fn read(text: &str) -> Result<(Self, &str), RevocationError> {
        let mut lines = Lines { rest: text, line: 0 };
        if lines.next() != Some(FIRST_LINE) {
            return Err(RevocationError::NotAList);
        }
        let signer = lines.value("signer ", "`signer` and a public key", |text| text.parse().ok())?;
        let issuer = if lines.rest.starts_with("under ") {
            let wanted = "`under`, an identifier, `of` and the public key of a root";
            let (own_block, root): (DelegationId, PublicKey) = lines.value("under ", wanted, |text| {
                let (own_block, root) = text.split_once(" of ")?;
                Some((own_block.parse().ok()?, root.parse().ok()?))
            })?;
            Issuer::delegator(root, signer, own_block)
        } else {
            Issuer::root(signer)
        };
        let sequence = lines.value("sequence ", "`sequence` and a number", |text| text.parse().ok())?;
        let wanted = "`issued` and a time such as 2026-11-21T12:30:00Z";
        let issued = lines.value("issued ", wanted, |text| text.parse().ok())?;
        let wanted = "`body`, the number of its bytes, and their SHA-256 in hexadecimal digits";
        let body = lines.value("body ", wanted, |text| {
            let (len, digest) = text.split_once(' ')?;
            Some((len.parse().ok()?, digest.parse::<Sha256Digest>().ok()?.0))
        })?;
        let signature = lines.value("signature ", "`signature` and the whole signature", |text| {
            Some(Signature(base32::decode(text)?.try_into().ok()?))
        })?;
        let this = Self { issuer, sequence, issued, body, signature };
        // Each header has only one text, so that people read exactly what was signed.
        let len = text.len().saturating_sub(lines.rest.len());
        if len > HEADER_BYTES_MAX || text.get(..len) != Some(this.to_string().as_str()) {
            return Err(RevocationError::Forged(signer));
        }
        Ok((this, lines.rest))
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// [`RevocationError::Forged`].
    pub fn verify(&self) -> Result<(), RevocationError> {
        let signer = self.issuer.signer;
        let verified = signer.verify(SIGNED, self.signed_text().as_bytes(), &self.signature);
        verified.map_err(|_| RevocationError::Forged(signer))
    }

    /// Returns the party that signs the list, with its right to revoke.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Returns the number by which the signer tells its lists apart.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the SHA-256 of the body.
    pub fn digest(&self) -> &[u8; 32] {
        &self.body.1
    }

    /// Returns the length of the body, in bytes.
    pub fn body_len(&self) -> usize {
        self.body.0
    }

    fn signed_text(&self) -> String {
        let Self {
            issuer: Issuer { root, signer, own_block }, sequence, issued, body: (len, digest), ..
        } = self;
        let under_line =
            own_block.map(|own_block| format!("under {own_block} of {root}\n")).unwrap_or_default();
        let digest = Sha256Digest(*digest);
        format!(
            "{FIRST_LINE}\nsigner {signer}\n{under_line}sequence {sequence}\nissued {issued}\nbody {len} {digest}\n"
        )
    }
}

impl fmt::Display for ListHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature {}", self.signed_text(), base32::encode(&self.signature.0))
    }
}

/// A reader of the complete lines of a text.
struct Lines<'a> {
    rest: &'a str,
    /// The number of lines that were read.
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (line, rest) = self.rest.split_once('\n')?;
        self.rest = rest;
        self.line += 1;
        Some(line)
    }

    /// Reads the value of the next line, which begins with `key`.
    fn value<T>(
        &mut self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, RevocationError> {
        let wrong = RevocationError::Line { line: self.line + 1, wanted };
        let line = self.next().filter(|line| line.len() <= HEADER_BYTES_MAX);
        line.and_then(|line| line.strip_prefix(key)).and_then(read).ok_or(wrong)
    }
}

/// A signed list, made by [`RevocationList::sign`] or read from its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    issuer: Issuer,
    sequence: u64,
    issued: UnixSecond,
    revoked: RevokedSet,
    digest: [u8; 32],
    text: String,
}

impl RevocationList {
    /// Signs a root's list.
    ///
    /// # Errors
    /// Fails for more than [`LIST_IDS_MAX`] entries.
    pub fn sign(
        root: &Identity,
        sequence: u64,
        issued: UnixSecond,
        revoked: RevokedSet,
    ) -> Result<Self, RevocationError> {
        Self::sign_as(root, Issuer::root(root.public()), sequence, issued, revoked)
    }

    /// Signs a list as the given issuer.
    ///
    /// # Errors
    /// Fails for more than [`LIST_IDS_MAX`] entries, and for a key that is not the issuer's.
    pub fn sign_as(
        key: &Identity,
        issuer: Issuer,
        sequence: u64,
        issued: UnixSecond,
        revoked: RevokedSet,
    ) -> Result<Self, RevocationError> {
        if key.public() != issuer.signer {
            return Err(RevocationError::OtherSigner { signer: issuer.signer, key: key.public() });
        }
        if revoked.len() > LIST_IDS_MAX {
            return Err(RevocationError::TooMany(revoked.len()));
        }
        let body = body_of(&revoked);
        let digest: [u8; 32] = Sha256::digest(&body).into();
        let signature = Signature([0; 64]);
        let mut header = ListHeader { issuer, sequence, issued, body: (body.len(), digest), signature };
        header.signature = key.sign(SIGNED, header.signed_text().as_bytes());
        Ok(Self { issuer, sequence, issued, revoked, digest, text: format!("{header}{body}") })
    }

    /// Makes a list from a text of version 1.
    pub(super) fn of_version_1(
        root: PublicKey,
        sequence: u64,
        issued: UnixSecond,
        revoked: RevokedSet,
        text: &str,
    ) -> Self {
        let digest = Sha256::digest(text).into();
        Self { issuer: Issuer::root(root), sequence, issued, revoked, digest, text: text.to_owned() }
    }

    /// Returns the signer's next list: the entries of this list and `more`, without entries that have expired. Returns
    /// an equal list if this list contains `more` already.
    ///
    /// # Errors
    /// Fails for a key that is not the signer's, and for more than [`LIST_IDS_MAX`] entries.
    pub fn extended(
        &self,
        key: &Identity,
        now: UnixSecond,
        more: &RevokedSet,
    ) -> Result<Self, RevocationError> {
        let mut revoked = self.revoked.clone();
        if !revoked.join(more) {
            return Ok(self.clone());
        }
        revoked.drop_expired(now);
        Self::sign_as(key, self.issuer, self.sequence.saturating_add(1), now, revoked)
    }

    /// Returns the party that signs the list, with its right to revoke.
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Returns the number by which the signer tells its lists apart.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the time of signing, by the signer's clock.
    pub fn issued(&self) -> UnixSecond {
        self.issued
    }

    /// Returns the entries.
    pub fn revoked(&self) -> &RevokedSet {
        &self.revoked
    }

    /// Returns the SHA-256 of the body; in version 1 the SHA-256 of the whole text.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the header as text; `None` in version 1.
    pub fn header(&self) -> Option<String> {
        ListHeader::read(&self.text).ok().map(|(header, _)| header.to_string())
    }
}

fn body_of(revoked: &RevokedSet) -> String {
    let mut body = revoked.all_before().map(|time| format!("{ALL_BEFORE}{time}\n")).unwrap_or_default();
    for entry in revoked.iter() {
        // Writing to a string cannot fail.
        let _ = writeln!(body, "{entry}");
    }
    body
}

impl fmt::Display for RevocationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for RevocationList {
    type Err = RevocationError;

    /// Reads a list of either version, and verifies the signature of the key that it names.
    fn from_str(text: &str) -> Result<Self, RevocationError> {
        if text.len() > LIST_BYTES_MAX {
            return Err(RevocationError::TooLong(text.len()));
        }
        if version_1::is_of_version_1(text) {
            return version_1::read(text);
        }
        let (header, body) = ListHeader::read(text)?;
        header.verify()?;
        let signer = header.issuer.signer;
        let (len, digest) = header.body;
        if body.len() != len || <[u8; 32]>::from(Sha256::digest(body)) != digest {
            return Err(RevocationError::Body(signer));
        }
        let line = text.lines().count() - body.lines().count();
        let revoked = entries(body, line)?;
        if body_of(&revoked) != body {
            return Err(RevocationError::Forged(signer));
        }
        let ListHeader { issuer, sequence, issued, .. } = header;
        Ok(Self { issuer, sequence, issued, revoked, digest, text: text.to_owned() })
    }
}

/// Reads the entries of a body. `header_lines` is the number of lines before the body.
fn entries(body: &str, header_lines: usize) -> Result<RevokedSet, RevocationError> {
    let wanted = "an identifier, greater than that of the line before, with `@` and a time";
    let mut revoked = RevokedSet::default();
    let mut last: Option<DelegationId> = None;
    for (number, text) in body.lines().enumerate() {
        let wrong = || RevocationError::Line { line: header_lines + number + 1, wanted };
        if let Some(time) = text.strip_prefix(ALL_BEFORE).filter(|_| number == 0) {
            revoked.revoke_all_before(time.parse().map_err(|_| wrong())?);
            continue;
        }
        let entry: DatedId = text.parse().map_err(|_| wrong())?;
        if last.is_some_and(|last| last >= entry.id) || revoked.len() >= LIST_IDS_MAX {
            return Err(wrong());
        }
        last = Some(entry.id);
        revoked.insert(entry);
    }
    Ok(revoked)
}
