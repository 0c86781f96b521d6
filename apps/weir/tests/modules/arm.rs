//! Module arm: requests are answered from copies, or forwarded once without a copy; if too few are answered, arm keeps more copies.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND};
use super::packet::Packet;
use super::weir::{Row, run};

/// Packet `sequence` of a multicast stream.
fn data(stream: u32, sequence: u32, len: usize) -> Packet {
    let mut payload = vec![1, 1, 0, 0];
    payload.extend(stream.to_be_bytes());
    payload.extend(sequence.to_be_bytes());
    payload.extend((0..len).map(|i| u8::try_from((i ^ sequence as usize) & 0xff).unwrap()));
    Packet::udp("10.0.0.1:7000", "239.1.1.1:5350").payload(payload)
}

/// A receiver's request to the sender.
fn nack(stream: u32, wanted: &[u32]) -> Packet {
    let mut payload = vec![2, 1, 0, 0];
    payload.extend(stream.to_be_bytes());
    payload.extend(u32::try_from(wanted.len()).unwrap().to_be_bytes());
    payload.extend(wanted.iter().flat_map(|sequence| sequence.to_be_bytes()));
    Packet::udp("10.0.9.9:7001", "10.0.0.1:5350").payload(payload)
}

/// The frames that arm sends, the packets it forwards, and its row for each interval.
fn serve(packets: &[(u64, Packet)], parameters: &str) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<Row>) {
    serve_from(BEGIN, packets, parameters)
}

fn serve_from(
    begin: u64,
    packets: &[(u64, Packet)],
    parameters: &str,
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<Row>) {
    let mut capture = Capture::new(ETHERNET);
    for (at, packet) in packets {
        capture.push(begin + at, packet.ethernet());
    }
    let written = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
    let run = run(&capture, &["-m", &format!("arm{parameters}"), "-w", written.path().to_str().unwrap()]);
    let bytes = |capture: Capture| capture.frames.into_iter().map(|frame| frame.bytes).collect();
    (bytes(run.sent("arm", "repairs")), bytes(Capture::read(written.path())), run.rows("arm", "service"))
}

/// One packet per millisecond from a time on.
fn every_millisecond(from: u64, packets: impl IntoIterator<Item = Packet>) -> Vec<(u64, Packet)> {
    (0..).map(|i| from + i * MILLISECOND).zip(packets).collect()
}

#[test]
fn a_request_is_answered_with_the_original_packet_and_not_forwarded() {
    let stream: Vec<Packet> = (0..20).map(|sequence| data(7, sequence, 1000)).collect();
    let mut packets = every_millisecond(0, stream.clone());
    packets.push((100 * MILLISECOND, nack(7, &[3, 11])));
    // A repeated request is ignored shortly after the answer, and answered again later.
    packets.push((101 * MILLISECOND, nack(7, &[11])));
    packets.push((200 * MILLISECOND, nack(7, &[11])));
    let (sent, went_on, _) = serve(&packets, "");
    let expected: Vec<_> = [3, 11, 11].map(|sequence| stream[sequence].ethernet()).to_vec();
    assert_eq!(sent, expected);
    assert_eq!(went_on, stream.iter().map(Packet::ethernet).collect::<Vec<_>>());
}

#[test]
fn a_request_without_a_copy_is_forwarded_once() {
    let requests = [
        (0, nack(7, &[5])),
        (MILLISECOND, nack(7, &[5])),
        (2 * MILLISECOND, nack(7, &[5, 6])),
        (3 * MILLISECOND, nack(8, &[5])),
        (100 * MILLISECOND, nack(7, &[5])),
    ];
    let expected: Vec<_> = [0, 2, 3, 4].map(|i: usize| requests[i].1.ethernet()).to_vec();
    for begin in [BEGIN, 0] {
        let (sent, went_on, _) = serve_from(begin, &requests, "");
        assert!(sent.is_empty());
        assert_eq!(went_on, expected, "the second asks for nothing new, from {begin} on");
    }
}

