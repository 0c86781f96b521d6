//! TCP streams for modules: events, verdicts, faults, limits, suspension and memory.

use crate::support::options;
use crate::support::{MANIFEST, Packets, all, bytes, engine, wat};
use std::time::Duration;
use weir_abi::lost;
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{
    BatchInput, Call, CallStep, CheckMode, During, Engine, EngineOptions, FaultKind, FuelSlice, Instance,
    InstanceContext, InstanceCounters, LoadError, LoadedModule,
};
use weir_session::{MemoryReservation, NodeMemory, RecordOrder, Records};
use weir_units::{Bytes, Nanos, Timestamp};
use weir_wire::stream::TcpStreams;
use weir_wire::{LinkType, Meta, classify};

const TCP: &str = "[tcp]\nstreams = 256\nbuffer = '256 KiB'\n";

/// Emits an event as a row, and its bytes as a text.
const SHOW: &str = r#"(func $show (param $e i32)
    (i64.store (i32.const 64) (i64.or (i64.or (i64.or
        (i64.load8_u offset=84 (local.get $e))
        (i64.shl (i64.load8_u offset=85 (local.get $e)) (i64.const 4)))
        (i64.or
            (i64.shl (i64.load8_u offset=86 (local.get $e)) (i64.const 8))
            (i64.shl (i64.extend_i32_u (i32.ge_u (i32.load offset=8 (local.get $e)) (i32.const 0xF0000000))) (i64.const 15))))
        (i64.or
            (i64.shl (i64.load offset=32 (local.get $e)) (i64.const 16))
            (i64.shl (i64.load32_u offset=16 (local.get $e)) (i64.const 40)))))
    (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
    (if (i32.load offset=12 (local.get $e)) (then
        (i32.store (i32.const 72) (i32.load offset=8 (local.get $e)))
        (i32.store (i32.const 76) (i32.load offset=12 (local.get $e)))
        (drop (call $emit (i32.const 1) (i32.const 72) (i32.const 8))))))"#;

/// A function for events that shows each event, does `act`, and replies 0. `$e` is the event.
fn stream(act: &str) -> String {
    format!(
        r#"{SHOW} (func (export "weir_stream") (param $e i32) (result i32) (local $n i32)
            (call $show (local.get $e)) {act} (i32.const 0))"#
    )
}

/// Code that does `act` for bytes that begin with this letter.
fn at_letter(letter: char, act: &str) -> String {
    let letter = u32::from(letter);
    format!(
        "(if (i32.eq (i32.load8_u offset=84 (local.get $e)) (i32.const 2)) (then
            (if (i32.eq (i32.load8_u (i32.load offset=8 (local.get $e))) (i32.const {letter})) (then {act}))))"
    )
}

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A segment between two hosts: the client's port, the sender, offsets behind the SYNs, flags and data.
#[derive(Clone, Copy, Debug)]
struct Segment {
    port: u16,
    from_client: bool,
    at: u32,
    acknowledges: u32,
    flags: u8,
    data: &'static str,
}

fn client(at: u32, data: &'static str) -> Segment {
    Segment { port: 40_000, from_client: true, at, acknowledges: 0, flags: ACK, data }
}

fn server(at: u32, acknowledges: u32, data: &'static str) -> Segment {
    Segment { port: 40_000, from_client: false, at, acknowledges, flags: ACK, data }
}

impl Segment {
    fn flags(self, flags: u8) -> Self {
        Self { flags, ..self }
    }

    fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    fn frame(&self) -> Vec<u8> {
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (from, to) = if self.from_client { (client, server) } else { (server, client) };
        let (src, dst) = if self.from_client { (self.port, 80) } else { (80, self.port) };
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(u16::try_from(40 + self.data.len()).unwrap().to_be_bytes());
        frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
        frame.extend(from);
        frame.extend(to);
        frame.extend(src.to_be_bytes());
        frame.extend(dst.to_be_bytes());
        frame.extend((1000 + self.at).to_be_bytes());
        frame.extend((1000 + self.acknowledges).to_be_bytes());
        frame.extend([0x50, self.flags]);
        frame.extend(60_000_u16.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(self.data.as_bytes());
        frame
    }
}

/// Packets of these segments, a second apart; the rest are no TCP packets.
fn packets(segments: &[Segment]) -> Packets {
    Packets::of(
        |i| segments.get(i).map_or(vec![0; 60], Segment::frame),
        |i, d| {
            let frame = segments.get(i).map_or(vec![0; 60], Segment::frame);
            let meta = Meta {
                ts: Timestamp(i as u64 * Nanos::SECOND.0),
                cap_len: d.cap_len,
                wire_len: d.wire_len,
                link_type: LinkType::Ethernet,
                interface: 0,
                number: i as u64,
                data: d.data,
            };
            *d = classify(&frame, &meta).unwrap();
        },
    )
}

/// The first `count` packets.
fn first(count: usize) -> BatchInput {
    BatchInput { mask: (1 << count) - 1, ..all() }
}

fn manifest(more: &str) -> String {
    format!("{MANIFEST}{TCP}{more}")
}

fn admitted(body: &str, profile: Profile) -> Admitted {
    let terms = CalibratedProfile::from(profile);
    Admitted::admit_by(bytes(&wat(body), &manifest("")), &[], &terms).unwrap_or_else(|e| panic!("{e}"))
}

fn start_as(engine: &Engine, program: &LoadedModule, segments: &[Segment]) -> Instance {
    let mut instance = Instance::start(engine, program).unwrap();
    assert!(!instance.has_ended(), "{:?}", instance.incidents());
    packets(segments).map(&mut instance);
    instance
}

fn start(engine: &Engine, body: &str, segments: &[Segment]) -> Instance {
    start_as(engine, &engine.load(admitted(body, Profile::default())).unwrap(), segments)
}

/// The emitted events as text, with the packet or tick that they were emitted for: `>` from the client, `<` from the
/// server, `~` before bytes that are not in a packet.
fn shown(instance: &mut Instance) -> Vec<(RecordOrder, String)> {
    let records = instance.take_records(Records::default());
    let mut shown: Vec<(RecordOrder, String)> = Vec::new();
    for record in records.iter() {
        if record.stream == 1 {
            let (order, text) = shown.last_mut().unwrap();
            assert_eq!(*order, record.order);
            text.push_str(std::str::from_utf8(record.tail).unwrap());
            continue;
        }
        let value = u64::from_le_bytes(record.row.try_into().unwrap());
        let arrow = if value & 0x10 == 0 { '>' } else { '<' };
        let (offset, missing) = (value >> 16 & 0xff_ffff, value >> 40);
        let text = match value & 15 {
            1 => "open".to_owned(),
            2 => format!("{arrow}{offset}:{}", if value & 0x8000 == 0 { "" } else { "~" }),
            3 => format!("{arrow}{offset}:gap {missing}"),
            4 => format!("{arrow}fin"),
            5 => format!("{arrow}conflict {missing}"),
            6 => format!("end {}", value >> 8 & 0x7f),
            _ => format!("value {value}"),
        };
        shown.push((record.order, text));
    }
    shown
}

fn texts(instance: &mut Instance) -> String {
    shown(instance).into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
}

fn kinds(instance: &Instance) -> Vec<(FaultKind, During)> {
    instance.incidents().iter().map(|incident| (incident.fault.kind, incident.during)).collect()
}

/// A connection with bytes in order, out of order and in both directions, up to its end.
fn conversation() -> Vec<Segment> {
    vec![
        client(0, "").flags(SYN),
        server(0, 1, "").flags(SYN | ACK),
        client(1, "abc"),
        client(7, "ghi"),
        client(4, "def"),
        server(1, 10, "xyz"),
        client(10, "").flags(FIN | ACK),
        server(4, 11, "").flags(FIN | ACK),
    ]
}

#[test]
fn events_come_in_order_with_the_packet_that_caused_them() {
    let engine = engine();
    let mut instance = start(&engine, &stream(""), &conversation());
    assert_eq!(instance.run(all()), 0);
    let packet = RecordOrder::packet;
    let expected = [
        (packet(2), "open"),
        (packet(2), ">0:abc"),
        (packet(4), ">3:def"),
        (packet(4), ">6:~ghi"),
        (packet(5), "<0:xyz"),
        (packet(6), ">fin"),
        (packet(7), "<fin"),
        (packet(7), "end 1"),
    ];
    assert_eq!(shown(&mut instance), expected.map(|(order, text)| (order, text.to_owned())));
    assert_eq!((instance.counters().packets, instance.counters().faults), (64, 0));
    assert_eq!(instance.stream_counters().out_of_order, 1);
    assert!(instance.has_streams());
    instance.stop(Timestamp(0));
    assert_eq!(texts(&mut instance), "", "no stream is left");
}

#[test]
fn streams_end_in_sweeps_and_before_the_stop() {
    let engine = engine();
    let stop = r#"(func (export "weir_stop") (param i64)
        (i64.store (i32.const 64) (i64.const 15)) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    let segments = [client(1, "abc"), client(1, "abc").port(40_001), client(9, "later").port(40_001)];
    let mut instance = start(&engine, &(stream("") + stop), &segments);
    instance.run(first(1));
    assert_eq!(texts(&mut instance), "open >0:abc");
    let sweep =
        |seconds: u64| Call::Sweep { now: Timestamp(seconds * Nanos::SECOND.0), periods: 64, before: 7 };
    assert_eq!(instance.begin(sweep(299), FuelSlice::UNLIMITED), CallStep::Done(0));
    assert_eq!(texts(&mut instance), "");
    assert_eq!(instance.begin(sweep(300), FuelSlice::UNLIMITED), CallStep::Done(0));
    assert_eq!(shown(&mut instance), [(RecordOrder::tick(7), "end 3".to_owned())]);
    instance.run(BatchInput { mask: 0b110, ..all() });
    assert_eq!(texts(&mut instance), "open >0:abc");
    instance.stop(Timestamp(3));
    let tick = RecordOrder::tick(0);
    let expected = [">3:gap 5", ">8:~later", "end 5", "value 15"].map(|text| (tick, text.to_owned()));
    assert_eq!(shown(&mut instance), expected);
    assert_eq!(kinds(&instance), []);
}

#[test]
fn the_last_events_of_all_streams_may_emit_more_rows_than_a_call() {
    let engine = engine();
    let rows = r#"(if (i32.eq (i32.load8_u offset=84 (local.get $e)) (i32.const 6)) (then
        (local.set $n (i32.const 2000))
        (loop (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
              (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))))"#;
    let body = format!(
        r#"(func (export "weir_stream") (param $e i32) (result i32) (local $n i32) {rows} (i32.const 0))"#
    );
    let segments: Vec<_> = (0..60).map(|n| client(1, "abc").port(40_000 + n)).collect();
    let mut instance = start(&engine, &body, &segments);
    instance.run(first(60));
    let mut rows = 0;
    while !instance.is_stopped() {
        let stop = Call::Stop { now: Timestamp(3) };
        assert_eq!(instance.begin(stop, FuelSlice::UNLIMITED), CallStep::Done(0));
        rows += instance.take_records(Records::default()).len();
    }
    assert_eq!((rows, instance.counters().records_dropped), (120_000, 0));
}

