//! Tests of elements in a readable form: a graph, and what is to come of it.
//!
//! A test is a text file with the name of the element. Its first line says what it shows. Sections begin with `---`:
//!
//! ```text
//! A Counter counts packets and bytes.
//! --- graph
//! FromDump(in, STOP true) -> c :: Counter -> ToDump(out);
//! --- capture in
//! 1.000000000 000102
//! 1.500000000 0001020304 60
//! --- handlers
//! c.count 2
//! c.byte_count 8
//! --- capture out
//! 1.000000000 000102
//! 1.500000000 0001020304 60
//! ```
//!
//! | section | content |
//! |---|---|
//! | `graph` | the configuration |
//! | `capture NAME` | packets: a time in seconds, bytes in hexadecimal, and the length on the wire if it is greater; before `handlers` or `errors` an input, after them what `ToDump(NAME)` has to write. An input ends with a line `error REASON` if it cannot be read further |
//! | `device NAME` | as `capture`: the packets that `FromDevice(NAME)` receives, after which the device ends; what `ToDevice(NAME)` has to send. A device takes ten packets at a time, and loses those of less than 14 bytes |
//! | `device NAME` of a KernelTun, KernelTap or FromHost | as of the others; without a name they are `tun0` and `tap0` |
//! | `device TRANSPORT/ADDRESS` | the packets of a socket, such as `device udp/192.0.2.1:53`, `tcp/…`, `unix/FILE`, `multicast/…` or `ip/PROTOCOL`. The first comes from 192.0.2.1, the next from 192.0.2.2, and so on. A socket takes ten packets at a time |
//! | `calls` | calls that come to a ControlSocket, such as `READ c.count`; each is written to standard output with its result. Port 1 is occupied |
//! | `file NAME` | a text that elements can read; after `handlers` or `errors`, one that they have to write |
//! | `write` | write handlers that are called before the run, one a line |
//! | `handlers` | read handlers that are called after the run, each with its value; a value with several lines follows in lines that begin with two spaces |
//! | `stderr`, `stdout` | the text on standard error, and on standard output |
//! | `errors` | the errors of the configuration, instead of a run |
//! | `ends` | the seconds of simulated time after which the run is stopped; without it, a graph has to stop itself |
//!
//! There is an interface `eth9` with the addresses 192.0.2.5/24 and 02-00-00-00-00-09, and the gateway 192.0.2.1.
//!
//! Each test runs twice, with batches of 64 packets and of 1, in simulated time. Both runs must give the same.
//! [`GraphTest::check_in`] runs it in another form, such as on several threads.

use crate::AllElements;
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_graph::arguments::{EthernetAddress, Ipv4Prefix};
use weir_graph::control::{HandlerAction, HandlerCall};
use weir_graph::engine::{
    BlockPacket, CallAnswer, CaptureReader, CaptureWriter, CapturedBlock, ControlPlace, ControlPort,
    DeviceOptions, DeviceState, GraphError, HandlerError, HostDevice, HostDeviceKind, HostDeviceOptions,
    InterfaceAddresses, PacketSocket, PacketType, ReceivedPacket, ReceivingDevice, Router, RunOptions,
    SendingDevice, SentPackets, SimulatedClock, SocketEvents, SocketOptions, SocketSend, SocketState,
    SourceBlock, System, TextOutput,
};
use weir_graph::language::{ConfigurationSource, FlatConfiguration, parse};
use weir_units::{Nanos, Timestamp};

/// A test of a graph.
#[derive(Clone, Debug, Default)]
pub struct GraphTest {
    /// The statement that the test shows.
    pub title: String,
    graph: String,
    inputs: BTreeMap<String, Vec<TestPacket>>,
    devices: BTreeMap<String, Vec<TestPacket>>,
    /// The reasons for which inputs cannot be read further.
    breaks: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    calls: VecDeque<HandlerCall>,
    writes: Vec<String>,
    ends: Option<Nanos>,
    expected: Results,
}

/// A packet in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestPacket {
    time: Timestamp,
    bytes: Vec<u8>,
    wire_length: u32,
}

