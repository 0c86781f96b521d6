//! The ways out for packets that go on.

use super::file::FileEnd;
use super::lane::Outlet;
use super::tap::TapEnd;
use crate::effects::{self, Patches};
use std::sync::Arc;
use weir_abi::{BATCH_PACKETS, Descriptor};
use weir_netio::{Block, Loss};
use weir_units::Timestamp;
use weir_wire::LinkType;

/// A way out for packets. Clones are the same way. Each way counts the packets that it cannot take.
#[derive(Clone, Debug)]
pub enum Egress {
    /// A capture file.
    File(Arc<FileEnd>),
    /// A socket of an interface: an output channel of its link.
    Link(Outlet),
    /// A TAP device: the programs behind it.
    Tap(Arc<TapEnd>),
    /// Nothing: the packets end here.
    Nothing,
}

/// A packet as it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) bytes: &'a [u8],
    /// Describes the packet as it came.
    pub(super) descriptor: &'a Descriptor,
}

impl Egress {
    /// Returns true if packets leave through an interface, so that their checksums have to be complete.
    fn leaves(&self) -> bool {
        matches!(self, Self::Link(_) | Self::Tap(_))
    }

    fn send<'a>(&self, packets: impl Iterator<Item = Outgoing<'a>>) {
        match self {
            Self::File(file) => file.write_all(packets),
            Self::Link(outlet) => {
                let mut offers = outlet.offers();
                for packet in packets {
                    if effects::is_cut(packet.descriptor) {
                        offers.cut();
                    } else {
                        // What does not go is counted.
                        _ = offers.offer(packet.bytes);
                    }
                }
            }
            Self::Tap(end) => {
                for packet in packets {
                    if effects::is_cut(packet.descriptor) {
                        end.tally.lost(Loss::Cut);
                    } else {
                        end.offer(packet.bytes);
                    }
                }
            }
            Self::Nothing => {}
        }
    }

    /// Sends an Ethernet frame that a module made at this time. Its checksum is [completed](effects::complete_frame) where it leaves.
    pub fn send_made(&self, frame: &[u8], ts: Timestamp) {
        match self {
            Self::File(file) => file.write(ts, frame),
            // What does not go is counted.
            Self::Link(outlet) => _ = outlet.offer_made(frame),
            Self::Tap(end) => {
                let mut copy = frame.to_vec();
                effects::complete_frame(&mut copy, LinkType::Ethernet);
                end.offer(&copy);
            }
            Self::Nothing => {}
        }
    }
}

/// Room for private copies of a batch's packets, which no module sees.
#[derive(Debug, Default)]
pub struct Copies(Vec<Vec<u8>>);

impl Copies {
    /// Has those packets of a batch go on that are in the mask, with their patches, in all of these ways, one way after the other: none waits for
    /// another. Packets whose bytes are lost do not go on. Returns [how many](effects::apply) patches could not be made.
    pub fn pass(
        &mut self,
        ways: &[Egress],
        block: &Block,
        batch: usize,
        mask: u64,
        patches: &mut Patches<'_>,
    ) -> u64 {
        self.0.resize_with(BATCH_PACKETS, Vec::new);
        let first = block.batch(batch).first;
        for (place, copy) in self.0.iter_mut().enumerate().filter(|(place, _)| mask >> place & 1 == 1) {
            block.copy_packet(first + place, copy);
        }
        // Asked for after they were copied: of bytes that were lost until then, the copies may have zeros.
        let whole = block.whole().saturating_sub(first);
        let leaves = ways.iter().any(Egress::leaves);
        let descriptors = block.descriptors().get(first..).unwrap_or_default();
        let there = |place: &usize| mask >> place & 1 == 1 && *place < whole;
        let mut unmade = 0;
        for (place, (copy, descriptor)) in self.0.iter_mut().zip(descriptors).enumerate() {
            if there(&place) {
                unmade += effects::apply(copy, descriptor, leaves, patches.of(first + place));
            }
        }
        for way in ways {
            let packets = self.0.iter().zip(descriptors).enumerate().filter(|(place, _)| there(place));
            way.send(packets.map(|(_, (bytes, descriptor))| Outgoing { bytes, descriptor }));
        }
        unmade
    }
}
