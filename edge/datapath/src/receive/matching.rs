//! Matching of a block's packets: the channels that want each of them. Work that a block's packets can share is done once
//! for the block.

use crate::account::BlockCharges;
use crate::plan::ForwardingPlan;
use std::hash::{BuildHasher, RandomState};
use weir_abi::{BATCH_PACKETS, flag};
use weir_demux::{ChannelSet, FragmentCounters, Fragments, MoreBytes, Packet};
use weir_netio::Block;
use weir_units::Nanos;
use weir_wire::{PEEK, PEEK_MAX};

/// The most datagrams whose later fragments are tracked at once.
const DATAGRAMS_MAX: usize = 4096;
/// The time for which later fragments of a datagram are tracked: the default of Linux (ipfrag_time).
const DATAGRAM_LIFETIME: Nanos = Nanos(30 * Nanos::SECOND.0);

/// Finds the channels that want the packets of a block, and the fragments of datagrams.
pub(super) struct BlockMatcher {
    fragments: Fragments,
    /// The channels that want every packet, if no filter reads the packet.
    constant: Option<ChannelSet>,
    /// The packets of the present block for each channel. They are valid only for channels in `touched` or `passed`.
    matches: Vec<ChannelMatch>,
    /// Channels that have selected packets of the present block, without those in `passed`.
    touched: ChannelSet,
    /// Channels for which packets of the present block are forwarded without a module.
    passed: ChannelSet,
    /// The number of packets that no channel wanted.
    unwanted: u64,
    /// A buffer for the first bytes of a packet.
    head: Vec<u8>,
    /// A buffer for the places of the channels that want a packet.
    places: Vec<usize>,
}

/// The packets of a block that a channel selects.
#[derive(Debug, Default)]
struct ChannelMatch {
    /// A mask for each batch.
    masks: Vec<u64>,
    packets: u64,
    /// The packets' bytes on the link.
    bytes: u64,
}

