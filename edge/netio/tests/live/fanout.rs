//! Packet sockets that share an interface by flow, each read by a thread of its own.

use crate::frames::{self, Packet, ethernet, ipv4};
use crate::net::{self, Sender, ip};
use crate::queues::{self, FLOWS, QUEUES, check, from_all, send};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_abi::ARENA_BASE;
use weir_netio::{Block, Direction, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

fn options() -> LiveOptions {
    LiveOptions { kind: SocketKind::Packet, ring: Bytes(16 << 20), dense: true, ..LiveOptions::default() }
}

/// A veth pair with several queues in a new namespace; false without the rights for it.
fn prepared() -> bool {
    let is_new = net::new_namespace();
    if is_new {
        queues::add_veth_pair(QUEUES);
    }
    is_new
}

fn distinct(values: impl IntoIterator<Item = u64>) -> usize {
    values.into_iter().collect::<BTreeSet<_>>().len()
}

fn a_group_shares_an_interface(options: LiveOptions) {
    if !prepared() {
        return;
    }
    let sources = LiveSource::open_group("b", options, 3).unwrap();
    send(2000);
    let (mut sources, received) = from_all(sources, 2000);
    check(&received, 2000);
    assert!(received.iter().all(|packets| !packets.is_empty()), "each source has flows");
    let numbers = received.iter().flatten().map(|packet| u64::from(packet.descriptor.number));
    assert_eq!(distinct(numbers), 2000, "packet numbers are unique in the group");
    let counted: Vec<u64> = sources.iter_mut().map(|source| source.totals().received.packets).collect();
    assert_eq!(counted, received.iter().map(|packets| packets.len() as u64).collect::<Vec<_>>());
    // All blocks have one window with a part for each source, in which the source's packets are.
    send(FLOWS);
    let blocks: Vec<_> = sources.iter_mut().map(frames::block).collect();
    assert_eq!(distinct(blocks.iter().map(|block| block.window().id())), 1);
    assert_eq!(distinct(blocks.iter().map(Block::number)), 3);
    assert!(blocks.iter().all(|block| block.is_in_ring(sources[0].descriptors())));
    let window = blocks[0].window();
    let parts: Vec<_> = window.parts().map(|part| (part.offset, part.len as u64)).collect();
    assert_eq!(parts, vec![(0, window.len().0 / 3); 3]);
    assert!(window.len() <= options.ring, "{}", window.len());
    for (place, block) in (0..).zip(&blocks) {
        let descriptor = block.descriptors()[block.lead()];
        assert_eq!(u64::from(descriptor.data - ARENA_BASE) / parts[0].1, place);
        assert!(block.window().pin(descriptor.data, descriptor.cap_len).is_err(), "a ring cannot be pinned");
    }
}

#[test]
fn a_group_of_packet_sockets_shares_an_interface() {
    a_group_shares_an_interface(options());
}

#[test]
fn a_group_of_packet_sockets_shares_an_interface_by_frames() {
    a_group_shares_an_interface(LiveOptions { immediate: true, ..options() });
}

#[test]
fn the_kind_that_is_chosen_by_default_can_be_shared() {
    if !prepared() {
        return;
    }
    let options = LiveOptions { kind: SocketKind::Auto, ..options() };
    send(10);
    let sources = LiveSource::open_group("b", options, 2).unwrap();
    send(500);
    check(&from_all(sources, 500).1, 500);
}

/// The source that received each kind of packet. A kind that several sources received fails the test.
fn source_of<K: Ord + Copy>(received: &[Vec<Packet>], kind: impl Fn(&Packet) -> K) -> BTreeMap<K, usize> {
    let mut sources = BTreeMap::new();
    for (source, packets) in received.iter().enumerate() {
        for packet in packets {
            assert_eq!(*sources.entry(kind(packet)).or_insert(source), source);
        }
    }
    sources
}

#[test]
fn fragments_of_a_datagram_and_both_directions_of_a_flow_arrive_at_one_source() {
    if !prepared() {
        return;
    }
    let sources = LiveSource::open_group("b", options(), 2).unwrap();
    let sender = Sender::new("a");
    // Fragments of datagrams from many hosts; the first ones have ports, the others have not.
    for host in 0..FLOWS as u8 {
        for (number, at) in [(1, 0), (1, 12), (1, 24), (2, 0), (2, 24)] {
            let mut fragment = ethernet(0x0800, &ipv4(number, 64, Some(at)));
            fragment[29] = host;
            sender.send(&fragment);
        }
    }
    let (sources, received) = from_all(sources, 5 * FLOWS as usize);
    let hosts = source_of(&received, |packet| packet.bytes[29]);
    assert_eq!(hosts.len(), FLOWS as usize);
    assert_eq!(distinct(hosts.values().map(|source| *source as u64)), 2, "both sources have fragments");
    for number in 0..FLOWS as u16 {
        let forth = ethernet(0x0800, &ipv4(number, 64, None));
        let mut back = forth.clone();
        for (from, to) in [(26..30, 30), (30..34, 26), (34..36, 36), (36..38, 34)] {
            back[to..to + from.len()].copy_from_slice(&forth[from]);
        }
        sender.send(&forth);
        sender.send(&back);
    }
    let (_sources, received) = from_all(sources, 2 * FLOWS as usize);
    let ports = |packet: &Packet| packet.descriptor.src_port.max(packet.descriptor.dst_port);
    assert_eq!(source_of(&received, ports).len(), FLOWS as usize);
}

#[test]
fn packets_that_the_host_sends_arrive_once_or_not_at_all() {
    if !prepared() {
        return;
    }
    let groups = [Direction::Both, Direction::Incoming]
        .map(|direction| LiveSource::open_group("b", LiveOptions { direction, ..options() }, 2).unwrap());
    let host = Sender::new("b");
    (0..300).for_each(|number| host.send(&queues::packet(number)));
    send(300);
    let [both, incoming] = groups;
    assert_eq!(from_all(both, 600).1.concat().len(), 600);
    check(&from_all(incoming, 300).1, 300);
}

#[test]
fn a_group_opened_while_the_interface_is_down_receives_each_packet_once() {
    if !prepared() {
        return;
    }
    ip("link set dev b down");
    let mut sources = LiveSource::open_group("b", options(), 2).unwrap();
    for source in &mut sources {
        assert!(matches!(source.next_block(Nanos(0)).unwrap(), LivePoll::Quiet));
    }
    for _ in 0..2 {
        ip("link set dev b up");
        net::wait_for_carriers();
        for source in &mut sources {
            assert!(frames::events(source, 1).contains(&"b is up".to_owned()));
        }
        send(500);
        let (again, received) = from_all(sources, 500);
        check(&received, 500);
        assert!(received.iter().all(|packets| !packets.is_empty()));
        sources = again;
        ip("link set dev b down");
    }
}

#[test]
fn packets_that_arrive_while_a_group_is_opened_are_received_at_most_once_and_by_one_source() {
    if !prepared() {
        return;
    }
    let sender = Sender::new("a");
    for _ in 0..20 {
        let (sent, is_open) = (AtomicU32::new(0), AtomicBool::new(false));
        // Fewer packets than the rings have room for, in case opening takes long.
        let send = || {
            for number in 0..20_000 {
                if is_open.load(Ordering::SeqCst) && number % 500 == 0 {
                    break;
                }
                sender.send(&queues::packet(number));
                sent.store(number + 1, Ordering::SeqCst);
            }
        };
        let (mut sources, before) = std::thread::scope(|scope| {
            scope.spawn(send);
            while sent.load(Ordering::SeqCst) < 100 {
                std::thread::yield_now();
            }
            let sources = LiveSource::open_group("b", options(), 3).unwrap();
            // One packet may be on its way.
            let before = sent.load(Ordering::SeqCst) + 1;
            is_open.store(true, Ordering::SeqCst);
            (sources, before)
        });
        let received: Vec<Vec<Packet>> = sources
            .iter_mut()
            .map(|source| {
                let blocks = waiting(source);
                blocks.iter().flat_map(|block| frames::packets(block).split_off(block.lead())).collect()
            })
            .collect();
        let mut numbers: Vec<u32> = received.iter().flatten().map(queues::number).collect();
        source_of(&received, |packet| queues::number(packet) % FLOWS);
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|one, next| one < next), "a packet arrived twice");
        let all = sent.load(Ordering::SeqCst);
        assert!(
            numbers.iter().filter(|number| **number >= before).count() as u32 == all.saturating_sub(before)
        );
    }
}

