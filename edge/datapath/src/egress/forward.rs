//! Forwarding of packets into their egress.

use super::file::FileEgress;
use super::tap::TapEgress;
use super::tx_queue::TxPacketSink;
use crate::effects::{self, Patches};
use std::sync::Arc;
use weir_abi::{BATCH_PACKETS, Descriptor};
use weir_netio::{Block, Loss};
use weir_units::Timestamp;
use weir_wire::LinkType;

/// The destination of forwarded packets. Clones share the destination. The destination counts the packets that it does
/// not accept.
#[derive(Clone, Debug)]
pub enum Egress {
    /// A capture file.
    File(Arc<FileEgress>),
    /// An output channel of a link.
    Link(TxPacketSink),
    /// A TAP device: the system receives the packets.
    Tap(Arc<TapEgress>),
    /// No destination: the packets end here.
    Nothing,
}

/// A packet to forward.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForwardedPacket<'a> {
    pub(super) bytes: &'a [u8],
    /// The descriptor of the packet as it was received.
    pub(super) descriptor: &'a Descriptor,
    /// False if the packet's checksum was left to a network card and could not be computed.
    pub(super) is_complete: bool,
}

impl Egress {
    /// Returns true if packets leave through an interface, which needs complete checksums.
    fn leaves(&self) -> bool {
        matches!(self, Self::Link(_) | Self::Tap(_))
    }

    /// Sends packets that have been patched and completed.
    fn send<'a>(&self, packets: impl Iterator<Item = ForwardedPacket<'a>>) {
        match self {
            Self::File(file) => file.write_all(packets),
            Self::Link(sink) => {
                let mut batch = sink.begin_batch();
                for packet in packets {
                    if effects::is_cut(packet.descriptor) {
                        batch.count_truncated(packet.descriptor.wire_len);
                    } else if !packet.is_complete {
                        sink.counters().lost(Loss::Malformed);
                    } else {
                        // The channel counts a rejected frame.
                        _ = batch.offer(packet.bytes);
                    }
                }
            }
            Self::Tap(tap) => {
                for packet in packets {
                    if effects::is_cut(packet.descriptor) {
                        tap.counters.lost(Loss::Cut);
                    } else if !packet.is_complete {
                        tap.counters.lost(Loss::Malformed);
                    } else {
                        tap.offer(packet.bytes);
                    }
                }
            }
            Self::Nothing => {}
        }
    }

    /// Sends an Ethernet frame that a module built at time `ts`. The checksum is
    /// [completed](effects::complete_frame) if the frame leaves through an interface.
    pub fn send_from_module(&self, frame: &[u8], ts: Timestamp) {
        match self {
            Self::File(file) => file.write(ts, frame),
            // The channel counts a rejected frame.
            Self::Link(sink) => _ = sink.offer_from_module(frame),
            Self::Tap(tap) => {
                let mut copy = frame.to_vec();
                effects::complete_frame(&mut copy, LinkType::Ethernet);
                tap.offer(&copy);
            }
            Self::Nothing => {}
        }
    }
}

/// Buffers for private copies of a batch's packets, which no module can access.
#[derive(Debug, Default)]
pub struct CopyBuffers(Vec<Vec<u8>>);

/// The greatest capacity in bytes of a buffer that is kept for the next packet.
const KEPT_BUFFER_BYTES_MAX: usize = 2048;

impl CopyBuffers {
    /// Forwards the packets of a batch that are in the mask, with their patches, into each egress in order. A slow
    /// egress does not delay the earlier ones.
    ///
    /// Packets whose bytes the capture file has lost are not forwarded. Returns the [number](effects::apply) of patches
    /// that could not be applied.
    pub fn forward(
        &mut self,
        egresses: &[Egress],
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
        // Checked after the copy: if the file lost bytes before that, the copies can hold zeros in their place.
        let intact_count = block.intact().saturating_sub(first);
        let leaves = egresses.iter().any(Egress::leaves);
        let descriptors = block.descriptors().get(first..).unwrap_or_default();
        let is_forwarded = |place: &usize| mask >> place & 1 == 1 && *place < intact_count;
        let (mut failed_patches, mut complete) = (0, 0_u64);
        for (place, (copy, descriptor)) in self.0.iter_mut().zip(descriptors).enumerate() {
            if is_forwarded(&place) {
                let (checksum, patches) = (block.checksum(first + place), patches.for_packet(first + place));
                let applied = effects::apply(copy, descriptor, checksum, leaves, patches);
                failed_patches += applied.failed_patches;
                complete |= u64::from(applied.is_complete) << place;
            }
        }
        for egress in egresses {
            let packets = self.0.iter().zip(descriptors).enumerate().filter(|(place, _)| is_forwarded(place));
            egress.send(packets.map(|(place, (bytes, descriptor))| {
                let is_complete = complete >> place & 1 == 1;
                ForwardedPacket { bytes, descriptor, is_complete }
            }));
        }
        // A batch of jumbo packets leaves no more memory behind than an ordinary batch.
        self.0
            .iter_mut()
            .filter(|copy| copy.capacity() > KEPT_BUFFER_BYTES_MAX)
            .for_each(|copy| *copy = Vec::new());
        failed_patches
    }
}

#[cfg(test)]
mod tests {
    use super::super::tx_queue::TxQueue;
    use super::*;
    use std::io::Read;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use weir_netio::{Capture, CaptureInput, CaptureNext, PacketWriter};
    use weir_sched::link::{ChannelTerms, Framing, LinkScheduler, LinkSchedulerConfig, Pacing, QueueLimit};
    use weir_units::{BitsPerSecond, Bytes, Nanos};

    /// An output channel of a link that never sends.
    fn sink() -> TxPacketSink {
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
    fn a_slow_file_does_not_keep_packets_from_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slow.pcap");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reader = std::thread::spawn({
            let path = path.clone();
            move || std::fs::File::open(path).unwrap()
        });
        // Many times the capacity of a pipe and of the writer's buffer.
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
        for _ in 0..500 {
            [0_u32, 0, 9000, 9000].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
            bytes.resize(bytes.len() + 9000, 0);
        }
        let CaptureNext::Block(block) =
            Capture::open(CaptureInput::Bytes(bytes)).unwrap().next_block().unwrap()
        else {
            panic!("the capture has a block")
        };
        let (link, file) = (sink(), Arc::new(FileEgress::new(PacketWriter::create(&path, None).unwrap())));
        let egresses = [Egress::Link(link.clone()), Egress::File(Arc::clone(&file))];
        let mut pipe = reader.join().unwrap();
        let all = u32::try_from(block.packets()).unwrap();
        let (progress, progressed) = channel();
        let writing = std::thread::spawn(move || {
            let mut copies = CopyBuffers::default();
            for batch in block.batches().enumerate().map(|(number, batch)| (number, batch.mask)) {
                copies.forward(&egresses, &block, batch.0, batch.1, &mut Patches::default());
                // The test reads the link's queue while the file is being written, as the link's thread does.
                _ = progress.send(());
            }
        });
        // The pipe is full soon. Then writing to the file blocks, while the link's queue stays accessible.
        while progressed.recv_timeout(Duration::from_secs(1)).is_ok() {}
        let (asked, answered) = channel();
        std::thread::spawn({
            let link = link.clone();
            // The writing thread may not have run yet.
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
