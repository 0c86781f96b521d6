use super::*;
use weir_netio::{Capture, CaptureInput, CaptureNext};

/// A queue entry for packets of these lengths.
fn queue_entry(lengths: &[u32]) -> QueueEntry {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\x04\0\x01\0\0\0".to_vec();
    for len in lengths {
        [0, 0, *len, *len].iter().for_each(|field| bytes.extend_from_slice(&field.to_le_bytes()));
        bytes.resize(bytes.len() + *len as usize, 0);
    }
    let CaptureNext::Block(block) = Capture::open(CaptureInput::Bytes(bytes)).unwrap().next_block().unwrap()
    else {
        panic!("there is a block")
    };
    let mask = block.batch(0).mask;
    QueueEntry { block: Arc::new(block), batch: 0, mask, position: 0, is_moved: false }
}

#[test]
fn a_call_gets_the_packets_that_fit_into_the_slice_by_their_lengths() {
    // 100 ns, and about 1 ns for each 64 bytes.
    let time = PacketTime { empty: Nanos(100), longest: Nanos(1128) };
    assert_eq!(
        (time.for_bytes(0), time.for_bytes(640), time.for_bytes(PACKET_BYTES_MAX), time.for_bytes(u32::MAX)),
        (100, 110, 1128, 1128)
    );
    let mut lengths = vec![60; 64];
    (lengths[2], lengths[3]) = (65_000, 65_000);
    let queued = queue_entry(&lengths);
    assert_eq!(time.packets_within(&queued, Nanos(u64::MAX)), queued.mask);
    // Two short packets and a long one; the short ones alone; and one packet if there is no time for any.
    assert_eq!(time.packets_within(&queued, Nanos(1500)), 0b111);
    assert_eq!(time.packets_within(&queued, Nanos(1200)), 0b11);
    assert_eq!(time.packets_within(&queued, Nanos(0)), 0b1);
    let later = QueueEntry { mask: queued.mask & !0b11, ..queued };
    assert_eq!(time.packets_within(&later, Nanos(10)), 0b100);
}