/// The host finds the segments of ignored streams for a whole batch at once.
#[test]
fn events_do_not_depend_on_the_size_of_batches() {
    let engine = engine();
    let follower =
        stream(&(at_letter('i', "(return (i32.const 4))") + &at_letter('s', "(return (i32.const 2))")));
    let with_packets =
        follower.clone() + r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let singly: Vec<u64> = (0..64).map(|packet| 1 << packet).collect();
    let by_16: Vec<u64> = (0..4).map(|batch| 0xffff << (16 * batch)).collect();
    let mut state = 1_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let (mut ignored, mut reused) = (0, 0);
    for _ in 0..100 {
        let segments: Vec<Segment> = (0..64)
            .map(|_| Segment {
                port: 40_000 + u16::try_from(random(6)).unwrap(),
                from_client: random(3) > 0,
                at: random(60),
                acknowledges: random(60),
                flags: [ACK, ACK, ACK, ACK, SYN, SYN | ACK, FIN | ACK, RST][random(8) as usize],
                data: ["", "ignore", "skip", "bytes", "more of them"][random(5) as usize],
            })
            .collect();
        for body in [&follower, &with_packets] {
            let events = |batches: &[u64]| {
                let mut instance = start(&engine, body, &segments);
                for mask in batches {
                    instance.run(BatchInput { mask: *mask, ..all() });
                }
                instance.stop(Timestamp(99 * Nanos::SECOND.0));
                (shown(&mut instance), instance.stream_counters())
            };
            let whole = events(&[u64::MAX]);
            assert_eq!(events(&singly), whole, "{segments:?}");
            assert_eq!(events(&by_16), whole, "{segments:?}");
            ignored += whole.0.iter().filter(|(_, text)| text.ends_with("ignore")).count();
            reused += whole.0.iter().filter(|(_, text)| text == "end 6").count();
        }
    }
    assert!(ignored > 100 && reused > 20, "{ignored}, {reused}");
}