/// The results of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Results {
    captures: BTreeMap<String, Vec<TestPacket>>,
    /// The packets that were sent, by device.
    sent: BTreeMap<String, Vec<TestPacket>>,
    files: BTreeMap<String, String>,
    handlers: Vec<(String, String)>,
    errors: Option<String>,
    /// The texts, if the test states them.
    stderr: Option<String>,
    stdout: Option<String>,
}

/// The reason for which a test is not passed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphTestError {
    /// The file is no test.
    #[error("line {line}: {reason}")]
    Form {
        /// The line.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The results are others.
    #[error("with batches of {batch}: {what}\n  expected: {expected}\n  found:    {found}")]
    Other {
        /// The most packets of a batch.
        batch: usize,
        /// The part of the results.
        what: String,
        /// The expected value.
        expected: String,
        /// The value that was found.
        found: String,
    },
}

/// A graph that a test runs.
pub trait TestedGraph {
    /// Writes a handler.
    ///
    /// # Errors
    ///
    /// Fails with the reason of the handler.
    fn write_handler(&mut self, call: &str) -> Result<String, String>;

    /// Runs until the graph stops, or this time.
    fn run_until(&mut self, end: Option<Timestamp>);

    /// Reads a handler.
    ///
    /// # Errors
    ///
    /// Fails with the reason of the handler.
    fn read_handler(&mut self, call: &str) -> Result<String, String>;

    /// Completes the results.
    ///
    /// # Errors
    ///
    /// Fails with every result that is not complete.
    fn finish(&mut self) -> Result<(), Vec<GraphError>>;
}

impl TestedGraph for Router {
    fn write_handler(&mut self, call: &str) -> Result<String, String> {
        Router::write_handler(self, call)
    }

    fn run_until(&mut self, end: Option<Timestamp>) {
        Router::run_until(self, end);
    }

    fn read_handler(&mut self, call: &str) -> Result<String, String> {
        Router::read_handler(self, call)
    }

    fn finish(&mut self) -> Result<(), Vec<GraphError>> {
        Router::finish(self)
    }
}

/// The system of a test, for each thread of a graph.
pub type TestSystems = Arc<dyn Fn() -> Box<dyn System> + Send + Sync>;

/// Makes a graph for a test.
pub type MakeGraph<'m> =
    &'m dyn Fn(FlatConfiguration, TestSystems, RunOptions) -> Result<Box<dyn TestedGraph>, Vec<GraphError>>;

fn one_thread(
    flat: FlatConfiguration,
    systems: TestSystems,
    options: RunOptions,
) -> Result<Box<dyn TestedGraph>, Vec<GraphError>> {
    let mut router = Router::new(flat, &AllElements, systems(), Box::<SimulatedClock>::default(), options)?;
    let parse = |text: &str| {
        let source = ConfigurationSource { name: "config", bytes: text.as_bytes() };
        parse(&source, &[], &AllElements).map_err(|errors| errors.to_string())
    };
    router.allow_replacement(parse, AllElements);
    Ok(Box::new(router))
}

