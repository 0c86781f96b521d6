//! Blocks that are held for long, and dropped in any order.

use crate::frames::{self, ARRIVAL_TIME_MAX, packets, udp};
use crate::net::{self, Sender};
use crate::receiving::{immediate, open, options};
use weir_netio::{Block, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_units::{Bytes, Nanos};

/// Takes the blocks that have arrived, and waits only for packets that the kernel gathers.
fn take_arrived(live: &mut LiveSource, each: &mut impl FnMut(Block)) {
    loop {
        match live.next_block(Nanos(10_000_000)).unwrap() {
            LivePoll::Block(block) => each(block),
            LivePoll::Full | LivePoll::Quiet => return,
            other => panic!("{other:?}"),
        }
    }
}

/// Takes blocks with `count` packets, which must arrive.
fn take_packets(live: &mut LiveSource, count: usize) -> Vec<Block> {
    let (mut blocks, mut packets) = (Vec::new(), 0);
    while packets < count {
        let block = frames::block(live);
        packets += block.len();
        blocks.push(block);
    }
    blocks
}

fn held_blocks_stay(kind: SocketKind, immediate: bool) {
    if !net::create_veth_pair() {
        return;
    }
    const RING: u64 = 1 << 20;
    let options = LiveOptions { kind, immediate, ring: Bytes(RING), ..LiveOptions::default() };
    let mut live = LiveSource::open("b", options).unwrap();
    let sender = Sender::new("a");
    let before = net::lost("b");
    let (mut sent, mut received, mut bytes) = (0, 0, 0);
    let send = |sent: &mut u32| {
        let frame = udp(*sent);
        sender.send(&frame);
        *sent += 1;
        frame.len() as u64
    };
    // Some blocks are held, with copies of their packets.
    (0..60).for_each(|_| bytes += send(&mut sent));
    let kept: Vec<_> =
        take_packets(&mut live, 60).into_iter().map(|block| (packets(&block), block)).collect();
    received += kept.iter().map(|(_, block)| block.len()).sum::<usize>();
    assert_eq!(received, 60);
    // Ten times the ring's size arrives.
    let mut newest = Vec::new();
    while bytes < 10 * RING {
        (0..50).for_each(|_| bytes += send(&mut sent));
        take_arrived(&mut live, &mut |block| {
            received += block.len();
            newest = packets(&block);
        });
    }
    for (copies, block) in &kept {
        assert!(packets(block) == *copies, "a block in use was overwritten");
    }
    // Reads until every packet is either received or lost.
    let begin = std::time::Instant::now();
    let (totals, dropped) = loop {
        take_arrived(&mut live, &mut |block| received += block.len());
        let totals = live.totals();
        let dropped = totals.drops.packets() + net::lost("b") - before;
        if totals.received.packets + dropped >= u64::from(sent) || begin.elapsed() >= ARRIVAL_TIME_MAX {
            break (totals, dropped);
        }
    };
    assert_eq!(received as u64, totals.received.packets);
    assert_eq!(u64::from(sent), totals.received.packets + dropped, "{totals:?}");
    if kind == SocketKind::Packet {
        // For a ring the kernel waits for the next block, and reports that. Frames of XDP are used in any order.
        assert!(totals.drops.ring_full > 0 && (totals.drops.freezes > 0 || immediate), "{totals:?}");
    }
    // Once they are dropped, all packets arrive again.
    drop(kept);
    let before = live.totals();
    (0..60).for_each(|_| bytes += send(&mut sent));
    let last: Vec<_> = take_packets(&mut live, 60).iter().flat_map(packets).collect();
    let after = live.totals();
    assert_eq!(last.len(), 60, "{before:?} {after:?}");
    assert!(last.iter().map(|packet| &packet.bytes).eq(&(sent - 60..sent).map(udp).collect::<Vec<_>>()));
    assert_eq!(before.drops, after.drops);
}

#[test]
fn blocks_of_a_ring_in_use_are_not_overwritten_and_lost_packets_are_counted() {
    held_blocks_stay(SocketKind::Packet, false);
}

#[test]
fn frames_of_a_ring_in_use_are_not_overwritten_and_lost_packets_are_counted() {
    held_blocks_stay(SocketKind::Packet, true);
}

#[test]
fn frames_of_xdp_in_use_are_not_overwritten_and_lost_packets_are_counted() {
    held_blocks_stay(SocketKind::Xdp, false);
}

fn dropped_in_any_order(options: LiveOptions) {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = LiveSource::open("b", options).unwrap();
    let sender = Sender::new("a");
    // At most two blocks wait for the keeper: even if it runs late, there is room for the next hundred packets.
    let (give, take) = std::sync::mpsc::sync_channel::<Block>(2);
    // Holds five blocks, and drops them in another order than they arrived.
    let keeper = std::thread::spawn(move || {
        let (mut kept, mut seen) = (Vec::new(), 0u32);
        for block in take {
            seen += block.len() as u32;
            kept.push(Some((packets(&block), block)));
            if kept.len() == 5 {
                for i in [2, 4, 0, 3, 1] {
                    let (copies, block) = kept[i].take().unwrap();
                    assert!(packets(&block) == copies);
                }
                kept.clear();
            }
        }
        seen
    });
    let mut received = 0u32;
    for builder in 0..150 {
        (0..100).for_each(|i| sender.send(&udp(builder * 100 + i)));
        let begin = std::time::Instant::now();
        while received < (builder + 1) * 100 {
            match live.next_block(Nanos(10_000_000)).unwrap() {
                LivePoll::Block(block) => {
                    received += block.len() as u32;
                    give.send(block).unwrap();
                }
                // Blocks are dropped when the other thread runs.
                LivePoll::Full | LivePoll::Quiet => {
                    assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{received}: {:?}", live.totals());
                    std::thread::yield_now();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    drop(give);
    assert_eq!(keeper.join().unwrap(), 15_000);
    assert_eq!(live.totals().drops.packets(), 0);
}

#[test]
fn blocks_of_a_ring_are_dropped_in_any_order_and_on_any_thread() {
    dropped_in_any_order(options(SocketKind::Packet));
    dropped_in_any_order(immediate());
}

#[test]
fn frames_of_xdp_are_dropped_in_any_order_and_on_any_thread() {
    dropped_in_any_order(options(SocketKind::Xdp));
}

#[test]
fn many_blocks_of_few_packets_can_be_in_use() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = open("b", SocketKind::Xdp);
    let sender = Sender::new("a");
    let mut held = Vec::new();
    // A block for each packet: the lag is limited by memory, and not by the number of blocks.
    while held.len() < 200 {
        let number = held.len() as u32;
        sender.send(&udp(number));
        held.push(frames::block(&mut live));
    }
    for (number, block) in (0..).zip(&held) {
        assert_eq!((block.len(), &packets(block)[0].bytes), (1, &udp(number)));
    }
    drop(held);
    assert_eq!(live.totals().drops.packets(), 0);
}

#[test]
fn a_packet_is_delivered_without_later_ones_from_a_ring_of_frames() {
    if !net::create_veth_pair() {
        return;
    }
    let mut live = LiveSource::open("b", immediate()).unwrap();
    live.gather(0);
    let sender = Sender::new("a");
    let mut places = Vec::new();
    // Several times as many as the ring has frames: each frame is handed back when its packet's block is dropped.
    for number in 0..10_000 {
        sender.send(&udp(number));
        let block = frames::block(&mut live);
        assert_eq!((block.len(), &packets(&block)[0].bytes), (1, &udp(number)));
        places.push(block.descriptors()[0].data);
    }
    // Each packet has a frame of its own, with room for the longest packet.
    places.sort_unstable();
    places.dedup();
    assert!(places.len() < 10_000 && places.windows(2).all(|two| two[1] - two[0] > 1514), "{}", places.len());
    assert_eq!(live.totals().drops.packets(), 0);
}
