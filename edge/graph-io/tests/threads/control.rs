//! Control sockets, signals, and other configurations of graphs on several threads.

use super::support::{TestClock, flat, start, start_text};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;
use weir_elements::AllElements;
use weir_graph::engine::{
    CaptureReader, CaptureWriter, DeviceOptions, DeviceWaker, NoFiles, ReceivedPacket, ReceivingDevice,
    Router, RunOptions, System, TextOutput,
};
use weir_graph::language::{ConfigurationSource, parse};
use weir_graph_io::{ControlAddress, ControlServer, GraphThreads, SystemClock};
use weir_units::Nanos;

/// A client of a control socket.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let mut client = Self(BufReader::new(UnixStream::connect(path).unwrap()));
        assert_eq!(client.line(), "Click::ControlSocket/1.3");
        client
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads a handler; for an error, returns its code.
    fn read(&mut self, handler: &str) -> String {
        self.0.get_mut().write_all(format!("READ {handler}\n").as_bytes()).unwrap();
        let answer = self.answer();
        if !answer.starts_with("200 ") {
            return answer[..3].to_owned();
        }
        let length: usize = self.line().strip_prefix("DATA ").unwrap().parse().unwrap();
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).unwrap();
        String::from_utf8(data).unwrap()
    }

    /// Writes a handler, and returns the answer.
    fn write(&mut self, handler: &str, value: &str) -> String {
        let text = format!("WRITEDATA {handler} {}\n{value}", value.len());
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut lines = vec![self.line()];
        while lines.last().unwrap().as_bytes().get(3) == Some(&b'-') {
            lines.push(self.line());
        }
        lines.join("\n")
    }
}

/// Runs a graph, with a client on another thread.
fn with_client<T: Send + 'static>(
    mut graph: GraphThreads,
    act: impl FnOnce(Client) -> T + Send + 'static,
) -> (GraphThreads, T) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("socket");
    let control = ControlServer::open(&[ControlAddress::from(path.as_path())]).unwrap();
    let client = thread::spawn(move || act(Client::connect(&path)));
    let watched = &client;
    // A client that fails ends the graph.
    graph.run_controlled(Some(&control), |_| watched.is_finished()).unwrap();
    drop(control);
    let result = client.join().unwrap();
    (graph, result)
}

fn replaceable(text: &str, threads: usize) -> GraphThreads {
    let mut graph = start_text(text, threads);
    graph.allow_replacement(|text| {
        let source = ConfigurationSource { name: "config", bytes: text.as_bytes() };
        parse(&source, &[], &AllElements).map_err(|errors| errors.to_string())
    });
    graph
}

const WRITTEN: &str = "200 Write handler 'hotconfig' OK";

/// Nothing runs, so all threads wait. A control socket keeps the graph, and reaches the elements of each thread.
#[test]
fn calls_reach_the_threads_of_their_elements() {
    let graph = start_text(
        "StaticThreadSched(a 0, b 1, c 2); Idle -> a :: Paint(1) -> Discard; Idle -> b :: Paint(2) -> Discard;
         Idle -> c :: Counter -> Discard;",
        3,
    );
    let (_, ()) = with_client(graph, |mut client| {
        assert_eq!(client.read("a.color"), "1");
        assert_eq!((client.read("b.color"), client.read("6.name")), ("2".to_owned(), "b".to_owned()));
        assert!(client.write("b.config", "9, PAINT").starts_with("200 "));
        assert!(client.write("a.color", "300").starts_with("520"));
        assert_eq!((client.read("b.color"), client.read("c.count")), ("9".to_owned(), "0".to_owned()));
        // Each thread knows the arguments that elements of the others have got.
        assert!(client.read("flatconfig").contains("b :: Paint(9, PAINT);"));
        assert_eq!(["b.colour", "x.color", "c.nothing"].map(|it| client.read(it)), ["511", "510", "511"]);
        assert!(client.write("c.count", "1").starts_with("530 "));
        // The graph was started without another configuration in mind.
        assert!(client.write("hotconfig", "Idle -> Discard").starts_with("511 "));
        assert!(client.write("stop", "").starts_with("200 "));
    });
}