#[test]
fn a_packet_is_dropped_by_either_function() {
    let engine = engine();
    // The packet function drops packet 3; the function for events drops the packets of bytes that begin with d or g.
    let packet = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 80) (i64.const 15))
        (drop (call $emit (i32.const 0) (i32.const 80) (i32.const 8)))
        (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 3)))"#;
    let act = at_letter('a', "(return (i32.const 1))") + &at_letter('g', "(return (i32.const 1))");
    let mut instance = start(&engine, &(stream(&act) + packet), &conversation());
    assert_eq!(instance.run(first(8)), 1 << 2 | 1 << 3 | 1 << 4);
    let at = |index: u32| RecordOrder::packet(index);
    let records: Vec<_> = shown(&mut instance).into_iter().filter(|(order, _)| *order == at(2)).collect();
    let expected = ["value 15", "open", ">0:abc"].map(|text| (at(2), text.to_owned()));
    assert_eq!(records, expected, "the packet function comes first");
    // Other bits of the reply do not drop packets.
    for (reply, dropped) in [(2, 0), (4, 0), (-2, 0), (1, 0b1111_0100), (-1, 0b100), (3, 0b1110_0100)] {
        let body = format!(
            r#"{SHOW} (func (export "weir_stream") (param $e i32) (result i32) (call $show (local.get $e)) (i32.const {reply}))"#
        );
        let mut instance = start(&engine, &body, &conversation());
        assert_eq!(instance.run(first(8)) & 0b1111_0111, dropped & 0b1111_0111, "{reply}");
    }
}

#[test]
fn replies_end_a_direction_or_a_stream() {
    let engine = engine();
    let mut instance = start(&engine, &stream(&at_letter('d', "(return (i32.const 2))")), &conversation());
    instance.run(all());
    assert_eq!(texts(&mut instance), "open >0:abc >3:def <0:xyz >fin <fin end 1");
    let mut instance = start(&engine, &stream(&at_letter('d', "(return (i32.const 4))")), &conversation());
    instance.run(all());
    assert_eq!(texts(&mut instance), "open >0:abc >3:def");
    instance.stop(Timestamp(0));
    assert_eq!(texts(&mut instance), "");
}

#[test]
fn garbage_replies_harm_only_the_module() {
    let engine = engine();
    for reply in [
        "(i32.const -1)",
        "(i32.const 0x80000000)",
        "(i32.load offset=8 (local.get $e))",
        "(i32.const 0x7ffffff8)",
    ] {
        let body = format!(
            r#"{SHOW} (func (export "weir_stream") (param $e i32) (result i32) (call $show (local.get $e)) {reply})"#
        );
        let mut segments = conversation();
        segments.extend(conversation().into_iter().map(|segment| segment.port(40_001)));
        segments.extend([client(0, "x").port(40_002), client(5, "").port(40_002).flags(RST)]);
        let mut instance = start(&engine, &body, &segments);
        for _ in 0..3 {
            instance.run(all());
        }
        assert!(texts(&mut instance).starts_with("open"), "{reply}");
        instance.stop(Timestamp(0));
        assert_eq!((instance.counters().packets, kinds(&instance)), (3 * 64, vec![]), "{reply}");
    }
}

