use super::*;
use crate::arena::CHUNK_BYTES;
use crate::{Capture, CaptureInput, CaptureNext};
use weir_demux::{FilterProgram, Instruction};
use weir_wire::view::{Transform, ViewKey};

/// Frames of 60 to 1500 bytes, each containing its number.
fn capture(packets: u32) -> Capture {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
    for number in 0..packets {
        let len = 60 + number * 97 % 1440;
        let mut frame = vec![0u8; len as usize];
        frame[12..18].copy_from_slice(&[0x88, 0xB5, 0, 0, 0, 0]);
        frame[14..18].copy_from_slice(&number.to_be_bytes());
        for field in [number, 0, len, len] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&frame);
    }
    Capture::open(CaptureInput::Bytes(bytes)).unwrap()
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[14..18].try_into().unwrap())
}

#[test]
fn a_selection_contains_the_selected_packets_and_no_others() {
    let mut capture = capture(3000);
    let mut selection = Selection::new().unwrap();
    let mut seen = Vec::new();
    let mut packet = Vec::new();
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        // Every seventh packet.
        let mut masks = vec![0u64; block.batch_count()];
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            masks[i / 64] |= u64::from(descriptor.number % 7 == 0) << (i % 64);
        }
        let selected = selection.select(&block, &masks);
        assert_eq!(selected.lost, 0);
        let copied = selected.block.unwrap();
        for (i, descriptor) in copied.descriptors().iter().enumerate() {
            copied.copy_packet(i, &mut packet);
            let n = number(&packet);
            assert_eq!(u32::try_from(packet.len()), Ok(60 + n * 97 % 1440));
            assert_eq!((descriptor.ts_ns, descriptor.ether_type), (u64::from(n) * 1_000_000_000, 0x88B5));
            // Numbers are consecutive, whatever packets lie between.
            assert_eq!(descriptor.number as usize, seen.len());
            seen.push(n);
        }
    }
    assert_eq!(seen, (0..3000).step_by(7).collect::<Vec<u32>>());

    // All memory that a module could search: no other frame was ever in it.
    let window = selection.arena.window();
    let bytes = std::os::unix::fs::FileExt::read_exact_at;
    let mut memory = vec![0; usize::try_from(window.len().0).unwrap()];
    bytes(
        &std::fs::File::from(window.parts().next().unwrap().fd.try_clone_to_owned().unwrap()),
        &mut memory,
        0,
    )
    .unwrap();
    let found: Vec<u32> = memory.chunks(64).filter(|c| c[12..14] == [0x88, 0xB5]).map(number).collect();
    assert!(found.len() > 400 && found.iter().all(|n| n % 7 == 0));
}

#[test]
fn held_packets_are_not_overwritten_and_packets_that_do_not_fit_are_counted() {
    let mut capture = capture(1000);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    let mut selection = Selection::new().unwrap();
    let (mut held, mut lost, mut copied) = (Vec::new(), 0, 0);
    for _ in 0..100 {
        let selected = selection.select(&block, &masks);
        lost += selected.lost;
        copied += selected.block.as_ref().map_or(0, |block| block.len() as u64);
        held.extend(selected.block);
    }
    assert!(lost > 0, "64 MiB cannot hold 100 times 800 kB");
    assert_eq!(lost + copied, 100 * block.len() as u64);
    let mut packet = Vec::new();
    for block in &held {
        let all: &[Descriptor] = block.descriptors();
        for (i, descriptor) in all.iter().enumerate() {
            block.copy_packet(i, &mut packet);
            assert_eq!(u64::from(number(&packet)) * 1_000_000_000, descriptor.ts_ns);
        }
    }
    // Once they are dropped there is space again, also for the lost packets.
    drop(held);
    assert_eq!(selection.select(&block, &masks).lost, 0);
}

