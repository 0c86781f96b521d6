//! Bundles: a module, its machine code, and the records about it, in one file.
//!
//! The file is a tar archive (POSIX.1-1988, ustar), so `tar -xf` shows what is in it. Its members have fixed names, modes and times,
//! and stand in the order of [`Member::ALL`]. So the same contents give the same bytes, and nothing else is read: each header must be
//! exactly the one that [`Bundle::to_bytes`] writes.

use crate::envelope::ENVELOPE_BYTES_MAX;
use std::collections::BTreeMap;
use std::ops::Range;

/// The longest bundle, in bytes.
pub const BUNDLE_BYTES_MAX: usize = 64 << 20;
/// The bytes of a block of a tar archive.
const BLOCK: usize = 512;
/// The longest module, and the longest object file, in bytes.
const CODE_BYTES_MAX: usize = 24 << 20;

/// A member of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// The module, in WebAssembly.
    Module,
    /// The object file for nodes, in which calls can be suspended.
    NodeObject,
    /// The compilation record of [`Member::NodeObject`].
    NodeRecord,
    /// The statement about the bounds of calls in [`Member::NodeObject`].
    NodeBounds,
    /// The object file for `weir run`, in which calls run to completion.
    RunObject,
    /// The compilation record of [`Member::RunObject`].
    RunRecord,
    /// The statement about the bounds of calls in [`Member::RunObject`].
    RunBounds,
}

/// The form of the machine code in an object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectForm {
    /// Calls can be suspended: for nodes.
    Suspendable,
    /// Calls run to completion: for `weir run`, and for modules of a node whose calls are all short.
    ToCompletion,
}

impl ObjectForm {
    /// All forms.
    pub const ALL: [Self; 2] = [Self::Suspendable, Self::ToCompletion];

    /// Returns the name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Suspendable => "suspendable",
            Self::ToCompletion => "to-completion",
        }
    }

    /// Returns true if calls can be suspended.
    pub const fn is_suspendable(self) -> bool {
        matches!(self, Self::Suspendable)
    }

    /// Returns the object file.
    pub const fn object(self) -> Member {
        match self {
            Self::Suspendable => Member::NodeObject,
            Self::ToCompletion => Member::RunObject,
        }
    }

    /// Returns the compilation record of the object file.
    pub const fn record(self) -> Member {
        match self {
            Self::Suspendable => Member::NodeRecord,
            Self::ToCompletion => Member::RunRecord,
        }
    }

    /// Returns the statement about bounds in the object file.
    pub const fn bounds(self) -> Member {
        match self {
            Self::Suspendable => Member::NodeBounds,
            Self::ToCompletion => Member::RunBounds,
        }
    }
}

impl Member {
    /// All members, in the order of a bundle.
    pub const ALL: [Self; 7] = [
        Self::Module,
        Self::NodeObject,
        Self::NodeRecord,
        Self::NodeBounds,
        Self::RunObject,
        Self::RunRecord,
        Self::RunBounds,
    ];

    /// Returns the name in the archive.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Module => "module.wasm",
            Self::NodeObject => "node.o",
            Self::NodeRecord => "node.intoto.json",
            Self::RunObject => "run.o",
            Self::NodeBounds => "node.bounds.intoto.json",
            Self::RunRecord => "run.intoto.json",
            Self::RunBounds => "run.bounds.intoto.json",
        }
    }

    const fn bytes_max(self) -> usize {
        match self {
            Self::Module | Self::NodeObject | Self::RunObject => CODE_BYTES_MAX,
            Self::NodeRecord | Self::NodeBounds | Self::RunRecord | Self::RunBounds => ENVELOPE_BYTES_MAX,
        }
    }
}

/// A bundle. It has a module; all other members can be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    members: BTreeMap<Member, Vec<u8>>,
}

/// The reason why bytes are not a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// More bytes than [`BUNDLE_BYTES_MAX`].
    #[error("the bundle has {0} bytes; {BUNDLE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// A member that is not at its place, or whose header differs from the one that weir writes.
    #[error(
        "byte {at} of the bundle: expected the header of `{}`: a bundle is written by `weir compile -o`, and not changed by other programs", names(.expected)
    )]
    Header {
        /// The offset of the header.
        at: usize,
        /// The members that can stand there.
        expected: Vec<Member>,
    },
    /// A member with too many bytes.
    #[error("`{}` of the bundle has {len} bytes; {} is the most", .member.name(), .member.bytes_max())]
    Member {
        /// The member.
        member: Member,
        /// Its bytes.
        len: u64,
    },
    /// The file ends inside a member.
    #[error("the bundle ends inside `{}`, which has {len} bytes: was it copied whole?", .member.name())]
    Truncated {
        /// The member.
        member: Member,
        /// Its bytes.
        len: u64,
    },
    /// Bytes after the last member that are not the end of an archive.
    #[error("byte {0} of the bundle: expected two blocks of zeros, which end the archive")]
    End(usize),
}

