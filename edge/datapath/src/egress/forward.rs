//! The ways out for packets that go on.

use super::file::FileEnd;
use super::lane::TxPacketSink;
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
    Link(TxPacketSink),
    /// A TAP device: the programs behind it.
    Tap(Arc<TapEnd>),
    /// Nothing: the packets end here.
    Nothing,
}

/// A packet as it goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardedPacket<'a> {
    pub(super) bytes: &'a [u8],
    /// Describes the packet as it came.
    pub(super) descriptor: &'a Descriptor,
    /// False where its checksum was left to a network card and could not be computed.
    pub(super) is_finished: bool,
}

impl Egress {
    /// Returns true if packets leave through an interface, so that their checksums have to be complete.
    fn leaves(&self) -> bool {
        matches!(self, Self::Link(_) | Self::Tap(_))
    }

    fn send<'a>(&self, packets: impl Iterator<Item = ForwardedPacket<'a>>) {
        match self {
            Self::File(file) => file.write_all(packets),
            Self::Link(outlet) => {
                let mut offers = outlet.offers();
                for packet in packets {
                    if effects::is_cut(packet.descriptor) {
                        offers.cut();
                    } else if !packet.is_finished {
                        outlet.tally().lost(Loss::Malformed);
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
                    } else if !packet.is_finished {
                        end.tally.lost(Loss::Malformed);
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

/// A longer copy is not kept for the next packet.
const COPY_BYTES: usize = 2048;

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
        let (mut unmade, mut finished) = (0, 0_u64);
        for (place, (copy, descriptor)) in self.0.iter_mut().zip(descriptors).enumerate() {
            if there(&place) {
                let (checksum, patches) = (block.checksum(first + place), patches.of(first + place));
                let applied = effects::apply(copy, descriptor, checksum, leaves, patches);
                unmade += applied.unmade;
                finished |= u64::from(applied.is_finished) << place;
            }
        }
        for way in ways {
            let packets = self.0.iter().zip(descriptors).enumerate().filter(|(place, _)| there(place));
            way.send(packets.map(|(place, (bytes, descriptor))| {
                let is_finished = finished >> place & 1 == 1;
                ForwardedPacket { bytes, descriptor, is_finished }
            }));
        }
        // A batch of the longest packets leaves no more behind than one of usual ones.
        self.0.iter_mut().filter(|copy| copy.capacity() > COPY_BYTES).for_each(|copy| *copy = Vec::new());
        unmade
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::TxQueue;
    use super::*;
    use std::io::Read;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use weir_netio::{Capture, CaptureInput, CaptureNext, PacketWriter};
    use weir_sched::link::{ChannelTerms, Framing, LinkScheduler, LinkSchedulerConfig, Pacing, QueueLimit};
    use weir_units::{BitsPerSecond, Bytes, Nanos};

    /// An output channel of a link that never sends.
    fn outlet() -> TxPacketSink {
        let rate = BitsPerSecond(1_000_000);
        let config = LinkSchedulerConfig {
            rate,
            reservable: BitsPerSecond(0),
            framing: Framing::NONE,
            frame_max: 10_000,
            pacing: Pacing::Device,
            channels_max: 1,
        };
        let queue = QueueLimit { packets: 1000, bytes: Bytes(1 << 30) };
        let terms = ChannelTerms { reservation: None, cap: None, weight: 1, queue };
        let id = LinkScheduler::<Vec<u8>>::new(config).unwrap().open(terms, Nanos(0)).unwrap();
        TxPacketSink(Arc::new(TxQueue::new(id, (LinkType::Ethernet, 10_000), queue, None, Arc::default())))
    }

    #[test]
    fn a_file_that_is_slow_to_take_packets_keeps_no_link_from_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.pcap");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::File::open(path).unwrap()
        });
        // Many times what a pipe holds, and a writer's buffer.
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
        for _ in 0..500 {
            [0_u32, 0, 9000, 9000].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
            bytes.resize(bytes.len() + 9000, 0);
        }
        let CaptureNext::Block(block) =
            Capture::open(CaptureInput::Bytes(bytes)).unwrap().next_block().unwrap()
        else {
            panic!("there is a block")
        };
        let (link, file) = (outlet(), Arc::new(FileEnd::new(PacketWriter::create(&path, None).unwrap())));
        let ways = [Egress::Link(link.clone()), Egress::File(Arc::clone(&file))];
        let mut pipe = reader.join().unwrap();
        let all = u32::try_from(block.packets()).unwrap();
        let (told, hears) = channel();
        let writing = std::thread::spawn(move || {
            let mut copies = Copies::default();
            for batch in block.batches().enumerate().map(|(number, batch)| (number, batch.mask)) {
                copies.pass(&ways, &block, batch.0, batch.1, &mut Patches::default());
                // What the link has is asked for while the file is written, as its thread does.
                _ = told.send(());
            }
        });
        // The pipe is full soon: then the file waits, and this thread still reaches the link.
        while hears.recv_timeout(Duration::from_secs(1)).is_ok() {}
        let (asked, answered) = channel();
        std::thread::spawn({
            let link = link.clone();
            // The writing thread may not have had its turn.
            move || {
                while link.waiting() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                asked.send(link.waiting())
            }
        });
        let waiting = answered.recv_timeout(Duration::from_secs(60)).expect("the link's queue is not locked");
        assert!(waiting > 0 && waiting < all && !writing.is_finished(), "{waiting}");
        let drained = std::thread::spawn(move || pipe.read_to_end(&mut Vec::new()).unwrap());
        writing.join().unwrap();
        assert_eq!((link.waiting(), file.check().is_ok()), (all, true));
        file.close().unwrap().finish().unwrap();
        assert!(drained.join().unwrap() > all as usize * 9000);
    }
}
