//! The sample capture, cut at every length, and all other captures beside the repository.

use crate::exercise::{self, CONTROL_BYTES};
use pcap::Capture;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_wire::{LinkType, PEEK};

/// Link type, payload, addresses and exposures, in the encoding of [`exercise::view`]: addresses anonymised and
/// zeroed, with and without payload.
const VIEWS: [[u8; 3]; 4] = [[0, 0, 2], [1, 0, 2], [0, 1, 0], [2, 1, 7]];

/// Calls `work` with each packet and the index of its link type.
fn each_packet(file: &Path, mut work: impl FnMut(&[u8], u8)) -> bool {
    let Ok(mut capture) = Capture::from_file(file) else { return false };
    let number = u32::try_from(capture.get_datalink().0).ok();
    let Some(link_type) = number.and_then(|number| LinkType::try_from(number).ok()) else { return false };
    let place = LinkType::ALL.iter().position(|other| *other == link_type).unwrap();
    while let Ok(packet) = capture.next_packet() {
        work(packet.data, u8::try_from(place).unwrap());
    }
    true
}

fn show(packet: &[u8], link_type: u8, view: [u8; 3]) {
    let mut input = vec![0; CONTROL_BYTES];
    input[0] = link_type;
    input[1..4].copy_from_slice(&view);
    input.extend_from_slice(packet);
    exercise::view(&input);
}

#[test]
fn the_sample_capture_can_be_cut_anywhere() {
    let sample = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/sample/sample.pcap"));
    let mut packets = 0_usize;
    assert!(each_packet(sample, |packet, link_type| {
        // Every packet as it is; one in a hundred at every length of its headers, and a few more.
        let lengths = if packets.is_multiple_of(100) { 0..packet.len().min(PEEK * 2) } else { 0..0 };
        for len in lengths.chain([packet.len()]) {
            show(&packet[..len], link_type, VIEWS[(packets + len) % VIEWS.len()]);
        }
        packets += 1;
    }));
    assert!(packets > 1000, "{packets}");
}

#[test]
fn views_of_captures_reveal_nothing_hidden() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces"));
    if !folder.join("index.csv").exists() {
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", folder.display());
        return;
    }
    let mut folders = vec![folder.to_owned()];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        let entries: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mut number = 0;
            read += u32::from(each_packet(&path, |packet, link_type| {
                // Of long captures only the first packets.
                if number < 200 {
                    show(packet, link_type, VIEWS[number % VIEWS.len()]);
                }
                number += 1;
            }));
        }
    }
    assert!(read > 0);
}
