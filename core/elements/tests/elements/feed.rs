//! A graph that feeds an element with arbitrary packets, for the tests and for the fuzz target.

use std::cell::RefCell;
use std::collections::BTreeMap;
use weir_elements::AllElements;
use weir_graph::Landmark;
use weir_graph::engine::{
    BuiltElement, CaptureReader, CaptureWriter, DeviceOptions, Effects, Element, ElementClass,
    ElementClasses, ElementContext, ElementCost, EmittingElement, GraphPacket, HostDevice, HostDeviceOptions,
    NoFiles, OrderDependence, PacketSocket, PacketType, Reason, ReceivingDevice, Router, RunOptions,
    SendingDevice, SimulatedClock, SocketOptions, System, TaskRun, TextOutput,
};
use weir_graph::language::{
    ClassStatus, ElementConnection, ElementDeclaration, FlatConfiguration, LanguageEnvironment, LibraryText,
};
use weir_units::Timestamp;

/// An arbitrary packet.
#[derive(Clone, Debug)]
pub struct AnyPacket {
    pub bytes: Vec<u8>,
    /// The offset and the length of the network header.
    pub header: Option<(usize, usize)>,
    pub annotations: Vec<u8>,
    /// The bytes that are stripped and truncated after the header was set.
    pub stripped: usize,
    pub truncated: usize,
    pub packet_type: PacketType,
    pub time: u64,
}

/// The facts about a packet that a sink has got.
pub type Seen = (Vec<u8>, Vec<u8>, Option<usize>);

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

/// The most packets of a sink. A source whose packets never end is stopped.
const SEEN_MAX: usize = 20_000;

struct AnySink(String);

impl Element for AnySink {}

impl EmittingElement for AnySink {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let seen = (packet.bytes().to_vec(), packet.annotations().to_vec(), packet.network_offset());
        SEEN.with_borrow_mut(|all| {
            let seen_here = all.entry(self.0.clone()).or_default();
            if seen_here.len() < SEEN_MAX {
                seen_here.push(seen);
            } else {
                cx.services.stop();
            }
        });
        cx.services.pool.discard(packet);
    }
}

/// All elements, and those that feed them: AnySource and AnySink.
pub struct FedElements;

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

    fn open_host_device(&mut self, options: &HostDeviceOptions) -> Result<HostDevice, String> {
        NoFiles.open_host_device(options)
    }

    fn open_socket(&mut self, options: &SocketOptions) -> Result<Box<dyn PacketSocket>, String> {
        NoFiles.open_socket(options)
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}

impl LanguageEnvironment for FedElements {
    fn class(&self, name: &str) -> ClassStatus {
        if self.find(name).is_some() { ClassStatus::Known } else { ClassStatus::Unknown }
    }

    fn class_names(&self) -> Vec<&str> {
        self.names()
    }

    fn library(&self, name: &str, _: &str) -> Result<LibraryText, String> {
        Err(name.to_owned())
    }
}

/// Runs a graph of [`FedElements`]. Returns the packets at each sink; `None` if the graph has not ended after so many steps.
///
/// # Errors
///
/// Fails if an element does not take its arguments or its ports.
pub fn run_flat(
    flat: FlatConfiguration,
    batch: usize,
    steps: usize,
) -> Result<Option<BTreeMap<String, Vec<Seen>>>, String> {
    let clock = Box::<SimulatedClock>::default();
    let options = RunOptions { batch, ..RunOptions::default() };
    let mut router = Router::new(flat, &FedElements, Box::new(EmptySystem), clock, options)
        .map_err(|errors| errors[0].to_string())?;
    SEEN.take();
    let has_ended = (0..steps).any(|_| !router.step());
    _ = router.finish();
    let seen = SEEN.take();
    Ok((has_ended && seen.values().all(|it| it.len() < SEEN_MAX)).then_some(seen))
}

/// Sets the packets with which elements are fed in this thread.
pub fn set_packets(packets: Vec<AnyPacket>) {
    FED.set(packets);
}

fn is_pull(class: &ElementClass, is_output: bool, port: usize) -> bool {
    let (inputs, outputs) = class.processing.split_once('/').unwrap_or((class.processing, class.processing));
    let side = if is_output { outputs } else { inputs };
    side.chars().nth(port).or(side.chars().last()) == Some('l')
}

/// An element with sources before its inputs and sinks behind its outputs.
#[derive(Clone, Copy, Debug)]
pub struct FedGraph<'a> {
    pub class: &'a ElementClass,
    pub arguments: &'a str,
    pub inputs: usize,
    pub outputs: usize,
}

impl FedGraph<'_> {
    /// Returns the graph, with queues behind push outputs if the element needs some.
    fn configuration(&self, has_queues: bool) -> FlatConfiguration {
        let landmark = Landmark { file: "graph".into(), line: 1 };
        let mut graph = FlatConfiguration::default();
        let add = |graph: &mut FlatConfiguration, name: String, class: &str, configuration: &str| {
            let (class, configuration) = (class.into(), configuration.into());
            let landmark = landmark.clone();
            graph.elements.push(ElementDeclaration { name: name.into(), class, configuration, landmark });
            graph.elements.len() - 1
        };
        let connect = |graph: &mut FlatConfiguration, from: (usize, usize), to: (usize, usize)| {
            let end = |(element, port): (usize, usize)| (element, u32::try_from(port).unwrap());
            let landmark = landmark.clone();
            graph.connections.push(ElementConnection { from: end(from), to: end(to), landmark });
        };
        let element = add(&mut graph, "e".to_owned(), self.class.name, self.arguments);
        for port in 0..self.inputs {
            let mut before = add(&mut graph, format!("in{port}"), "AnySource", "");
            if is_pull(self.class, false, port) {
                let queue = add(&mut graph, format!("q{port}"), "Queue", "");
                connect(&mut graph, (before, 0), (queue, 0));
                before = queue;
            }
            connect(&mut graph, (before, 0), (element, port));
        }
        for port in 0..self.outputs {
            let mut from = (element, port);
            let is_pull = is_pull(self.class, true, port);
            if has_queues && !is_pull {
                let queue = add(&mut graph, format!("o{port}"), "Queue", "");
                connect(&mut graph, from, (queue, 0));
                from = (queue, 0);
            }
            if has_queues || is_pull {
                let unqueue = add(&mut graph, format!("u{port}"), "Unqueue", "");
                connect(&mut graph, from, (unqueue, 0));
                from = (unqueue, 0);
            }
            let sink = add(&mut graph, format!("s{port}"), "AnySink", "");
            connect(&mut graph, from, (sink, 0));
        }
        graph
    }

    /// Runs the graph. Returns the packets at each sink; `None` if the graph has not ended after so many steps, or sent too
    /// many packets.
    ///
    /// # Errors
    ///
    /// Fails if the element does not take its arguments or its ports.
    pub fn run(&self, batch: usize, steps: usize) -> Result<Option<BTreeMap<String, Vec<Seen>>>, String> {
        run_flat(self.configuration(false), batch, steps)
            .or_else(|_| run_flat(self.configuration(true), batch, steps))
    }
}
