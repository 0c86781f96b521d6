//! Packets in batches reach each element in the order in which they come one by one.
//!
//! Random graphs of small elements: some route packets, some copy them, some keep packets for later ones, and some
//! connections lead back. Each element that depends on the order writes down which packets it saw.

use proptest::prelude::*;
use std::rc::Rc;
use weir_graph::Landmark;
use weir_graph::arguments::RawArgument;
use weir_graph::engine::*;
use weir_graph::handlers;
use weir_graph::language::{ElementConnection, ElementDeclaration, FlatConfiguration};

/// Emits packets, each with its number and a budget of steps.
struct Source {
    left: u8,
}

impl Element for Source {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        cx.add_task(true);
        Ok(())
    }

    fn run(&mut self, most: usize, cx: &mut ElementContext<'_>) -> TaskRun {
        let count = most.min(usize::from(self.left));
        for _ in 0..count {
            let bytes = Rc::new(vec![self.left, 40, self.left.wrapping_mul(37)].into());
            let packet = cx.services.pool.of_source(bytes, 0..3);
            cx.emit(0, packet);
            self.left -= 1;
        }
        TaskRun { work: count, again: self.left > 0 }
    }
}
impl EmittingElement for Source {}

/// Routes by a hash of the packet, and takes a step off its budget.
struct Spread {
    outputs: usize,
}
impl Element for Spread {}
impl RoutingElement for Spread {
    fn route(&mut self, input: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        if packet.bytes()[1] == 0 || self.outputs == 0 {
            return Destination::DISCARD;
        }
        let bytes = packet.bytes_mut();
        bytes[1] -= 1;
        bytes[2] = bytes[2].wrapping_mul(75).wrapping_add(74 + u8::try_from(input).unwrap());
        Destination::output(usize::from(bytes[2] >> 3) % self.outputs)
    }
}

/// Copies each packet to all outputs, with a mark of the output.
struct Copy {
    outputs: usize,
}
impl Element for Copy {}
impl EmittingElement for Copy {
    fn push(&mut self, _: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        // A copy takes most of the budget, so that cycles of copies end.
        packet.bytes_mut()[1] /= 3;
        let outputs = if packet.bytes()[1] == 0 { 0 } else { self.outputs };
        for output in 0..outputs {
            let mut copy = packet.duplicate();
            copy.bytes_mut()[2] ^= u8::try_from(output).unwrap() << 4;
            cx.emit(output, copy);
        }
        cx.services.pool.discard(packet);
    }
}

/// Writes down what it sees. Keeps every third packet until two others have come.
struct Recorder {
    log: String,
    kept: Vec<GraphPacket>,
    seen: usize,
}
impl Element for Recorder {
    handlers! {
        "log": "the packets", read |this, _, _| Ok(this.log.clone());
    }
}
impl EmittingElement for Recorder {
    fn push(&mut self, input: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        self.log.push_str(&format!("{input}:{:?} ", packet.bytes()));
        self.seen += 1;
        if packet.bytes()[1] == 0 {
            return cx.services.pool.discard(packet);
        }
        packet.bytes_mut()[1] -= 1;
        if self.seen.is_multiple_of(3) {
            self.kept.push(packet);
            return;
        }
        if self.seen % 3 == 2 {
            for kept in self.kept.drain(..) {
                cx.emit(0, kept);
            }
        }
        cx.emit(0, packet);
    }
}

const SOURCE: ElementClass = ElementClass {
    name: "Source",
    ports: "0/1",
    processing: "h/h",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "",
    build: |cx| {
        let mut args = cx.arguments();
        let left = args.positional("PACKETS").required();
        args.end()?;
        Ok(BuiltElement::emitting(Source { left }))
    },
};
const SPREAD: ElementClass = ElementClass {
    name: "Spread",
    ports: "-/-",
    flow: "x/x",
    order: OrderDependence::Free,
    build: |cx| {
        let is_end = cx.arguments().positional::<RawArgument>("END").optional().is_some();
        Ok(BuiltElement::routing(Spread { outputs: if is_end { 0 } else { cx.ports().targets.len() } }))
    },
    ..SOURCE
};
const COPY: ElementClass = ElementClass {
    name: "Copy",
    build: |cx| Ok(BuiltElement::emitting(Copy { outputs: cx.ports().targets.len() })),
    ..SPREAD
};
const RECORDER: ElementClass = ElementClass {
    name: "Recorder",
    ports: "-/1",
    order: OrderDependence::Ordered,
    build: |_| Ok(BuiltElement::emitting(Recorder { log: String::new(), kept: Vec::new(), seen: 0 })),
    ..SPREAD
};

struct Classes;

impl ElementClasses for Classes {
    fn find(&self, name: &str) -> Option<&'static ElementClass> {
        [&SOURCE, &SPREAD, &COPY, &RECORDER].into_iter().find(|class| class.name == name)
    }

    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// Returns what each recorder saw, and how many elements get their packets in batches.
