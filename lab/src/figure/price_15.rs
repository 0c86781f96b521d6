//! Price of Safety, figure 15: the module `arm`, a cache that asks for more memory when it answers too few requests.

use super::monitor::open_incoming;
use super::network::{create_veth_pair, datagram};
use super::node::{NodeProcess, find_session, parse_module};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, Outcome};
use crate::error::LabError;
use crate::machine::{OTHER_CORE, bind};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use weir_netio::{LivePoll, LiveSink, SocketKind};
use weir_node::control::protocol::SessionStatus;
use weir_units::{Bytes, Nanos};

pub const FIGURE: Figure = Figure {
    name: "price-15",
    title: "Price of Safety, figure 15: memory and answered requests of active reliable multicast",
    experiment: "The shipped module `arm` on a running node, between a sender of 1,000 packets of 1,000 bytes per second and a receiver that loses 25 % \
of the packets, and 50 % from 10 s on, repairs included. The experiment makes the losses itself, from a generator with a fixed seed. The \
receiver requests a packet 40 ms after its loss, and again every 40 ms. A request that arm does not answer reaches the sender, which \
sends the packet again. So requests are for packets of 40, 80, 120 … packets ago: to answer nine of ten, arm needs 80 copies at 25 % \
loss and 160 at 50 %. It starts with 32, and asks its session for another 64 KiB after each second in which it had a copy for less than \
90 % of the requests. The experiment counts requests at the receiver and at the sender. Memory is the reserved memory of the session. \
The stream and the requests come in by one interface, as on a shared segment; forwarded packets and repairs leave by another.",
    paper: "ARM's heap grows to about 180 KB, with which it answers over 90 % of requests at 25 % loss. At 90 s loss is doubled, and noticeably less \
than 90 % are answered. ARM asks for more memory, up to about 370 KB after 40 s, with which it reaches 90 % again.",
    without: "the memory of the session cannot grow beyond its initial size",
    run,
};

/// Loss rates: the start in seconds, and the lost fraction.
const LOSSES: [(f64, f64); 2] = [(0.0, 0.25), (10.0, 0.5)];
/// The duration of the experiment in seconds.
const END: f64 = 24.0;
/// Packets of the stream per second.
const RATE: f64 = 1000.0;
/// The length of a packet in bytes.
const LENGTH: usize = 1000;
/// The time from a loss to the first request for the packet, and between requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(40);
/// The percentage of requests that arm must answer.
const ANSWERED_PERCENT_MIN: f64 = 90.0;
/// The seconds after a change of the loss rate in which arm may be without the memory that it needs.
const ADAPTATION_TIME: f64 = 6.0;
/// The sampling interval of the node's state.
const STEP: Duration = Duration::from_millis(100);
/// Bytes that the session may reserve in addition to its initial memory.
const MORE: u64 = 2 << 20;
/// The memory of the session while the memory that arm needs at its start is measured; more than that.
const PLENTY: u64 = 16 << 20;
/// The least ratio of the requested memory at 50 % loss to that at 25 %.
const GROWTH_MIN: f64 = 1.5;

/// The UDP port of arm's packets. The format of the packets is described in arm's README.
const PORT: u16 = 5350;
const DATA: u8 = 1;
const NACK: u8 = 2;
const VERSION: u8 = 1;
const STREAM: u32 = 7;
/// The offset of the UDP payload in a frame.
const PAYLOAD: usize = 42;

/// An event of the experiment, with its time in seconds since the first packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// The receiver requested a packet.
    Requested(f64),
    /// A request reached the sender, because arm did not answer it.
    Unanswered(f64),
    /// At this time the session had reserved this number of bytes.
    Reserved(f64, f64),
}

fn run(mechanism: Mechanism) -> Result<Outcome, LabError> {
    let events = record(mechanism)?;
    let mut csv = Csv::new(&["time_s", "requested", "unanswered", "answered_percent", "reserved_kib"]);
    for second in seconds(&events) {
        let Second { begin, requested, unanswered, reserved } = second;
        csv.row([begin, requested, unanswered, second.answered(), reserved / 1024.0].map(Into::into));
    }
    let name = FIGURE.name.to_owned();
    Ok(Outcome {
        records: vec![(name.clone(), csv)],
        charts: vec![(name.clone(), answers(&events)), (format!("{name}-memory"), memory(&events))],
        criteria: judge(&events)?,
        remarks: String::new(),
    })
}

