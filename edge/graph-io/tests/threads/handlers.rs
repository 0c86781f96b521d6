//! Handlers of elements on other threads.

use super::support::{TestClock, flat, placement, start, start_text};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_elements::AllElements;
use weir_graph::engine::{CaptureReader, CaptureWriter, GraphClock, NoFiles, RunOptions, System, TextOutput};
use weir_graph_io::{GraphThreads, SystemClock, ThreadSystem};
use weir_units::Timestamp;

/// Two scripts on two threads read each other's handlers all the time. Each waits for the other's thread. None waits for
/// ever, and each read of a counter gets a number.
#[test]
fn scripts_on_two_threads_read_handlers_of_each_other() {
    let mut graph = start_text(
        "StaticThreadSched(s 0, t 1, a 0, b 1);
         InfiniteSource(LIMIT 1000) -> a :: Counter -> Discard;
         InfiniteSource(LIMIT 1000) -> b :: Counter -> Discard;
         s :: Script(TYPE PASSIVE, set n 0, label again, set n $(add $n 1), set v $(b.count), goto again $(lt $n 2000), \
return $(b.count));
         t :: Script(TYPE PASSIVE, set n 0, label again, set n $(add $n 1), set v $(a.count), goto again $(lt $n 2000), \
return $(a.count));
         Script(write s.run); u :: Script(write t.run); StaticThreadSched(u 1);",
        2,
    );
    graph.run(|| false).unwrap();
    assert_eq!(graph.read_handler("s.get v").unwrap().trim(), "1000");
    assert_eq!(graph.read_handler("t.get v").unwrap().trim(), "1000");
}

/// A script that runs cannot answer. Of two scripts that need each other's answer, one gets an error, and the other one
/// its answer.
#[test]
fn a_circle_of_running_scripts_ends_with_an_error() {
    for _ in 0..20 {
        let mut graph = start_text(
            "StaticThreadSched(s 0, t 1);
             s :: Script(set n 0, label again, set n $(add $n 1), set v $(t.get n), goto again $(lt $n 300));
             t :: Script(set n 0, label again, set n $(add $n 1), set v $(s.get n), goto again $(lt $n 300));",
            2,
        );
        graph.run(|| false).unwrap();
        assert_eq!(graph.read_handler("s.get n").unwrap().trim(), "300");
        assert_eq!(graph.read_handler("t.get n").unwrap().trim(), "300");
    }
}

/// A thread whose tasks have ended, or that is stopped, still answers.
#[test]
fn a_thread_without_work_answers() {
    let mut graph = start_text(
        "StaticThreadSched(s 0, d 1);
         InfiniteSource(LIMIT 5) -> d :: Counter -> Discard;
         s :: Script(wait 20ms, set v $(d.count), write d.reset, stop);",
        2,
    );
    graph.run(|| false).unwrap();
    assert_eq!(graph.read_handler("s.get v").unwrap().trim(), "5");
    assert_eq!(graph.read_handler("d.count").unwrap().trim(), "0");
    assert_eq!(graph.read_handler("d.class").unwrap().trim(), "Counter");
    assert!(graph.read_handler("d.cuont").unwrap_err().contains("did you mean"), "a wrong name");
    assert!(graph.read_handler("e.count").unwrap_err().contains("no element named 'e'"));
    assert!(graph.read_handler("list").unwrap().starts_with("5\n"));
}

/// Requests to stop go to the element that manages them, on whichever thread they come up.
#[test]
fn a_driver_manager_counts_the_stops_of_all_threads() {
    for threads in [1, 2, 4] {
        let mut graph = start_text(
            "StaticThreadSched(m 3);
             InfiniteSource(LIMIT 10, STOP true) -> a :: Counter -> Discard;
             InfiniteSource(LIMIT 20, STOP true) -> b :: Counter -> Discard;
             InfiniteSource(LIMIT 30, STOP true) -> c :: Counter -> Discard;
             m :: DriverManager(pause, set x 1, pause, set x 2, pause, set x 3);",
            threads,
        );
        graph.run(|| false).unwrap();
        let values = ["a.count", "b.count", "c.count", "m.get x"];
        let found = values.map(|call| graph.read_handler(call).unwrap().trim().to_owned());
        assert_eq!(found, ["10", "20", "30", "3"], "{threads} threads");
        graph.finish().unwrap();
    }
}

/// A stop on one thread ends the endless tasks of all others.
#[test]
fn a_stop_ends_all_threads() {
    let mut graph = start_text(
        "InfiniteSource -> a :: Counter -> Discard; InfiniteSource -> b :: Counter -> Discard;
         Script(label again, wait 1ms, goto again $(lt $(b.count) 1000), stop);",
        3,
    );
    graph.run(|| false).unwrap();
    let count = graph.read_handler("b.count").unwrap();
    assert!(count.trim().parse::<u64>().unwrap() >= 1000);
    // Nothing runs any more.
    assert_eq!(graph.read_handler("b.count").unwrap(), count);
    graph.finish().unwrap();
}

#[test]
fn an_interrupt_ends_all_threads() {
    let mut graph =
        start_text("InfiniteSource -> a :: Counter -> Discard; Script(label x, wait 1000, goto x);", 2);
    graph.run(|| true).unwrap();
    assert!(graph.read_handler("a.count").is_ok());
}

/// A clock that counts the looks.
struct CountingClock(SystemClock, Arc<AtomicU64>);

impl GraphClock for CountingClock {
    fn now(&mut self) -> Timestamp {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.now()
    }