/// A script without an end is stopped by its limit of instructions. Then all threads answer as before.
#[test]
fn a_script_that_takes_too_long_fails_its_call_alone() {
    let graph = start_text(
        "s :: Script(TYPE PASSIVE, set n 0, label again, set n $(add $n $(c.count)), goto again $(lt $n 50), return done);
         StaticThreadSched(s 0, c 1, d 1); Idle -> c :: Counter -> Discard; Idle -> d :: Paint(4) -> Discard;",
        2,
    );
    let (_, ()) = with_client(graph, |mut client| {
        // It adds zeros until its limit of instructions.
        client.0.get_mut().write_all(b"READ s.run\n").unwrap();
        assert!(client.answer().starts_with("520"));
        assert_eq!((client.read("d.color"), client.read("s.get n").is_empty()), ("4".to_owned(), false));
        assert!(client.write("stop", "").starts_with("200 "));
    });
}

#[test]
fn a_graph_that_ends_answers_all_its_clients() {
    let graph = start_text("InfiniteSource(LIMIT 1000) -> c :: Counter -> Discard; Idle -> Discard;", 2);
    let (_, answers) = with_client(graph, |mut client| {
        client.0.get_mut().write_all("WRITE stop\n".repeat(20).as_bytes()).unwrap();
        (0..20).map(|_| client.answer()).collect::<Vec<_>>()
    });
    assert!(answers[0].starts_with("200 "), "{answers:?}");
    assert!(
        answers.iter().all(|it| it.starts_with("200 ") || it.starts_with("540 ") || it.is_empty()),
        "{answers:?}"
    );
}

/// A signal goes to the scripts of all threads that wait for it, again and again. As long as one waits, the graph goes on.
#[test]
fn scripts_of_all_threads_get_signals() {
    let mut graph = start_text(
        "StaticThreadSched(s 0, t 1, u 2);
         s :: Script(TYPE SIGNAL USR1, init n 0, set n $(add $n 1));
         t :: Script(TYPE SIGNAL USR1 USR2, init n 0, set n $(add $n 1));
         u :: Script(TYPE SIGNAL USR2, init n 0, set n $(add $n 1), goto out $(ge $n 3), end, label out, stop);",
        3,
    );
    let sent = AtomicU32::new(0);
    let result = graph.run_controlled(None, |graph| {
        let Some(signals) = graph.system_signals() else { return false };
        if signals.contains(&10) && signals.contains(&12) {
            match sent.fetch_add(1, Ordering::Relaxed) {
                count if count < 4 => graph.handle_signal(10),
                _ => graph.handle_signal(12),
            }
        }
        false
    });
    result.unwrap();
    let counts = ["s", "t", "u"].map(|it| graph.read_handler(&format!("{it}.get n")).unwrap());
    assert_eq!(counts.map(|it| it.trim().to_owned()), ["4", "7", "3"]);
}

/// Two configurations take turns under traffic. Each packet is counted once on both sides of the queue, which is of
/// another kind in each.
#[test]
fn a_graph_is_replaced_under_traffic_without_loss() {
    const PACKETS: &str = "200000";
    let text = |between: &str, queue: &str| {
        format!(
            "s :: InfiniteSource(LIMIT {PACKETS}) -> a :: Counter -> {between} q :: {queue}(100) -> Unqueue -> b :: Counter \
             -> {between} Discard; StaticThreadSched(s 1);"
        )
    };
    let texts =
        [text("", "Queue"), text("Null ->", "ThreadSafeQueue"), text("Paint(1) ->", "FrontDropQueue")];
    let first = texts[0].clone();
    let (mut graph, replaced) = with_client(replaceable(&first, 2), move |mut client| {
        let number = |text: String| text.trim().parse::<u64>().unwrap();
        let (mut previous, mut replaced) = (0, 0_usize);
        loop {
            // The source counts anew, the counters go on.
            let text = &texts[(replaced + 1) % texts.len()];
            assert_eq!(client.write("hotconfig", text), WRITTEN);
            assert_eq!(client.read("config"), *text);
            replaced += 1;
            let added = number(client.read("a.count"));
            assert!(added >= previous, "{added} after {previous}");
            previous = added;
            if replaced == 30 {
                break;
            }
        }
        while number(client.read("s.count")) < number(PACKETS.to_owned())
            || number(client.read("q.length")) > 0
        {}
        assert!(client.write("stop", "").starts_with("200 "));
        replaced
    });
    assert_eq!(replaced, 30);
    let value = |graph: &mut GraphThreads, call: &str| {
        graph.read_handler(call).unwrap().trim().parse::<u64>().unwrap()
    };
    let [added, removed, drops] = ["a.count", "b.count", "q.drops"].map(|call| value(&mut graph, call));
    assert!(added >= 200_000);
    assert_eq!(removed + drops, added, "{drops} drops");
}

