//! Waiting for devices: the driver waits when nothing is to do, and only then.

use std::cell::RefCell;
use std::rc::Rc;
use weir_elements::AllElements;
use weir_graph::engine::{
    CaptureReader, CaptureWriter, DeviceOptions, DeviceState, GraphClock, NoFiles, PacketType,
    ReceivedPacket, ReceivingDevice, Router, RunOptions, SendingDevice, System, TextOutput,
};
use weir_graph::language::{ConfigurationSource, parse};
use weir_units::{Nanos, Timestamp};

/// The devices' side of a test, which the system and its devices share.
#[derive(Default)]
struct Script {
    time: u64,
    /// The packets that arrive after each wait: the next one is last.
    arrivals: Vec<usize>,
    /// The packets that are there.
    there: usize,
    /// The longest time of each wait.
    waits: Vec<Option<u64>>,
    /// The number of looks for packets.
    looks: usize,
    texts: String,
}

#[derive(Clone)]
struct Scripted(Rc<RefCell<Script>>);

impl ReceivingDevice for Scripted {
    fn link_type(&self) -> u32 {
        1
    }

    fn receive(
        &mut self,
        most: usize,
        each: &mut dyn FnMut(ReceivedPacket<'_>),
        news: &mut Vec<String>,
    ) -> Result<DeviceState, String> {
        let count = {
            let mut script = self.0.borrow_mut();
            script.looks += 1;
            let count = script.there.min(most);
            script.there -= count;
            count
        };
        for _ in 0..count {
            let (bytes, time) = (&[1; 60], Timestamp(7));
            each(ReceivedPacket { bytes, wire_length: 60, time, packet_type: PacketType::Host });
        }
        let script = self.0.borrow();
        if script.there > 0 {
            return Ok(DeviceState::More);
        }
        if script.arrivals.is_empty() {
            news.push("eth0 was removed".to_owned());
            return Err("eth0 cannot be used any more".to_owned());
        }
        Ok(DeviceState::Quiet)
    }

    fn lost(&mut self) -> u64 {
        5
    }
}

impl System for Scripted {
    fn open_device(&mut self, _: &str, _: &DeviceOptions) -> Result<Box<dyn ReceivingDevice>, String> {
        Ok(Box::new(self.clone()))
    }

    fn open_sender(&mut self, _: &str) -> Result<Box<dyn SendingDevice>, String> {
        Ok(Box::new(NoFiles))
    }

    fn wait_for_devices(&mut self, longest: Option<Nanos>) -> bool {
        let mut script = self.0.borrow_mut();
        script.waits.push(longest.map(|longest| longest.0));
        if longest == Some(Nanos(0)) {
            return false;
        }
        let arrived = script.arrivals.pop().unwrap_or(0);
        script.there += arrived;
        // Without packets, a wait takes all of its time.
        script.time += if arrived == 0 { longest.map_or(0, |longest| longest.0) } else { 1 };
        arrived > 0 || script.arrivals.is_empty()
    }

    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        Err(name.to_owned())
    }

    fn create_capture(&mut self, name: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Err(name.to_owned())
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        Err(name.to_owned())
    }

    fn write_text(&mut self, _: TextOutput, text: &str) {
        self.0.borrow_mut().texts.push_str(text);
    }
}

impl GraphClock for Scripted {
    fn now(&mut self) -> Timestamp {
        self.latest()
    }

    fn latest(&self) -> Timestamp {
        Timestamp(self.0.borrow().time)
    }

    fn wait(&mut self, _: Option<Timestamp>) {
        panic!("a graph that watches devices waits for them");
    }
}

/// Runs a graph to its end. Returns it, the script, and the number of steps.
fn run(text: &str, arrivals: &[usize]) -> (Router, Rc<RefCell<Script>>, usize) {
    let script = Rc::new(RefCell::new(Script {
        arrivals: arrivals.iter().rev().copied().collect(),
        ..Script::default()
    }));
    let source = ConfigurationSource { name: "graph", bytes: text.as_bytes() };
    let flat = parse(&source, &[], &AllElements).unwrap();
    let system = Scripted(Rc::clone(&script));
    let options = RunOptions::default();
    let mut router =
        Router::new(flat, &AllElements, Box::new(system.clone()), Box::new(system), options).unwrap();
    let mut steps = 0;
    while router.step() {
        steps += 1;
        assert!(steps < 1000, "the graph does not end");
    }
    (router, script, steps)
}

#[test]
fn an_idle_graph_waits_once_for_each_arrival() {
    let (mut router, script, steps) =
        run("f :: FromDevice(eth0) -> c :: Counter -> Discard", &[1, 3, 200, 1, 0]);
    assert_eq!(router.read_handler("c.count").unwrap(), "205");
    let script = script.borrow();
    // The waits for arrivals have no end. The 200 packets are received in four runs of the task, without a wait.
    assert_eq!(script.waits, [None; 5]);
    assert!(steps <= script.waits.len() + 1 && script.looks <= 12, "{steps} steps, {} looks", script.looks);
}

#[test]
fn a_wait_ends_at_the_next_timer() {
    let text = "f :: FromDevice(eth0) -> Discard; t :: TimedSource(INTERVAL 2) -> c :: Counter -> Discard;";
    let (_, script, _) =
        run(&format!("{text} DriverManager(wait 7s, stop)"), &[0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let script = script.borrow();
    assert!(
        script.waits.iter().all(|wait| wait.is_some_and(|wait| wait <= 2_000_000_000)),
        "{:?}",
        script.waits
    );
    assert!((7_000_000_000..7_000_001_000).contains(&script.time), "{}", script.time);
}

#[test]
fn a_graph_with_work_looks_at_devices_and_does_not_wait() {
    let text = "FromDevice(eth0) -> Discard; InfiniteSource(LIMIT 50000, STOP true) -> Discard";
    let (_, script, _) = run(text, &[1]);
    let script = script.borrow();
    assert!(script.waits.len() > 1 && script.waits.iter().all(|wait| *wait == Some(0)), "{:?}", script.waits);
}

#[test]
fn a_device_that_fails_is_reported_and_makes_the_result_incomplete() {
    let (mut router, script, _) = run("f :: FromDevice(eth0) -> Discard", &[1]);
    let told = "f :: FromDevice: eth0 was removed\nf :: FromDevice: eth0 cannot be used any more\n";
    assert_eq!(script.borrow().texts, told);
    let errors = router.finish().unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("eth0 cannot be used any more"), "{}", errors[0]);
}
