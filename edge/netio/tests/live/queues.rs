//! Interfaces with several receive queues, read by one source or by a group of sources.

use crate::frames::{self, ARRIVAL_TIME_MAX, Packet, ethernet, ipv4};
use crate::net::{self, Sender, ip};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use weir_netio::{LiveOptions, LivePoll, LiveSource, QueueSet, SocketKind};
use weir_units::{Bytes, Nanos};

pub const FLOWS: u32 = 64;
pub const QUEUES: u32 = 4;

fn options() -> LiveOptions {
    LiveOptions { kind: SocketKind::Xdp, ring: Bytes(16 << 20), dense: true, ..LiveOptions::default() }
}

pub fn add_veth_pair(queues: u32) {
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    ip(&format!("link add name a {queues} type veth peer name b {queues}"));
    ip("link set dev a up");
    ip("link set dev b up");
    net::wait_for_carriers();
}

/// A packet of one of [`FLOWS`] flows, with its number in the payload. The kernel distributes flows among queues.
pub fn packet(number: u32) -> Vec<u8> {
    let mut frame = ethernet(0x0800, &ipv4((number % FLOWS) as u16, 100, None));
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(packet.bytes[42..46].try_into().unwrap())
}

/// Receives `count` packets that arrive at the sources together, each source on a thread of its own.
pub fn from_all(sources: Vec<LiveSource>, count: usize) -> (Vec<LiveSource>, Vec<Vec<Packet>>) {
    let (total, begin) = (AtomicUsize::new(0), Instant::now());
    let receive = |mut source: LiveSource| {
        let mut received = Vec::new();
        loop {
            let is_last = total.load(Ordering::SeqCst) >= count;
            match source.next_block(Nanos(20_000_000)).unwrap() {
                LivePoll::Block(block) => {
                    total.fetch_add(block.packets(), Ordering::SeqCst);
                    received.extend(frames::packets(&block).into_iter().skip(block.lead()));
                }
                // A packet too many would have arrived by now.
                LivePoll::Quiet if is_last => return (source, received),
                _ => assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{} packets", received.len()),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = sources.into_iter().map(|source| scope.spawn(|| receive(source))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
    })
}

/// Checks that each of `count` packets was received once, and that each flow was received by one source, in order.
pub fn check(received: &[Vec<Packet>], count: u32) {
    let mut numbers: Vec<u32> = received.iter().flatten().map(number).collect();
    numbers.sort_unstable();
    assert!(numbers == (0..count).collect::<Vec<_>>(), "{} of {count} packets", numbers.len());
    let mut flows: BTreeMap<u32, (usize, u32)> = BTreeMap::new();
    for (source, packets) in received.iter().enumerate() {
        for packet in packets {
            let number = number(packet);
            if let Some((first, before)) = flows.insert(number % FLOWS, (source, number)) {
                assert!(first == source && before < number, "{number} after {before}");
            }
        }
    }
}

pub fn send(count: u32) {
    let sender = Sender::new("a");
    (0..count).for_each(|number| sender.send(&packet(number)));
}

#[test]
fn one_source_reads_all_queues() {
    if !net::new_namespace() {
        return;
    }
    add_veth_pair(QUEUES);
    let (mut sources, received) = {
        let source = LiveSource::open("b", options()).unwrap();
        send(1000);
        from_all(vec![source], 1000)
    };
    check(&received, 1000);
    let totals = sources[0].totals();
    assert_eq!((totals.received.packets, totals.drops.packets()), (1000, 0));
    // The same packets arrive at all queues.
    sources.clear();
    let of_queue =
        |queue| LiveSource::open("b", LiveOptions { queues: QueueSet::of([queue]), ..options() }).unwrap();
    let sources = (0..QUEUES).map(of_queue).collect();
    send(1000);
    let (sources, received) = from_all(sources, 1000);
    check(&received, 1000);
    assert!(received.iter().all(|packets| !packets.is_empty()));
    // Each of these sources has its own memory.
    drop(sources);
    LiveSource::open("b", options()).unwrap();
}

#[test]
fn a_group_of_sources_shares_the_queues_and_the_memory_of_an_interface() {
    if !net::new_namespace() {
        return;
    }
    add_veth_pair(QUEUES);
    let sources = LiveSource::open_group("b", options(), 3).unwrap();
    send(2000);
    let (mut sources, received) = from_all(sources, 2000);
    check(&received, 2000);
    assert!(received.iter().all(|packets| !packets.is_empty()), "each source reads a queue");
    let numbers: BTreeSet<u32> = received.iter().flatten().map(|packet| packet.descriptor.number).collect();
    assert_eq!(numbers.len(), 2000, "packet numbers are unique in the group");
    let counted: Vec<u64> = sources.iter_mut().map(|source| source.totals().received.packets).collect();
    let lens: Vec<u64> = received.iter().map(|packets| packets.len() as u64).collect();
    assert_eq!(counted, lens);
    // All blocks have one window and one ring of descriptors, and different numbers. Packets of all sources can be
    // pinned.
    send(64);
    let blocks: Vec<_> = sources.iter_mut().map(frames::block).collect();
    let distinct = |values: Vec<u64>| values.into_iter().collect::<BTreeSet<_>>().len();
    assert_eq!(distinct(blocks.iter().map(|block| block.window().id()).collect()), 1);
    assert_eq!(distinct(blocks.iter().map(weir_netio::Block::number).collect()), 3);
    assert!(blocks.iter().all(|block| block.is_in_ring(sources[0].descriptors())));
    let pins: Vec<_> = blocks
        .iter()
        .map(|block| {
            let descriptor = block.descriptors()[block.lead()];
            block.window().pin(descriptor.data, descriptor.cap_len).unwrap()
        })
        .collect();
    assert_eq!(distinct(pins.iter().map(|pin| u64::from(pin.pieces().start)).collect()), 3);
    // Closing gives all queues back to the host.
    drop((pins, blocks, sources));
    let host = LiveSource::open("b", LiveOptions { kind: SocketKind::Packet, ..options() }).unwrap();
    send(500);
    check(&from_all(vec![host], 500).1, 500);
    assert_eq!(LiveSource::open_group("b", options(), 2).unwrap().len(), 2);
}

#[test]
fn sources_beyond_the_number_of_queues_have_no_packets() {
    if !net::new_namespace() {
        return;
    }
    add_veth_pair(2);
    let sources = LiveSource::open_group("b", options(), 4).unwrap();
    send(500);
    let (_sources, received) = from_all(sources, 500);
    check(&received, 500);
    let empty: Vec<bool> = received.iter().map(Vec::is_empty).collect();
    assert_eq!(empty, [false, false, true, true]);
}

#[test]
fn a_group_opens_an_interface_again_that_was_removed() {
    if !net::new_namespace() {
        return;
    }
    add_veth_pair(2);
    let mut sources = LiveSource::open_group("b", options(), 2).unwrap();
    ip("link delete dev a");
    for source in &mut sources {
        assert!(frames::events(source, 1).iter().any(|event| event == "b was removed"));
    }
    add_veth_pair(2);
    for source in &mut sources {
        let events = frames::events(source, 1);
        assert!(events.iter().any(|event| event == "b exists again and was opened"), "{events:?}");
    }
    send(500);
    let (mut sources, received) = from_all(sources, 500);
    check(&received, 500);
    assert!(received.iter().all(|packets| !packets.is_empty()));
    send(64);
    let windows: BTreeSet<u64> =
        sources.iter_mut().map(|source| frames::block(source).window().id()).collect();
    assert_eq!(windows.len(), 1, "both share the memory again");
}

#[test]
fn a_group_waits_for_an_interface_that_does_not_exist_yet() {
    if !net::new_namespace() {
        return;
    }
    let mut sources = LiveSource::open_group("b", options(), 2).unwrap();
    add_veth_pair(2);
    for source in &mut sources {
        let events = frames::events(source, 1);
        assert!(events.iter().any(|event| event == "b exists again and was opened"), "{events:?}");
    }
    send(500);
    check(&from_all(sources, 500).1, 500);
}

#[test]
fn errors_name_the_queue_that_does_not_exist() {
    if !net::new_namespace() {
        return;
    }
    add_veth_pair(2);
    let message = |queues, sources| {
        let options = LiveOptions { queues: QueueSet::of(queues), ..options() };
        LiveSource::open_group("b", options, sources).unwrap_err().to_string()
    };
    let expected = "b: there is no receive queue 2: the interface has 2, with numbers from 0 (`ethtool -l`)";
    assert_eq!(message(vec![1, 2], 1), expected);
    assert_eq!(message(vec![], 1), "b: AF_XDP needs at least one queue");
    // If one queue is in use, none of the others is taken.
    let one = LiveSource::open("b", LiveOptions { queues: QueueSet::of([1]), ..options() }).unwrap();
    assert!(
        message(vec![0, 1], 2)
            .starts_with("b: using a queue for AF_XDP is not possible, because another socket")
    );
    drop(one);
    LiveSource::open_group("b", options(), 2).unwrap();
}