fn names(members: &[Member]) -> String {
    members.iter().map(|member| member.name()).collect::<Vec<_>>().join("` or `")
}

impl Bundle {
    /// Returns true if bytes begin like a bundle, and not like a module.
    pub fn is_bundle(bytes: &[u8]) -> bool {
        bytes.get(..100) == header(Member::Module, 0).get(..100)
    }

    /// Returns a bundle of a module alone.
    pub fn new(module: Vec<u8>) -> Self {
        Self { members: BTreeMap::from([(Member::Module, module)]) }
    }

    /// Adds a member, or replaces it.
    pub fn set(&mut self, member: Member, bytes: Vec<u8>) {
        self.members.insert(member, bytes);
    }

    /// Returns the bytes of a member, if the bundle has it.
    pub fn get(&self, member: Member) -> Option<&[u8]> {
        self.members.get(&member).map(Vec::as_slice)
    }

    /// Returns the bytes of the module.
    pub fn module(&self) -> &[u8] {
        self.get(Member::Module).unwrap_or_default()
    }

    /// Reads a bundle.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, BundleError> {
        let members = Self::places(bytes)?;
        let members = members.into_iter().map(|(member, place)| (member, bytes[place].to_vec())).collect();
        Ok(Self { members })
    }

    /// Returns the bytes of the module in a bundle, which is checked as [`parse`](Self::parse) does, and not copied.
    ///
    /// # Errors
    /// [`BundleError`].
    pub fn module_of(bytes: &[u8]) -> Result<&[u8], BundleError> {
        let mut members = Self::places(bytes)?;
        Ok(members.remove(&Member::Module).and_then(|place| bytes.get(place)).unwrap_or_default())
    }

    /// Returns the places of the members' bytes.
    fn places(bytes: &[u8]) -> Result<BTreeMap<Member, Range<usize>>, BundleError> {
        if bytes.len() > BUNDLE_BYTES_MAX {
            return Err(BundleError::TooLong(bytes.len()));
        }
        let mut members = BTreeMap::new();
        let mut expected: Vec<Member> = Member::ALL.to_vec();
        let mut at = 0;
        loop {
            let block = bytes.get(at..at + BLOCK).unwrap_or_default();
            if members.contains_key(&Member::Module) && block == [0; BLOCK] {
                let is_end =
                    bytes.len() == at + 2 * BLOCK && bytes[at + BLOCK..].iter().all(|byte| *byte == 0);
                return if is_end { Ok(members) } else { Err(BundleError::End(at)) };
            }
            let is_first = members.is_empty();
            let candidates = expected.iter().take(if is_first { 1 } else { expected.len() });
            let found = stated_bytes(block)
                .and_then(|len| Some((*candidates.clone().find(|it| header(**it, len) == block)?, len)));
            let Some((member, len)) = found else {
                return Err(match (expected.is_empty(), is_first) {
                    (true, _) => BundleError::End(at),
                    (_, true) => BundleError::Header { at, expected: vec![Member::Module] },
                    _ => BundleError::Header { at, expected },
                });
            };
            let size = usize::try_from(len).unwrap_or(usize::MAX);
            if size > member.bytes_max() {
                return Err(BundleError::Member { member, len });
            }
            at += BLOCK;
            let padded = size.next_multiple_of(BLOCK);
            let padding = bytes.get(at + size..at + padded).ok_or(BundleError::Truncated { member, len })?;
            if padding.iter().any(|byte| *byte != 0) {
                return Err(BundleError::End(at + size));
            }
            members.insert(member, at..at + size);
            expected.retain(|later| *later > member);
            at += padded;
        }
    }

    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (member, content) in &self.members {
            bytes.extend(header(*member, content.len() as u64));
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        }
        bytes.resize(bytes.len() + 2 * BLOCK, 0);
        bytes
    }
}

/// The place of the size in a header: eleven octal digits.
const SIZE: Range<usize> = 124..135;

/// Returns the size that a header states.
fn stated_bytes(header: &[u8]) -> Option<u64> {
    let digits = header.get(SIZE)?;
    digits.iter().try_fold(0, |size: u64, digit| {
        matches!(digit, b'0'..=b'7').then(|| size * 8 + u64::from(digit - b'0'))
    })
}

