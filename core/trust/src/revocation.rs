//! What was taken back: lists of chains, signed by the operator's root key.
//!
//! ```text
//! weir revocation list 1
//! root weir-key:…
//! sequence 7
//! issued 2026-11-21T12:30:00Z
//! weir-id:…
//! weir-id:…
//! signature …
//! ```
//!
//! Identifiers ascend; the signature is over all lines before its own, in base 32. A list replaces those of its root with lower sequence numbers, and is never replaced by
//! one: whoever keeps a newer list from a node can do no more than that.

use crate::base32;
use crate::credential::PrefixId;
use crate::grant::Second;
use crate::key::{Context, Identity, PublicKey, Signature};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

/// The most identifiers of a list. Those of credentials that have expired need not stay on it.
pub const IDS_MAX: usize = 16_384;
/// The longest text of a list, in bytes: what so many identifiers take, and the other lines.
pub const LIST_BYTES_MAX: usize = IDS_MAX * 41 + 1024;

const SIGNED: Context = Context::new("revocation list");
const FIRST_LINE: &str = "weir revocation list 1";
const ROOT_LINE: &str = "`root` and a public key";
const SEQUENCE_LINE: &str = "`sequence` and a number";

/// What a root has taken back, signed: a list can only be made by [`RevocationList::sign`] or read from one that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    root: PublicKey,
    sequence: u64,
    issued: Second,
    ids: BTreeSet<PrefixId>,
    signature: Signature,
}

/// Why a list is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationError {
    /// Too long.
    #[error("the revocation list has {0} bytes; {LIST_BYTES_MAX} is the most")]
    TooLong(usize),
    /// Too many of them.
    #[error(
        "the revocation list has {0} identifiers; {IDS_MAX} is the most. Leave out those of credentials that have expired"
    )]
    TooMany(usize),
    /// Something else, or of a later version.
    #[error("this is no revocation list: one begins with `{FIRST_LINE}`")]
    NotAList,
    /// A line that is not what it should be.
    #[error("line {line} of the revocation list should be {wanted}")]
    Line {
        /// Line, from 1.
        line: usize,
        /// What should be there.
        wanted: &'static str,
    },
    /// Its signature does not hold.
    #[error("the revocation list is forged or damaged: it was not signed by {0}")]
    Forged(PublicKey),
    /// Nobody trusts whoever has signed it.
    #[error("the revocation list is of {0}, which is no root of trust here")]
    UnknownRoot(PublicKey),
    /// There can be no newer one.
    #[error(
        "the revocation list has the highest number that there is, so that none can follow it: its root has to be replaced by another key"
    )]
    Last,
    /// There is a newer one.
    #[error(
        "the revocation list is number {given}, and number {known} of the same root is known: take a newer one"
    )]
    Older {
        /// Its sequence number.
        given: u64,
        /// That of the one that is known.
        known: u64,
    },
    /// Two different lists of one number.
    #[error(
        "two revocation lists of {root} have number {sequence}: its owner has to sign one with a higher number"
    )]
    Conflict {
        /// Whose.
        root: PublicKey,
        /// The number.
        sequence: u64,
    },
}

impl RevocationList {
    /// Signs a list.
    ///
    /// # Errors
    /// More than [`IDS_MAX`] identifiers.
    pub fn sign(
        root: &Identity,
        sequence: u64,
        issued: Second,
        ids: BTreeSet<PrefixId>,
    ) -> Result<Self, RevocationError> {
        if ids.len() > IDS_MAX {
            return Err(RevocationError::TooMany(ids.len()));
        }
        let signature = Signature([0; 64]);
        let mut list = Self { root: root.public(), sequence, issued, ids, signature };
        list.signature = root.sign(SIGNED, list.signed_text().as_bytes());
        Ok(list)
    }

    /// The list that follows this one, with more identifiers; the same where it has them already.
    ///
    /// # Errors
    /// Another root's key, and more than [`IDS_MAX`] identifiers.
    pub fn with(
        &self,
        root: &Identity,
        issued: Second,
        more: impl IntoIterator<Item = PrefixId>,
    ) -> Result<Self, RevocationError> {
        if root.public() != self.root {
            return Err(RevocationError::Forged(self.root));
        }
        let mut ids = self.ids.clone();
        ids.extend(more);
        if ids == self.ids {
            return Ok(self.clone());
        }
        let next = self.sequence.checked_add(1).ok_or(RevocationError::Last)?;
        Self::sign(root, next, issued, ids)
    }