impl BlockMatcher {
    pub(super) fn new(plan: &ForwardingPlan) -> Self {
        Self {
            // Keyed with a random number, because the fragments come from untrusted senders.
            fragments: Fragments::new(
                DATAGRAMS_MAX,
                DATAGRAM_LIFETIME,
                RandomState::new().hash_one(DATAGRAMS_MAX),
            ),
            constant: plan.constant(),
            matches: Vec::new(),
            touched: ChannelSet::NONE,
            passed: ChannelSet::NONE,
            unwanted: 0,
            head: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Follows another plan from the next block on.
    pub(super) fn adopt(&mut self, plan: &ForwardingPlan, earlier: &ForwardingPlan) {
        let removed = plan.removed_since(earlier);
        if !removed.is_empty() {
            self.fragments.remove_channels(&removed);
        }
        self.constant = plan.constant();
    }

    /// Channels that have selected packets of the present block, without those that forward them without a module.
    pub(super) fn touched(&self) -> &ChannelSet {
        &self.touched
    }

    /// Channels that forward packets of the present block without a module.
    pub(super) fn passed(&self) -> &ChannelSet {
        &self.passed
    }

    /// The masks of the present block's batches for a channel that is [touched](Self::touched) or
    /// [passed](Self::passed).
    pub(super) fn masks(&self, place: usize) -> &[u64] {
        self.matches.get(place).map_or(&[], |found| &found.masks)
    }

    /// The number of packets that no channel wanted.
    pub(super) fn unwanted(&self) -> u64 {
        self.unwanted
    }

    /// Counters of fragment tracking.
    pub(super) fn fragments(&self) -> FragmentCounters {
        self.fragments.counters()
    }

    /// Finds the channels that want the packets of a block, and counts the packets. Returns the bytes on the link of
    /// all packets.
    pub(super) fn match_block(
        &mut self,
        plan: &ForwardingPlan,
        block: &Block,
        charges: &mut BlockCharges,
    ) -> u64 {
        self.matches.resize_with(plan.routes.len(), ChannelMatch::default);
        (self.touched, self.passed) = (ChannelSet::NONE, ChannelSet::NONE);
        let bytes = match self.constant {
            Some(wanted) => self.match_all(plan, &wanted, block, charges),
            None => {
                let mut bytes = 0;
                for index in block.lead()..block.len() {
                    bytes += self.match_packet(plan, block, index, charges);
                }
                bytes
            }
        };
        for place in self.touched.iter().chain(self.passed.iter()) {
            if let (Some(found), Some(route)) = (self.matches.get(place), plan.route(place))
                && !route.filters_view
            {
                route.counters.count_selected(found.packets, found.bytes);
            }
        }
        bytes
    }

    /// Selects all packets of a block for the channels that want every packet. Fragments are looked at one by one,
    /// because later ones go to the channels of the first.
    fn match_all(
        &mut self,
        plan: &ForwardingPlan,
        wanted: &ChannelSet,
        block: &Block,
        charges: &mut BlockCharges,
    ) -> u64 {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        wanted.collect_into(plan.routes.len(), &mut places);
        places.retain(|place| self.begin(plan, *place, block.batch_count()));
        let (mut all_bytes, mut packets) = (0, 0);
        for (number, batch) in block.batches().enumerate() {
            let (mut fragments, mut bytes) = (0_u64, 0_u64);
            let descriptors = block.descriptors().get(batch.first..).unwrap_or_default();
            let first = if number == 0 { block.lead() } else { 0 };
            for (place, descriptor) in descriptors.iter().enumerate().take(BATCH_PACKETS).skip(first) {
                let is_fragment = descriptor.flags & flag::FRAGMENT != 0;
                fragments |= u64::from(is_fragment) << place;
                bytes += if is_fragment { 0 } else { u64::from(descriptor.wire_len) };
            }
            let mask = batch.mask & !fragments;
            for place in &places {
                if let Some(found) = self.matches.get_mut(*place)
                    && let Some(word) = found.masks.get_mut(number)
                {
                    *word |= mask;
                    found.packets += u64::from(mask.count_ones());
                    found.bytes += bytes;
                }
            }
            all_bytes += bytes;
            packets += u64::from(mask.count_ones());
            while fragments != 0 {
                let index = batch.first + fragments.trailing_zeros() as usize;
                all_bytes += self.match_packet(plan, block, index, charges);
                fragments &= fragments - 1;
            }
        }
        charges.count_packets(packets, &places);
        self.unwanted += if places.is_empty() { packets } else { 0 };
        self.places = places;
        all_bytes
    }

    /// Finds the channels that want a packet. Returns its bytes on the link.
    fn match_packet(
        &mut self,
        plan: &ForwardingPlan,
        block: &Block,
        index: usize,
        charges: &mut BlockCharges,
    ) -> u64 {
        let Some(descriptor) = block.descriptors().get(index) else { return 0 };
        let mut wanted = ChannelSet::NONE;
        let mut enough = PEEK;
        loop {
            block.copy_head(index, enough, &mut self.head);
            let (cap_len, wire_len) = (descriptor.cap_len, descriptor.wire_len);
            let packet = Packet { head: &self.head, cap_len, wire_len };
            match plan.joined.channels(&packet, &mut wanted) {
                Ok(()) => break,
                Err(MoreBytes { enough: more }) => enough = usize::try_from(more).unwrap_or(usize::MAX),
            }
        }
        if self.fragments.apply(descriptor, &self.head, &mut wanted).is_err() {
            block.copy_head(index, PEEK_MAX, &mut self.head);
            // This many bytes always suffice.
            _ = self.fragments.apply(descriptor, &self.head, &mut wanted);
        }
        wanted.keep(&plan.active);
        if descriptor.flags & flag::LATER_FRAGMENT != 0 {
            plan.add_channels_of_selections(&mut wanted);
        }
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        wanted.collect_into(plan.routes.len(), &mut places);
        charges.count_packets(1, &places);
        self.unwanted += u64::from(places.is_empty());
        let bytes = u64::from(descriptor.wire_len);
        for &place in &places {
            if self.begin(plan, place, block.batch_count())
                && let Some(found) = self.matches.get_mut(place)
                && let Some(word) = found.masks.get_mut(index / BATCH_PACKETS)
            {
                *word |= 1 << (index % BATCH_PACKETS);
                found.packets += 1;
                found.bytes += bytes;
            }
        }
        self.places = places;
        bytes
    }

    /// Begins to select packets of the present block for a channel. Returns false if there is no such channel.
    #[inline]
    fn begin(&mut self, plan: &ForwardingPlan, place: usize, batches: usize) -> bool {
        if self.touched.contains(place) || self.passed.contains(place) {
            return true;
        }
        let (Some(found), Some(route)) = (self.matches.get_mut(place), plan.route(place)) else {
            return false;
        };
        (found.packets, found.bytes) = (0, 0);
        found.masks.clear();
        found.masks.resize(batches, 0);
        if route.forwards_without_module() {
            self.passed.insert(place)
        } else {
            self.touched.insert(place)
        }
        true
    }
}
