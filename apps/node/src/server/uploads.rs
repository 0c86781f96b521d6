//! Files of modules that come in parts: what is there of each, for a while, so that whoever sends one can go on after his connection has broken.
//!
//! A file is its sender's: he is known by the last block of his chain, and what others send is as if it was not there. What is kept is bounded for each prefix of a
//! chain, so that passing a right on makes no room, and in all; where all is full, of those who take up most the file gives way that was left alone for longest. Nothing
//! is ever given out that is not whole, and of the hash by which it was announced.

use crate::control::protocol::FilePart;
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_admission::MODULE_BYTES_MAX;
use weir_trust::credential::PrefixId;
use weir_trust::grant::ModuleHash;
use weir_units::Bytes;

/// Bytes of all holders' files together, and of the operator's.
const ALL_BYTES_MAX: usize = 8 * MODULE_BYTES_MAX;
/// Of those under each prefix of a chain.
const CHAIN_BYTES_MAX: usize = 2 * MODULE_BYTES_MAX;
/// A short file counts as so many bytes: so there are not too many of them either.
const FILE_BYTES_MIN: usize = 256 << 10;
/// How long a file is kept that nobody sends more of, or loads.
const KEPT: Duration = Duration::from_secs(600);
/// How long a file may take to come, and stay, however often something is done with it.
const LASTS: Duration = Duration::from_secs(3600);

/// Why a part is not taken, or a file is not there. To blame is whoever sends it, but for [`Full`](Self::Full).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("a module's file has between 1 and {max} bytes, not {0}", max = MODULE_BYTES_MAX)]
    Length(u32),
    #[error("the part ends {0} bytes behind the end of its file")]
    Beyond(usize),
    #[error(
        "what has come is not the file of SHA-256 {0}: it was changed on its way or while it was read; send it again"
    )]
    Other(ModuleHash),
    #[error("there is no whole file of SHA-256 {0} of yours here (any more); send it again")]
    Missing(ModuleHash),
    #[error(
        "files that are sent to the node under the same credential, or what was made of it, have up to {max} together; try again when they are loaded, or in {kept} minutes",
        max = Bytes(CHAIN_BYTES_MAX as u64), kept = KEPT.as_secs() / 60
    )]
    Chain,
    #[error("others are sending so much to the node that there is no room for this file; try again")]
    Full,
}

/// All files that have come, or come.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<Vec<Upload>>);

#[derive(Debug)]
struct Upload {
    /// Whose it is; empty for the operator's.
    chain: Vec<PrefixId>,
    part_of: ModuleHash,
    length: usize,
    come: Come,
    begun: Instant,
    touched: Instant,
}

#[derive(Debug)]
enum Come {
    /// A beginning, and the hash of it.
    InPart(Vec<u8>, Box<Sha256>),
    /// All of it, and its hash is what it should be.
    Whole(Arc<Vec<u8>>),
}

impl Upload {
    fn is_of(&self, chain: &[PrefixId], file: &ModuleHash) -> bool {
        self.chain.last() == chain.last() && self.part_of == *file
    }

    fn there(&self) -> usize {
        match &self.come {
            Come::InPart(bytes, _) => bytes.len(),
            Come::Whole(bytes) => bytes.len(),
        }
    }

    /// What it counts as.
    fn size(&self) -> usize {
        size(self.length)
    }

    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.touched) >= KEPT
            || now.saturating_duration_since(self.begun) >= LASTS
    }
}

fn size(length: usize) -> usize {
    length.max(FILE_BYTES_MIN)
}

impl Uploads {
    fn lock(&self) -> MutexGuard<'_, Vec<Upload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was kept for long enough.
    pub(crate) fn tidy(&self, now: Instant) {
        self.lock().retain(|upload| !upload.is_over(now));
    }

