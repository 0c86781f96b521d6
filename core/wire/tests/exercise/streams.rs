//! Arbitrary segments, replies and sweeps against a simple model of TCP streams.

use std::collections::HashMap;
use weir_units::{Bytes, Nanos, Timestamp};
use weir_wire::stream::{
    OverlapPolicy, TcpEvent, TcpEventBytes, TcpEventKind, TcpReply, TcpSegment, TcpStreamConfig, TcpStreams,
};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The number of bytes of the input for a segment or a sweep.
const STEP_BYTES: usize = 8;
/// The number of connections. They are in two sets, which have no room for all.
const CONNECTIONS: u8 = 32;
const PORT: u16 = 40_000;
/// More events of one segment are a loop without end.
const EVENTS_MAX: usize = 1 << 20;

/// The byte that a host sends at a sequence number, unless it lies.
fn sent(connection: u8, is_low_port: bool, seq: u32) -> u8 {
    let mixed = (seq ^ u32::from(connection) << 24 ^ u32::from(is_low_port) << 23).wrapping_mul(0x9e37_79b1);
    mixed.to_be_bytes()[0]
}

fn first_seq(connection: u8, is_low_port: bool) -> u32 {
    if connection.is_multiple_of(2) { 0xffff_ff80 } else { 1000 + u32::from(is_low_port) }
}

/// One direction in the model.
#[derive(Clone, Copy, Default)]
struct Direction {
    next: u64,
    /// The sequence number at offset 0, once it is known.
    zero: Option<u32>,
    is_skipped: bool,
    has_ended: bool,
}

/// One stream in the model.
#[derive(Clone, Copy, Default)]
struct Stream {
    directions: [Direction; 2],
    is_ignored: bool,
}

struct Model {
    first: Option<u64>,
    streams: HashMap<u32, Stream>,
    /// Connections whose segments differ at the same place.
    lied: [bool; CONNECTIONS as usize],
}

/// The segment that was pushed last, with its connection, sender and data.
type Pushed<'a> = Option<(&'a TcpSegment, &'a [u8])>;

impl Model {
    fn check(&mut self, event: &TcpEvent<'_>, pushed: Pushed<'_>) {
        assert!(event.stream < 256, "{event:?}");
        assert_eq!(event.cause.is_some(), event.kind == TcpEventKind::End, "{event:?}");
        let ends = &event.endpoints;
        if event.kind == TcpEventKind::Open {
            let before = self.streams.insert(event.stream, Stream::default());
            assert!(before.is_none_or(|before| before.is_ignored), "two streams have one number: {event:?}");
            return;
        }
        let known = self.streams.get_mut(&event.stream);
        let stream = known.unwrap_or_else(|| panic!("no stream has been opened: {event:?}"));
        assert!(!stream.is_ignored, "an ignored stream has an event: {event:?}");
        if event.kind == TcpEventKind::End {
            self.streams.remove(&event.stream);
            return;
        }
        let direction = &mut stream.directions[usize::from(event.from_server)];
        if event.kind == TcpEventKind::Fin {
            assert!(!direction.has_ended, "a direction has ended twice: {event:?}");
            direction.has_ended = true;
        } else {
            assert!(!direction.is_skipped, "a skipped direction has an event: {event:?}");
        }
        let port = if event.from_server { ends.server_port } else { ends.client_port };
        let other = if event.from_server { ends.client_port } else { ends.server_port };
        let is_low_port = port < 1024;
        let connection = u8::try_from(if is_low_port { other } else { port } - PORT).unwrap();
        let len = match event.bytes {
            TcpEventBytes::None => {
                assert_ne!(event.kind, TcpEventKind::Bytes);
                0
            }
            TcpEventBytes::InPacket { from, len } => {
                let (segment, data) = pushed.unwrap();
                assert_eq!((segment.src_port, segment.dst_port), (port, other), "{event:?}");
                assert!((from + len) as usize <= data.len(), "{event:?}");
                let seq = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0)).wrapping_add(from);
                #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
                let zero = seq.wrapping_sub(event.offset as u32);
                assert_eq!(
                    *direction.zero.get_or_insert(zero),
                    zero,
                    "bytes are at another place: {event:?}"
                );
                u64::from(len)
            }
            TcpEventBytes::Waiting(bytes) => {
                assert!(!bytes.is_empty() && bytes.len() <= 64 << 10, "{event:?}");
                #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
                let seq = direction.zero.map(|zero| zero.wrapping_add(event.offset as u32));
                if let Some(seq) = seq.filter(|_| !self.lied[usize::from(connection)]) {
                    for (byte, at) in bytes.iter().zip(0_u32..) {
                        let wanted = sent(connection, is_low_port, seq.wrapping_add(at));
                        assert_eq!(*byte, wanted, "byte {at} of {event:?}");
                    }
                }
                bytes.len() as u64
            }
        };
        match event.kind {
            TcpEventKind::Bytes | TcpEventKind::Gap => {
                let len = if event.kind == TcpEventKind::Gap { event.missing.into() } else { len };
                assert!(len > 0 && !direction.has_ended, "{event:?}");
                assert_eq!(event.offset, direction.next, "a direction has a hole: {event:?}");
                direction.next += len;
                if event.kind == TcpEventKind::Bytes {
                    assert!(self.first.is_none_or(|first| direction.next <= first), "{event:?}");
                }
            }
            TcpEventKind::Fin if self.first.is_none() && !direction.is_skipped => {
                assert_eq!(event.offset, direction.next, "{event:?}");
            }
            _ => {}
        }
    }

    fn reply(&mut self, event: &TcpEvent<'_>, reply: TcpReply) {
        let Some(stream) = self.streams.get_mut(&event.stream) else { return };
        stream.is_ignored |= reply.ignore;
        stream.directions[usize::from(event.from_server)].is_skipped |= reply.skip;
    }

    /// Takes all events. `reply` is the reply to the event with the number `at`.
    fn take(&mut self, streams: &mut TcpStreams, pushed: Pushed<'_>, at: usize, reply: TcpReply) {
        let mut given = TcpReply::default();
        for number in 0.. {
            assert!(number < EVENTS_MAX, "the events do not end");
            let Some(event) = streams.next(given) else { break };
            self.check(&event, pushed);
            given = if number == at { reply } else { TcpReply::default() };
            self.reply(&event, given);
        }
    }
}