#[test]
fn a_trap_loses_only_the_packet_that_caused_the_event() {
    let engine = engine();
    let tell = r#"(func (export "weir_lost") (param i32)
        (i64.store (i32.const 64) (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 4)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    for (letter, rest) in [
        // The trap is in the second event of packet 4.
        ('g', ["open", ">0:abc", "value", "<0:xyz", ">fin", "<fin", "end 1"].as_slice()),
        ('a', &["value", ">3:def", ">6:~ghi", "<0:xyz", ">fin", "<fin", "end 1"]),
    ] {
        let body = stream(&at_letter(letter, "unreachable")) + tell;
        let mut instance = start(&engine, &body, &conversation());
        assert_eq!(instance.run(all()), 0);
        let lost = if letter == 'g' { 4 } else { 2 };
        assert_eq!(kinds(&instance), [(FaultKind::Unreachable, During::Packet(lost))]);
        assert_eq!((instance.counters().packets, instance.counters().lost), (63, 1));
        let told = format!("value {}", lost::TRAP << 4);
        let rest: Vec<String> = rest
            .iter()
            .map(|text| if *text == "value" { told.clone() } else { (*text).to_owned() })
            .collect();
        assert_eq!(shown(&mut instance).into_iter().map(|(_, text)| text).collect::<Vec<_>>(), rest);
    }
    // Traps in sweeps and at the stop.
    let trap = "(if (i32.eq (i32.load8_u offset=84 (local.get $e)) (i32.const 6)) (then unreachable))";
    let segments = [client(1, "abc"), client(1, "abc").port(40_001)];
    let mut instance = start(&engine, &(stream(trap) + tell), &segments);
    instance.run(first(1));
    let sweep = Call::Sweep { now: Timestamp(400 * Nanos::SECOND.0), periods: 64, before: 0 };
    assert_eq!(instance.begin(sweep, FuelSlice::UNLIMITED), CallStep::Done(0));
    assert_eq!(kinds(&instance), [(FaultKind::Unreachable, During::StreamEvents)]);
    instance.run(BatchInput { mask: 2, ..all() });
    let told = format!("value {}", lost::TRAP << 4);
    assert_eq!(texts(&mut instance), format!("open >0:abc {told} open >0:abc"));
    instance.stop(Timestamp(0));
    assert_eq!(kinds(&instance).len(), 2);
    assert_eq!(instance.counters().lost, 0, "no packet caused these events");
}

/// A profile that allows this tier only, with this limit in nanoseconds.
fn profile(tier: Tier, packet: u64) -> Profile {
    Profile { tiers: vec![tier], packet: Nanos(packet), per_byte: Nanos(0), ..Profile::default() }
}

#[test]
fn a_metered_loop_ends_at_the_limit_and_with_the_strikes_the_module() {
    let engine = engine();
    let limits = Profile { strikes: 2, ..profile(Tier::Metered, 50_000) };
    let program =
        || engine.load(admitted(&stream(&at_letter('d', "(loop (br 0))")), limits.clone())).unwrap();
    let mut instance = start_as(&engine, &program(), &conversation());
    assert_eq!(instance.run(all()), 0);
    assert_eq!(kinds(&instance), [(FaultKind::Limit, During::Packet(4))]);
    assert_eq!(
        (instance.counters().packets, instance.counters().lost, instance.counters().strikes),
        (63, 1, 1)
    );
    assert_eq!(texts(&mut instance), "open >0:abc <0:xyz >fin <fin end 1");
    assert!(!instance.has_ended());
    // In a sweep, too.
    let body =
        stream("(if (i32.eq (i32.load8_u offset=84 (local.get $e)) (i32.const 6)) (then (loop (br 0))))");
    let program = engine.load(admitted(&body, limits)).unwrap();
    let segments: Vec<_> = (0..5).map(|n| client(1, "abc").port(40_000 + n)).collect();
    let mut instance = start_as(&engine, &program, &segments);
    instance.run(all());
    let sweep = Call::Sweep { now: Timestamp(900 * Nanos::SECOND.0), periods: 64, before: 0 };
    assert_eq!(instance.begin(sweep, FuelSlice::UNLIMITED), CallStep::Done(0));
    assert!(instance.has_ended(), "two strikes");
    let limit = (FaultKind::Limit, During::StreamEvents);
    assert_eq!(kinds(&instance), [limit, limit]);
}

#[test]
fn a_supervised_module_over_its_limit_is_counted() {
    let engine = engine();
    let trips = "(local.set $n (i32.const 0))
        (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 60000))))";
    let body = stream(&at_letter('d', trips));
    let limits = Profile { per_byte: Nanos(1), ..profile(Tier::Supervised, 50_000) };
    let program = engine.load(admitted(&body, limits)).unwrap();
    let mut instance = start_as(&engine, &program, &conversation());
    instance.run(all());
    assert_eq!(texts(&mut instance), "open >0:abc >3:def >6:~ghi <0:xyz >fin <fin end 1");
    assert_eq!((instance.counters().packets, instance.counters().lost), (64, 0));
    assert_eq!((instance.counters().exceeded, instance.counters().faults), (1, 0));
}

