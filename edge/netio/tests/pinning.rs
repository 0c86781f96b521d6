//! Pinned packets stay unchanged, and new packets can always arrive.

use weir_abi::ARENA_BASE;
use weir_netio::{Block, Capture, CaptureInput, CaptureNext, Pin, PinError, Selection};
use weir_units::Bytes;

/// A block of `count` packets of `len` bytes each.
fn block(count: u32, len: u32) -> (Capture, Block) {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\xff\0\x01\0\0\0".to_vec();
    for number in 0..count {
        for field in [0, 0, len, len] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend((0..len).map(|i| if i < 4 { number.to_le_bytes()[i as usize] } else { 0 }));
    }
    let mut capture = Capture::open(CaptureInput::Bytes(bytes)).unwrap();
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    (capture, block)
}

fn pin(block: &Block, packet: usize) -> Result<Pin, PinError> {
    let descriptor = block.descriptors()[packet];
    block.window().pin(descriptor.data, descriptor.cap_len)
}

/// The present bytes at a guest address of a window.
fn read(block: &Block, address: u32, len: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(block.window().parts().next().unwrap().fd.try_clone_to_owned().unwrap());
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, u64::from(address - ARENA_BASE)).unwrap();
    bytes
}

#[test]
fn pinned_packets_of_a_selection_stay_unchanged_while_all_other_memory_is_reused() {
    let (_capture, from) = block(1000, 1000);
    let mut selection = Selection::new().unwrap();
    let masks = vec![u64::MAX; from.batch_count()];
    let first = selection.select(&from, &masks).block.unwrap();
    let kept = pin(&first, 7).unwrap();
    assert_eq!(kept.piece(), Bytes(1 << 20));
    let address = first.descriptors()[7].data;
    let was = read(&first, address, 1000);
    assert_eq!(was[..4], 7u32.to_le_bytes());
    drop(first);

    let mut is_reused = false;
    // Three times around all of the memory.
    for _ in 0..200 {
        let selected = selection.select(&from, &masks);
        assert_eq!(selected.lost, 0);
        let block = selected.block.unwrap();
        assert_eq!(read(&block, address, 1000), was);
        is_reused |= block.descriptors()[0].data == ARENA_BASE + (1 << 20);
        let within = |data: u32| kept.pieces().contains(&((data - ARENA_BASE) >> 20));
        assert!(block.descriptors().iter().all(|descriptor| !within(descriptor.data)) || block.number() < 3);
    }
    assert!(is_reused);
    drop(kept);
    let overwritten = (0..200).any(|_| {
        let block = selection.select(&from, &masks).block.unwrap();
        block.descriptors().iter().any(|descriptor| descriptor.data < ARENA_BASE + (1 << 20))
    });
    assert!(overwritten, "its memory is used again");
}

#[test]
fn half_of_the_memory_can_be_pinned_and_the_other_half_stays_in_use() {
    let (_capture, from) = block(1000, 1000);
    let mut selection = Selection::new().unwrap();
    let masks = vec![u64::MAX; from.batch_count()];
    let mut pins = Vec::new();
    let mut refused = 0;
    for _ in 0..300 {
        let selected = selection.select(&from, &masks);
        assert_eq!(selected.lost, 0);
        let block = selected.block.unwrap();
        for packet in 0..block.len() {
            match pin(&block, packet) {
                Ok(pin) => pins.push(pin),
                Err(error) => {
                    assert_eq!(error, PinError::Full);
                    refused += 1;
                }
            }
        }
    }
    let pieces: std::collections::BTreeSet<u32> = pins.iter().flat_map(Pin::pieces).collect();
    assert_eq!((pieces.len(), pins[0].pieces_max()), (32, 32));
    assert!(refused > 0);
}

#[test]
fn packets_of_a_file_can_be_pinned_without_limit() {
    let (_capture, block) = block(1000, 100);
    let pins: Vec<Pin> = (0..block.len()).map(|packet| pin(&block, packet).unwrap()).collect();
    assert!(pins.iter().all(|pin| pin.pieces().is_empty()));
}