    /// Takes a part of a file, if it is the next one. Says how much of the file is there then.
    pub(crate) fn take(
        &self,
        chain: &[PrefixId],
        part: &FilePart,
        bytes: &[u8],
        now: Instant,
    ) -> Result<u32, UploadError> {
        let length = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        if length == 0 || length > MODULE_BYTES_MAX {
            return Err(UploadError::Length(part.bytes));
        }
        let mut uploads = self.lock();
        uploads.retain(|upload| !upload.is_over(now));
        // A file has one length: what was said before was wrong, or this is, and only the hash will tell.
        uploads.retain(|upload| !upload.is_of(chain, &part.file) || upload.length == length);
        let place = match uploads.iter().position(|upload| upload.is_of(chain, &part.file)) {
            Some(place) => place,
            None if part.from > 0 || bytes.is_empty() => return Ok(0),
            None => {
                make_room(&mut uploads, chain, size(length))?;
                uploads.push(Upload {
                    chain: chain.to_vec(),
                    part_of: part.file,
                    length,
                    // All that it can need: what is not written costs no memory.
                    come: Come::InPart(Vec::with_capacity(length), Box::default()),
                    begun: now,
                    touched: now,
                });
                uploads.len() - 1
            }
        };
        let Some(upload) = uploads.get_mut(place) else { return Ok(0) };
        let there = upload.there();
        let mut is_wrong = false;
        if let Come::InPart(come, hash) = &mut upload.come
            && usize::try_from(part.from) == Ok(there)
            && !bytes.is_empty()
        {
            let end = there + bytes.len();
            if end > length {
                return Err(UploadError::Beyond(end - length));
            }
            come.extend_from_slice(bytes);
            hash.update(bytes);
            if end == length {
                is_wrong = ModuleHash(hash.clone().finalize().into()) != part.file;
                upload.come = Come::Whole(Arc::new(std::mem::take(come)));
            }
        }
        upload.touched = now;
        let there = upload.there();
        if is_wrong {
            uploads.remove(place);
            return Err(UploadError::Other(part.file));
        }
        // No longer than it was said to be.
        Ok(u32::try_from(there).unwrap_or(part.bytes))
    }

    /// A file of which all is there. It stays there for whoever has not heard that it was loaded, and loads it again.
    pub(crate) fn file(
        &self,
        chain: &[PrefixId],
        file: &ModuleHash,
        now: Instant,
    ) -> Result<Arc<Vec<u8>>, UploadError> {
        let mut uploads = self.lock();
        uploads.retain(|upload| !upload.is_over(now));
        let missing = UploadError::Missing(*file);
        let upload = uploads.iter_mut().find(|upload| upload.is_of(chain, file)).ok_or(missing)?;
        upload.touched = now;
        match &upload.come {
            Come::Whole(bytes) => Ok(Arc::clone(bytes)),
            Come::InPart(..) => Err(missing),
        }
    }
}

/// Makes room for a file that counts as so many bytes.
fn make_room(uploads: &mut Vec<Upload>, chain: &[PrefixId], size: usize) -> Result<(), UploadError> {
    for (depth, link) in chain.iter().enumerate() {
        while sum(uploads, |upload| upload.chain.contains(link)) + size > CHAIN_BYTES_MAX {
            make_room_under(uploads, chain, (depth, link), size).ok_or(UploadError::Chain)?;
        }
    }
    // What the operator sends takes up nothing of what there is for holders, nor they of his.
    let is_alike = |upload: &Upload| upload.chain.is_empty() == chain.is_empty();
    while sum(uploads, is_alike) + size > ALL_BYTES_MAX {
        let of = |first: Option<&PrefixId>| {
            sum(uploads, |upload| is_alike(upload) && upload.chain.first() == first)
        };
        let most =
            uploads.iter().filter(|upload| is_alike(upload)).map(|upload| upload.chain.first().copied());
        let most = most.max_by_key(|first| of(first.as_ref())).ok_or(UploadError::Full)?;
        if of(most.as_ref()) > of(chain.first()) + size {
            oldest(uploads, |upload| is_alike(upload) && upload.chain.first() == most.as_ref())
        } else {
            oldest(uploads, |upload| upload.chain.last() == chain.last())
        }
        .ok_or(UploadError::Full)?;
    }
    Ok(())
}

