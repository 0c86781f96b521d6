//! Blocks are used and dropped on other threads than the reader's.

use crate::builders::{many, udp};
use std::sync::mpsc::sync_channel;
use weir_netio::{
    Block, Capture, CaptureFilter, CaptureInput, CaptureNext, CaptureOptions, PacketWindow, PacketWriter,
};
use weir_units::Bytes;

fn sent<T: Send>() {}
fn shared<T: Sync>() {}

#[test]
fn types_that_cross_threads_are_send_and_sync() {
    sent::<Block>();
    sent::<Capture>();
    sent::<PacketWriter>();
    sent::<CaptureFilter>();
    shared::<CaptureFilter>();
    sent::<PacketWindow>();
    shared::<PacketWindow>();
    shared::<Block>();
}

#[test]
fn three_threads_read_every_packet_as_it_was_written() {
    let bytes = many(60_000);
    let streamed = CaptureOptions { stream: true, ..CaptureOptions::default() };
    let windowed = CaptureOptions { window: Bytes(256 * 1024), ..CaptureOptions::default() };
    for options in [CaptureOptions::default(), streamed, windowed] {
        let (send, receive) = sync_channel::<Block>(6);
        let receive = std::sync::Mutex::new(receive);
        let mut capture = Capture::open_with(CaptureInput::Bytes(bytes.clone()), options.clone()).unwrap();
        let check = || {
            let (mut packets, mut copy) = (0, Vec::new());
            loop {
                let Ok(block) = receive.lock().unwrap().recv() else { return packets };
                for (i, descriptor) in block.descriptors().iter().enumerate() {
                    let n = u16::try_from(descriptor.number).unwrap();
                    block.copy_packet(i, &mut copy);
                    assert!(copy == udp(n % 1000, n.wrapping_mul(37) % 1400), "{options:?} {n}");
                    assert_eq!(descriptor.src_port, 1000 + n % 1000);
                    packets += 1;
                }
            }
        };
        let seen: usize = std::thread::scope(|scope| {
            let checkers = [(); 3].map(|()| scope.spawn(check));
            loop {
                match capture.next_block().unwrap() {
                    CaptureNext::Block(block) => send.send(block).unwrap(),
                    CaptureNext::Full => std::thread::yield_now(),
                    CaptureNext::End => break,
                }
            }
            drop(send);
            checkers.into_iter().map(|checker| checker.join().unwrap()).sum()
        });
        assert_eq!(seen, 60_000);
    }
}
