//! Random graphs with queues give the same packets in the same order on any number of threads.

use super::support::{TestClock, flat, start};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use weir_elements::testing::TestSystems;
use weir_graph::engine::{
    CaptureReader, CaptureWriter, NoFiles, Router, RunOptions, SimulatedClock, System, TextOutput,
};
use weir_units::Timestamp;

/// The bytes of the packets of each written capture.
type Written = Arc<Mutex<std::collections::BTreeMap<String, Vec<Vec<u8>>>>>;

struct Recorder {
    name: String,
    written: Written,
}

impl CaptureWriter for Recorder {
    fn write(&mut self, _: Timestamp, bytes: &[u8], _: u32) -> Result<(), String> {
        self.written.lock().unwrap().entry(self.name.clone()).or_default().push(bytes.to_vec());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

struct RecordingSystem(Written);

impl System for RecordingSystem {
    fn open_capture(&mut self, _: &str) -> Result<Box<dyn CaptureReader>, String> {
        Ok(Box::new(NoFiles))
    }

    fn create_capture(&mut self, name: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(Recorder { name: name.to_owned(), written: Arc::clone(&self.0) }))
    }

    fn read_file(&mut self, _: &str) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}

/// The processing between two queues: with one input and one output, or two outputs.
const STAGES: &[&str] = &[
    "Counter",
    "Strip(1) -> Unstrip(1)",
    "{ input -> Paint(3) -> t :: PaintTee(3) -> output; t [1] -> Null -> output }",
    "{ input -> t :: Tee -> output; t [1] -> Strip(2) -> output }",
    "{ input -> r :: RoundRobinSwitch -> Paint(1) -> output; r [1] -> Truncate(9) -> output }",
    "{ input -> c :: Classifier(0/01, 0/02, -) -> EtherEncap(0x800, 1:1:1:1:1:1, 2:2:2:2:2:2) -> output; \
c [1] -> Pad(20) -> output; c [2] -> output }",
    "{ input -> s :: Switch(1) [1] -> CheckLength(40) -> output; Idle -> Discard; s [0] -> Discard }",
];

/// Chains of stages with queues between them, and links from chains to the queues of later chains. A queue gets packets of
/// several chains only where their numbers count, not their order: what such a queue leads to is counted.
fn graphs() -> impl Strategy<Value = (String, Vec<String>)> {
    let stage = (0..STAGES.len(), 0..4_usize, 1..40_usize);
    let chain = (1..150_usize, prop::collection::vec(stage, 1..5), any::<bool>());
    prop::collection::vec(chain, 1..5).prop_map(|chains| {
        let mut text = String::new();
        let mut counts = Vec::new();
        if chains.iter().any(|it| it.2) {
            text.push_str("common :: Queue(100000) -> Unqueue -> sum :: Counter -> Discard;\n");
            counts.push("sum.count".to_owned());
            counts.push("sum.byte_count".to_owned());
        }
        for (index, (packets, stages, joins)) in chains.iter().enumerate() {
            // No queue gets full, so nothing depends on the turns of tasks.
            _ = write!(
                text,
                "s{index} :: InfiniteSource(DATA \\<0{} 22 33 44 55 66 77 88 99 aa bb cc>, LIMIT {packets}, \
TIMESTAMP false) ",
                index % 3 + 1
            );
            for (position, (stage, kind, burst)) in stages.iter().enumerate() {
                let class = ["Queue", "FrontDropQueue", "NotifierQueue", "MixedQueue"][*kind];
                let other =
                    if *kind == 3 { format!("Idle -> [1] q{index}_{position};\n") } else { String::new() };
                _ = write!(
                    text,
                    "-> q{index}_{position} :: {class}(100000);\n{other}q{index}_{position} -> \
Unqueue(BURST {burst}) -> {} -> n{index}_{position} :: Counter ",
                    STAGES[*stage]
                );
                counts.push(format!("n{index}_{position}.count"));
                counts.push(format!("n{index}_{position}.byte_count"));
                counts.push(format!("q{index}_{position}.drops"));
                counts.push(format!("q{index}_{position}.length"));
            }
            if *joins {
                _ = writeln!(text, "-> common;");
            } else {
                _ = writeln!(text, "-> ToDump(out{index});");
            }
        }
        (text, counts)
    })
}

type Outcome = (Vec<String>, std::collections::BTreeMap<String, Vec<Vec<u8>>>);

fn on_one(text: &str, counts: &[String]) -> Outcome {
    let written = Written::default();
    let system = Box::new(RecordingSystem(Arc::clone(&written)));
    let clock = Box::<SimulatedClock>::default();
    let mut router =
        Router::new(flat(text), &weir_elements::AllElements, system, clock, RunOptions::default()).unwrap();
    router.run();
    let values = counts.iter().map(|call| router.read_handler(call).unwrap()).collect();
    router.finish().unwrap();
    drop(router);
    (values, std::mem::take(&mut *written.lock().unwrap()))
}

fn on_threads(text: &str, counts: &[String], threads: usize) -> Outcome {
    let written = Written::default();
    let shared = Arc::clone(&written);
    let systems: TestSystems = Arc::new(move || Box::new(RecordingSystem(Arc::clone(&shared))));
    let started = start(&flat(text), systems, TestClock::System, threads, RunOptions::default());
    let mut graph = started.unwrap_or_else(|errors| panic!("{errors:?}"));
    graph.run(|| false).unwrap();
    let values = counts.iter().map(|call| graph.read_handler(call).unwrap()).collect();
    graph.finish().unwrap();
    drop(graph);
    (values, std::mem::take(&mut *written.lock().unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn each_flow_through_queues_is_the_same_on_all_numbers_of_threads((text, counts) in graphs()) {
        let expected = on_one(&text, &counts);
        prop_assert!(expected.0.iter().any(|it| it.trim() != "0"));
        for threads in [1, 2, 4] {
            prop_assert_eq!(&on_threads(&text, &counts, threads), &expected, "{} threads\n{}", threads, text);
        }
    }
}