impl GraphTest {
    /// Reads a test.
    ///
    /// # Errors
    ///
    /// [`GraphTestError::Form`] if the text is none.
    pub fn read(text: &str) -> Result<Self, GraphTestError> {
        let mut test = GraphTest::default();
        let mut section: Vec<&str> = Vec::new();
        let mut has_results = false;
        for (index, line) in text.lines().enumerate() {
            let wrong = |reason: String| GraphTestError::Form { line: index + 1, reason };
            if let Some(name) = line.strip_prefix("---") {
                section = name.split_whitespace().collect();
                match section[..] {
                    ["handlers"] => has_results = true,
                    ["errors"] => (has_results, test.expected.errors) = (true, Some(String::new())),
                    ["stderr"] => (has_results, test.expected.stderr) = (true, Some(String::new())),
                    ["stdout"] => (has_results, test.expected.stdout) = (true, Some(String::new())),
                    ["capture", name] if has_results => {
                        _ = test.expected.captures.insert(name.to_owned(), Vec::new())
                    }
                    ["capture", name] => _ = test.inputs.insert(name.to_owned(), Vec::new()),
                    ["device", name] if has_results => {
                        _ = test.expected.sent.insert(name.to_owned(), Vec::new())
                    }
                    ["device", name] => _ = test.devices.insert(name.to_owned(), Vec::new()),
                    ["file", name] if has_results => {
                        _ = test.expected.files.insert(name.to_owned(), String::new())
                    }
                    ["file", name] => _ = test.files.insert(name.to_owned(), String::new()),
                    ["graph"] | ["write"] | ["calls"] | ["ends"] => {}
                    _ => return Err(wrong(format!("no section is named '{}'", name.trim()))),
                }
                continue;
            }
            let is_empty = line.trim().is_empty();
            match section[..] {
                [] if is_empty => {}
                [] => test.title.push_str(line),
                ["graph"] => _ = writeln!(test.graph, "{line}"),
                ["file", name] => {
                    let all = if has_results { &mut test.expected.files } else { &mut test.files };
                    let text = all.entry(name.to_owned()).or_default();
                    _ = writeln!(text, "{line}");
                }
                ["stderr"] => add_line(&mut test.expected.stderr, line),
                ["stdout"] => add_line(&mut test.expected.stdout, line),
                ["errors"] => add_line(&mut test.expected.errors, line),
                _ if is_empty => {}
                ["write"] => test.writes.push(line.trim().to_owned()),
                ["calls"] => {
                    let call = read_call(line).ok_or_else(|| wrong("expected: READ HANDLER".to_owned()))?;
                    test.calls.push_back(call);
                }
                ["ends"] => {
                    let seconds =
                        line.trim().parse().map_err(|_| wrong("expected a number of seconds".to_owned()))?;
                    test.ends = Some(Nanos(Nanos::SECOND.0.saturating_mul(seconds)));
                }
                ["handlers"] => match (line.strip_prefix("  "), test.expected.handlers.last_mut()) {
                    (Some(more), Some((_, value))) => {
                        let gap = if value.is_empty() { "" } else { "\n" };
                        _ = write!(value, "{gap}{more}");
                    }
                    _ => {
                        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
                        test.expected.handlers.push((name.to_owned(), value.trim().to_owned()));
                    }
                },
                ["capture", name] if !has_results && line.starts_with("error ") => {
                    test.breaks.insert(name.to_owned(), line["error ".len()..].to_owned());
                }
                [kind @ ("capture" | "device"), name] => {
                    let packet = read_packet(line)
                        .ok_or_else(|| wrong("expected: SECONDS HEX [LENGTH]".to_owned()))?;
                    let all = match (kind, has_results) {
                        ("capture", true) => &mut test.expected.captures,
                        ("capture", false) => &mut test.inputs,
                        (_, true) => &mut test.expected.sent,
                        (_, false) => &mut test.devices,
                    };
                    all.entry(name.to_owned()).or_default().push(packet);
                }
                _ => {}
            }
        }
        if test.graph.trim().is_empty() {
            return Err(GraphTestError::Form {
                line: text.lines().count(),
                reason: "there is no graph".to_owned(),
            });
        }
        Ok(test)
    }

    /// Runs the test in both ways.
    ///
    /// # Errors
    ///
    /// [`GraphTestError::Other`] with the first difference.
    pub fn check(&self) -> Result<(), GraphTestError> {
        [1, 64].into_iter().try_for_each(|batch| self.check_in(batch, &one_thread))
    }

    /// Runs the test on a graph that a function makes.
    ///
    /// # Errors
    ///
    /// [`GraphTestError::Other`] with the first difference.
    pub fn check_in(&self, batch: usize, make: MakeGraph<'_>) -> Result<(), GraphTestError> {
        self.compare(batch, &self.run(batch, make))
    }

    /// Returns true if the run is stopped after a time.
    pub fn has_end(&self) -> bool {
        self.ends.is_some()
    }

