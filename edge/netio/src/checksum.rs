//! The checksum state of each packet of a block, as the kernel reports it.

use crate::block::BATCHES;
use weir_abi::BATCH_PACKETS;

/// The state of a packet's TCP, UDP or SCTP checksum, as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// The source does not report the state: a capture file, AF_XDP, a TAP or TUN device.
    #[default]
    Unknown,
    /// The sending host left the checksum to its network card, so it is not computed yet.
    Offloaded,
    /// The checksum is as its sender computed it, right or wrong.
    Complete,
}

/// The states of a block's packets, by the index of their descriptors. Allocates nothing if all are unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checksums(Option<Box<Words>>);

/// The packets of each reported state, as one bit for each packet.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    offloaded: [u64; BATCHES],
    complete: [u64; BATCHES],
}

impl Checksums {
    /// Sets the state of the packet with this index, at most once.
    #[inline(always)]
    pub(crate) fn set(&mut self, index: usize, checksum: ChecksumStatus) {
        if checksum == ChecksumStatus::Unknown {
            return;
        }
        let words = self.0.get_or_insert_default();
        let words =
            if checksum == ChecksumStatus::Offloaded { &mut words.offloaded } else { &mut words.complete };
        if let Some(word) = words.get_mut(index / BATCH_PACKETS) {
            *word |= 1 << (index % BATCH_PACKETS);
        }
    }

    pub(crate) fn get(&self, index: usize) -> ChecksumStatus {
        let Some(words) = &self.0 else { return ChecksumStatus::Unknown };
        let is_set = |words: &[u64; BATCHES]| {
            words.get(index / BATCH_PACKETS).is_some_and(|word| word >> (index % BATCH_PACKETS) & 1 == 1)
        };
        match (is_set(&words.offloaded), is_set(&words.complete)) {
            (true, _) => ChecksumStatus::Offloaded,
            (_, true) => ChecksumStatus::Complete,
            _ => ChecksumStatus::Unknown,
        }
    }
}