/// Makes room among the files under one link of a chain. Files of the sender's descendants give way first. Then files of the sibling that takes up most give way, if the sender would
/// still have less; otherwise the sender's own. Files of ancestors never give way.
fn make_room_under(
    uploads: &mut Vec<Upload>,
    chain: &[PrefixId],
    (depth, link): (usize, &PrefixId),
    size: usize,
) -> Option<()> {
    let is_below = |upload: &Upload| upload.chain.len() > chain.len() && upload.chain.starts_with(chain);
    if let Some(()) = oldest(uploads, is_below) {
        return Some(());
    }
    let is_of = |upload: &Upload, child: &PrefixId| {
        upload.chain.get(depth) == Some(link) && upload.chain.get(depth + 1) == Some(child)
    };
    let of = |uploads: &[Upload], child: &PrefixId| sum(uploads, |upload| is_of(upload, child));
    let children = uploads.iter().filter(|upload| upload.chain.get(depth) == Some(link));
    let most = children.filter_map(|upload| upload.chain.get(depth + 1).copied());
    let most = most.max_by_key(|child| of(uploads, child));
    if let (Some(own), Some(most)) = (chain.get(depth + 1), most)
        && of(uploads, &most) > of(uploads, own) + size
    {
        return oldest(uploads, |upload| is_of(upload, &most));
    }
    oldest(uploads, |upload| upload.chain.last() == chain.last())
}

fn sum(uploads: &[Upload], which: impl Fn(&Upload) -> bool) -> usize {
    uploads.iter().filter(|upload| which(upload)).map(Upload::size).sum()
}

