//! The tests of the elements, on several threads.

use super::support::{OnThreads, TestClock, placement, start};
use std::path::Path;
use weir_elements::testing::{GraphTest, TestedGraph};

/// The tests whose results depend on the time at which another component stops the graph, or on its times between.
const DEPEND_ON_TIME: &[&str] =
    &["DriverManager", "FromDump-timing", "RatedSource", "TimedSource", "Unqueue-reset"];

/// Returns true if a script waits and then stops the graph: on several threads, others may not have come as far.
fn stops_after_a_wait(text: &str) -> bool {
    text.split("Script(").skip(1).any(|script| {
        let script = script.split_once(");").map_or(script, |(script, _)| script);
        script.contains("wait ") && script.contains("stop")
    })
}

/// The tests in which a source fills a short queue while a task empties it in turn, or tasks record their turns.
const DEPEND_ON_TURNS: &[&str] = &["FullNoteQueue", "NotifierQueue", "SchedOrderTest", "ThreadSafeQueue"];

/// Returns a test whose sources do not stop the graph, if that gives the same results: so it does not depend on the time at
/// which the first one has ended.
fn without_stops(text: &str) -> GraphTest {
    let other = GraphTest::read(&text.replace("STOP true", "STOP false")).unwrap();
    if other.check().is_ok() { other } else { GraphTest::read(text).unwrap() }
}

/// Returns the name and the text of each test.
fn tests() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/elements/tests/graphs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<(String, String)> = files
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn each_graph_gives_its_results_on_one_and_on_four_threads() {
    let (mut failures, mut checked, mut between) = (Vec::new(), 0, 0);
    for (name, text) in tests() {
        let depends = [DEPEND_ON_TIME, DEPEND_ON_TURNS].concat().contains(&name.as_str());
        // On several threads a script cannot replace the graph.
        if depends || text.contains("hotconfig") || GraphTest::read(&text).unwrap().has_end() {
            continue;
        }
        let test = without_stops(&text);
        for (threads, batch) in [(1, 64), (4, 64), (4, 1)] {
            if threads > 1 && stops_after_a_wait(&text) {
                continue;
            }
            let queues = std::cell::Cell::new(0);
            let result = test.check_in(batch, &|flat, systems, options| {
                queues.set(placement(&flat, threads)?.queues.len());
                let graph = start(&flat, systems, TestClock::Simulated, threads, options)?;
                Ok(Box::new(OnThreads(graph)) as Box<dyn TestedGraph>)
            });
            checked += 1;
            between += usize::from(queues.get() > 0);
            if let Err(error) = result {
                failures.push(format!("{name} on {threads} threads: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}\n\n{} failures", failures.join("\n\n"), failures.len());
    assert!(checked > 700 && between > 12, "{checked} runs, {between} with a queue between threads");
}