#[test]
fn a_group_of_packet_sockets_opens_an_interface_again_that_was_removed() {
    if !prepared() {
        return;
    }
    let mut sources = LiveSource::open_group("b", options(), 2).unwrap();
    send(FLOWS);
    let held: Vec<_> = sources.iter_mut().map(frames::block).collect();
    for round in 1..=3 {
        ip("link delete dev a");
        // The sources notice in different orders, and the second one in the last round only after the interface is back.
        let noticing = if round < 3 { 2 } else { 1 };
        for source in sources.iter_mut().rev().take(noticing) {
            assert!(frames::events(source, 1).iter().any(|event| event == "b was removed"));
        }
        queues::add_veth_pair(QUEUES);
        for source in &mut sources {
            let is_open = |events: &[String]| events.iter().any(|it| it == "b exists again and was opened");
            let mut events = Vec::new();
            while !is_open(&events) {
                events.extend(frames::events(source, 1));
            }
        }
        send(500);
        let (again, received) = from_all(sources, 500);
        check(&received, 500);
        assert!(received.iter().all(|packets| !packets.is_empty()));
        sources = again;
    }
    send(FLOWS);
    let windows = sources.iter_mut().map(|source| frames::block(source).window().id());
    assert_eq!(distinct(windows), 1, "both share the memory again");
    // Blocks of the first interface still have their packets.
    assert!(held.iter().all(|block| frames::packets(block)[block.lead()].bytes.len() == 142));
}

