//! Packets that are used in place stay unchanged while the capture reads further.

use crate::builders::{MICROSECONDS, Order, Pcap, udp};
use weir_netio::{Capture, CaptureInput, CaptureNext, CaptureOptions, HeldBytes};

/// A capture of this many packets, of different lengths.
fn capture(packets: u16, options: CaptureOptions) -> (tempfile::NamedTempFile, Capture) {
    let mut pcap = Pcap::new(Order::Little, MICROSECONDS, 1);
    for number in 0..packets {
        pcap = pcap.packet(1, u32::from(number), &udp(number, number % 1400));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &pcap.bytes).unwrap();
    let capture = Capture::open_with(CaptureInput::File(file.path().to_owned()), options).unwrap();
    (file, capture)
}

fn check(held: &HeldBytes) {
    let bytes = held.as_ref();
    let packets = held.block().descriptors();
    let first = packets[0].data;
    let (mut copied, mut place) = (Vec::new(), 0);
    for (index, packet) in packets.iter().enumerate() {
        held.block().copy_packet(index, &mut copied);
        place = (packet.data - first) as usize;
        assert_eq!(bytes[place..][..copied.len()], copied);
        let number = u16::try_from(held.block().first_packet()).unwrap() + u16::try_from(index).unwrap();
        assert_eq!(copied, udp(number, number % 1400));
    }
    assert_eq!(bytes.len(), place + copied.len());
}

#[test]
fn held_packets_stay_unchanged_while_others_are_read() {
    let options = CaptureOptions { copy: true, ..CaptureOptions::default() };
    let (_file, mut capture) = capture(50_000, options);
    let mut kept: Vec<HeldBytes> = Vec::new();
    let mut blocks = 0;
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        blocks += 1;
        // A block whose packets are at two ends of the arena has to be copied.
        let Ok(held) = capture.hold_bytes(block) else { continue };
        check(&held);
        // Each block is kept while four others are read.
        kept.push(held);
        kept.iter().for_each(check);
        if kept.len() > 4 {
            kept.remove(0);
        }
    }
    assert!(blocks >= 50_000 / 1024);
    assert_eq!(kept.len(), 4);
}

#[test]
fn packets_of_a_mapped_file_are_not_held() {
    let (_file, mut capture) = capture(10, CaptureOptions::default());
    let CaptureNext::Block(block) = capture.next_block().unwrap() else { panic!("there is a block") };
    assert_eq!(capture.hold_bytes(block).unwrap_err().packets(), 10);
}

#[test]
fn a_block_is_held_by_its_own_capture_only() {
    let options = CaptureOptions { copy: true, ..CaptureOptions::default() };
    let (_first, mut one) = capture(10, options.clone());
    let (_second, mut other) = capture(10, options);
    let CaptureNext::Block(block) = one.next_block().unwrap() else { panic!("there is a block") };
    assert!(matches!(other.next_block().unwrap(), CaptureNext::Block(_)));
    let block = other.hold_bytes(block).unwrap_err();
    check(&one.hold_bytes(block).unwrap());
}