#[test]
fn suspended_calls_have_the_same_events_records_and_counters() {
    let trips = "(local.set $n (i32.const 0))
        (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 200))))";
    let packet = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32) TRIPS
        (i32.eq (i32.load offset=60 (local.get $d)) (i32.const 5)))"#
        .replace("TRIPS", trips);
    let mut segments = conversation();
    segments.extend(conversation().into_iter().map(|segment| segment.port(40_001)));
    segments.extend((0..20).map(|n| client(n * 5, "later").port(40_100 + u16::try_from(n).unwrap())));
    for tier in [Tier::Metered, Tier::Supervised, Tier::Proved] {
        for act in [trips.to_owned(), format!("{trips} {}", at_letter('d', "unreachable"))] {
            let options = EngineOptions {
                check_mode: CheckMode::As(tier),
                call_limit: Duration::from_secs(60),
                ..options()
            };
            let engine = Engine::new(options, None).unwrap();
            let body = stream(&act) + &packet;
            let limits = || profile(Tier::Metered, 5_000_000);
            let life = |program: &LoadedModule, size: u64| -> (Vec<u64>, Vec<_>, InstanceCounters, usize) {
                let mut instance = start_as(&engine, program, &segments);
                let sweep = Call::Sweep { now: Timestamp(900 * Nanos::SECOND.0), periods: 64, before: 9 };
                let last = BatchInput { mask: 0xff << 8, first: 64, ..all() };
                let stop = Call::Stop { now: Timestamp(999 * Nanos::SECOND.0) };
                let (mut drops, mut suspended) = (Vec::new(), 0);
                let mut records = Vec::new();
                let stops = std::iter::repeat_n(stop, TcpStreams::STOP_PARTS.into());
                for call in [Call::Batch(all()), sweep, Call::Batch(last)].into_iter().chain(stops) {
                    let slice = || FuelSlice { fuel: size, until: None };
                    let mut step = instance.begin(call, slice());
                    loop {
                        match step {
                            CallStep::Done(dropped) => break drops.push(dropped),
                            CallStep::Suspended => {
                                suspended += 1;
                                step = instance.resume(slice());
                            }
                        }
                    }
                    records.extend(shown(&mut instance));
                }
                assert!(instance.is_stopped());
                (drops, records, instance.counters(), suspended)
            };
            let plain = engine.load(admitted(&body, limits())).unwrap();
            let (drops, records, counters, _) = life(&plain, u64::MAX);
            assert!(records.iter().any(|(_, text)| text == "end 3"), "{records:?}");
            let suspendable = engine.load_suspendable(admitted(&body, limits())).unwrap();
            for size in [1, 50, 997] {
                let found = life(&suspendable, size);
                assert_eq!(
                    (&found.0, &found.1, &found.2),
                    (&drops, &records, &counters),
                    "{tier:?} {size} {act}"
                );
                assert!(found.3 > 20, "{}", found.3);
            }
        }
    }
}

#[test]
fn an_aborted_sweep_gives_its_events_to_no_packet() {
    let options = EngineOptions {
        check_mode: CheckMode::As(Tier::Metered),
        call_limit: Duration::from_secs(60),
        ..options()
    };
    let engine = Engine::new(options, None).unwrap();
    let trips = "(local.set $n (i32.const 0))
        (loop $l (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 200))))";
    let program =
        engine.load_suspendable(admitted(&stream(trips), profile(Tier::Metered, 5_000_000))).unwrap();
    let segments: Vec<_> = (0..20).map(|n| client(1, "abc").port(40_000 + n)).collect();
    let mut instance = start_as(&engine, &program, &segments);
    instance.run(first(19));
    shown(&mut instance);
    let sweep = Call::Sweep { now: Timestamp(900 * Nanos::SECOND.0), periods: 64, before: 0 };
    assert_eq!(instance.begin(sweep, FuelSlice { fuel: 100, until: None }), CallStep::Suspended);
    instance.abort();
    instance.run(BatchInput { mask: 1 << 19, ..all() });
    let packet = RecordOrder::packet(19);
    assert_eq!(shown(&mut instance), [(packet, "open".to_owned()), (packet, ">0:abc".to_owned())]);
}

