//! Measures a lookup of DirectIPLookup with 100,000 random prefixes, against a plain loop over the same tables.
//!
//!     cargo run --release -p weir-elements --example lookup_speed
//!
//! The graph is `InfiniteSource -> lookup -> Discard` with another destination for each packet, once with the lookup and
//! once without it. The difference is what the element takes.

#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to what is needed")]

use std::hint::black_box;
use std::time::{Duration, Instant};
use weir_elements::AllElements;
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementClasses, ElementCost,
    GraphPacket, NoFiles, OrderDependence, Router, RoutingElement, RunOptions, Services, SimulatedClock,
};
use weir_graph::language::{ClassStatus, ConfigurationSource, LanguageEnvironment, LibraryText, parse};

const PREFIXES: usize = 100_000;
const NEXT_HOPS: u64 = 16;
const PACKETS: usize = 20_000_000;
const ROUNDS: usize = 5;

/// SplitMix64, as in the engine.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Gives each packet a random destination annotation.
static RANDOM_DESTINATION: ElementClass = ElementClass {
    name: "RandomDestination",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "gives packets random destinations\n\nRandomDestination()",
    build: |cx| {
        cx.arguments().end()?;
        Ok(BuiltElement::routing(RandomDestination { state: 7 }))
    },
};

struct RandomDestination {
    state: u64,
}

impl Element for RandomDestination {}

impl RoutingElement for RandomDestination {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let address = (random(&mut self.state) as u32).to_be_bytes();
        packet.annotation_mut(DST_IP).copy_from_slice(&address);
        Destination::FIRST
    }
}

struct WithRandom;

impl ElementClasses for WithRandom {
    fn find(&self, name: &str) -> Option<&'static ElementClass> {
        if name == RANDOM_DESTINATION.name { Some(&RANDOM_DESTINATION) } else { AllElements.find(name) }
    }

    fn names(&self) -> Vec<&'static str> {
        AllElements.names()
    }
}

impl LanguageEnvironment for WithRandom {
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

/// Returns the prefixes with their lengths and next hops; most have 24 bits or fewer, as on the Internet.
fn prefixes() -> Vec<(u32, u32, u64)> {
    let mut state = 1;
    let mut all = std::collections::BTreeMap::new();
    while all.len() < PREFIXES {
        let length = match random(&mut state) % 100 {
            0..=59 => 24,
            60..=89 => 16 + random(&mut state) as u32 % 8,
            90..=96 => 8 + random(&mut state) as u32 % 8,
            _ => 25 + random(&mut state) as u32 % 8,
        };
        let address = random(&mut state) as u32 & (u32::MAX << (32 - length));
        all.insert((address, length), random(&mut state) % NEXT_HOPS);
    }
    all.into_iter().map(|((address, length), hop)| (address, length, hop)).collect()
}

/// Runs a graph, and returns the nanoseconds for each packet.
fn run(lookup: &str) -> f64 {
    let graph = format!(
        "InfiniteSource(LIMIT {PACKETS}, TIMESTAMP false, BURST 64, STOP true) -> RandomDestination {lookup};"
    );
    let source = ConfigurationSource { name: "graph", bytes: graph.as_bytes() };
    let flat = parse(&source, &[], &WithRandom).unwrap_or_else(|errors| panic!("{errors}"));
    let clock = Box::<SimulatedClock>::default();
    let system = Box::<NoFiles>::default();
    let router = Router::new(flat, &WithRandom, system, clock, RunOptions::default());
    let mut router = router.unwrap_or_else(|errors| panic!("{errors:?}"));
    let start = Instant::now();
    while router.step() {}
    per_packet(start.elapsed())
}

fn per_packet(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9 / PACKETS as f64
}

/// The tables of DIR-24-8, made in the simplest way: shorter prefixes first.
fn tables(prefixes: &[(u32, u32, u64)]) -> (Vec<u16>, Vec<u16>) {
    let (mut first, mut second) = (vec![0u16; 1 << 24], Vec::new());
    let mut sorted = prefixes.to_vec();
    sorted.sort_by_key(|(_, length, _)| *length);
    for (address, length, hop) in sorted {
        let hop = hop as u16 + 1;
        let place = (address >> 8) as usize;
        if length <= 24 {
            first[place..place + (1 << (24 - length))].fill(hop);
            continue;
        }
        if first[place] & 0x8000 == 0 {
            let entry = first[place];
            first[place] = 0x8000 | (second.len() / 256) as u16;
            second.resize(second.len() + 256, entry);
        }
        let from = usize::from(first[place] & 0x7fff) * 256 + (address & 0xff) as usize;
        second[from..from + (1 << (32 - length))].fill(hop);
    }
    (first, second)
}

/// Looks up random addresses in a plain loop, and returns the nanoseconds for each.
fn plain(first: &[u16], second: &[u16], looks_up: bool) -> f64 {
    let (mut state, mut sum) = (7, 0u64);
    let start = Instant::now();
    for _ in 0..PACKETS {
        let address = random(&mut state) as u32;
        if looks_up {
            let entry = first[(address >> 8) as usize];
            let hop = match entry & 0x8000 {
                0 => entry,
                _ => second[usize::from(entry & 0x7fff) * 256 + (address & 0xff) as usize],
            };
            sum += u64::from(hop);
        } else {
            sum += u64::from(address);
        }
    }
    black_box(sum);
    per_packet(start.elapsed())
}

fn main() {
    let prefixes = prefixes();
    let routes: Vec<String> = prefixes
        .iter()
        .map(|(address, length, hop)| {
            format!("{}/{length} 192.0.2.{} 0", std::net::Ipv4Addr::from_bits(*address), hop + 1)
        })
        .chain(["0/0 192.0.2.99 0".to_owned()])
        .collect();
    let routes = routes.join(", ");
    let (first, second) = tables(&prefixes);
    let least = |measure: &mut dyn FnMut() -> f64| (0..ROUNDS).map(|_| measure()).fold(f64::MAX, f64::min);
    let without = least(&mut || run("-> Discard"));
    println!(
        "{} prefixes, ns for each packet, least of {ROUNDS} rounds of {PACKETS} packets",
        prefixes.len()
    );
    println!("graph without a lookup  {without:6.1}");
    for class in ["DirectIPLookup", "RangeIPLookup", "RadixIPLookup"] {
        let with = least(&mut || run(&format!("-> rt :: {class}({routes}) -> Discard")));
        println!("{class:<22}  {with:6.1}  the lookup: {:.1}", with - without);
    }
    let loop_with = least(&mut || plain(&first, &second, true));
    let loop_without = least(&mut || plain(&first, &second, false));
    println!("plain DIR-24-8 loop     {loop_with:6.1}  the lookup: {:.1}", loop_with - loop_without);
}
