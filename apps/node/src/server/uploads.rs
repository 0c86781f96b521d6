//! Module files that clients upload in parts. Received parts are kept for a while, so that an upload can resume after its
//! connection has failed.
//!
//! A file belongs to the holder that uploads it, and no other client can see it. The memory is limited in total and for
//! each delegation of a chain, so that delegation does not increase a holder's limit. A file can be used only when it is
//! complete and has the announced hash.
//!
//! If the memory of all holders is full, a new file replaces the least recently used file of the party with the most
//! memory (see [`delegation_chain`](crate::control::authority::delegation_chain)), provided that this party has more memory
//! than the uploader's party would have with the new file. Otherwise the new file replaces the uploader's own least
//! recently used file, and is refused if the uploader has none.

use crate::control::protocol::FilePart;
use crate::sync::{OrderedMutex, rank};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::DelegationId;
use weir_trust::grant::ModuleHash;
use weir_units::Bytes;

/// The maximum number of bytes of all holders' files together. The operator's files have a separate limit of the same size.
const ALL_BYTES_MAX: usize = 8 * MODULE_BYTES_MAX;
/// The maximum number of bytes of the files under each delegation of a chain.
const CHAIN_BYTES_MAX: usize = 2 * MODULE_BYTES_MAX;
/// The minimum number of bytes that a file counts as, which limits the number of files.
const FILE_BYTES_MIN: usize = 256 << 10;
/// The time after which an unused file is removed.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// The time after which a file is removed even if it is used.
const AGE_MAX: Duration = Duration::from_secs(3600);

/// The error of a part that is not accepted, or of a file that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("a module's file has between 1 and {max} bytes, not {0}", max = MODULE_BYTES_MAX)]
    Length(u32),
    #[error("the part ends {0} bytes after the end of its file")]
    BeyondEnd(usize),
    #[error(
        "the received file does not have the SHA-256 {0}: it has changed while it was read or sent; send it again"
    )]
    WrongHash(ModuleHash),
    #[error("you have no complete file with the SHA-256 {0} on this node (any more); send it again")]
    Missing(ModuleHash),
    #[error(
        "uploaded files under one credential, with those of its delegates, have at most {max} together; try again when they are loaded, or in {idle} minutes",
        max = Bytes(CHAIN_BYTES_MAX as u64), idle = IDLE_MAX.as_secs() / 60
    )]
    ChainLimit,
    #[error("the node's memory for uploads is full with files of other holders; try again")]
    Full,
}

/// All uploaded files, complete or not.
#[derive(Debug, Default)]
pub(crate) struct Uploads(OrderedMutex<Vec<Upload>, { rank::INDEPENDENT }>);

/// An uploaded file of one holder.
#[derive(Debug)]
struct Upload {
    /// The chain of the holder; empty for the operator.
    chain: Vec<DelegationId>,
    /// The announced hash.
    file: ModuleHash,
    length: usize,
    content: Content,
    started: Instant,
    last_used: Instant,
}

/// The received bytes of a file.
#[derive(Debug)]
enum Content {
    /// The received beginning, and the state of its hash.
    Partial(Vec<u8>, Box<Sha256>),
    /// The complete file, whose hash is correct.
    Complete(Arc<Vec<u8>>),
}

impl Upload {
    /// Returns true if this is a client's upload of this file.
    fn belongs_to(&self, chain: &[DelegationId], file: &ModuleHash) -> bool {
        self.chain.last() == chain.last() && self.file == *file
    }

    fn received(&self) -> usize {
        match &self.content {
            Content::Partial(bytes, _) => bytes.len(),
            Content::Complete(bytes) => bytes.len(),
        }
    }

    fn counted_bytes(&self) -> usize {
        counted_bytes(self.length)
    }

    fn is_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_used) >= IDLE_MAX
            || now.saturating_duration_since(self.started) >= AGE_MAX
    }
}

/// Returns the number of bytes that a file of this length counts as.
fn counted_bytes(length: usize) -> usize {
    length.max(FILE_BYTES_MIN)
}

impl Uploads {
    /// Removes expired files.
    pub(crate) fn remove_expired(&self, now: Instant) {
        self.0.lock().retain(|upload| !upload.is_expired(now));
    }