#[test]
fn selections_that_share_a_quota_never_have_more_memory_than_the_quota() {
    let mut capture = capture(1000);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    // A quota of three chunks and three blocks. Each selection takes a chunk at once.
    let quota = MemoryQuota::new(Bytes(3 * (CHUNK_BYTES + SLOT_BYTES) as u64));
    let [mut one, mut other] = [(); 2].map(|()| Selection::new().unwrap().with_quota(&quota).unwrap());
    let fill = |selection: &mut Selection, held: &mut Vec<Block>| {
        for _ in 0..100 {
            held.extend(selection.select(&block, &masks).block);
        }
        held.iter().map(|block| block.len() as u64).sum::<u64>()
    };
    let (mut held, mut held_by_other) = (Vec::new(), Vec::new());
    let all = fill(&mut one, &mut held);
    assert!(all > 1000 && all < 4 * 1000, "{all}");
    // Memory that the first selection took is not available to the other selection; the first one reuses it.
    let rest = fill(&mut other, &mut held_by_other);
    assert!(rest < all, "{rest} {all}");
    held.clear();
    // The first selection continues at its position in the chunk.
    assert!(fill(&mut one, &mut held) > 1000);
    assert!(Selection::new().unwrap().with_quota(&quota).is_err());
    // A selection that is dropped returns its memory.
    drop(one);
    assert!(Selection::new().unwrap().with_quota(&quota).is_ok());
    assert!(fill(&mut other, &mut held_by_other) > rest);
}

#[test]
fn packets_that_did_not_fit_are_reported_and_can_be_copied_later() {
    let mut capture = capture(1000);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    let mut selection = Selection::new().unwrap();
    let mut held = Vec::new();
    let cut = loop {
        let selected = selection.select(&block, &masks);
        if selected.lost > 0 {
            break selected;
        }
        held.extend(selected.block);
    };
    drop(held);
    let rest = selection.select(&block, &cut.rest);
    assert_eq!(rest.lost, 0);
    let mut packet = Vec::new();
    let mut numbers = Vec::new();
    for block in cut.block.iter().chain(&rest.block) {
        for i in 0..block.len() {
            block.copy_packet(i, &mut packet);
            numbers.push(number(&packet));
        }
    }
    assert_eq!(numbers, (0..1000).collect::<Vec<u32>>());
}

#[test]
fn packets_can_be_added_one_by_one() {
    let mut selection = Selection::new().unwrap();
    let mut builder = selection.begin(64).unwrap();
    let like = Descriptor { ts_ns: 7, wire_len: 90, link_type: 1, interface: 3, ..Descriptor::default() };
    assert_eq!(selection.add(&mut builder, &[0xff; 60], &like), Added::Copied);
    assert_eq!(selection.add(&mut builder, &vec![0; CHUNK_BYTES + 1], &like), Added::NoMemory);
    let block = selection.end(builder).unwrap();
    let [one] = block.descriptors() else { panic!("there is one packet") };
    assert_eq!((one.ts_ns, one.cap_len, one.wire_len, one.interface, one.number), (7, 60, 90, 3, 0));
    let empty = selection.begin(64).unwrap();
    assert!(selection.end(empty).is_none());
}

#[test]
fn blocks_of_few_packets_take_no_more_memory_than_their_packets() {
    let mut capture = capture(3000);
    let mut selection = Selection::new().unwrap();
    let (mut held, mut packet, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        // Four copies of each packet, one and three at a time.
        for i in 0..block.len() {
            for _ in 0..4 {
                let mut masks = vec![0u64; block.batch_count()];
                let count = if i % 2 == 0 { 1 } else { 3 };
                (i..(i + count).min(block.len())).for_each(|i| masks[i / 64] |= 1 << (i % 64));
                let selected = selection.select(&block, &masks);
                assert_eq!(selected.lost, 0, "{} blocks are held", held.len());
                block.copy_packet(i, &mut packet);
                expected.push((masks.iter().map(|mask| mask.count_ones()).sum::<u32>(), number(&packet)));
                held.push(selected.block.unwrap());
            }
        }
    }
    assert!(held.len() > 10_000, "many more than there are slots");
    for (block, (count, first)) in held.iter().zip(expected) {
        let packets: Vec<usize> = (0..block.batch_count())
            .flat_map(|b| (0..64).filter(move |i| block.batch(b).mask >> i & 1 == 1).map(move |i| b * 64 + i))
            .collect();
        assert_eq!((packets.len(), block.packets()), (count as usize, count as usize));
        for (nth, i) in packets.into_iter().enumerate() {
            block.copy_packet(i, &mut packet);
            assert_eq!(number(&packet) as usize, first as usize + nth);
            assert_eq!(u64::from(number(&packet)) * 1_000_000_000, block.descriptors()[i].ts_ns);
        }
    }
}

