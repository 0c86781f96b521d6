//! TCP streams: each rule for segments, and random orders of segments against a simple model.

use proptest::prelude::*;
use std::collections::BTreeMap;
use weir_units::{Bytes, Nanos, Timestamp};
use weir_wire::stream::{
    OverlapPolicy, TcpEventBytes, TcpEventKind, TcpReply, TcpSegment, TcpStreamConfig, TcpStreams,
};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// First sequence numbers: the client's wraps soon.
const CLIENT: u32 = 0xffff_fff0;
const SERVER: u32 = 1000;

fn config() -> TcpStreamConfig {
    TcpStreamConfig {
        streams: 256,
        buffer: Bytes(4 << 20),
        first: None,
        idle: Nanos(300 * Nanos::SECOND.0),
        overlap: OverlapPolicy::Linux,
        conflicts: true,
    }
}

/// A table of streams, and the events that it gave, as text: `>` from the client, `<` from the server.
struct Bench {
    streams: TcpStreams,
    events: Vec<String>,
    now: u64,
    reply: fn(TcpEventKind) -> TcpReply,
}

impl Bench {
    fn new(config: TcpStreamConfig) -> Self {
        Self {
            streams: TcpStreams::new(config),
            events: Vec::new(),
            now: Nanos::SECOND.0,
            reply: |_| TcpReply::default(),
        }
    }

    /// Takes a segment of the connection with this number. `len` counts bytes that were not captured, too.
    #[expect(clippy::too_many_arguments, reason = "the fields of a segment")]
    fn segment(
        &mut self,
        connection: u16,
        from_client: bool,
        seq: u32,
        ack: u32,
        flags: u8,
        bytes: &str,
        len: u32,
    ) {
        let client = ([0, 0xffff_0a00_0001], 40_000 + connection);
        let server = ([0, 0xffff_0a00_0002], 80);
        let (src, dst) = if from_client { (client, server) } else { (server, client) };
        self.now += 1000;
        let segment = TcpSegment {
            ts_ns: self.now,
            flow_hash: u64::from(connection) << 60 | 0x1234_5678,
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            seq,
            ack,
            flags,
            window: 60_000,
            captured: u32::try_from(bytes.len()).unwrap(),
            len: len.max(u32::try_from(bytes.len()).unwrap()),
            ..TcpSegment::default()
        };
        let text = bytes.to_owned();
        self.streams.push(self.streams.key_of(&segment), &segment, &mut |from, len, out| {
            out.extend_from_slice(&text.as_bytes()[from as usize..(from + len) as usize]);
        });
        self.take(bytes);
    }

    /// Ends all streams.
    fn stop(&mut self) {
        for part in 0..TcpStreams::STOP_PARTS {
            self.streams.stop(Timestamp(self.now), part);
            self.take("");
        }
    }

