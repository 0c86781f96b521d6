//! Packets built byte by byte, and reading packets from a source.

use std::time::Duration;
use weir_abi::{ARENA_BASE, Descriptor};
use weir_netio::{Block, LiveEvent, LivePoll, LiveSource};
use weir_units::{Nanos, Timestamp};
use weir_wire::{LinkType, Meta, PEEK_MAX, classify};

/// The time in which unexpected packets would arrive.
const QUIET_TIME: Nanos = Nanos(300_000_000);
/// The time in which expected packets arrive even on the slowest and busiest machine.
pub const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(300);

/// The addresses and EtherType of a frame, and the given rest.
pub fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(rest);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IPv4 packet with a UDP datagram of `payload` bytes, or a fragment of one at an offset of `fragment` times eight
/// bytes.
pub fn ipv4(number: u16, payload: usize, fragment: Option<u16>) -> Vec<u8> {
    let len = 28 + payload as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend(number.to_be_bytes());
    // A fragment is followed by further ones.
    packet.extend(fragment.map_or(0, |at| 0x2000 | at).to_be_bytes());
    packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend((1000 + number % 50_000).to_be_bytes());
    packet.extend(53u16.to_be_bytes());
    packet.extend((8 + payload as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend((0..payload).map(|i| (i as u16 ^ number) as u8));
    packet
}

/// A UDP datagram of 60 to 1514 bytes; number and length differ for each.
pub fn udp(number: u32) -> Vec<u8> {
    ethernet(0x0800, &ipv4(number as u16, 18 + number as usize * 37 % 1454, None))
}

/// Packets of all kinds, some of them invalid.
pub fn assorted() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = (0..600).map(udp).collect();
    for number in 0..100u16 {
        let inner = ipv4(number, 100 + usize::from(number), None);
        let tag = [&(0x6000 | number).to_be_bytes()[..], &[8, 0], &inner].concat();
        frames.push(ethernet(0x8100, &tag));
        // Two nested tags (IEEE 802.1ad).
        let double = [&[0, 7, 0x81, 0][..], &tag].concat();
        frames.push(ethernet(0x88a8, &double));
        frames.push(ethernet(0x0800, &ipv4(number, 64, Some(0))));
        frames.push(ethernet(0x0800, &ipv4(number, 64, Some(9 + number))));
        let ipv6 = [&[0x60, 0, 0, 0, 0, 8, 17, 64][..], &[0xfd; 32], &[4, 0, 0, 53, 0, 8, 0, 0]].concat();
        frames.push(ethernet(0x86dd, &ipv6));
        frames.push(ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]));
        // An IPv4 header that contradicts itself, wrong lengths, and noise.
        frames.push(ethernet(0x0800, &[0x4f; 40]));
        frames.push(ethernet(0x0800, &[&[0x45, 0, 0xff, 0xff][..], &[number as u8; 60]].concat()));
        let noise = (0..60 + usize::from(number)).map(|i| (i * i * 31 + usize::from(number) * 17) as u8);
        frames.push(ethernet(0x0700 + number, &noise.collect::<Vec<_>>()));
    }
    frames
}

/// The classifier's result for these bytes, without time, address and number.
pub fn classified(bytes: &[u8], wire_len: usize, link_type: LinkType) -> Descriptor {
    let meta = Meta {
        ts: Timestamp(0),
        cap_len: bytes.len() as u32,
        wire_len: wire_len as u32,
        link_type,
        interface: 0,
        number: 0,
        data: 0,
    };
    classify(&bytes[..bytes.len().min(PEEK_MAX)], &meta).unwrap()
}

/// A packet as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub descriptor: Descriptor,
    pub bytes: Vec<u8>,
}

impl Packet {
    /// The descriptor without the fields that do not depend on the bytes.
    pub fn facts(&self) -> Descriptor {
        Descriptor { ts_ns: 0, data: 0, number: 0, ..self.descriptor }
    }
}

/// The packets of a block.
pub fn packets(block: &weir_netio::Block) -> Vec<Packet> {
    let mut bytes = Vec::new();
    let copy = |(i, descriptor): (usize, &Descriptor)| {
        block.copy_packet(i, &mut bytes);
        assert!(descriptor.data >= ARENA_BASE);
        Packet { descriptor: *descriptor, bytes: bytes.clone() }
    };
    block.descriptors().iter().enumerate().map(copy).collect()
}

/// Waits for the next block, which must arrive.
pub fn block(live: &mut LiveSource) -> Block {
    loop {
        match live.next_block(Nanos(ARRIVAL_TIME_MAX.as_nanos() as u64)).unwrap() {
            LivePoll::Block(block) => return block,
            LivePoll::Event(_) => {}
            other => panic!("no block arrived: {other:?}"),
        }
    }
}

/// Receives `count` packets, which must arrive, and all further packets until none arrives.
pub fn all(live: &mut LiveSource, count: usize) -> Vec<Packet> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(packets(&block(live)));
    }
    received.extend(rest(live).0);
    received
}

/// Receives `count` packets, which must arrive at the two sources together, and all further packets until none arrives.
pub fn from_two(one: &mut LiveSource, other: &mut LiveSource, count: usize) -> [Vec<Packet>; 2] {
    let (mut received, begin) = ([Vec::new(), Vec::new()], std::time::Instant::now());
    while received[0].len() + received[1].len() < count {
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{} and {}", received[0].len(), received[1].len());
        for (received, live) in received.iter_mut().zip([&mut *one, &mut *other]) {
            if let LivePoll::Block(block) = live.next_block(Nanos(1_000_000)).unwrap() {
                received.extend(packets(&block));
            }
        }
    }
    let [first, second] = received;
    [[first, rest(one).0].concat(), [second, rest(other).0].concat()]
}

/// Waits for `count` events, which must occur. Returns them and all further events, as text.
pub fn events(live: &mut LiveSource, count: usize) -> Vec<String> {
    let (mut events, begin) = (Vec::new(), std::time::Instant::now());
    while events.len() < count {
        assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{events:?}");
        events.extend(rest(live).1.iter().map(ToString::to_string));
    }
    events
}

/// Receives packets and events until none arrives.
fn rest(live: &mut LiveSource) -> (Vec<Packet>, Vec<LiveEvent>) {
    let (mut received, mut events) = (Vec::new(), Vec::new());
    loop {
        match live.next_block(QUIET_TIME).unwrap() {
            LivePoll::Block(block) => received.extend(packets(&block)),
            LivePoll::Event(event) => events.push(event),
            LivePoll::Quiet | LivePoll::End => return (received, events),
            LivePoll::Full => panic!("memory is full although no block is in use"),
        }
    }
}