    fn latest(&self) -> Timestamp {
        self.0.latest()
    }

    fn wait(&mut self, _: Option<Timestamp>) {
        panic!("a thread waits for messages, too");
    }
}

/// A thread looks at the clock in each round in which it has a timer. Idle threads do no rounds.
#[test]
fn idle_threads_sleep() {
    let graph = flat(
        "InfiniteSource(LIMIT 5) -> Queue -> Unqueue -> c :: Counter -> Discard;
         TimedSource(30ms, LIMIT 5) -> q :: Queue(5) -> Unqueue -> d :: Counter -> Discard;
         Idle -> Queue -> Unqueue -> Discard; s :: Script(wait 300ms, set v done);",
    );
    let looks = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&looks);
    let system: Arc<ThreadSystem> = Arc::new(move |_| {
        let clock = CountingClock(SystemClock::default(), Arc::clone(&counter));
        (Box::new(NoFiles) as Box<dyn System>, Box::new(clock) as Box<dyn GraphClock>)
    });
    let options = RunOptions::default();
    let placement = placement(&graph, 4).unwrap();
    let mut graph = GraphThreads::start(&graph, &AllElements, placement, &system, options)
        .unwrap_or_else(|it| panic!("{it:?}"));
    graph.run(|| false).unwrap();
    assert_eq!(graph.read_handler("c.count").unwrap().trim(), "5");
    assert_eq!(graph.read_handler("d.count").unwrap().trim(), "5");
    assert_eq!(graph.read_handler("s.get v").unwrap().trim(), "done");
    let looks = looks.load(Ordering::Relaxed);
    assert!((10..500).contains(&looks), "{looks} looks");
}

/// A system without any file.
struct Empty;

impl System for Empty {
    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        Err(format!("{name}: no such file"))
    }

    fn create_capture(&mut self, name: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Err(format!("{name}: no such folder"))
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        Err(format!("{name}: no such file"))
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}

#[test]
fn errors_of_all_threads_come_in_the_order_of_the_elements() {
    let graph = flat(
        "a :: FromDump(x) -> Discard;\nb :: FromDump(y) -> Discard;\nIdle -> c :: ToDump(z);\nd :: FromDump(w) -> Discard;
         StaticThreadSched(a 1, b 0, c 2, d 0);",
    );
    let errors_on = |threads| {
        let started =
            start(&graph, Arc::new(|| Box::new(Empty)), TestClock::System, threads, RunOptions::default());
        let errors = started.err().unwrap();
        errors.into_iter().map(|error| error.to_string()).collect::<Vec<_>>()
    };
    let expected = errors_on(1);
    assert!(expected[0].starts_with("graph:1: ") && expected[0].contains("x: no such file"), "{expected:?}");
    assert_eq!(errors_on(3), expected);
}

/// Elements that are connected without a queue, or share a table, run on one thread.
#[test]
fn elements_that_share_others_are_forced_together() {
    let place = |text: &str| {
        let flat = flat(text);
        let placement = placement(&flat, 3).unwrap();
        let name = |element: usize| flat.elements[element].name.to_string();
        let forced: Vec<_> = placement
            .forced
            .iter()
            .map(|it| {
                format!(
                    "{} {} {} {}",
                    name(it.one),
                    name(it.other),
                    it.shared.map_or("-".to_owned(), name),
                    it.thread
                )
            })
            .collect();
        let threads: Vec<String> = flat
            .elements
            .iter()
            .zip(&placement.thread_of)
            .map(|(it, thread)| format!("{}:{thread}", it.name))
            .collect();
        (threads.join(" "), forced)
    };
    let (threads, forced) = place(
        "a :: InfiniteSource -> c :: Counter; b :: InfiniteSource -> c -> d :: Discard; StaticThreadSched(a 2, b 1);",
    );
    assert_eq!(threads, "a:1 c:1 b:1 d:1 StaticThreadSched@5:0");
    assert_eq!(forced, ["a b c 1"]);
    // Each component goes to the thread with the fewest tasks. A queue belongs to the thread that pulls.
    let (threads, forced) = place(
        "a :: InfiniteSource -> q :: Queue -> u :: Unqueue -> r :: Queue -> v :: Unqueue -> x :: Discard;
         b :: InfiniteSource -> y :: Discard; s :: Script(wait 1);",
    );
    assert_eq!(threads, "a:0 q:1 u:1 r:2 v:2 x:2 b:0 y:0 s:0");
    assert!(forced.is_empty());
    // Tables that elements name are shared.
    let (threads, forced) = place(
        "a :: InfiniteSource -> p :: ARPQuerier(10.0.0.1, 0:1:2:3:4:5, TABLE t) -> x :: Discard;
         i :: Idle -> [1] p; t :: ARPTable; b :: InfiniteSource -> q :: ARPQuerier(10.0.0.2, 0:1:2:3:4:6, TABLE t) -> x;
         j :: Idle -> [1] q; StaticThreadSched(a 0, b 1);",
    );
    assert!(threads.contains("a:0") && threads.contains("b:0") && threads.contains("t:0"), "{threads}");
    assert_eq!(forced.len(), 1);
    // A queue whose both sides are connected otherwise is within one thread.
    let (threads, _) =
        place("a :: InfiniteSource -> q :: Queue -> u :: Unqueue -> t :: Tee -> q; t [1] -> d :: Discard;");
    assert_eq!(threads, "a:0 q:0 u:0 t:0 d:0");
}