    /// Adds a part to a file, if the part continues the received beginning. Returns the number of bytes received so far.
    pub(crate) fn add_part(
        &self,
        chain: &[DelegationId],
        part: &FilePart,
        bytes: &[u8],
        now: Instant,
    ) -> Result<u32, UploadError> {
        let length = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        if length == 0 || length > MODULE_BYTES_MAX {
            return Err(UploadError::Length(part.bytes));
        }
        let mut uploads = self.0.lock();
        uploads.retain(|upload| !upload.is_expired(now));
        // If the client announces another length than before, the upload starts again with the new length.
        uploads.retain(|upload| !upload.belongs_to(chain, &part.file) || upload.length == length);
        let index = match uploads.iter().position(|upload| upload.belongs_to(chain, &part.file)) {
            Some(index) => index,
            None if part.from > 0 || bytes.is_empty() => return Ok(0),
            None => {
                evict_for(&mut uploads, chain, counted_bytes(length))?;
                uploads.push(Upload {
                    chain: chain.to_vec(),
                    file: part.file,
                    length,
                    // The full capacity is allocated at once: pages that are not written take no memory.
                    content: Content::Partial(Vec::with_capacity(length), Box::default()),
                    started: now,
                    last_used: now,
                });
                uploads.len() - 1
            }
        };
        let Some(upload) = uploads.get_mut(index) else { return Ok(0) };
        let received = upload.received();
        let mut has_wrong_hash = false;
        if let Content::Partial(beginning, hash) = &mut upload.content
            && usize::try_from(part.from) == Ok(received)
            && !bytes.is_empty()
        {
            let end = received + bytes.len();
            if end > length {
                return Err(UploadError::BeyondEnd(end - length));
            }
            beginning.extend_from_slice(bytes);
            hash.update(bytes);
            if end == length {
                has_wrong_hash = ModuleHash(hash.clone().finalize().into()) != part.file;
                upload.content = Content::Complete(Arc::new(std::mem::take(beginning)));
            }
        }
        upload.last_used = now;
        let received = upload.received();
        if has_wrong_hash {
            uploads.remove(index);
            return Err(UploadError::WrongHash(part.file));
        }
        // The number is at most the announced length, which is a u32.
        Ok(u32::try_from(received).unwrap_or(part.bytes))
    }

    /// Returns a complete file. The file is kept, since a client whose connection fails may repeat its request.
    pub(crate) fn complete_file(
        &self,
        chain: &[DelegationId],
        file: &ModuleHash,
        now: Instant,
    ) -> Result<Arc<Vec<u8>>, UploadError> {
        let mut uploads = self.0.lock();
        uploads.retain(|upload| !upload.is_expired(now));
        let missing = UploadError::Missing(*file);
        let upload = uploads.iter_mut().find(|upload| upload.belongs_to(chain, file)).ok_or(missing)?;
        upload.last_used = now;
        match &upload.content {
            Content::Complete(bytes) => Ok(Arc::clone(bytes)),
            Content::Partial(..) => Err(missing),
        }
    }
}

/// Removes files until there is capacity for a new file that counts as `size` bytes.
fn evict_for(uploads: &mut Vec<Upload>, chain: &[DelegationId], size: usize) -> Result<(), UploadError> {
    for (depth, delegation) in chain.iter().enumerate() {
        while sum(uploads, |upload| upload.chain.contains(delegation)) + size > CHAIN_BYTES_MAX {
            evict_under(uploads, chain, (depth, delegation), size).ok_or(UploadError::ChainLimit)?;
        }
    }
    // The operator's files and those of holders have separate limits.
    let is_same_pool = |upload: &Upload| upload.chain.is_empty() == chain.is_empty();
    while sum(uploads, is_same_pool) + size > ALL_BYTES_MAX {
        let bytes_of = |first: Option<&DelegationId>| {
            sum(uploads, |upload| is_same_pool(upload) && upload.chain.first() == first)
        };
        let largest =
            uploads.iter().filter(|upload| is_same_pool(upload)).map(|upload| upload.chain.first().copied());
        let largest = largest.max_by_key(|first| bytes_of(first.as_ref())).ok_or(UploadError::Full)?;
        if bytes_of(largest.as_ref()) > bytes_of(chain.first()) + size {
            evict_oldest(uploads, |upload| is_same_pool(upload) && upload.chain.first() == largest.as_ref())
        } else {
            evict_oldest(uploads, |upload| upload.chain.last() == chain.last())
        }
        .ok_or(UploadError::Full)?;
    }
    Ok(())
}

