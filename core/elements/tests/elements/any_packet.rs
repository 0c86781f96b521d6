//! Feeds each element with arbitrary packets: no element panics, and batches give the same results as single packets.
//!
//! The arguments of the elements are those in tests/graphs.

use super::classes;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weir_elements::AllElements;
use weir_graph::engine::{
    ANNOTATION_BYTES, BuiltElement, CaptureReader, CaptureWriter, DeviceOptions, Effects, Element,
    ElementClass, ElementClasses, ElementContext, ElementCost, EmittingElement, GraphPacket, NoFiles,
    OrderDependence, PacketType, PortCounts, Reason, ReceivingDevice, Router, RunOptions, SendingDevice,
    SimulatedClock, System, TaskRun, TextOutput,
};
use weir_graph::language::{ClassStatus, ConfigurationSource, LanguageEnvironment, LibraryText, parse};
use weir_units::Timestamp;

/// The classes that run in no test here: a graph with an Error never starts.
const NOT_FED: &[&str] = &["Error"];

/// An arbitrary packet.
#[derive(Clone, Debug)]
struct AnyPacket {
    bytes: Vec<u8>,
    /// The offset and the length of the network header.
    header: Option<(usize, usize)>,
    annotations: Vec<u8>,
    /// The bytes that are stripped and truncated after the header was set.
    stripped: usize,
    truncated: usize,
    packet_type: PacketType,
    time: u64,
}

/// The facts about a packet that a sink has got.
type Seen = (Vec<u8>, Vec<u8>, Option<usize>);

thread_local! {
    static FED: RefCell<Vec<AnyPacket>> = const { RefCell::new(Vec::new()) };
    static SEEN: RefCell<BTreeMap<String, Vec<Seen>>> = const { RefCell::new(BTreeMap::new()) };
}

static SOURCE: ElementClass = ElementClass {
    name: "AnySource",
    ports: "0/1",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "",
    build: |_| Ok(BuiltElement::emitting(AnySource)),
};

static SINK: ElementClass = ElementClass {
    name: "AnySink",
    ports: "1/0",
    build: |cx| Ok(BuiltElement::emitting(AnySink(cx.name().to_owned()))),
    ..SOURCE
};

struct AnySource;

impl Element for AnySource {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        cx.add_task(true);
        Ok(())
    }

    fn run(&mut self, _: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        for any in FED.with_borrow(Clone::clone) {
            let mut packet = cx.services.pool.of_bytes(&any.bytes);
            if let Some((offset, length)) = any.header {
                packet.set_network_header(offset, length);
            }
            packet.annotations_mut().copy_from_slice(&any.annotations);
            packet.strip(any.stripped);
            packet.truncate_by(any.truncated);
            packet.set_packet_type(any.packet_type);
            packet.set_time(Timestamp(any.time));
            cx.emit(0, packet);
        }
        TaskRun { work: 1, again: false }
    }
}

impl EmittingElement for AnySource {}

struct AnySink(String);

impl Element for AnySink {}

impl EmittingElement for AnySink {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let seen = (packet.bytes().to_vec(), packet.annotations().to_vec(), packet.network_offset());
        SEEN.with_borrow_mut(|all| all.entry(self.0.clone()).or_default().push(seen));
        cx.services.pool.discard(packet);
    }
}

struct FedElements;

impl ElementClasses for FedElements {
    fn find(&self, name: &str) -> Option<&'static ElementClass> {
        match name {
            "AnySource" => Some(&SOURCE),
            "AnySink" => Some(&SINK),
            _ => AllElements.find(name),
        }
    }

    fn names(&self) -> Vec<&'static str> {
        AllElements.names()
    }
}

impl LanguageEnvironment for FedElements {
    fn class(&self, name: &str) -> ClassStatus {
        if self.find(name).is_some() { ClassStatus::Known } else { ClassStatus::Unknown }
    }

    fn library(&self, name: &str, _: &str) -> Result<LibraryText, String> {
        Err(name.to_owned())
    }
}

/// A system whose captures are empty, and whose texts are lost.
struct EmptySystem;

impl CaptureWriter for EmptySystem {
    fn write(&mut self, _: Timestamp, _: &[u8], _: u32) -> Result<(), String> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl System for EmptySystem {
    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        Err(name.to_owned())
    }

    fn create_capture(&mut self, _: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(Self))
    }

    fn read_file(&mut self, _: &str) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn open_device(&mut self, _: &str, _: &DeviceOptions) -> Result<Box<dyn ReceivingDevice>, String> {
        Ok(Box::new(NoFiles))
    }

    fn open_sender(&mut self, _: &str) -> Result<Box<dyn SendingDevice>, String> {
        Ok(Box::new(NoFiles))
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}

/// Returns the classes in tests/graphs with their arguments.
fn configurations() -> BTreeSet<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graphs");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let graph =
            text.split("--- graph\n").nth(1).unwrap_or_default().split("\n---").next().unwrap_or_default();
        let source = ConfigurationSource { name: "graph", bytes: graph.as_bytes() };
        if let Ok(flat) = parse(&source, &[], &AllElements) {
            let of = |it: &weir_graph::language::ElementDeclaration| {
                (it.class.to_string(), it.configuration.to_string())
            };
            found.extend(flat.elements.iter().map(of));
        }
    }
    found
}

fn is_pull(class: &ElementClass, is_output: bool, port: usize) -> bool {
    let (inputs, outputs) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    let side = if is_output { outputs } else { inputs };
    side.chars().nth(port).or(side.chars().last()) == Some('l')
}