/// A queue can begin to lead to another thread, and end it. Its packets and counts stay.
#[test]
fn the_packets_of_a_queue_stay_when_its_sides_come_to_other_threads() {
    let sides = "s :: InfiniteSource(LIMIT 7) -> q :: Queue(5);";
    let graph = replaceable(
        &format!("{sides} q -> u :: Unqueue(ACTIVE false) -> Discard; StaticThreadSched(s 0, u 1);"),
        2,
    );
    let (_, ()) = with_client(graph, move |mut client| {
        while client.read("q.length") != "5" {}
        // A kind that drops the oldest, within one thread: the side that removes packets stays on thread 1.
        let within = "s :: TimedSource(1000) -> q :: FrontDropQueue(3) -> u :: Unqueue(ACTIVE false) -> Discard; \
                      StaticThreadSched(s 1, u 1);";
        let answer = client.write("hotconfig", within);
        assert_eq!(answer, WRITTEN);
        assert_eq!(client.read("q.length"), "5");
        assert_eq!(client.read("q.capacity"), "3");
        // And back.
        let between = "t :: TimedSource(1000) -> q :: Queue(9) -> u :: Unqueue(ACTIVE false) -> c :: Counter -> Discard; \
                       StaticThreadSched(t 0, u 1);";
        assert_eq!(client.write("hotconfig", between), WRITTEN);
        assert_eq!((client.read("q.length"), client.read("q.capacity")), ("5".to_owned(), "9".to_owned()));
        assert!(client.write("u.active", "true").starts_with("200 "));
        while client.read("c.count") != "5" {}
        assert_eq!(client.read("q.length"), "0");
        assert!(client.write("stop", "").starts_with("200 "));
    });
}

/// A configuration that is wrong, on whichever thread, changes nothing. Neither does one with which state would have to
/// move to another thread.
#[test]
fn a_wrong_configuration_leaves_the_graph_on_all_threads() {
    let first = "StaticThreadSched(a 0, b 1); a :: InfiniteSource(LIMIT 5) -> c :: Counter -> Discard; \
                 b :: InfiniteSource(LIMIT 6) -> d :: Counter -> Discard;";
    let graph = replaceable(first, 2);
    let (_, ()) = with_client(graph, move |mut client| {
        while client.read("c.count") != "5" || client.read("d.count") != "6" {}
        for (text, error) in [
            ("Idle -> Discrad;", "undeclared element 'Discrad'"),
            ("Idle -> Queue(x) -> Discard;", "CAPACITY"),
            ("Idle -> Discard; Script(TYPE ACTIVE, goto nowhere); StaticThreadSched(a 0);", "nowhere"),
            (
                "StaticThreadSched(a 0); a :: Idle -> c :: Counter -> d :: Counter -> Discard;",
                "would move to thread 0",
            ),
            ("d :: Counter; Idle -> d -> Discard; StaticThreadSched(d 0);", "d :: Counter runs on thread 1"),
        ] {
            let answer = client.write("hotconfig", text);
            assert!(answer.starts_with("520") && answer.contains(error), "{text}: {answer}");
            assert!(client.read("errors").contains(error));
            assert_eq!(client.read("config"), first);
        }
        assert_eq!((client.read("c.count"), client.read("d.count")), ("5".to_owned(), "6".to_owned()));
        // Without a statement, elements stay on their threads.
        let next = "d :: Counter; c :: Counter; InfiniteSource(LIMIT 1) -> d -> Discard; InfiniteSource(LIMIT 1) -> c -> Discard;";
        assert_eq!(client.write("hotconfig", next), WRITTEN);
        while client.read("c.count") != "6" || client.read("d.count") != "7" {}
        assert_eq!(client.read("errors"), "");
        assert!(client.write("stop", "").starts_with("200 "));
    });
}