    fn take(&mut self, packet: &str) {
        let mut reply = TcpReply::default();
        while let Some(event) = self.streams.next(reply) {
            reply = (self.reply)(event.kind);
            let arrow = if event.from_server { '<' } else { '>' };
            let text = match event.kind {
                TcpEventKind::Open => "open".to_owned(),
                TcpEventKind::Bytes => {
                    let bytes = match event.bytes {
                        TcpEventBytes::InPacket { from, len } => {
                            packet[from as usize..(from + len) as usize].to_owned()
                        }
                        TcpEventBytes::Waiting(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                        TcpEventBytes::None => String::new(),
                    };
                    format!("{arrow}{}:{bytes}", event.offset)
                }
                TcpEventKind::Gap => format!("{arrow}{}:gap {}", event.offset, event.missing),
                TcpEventKind::Fin => format!("{arrow}fin"),
                TcpEventKind::Conflict => format!("{arrow}conflict {}", event.missing),
                TcpEventKind::End => format!("end {:?}", event.cause.unwrap()),
            };
            self.events.push(text);
        }
    }

    fn client(&mut self, at: u32, bytes: &str) {
        self.segment(0, true, CLIENT.wrapping_add(1 + at), SERVER + 1, ACK, bytes, 0);
    }

    fn server(&mut self, at: u32, bytes: &str, acknowledged: u32) {
        self.segment(0, false, SERVER + 1 + at, CLIENT.wrapping_add(1 + acknowledged), ACK, bytes, 0);
    }

    fn handshake(&mut self) {
        self.segment(0, true, CLIENT, 0, SYN, "", 0);
        self.segment(0, false, SERVER, CLIENT.wrapping_add(1), SYN | ACK, "", 0);
        self.client(0, "");
    }

    fn events(&mut self) -> String {
        std::mem::take(&mut self.events).join(" ")
    }
}

/// A connection whose handshake was seen.
fn connected(config: TcpStreamConfig) -> Bench {
    let mut bench = Bench::new(config);
    bench.handshake();
    assert_eq!(bench.events(), "", "a handshake alone causes no event");
    bench
}

#[test]
fn bytes_in_order_are_given_at_once_across_the_wrap_of_sequence_numbers() {
    let mut bench = connected(config());
    bench.client(0, "0123456789");
    bench.client(10, "abcdefghij");
    bench.server(0, "answer", 20);
    assert_eq!(bench.events(), "open >0:0123456789 >10:abcdefghij <0:answer");
}

#[test]
fn later_bytes_wait_for_earlier_ones() {
    let mut bench = connected(config());
    bench.client(6, "world");
    bench.client(3, "lo ");
    assert_eq!(bench.events(), "");
    bench.client(0, "hel");
    assert_eq!(bench.events(), "open >0:hel >3:lo  >6:world");
    assert_eq!(bench.streams.counters().out_of_order, 2);
}

#[test]
fn repeated_bytes_are_given_once_and_different_ones_are_reported() {
    let mut bench = connected(config());
    bench.client(0, "hello");
    bench.client(0, "hello");
    assert_eq!(bench.events(), "open >0:hello");
    bench.client(0, "HELLO");
    assert_eq!(bench.events(), ">conflict 5");
    // The front of the segment was given already.
    bench.client(3, "lo world");
    assert_eq!(bench.events(), ">5: world");
    assert_eq!(bench.streams.counters().retransmitted, 3);
}

#[test]
fn overlaps_at_the_front_and_at_the_back_follow_the_policy() {
    for (overlap, wanted) in [
        (OverlapPolicy::First, "open >conflict 2 >0:xx >2:aaaa >6:bb"),
        (OverlapPolicy::Last, "open >conflict 2 >0:xx >2:aa >4:bbbb"),
        (OverlapPolicy::Linux, "open >conflict 2 >0:xx >2:aaaa >6:bb"),
    ] {
        let mut bench = connected(TcpStreamConfig { overlap, ..config() });
        bench.client(2, "aaaa");
        bench.client(4, "bbbb");
        bench.client(0, "xx");
        assert_eq!(bench.events(), wanted, "{overlap}");
    }
    // A segment that begins before a waiting one and reaches into it.
    for (overlap, wanted) in [
        (OverlapPolicy::First, "open >conflict 2 >0:bb >2:aaaa"),
        (OverlapPolicy::Bsd, "open >conflict 2 >0:bbbb >4:aa"),
    ] {
        let mut bench = connected(TcpStreamConfig { overlap, ..config() });
        bench.client(2, "aaaa");
        bench.client(0, "bbbb");
        assert_eq!(bench.events(), wanted, "{overlap}");
    }
}

#[test]
fn a_segment_inside_a_hole_leaves_two_holes() {
    let mut bench = connected(config());
    bench.client(8, "89");
    bench.client(4, "4");
    bench.client(0, "0123");
    assert_eq!(bench.events(), "open >0:0123 >4:4");
    bench.client(5, "567");
    assert_eq!(bench.events(), ">5:567 >8:89");
}

#[test]
fn a_hole_that_the_receiver_has_acknowledged_is_a_gap() {
    let mut bench = connected(config());
    bench.client(5, "later");
    bench.server(0, "", 4);
    assert_eq!(bench.events(), "", "the receiver lacks a byte");
    bench.server(0, "", 10);
    assert_eq!(bench.events(), "open >0:gap 5 >5:later");
    assert_eq!(bench.streams.counters().missing_bytes, 5);
}

#[test]
fn segments_outside_of_the_window_do_not_count() {
    let mut bench = connected(config());
    // The server announced a window of 60,000 bytes.
    bench.client(60_000, "outside");
    bench.client(2_000_000_000, "far outside");
    assert_eq!(bench.streams.counters().out_of_window, 2);
    bench.client(59_998, "edge");
    bench.client(0, "begin");
    assert_eq!(bench.events(), "open >0:begin");
}

#[test]
fn data_in_a_syn_come_first() {
    let mut bench = Bench::new(config());
    bench.segment(0, true, CLIENT, 0, SYN, "early", 0);
    bench.segment(0, false, SERVER, CLIENT.wrapping_add(6), SYN | ACK, "", 0);
    bench.client(5, " and late");
    assert_eq!(bench.events(), "open >0:early >5: and late");
}

#[test]
fn a_fin_ends_its_direction_after_all_bytes_and_data_behind_it_do_not_count() {
    let mut bench = connected(config());
    bench.segment(0, true, CLIENT.wrapping_add(4), SERVER + 1, ACK | FIN, "end", 0);
    assert_eq!(bench.events(), "");
    bench.client(0, "the");
    assert_eq!(bench.events(), "open >0:the >3:end >fin");
    bench.client(7, "behind");
    bench.client(6, "x");
    assert_eq!(bench.events(), "");
    bench.segment(0, false, SERVER + 1, CLIENT.wrapping_add(8), ACK | FIN, "bye", 0);
    assert_eq!(bench.events(), "<0:bye <fin end Fin");
    // Late packets do not begin a new stream.
    bench.segment(0, true, CLIENT.wrapping_add(4), SERVER + 5, ACK | FIN, "end", 0);
    assert_eq!(bench.events(), "");
    assert_eq!(bench.streams.counters().opened, 1);
}

#[test]
fn a_reset_counts_only_inside_the_window() {
    let mut bench = connected(config());
    bench.client(0, "data");
    bench.segment(0, true, CLIENT.wrapping_add(200_000), 0, RST, "", 0);
    bench.client(4, "more");
    assert_eq!(bench.events(), "open >0:data >4:more");
    assert_eq!(bench.streams.counters().ignored_resets, 1);
    bench.segment(0, true, CLIENT.wrapping_add(9), 0, RST, "", 0);
    assert_eq!(bench.events(), "end Reset");
    bench.client(8, "after");
    assert_eq!(bench.events(), "");
}

#[test]
fn a_capture_can_begin_in_the_middle_and_have_one_direction() {
    let mut bench = Bench::new(config());
    bench.segment(0, true, CLIENT.wrapping_add(500), SERVER + 77, ACK, "GET ", 0);
    bench.segment(0, true, CLIENT.wrapping_add(504), SERVER + 77, ACK, "/", 0);
    assert_eq!(bench.events(), "open >0:GET  >4:/");
    // The answer begins where the request has acknowledged it.
    bench.segment(0, false, SERVER + 77, CLIENT.wrapping_add(505), ACK, "HTTP", 0);
    assert_eq!(bench.events(), "<0:HTTP");
    // The well-known port is the server's, although its packet comes first.
    let mut bench = Bench::new(config());
    bench.segment(0, false, SERVER, CLIENT, ACK, "answer", 0);
    assert_eq!(bench.events(), "open <0:answer");
}

#[test]
fn bytes_that_were_not_captured_are_gaps() {
    let mut bench = connected(config());
    bench.segment(0, true, CLIENT.wrapping_add(1), SERVER + 1, ACK, "head", 100);
    bench.client(100, "next");
    assert_eq!(bench.events(), "open >0:head >4:gap 96 >100:next");
    // Also in the order of arrival, and with all bytes hidden.
    bench.segment(0, true, CLIENT.wrapping_add(205), SERVER + 1, ACK, "", 50);
    bench.client(104, &"x".repeat(100));
    let events = bench.events();
    assert!(events.ends_with(" >204:gap 50") || events.ends_with(">204:gap 50"), "{events}");
}

#[test]
fn a_probe_that_keeps_the_connection_alive_is_no_retransmission() {
    let mut bench = connected(config());
    bench.client(0, "data");
    bench.client(3, "?");
    bench.client(3, "");
    assert_eq!(bench.events(), "open >0:data");
    assert_eq!(bench.streams.counters().retransmitted, 0);
}

#[test]
fn both_sides_can_open_a_connection_at_once() {
    let mut bench = Bench::new(config());
    bench.segment(0, true, CLIENT, 0, SYN, "", 0);
    bench.segment(0, false, SERVER, 0, SYN, "", 0);
    bench.segment(0, true, CLIENT, SERVER + 1, SYN | ACK, "", 0);
    bench.segment(0, false, SERVER, CLIENT.wrapping_add(1), SYN | ACK, "", 0);
    bench.client(0, "hello");
    bench.server(0, "world", 5);
    assert_eq!(bench.events(), "open >0:hello <0:world");
    assert_eq!(bench.streams.counters().opened, 1);
}

#[test]
fn a_new_connection_with_the_same_ends_needs_an_answer_while_the_old_one_is_in_progress() {
    let mut bench = connected(config());
    bench.client(0, "old");
    // A forged SYN alone changes nothing.
    bench.segment(0, true, 5_000, 0, SYN, "", 0);
    bench.client(3, " data");
    assert_eq!(bench.events(), "open >0:old >3: data");
    bench.segment(0, true, 7_000, 0, SYN, "", 0);
    bench.segment(0, false, 90_000, 7_001, SYN | ACK, "", 0);
    assert_eq!(bench.events(), "end Reused");
    // After the end of a connection a SYN is enough.
    let mut bench = connected(config());
    bench.client(0, "x");
    bench.segment(0, true, CLIENT.wrapping_add(2), 0, RST, "", 0);
    bench.segment(0, true, 7_000, 0, SYN, "", 0);
    bench.segment(0, false, 90_000, 7_001, SYN | ACK, "", 0);
    bench.segment(0, true, 7_001, 90_001, ACK, "new", 0);
    assert_eq!(bench.events(), "open >0:x end Reset open >0:new");
}

#[test]
fn events_of_a_lost_call_do_not_go_to_the_next_packet() {
    let mut bench = connected(config());
    let segment = TcpSegment {
        ts_ns: bench.now,
        flow_hash: 0x1234_5678,
        src: [0, 0xffff_0a00_0001],
        dst: [0, 0xffff_0a00_0002],
        src_port: 40_000,
        dst_port: 80,
        seq: CLIENT.wrapping_add(1),
        flags: ACK,
        captured: 4,
        len: 4,
        ..TcpSegment::default()
    };
    bench.streams.push(bench.streams.key_of(&segment), &segment, &mut |_, _, _| {});
    assert_eq!(bench.streams.next(TcpReply::default()).map(|event| event.kind), Some(TcpEventKind::Open));
    // The call traps here. The next packet has no segment that can be used, so it has no event.
    bench.streams.count_bad_checksum();
    assert_eq!(bench.streams.next(TcpReply::default()), None);
}

#[test]
fn a_stream_that_is_ignored_hides_no_other_one_with_the_same_flow_hash() {
    let mut bench = connected(config());
    bench.reply = |_| TcpReply { skip: false, ignore: true };
    bench.client(0, "x");
    assert_eq!(bench.events(), "open");
    let [client, other, server] =
        [(0xffff_0a00_0001, 40_000), (0xffff_0a00_0001, 40_001), (0xffff_0a00_0002, 80)];
    let mut is_taken = |(src, src_port), (dst, dst_port), flags: u8| {
        let flow_hash = 0x1234_5678;
        let (src, dst) = ([0, src], [0, dst]);
        let segment = TcpSegment { flow_hash, src, dst, src_port, dst_port, flags, ..TcpSegment::default() };
        bench.streams.take_ignored(bench.streams.key_of(&segment), &segment)
    };
    assert!(is_taken(client, server, ACK) && is_taken(server, client, ACK));
    assert!(!is_taken(client, server, SYN), "it may begin another stream");
    assert!(!is_taken(other, server, ACK) && !is_taken(client, other, ACK));
}

#[test]
fn urgent_data_stay_in_place() {
    let mut bench = connected(config());
    bench.segment(0, true, CLIENT.wrapping_add(1), SERVER + 1, ACK | 32, "a!b", 0);
    assert_eq!(bench.events(), "open >0:a!b");
}

#[test]
fn the_first_bytes_of_each_direction_are_enough_for_a_module_that_says_so() {
    let mut bench = connected(TcpStreamConfig { first: Some(6), ..config() });
    bench.client(0, "0123");
    bench.client(4, "4567");
    bench.client(20, "later");
    bench.client(8, "89");
    bench.server(0, "abcdefgh", 10);
    assert_eq!(bench.events(), "open >0:0123 >4:45 <0:abcdef");
    bench.segment(0, true, CLIENT.wrapping_add(26), SERVER + 9, ACK | FIN, "", 0);
    assert_eq!(bench.events(), ">fin");
}

#[test]
fn replies_end_a_direction_or_the_whole_stream() {
    let mut bench = connected(config());
    bench.reply = |kind| TcpReply { skip: kind == TcpEventKind::Bytes, ignore: false };
    bench.client(0, "one");
    bench.client(3, "two");
    bench.server(0, "answer", 6);
    bench.segment(0, true, CLIENT.wrapping_add(7), SERVER + 7, ACK | FIN, "", 0);
    assert_eq!(bench.events(), "open >0:one <0:answer >fin");
    let mut bench = connected(config());
    bench.reply = |kind| TcpReply { skip: false, ignore: kind == TcpEventKind::Open };
    bench.client(0, "one");
    bench.server(0, "answer", 3);
    bench.segment(0, true, CLIENT.wrapping_add(4), 0, RST, "", 0);
    assert_eq!(bench.events(), "open");
}

#[test]
fn streams_end_by_time_eviction_and_at_the_stop() {
    let mut bench = connected(config());
    bench.client(0, "x");
    bench.client(5, "waits");
    for second in 1..=64 {
        bench.streams.sweep(Timestamp(bench.now + second * Nanos::SECOND.0), 1);
        bench.take("");
    }
    assert_eq!(bench.events(), "open >0:x >1:gap 4 >5:waits", "a hole is given up after some seconds");
    for second in 301..=364 {
        bench.streams.sweep(Timestamp(bench.now + second * Nanos::SECOND.0), 1);
        bench.take("");
    }
    assert_eq!(bench.events(), "end Timeout");
    assert_eq!(bench.streams.counters().timed_out, 1);

    let mut bench = connected(config());
    bench.client(0, "x");
    bench.client(5, "waits");
    bench.stop();
    assert_eq!(bench.events(), "open >0:x >1:gap 4 >5:waits end Stop");
}

#[test]
fn half_open_connections_make_room_for_each_other_and_not_for_streams_with_bytes() {
    let mut bench = Bench::new(config());
    // All of these streams are in one set of eight.
    let mut one = |connection: u16, seq: u32, flags: u8, bytes: &str| {
        let segment = TcpSegment {
            ts_ns: u64::from(connection) + u64::from(seq),
            flow_hash: u64::from(connection),
            src: [1, u64::from(connection)],
            dst: [2, 2],
            src_port: connection,
            dst_port: 80,
            seq,
            flags,
            captured: u32::try_from(bytes.len()).unwrap(),
            len: u32::try_from(bytes.len()).unwrap(),
            ..TcpSegment::default()
        };
        let bytes = bytes.to_owned();
        bench.streams.push(bench.streams.key_of(&segment), &segment, &mut |from, len, out| {
            out.extend_from_slice(&bytes.as_bytes()[from as usize..(from + len) as usize]);
        });
        bench.take(&bytes);
    };
    for connection in 1..8 {
        one(connection, 1, ACK, "data");
    }
    for connection in 100..60_000 {
        one(connection, 1, SYN, "");
    }
    for connection in 1..8 {
        one(connection, 5, ACK, "more");
    }
    let events = bench.events();
    assert_eq!(events.matches("open").count(), 7, "{events}");
    assert_eq!(events.matches(">4:more").count(), 7);
    assert_eq!(bench.streams.counters().evicted, 59_900 - 1);
    assert_eq!(bench.streams.counters().opened, 7 + 59_900);
}

#[test]
fn waiting_bytes_stay_within_their_memory() {
    let mut bench = connected(TcpStreamConfig { buffer: Bytes(64 << 10), ..config() });
    // A part of the memory is 1 KiB, and a run takes 96 bytes more than it has.
    for at in 0..10_u32 {
        bench.client(10 + 200 * at, &"y".repeat(100));
    }
    let events = bench.events();
    assert!(events.starts_with("open >0:gap 10 >10:y"), "{events}");
    assert!(bench.streams.counters().no_memory > 0);
    bench.client(50_000, &"z".repeat(2_000));
    assert!(bench.streams.counters().no_memory > 1, "a segment that never fits is left out");
}

#[test]
fn bytes_that_wait_stay_in_their_place_when_too_many_runs_give_up_a_hole() {
    let mut bench = connected(config());
    let letter = |at: u32| char::from(b'a' + u8::try_from(at % 26).unwrap());
    for at in (10..410).step_by(2) {
        bench.client(at, &letter(at).to_string());
    }
    bench.server(0, "", 411);
    let events = bench.events();
    let mut next = 0;
    for event in events.replace("gap ", "gap").split(' ').skip(1) {
        let (at, what) = event.trim_start_matches('>').split_once(':').unwrap();
        assert_eq!(at, next.to_string(), "{events}");
        match what.strip_prefix("gap") {
            Some(missing) => next += missing.parse::<u32>().unwrap(),
            None => {
                assert_eq!(what, letter(next).to_string(), "{events}");
                next += 1;
            }
        }
    }
    assert_eq!(next, 409, "{events}");
    assert_eq!(bench.streams.counters().no_memory, 72);
}

#[test]
fn a_fin_before_waiting_bytes_frees_their_memory() {
    let mut bench = Bench::new(TcpStreamConfig { buffer: Bytes(64 << 10), ..config() });
    // All of them use the same part of the memory.
    for connection in (0..200).map(|number| number * 16) {
        bench.segment(connection, true, 1000, 0, ACK, "a", 0);
        bench.segment(connection, true, 1011, 0, ACK, &"y".repeat(400), 0);
        bench.segment(connection, true, 1005, 0, FIN | ACK, "fin", 0);
    }
    bench.events();
    bench.segment(7, true, 1000, 0, ACK, "a", 0);
    bench.segment(7, true, 1011, 0, ACK, "late", 0);
    bench.segment(7, true, 1001, 0, ACK, "0123456789", 0);
    assert_eq!(bench.events(), "open >0:a >1:0123456789 >11:late");
    // The same with a part of the memory that is full.
    bench.segment(16 * 500, true, 1000, 0, ACK, "a", 0);
    for run in 0..8 {
        bench.segment(16 * 500, true, 1500 + 10 * run, 0, ACK, "y", 0);
    }
    bench.segment(16 * 500, true, 1005, 0, FIN | ACK, &"z".repeat(300), 0);
    bench.segment(16 * 500, true, 1001, 0, ACK, "0123", 0);
    let events = bench.events();
    assert!(events.ends_with(&format!(" >1:0123 >5:{} >fin", "z".repeat(300))), "{events}");
}

/// Everything that a direction sent, in the order of arrival: offset and length.
fn arrivals() -> impl Strategy<Value = Vec<(u32, u32)>> {
    proptest::collection::vec((0_u32..400, 1_u32..60), 1..60)
}

proptest! {
    /// Segments of one message, in any order and with any overlaps: the bytes are those of the message, each is given once, and
    /// what is missing at the end is a gap.
    #[test]
    fn any_order_of_segments_gives_the_message(arrivals in arrivals(), policy in 0..5_usize) {
        let message: String = (0..460).map(|i| char::from(b'a' + u8::try_from(i * 7 % 26).unwrap())).collect();
        let overlap = OverlapPolicy::ALL[policy];
        let mut bench = connected(TcpStreamConfig { overlap, ..config() });
        let mut arrived = vec![false; 460];
        for (at, len) in &arrivals {
            bench.client(*at, &message[*at as usize..(*at + *len) as usize]);
            arrived[*at as usize..(*at + *len) as usize].fill(true);
        }
        bench.stop();
        let mut given: BTreeMap<usize, char> = BTreeMap::new();
        let mut next = 0;
        for event in &bench.events {
            prop_assert!(!event.contains("conflict"), "{}", event);
            let Some((offset, bytes)) = event.strip_prefix('>').and_then(|rest| rest.split_once(':')) else { continue };
            let offset: usize = offset.parse().unwrap();
            prop_assert_eq!(offset, next, "{:?}", bench.events);
            match bytes.strip_prefix("gap ") {
                Some(missing) => next += missing.parse::<usize>().unwrap(),
                None => {
                    for (i, byte) in bytes.chars().enumerate() {
                        given.insert(offset + i, byte);
                    }
                    next += bytes.len();
                }
            }
        }
        let wanted: BTreeMap<usize, char> =
            message.chars().enumerate().filter(|(i, _)| arrived[*i]).collect();
        prop_assert_eq!(given, wanted);
    }

    /// No segments at all make the table panic, use more memory than it has, or leave the order of offsets.
    #[test]
    fn any_segments_are_taken(segments in proptest::collection::vec(
        (any::<bool>(), 0_u32..3, any::<u32>(), 0_u32..2000, any::<u8>(), 0_u32..200, 0_u32..300), 1..200)) {
        let mut bench = Bench::new(TcpStreamConfig { buffer: Bytes(64 << 10), ..config() });
        for (from_client, connection, seq, near, flags, captured, len) in segments {
            let seq = if near < 1500 { near } else { seq };
            let bytes = "q".repeat(captured as usize);
            let connection = u16::try_from(connection).unwrap();
            bench.segment(connection, from_client, seq, seq.wrapping_add(near), flags & 0x3f, &bytes, len);
        }
        bench.stop();
        prop_assert!(bench.streams.is_idle());
        prop_assert_eq!(bench.streams.waiting(), Bytes(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_segments_give_the_events_of_the_model(input in prop::collection::vec(any::<u8>(), 0..6000)) {
        crate::exercise::streams(&input);
    }
}
