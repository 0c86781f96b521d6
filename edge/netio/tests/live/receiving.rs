//! Packets that are sent are those that are received.

use crate::net::{self, Sender};
use weir_netio::{Live, LiveNext, LiveOptions};
use weir_units::Nanos;

/// Long enough for what is on its way.
const SOON: Nanos = Nanos(200_000_000);

#[test]
fn all_packets_arrive_with_identical_bytes() {
    if !net::cable() {
        return;
    }
    let mut live = Live::open("b", LiveOptions::default()).unwrap();
    let sender = Sender::new("a");
    let mut expected = Vec::new();
    for i in 0..1000u32 {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 5, 8, 0];
        frame.resize(60 + i as usize, i as u8);
        sender.send(&frame);
        expected.push(frame);
    }
    let (mut received, mut copy) = (Vec::new(), Vec::new());
    loop {
        match live.next_block(SOON).unwrap() {
            LiveNext::Block(block) => {
                for i in 0..block.len() {
                    block.copy_packet(i, &mut copy);
                    received.push(copy.clone());
                }
            }
            LiveNext::Quiet => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(received == expected);
    let totals = live.totals();
    assert_eq!(totals.received.packets, 1000);
    assert_eq!(totals.drops.packets(), 0);
}