/// Returns the header of a member with this many bytes.
fn header(member: Member, len: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, member.name());
    put(100, "0000644\0");
    // The numbers of user and group.
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(SIZE.start, &format!("{:011o}\0", len & 0o77_777_777_777));
    // The time of the last change.
    put(136, "00000000000\0");
    // The checksum, of which its own place counts as spaces.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bundle() -> Bundle {
        let mut bundle = Bundle::new(b"\0asm....".to_vec());
        bundle.set(Member::NodeObject, vec![7; 700]);
        bundle.set(Member::NodeBounds, b"{}".to_vec());
        bundle
    }

    #[test]
    fn a_bundle_is_written_and_read_again() {
        let bytes = bundle().to_bytes();
        let read = Bundle::parse(&bytes).unwrap();
        assert_eq!((read.module(), read.get(Member::RunRecord)), (b"\0asm....".as_slice(), None));
        assert_eq!(Bundle::module_of(&bytes), Ok(b"\0asm....".as_slice()));
        assert_eq!((read.to_bytes(), read), (bytes, bundle()));
        let alone = Bundle::new(Vec::new());
        assert_eq!(Bundle::parse(&alone.to_bytes()).unwrap(), alone);
        assert!(Bundle::is_bundle(&alone.to_bytes()) && !Bundle::is_bundle(b"\0asm\x01\0\0\0"));
    }

    #[test]
    fn each_changed_byte_of_a_header_is_found() {
        let bytes = bundle().to_bytes();
        for at in (0..BLOCK).chain(1024..1024 + BLOCK) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Bundle::parse(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_bundle_that_is_cut_anywhere_is_refused() {
        let bytes = bundle().to_bytes();
        for len in 0..bytes.len() {
            assert!(Bundle::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        let error = Bundle::parse(&[bytes.as_slice(), &[0]].concat()).unwrap_err();
        assert!(matches!(error, BundleError::End(_)), "{error}");
    }

    #[test]
    fn members_are_in_one_order_and_not_repeated() {
        let part = |member: Member| {
            let mut part = header(member, 1).to_vec();
            part.resize(2 * BLOCK, 0);
            part
        };
        let end = vec![0; 2 * BLOCK];
        let of = |members: &[Member]| {
            let parts: Vec<Vec<u8>> = members.iter().map(|member| part(*member)).collect();
            Bundle::parse(&[parts.concat(), end.clone()].concat())
        };
        assert!(of(&[Member::Module, Member::RunObject]).is_ok());
        for wrong in [
            &[][..],
            &[Member::RunObject],
            &[Member::RunObject, Member::Module],
            &[Member::Module, Member::Module],
            &[Member::Module, Member::RunObject, Member::NodeObject],
            &[Member::Module, Member::NodeBounds, Member::NodeBounds],
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
        let error = of(&[Member::Module, Member::RunRecord, Member::NodeRecord]).unwrap_err().to_string();
        assert_eq!(error.split(':').next(), Some("byte 2048 of the bundle"), "{error}");
        assert!(error.contains("`run.bounds.intoto.json`"), "{error}");
    }

    #[test]
    fn sizes_are_limited() {
        let long = header(Member::Module, CODE_BYTES_MAX as u64 + 1);
        let error = Bundle::parse(&long).unwrap_err();
        assert!(matches!(error, BundleError::Member { member: Member::Module, .. }), "{error}");
        let huge = header(Member::Module, 0o77_777_777_777);
        assert!(Bundle::parse(&huge).is_err());
        let error = Bundle::parse(&vec![0; BUNDLE_BYTES_MAX + 1]).unwrap_err();
        assert_eq!(error, BundleError::TooLong(BUNDLE_BYTES_MAX + 1));
    }

    proptest! {
        /// Every bundle that is read is written again as it was: a bundle has one form.
        #[test]
        fn any_bytes_are_refused_or_the_only_form_of_their_bundle(
            edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = bundle().to_bytes();
            for (at, byte) in edits {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let cut = cut.index(bytes.len() * 2).min(bytes.len());
            for bytes in [&bytes[..], &bytes[..cut]] {
                let module = Bundle::module_of(bytes);
                match Bundle::parse(bytes) {
                    Ok(bundle) => {
                        prop_assert_eq!(module, Ok(bundle.module()));
                        prop_assert_eq!(bundle.to_bytes(), bytes);
                    }
                    Err(error) => prop_assert_eq!(module, Err(error)),
                }
            }
        }
    }
}