/// Removes one file under a delegation of the uploader's chain. Files of the uploader's descendants are removed first. The
/// second choice is a file under the child of that delegation with the most memory, if the uploader's branch would still
/// have less memory with the new file. The last choice is a file of the uploader. Files of the uploader's ancestors are never
/// removed.
fn evict_under(
    uploads: &mut Vec<Upload>,
    chain: &[DelegationId],
    (depth, delegation): (usize, &DelegationId),
    size: usize,
) -> Option<()> {
    let is_below = |upload: &Upload| upload.chain.len() > chain.len() && upload.chain.starts_with(chain);
    if let Some(()) = evict_oldest(uploads, is_below) {
        return Some(());
    }
    let is_under = |upload: &Upload, child: &DelegationId| {
        upload.chain.get(depth) == Some(delegation) && upload.chain.get(depth + 1) == Some(child)
    };
    let bytes_of = |uploads: &[Upload], child: &DelegationId| sum(uploads, |upload| is_under(upload, child));
    let children = uploads.iter().filter(|upload| upload.chain.get(depth) == Some(delegation));
    let largest = children.filter_map(|upload| upload.chain.get(depth + 1).copied());
    let largest = largest.max_by_key(|child| bytes_of(uploads, child));
    if let (Some(own), Some(largest)) = (chain.get(depth + 1), largest)
        && bytes_of(uploads, &largest) > bytes_of(uploads, own) + size
    {
        return evict_oldest(uploads, |upload| is_under(upload, &largest));
    }
    evict_oldest(uploads, |upload| upload.chain.last() == chain.last())
}

/// Returns the bytes that the matching files count as, together.
fn sum(uploads: &[Upload], matches: impl Fn(&Upload) -> bool) -> usize {
    uploads.iter().filter(|upload| matches(upload)).map(Upload::counted_bytes).sum()
}