    fn run(&self, batch: usize, make: MakeGraph<'_>) -> Results {
        let mut results = Results::default();
        let source = ConfigurationSource { name: "graph", bytes: self.graph.as_bytes() };
        let flat = match parse(&source, &[], &AllElements) {
            Ok(flat) => flat,
            Err(errors) => {
                results.errors = Some(format!("{}\n", errors.to_string().trim_end()));
                return results;
            }
        };
        let written = Arc::new(Mutex::new(Written::default()));
        let system = TestSystem {
            inputs: self.inputs.clone(),
            devices: self.devices.clone(),
            breaks: self.breaks.clone(),
            files: self.files.clone(),
            calls: self.calls.clone(),
            receiving: Arc::default(),
            written: Arc::clone(&written),
        };
        let systems: TestSystems = Arc::new(move || Box::new(system.clone()));
        // In a simulation tasks alternate packet by packet; a quantum shows what happens in real time.
        let options = RunOptions { batch, ..RunOptions::default() };
        let mut router = match make(flat, systems, options) {
            Ok(router) => router,
            Err(errors) => {
                results.errors = Some(errors.iter().map(|error| format!("{error}\n")).collect());
                return results;
            }
        };
        for call in &self.writes {
            if let Err(reason) = router.write_handler(call) {
                results.errors = Some(format!("{call}: {reason}\n"));
                return results;
            }
        }
        let end = self.ends.map(|ends| Timestamp(SimulatedClock::START.0.saturating_add(ends.0)));
        router.run_until(end);
        for (name, _) in &self.expected.handlers {
            let value = router.read_handler(name).unwrap_or_else(|reason| format!("error: {reason}"));
            results.handlers.push((name.clone(), value.trim_end().to_owned()));
        }
        if let Err(errors) = router.finish() {
            results.errors = Some(errors.iter().map(|error| format!("{error}\n")).collect());
        }
        let written = std::mem::take(&mut *lock(&written));
        (results.captures, results.files) = (written.captures, written.files);
        results.sent = written.sent;
        (results.stderr, results.stdout) = (Some(written.stderr), Some(written.stdout));
        results
    }

    fn compare(&self, batch: usize, found: &Results) -> Result<(), GraphTestError> {
        let same = |what: &str, expected: &str, found: &str| {
            if expected.trim_end() == found.trim_end() {
                return Ok(());
            }
            let (what, expected, found) = (what.to_owned(), expected.to_owned(), found.to_owned());
            Err(GraphTestError::Other { batch, what, expected, found })
        };
        same(
            "errors",
            self.expected.errors.as_deref().unwrap_or_default(),
            found.errors.as_deref().unwrap_or_default(),
        )?;
        for ((name, expected), (_, found)) in self.expected.handlers.iter().zip(&found.handlers) {
            same(name, expected, found)?;
        }
        for (name, expected) in &self.expected.captures {
            let found = found.captures.get(name).map_or(&[][..], Vec::as_slice);
            same(&format!("capture {name}"), &show_packets(expected), &show_packets(found))?;
        }
        for (name, expected) in &self.expected.sent {
            let found = found.sent.get(name).map_or(&[][..], Vec::as_slice);
            same(&format!("device {name}"), &show_packets(expected), &show_packets(found))?;
        }
        for (name, expected) in &self.expected.files {
            same(&format!("file {name}"), expected, found.files.get(name).map_or("", String::as_str))?;
        }
        if let Some(expected) = &self.expected.stderr {
            same("stderr", expected, found.stderr.as_deref().unwrap_or_default())?;
        }
        if let Some(expected) = &self.expected.stdout {
            same("stdout", expected, found.stdout.as_deref().unwrap_or_default())?;
        }
        Ok(())
    }
}

fn add_line(text: &mut Option<String>, line: &str) {
    if let Some(text) = text {
        _ = writeln!(text, "{line}");
    }
}

fn read_packet(line: &str) -> Option<TestPacket> {
    let mut words = line.split_whitespace();
    let (seconds, fraction) = words.next()?.split_once('.')?;
    let fraction = format!("{fraction:0<9}").parse::<u64>().ok()?;
    let time = Timestamp(seconds.parse::<u64>().ok()?.checked_mul(Nanos::SECOND.0)?.checked_add(fraction)?);
    let hex = words.next()?;
    let hex = if hex == "-" { "" } else { hex };
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    let length = u32::try_from(bytes.len()).ok()?;
    let wire_length = words.next().map_or(Ok(length), str::parse).ok()?;
    Some(TestPacket { time, bytes, wire_length })
}