#[test]
fn a_module_cannot_write_its_window() {
    let engine = engine();
    let wild = |function| FaultKind::WildPointer { function };
    for (act, fault) in [
        ("(i32.store (i32.const 0xF0000000) (i32.const 1))", FaultKind::OutOfBounds),
        ("(i64.store8 (local.get $e) (i64.const 1))", FaultKind::OutOfBounds),
        ("(i32.store (i32.const 0xF001FFFC) (i32.const 1))", FaultKind::OutOfBounds),
        ("(i32.store8 (i32.load offset=8 (local.get $e)) (i32.const 1))", FaultKind::OutOfBounds),
        ("(memory.fill (local.get $e) (i32.const 0) (i32.const 8))", FaultKind::OutOfBounds),
        ("(memory.copy (local.get $e) (i32.const 0) (i32.const 8))", FaultKind::OutOfBounds),
        ("(drop (i32.load (i32.const 0xF0020000)))", FaultKind::OutOfBounds),
        ("(drop (call $param_bytes (i32.const 1) (local.get $e) (i32.const 3)))", wild("param_bytes")),
        (
            "(drop (call $digest (i32.const 2) (i32.const 0) (i32.const 8) (i32.const 0xF0010000)))",
            wild("digest"),
        ),
        ("(drop (call $hash (i32.const 0xF001FFF8) (i32.const 9) (i64.const 0)))", wild("hash")),
        ("(drop (call $hash (i32.const 0xEFFFFFFF) (i32.const 2) (i64.const 0)))", wild("hash")),
    ] {
        let mut instance = start(&engine, &stream(&at_letter('g', act)), &conversation());
        instance.run(all());
        assert_eq!(kinds(&instance), [(fault, During::Packet(4))], "{act}");
        assert_eq!(texts(&mut instance), "open >0:abc <0:xyz >fin <fin end 1", "{act}");
    }
    // An event is no packet.
    for act in [
        "(call $keep (local.get $e))",
        "(call $patch (local.get $e) (i32.const 0) (i32.const 0) (i32.const 1))",
    ] {
        let act = format!(
            "(i64.store (i32.const 64) (i64.extend_i32_s {act}))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"
        );
        let mut instance = start(&engine, &stream(&at_letter('g', &act)), &conversation());
        instance.run(all());
        let code = i64::from(weir_abi::code::WHEN).cast_unsigned();
        assert!(texts(&mut instance).contains(&format!("value {code} ")));
        assert!(instance.take_patches().is_empty());
        assert_eq!(kinds(&instance), []);
    }
}

#[test]
fn host_functions_read_the_bytes_of_events() {
    let engine = engine();
    let row = |value: &str| {
        format!(
            "(i64.store (i32.const 64) {value}) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"
        )
    };
    let place = "(i32.load offset=8 (local.get $e)) (i32.load offset=12 (local.get $e))";
    let act = row(&format!("(i64.shl (call $find (i32.const 0) {place}) (i64.const 4))"))
        + &row(&format!("(i64.shl (call $hash {place} (i64.const 0)) (i64.const 4))"));
    let bytes = |text: &str| format!("(if (i32.load offset=12 (local.get $e)) (then {text}))");
    let body = stream(&bytes(&act))
        + r#"(data (i32.const 256) "\01\00\00\00h") (func (export "weir_start") (result i32)
            (call $find_compile (i32.const 256) (i32.const 5) (i32.const 0)))"#;
    let mut instance = start(&engine, &body, &conversation());
    instance.run(all());
    assert_eq!(kinds(&instance), []);
    let shown: Vec<_> = shown(&mut instance).into_iter().map(|(_, text)| text).collect();
    // In place and in the window: `h` is in the second place of the latter.
    let after = |text: &str| &shown[shown.iter().position(|it| it == text).unwrap() + 1..];
    assert_eq!(after(">6:~ghi")[0], format!("value {}", 1 << 4));
    assert_ne!(after(">6:~ghi")[1], after(">3:def")[1], "the hashes of different bytes");
}