/// Removes the least recently used file among those that match. Returns `None` if no file matches.
fn evict_oldest(uploads: &mut Vec<Upload>, matches: impl Fn(&Upload) -> bool) -> Option<()> {
    let candidates = uploads.iter().enumerate().filter(|(_, upload)| matches(upload));
    let (index, _) = candidates.min_by_key(|(_, upload)| upload.last_used)?;
    uploads.remove(index);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chain of these numbered links.
    fn chain(ids: &[u8]) -> Vec<DelegationId> {
        let letter = |number: u8| char::from(b'a' + number % 26);
        let text = |id: u8| format!("weir-id:{}{}{}", letter(id), letter(id / 26), "a".repeat(30));
        ids.iter().map(|id| text(*id).parse().unwrap()).collect()
    }

    fn file(seed: u8, length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
    }

    fn part(whole: &[u8], from: usize) -> FilePart {
        let [bytes, from] = [whole.len(), from].map(|count| u32::try_from(count).unwrap());
        FilePart { file: ModuleHash::of_bytes(whole), bytes, from }
    }

    /// Uploads a file in parts of `each` bytes.
    fn send(
        uploads: &Uploads,
        chain: &[DelegationId],
        whole: &[u8],
        each: usize,
        now: Instant,
    ) -> Result<u32, UploadError> {
        let mut received = uploads.add_part(chain, &part(whole, 0), &[], now)?;
        for (index, bytes) in whole.chunks(each).enumerate() {
            received = uploads.add_part(chain, &part(whole, index * each), bytes, now)?;
        }
        Ok(received)
    }

    #[test]
    fn a_file_is_available_when_it_is_complete_and_only_to_its_uploader() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let (alice, bob) = (chain(&[1]), chain(&[2]));
        let whole = file(0, 1000);
        let hash = ModuleHash::of_bytes(&whole);
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &whole[..400], now), Ok(400));
        assert_eq!(uploads.complete_file(&alice, &hash, now), Err(UploadError::Missing(hash)));
        // A part that is not the next one changes nothing: after a gap, or received before.
        assert_eq!(uploads.add_part(&alice, &part(&whole, 500), &whole[500..], now), Ok(400));
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &whole[..400], now), Ok(400));
        // No other client can continue, read or damage it: another holder, a delegate, or the operator.
        for other in [bob, chain(&[1, 3]), chain(&[])] {
            assert_eq!(uploads.add_part(&other, &part(&whole, 400), &whole[400..], now), Ok(0));
            assert_eq!(uploads.complete_file(&other, &hash, now), Err(UploadError::Missing(hash)));
        }
        assert_eq!(uploads.add_part(&alice, &part(&whole, 400), &whole[400..], now), Ok(1000));
        assert_eq!(uploads.complete_file(&alice, &hash, now).unwrap()[..], whole);
        // A part of a complete file changes nothing.
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &[9], now), Ok(1000));
        assert_eq!(uploads.complete_file(&alice, &hash, now).unwrap()[..], whole);
    }

    #[test]
    fn a_file_without_the_announced_hash_or_length_is_never_available() {
        let (uploads, now, alice) = (Uploads::default(), Instant::now(), chain(&[1]));
        let whole = file(0, 1000);
        let hash = ModuleHash::of_bytes(&whole);
        let mut other = whole.clone();
        other[17] ^= 1;
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &other[..400], now), Ok(400));
        assert_eq!(
            uploads.add_part(&alice, &part(&whole, 400), &other[400..], now),
            Err(UploadError::WrongHash(hash))
        );
        // The upload starts again.
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &[], now), Ok(0));
        // More bytes than announced, at once and at the end; and invalid lengths.
        assert_eq!(
            uploads.add_part(&alice, &part(&whole, 0), &[0; 1001], now),
            Err(UploadError::BeyondEnd(1))
        );
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &whole[..999], now), Ok(999));
        assert_eq!(
            uploads.add_part(&alice, &part(&whole, 999), &[0; 3], now),
            Err(UploadError::BeyondEnd(2))
        );
        for bytes in [0, 8 * (1 << 20) + 1, u32::MAX] {
            let part = FilePart { bytes, ..part(&whole, 0) };
            assert_eq!(uploads.add_part(&alice, &part, &[0], now), Err(UploadError::Length(bytes)));
        }
        // Another announced length starts a new upload.
        let longer = FilePart { bytes: 2000, ..part(&whole, 0) };
        assert_eq!(uploads.add_part(&alice, &longer, &[], now), Ok(0));
        assert_eq!(uploads.add_part(&alice, &part(&whole, 0), &[], now), Ok(0));
    }

    #[test]
    fn files_expire() {
        let (uploads, now, alice) = (Uploads::default(), Instant::now(), chain(&[1]));
        let whole = file(0, 1000);
        let take = |from: usize, to: usize, at: Duration| {
            uploads.add_part(&alice, &part(&whole, from), &whole[from..to], now + at)
        };
        assert_eq!(take(0, 10, Duration::ZERO), Ok(10));
        assert_eq!(take(10, 20, IDLE_MAX - Duration::from_secs(1)), Ok(20));
        uploads.remove_expired(now + IDLE_MAX);
        assert_eq!(take(20, 30, IDLE_MAX), Ok(30));
        uploads.remove_expired(now + IDLE_MAX + IDLE_MAX);
        assert_eq!(uploads.0.lock().len(), 0);
        // Regular parts do not extend the maximum age.
        let mut at = Duration::ZERO;
        for byte in 0.. {
            if take(byte, byte + 1, at) == Ok(0) {
                break;
            }
            at += IDLE_MAX / 2;
        }
        assert_eq!(at, AGE_MAX);
    }

    #[test]
    fn delegation_gives_no_more_memory_and_own_files_are_removed_first() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let most = |seed| file(seed, MODULE_BYTES_MAX);
        let (first, second) = (chain(&[1, 2]), chain(&[1, 3]));
        for (seed, sender) in [(1, &first), (2, &second)] {
            assert!(send(&uploads, sender, &most(seed), MODULE_BYTES_MAX, now).is_ok());
        }
        // A third delegate under the same grant is refused; a holder under another grant is not.
        let third = chain(&[1, 4]);
        assert_eq!(uploads.add_part(&third, &part(&most(3), 0), &[1], now), Err(UploadError::ChainLimit));
        let later = now + Duration::from_secs(1);
        assert_eq!(uploads.add_part(&chain(&[5]), &part(&most(3), 0), &[1], later), Ok(1));
        // An uploader's own file is removed for its next one.
        assert_eq!(uploads.add_part(&first, &part(&most(4), 0), &[1], later), Ok(1));
        assert!(uploads.complete_file(&first, &ModuleHash::of_bytes(&most(1)), later).is_err());
        assert!(uploads.complete_file(&second, &ModuleHash::of_bytes(&most(2)), later).is_ok());
    }

    #[test]
    fn a_delegator_always_has_memory_and_its_delegates_get_equal_parts() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let most = |seed| file(seed, MODULE_BYTES_MAX);
        let begin = |seed: u8, sender: &[u8], at: u64| {
            let at = now + Duration::from_secs(at);
            uploads.add_part(&chain(sender), &part(&most(seed), 0), &[1], at)
        };
        // One delegate uses all memory under the grant, through two of its own delegates.
        assert_eq!((begin(1, &[1, 2, 6], 1), begin(2, &[1, 2, 7], 2)), (Ok(1), Ok(1)));
        // Its sibling gets a half, and a third delegate is refused.
        assert_eq!((begin(3, &[1, 3], 3), begin(4, &[1, 4], 4)), (Ok(1), Err(UploadError::ChainLimit)));
        // The files of the delegates are removed for those of their delegator.
        assert_eq!((begin(5, &[1], 5), begin(6, &[1], 6)), (Ok(1), Ok(1)));
        assert!(uploads.0.lock().iter().all(|upload| upload.chain == chain(&[1])));
        assert_eq!(begin(7, &[1, 3], 7), Err(UploadError::ChainLimit));
    }

    #[test]
    fn the_holder_with_the_most_memory_loses_files_first() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let whole = |seed| file(seed, MODULE_BYTES_MAX);
        let begin = |seed: u8, sender: &[DelegationId], at: u64| {
            let at = now + Duration::from_secs(at);
            uploads.add_part(sender, &part(&whole(seed), 0), &[1], at)
        };
        for sender in 1..=4 {
            assert_eq!(begin(1, &chain(&[sender]), 1), Ok(1));
            assert_eq!(begin(2, &chain(&[sender]), 2), Ok(1));
        }
        // Each of four holders has two files. The fifth replaces one of them; the operator has a limit of its own.
        assert_eq!(begin(3, &chain(&[5]), 3), Ok(1));
        assert_eq!(begin(3, &chain(&[]), 3), Ok(1));
        for sender in 6..=8 {
            assert_eq!(begin(3, &chain(&[sender]), 3), Ok(1));
        }
        // Now each of eight holders has one file.
        assert_eq!(begin(3, &chain(&[9]), 3), Err(UploadError::Full));
        assert_eq!(begin(3, &chain(&[1]), 3), Ok(1), "its own file was removed");
        assert_eq!(sum(&uploads.0.lock(), |upload| !upload.chain.is_empty()), ALL_BYTES_MAX);
    }

    #[test]
    fn the_number_of_short_files_is_bounded() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        for n in 0..5000u32 {
            let holder = u8::try_from(n % 200).unwrap();
            _ = uploads.add_part(&chain(&[holder]), &part(&n.to_be_bytes(), 0), &[0], now);
        }
        assert_eq!(uploads.0.lock().len(), ALL_BYTES_MAX / FILE_BYTES_MIN);
    }

    proptest! {
        /// Parts in any order, some of them wrong, from several holders: only announced files are available, and all
        /// limits hold.
        #[test]
        fn only_complete_and_correct_files_are_available(
            deeds in proptest::collection::vec((0..4u8, 0..3u8, 0..80usize, 0..80usize, any::<bool>(), 0..400u64), 1..120)
        ) {
            let (uploads, begin) = (Uploads::default(), Instant::now());
            let mut now = begin;
            let files: Vec<Vec<u8>> = (0..3).map(|seed| file(seed, 64)).collect();
            for (sender, which, from, to, is_spoilt, pause) in deeds {
                now += Duration::from_secs(pause);
                let whole = &files[usize::from(which)];
                let (from, to) = (from.min(64), to.min(64));
                let mut bytes = whole.get(from..to).unwrap_or_default().to_vec();
                if let (true, Some(byte)) = (is_spoilt, bytes.first_mut()) {
                    *byte ^= 0x80;
                }
                let chain = chain(&[sender % 2, 10 + sender]);
                if let Ok(received) = uploads.add_part(&chain, &part(whole, from), &bytes, now) {
                    prop_assert!(received <= 64);
                }
                if let Ok(given) = uploads.complete_file(&chain, &ModuleHash::of_bytes(whole), now) {
                    prop_assert_eq!(&*given, whole);
                }
                let uploads_now = uploads.0.lock();
                prop_assert!(uploads_now.iter().all(|upload| upload.received() <= upload.length && !upload.is_expired(now)));
                prop_assert!(sum(&uploads_now, |_| true) <= ALL_BYTES_MAX);
            }
        }
    }
}