fn read_call(line: &str) -> Option<HandlerCall> {
    let (action, rest) = line.trim().split_once(' ')?;
    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
    let action = match action {
        "READ" => HandlerAction::Read,
        "WRITE" => HandlerAction::Write,
        "CHECKREAD" => HandlerAction::CheckRead,
        "CHECKWRITE" => HandlerAction::CheckWrite,
        _ => return None,
    };
    Some(HandlerCall { action, name: name.to_owned(), value: value.to_owned() })
}

fn show_packets(packets: &[TestPacket]) -> String {
    let mut text = String::new();
    for TestPacket { time, bytes, wire_length } in packets {
        _ = write!(text, "\n    {}.{:09} ", time.0 / Nanos::SECOND.0, time.0 % Nanos::SECOND.0);
        bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
        if bytes.is_empty() {
            text.push('-');
        }
        if *wire_length as usize != bytes.len() {
            _ = write!(text, " {wire_length}");
        }
    }
    text
}

#[derive(Debug, Default)]
struct Written {
    captures: BTreeMap<String, Vec<TestPacket>>,
    sent: BTreeMap<String, Vec<TestPacket>>,
    files: BTreeMap<String, String>,
    stderr: String,
    stdout: String,
}

type SharedWritten = Arc<Mutex<Written>>;

fn lock(written: &SharedWritten) -> std::sync::MutexGuard<'_, Written> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of devices and sockets with packets that were not received yet.
type ReceivingCount = Arc<AtomicUsize>;

/// The packets that a device or a socket has still to receive.
struct Arriving {
    packets: std::vec::IntoIter<TestPacket>,
    receiving: ReceivingCount,
    has_ended: bool,
}

impl Arriving {
    fn new(packets: Vec<TestPacket>, receiving: &ReceivingCount) -> Self {
        receiving.fetch_add(1, Ordering::Relaxed);
        Self { packets: packets.into_iter(), receiving: Arc::clone(receiving), has_ended: false }
    }

    /// Returns true if there are no further packets.
    fn is_over(&mut self) -> bool {
        let is_over = self.packets.as_slice().is_empty();
        if is_over && !std::mem::replace(&mut self.has_ended, true) {
            self.receiving.fetch_sub(1, Ordering::Relaxed);
        }
        is_over
    }
}

/// A system in memory.
#[derive(Clone)]
struct TestSystem {
    inputs: BTreeMap<String, Vec<TestPacket>>,
    devices: BTreeMap<String, Vec<TestPacket>>,
    breaks: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    calls: VecDeque<HandlerCall>,
    receiving: ReceivingCount,
    written: SharedWritten,
}

struct TestReader {
    packets: std::vec::IntoIter<TestPacket>,
    breaks: Option<String>,
}

/// The packets that share a block of bytes.
const BLOCK_PACKETS: usize = 3;