    /// Who has signed it.
    pub fn root(&self) -> &PublicKey {
        &self.root
    }

    /// Its number among the lists of its root.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// When it was signed, as its root says.
    pub fn issued(&self) -> Second {
        self.issued
    }

    /// What was taken back.
    pub fn ids(&self) -> &BTreeSet<PrefixId> {
        &self.ids
    }

    fn signed_text(&self) -> String {
        let Self { root, sequence, issued, ids, .. } = self;
        let mut text = format!("{FIRST_LINE}\nroot {root}\nsequence {sequence}\nissued {issued}\n");
        for id in ids {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{id}");
        }
        text
    }
}

/// Whose list a text says that it is, and its number: nothing of that is verified.
fn claims(text: &str) -> Result<(PublicKey, u64), RevocationError> {
    if text.len() > LIST_BYTES_MAX {
        return Err(RevocationError::TooLong(text.len()));
    }
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(RevocationError::NotAList);
    }
    let mut after = |line: usize, key: &str, wanted| {
        lines.next().and_then(|text| text.strip_prefix(key)).ok_or(RevocationError::Line { line, wanted })
    };
    let wrong = |line, wanted| RevocationError::Line { line, wanted };
    let root = after(2, "root ", ROOT_LINE)?.parse().map_err(|_| wrong(2, ROOT_LINE))?;
    let sequence = after(3, "sequence ", SEQUENCE_LINE)?.parse().map_err(|_| wrong(3, SEQUENCE_LINE))?;
    Ok((root, sequence))
}

impl fmt::Display for RevocationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature {}", self.signed_text(), base32::encode(&self.signature.0))
    }
}

impl FromStr for RevocationList {
    type Err = RevocationError;

    /// Reads a list and verifies that the root that it names has signed it. Whether that one is trusted says [`Revocations::accept`].
    fn from_str(text: &str) -> Result<Self, RevocationError> {
        let (root, sequence) = claims(text)?;
        let mut lines = text.lines().zip(1..).skip(3);
        let wrong = |line, wanted| RevocationError::Line { line, wanted };
        let wanted = "`issued` and a time such as 2026-11-21T12:30:00Z";
        let issued =
            lines.next().and_then(|(text, _)| text.strip_prefix("issued ")).ok_or(wrong(4, wanted))?;
        let issued = issued.parse().map_err(|_| wrong(4, wanted))?;
        let mut ids = BTreeSet::new();
        let wanted = "an identifier that follows the one before, or `signature` and the signature";
        let (line, signature) = loop {
            let (text, line) = lines.next().ok_or(wrong(5 + ids.len(), wanted))?;
            if let Some(signature) = text.strip_prefix("signature ") {
                break (line, signature);
            }
            let id: PrefixId = text.parse().map_err(|_| wrong(line, wanted))?;
            if ids.last().is_some_and(|last| *last >= id) || ids.len() >= IDS_MAX {
                return Err(wrong(line, wanted));
            }
            ids.insert(id);
        };
        let signature = base32::decode(signature).and_then(|bytes| bytes.try_into().ok());
        let signature = Signature(signature.ok_or(wrong(line, "`signature` and the whole signature"))?);
        let list = Self { root, sequence, issued, ids, signature };
        // What was signed is what this list writes: so a text in another form, or with more behind it, is none.
        if list.to_string() != text {
            return Err(RevocationError::Forged(root));
        }
        root.verify(SIGNED, list.signed_text().as_bytes(), &list.signature)
            .map_err(|_| RevocationError::Forged(root))?;
        Ok(list)
    }
}

/// What is known to have been taken back: of each root its newest list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<PublicKey, Arc<RevocationList>>);

impl Revocations {
    /// Takes a list of a trusted root in place of an older one. Says whether anything has changed: the same list again changes nothing.
    ///
    /// # Errors
    /// Lists of other roots, older ones, and a different one of the same number: then what was known stays.
    pub fn accept(&mut self, list: RevocationList, roots: &[PublicKey]) -> Result<bool, RevocationError> {
        if !roots.contains(&list.root) {
            return Err(RevocationError::UnknownRoot(list.root));
        }
        if let Some(known) = self.0.get(&list.root) {
            if **known == list {
                return Ok(false);
            }
            if list.sequence < known.sequence {
                return Err(RevocationError::Older { given: list.sequence, known: known.sequence });
            }
            if list.sequence == known.sequence {
                return Err(RevocationError::Conflict { root: list.root, sequence: list.sequence });
            }
        }
        self.0.insert(list.root, Arc::new(list));
        Ok(true)
    }