fn run(graph: &FlatConfiguration, batch: usize) -> (Vec<String>, (usize, usize)) {
    let options = RunOptions { batch, ..RunOptions::default() };
    let mut router =
        Router::new(graph.clone(), &Classes, Box::new(NoFiles), Box::<SimulatedClock>::default(), options)
            .unwrap();
    router.run();
    let recorders = graph.elements.iter().filter(|it| &*it.class == "Recorder");
    let logs = recorders.map(|it| router.read_handler(&format!("{}.log", it.name)).unwrap()).collect();
    (logs, router.batched())
}

/// Elements by kind and number of outputs. Targets are chosen among the later elements, and in a few cases among all.
fn graphs() -> impl Strategy<Value = FlatConfiguration> {
    let element = (0..8u8, 1..4usize, prop::collection::vec((any::<u16>(), 0..100u8, 0..2usize), 3));
    (1..200u8, prop::collection::vec(element, 1..14), any::<bool>()).prop_map(|(packets, all, has_cycles)| {
        let landmark = Landmark { file: "test".into(), line: 1 };
        let element = |name: String, class: &str, configuration: String| ElementDeclaration {
            name: name.into(),
            class: class.into(),
            configuration: configuration.into(),
            landmark: landmark.clone(),
        };
        let mut graph = FlatConfiguration::default();
        graph.elements.push(element("source".to_owned(), "Source", packets.to_string()));
        for (index, (kind, ..)) in all.iter().enumerate() {
            let class = match kind {
                0..4 => "Spread",
                4..6 => "Recorder",
                _ => "Copy",
            };
            graph.elements.push(element(format!("e{}", index + 1), class, String::new()));
        }
        // The last element keeps or ends all.
        let last = graph.elements.len();
        graph.elements.push(element("end".to_owned(), "Recorder", String::new()));
        graph.elements.push(element("nothing".to_owned(), "Spread", "end".to_owned()));
        let mut connect = |from: usize, port: usize, to: usize, input: usize| {
            graph.connections.push(ElementConnection {
                from: (from, u32::try_from(port).unwrap()),
                to: (to, u32::try_from(input).unwrap()),
                landmark: landmark.clone(),
            });
        };
        connect(0, 0, 1, 0);
        for (index, (kind, outputs, targets)) in all.iter().enumerate() {
            let this = index + 1;
            let outputs = if (4..6).contains(kind) { 1 } else { *outputs };
            for (port, (target, back, input)) in targets.iter().take(outputs).enumerate() {
                let is_back = has_cycles && *back < 30;
                let target = if is_back {
                    1 + usize::from(*target) % this
                } else {
                    this + 1 + usize::from(*target) % (last - this)
                };
                connect(this, port, target, *input);
            }
        }
        connect(last, 0, last + 1, 0);
        // Every input below one that is connected is connected, too: an element without packets does it.
        let mut spare = Vec::new();
        for element in 0..graph.elements.len() {
            let inputs: Vec<usize> =
                graph.connections.iter().filter(|it| it.to.0 == element).map(|it| it.to.1 as usize).collect();
            let most = inputs.iter().copied().max();
            spare.extend(
                (0..most.map_or(0, |most| most + 1))
                    .filter(|port| !inputs.contains(port))
                    .map(|port| (element, port)),
            );
        }
        if !spare.is_empty() {
            let idle = graph.elements.len();
            graph.elements.push(element("idle".to_owned(), "Source", "0".to_owned()));
            graph.elements.push(element("spare".to_owned(), "Spread", String::new()));
            let mut connect = |from: usize, port: usize, element: usize, input: usize| {
                graph.connections.push(ElementConnection {
                    from: (from, u32::try_from(port).unwrap()),
                    to: (element, u32::try_from(input).unwrap()),
                    landmark: landmark.clone(),
                });
            };
            connect(idle, 0, idle + 1, 0);
            for (port, (element, input)) in spare.into_iter().enumerate() {
                connect(idle + 1, port, element, input);
            }
        }
        graph
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_element_sees_its_packets_in_the_order_of_one_by_one(graph in graphs()) {
        let (expected, _) = run(&graph, 1);
        let (found, _) = run(&graph, 64);
        prop_assert_eq!(&found, &expected);
        let (found, _) = run(&graph, 7);
        prop_assert_eq!(&found, &expected);
    }
}

/// The random graphs run in batches, and include those with joins behind copies, and those with cycles.
#[test]
fn random_graphs_have_joins_and_cycles_in_batches() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut whole, mut cyclic, mut seen) = (0, 0, 0);
    for _ in 0..200 {
        let graph = graphs().new_tree(&mut runner).unwrap().current();
        let (logs, (batched, all)) = run(&graph, 64);
        whole += usize::from(batched == all);
        cyclic += usize::from(graph.connections.iter().any(|it| it.to.0 <= it.from.0));
        seen += logs.iter().map(String::len).sum::<usize>();
    }
    assert!(
        whole == 200 && cyclic > 40 && seen > 100_000,
        "{whole} in batches, {cyclic} with cycles, {seen} bytes"
    );
}