#[test]
fn streams_count_as_the_modules_memory() {
    let engine = engine();
    const PAGE: u64 = 65_536;
    // The streams take less than 8 pages; the memory has a page, and may grow up to 2 MiB together with them.
    let act = "(i64.store (i32.const 64) (i64.or (i64.const 15) (i64.shl (i64.extend_i32_s (memory.grow (i32.const 1))) (i64.const 4))))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))";
    let packet = format!(r#"(func (export "weir_packet") (param $d i32) (result i32) {act} (i32.const 0))"#);
    let body = stream("") + &packet;
    let program = engine.load(admitted(&body, Profile::default())).unwrap();
    let streams = program.admitted().tcp().unwrap().config.memory();
    assert!(streams > Bytes(256 << 10) && streams < Bytes(8 * PAGE), "{streams}");
    let pages = (Bytes(2 << 20).0 - streams.0) / PAGE;
    let grown = |instance: &mut Instance| {
        let records = instance.take_records(Records::default());
        let value = |row: &[u8]| i64::from_le_bytes(row.try_into().unwrap()) >> 4;
        records.iter().map(|record| value(record.row)).filter(|value| *value >= 0).count() as u64
    };
    let mut instance = start_as(&engine, &program, &[]);
    assert_eq!(instance.memory(), Bytes(PAGE + streams.0));
    instance.run(all());
    assert_eq!(grown(&mut instance), pages - 1, "growth is refused at the manifest's ceiling");
    assert_eq!(instance.memory(), Bytes(pages * PAGE + streams.0));
    // The session's memory: not enough, and enough for two pages more.
    let reserved = |bytes: u64| {
        MemoryReservation::new(&NodeMemory::new(Bytes(1 << 30)), Bytes(bytes), Bytes(bytes)).unwrap()
    };
    let memory = reserved(8 * PAGE);
    let context = || InstanceContext { memory: Some(memory.clone()), ..InstanceContext::default() };
    let wanted = Bytes(PAGE + streams.0);
    let mut instance = Instance::start_with(&engine, &program, context()).unwrap();
    assert_eq!(memory.state().used, wanted);
    let error = Instance::start_with(&engine, &program, context()).unwrap_err();
    assert!(matches!(error, LoadError::Memory { wanted: given, .. } if given == wanted), "{error}");
    packets(&[]).map(&mut instance);
    instance.run(all());
    assert_eq!(grown(&mut instance), (8 * PAGE - wanted.0) / PAGE);
    assert!(memory.state().used <= Bytes(8 * PAGE));
    assert_eq!(instance.counters().faults, 0);
    drop(instance);
    assert_eq!(memory.state().used, Bytes(0));
}

#[test]
fn only_consistent_modules_with_valid_settings_are_admitted() {
    let refusal = |body: &str, manifest: &str| {
        let refused = Admitted::admit(bytes(&wat(body), manifest), &[]);
        refused.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let packet = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    let batch = r#"(func (export "weir_batch") (param i32 i64) (result i64) (i64.const 0))"#;
    let both = stream("") + packet;
    assert_eq!(refusal(&both, &manifest("")), "");
    for (body, text, wanted) in [
        (stream(""), MANIFEST.to_owned(), "no table [tcp]"),
        (both.clone(), MANIFEST.to_owned(), "no table [tcp]"),
        (packet.to_owned(), manifest(""), "does not export `weir_stream`"),
        (batch.to_owned(), manifest(""), "does not export `weir_stream`"),
        (stream("") + batch, manifest(""), "weir_batch"),
        (both.clone() + batch, manifest(""), "weir_batch"),
        (stream(""), manifest("").replace("256 KiB", "2 MiB"), "its manifest allows"),
        (stream(""), manifest("").replace("streams = 256", "streams = 4194304"), "its manifest allows"),
        (
            stream("").replace("(result i32)", "(result i64)").replace("(i32.const 0))", "(i64.const 0))"),
            manifest(""),
            "weir_stream",
        ),
    ] {
        let error = refusal(&body, &text);
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    for (key, values) in [
        ("streams", ["255", "4194305", "-1", "'many'", "true", "{ parameter = 'text' }"].as_slice()),
        ("buffer", &["'255 KiB'", "'513 MiB'", "true", "[1]", "{ parameter = 'none' }"]),
        ("first", &["0", "'0 B'", "false", "'x'", "{ parameter = 'rate' }"]),
        ("idle", &["'999ms'", "5", "'x'", "{ parameter = 'size' }"]),
        ("overlap", &["'solaris'", "1", "''", "{ parameter = 'size' }"]),
        ("checksums", &["'yes'", "1", "{ parameter = 'text' }"]),
        ("ports", &["80", "[65536]", "['x']", "'80'", "{ parameter = 'size' }"]),
        ("conflicts", &["1", "'x'", "{ parameter = 'size' }"]),
        ("unknown", &["1"]),
    ] {
        for value in values {
            let error = refusal(&both, &format!("{MANIFEST}[tcp]\n{key} = {value}\n"));
            assert!(!error.is_empty(), "{key} = {value}");
            assert!(
                error.contains(key) || error.contains("line 36: invalid type"),
                "{key} = {value}: {error}"
            );
        }
    }
    for layer in ["'middle'", "1", "true"] {
        let error = refusal(&both, &format!("layer = {layer}\n{}", manifest("")));
        assert!(error.contains("layer"), "{error}");
    }
}