impl CaptureReader for TestReader {
    fn next_block(&mut self, block: &mut CapturedBlock) -> Result<(), String> {
        block.packets.clear();
        let mut all = Vec::new();
        for TestPacket { time, bytes, wire_length } in self.packets.by_ref().take(BLOCK_PACKETS) {
            let place = |at: usize| u32::try_from(at).map_err(|_| "a capture of more than 4 GiB".to_owned());
            let (start, end) = (place(all.len())?, place(all.len() + bytes.len())?);
            all.extend(bytes);
            block.packets.push(BlockPacket { start, end, wire_length, link_type: 1, time });
        }
        block.source = Some(Rc::new(SourceBlock::later(|| all)));
        match self.breaks.take_if(|_| block.packets.is_empty()) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}

struct TestWriter {
    name: String,
    written: SharedWritten,
}

impl CaptureWriter for TestWriter {
    fn write(&mut self, time: Timestamp, bytes: &[u8], wire_length: u32) -> Result<(), String> {
        let mut written = lock(&self.written);
        let packets = written.captures.entry(self.name.clone()).or_default();
        packets.push(TestPacket { time, bytes: bytes.to_vec(), wire_length });
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// A device that has received these packets, and ends after them.
struct TestReceiver(Arriving);

impl ReceivingDevice for TestReceiver {
    fn link_type(&self) -> u32 {
        1
    }

    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(ReceivedPacket<'_>),
        _: &mut Vec<String>,
    ) -> Result<DeviceState, String> {
        for TestPacket { time, bytes, wire_length } in self.0.packets.by_ref().take(most) {
            let packet_type = match bytes.first() {
                Some(0xff) => PacketType::Broadcast,
                Some(first) if first & 1 == 1 => PacketType::Multicast,
                _ => PacketType::Host,
            };
            each(ReceivedPacket { bytes: &bytes, wire_length, time, packet_type });
        }
        Ok(if self.0.is_over() { DeviceState::End } else { DeviceState::More })
    }

    fn lost(&mut self) -> u64 {
        0
    }
}

/// The packets that a device takes at a time.
const ROOM: usize = 10;
/// The shortest packet that a device sends: a link header.
const SENT_MIN: usize = 14;

/// A device that sends.
struct TestSender {
    name: String,
    written: SharedWritten,
}

impl SendingDevice for TestSender {
    fn link_type(&self) -> u32 {
        1
    }

    fn send(&mut self, packets: &[&[u8]]) -> SentPackets {
        let taken = packets.len().min(ROOM);
        let mut lost = Vec::new();
        let mut written = lock(&self.written);
        let sent = written.sent.entry(self.name.clone()).or_default();
        for (index, bytes) in packets[..taken].iter().enumerate() {
            if bytes.len() < SENT_MIN {
                lost.push((index, "shorter than a link header"));
            } else {
                let wire_length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                sent.push(TestPacket { time: Timestamp(0), bytes: bytes.to_vec(), wire_length });
            }
        }
        SentPackets { taken, lost }
    }
}

/// A socket that has received these packets.
struct TestSocket {
    arriving: Arriving,
    snap: usize,
    peers: u8,
    taken: usize,
    sender: TestSender,
}

impl PacketSocket for TestSocket {
    fn receive(&mut self, most: usize, events: &mut dyn SocketEvents) -> Result<SocketState, String> {
        for TestPacket { bytes, .. } in self.arriving.packets.by_ref().take(most) {
            self.peers = self.peers.saturating_add(1);
            let peer = Ipv4Addr::new(192, 0, 2, self.peers);
            if events.is_allowed(peer) {
                events.receive(&bytes[..bytes.len().min(self.snap)], bytes.len());
            } else {
                events.tell(&format!("dropped datagram from {peer}"));
            }
        }
        Ok(if self.arriving.is_over() { SocketState::End } else { SocketState::More })
    }

    fn send(&mut self, bytes: &[u8], _: Ipv4Addr) -> SocketSend {
        if self.taken == ROOM {
            self.taken = 0;
            return SocketSend::Full;
        }
        self.taken += 1;
        match self.sender.send(&[bytes]).lost.first() {
            Some((_, reason)) => SocketSend::Lost(reason),
            None => SocketSend::Sent,
        }
    }
}

/// A control socket to which these calls come.
struct TestControlPort {
    place: ControlPlace,
    calls: VecDeque<HandlerCall>,
    written: SharedWritten,
}

impl ControlPort for TestControlPort {
    fn place(&self) -> ControlPlace {
        self.place.clone()
    }

    fn next_call(&mut self) -> Option<(HandlerCall, CallAnswer)> {
        let call = self.calls.pop_front()?;
        let (name, written) = (call.name.clone(), Arc::clone(&self.written));
        let answer = move |result: Result<String, HandlerError>| {
            let line = match result {
                Ok(value) => format!("{name}: {}\n", value.trim_end()),
                Err(HandlerError { fault, text }) => format!("{name}: {fault:?}: {text}\n"),
            };
            lock(&written).stdout.push_str(&line);
        };
        Some((call, Box::new(answer)))
    }

    fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    fn take_news(&mut self, _: &mut Vec<String>) {}
}

/// Returns the interface of tests.
pub fn interfaces() -> Vec<InterfaceAddresses> {
    let address = Ipv4Addr::new(192, 0, 2, 5);
    vec![InterfaceAddresses {
        name: "eth9".to_owned(),
        ipv4: Some(Ipv4Prefix { address, mask: Ipv4Addr::new(255, 255, 255, 0) }),
        gateway: Some(Ipv4Addr::new(192, 0, 2, 1)),
        ethernet: Some(EthernetAddress([2, 0, 0, 0, 0, 9])),
    }]
}

impl System for TestSystem {
    fn interfaces(&self) -> Vec<InterfaceAddresses> {
        interfaces()
    }

    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        let name = match (options.name.replace("%d", "0"), options.kind) {
            (name, HostDeviceKind::Ip) if name.is_empty() => "tun0".to_owned(),
            (name, HostDeviceKind::Ethernet) if name.is_empty() => "tap0".to_owned(),
            (name, _) => name,
        };
        let packets = self.devices.get(&name).cloned().unwrap_or_default();
        let sender = Box::new(TestSender { name: name.clone(), written: Arc::clone(&self.written) });
        Ok(HostDevice {
            name,
            receiver: Box::new(TestReceiver(Arriving::new(packets, &self.receiving))),
            sender,
        })
    }

    fn open_socket(&mut self, options: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        let name = options.transport.to_string();
        let packets = self.devices.get(&name).cloned().unwrap_or_default();
        let arriving = Arriving::new(packets, &self.receiving);
        let sender = TestSender { name, written: Arc::clone(&self.written) };
        Ok(Box::new(TestSocket { arriving, snap: options.snap, peers: 0, taken: 0, sender }))
    }

    fn wait_for_devices(&mut self, _: Option<Nanos>) -> bool {
        self.receiving.load(Ordering::Relaxed) > 0
    }

    fn open_control(&mut self, place: &ControlPlace) -> Result<Box<dyn ControlPort>, String> {
        if matches!(place, ControlPlace::Port { port: 1, .. }) {
            return Err("control socket 127.0.0.1:1: in use".to_owned());
        }
        let (place, calls) = (place.clone(), std::mem::take(&mut self.calls));
        Ok(Box::new(TestControlPort { place, calls, written: Arc::clone(&self.written) }))
    }

    fn open_device(&mut self, name: &str, _: &DeviceOptions) -> Result<Box<dyn ReceivingDevice>, String> {
        match self.devices.get(name) {
            Some(packets) => Ok(Box::new(TestReceiver(Arriving::new(packets.clone(), &self.receiving)))),
            None => Err(format!("there is no interface `{name}`")),
        }
    }

    fn open_sender(&mut self, name: &str) -> Result<Box<dyn SendingDevice>, String> {
        Ok(Box::new(TestSender { name: name.to_owned(), written: Arc::clone(&self.written) }))
    }

    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        match self.inputs.get(name) {
            Some(packets) => Ok(Box::new(TestReader {
                packets: packets.clone().into_iter(),
                breaks: self.breaks.get(name).cloned(),
            })),
            None => Err(format!("{name}: no such file")),
        }
    }

    fn create_capture(&mut self, name: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        lock(&self.written).captures.insert(name.to_owned(), Vec::new());
        Ok(Box::new(TestWriter { name: name.to_owned(), written: Arc::clone(&self.written) }))
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.files
            .get(name)
            .map(|text| text.clone().into_bytes())
            .ok_or_else(|| format!("{name}: no such file"))
    }

    fn write_file(&mut self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), String> {
        let mut written = lock(&self.written);
        let file = written.files.entry(name.to_owned()).or_default();
        if is_new {
            file.clear();
        }
        file.push_str(&String::from_utf8_lossy(bytes));
        Ok(())
    }

    fn write_text(&mut self, output: TextOutput, text: &str) {
        let mut written = lock(&self.written);
        match output {
            TextOutput::Error => written.stderr.push_str(text),
            TextOutput::Out => written.stdout.push_str(text),
        }
    }
}