/// A script cannot replace a graph on several threads: its own thread would have to pause.
#[test]
fn a_script_on_several_threads_cannot_replace_the_graph() {
    let text =
        "s :: Script(TYPE PASSIVE, write hotconfig Idle, return done); Idle -> Discard; Idle -> Discard;";
    let graph = replaceable(text, 2);
    let (_, ()) = with_client(graph, move |mut client| {
        assert_eq!(client.read("s.run"), "done");
        assert_eq!(client.read("config"), text);
        assert!(client.write("stop", "").starts_with("200 "));
    });
}

/// The interfaces of a graph that waits for nothing but packets which never come.
#[derive(Clone, Default)]
struct Silence(Arc<(Mutex<bool>, Condvar, AtomicBool)>);

/// Far longer than a call takes.
const SILENCE_MAX: Duration = Duration::from_secs(60);

impl System for Silence {
    fn open_capture(&mut self, _: &str) -> Result<Box<dyn CaptureReader>, String> {
        Ok(Box::new(NoFiles))
    }

    fn create_capture(&mut self, _: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(NoFiles))
    }

    fn read_file(&mut self, _: &str) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }

    fn open_device(&mut self, _: &str, _: &DeviceOptions) -> Result<Box<dyn ReceivingDevice>, String> {
        Ok(Box::new(self.clone()))
    }

    fn wait_for_devices(&mut self, longest: Option<Nanos>) -> bool {
        if longest != Some(Nanos(0)) {
            let (is_woken, waker, is_late) = &*self.0;
            let woken = is_woken.lock().unwrap();
            let (mut woken, result) = waker.wait_timeout_while(woken, SILENCE_MAX, |woken| !*woken).unwrap();
            is_late.fetch_or(result.timed_out(), Ordering::Relaxed);
            *woken = false;
        }
        false
    }

    fn device_waker(&mut self) -> Option<DeviceWaker> {
        let shared = Arc::clone(&self.0);
        Some(Box::new(move || {
            *shared.0.lock().unwrap() = true;
            shared.1.notify_all();
        }))
    }

    fn write_text(&mut self, _: TextOutput, _: &str) {}
}

impl ReceivingDevice for Silence {
    fn link_type(&self) -> u32 {
        1
    }

    fn receive(
        &mut self,
        _: usize,
        _: &mut dyn FnMut(ReceivedPacket<'_>),
        _: &mut Vec<String>,
    ) -> Result<weir_graph::engine::DeviceState, String> {
        Ok(weir_graph::engine::DeviceState::Quiet)
    }

    fn lost(&mut self) -> u64 {
        0
    }
}

const RECEIVING: &str = "FromDevice(x) -> c :: Counter -> Discard; Idle -> Discard;";

/// A graph that waits for packets of its devices is woken by calls.
#[test]
fn a_call_ends_the_wait_for_devices() {
    let silence = Silence::default();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let control = ControlServer::open(&[ControlAddress::from(path.as_path())]).unwrap();
    let clock = Box::<SystemClock>::default();
    let mut router =
        Router::new(flat(RECEIVING), &AllElements, Box::new(silence.clone()), clock, RunOptions::default())
            .unwrap_or_else(|errors| panic!("{errors:?}"));
    control.set_waker(router.device_waker().unwrap());
    let client = thread::spawn(move || {
        let mut client = Client::connect(&path);
        (0..20).for_each(|_| assert_eq!(client.read("c.count"), "0"));
        assert!(client.write("stop", "").starts_with("200 "));
    });
    while router.step() {
        control.serve(&mut router);
    }
    client.join().unwrap();
    assert!(!silence.0.2.load(Ordering::Relaxed), "a call waited for the device");
}

#[test]
fn a_call_ends_the_wait_for_devices_of_a_thread() {
    let silence = Silence::default();
    let system = silence.clone();
    // Thread 0 alone has a device, so all threads can share this.
    let graph = start(
        &flat(RECEIVING),
        Arc::new(move || Box::new(system.clone())),
        TestClock::System,
        1,
        RunOptions::default(),
    );
    let graph = graph.unwrap_or_else(|errors| panic!("{errors:?}"));
    let (_, ()) = with_client(graph, |mut client| {
        (0..20).for_each(|_| assert_eq!(client.read("c.count"), "0"));
        assert!(client.write("stop", "").starts_with("200 "));
    });
    assert!(!silence.0.2.load(Ordering::Relaxed), "a call waited for the device");
}