/// The sender and the receiver, with arm between them.
struct Peers {
    random: Random,
    begin: Instant,
    /// The number of the next packet of the stream.
    next_packet: u32,
    /// Packets that the receiver misses, with the times of their next requests.
    missing: BTreeMap<u32, Instant>,
    /// The missing packets in the order of those times.
    due_requests: BTreeSet<(Instant, u32)>,
    events: Vec<Event>,
}

impl Peers {
    fn new() -> Self {
        Self {
            random: Random::new(15),
            begin: Instant::now(),
            next_packet: 0,
            missing: BTreeMap::new(),
            due_requests: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    /// The time in seconds since the first packet.
    fn now(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Decides whether the next packet is lost.
    fn is_lost(&mut self) -> bool {
        let now = self.now();
        let loss = LOSSES.iter().rev().find(|(from, _)| *from <= now).map_or(0.0, |(_, loss)| *loss);
        (self.random.word() as f64 / u64::MAX as f64) < loss
    }

    /// The frames that are due: packets of the stream, and requests.
    fn due_frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while f64::from(self.next_packet) < self.now() * RATE {
            frames.push(frame_of(DATA, self.next_packet));
            self.next_packet += 1;
        }
        let now = Instant::now();
        while let Some(&(_, number)) = self.due_requests.first().filter(|(at, _)| *at <= now) {
            frames.push(frame_of(NACK, number));
            self.events.push(Event::Requested(self.now()));
            self.schedule_request(number, now + REQUEST_INTERVAL);
        }
        frames
    }

    fn schedule_request(&mut self, number: u32, at: Instant) {
        if let Some(old) = self.missing.insert(number, at) {
            self.due_requests.remove(&(old, number));
        }
        self.due_requests.insert((at, number));
    }

    /// Processes a frame that left the node. Returns the packet that the sender sends in reply to a request.
    fn handle(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (kind, number) = read(frame)?;
        if kind == NACK {
            self.events.push(Event::Unanswered(self.now()));
            return Some(frame_of(DATA, number));
        }
        if !self.is_lost() {
            if let Some(at) = self.missing.remove(&number) {
                self.due_requests.remove(&(at, number));
            }
        } else if !self.missing.contains_key(&number) {
            self.schedule_request(number, Instant::now() + REQUEST_INTERVAL);
        }
        None
    }
}

/// A packet of the stream, or a request for one.
fn frame_of(kind: u8, number: u32) -> Vec<u8> {
    let mut frame = datagram((PORT, PORT), if kind == DATA { LENGTH } else { 60 });
    frame[PAYLOAD..PAYLOAD + 4].copy_from_slice(&[kind, VERSION, 0, 0]);
    let [count, wanted] = [1u32, number].map(u32::to_be_bytes);
    let words = if kind == DATA { [wanted, [0; 4]] } else { [count, wanted] };
    frame[PAYLOAD + 4..PAYLOAD + 8].copy_from_slice(&STREAM.to_be_bytes());
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(words.as_flattened());
    frame
}

/// The kind of a packet, and the number of the packet that it carries or requests.
fn read(frame: &[u8]) -> Option<(u8, u32)> {
    let payload = frame.get(PAYLOAD..PAYLOAD + 16)?;
    let kind = *payload.first()?;
    let range = if kind == DATA { 8..12 } else { 12..16 };
    let number = payload.get(range)?.try_into().ok()?;
    matches!(kind, DATA | NACK).then_some((kind, u32::from_be_bytes(number)))
}

fn record(mechanism: Mechanism) -> Result<Vec<Event>, LabError> {
    bind(OTHER_CORE)?;
    create_veth_pair("a", "b")?;
    create_veth_pair("c", "d")?;
    let mut node = NodeProcess::start(
        "[[interface]]\nname = \"b\"\narena = \"8 MiB\"\noutgoing = false\n\
         [[link]]\ninterface = \"c\"\nrate = \"1 Gbit/s\"",
    )?;
    // The initial memory of the measured session is what the started module and its buffers for frames need.
    start(&mut node, PLENTY, PLENTY)?;
    let used = session_state(&mut node)?.memory_used;
    node.close("arm")?;
    start(&mut node, used, if mechanism == Mechanism::On { used + MORE } else { used })?;
    let mut far = open_incoming("d", SocketKind::Packet, Bytes(8 << 20))?;
    let mut near = LiveSink::open("a", SocketKind::Packet)?;
    let mut peers = Peers::new();
    let (mut next_sample, mut frame) = (Instant::now(), Vec::new());
    while peers.now() < END {
        let mut frames = peers.due_frames();
        if let LivePoll::Block(block) = far.next_block(Nanos(500_000))? {
            for index in 0..block.len() {
                block.copy_packet(index, &mut frame);
                frames.extend(peers.handle(&frame));
            }
        }
        // Packets that the interface does not take are lost, and requested again.
        for burst in frames.chunks(64) {
            near.send(&burst.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        if next_sample <= Instant::now() {
            next_sample += STEP;
            let reserved = session_state(&mut node)?.memory_reserved;
            peers.events.push(reserved_at(peers.now(), reserved));
        }
    }
    Ok(peers.events)
}

fn reserved_at(at: f64, bytes: u64) -> Event {
    Event::Reserved(at, bytes as f64)
}

/// Creates the session, and loads arm.
fn start(node: &mut NodeProcess, memory: u64, memory_max: u64) -> Result<(), LabError> {
    node.create(&format!(
        "name = \"arm\"\nmemory = \"{memory}\"\nmemory_max = \"{memory_max}\"\n\
         cpu = [{{ period = \"10ms\", slice = \"4ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {PORT}\", forward = \"repairs\" }}]\n\
         output = [{{ name = \"repairs\", link = \"c\" }}]\n"
    ))?;
    node.load("arm", parse_module("module = \"arm\"")?, &[])
}

fn session_state(node: &mut NodeProcess) -> Result<SessionStatus, LabError> {
    let snapshot = node.snapshot()?;
    let gone = || LabError::NoData("the session of arm has ended".to_owned());
    find_session(&snapshot, "arm").cloned().ok_or_else(gone)
}

/// The counts of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Second {
    begin: f64,
    requested: f64,
    unanswered: f64,
    /// The reserved bytes at the end of the second.
    reserved: f64,
}

impl Second {
    /// The percentage of requests that arm answered.
    fn answered(self) -> f64 {
        (1.0 - self.unanswered / self.requested) * 100.0
    }
}

fn seconds(events: &[Event]) -> Vec<Second> {
    let begins = (0..1000u32).map(f64::from).take_while(|begin| begin + 1.0 <= END);
    begins.map(|begin| sum(events, begin, begin + 1.0)).collect()
}

/// The counts from `begin` to `end`.
fn sum(events: &[Event], begin: f64, end: f64) -> Second {
    let mut second = Second { begin, ..Second::default() };
    let is_in = |at: f64| at >= begin && at < end;
    for event in events {
        match *event {
            Event::Requested(at) if is_in(at) => second.requested += 1.0,
            Event::Unanswered(at) if is_in(at) => second.unanswered += 1.0,
            Event::Reserved(at, bytes) if at < end => second.reserved = bytes,
            _ => {}
        }
    }
    second
}

fn judge(events: &[Event]) -> Result<Vec<Criterion>, LabError> {
    let change = LOSSES[1].0;
    let (at_quarter, doubled, at_half) = (
        sum(events, ADAPTATION_TIME, change),
        sum(events, change, change + 1.0),
        sum(events, change + ADAPTATION_TIME, END),
    );
    if [at_quarter, doubled, at_half].iter().any(|part| part.requested < 100.0) {
        return Err(LabError::NoData("there were fewer than 100 requests".to_owned()));
    }
    let begin = events.iter().find_map(|event| match event {
        Event::Reserved(_, bytes) => Some(*bytes),
        _ => None,
    });
    let begin = begin.unwrap_or(f64::NAN);
    let (before, after) = (at_quarter.reserved - begin, at_half.reserved - begin);
    Ok(vec![
        Criterion::at_least(
            format!("answered at 25 % loss, from {ADAPTATION_TIME:.0} s on"),
            at_quarter.answered(),
            ANSWERED_PERCENT_MIN,
            "%",
        ),
        Criterion::at_most(
            "answered in the second after loss was doubled",
            doubled.answered(),
            ANSWERED_PERCENT_MIN,
            "%",
        ),
        Criterion::at_least(
            format!("answered at 50 % loss, from {ADAPTATION_TIME:.0} s later on"),
            at_half.answered(),
            ANSWERED_PERCENT_MIN,
            "%",
        ),
        Criterion::at_least("requested memory at 50 % loss ÷ that at 25 %", after / before, GROWTH_MIN, "×"),
    ])
}

fn answers(events: &[Event]) -> Chart {
    let mut chart = Chart::new(
        ChartAxis::linear("time, s", 0.0, END),
        ChartAxis::linear("requests answered by arm, % in a second", 0.0, 105.0),
    );
    chart.add("", 5, Mark::Expected(vec![(0.0, ANSWERED_PERCENT_MIN), (END, ANSWERED_PERCENT_MIN)]));
    let points = seconds(events).into_iter().filter(|second| second.requested > 0.0);
    chart.add(
        "answered",
        0,
        Mark::Dotted(points.map(|second| (second.begin + 0.5, second.answered())).collect()),
    );
    let change = LOSSES[1].0;
    chart.add("loss 25 %, then 50 %", 3, Mark::Expected(vec![(change, 0.0), (change, 105.0)]));
    chart
}

fn memory(events: &[Event]) -> Chart {
    let points: Vec<(f64, f64)> = events
        .iter()
        .filter_map(|event| match event {
            Event::Reserved(at, bytes) => Some((*at, bytes / 1024.0)),
            _ => None,
        })
        .collect();
    let kib_max = points.iter().map(|(_, kib)| *kib).fold(1.0, f64::max);
    let mut chart = Chart::new(
        ChartAxis::linear("time, s", 0.0, END),
        ChartAxis::linear("reserved by the session, KiB", 0.0, kib_max * 1.15),
    );
    chart.add("reserved", 1, Mark::Line(points));
    let change = LOSSES[1].0;
    chart.add("loss 25 %, then 50 %", 3, Mark::Expected(vec![(change, 0.0), (change, kib_max * 1.15)]));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events with these percentages of answered requests (before the change, in the second after it, and later) and this
    /// memory in KiB (at the beginning, before the change, and after it).
    fn made(parts: [f64; 3], kib: [f64; 3]) -> Vec<Event> {
        let change = LOSSES[1].0;
        let mut events = Vec::new();
        for step in 0..24_000u32 {
            let at = f64::from(step) / 1000.0;
            let phase = if at < change {
                0
            } else if at < change + 1.0 {
                1
            } else {
                2
            };
            events.push(Event::Requested(at));
            if f64::from(step % 100) >= parts[phase] {
                events.push(Event::Unanswered(at));
            }
            let memory = if at < 0.5 {
                kib[0]
            } else if at < change {
                kib[1]
            } else {
                kib[2]
            };
            events.push(Event::Reserved(at, memory * 1024.0));
        }
        events
    }

    fn kept(events: &[Event]) -> Vec<bool> {
        judge(events).unwrap().iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn only_memory_that_grows_with_the_loss_keeps_all_criteria() {
        assert_eq!(kept(&made([94.0, 75.0, 94.0], [600.0, 728.0, 920.0])), [true; 4]);
        // The session may not have more memory: too few requests are answered, and the memory has not grown.
        assert_eq!(kept(&made([0.0, 0.0, 0.0], [600.0; 3])), [false, true, false, false]);
        assert_eq!(kept(&made([94.0, 75.0, 88.0], [600.0, 728.0, 920.0])), [true, true, false, true]);
        // The session had more memory than it needed from the beginning.
        assert_eq!(kept(&made([99.0, 94.0, 94.0], [600.0, 920.0, 920.0])), [true, false, true, false]);
        assert!(matches!(judge(&[]), Err(LabError::NoData(_))));
    }

    #[test]
    fn packets_have_the_format_that_arm_reads() {
        for (kind, number) in [(DATA, 0), (DATA, 0x0102_0304), (NACK, 7), (NACK, u32::MAX)] {
            assert_eq!(read(&frame_of(kind, number)), Some((kind, number)));
        }
        assert_eq!(read(&datagram((1, 2), 60)), None);
        assert_eq!(read(&[0; 20]), None);
        let frame = frame_of(NACK, 9);
        assert_eq!(frame[PAYLOAD..PAYLOAD + 16], [2, 1, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(frame[36..38], PORT.to_be_bytes());
    }

    #[test]
    fn a_lost_packet_is_requested_until_it_is_received() {
        let mut peers = Peers::new();
        // The sender answers a request that reaches it.
        assert_eq!(peers.handle(&frame_of(NACK, 3)), Some(frame_of(DATA, 3)));
        let mut lost = 0;
        for number in 0..1000 {
            assert_eq!(peers.handle(&frame_of(DATA, number)), None);
            lost += usize::from(peers.missing.contains_key(&number));
        }
        assert!((200..300).contains(&lost), "{lost}");
        assert_eq!((peers.missing.len(), peers.due_requests.len()), (lost, lost));
        // Received packets are requested no more.
        for _ in 0..100 {
            for number in 0..1000 {
                if peers.missing.contains_key(&number) {
                    peers.handle(&frame_of(DATA, number));
                }
            }
        }
        assert!(peers.missing.is_empty() && peers.due_requests.is_empty());
    }
}
