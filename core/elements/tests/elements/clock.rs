//! Looks at the clock: elements that measure rates make none for a packet.

use std::cell::Cell;
use std::rc::Rc;
use weir_elements::AllElements;
use weir_graph::engine::{GraphClock, NoFiles, Router, RunOptions};
use weir_graph::language::{ConfigurationSource, parse};
use weir_units::Timestamp;

/// A clock that is not simulated, and counts the looks at it. Each of them takes a microsecond.
struct CountingClock(Rc<Cell<u64>>);

impl GraphClock for CountingClock {
    fn now(&mut self) -> Timestamp {
        self.0.set(self.0.get() + 1);
        self.latest()
    }

    fn latest(&self) -> Timestamp {
        Timestamp(self.0.get() * 1000)
    }

    fn wait(&mut self, _: Option<Timestamp>) {}
}

const PACKETS: u64 = 10_000;

/// Returns the looks at the clock while packets go through the element `m`, in batches of this size.
fn looks(declaration: &str, batch: usize) -> u64 {
    let text = format!(
        "{declaration};
         InfiniteSource(DATA \\<4500001400000000400100007f0000017f000001>, LIMIT {PACKETS}, TIMESTAMP false)
         -> MarkIPHeader -> m -> c :: Counter -> Discard;"
    );
    let source = ConfigurationSource { name: "graph", bytes: text.as_bytes() };
    let flat = parse(&source, &[], &AllElements).unwrap();
    let looks = Rc::new(Cell::new(0));
    let clock = Box::new(CountingClock(Rc::clone(&looks)));
    let options = RunOptions { batch, ..RunOptions::default() };
    let mut router = Router::new(flat, &AllElements, Box::new(NoFiles), clock, options).unwrap();
    while router.step() {}
    let count = looks.get();
    assert_eq!(router.read_handler("c.count").unwrap(), PACKETS.to_string());
    count
}

#[test]
fn packets_whose_rate_is_measured_take_no_look_at_the_clock() {
    for batch in [1, 64] {
        let without = looks("m :: Null", batch);
        assert!(without < PACKETS / 10, "{without} looks");
        for declaration in [
            "m :: Counter",
            "m :: AverageCounter",
            "m :: IPRateMonitor(PACKETS, 1, 100)",
            "m :: Meter(1000000000); m[1] -> Discard",
        ] {
            assert_eq!(looks(declaration, batch), without, "{declaration} in batches of {batch}");
        }
        // An element that needs the time of each packet looks at the clock for each.
        assert!(looks("m :: RatedSplitter(1000000000)", batch) >= PACKETS);
    }
}