#[test]
fn the_memory_of_a_queue_holds_its_packets_and_never_more_than_was_reserved() {
    let mut capture = capture(1000);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    for queue in [1, 64, 1000, 5000] {
        let mut selection = Selection::of_queue(queue, None).unwrap();
        let (mut waiting, mut at) = (std::collections::VecDeque::new(), 0);
        // One by one, and four times as many as can wait, so the oldest are dropped.
        for _ in 0..4 * queue {
            let mut masks = vec![0u64; block.batch_count()];
            masks[at / 64] = 1 << (at % 64);
            let described = block.descriptors()[at];
            at = (at + 1) % block.len();
            if waiting.len() == queue as usize {
                waiting.pop_front();
            }
            let selected = selection.select(&block, &masks);
            assert_eq!(selected.lost, 0, "{queue}: {} wait", waiting.len());
            // The copy keeps its descriptor, with the number and the hashes that its readers saw.
            let moved = selected.block.as_ref().map(|block| block.descriptors()[block.lead()]).unwrap();
            assert_eq!(Descriptor { data: described.data, ..moved }, described);
            waiting.push_back(selected.block.unwrap());
        }
        let used = selection.chunks.bytes() + selection.slots.bytes() + selection.heap.bytes();
        assert!(selection.heap.bytes() >= u64::from(queue) * size_of::<Block>() as u64);
        assert!(used <= Selection::memory(queue).0, "{queue}: {used}");
        assert!(selection.arena.window().pin(ARENA_BASE, 60).is_err());
    }
}

#[test]
fn an_empty_selection_takes_no_memory() {
    let mut capture = capture(10);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let mut selection = Selection::new().unwrap();
    for _ in 0..1000 {
        let selected = selection.select(&block, &[0]);
        assert!(selected.block.is_none() && selected.lost == 0);
    }
}

/// UDP datagrams from 203.0.113.77 to 10.0.N.N, every second one to port 53, with `payload` bytes of payload that a
/// view hides.
fn datagrams(packets: u32, payload: u16) -> Vec<Vec<u8>> {
    let datagram = |number: u32| {
        let [.., high, low] = number.to_be_bytes();
        let port = if number.is_multiple_of(2) { 53 } else { 54 };
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((28 + payload).to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 17, 0x12, 0x34, 203, 0, 113, 77, 10, 0, high, low, 4, 0, 0, port]);
        frame.extend((8 + payload).to_be_bytes());
        frame.extend([0x56, 0x78]);
        frame.resize(frame.len() + usize::from(payload), 0xa5);
        frame
    };
    (0..packets).map(datagram).collect()
}

