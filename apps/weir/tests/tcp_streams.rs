//! TCP streams of `weir run`, from the events that a module gets: fragments, checksums, and tshark's bytes of the same streams.

mod module;
mod tshark;

use crate::modules::capture::Capture;
use crate::modules::packet::{ACK, FIN, Packet, SYN};
use module::{Direction, events, streams};
use serde_json::Value;
use weir_abi::stream::cause;

const TCP: &str = "streams = 256\nbuffer = '1 MiB'\n";
const MACS: usize = 12;
const ETHERNET: usize = 14;

/// The two ends of a connection.
type Ends = [&'static str; 2];

const V4: Ends = ["10.0.0.1:40000", "10.0.0.2:80"];
const V6: Ends = ["[2001:db8::1]:40000", "[2001:db8::2]:80"];

/// A segment with an offset behind the SYN of its sender, which acknowledges the SYN and `acknowledges` bytes of the other side.
fn segment(ends: Ends, side: usize, flags: u8, at: u32, acknowledges: u32, payload: &[u8]) -> Packet {
    let at = if flags & SYN == 0 { at + 1 } else { 0 };
    let packet = Packet::tcp(ends[side], ends[1 - side], flags);
    packet.numbers(1000 + at, 1001 + acknowledges).payload(payload)
}

fn handshake(ends: Ends) -> Vec<Vec<u8>> {
    [(0, SYN), (1, SYN | ACK), (0, ACK)]
        .map(|(side, flags)| segment(ends, side, flags, 0, 0, b"").ethernet())
        .to_vec()
}

/// Splits a frame behind `len` bytes of its IP payload.
fn fragments(frame: &[u8], len: usize) -> [Vec<u8>; 2] {
    let (front, ip) = frame.split_at(ETHERNET);
    let is_v6 = frame[MACS] == 0x86;
    let (header, payload) = ip.split_at(if is_v6 { 40 } else { 20 });
    let (first, last) = payload.split_at(len);
    [(first, 0, true), (last, len, false)].map(|(part, at, has_more)| {
        let mut header = header.to_vec();
        let units = u16::try_from(at / 8).unwrap();
        if is_v6 {
            header[4..6].copy_from_slice(&u16::try_from(8 + part.len()).unwrap().to_be_bytes());
            let place = (units << 3 | u16::from(has_more)).to_be_bytes();
            let fragment = [header[6], 0, place[0], place[1], 0, 0, 0, 9];
            header[6] = 44;
            return [front, &header, &fragment, part].concat();
        }
        header[2..4].copy_from_slice(&u16::try_from(20 + part.len()).unwrap().to_be_bytes());
        header[6..8].copy_from_slice(&(units | u16::from(has_more) << 13).to_be_bytes());
        header[10..12].fill(0);
        let sum: u32 = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [front, &header, part].concat()
    })
}

/// The streams of frames a millisecond apart, and the module's counters.
fn followed(frames: &[Vec<u8>], tcp: &str) -> (Vec<module::Stream>, Value) {
    let mut capture = Capture::new(crate::modules::capture::ETHERNET);
    for (index, frame) in (0..).zip(frames) {
        capture.push(crate::modules::capture::BEGIN + index * 1_000_000, frame.clone());
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.to_pcap()).unwrap();
    let (events, summary) = events(file.path(), tcp).unwrap();
    (streams(&events), summary["modules"][0]["tcp_streams"].clone())
}

fn direction(runs: &[Result<&[u8], u64>]) -> Direction {
    let mut direction = Direction::default();
    for run in runs {
        match run {
            Ok(bytes) => direction.push_bytes(bytes),
            Err(missing) => direction.push_missing(*missing),
        }
    }
    direction
}

#[test]
fn a_segment_in_fragments_is_counted_and_becomes_a_gap() {
    for ends in [V4, V6] {
        let middle: Vec<u8> = (0..600_u32).map(|at| at.to_le_bytes()[0]).collect();
        let whole = segment(ends, 0, ACK, 5, 0, &middle).ethernet();
        // The first fragment has the TCP header, and some of the data, or none.
        for len in [20, 24, 400, 616] {
            let [first, last] = fragments(&whole, len / 8 * 8);
            for order in
                [vec![first.clone(), last.clone()], vec![last.clone(), first.clone()], vec![first.clone()]]
            {
                let mut frames = handshake(ends);
                frames.push(segment(ends, 0, ACK, 0, 0, b"begin").ethernet());
                frames.extend(order);
                frames.push(segment(ends, 0, ACK, 605, 0, b"end").ethernet());
                frames.push(segment(ends, 1, ACK, 0, 608, b"answer").ethernet());
                frames.push(segment(ends, 0, FIN | ACK, 608, 6, b"").ethernet());
                frames.push(segment(ends, 1, FIN | ACK, 6, 609, b"").ethernet());
                let (streams, counters) = followed(&frames, TCP);
                let [stream] = &streams[..] else { panic!("{streams:?}") };
                let expected =
                    [direction(&[Ok(b"begin"), Err(600), Ok(b"end")]), direction(&[Ok(b"answer")])];
                assert_eq!(stream.directions, expected, "{ends:?}, {len}");
                assert_eq!(stream.cause, cause::FIN);
                // Later fragments have no TCP header, and count as no segments.
                assert_eq!(
                    [&counters["fragments"], &counters["missing_bytes"]],
                    [1, 600],
                    "{ends:?}: {counters}"
                );
            }
        }
    }
}

#[test]
fn fragments_never_open_or_end_a_stream() {
    // Tiny fragments, whose flags are in the second one; a SYN and a reset in fragments; and overlapping fragments.
    let mut frames = Vec::new();
    let other = ["10.0.0.3:40000", "10.0.0.2:80"];
    for flags in [SYN, ACK] {
        let [first, last] = fragments(&segment(other, 0, flags, 0, 0, b"evil").ethernet(), 16);
        frames.extend([first.clone(), last.clone(), last, first]);
    }
    frames.extend(handshake(V4));
    frames.push(segment(V4, 0, ACK, 0, 0, b"good").ethernet());
    let reset = segment(V4, 0, 4, 4, 0, b"evil").ethernet();
    frames.extend([8, 16].into_iter().flat_map(|len| fragments(&reset, len)));
    frames.push(segment(V4, 0, FIN | ACK, 4, 0, b"").ethernet());
    frames.push(segment(V4, 1, FIN | ACK, 0, 5, b"").ethernet());
    let (streams, _) = followed(&frames, TCP);
    let [stream] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!(stream.directions, [direction(&[Ok(b"good")]), Direction::default()]);
    assert_eq!(stream.cause, cause::FIN);
}

#[test]
fn segments_with_a_wrong_checksum_are_left_out_where_the_manifest_asks_for_it() {
    for ends in [V4, V6] {
        let mut wrong = segment(ends, 0, ACK, 0, 0, b"wrong").ethernet();
        let at = wrong.len() - 5;
        wrong[at] = b'W';
        let mut frames = handshake(ends);
        frames.push(wrong);
        frames.push(segment(ends, 0, ACK, 0, 0, b"right").ethernet());
        frames.push(segment(ends, 0, FIN | ACK, 5, 0, b"").ethernet());
        frames.push(segment(ends, 1, FIN | ACK, 0, 6, b"").ethernet());
        for (setting, bytes, bad) in
            [("", b"Wrong", 0), ("checksums = false\n", b"Wrong", 0), ("checksums = true\n", b"right", 1)]
        {
            let (streams, counters) = followed(&frames, &format!("{TCP}{setting}"));
            let [stream] = &streams[..] else { panic!("{streams:?}") };
            assert_eq!(stream.directions[0], direction(&[Ok(bytes)]), "{ends:?} {setting}");
            // Without the check the second segment is a repeated one.
            let expected = [bad, 1 - bad];
            assert_eq!(
                [&counters["bad_checksum"], &counters["retransmitted"]],
                expected,
                "{setting}: {counters}"
            );
        }
    }
}
