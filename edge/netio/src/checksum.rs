//! The kernel's word on the checksum of each packet of a block.

use crate::block::BATCHES;
use weir_abi::BATCH_PACKETS;

/// The state of a packet's TCP, UDP or SCTP checksum, as the kernel tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// The source says nothing: a capture file, AF_XDP, a TAP or TUN device.
    #[default]
    Unknown,
    /// The sending host left it to its network card, so it is not computed yet.
    Left,
    /// It is as its sender made it, right or wrong.
    Finished,
}

/// The states of a block's packets, by the place of their descriptors. A block of a source that says nothing has no memory for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checksums(Option<Box<Words>>);

#[derive(Clone, Copy, Debug, Default)]
struct Words {
    left: [u64; BATCHES],
    finished: [u64; BATCHES],
}

impl Checksums {
    /// Notes the state of the packet at this place; a place is noted once.
    #[inline(always)]
    pub(crate) fn note(&mut self, place: usize, checksum: ChecksumStatus) {
        if checksum == ChecksumStatus::Unknown {
            return;
        }
        let words = self.0.get_or_insert_default();
        let words = if checksum == ChecksumStatus::Left { &mut words.left } else { &mut words.finished };
        if let Some(word) = words.get_mut(place / BATCH_PACKETS) {
            *word |= 1 << (place % BATCH_PACKETS);
        }
    }

    pub(crate) fn of(&self, place: usize) -> ChecksumStatus {
        let Some(words) = &self.0 else { return ChecksumStatus::Unknown };
        let is_in = |words: &[u64; BATCHES]| {
            words.get(place / BATCH_PACKETS).is_some_and(|word| word >> (place % BATCH_PACKETS) & 1 == 1)
        };
        match (is_in(&words.left), is_in(&words.finished)) {
            (true, _) => ChecksumStatus::Left,
            (_, true) => ChecksumStatus::Finished,
            _ => ChecksumStatus::Unknown,
        }
    }
}