fn captured(frames: &[Vec<u8>]) -> Capture {
    let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
    for (number, frame) in (0u32..).zip(frames) {
        let len = u32::try_from(frame.len()).unwrap();
        for field in [number, 0, len, len] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    Capture::open(CaptureInput::Bytes(bytes)).unwrap()
}

fn transform(view: &str) -> Transform {
    Transform::new(view.parse().unwrap(), &ViewKey::derive(&[3; 32], view.as_bytes()))
}

/// Accepts packets whose byte at `at` has this value.
fn byte(at: u32, byte: u32) -> Option<Arc<FilterProgram>> {
    let code = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let code = [code(0x30, 0, 0, at), code(0x15, 0, 1, byte), code(6, 0, 0, 1), code(6, 0, 0, 0)];
    Some(Arc::new(FilterProgram::new(&code).unwrap()))
}

/// All memory that a reader of the selection can access.
fn memory(selection: &Selection) -> Vec<u8> {
    let window = selection.arena.window();
    let ring = selection.ring.clone();
    let mut all = Vec::new();
    for (fd, len) in [(window.parts().next().unwrap().fd, window.len()), (ring.fd(), ring.len())] {
        let mut bytes = vec![0; usize::try_from(len.0).unwrap()];
        let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
        all.extend(bytes);
    }
    all
}

fn contains(memory: &[u8], what: &[u8]) -> bool {
    memory.windows(what.len()).any(|window| window == what)
}

#[test]
fn hidden_bytes_never_enter_the_memory_of_a_selection() {
    let frames = datagrams(300, 32);
    let mut capture = captured(&frames);
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    let hash = block.descriptors()[7].flow_hash.to_ne_bytes();
    let hidden: [&[u8]; 5] =
        [&[0xa5; 4], &[203, 0, 113, 77], &[64, 17, 0x12, 0x34], &[0x56, 0x78, 0xa5], &hash];

    // Without a view the search finds all of these bytes.
    let mut whole = Selection::new().unwrap();
    let _copies = whole.select(&block, &masks);
    assert!(hidden.iter().all(|what| contains(&memory(&whole), what)) && whole.transformed().is_none());

    let mut selection =
        Selection::with_views(vec![ViewStage::new(transform("addresses=anonymised"), None)]).unwrap();
    let selected = selection.select(&block, &masks);
    let shown = selected.block.unwrap();
    assert_eq!((selected.lost, selected.unwanted, shown.len()), (0, 0, 300));
    // A packet that is added by itself is transformed, too.
    let mut builder = selection.begin(64).unwrap();
    assert_eq!(selection.add(&mut builder, &frames[0], &block.descriptors()[0]), Added::Copied);
    let alone = selection.end(builder).unwrap();
    let memory = memory(&selection);
    for what in hidden {
        assert!(!contains(&memory, what), "{what:x?}");
    }
    let own = transform("addresses=anonymised");
    let mut packet = Vec::new();
    for (i, descriptor) in shown.descriptors().iter().chain(alone.descriptors()).enumerate() {
        let (from, at) = if i < 300 { (&shown, i) } else { (&alone, i - 300) };
        from.copy_packet(at, &mut packet);
        assert_eq!(*descriptor, own.describe(&packet, descriptor));
        assert_eq!((descriptor.number as usize, descriptor.cap_len, descriptor.wire_len), (i, 42, 74));
    }
    assert_eq!(selection.transformed().unwrap().load(std::sync::atomic::Ordering::Relaxed), 301);
}

#[test]
fn filters_read_only_the_view_and_numbers_reveal_nothing_else() {
    let mut capture = captured(&datagrams(100, 32));
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    let count = |stages| {
        let mut selection = Selection::with_views(stages).unwrap();
        let selected = selection.select(&block, &masks);
        let numbers: Vec<u32> =
            selected.block.iter().flat_map(|block| block.descriptors()).map(|packet| packet.number).collect();
        let len = u32::try_from(numbers.len()).unwrap();
        assert_eq!(numbers, (0..len).collect::<Vec<_>>());
        assert_eq!((selected.lost, selected.unwanted), (0, 100 - u64::from(len)));
        len
    };
    let hidden = || transform("addresses=zeroed");
    // Ports are kept, addresses are zero, and the payload is removed.
    assert_eq!(count(vec![ViewStage::new(hidden(), byte(37, 53))]), 50);
    assert_eq!(count(vec![ViewStage::new(hidden(), byte(26, 203))]), 0);
    assert_eq!(count(vec![ViewStage::new(hidden(), byte(26, 0))]), 100);
    assert_eq!(count(vec![ViewStage::new(hidden(), byte(42, 0xa5))]), 0);
    // The filter of one stage reads more than the readers of the next stage.
    let more = || ViewStage::new(transform("payload=none"), byte(33, 7));
    assert_eq!(count(vec![more(), ViewStage::new(hidden(), None)]), 1);
    assert_eq!(count(vec![more(), ViewStage::new(hidden(), byte(37, 53))]), 0);
}

#[test]
fn views_that_did_not_fit_can_be_copied_later() {
    let mut capture = captured(&datagrams(1000, 1400));
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
    let stages = vec![ViewStage::new(transform("ttl=zeroed"), byte(37, 53))];
    let mut selection = Selection::with_views(stages).unwrap();
    let count = |masks: &[u64]| masks.iter().map(|mask| u64::from(mask.count_ones())).sum::<u64>();
    let (mut held, mut copied) = (Vec::new(), 0);
    let rest = loop {
        let selected = selection.select(&block, &masks);
        copied += selected.block.as_ref().map_or(0, Block::len);
        held.extend(selected.block);
        if selected.lost > 0 {
            assert_eq!(count(&selected.rest), selected.lost);
            break selected.rest;
        }
    };
    assert!(rest != masks, "the memory for packets was full, and not that for descriptors");
    held.clear();
    let selected = selection.select(&block, &rest);
    let last = selected.block.unwrap();
    assert_eq!((selected.lost, last.descriptors()[0].number as usize), (0, copied));
    assert_eq!((copied + last.len()) % (block.len() / 2), 0);
}