#[test]
fn a_group_of_packet_sockets_waits_for_an_interface_that_does_not_exist_yet() {
    if !net::new_namespace() {
        return;
    }
    let mut sources = LiveSource::open_group("b", options(), 2).unwrap();
    queues::add_veth_pair(QUEUES);
    for source in &mut sources {
        let events = frames::events(source, 1);
        assert!(events.iter().any(|event| event == "b exists again and was opened"), "{events:?}");
    }
    send(500);
    check(&from_all(sources, 500).1, 500);
}

/// The blocks that a source returns until its memory is full or no packet is left.
fn waiting(source: &mut LiveSource) -> Vec<Block> {
    let mut blocks = Vec::new();
    loop {
        match source.next_block(Nanos(100_000_000)).unwrap() {
            LivePoll::Block(block) => blocks.push(block),
            LivePoll::Event(_) => {}
            _ => return blocks,
        }
    }
}

#[test]
fn packets_that_find_a_ring_full_are_counted_by_its_source_and_dropped_blocks_make_room() {
    if !prepared() {
        return;
    }
    let sent = 30_000;
    let mut sources =
        LiveSource::open_group("b", LiveOptions { ring: Bytes(2 << 20), ..options() }, 2).unwrap();
    send(sent);
    // One source is full while the other one is read.
    let held = waiting(&mut sources[0]);
    assert!(sources[0].is_filled_in_turn() && sources[0].is_running_out() && !sources[1].is_running_out());
    let first: usize = held.iter().map(Block::packets).sum();
    let second: usize = waiting(&mut sources[1]).iter().map(Block::packets).sum();
    let lost = |source: &mut LiveSource| source.totals().drops.ring_full;
    let losses = [lost(&mut sources[0]), lost(&mut sources[1])];
    assert_eq!(first as u64 + second as u64 + losses[0] + losses[1], u64::from(sent), "{losses:?}");
    assert!(losses[0] > 0);
    drop(held);
    assert!(!sources[0].is_running_out());
    send(500);
    let (mut sources, received) = from_all(sources, 500);
    check(&received, 500);
    assert_eq!([lost(&mut sources[0]), lost(&mut sources[1])], losses);
}

#[test]
fn errors_name_the_limits_of_a_group() {
    if !prepared() {
        return;
    }
    let message = |options, sources| LiveSource::open_group("b", options, sources).unwrap_err().to_string();
    let limits = "b: at most 64 receive threads for a packet socket, each with at least 1 MiB of memory";
    assert_eq!(message(LiveOptions { ring: Bytes(2 << 20), ..options() }, 3), limits);
    assert_eq!(message(LiveOptions { ring: Bytes(1 << 30), ..options() }, 65), limits);
    let tap = LiveOptions { kind: SocketKind::Tap, ..options() };
    assert_eq!(message(tap, 2), "b: one receive thread for a TAP or TUN device");
    // Two groups of an interface both have all packets.
    let groups = [(); 2].map(|()| LiveSource::open_group("b", options(), 2).unwrap());
    send(200);
    for group in groups {
        check(&from_all(group, 200).1, 200);
    }
}