/// Returns a graph that feeds an element, with a number of outputs.
fn graph(class: &ElementClass, arguments: &str, inputs: usize, outputs: usize) -> String {
    let mut text = format!("e :: {}({arguments});\n", class.name);
    for port in 0..inputs {
        let queue = if is_pull(class, false, port) { "Queue -> " } else { "" };
        text += &format!("AnySource -> {queue}[{port}] e;\n");
    }
    for port in 0..outputs {
        let queue = if is_pull(class, true, port) { "Unqueue -> " } else { "" };
        text += &format!("e [{port}] -> {queue}s{port} :: AnySink;\n");
    }
    text
}

/// Runs a graph. Returns the packets at each sink; `None` if the graph has not ended after many steps.
fn run(text: &str, batch: usize) -> Result<Option<BTreeMap<String, Vec<Seen>>>, String> {
    let source = ConfigurationSource { name: "graph", bytes: text.as_bytes() };
    let flat = parse(&source, &[], &FedElements).map_err(|errors| errors.to_string())?;
    let clock = Box::<SimulatedClock>::default();
    let options = RunOptions { batch, ..RunOptions::default() };
    let mut router = Router::new(flat, &FedElements, Box::new(EmptySystem), clock, options)
        .map_err(|errors| errors[0].to_string())?;
    SEEN.take();
    let has_ended = (0..1000).any(|_| !router.step());
    _ = router.finish();
    Ok(has_ended.then(|| SEEN.take()))
}

/// Feeds an element with the packets. Returns false if no graph of it can run.
fn feed(class: &ElementClass, arguments: &str) -> Result<bool, TestCaseError> {
    let ports = PortCounts::read(class.ports).unwrap();
    if *ports.inputs.end() == 0 {
        return Ok(true);
    }
    let inputs = *ports.inputs.start().max(&1);
    let counts = ports.outputs_with(inputs);
    for outputs in [5, 4, 3, 2, 1, 0].into_iter().filter(|count| counts.contains(count)) {
        let text = graph(class, arguments, inputs, outputs);
        if let Ok(one_by_one) = run(&text, 1) {
            let batches = run(&text, 64).map_err(TestCaseError::fail)?;
            if let (Some(one_by_one), Some(batches)) = (one_by_one, batches) {
                prop_assert_eq!(one_by_one, batches, "{}", text);
            }
            return Ok(true);
        }
    }
    Ok(false)
}

/// The shape of an IPv4 header, for bytes at an offset.
fn shape(bytes: &mut [u8], at: usize, kind: (u8, u8, u8), is_right: bool) {
    let (header_words, protocol, option) = kind;
    let Some(header) = bytes.get_mut(at..).filter(|header| header.len() >= 24) else { return };
    header[0] = 0x40 | header_words;
    header[9] = protocol;
    header[20] = option;
    let header_bytes = usize::from(header_words) * 4;
    if is_right && (20..=header.len()).contains(&header_bytes) {
        let length = u16::try_from(header.len()).unwrap();
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header[10..12].fill(0);
        let mut sum: u32 =
            header[..header_bytes].chunks(2).map(|it| u32::from(it[0]) << 8 | u32::from(it[1])).sum();
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        header[10..12].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    }
}

fn any_packet() -> impl Strategy<Value = AnyPacket> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..120),
        proptest::collection::vec(0..6_u8, 0..120)
    ];
    let kind = (
        prop_oneof![Just(5_u8), 0..16_u8, 6..10_u8],
        prop_oneof![Just(1_u8), Just(6), Just(17), any::<u8>()],
        prop_oneof![Just(7_u8), Just(68), Just(131), Just(0), any::<u8>()],
    );
    let header = prop_oneof![
        3 => Just(None),
        1 => (0..130_usize, 0..70_usize).prop_map(Some),
    ];
    let annotations = prop_oneof![
        proptest::collection::vec(any::<u8>(), ANNOTATION_BYTES),
        proptest::collection::vec(0..4_u8, ANNOTATION_BYTES)
    ];
    let packet_type = prop_oneof![
        3 => Just(PacketType::Host),
        1 => Just(PacketType::Broadcast),
        1 => Just(PacketType::OtherHost)
    ];
    let cut = (
        prop_oneof![3 => Just(0_usize), 1 => 0..60_usize],
        prop_oneof![3 => Just(0_usize), 1 => 0..60_usize],
    );
    let at = prop_oneof![Just(0_usize), Just(14), 0..30_usize];
    (bytes, kind, at, any::<(bool, bool, bool)>(), header, annotations, cut, packet_type, any::<u64>())
        .prop_map(
            |(
                mut bytes,
                kind,
                at,
                (is_ip, is_right, is_marked),
                header,
                annotations,
                cut,
                packet_type,
                time,
            )| {
                if is_ip {
                    shape(&mut bytes, at, kind, is_right);
                }
                let header = header.or((is_ip && is_marked).then_some((at, usize::from(kind.0) * 4)));
                let (stripped, truncated) = cut;
                AnyPacket { bytes, header, annotations, stripped, truncated, packet_type, time }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn each_element_survives_any_packet(packets in proptest::collection::vec(any_packet(), 1..12)) {
        FED.set(packets);
        let mut fed = BTreeSet::new();
        for (name, arguments) in configurations() {
            let Some(class) = AllElements.find(&name) else { continue };
            if feed(class, &arguments)? {
                fed.insert(name);
            }
        }
        let all = classes().map(|class| class.name);
        let missing: Vec<&str> = all.filter(|name| !fed.contains(*name) && !NOT_FED.contains(name)).collect();
        prop_assert!(missing.is_empty(), "no graph in tests/graphs has arguments that feed {missing:?}");
    }
}