/// Forgets the one of these that was left alone for longest, if there is any.
fn oldest(uploads: &mut Vec<Upload>, which: impl Fn(&Upload) -> bool) -> Option<()> {
    let all = uploads.iter().enumerate().filter(|(_, upload)| which(upload));
    let (place, _) = all.min_by_key(|(_, upload)| upload.touched)?;
    uploads.remove(place);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A chain of these.
    fn chain(ids: &[u8]) -> Vec<PrefixId> {
        let letter = |number: u8| char::from(b'a' + number % 26);
        let text = |id: u8| format!("weir-id:{}{}{}", letter(id), letter(id / 26), "a".repeat(30));
        ids.iter().map(|id| text(*id).parse().unwrap()).collect()
    }

    fn file(seed: u8, length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
    }

    fn part(whole: &[u8], from: usize) -> FilePart {
        let [bytes, from] = [whole.len(), from].map(|count| u32::try_from(count).unwrap());
        FilePart { file: ModuleHash::of(whole), bytes, from }
    }

    /// Sends it all in parts of so many bytes.
    fn send(
        uploads: &Uploads,
        chain: &[PrefixId],
        whole: &[u8],
        each: usize,
        now: Instant,
    ) -> Result<u32, UploadError> {
        let mut there = uploads.take(chain, &part(whole, 0), &[], now)?;
        for (place, bytes) in whole.chunks(each).enumerate() {
            there = uploads.take(chain, &part(whole, place * each), bytes, now)?;
        }
        Ok(there)
    }

    #[test]
    fn what_comes_in_parts_is_given_out_when_it_is_whole_and_to_whoever_has_sent_it() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let (alice, bob) = (chain(&[1]), chain(&[2]));
        let whole = file(0, 1000);
        let hash = ModuleHash::of(&whole);
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &whole[..400], now), Ok(400));
        assert_eq!(uploads.file(&alice, &hash, now), Err(UploadError::Missing(hash)));
        // A part that is not the next one changes nothing: behind a gap, or what has come already.
        assert_eq!(uploads.take(&alice, &part(&whole, 500), &whole[500..], now), Ok(400));
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &whole[..400], now), Ok(400));
        // Nobody else can go on with it, see it, or spoil it: another one, one who got the right from him, from whom he has it, and the operator.
        for other in [bob, chain(&[1, 3]), chain(&[])] {
            assert_eq!(uploads.take(&other, &part(&whole, 400), &whole[400..], now), Ok(0));
            assert_eq!(uploads.file(&other, &hash, now), Err(UploadError::Missing(hash)));
        }
        assert_eq!(uploads.take(&alice, &part(&whole, 400), &whole[400..], now), Ok(1000));
        assert_eq!(uploads.file(&alice, &hash, now).unwrap()[..], whole);
        // What comes then changes nothing.
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &[9], now), Ok(1000));
        assert_eq!(uploads.file(&alice, &hash, now).unwrap()[..], whole);
    }

    #[test]
    fn what_is_not_what_was_announced_is_never_given_out() {
        let (uploads, now, alice) = (Uploads::default(), Instant::now(), chain(&[1]));
        let whole = file(0, 1000);
        let hash = ModuleHash::of(&whole);
        let mut other = whole.clone();
        other[17] ^= 1;
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &other[..400], now), Ok(400));
        assert_eq!(
            uploads.take(&alice, &part(&whole, 400), &other[400..], now),
            Err(UploadError::Other(hash))
        );
        // It begins anew.
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &[], now), Ok(0));
        // More than there is, at once and in the end; and lengths that no module has.
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &[0; 1001], now), Err(UploadError::Beyond(1)));
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &whole[..999], now), Ok(999));
        assert_eq!(uploads.take(&alice, &part(&whole, 999), &[0; 3], now), Err(UploadError::Beyond(2)));
        for bytes in [0, 8 * (1 << 20) + 1, u32::MAX] {
            let part = FilePart { bytes, ..part(&whole, 0) };
            assert_eq!(uploads.take(&alice, &part, &[0], now), Err(UploadError::Length(bytes)));
        }
        // Another length is another file; what there was is forgotten.
        let longer = FilePart { bytes: 2000, ..part(&whole, 0) };
        assert_eq!(uploads.take(&alice, &longer, &[], now), Ok(0));
        assert_eq!(uploads.take(&alice, &part(&whole, 0), &[], now), Ok(0));
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let (uploads, now, alice) = (Uploads::default(), Instant::now(), chain(&[1]));
        let whole = file(0, 1000);
        let take = |from: usize, to: usize, at: Duration| {
            uploads.take(&alice, &part(&whole, from), &whole[from..to], now + at)
        };
        assert_eq!(take(0, 10, Duration::ZERO), Ok(10));
        assert_eq!(take(10, 20, KEPT - Duration::from_secs(1)), Ok(20));
        uploads.tidy(now + KEPT);
        assert_eq!(take(20, 30, KEPT), Ok(30));
        uploads.tidy(now + KEPT + KEPT);
        assert_eq!(uploads.lock().len(), 0);
        // A byte now and then does not keep it longer than it may last.
        let mut at = Duration::ZERO;
        for byte in 0.. {
            if take(byte, byte + 1, at) == Ok(0) {
                break;
            }
            at += KEPT / 2;
        }
        assert_eq!(at, LASTS);
    }

    #[test]
    fn passing_a_right_on_makes_no_room_and_ones_own_gives_way() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let most = |seed| file(seed, MODULE_BYTES_MAX);
        let (first, second) = (chain(&[1, 2]), chain(&[1, 3]));
        for (seed, sender) in [(1, &first), (2, &second)] {
            assert!(send(&uploads, sender, &most(seed), MODULE_BYTES_MAX, now).is_ok());
        }
        // The third one's, under the same grant; but not one of another one's.
        let third = chain(&[1, 4]);
        assert_eq!(uploads.take(&third, &part(&most(3), 0), &[1], now), Err(UploadError::Chain));
        let later = now + Duration::from_secs(1);
        assert_eq!(uploads.take(&chain(&[5]), &part(&most(3), 0), &[1], later), Ok(1));
        // His own gives way to what he sends next.
        assert_eq!(uploads.take(&first, &part(&most(4), 0), &[1], later), Ok(1));
        assert!(uploads.file(&first, &ModuleHash::of(&most(1)), later).is_err());
        assert!(uploads.file(&second, &ModuleHash::of(&most(2)), later).is_ok());
    }

    #[test]
    fn a_delegators_file_has_room_whatever_its_delegates_send_and_theirs_have_equal_parts() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let most = |seed| file(seed, MODULE_BYTES_MAX);
        let begin = |seed: u8, sender: &[u8], at: u64| {
            let at = now + Duration::from_secs(at);
            uploads.take(&chain(sender), &part(&most(seed), 0), &[1], at)
        };
        // One delegate, with keys of its own, takes up all there is.
        assert_eq!((begin(1, &[1, 2, 6], 1), begin(2, &[1, 2, 7], 2)), (Ok(1), Ok(1)));
        // Its sibling gets a half, and a third delegate nothing more.
        assert_eq!((begin(3, &[1, 3], 3), begin(4, &[1, 4], 4)), (Ok(1), Err(UploadError::Chain)));
        // Their delegator has room for all of its files, and theirs give way.
        assert_eq!((begin(5, &[1], 5), begin(6, &[1], 6)), (Ok(1), Ok(1)));
        assert!(uploads.lock().iter().all(|upload| upload.chain == chain(&[1])));
        assert_eq!(begin(7, &[1, 3], 7), Err(UploadError::Chain));
    }

    #[test]
    fn who_takes_up_most_gives_way_and_nobody_takes_all() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        let whole = |seed| file(seed, MODULE_BYTES_MAX);
        let begin = |seed: u8, sender: &[PrefixId], at: u64| {
            let at = now + Duration::from_secs(at);
            uploads.take(sender, &part(&whole(seed), 0), &[1], at)
        };
        for sender in 1..=4 {
            assert_eq!(begin(1, &chain(&[sender]), 1), Ok(1));
            assert_eq!(begin(2, &chain(&[sender]), 2), Ok(1));
        }
        // Each of four has two. The fifth gets a place of one who has two, and the operator's are apart.
        assert_eq!(begin(3, &chain(&[5]), 3), Ok(1));
        assert_eq!(begin(3, &chain(&[]), 3), Ok(1));
        for sender in 6..=8 {
            assert_eq!(begin(3, &chain(&[sender]), 3), Ok(1));
        }
        // Now each of eight has one.
        assert_eq!(begin(3, &chain(&[9]), 3), Err(UploadError::Full));
        assert_eq!(begin(3, &chain(&[1]), 3), Ok(1), "his own gave way");
        assert_eq!(sum(&uploads.lock(), |upload| !upload.chain.is_empty()), ALL_BYTES_MAX);
    }

    #[test]
    fn short_files_do_not_make_many() {
        let (uploads, now) = (Uploads::default(), Instant::now());
        for n in 0..5000u32 {
            let holder = u8::try_from(n % 200).unwrap();
            _ = uploads.take(&chain(&[holder]), &part(&n.to_be_bytes(), 0), &[0], now);
        }
        assert_eq!(uploads.lock().len(), ALL_BYTES_MAX / FILE_BYTES_MIN);
    }

    proptest! {
        /// Parts in any order, some of them wrong, from several senders: what is given out is what was announced, and all bounds hold.
        #[test]
        fn whatever_is_sent_only_whole_files_are_given_out(
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
                if let Ok(there) = uploads.take(&chain, &part(whole, from), &bytes, now) {
                    prop_assert!(there <= 64);
                }
                if let Ok(given) = uploads.file(&chain, &ModuleHash::of(whole), now) {
                    prop_assert_eq!(&*given, whole);
                }
                let there = uploads.lock();
                prop_assert!(there.iter().all(|upload| upload.there() <= upload.length && !upload.is_over(now)));
                prop_assert!(sum(&there, |_| true) <= ALL_BYTES_MAX);
            }
        }
    }
}