/// Gives arbitrary segments to [`TcpStreams`], and checks its events: no direction has a hole or bytes that were not sent at
/// their place, replies have their effect, and the memory stays within its limit and is free in the end.
///
/// Input: overlap policy and conflicts (1 byte), buffer (1), first bytes (1), spare (1), then steps of eight bytes:
/// connection or sweep, sender and flags, offset (2), length, captured length, reply, acknowledgement.
///
/// # Panics
///
/// If a guarantee is broken, which is the purpose.
pub fn streams(input: &[u8]) {
    let Some((&[policy, buffer, first, _], steps)) = input.split_first_chunk::<4>() else { return };
    let config = TcpStreamConfig {
        streams: 256,
        buffer: Bytes((64 << 10) << (buffer % 6)),
        first: (first % 4 == 0).then_some(u64::from(first) * 4 + 1),
        idle: Nanos(30 * Nanos::SECOND.0),
        overlap: OverlapPolicy::ALL[usize::from(policy % 5)],
        conflicts: policy >= 128,
    };
    let mut table = TcpStreams::new(config);
    let mut model =
        Model { first: config.first, streams: HashMap::new(), lied: [false; CONNECTIONS as usize] };
    let mut now = Nanos::SECOND.0;
    for step in steps.as_chunks::<STEP_BYTES>().0 {
        let &[number, kind, o0, o1, len, cut, reply, ack] = step;
        let given = TcpReply { skip: reply & 0xc1 == 1, ignore: reply & 0xc2 == 2 };
        let at = usize::from(reply >> 2 & 15);
        if number >= 0xf8 {
            now += u64::from(kind) * Nanos::SECOND.0 / 8;
            table.sweep(Timestamp(now), ack.into());
            model.take(&mut table, None, at, given);
            continue;
        }
        let connection = number % CONNECTIONS;
        let is_low_port = kind & 1 != 0;
        let flags = match kind >> 1 & 31 {
            0 => SYN,
            1 | 2 => SYN | ACK,
            3 => FIN | ACK,
            4 => RST | ACK,
            5 => FIN,
            6..=9 => 0,
            _ => ACK,
        };
        let first = first_seq(connection, is_low_port);
        let offset = u32::from(u16::from_be_bytes([o0, o1]) % 4096);
        let seq = if flags & SYN != 0 { first } else { first.wrapping_add(1 + offset) };
        let data_seq = first.wrapping_add(1).wrapping_add(if flags & SYN != 0 { 0 } else { offset });
        let lies = kind >= 0xf8;
        model.lied[usize::from(connection)] |= lies;
        let captured = if cut >= 0xc0 { u32::from(len.saturating_sub(cut & 63)) } else { len.into() };
        let data: Vec<u8> = (0..captured)
            .map(|at| sent(connection, is_low_port, data_seq.wrapping_add(at)) ^ u8::from(lies))
            .collect();
        let (high, low) = (([0, 1], PORT + u16::from(connection)), ([0, 2], 80));
        let (src, dst) = if is_low_port { (low, high) } else { (high, low) };
        now += 1 + u64::from(cut) * 1_000_000;
        let segment = TcpSegment {
            ts_ns: now,
            flow_hash: u64::from(connection & 1) << 63 | u64::from(connection >> 1),
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            seq,
            ack: first_seq(connection, !is_low_port).wrapping_add(1 + u32::from(ack) * 8),
            flags,
            window: 4096,
            captured,
            len: len.into(),
            ..TcpSegment::default()
        };
        table.push(table.key_of(&segment), &segment, &mut |from, len, out| {
            out.extend_from_slice(&data[from as usize..(from + len) as usize]);
        });
        model.take(&mut table, Some((&segment, &data)), at, given);
        assert!(table.waiting() <= config.buffer, "{} of {}", table.waiting(), config.buffer);
    }
    for part in 0..TcpStreams::STOP_PARTS {
        table.stop(Timestamp(now), part);
        model.take(&mut table, None, usize::MAX, TcpReply::default());
    }
    assert!(table.is_idle());
    assert_eq!(table.waiting(), Bytes(0), "all memory is given back");
    assert!(model.streams.values().all(|stream| stream.is_ignored), "all streams have ended");
}