#[test]
fn packets_outside_of_streams_pass_unchanged() {
    let mut packets = vec![
        nack(7, &[]),
        Packet::udp("10.0.0.1:1", "10.0.0.2:5350").payload([1, 1, 0, 0]),
        Packet::udp("10.0.0.1:1", "10.0.0.2:5350").payload([2, 9, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 3]),
        Packet::udp("10.0.0.1:1", "10.0.0.2:5351").payload(data(7, 3, 100).payload),
        // Its count exceeds the packet and the maximum.
        Packet::udp("10.0.0.1:1", "10.0.0.2:5350")
            .payload([2, 1, 0, 0, 0, 0, 0, 7, 255, 255, 255, 255, 0, 0, 0, 3]),
    ];
    packets.insert(0, data(7, 3, 100));
    let (sent, went_on, _) = serve(&every_millisecond(0, packets.clone()), "");
    assert_eq!(sent, [data(7, 3, 100).ethernet()], "what is there is answered");
    // An empty request is not forwarded.
    let expected: Vec<_> =
        packets.iter().filter(|packet| packet.payload.len() != 12).map(Packet::ethernet).collect();
    assert_eq!(went_on, expected);
}

#[test]
fn streams_are_separate_and_the_oldest_copies_are_evicted_first() {
    let mut packets = every_millisecond(0, (0..40).map(|sequence| data(1, sequence, 50)));
    packets.extend(every_millisecond(40 * MILLISECOND, [data(2, 39, 60)]));
    packets.push((SECOND / 2, nack(1, &[0, 8, 9, 39])));
    packets.push((SECOND / 2 + 1, nack(2, &[39, 38])));
    let (sent, went_on, _) = serve(&packets, "");
    // Copies of the last 32 of 41 packets are kept.
    assert_eq!(sent, [data(1, 9, 50), data(1, 39, 50), data(2, 39, 60)].map(|packet| packet.ethernet()));
    assert_eq!(went_on.len(), 41 + 2, "both requests ask for something that is not there, too");
}

/// A receiver that requests the packet `behind` packets ago.
fn lossy(seconds: u64, behind: u32, each: u32) -> Vec<(u64, Packet)> {
    let mut packets = Vec::new();
    for number in 0..u32::try_from(seconds * 1000).unwrap() {
        let at = u64::from(number) * MILLISECOND;
        packets.push((at, data(1, number, 200)));
        if number % each == 0 && number > behind {
            packets.push((at + 1000, nack(1, &[number - behind])));
        }
    }
    packets
}

#[test]
fn if_too_few_requests_are_answered_arm_requests_more_memory() {
    let (sent, _, rows) = serve(&lossy(12, 150, 4), "");
    let copies: Vec<i128> = rows.iter().map(|row| row.number("copies")).collect();
    assert_eq!(copies[..6], [32, 64, 96, 128, 160, 160], "until 150 packets are there");
    assert!(copies.iter().skip(5).all(|copies| *copies == 160), "{copies:?}");
    let in_last = |name: &str| rows[rows.len() - 1].number(name) - rows[rows.len() - 2].number(name);
    assert_eq!((in_last("hit_packets"), in_last("nack_packets")), (250, 250));
    assert_eq!(rows[10].number("copies_bytes"), 160 * 2048);
    let last = rows.last().unwrap();
    assert!(sent.len() as i128 >= last.number("sent_packets") && last.number("refused_packets") == 0);

    // It never exceeds its limit.
    let (_, _, rows) = serve(&lossy(6, 150, 4), ",most=64");
    assert!(rows.iter().all(|row| row.number("copies") <= 64));
    // If all requests are answered, it keeps its size.
    let (_, _, rows) = serve(&lossy(4, 10, 4), "");
    assert!(rows.iter().all(|row| row.number("copies") == 32));
}