    /// Takes a list as a text that may come from anybody: as [`Revocations::accept`], but what costs little is looked at first. A signature is verified only of a list
    /// that says that it is a trusted root's, and newer than the one that is known.
    ///
    /// # Errors
    /// What is no list, and what [`Revocations::accept`] does not take: then what was known stays.
    pub fn take(&mut self, text: &str, roots: &[PublicKey]) -> Result<bool, RevocationError> {
        let (root, sequence) = claims(text)?;
        if !roots.contains(&root) {
            return Err(RevocationError::UnknownRoot(root));
        }
        if let Some(known) = self.0.get(&root) {
            if sequence < known.sequence {
                return Err(RevocationError::Older { given: sequence, known: known.sequence });
            }
            if sequence == known.sequence && known.to_string() == text {
                return Ok(false);
            }
        }
        self.accept(text.parse()?, roots)
    }

    /// Whether this root has taken this chain back. A list says nothing of the chains of other roots.
    pub fn contains(&self, root: &PublicKey, id: &PrefixId) -> bool {
        self.0.get(root).is_some_and(|list| list.ids.contains(id))
    }

    /// The lists.
    pub fn lists(&self) -> impl ExactSizeIterator<Item = &RevocationList> {
        self.0.values().map(Arc::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Identity {
        Identity::from_seed(&[1; 32])
    }

    fn id(of: u8) -> PrefixId {
        let text = format!("weir-id:{}", base32::encode(&[of; 20]));
        text.parse().unwrap()
    }

    fn list(sequence: u64, ids: &[u8]) -> RevocationList {
        let issued = Second::new(1_795_264_200).unwrap();
        RevocationList::sign(&root(), sequence, issued, ids.iter().copied().map(id).collect()).unwrap()
    }

    #[test]
    fn a_list_is_written_and_read_again() {
        for list in [list(7, &[1, 2, 200]), list(0, &[])] {
            assert_eq!(list.to_string().parse(), Ok(list));
        }
        let text = list(7, &[2, 1]).to_string();
        assert!(text.starts_with("weir revocation list 1\nroot weir-key:"), "{text}");
        assert!(text.contains("\nsequence 7\nissued 2026-11-21T12:30:00Z\nweir-id:aea"), "{text}");
    }

    #[test]
    fn a_changed_list_is_forged() {
        let text = list(7, &[1, 2]).to_string();
        for changed in [
            text.replace("sequence 7", "sequence 8"),
            text.replace("12:30", "12:31"),
            text.replace(&format!("{}\n", id(1)), ""),
            text.replace(&id(2).to_string(), &id(3).to_string()),
            text.replace(&root().public().to_string(), &Identity::from_seed(&[2; 32]).public().to_string()),
            text.replace("sequence 7", "sequence 07"),
            text.trim_end().to_owned(),
            format!("{text}more"),
        ] {
            assert!(
                matches!(changed.parse::<RevocationList>(), Err(RevocationError::Forged(_))),
                "{changed}"
            );
        }
        let (first, second) = (id(1).to_string(), id(2).to_string());
        let reordered =
            text.replace(&first, "-").replace(&second, &first).replace("\n-\n", &format!("\n{second}\n"));
        assert!(matches!(reordered.parse::<RevocationList>(), Err(RevocationError::Line { line: 6, .. })));
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        let read = |text: &str| text.parse::<RevocationList>().unwrap_err();
        assert_eq!(read(""), RevocationError::NotAList);
        assert_eq!(read("weir revocation list 2\n"), RevocationError::NotAList);
        assert_eq!(read(&"x".repeat(LIST_BYTES_MAX + 1)), RevocationError::TooLong(LIST_BYTES_MAX + 1));
        let text = list(7, &[1]).to_string();
        let lines: Vec<&str> = text.lines().collect();
        for kept in 1..lines.len() {
            let cut = read(&lines[..kept].join("\n"));
            assert!(matches!(cut, RevocationError::Line { line, .. } if line == kept + 1), "{kept}: {cut}");
        }
        let ids = (0..=IDS_MAX).map(|number| {
            let mut bytes = [0; 20];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            format!("weir-id:{}", base32::encode(&bytes)).parse().unwrap()
        });
        let signed = RevocationList::sign(&root(), 1, Second::default(), ids.collect());
        assert_eq!(signed, Err(RevocationError::TooMany(IDS_MAX + 1)));
    }

    #[test]
    fn the_longest_list_can_be_read() {
        let ids = (0..IDS_MAX).map(|number| {
            let mut bytes = [0xff; 20];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            format!("weir-id:{}", base32::encode(&bytes)).parse().unwrap()
        });
        let list = RevocationList::sign(&root(), u64::MAX, Second::MAX, ids.collect()).unwrap();
        assert_eq!(list.to_string().parse(), Ok(list));
    }

    #[test]
    fn newer_lists_replace_older_ones_and_never_the_other_way_round() {
        let (me, roots) = (root().public(), [root().public()]);
        let mut known = Revocations::default();
        assert_eq!(known.accept(list(7, &[1]), &roots), Ok(true));
        assert_eq!(known.accept(list(7, &[1]), &roots), Ok(false));
        assert!(known.contains(&me, &id(1)) && !known.contains(&me, &id(2)));
        assert_eq!(known.accept(list(6, &[]), &roots), Err(RevocationError::Older { given: 6, known: 7 }));
        assert_eq!(
            known.accept(list(7, &[]), &roots),
            Err(RevocationError::Conflict { root: me, sequence: 7 })
        );
        assert!(known.contains(&me, &id(1)));
        assert_eq!(known.accept(list(8, &[1, 2]), &roots), Ok(true));
        assert!(known.contains(&me, &id(2)));
    }

    #[test]
    fn a_text_is_taken_as_a_list_is_and_read_only_where_it_can_be_of_use() {
        let roots = [root().public()];
        let mut known = Revocations::default();
        assert_eq!(known.take(&list(7, &[1]).to_string(), &roots), Ok(true));
        assert_eq!(known.take(&list(7, &[1]).to_string(), &roots), Ok(false));
        // Nobody looks at the rest of these.
        let head = |sequence: u64, root: &Identity| {
            format!("{FIRST_LINE}\nroot {}\nsequence {sequence}\nnothing else", root.public())
        };
        let stranger = Identity::from_seed(&[2; 32]);
        assert_eq!(
            known.take(&head(9, &stranger), &roots),
            Err(RevocationError::UnknownRoot(stranger.public()))
        );
        assert_eq!(known.take(&head(6, &root()), &roots), Err(RevocationError::Older { given: 6, known: 7 }));
        // And at the rest of these.
        assert!(matches!(known.take(&head(8, &root()), &roots), Err(RevocationError::Line { line: 4, .. })));
        let forged = list(8, &[1]).to_string().replace(&id(1).to_string(), &id(3).to_string());
        assert_eq!(known.take(&forged, &roots), Err(RevocationError::Forged(root().public())));
        let other = list(7, &[2]).to_string();
        assert_eq!(
            known.take(&other, &roots),
            Err(RevocationError::Conflict { root: root().public(), sequence: 7 })
        );
        assert!(known.contains(&root().public(), &id(1)) && !known.contains(&root().public(), &id(2)));
    }

    #[test]
    fn a_root_takes_back_its_own_only() {
        let other = Identity::from_seed(&[2; 32]);
        let theirs = RevocationList::sign(&other, 1, Second::default(), [id(1)].into()).unwrap();
        let mut known = Revocations::default();
        assert_eq!(
            known.accept(theirs.clone(), &[root().public()]),
            Err(RevocationError::UnknownRoot(other.public()))
        );
        assert_eq!(known.accept(theirs, &[root().public(), other.public()]), Ok(true));
        assert!(known.contains(&other.public(), &id(1)) && !known.contains(&root().public(), &id(1)));
    }

    #[test]
    fn a_list_is_continued_by_its_root() {
        let first = list(7, &[1]);
        let next = first.with(&root(), Second::MAX, [id(2)]).unwrap();
        assert_eq!((next.sequence(), next.ids().len(), next.issued()), (8, 2, Second::MAX));
        assert_eq!(next.with(&root(), Second::default(), [id(2)]), Ok(next.clone()));
        let other = Identity::from_seed(&[2; 32]);
        assert_eq!(first.with(&other, Second::MAX, [id(2)]), Err(RevocationError::Forged(root().public())));
    }
}
