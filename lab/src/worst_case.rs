//! A directed search for the packets that cost a module most, to hold against its bound.
//!
//! It works as fuzzers that are led by coverage do, with the fuel of a packet in place of the covered branches: a packet whose fuel was never seen
//! before has taken another way through the module, and is kept to be changed further. What comes before a packet matters too, because modules
//! keep tables; so packets come in times of their own weather: few flows or many, flows that meet in one place of a table, time that stands,
//! jumps or goes back.

use crate::crafted::{Crafted, Mint, Weather};
use crate::error::LabError;
use crate::gauge::Counted;
use crate::module::Module;
use std::collections::HashSet;
use weir_abi::BATCH_PACKETS;
use weir_bounds::{EntryPoint, Linear};

/// The length of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Times with a weather of their own; each begins with the module as it starts.
    pub times: usize,
    /// Batches of each time.
    pub batches: usize,
}

/// The longest packet of an Ethernet without jumbo frames.
pub const ETHERNET: usize = 1514;
/// Packets that are kept to be changed.
const KEPT: usize = 2048;

/// A packet, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Its captured bytes.
    pub len: u64,
    /// Fuel used, counted to the unit.
    pub fuel: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstOutcome {
    /// The bound of the packet function.
    pub bound: Linear,
    /// The packet with the most fuel, of all and of those up to [`ETHERNET`].
    pub worst: Cost,
    /// The packet with the most fuel of those up to [`ETHERNET`].
    pub worst_on_ethernet: Cost,
    /// The packet that comes closest to the bound at its length.
    pub closest: Cost,
    /// Packets tried.
    pub packets: u64,
    /// A packet that used more than the bound says: then the bound is wrong.
    pub over: Option<(Cost, Crafted)>,
}

impl WorstOutcome {
    /// The bound at a packet's length, as a multiple of the fuel.
    pub fn ratio(&self, cost: Cost) -> f64 {
        ratio(self.bound.at(cost.len), cost.fuel)
    }
}

fn ratio(bound: u64, fuel: u64) -> f64 {
    bound as f64 / fuel.max(1) as f64
}

/// Searches.
pub fn search(
    module: &Module,
    counted: &Counted<'_>,
    recorded: &[Vec<u8>],
    how: Search,
) -> Result<WorstOutcome, LabError> {
    let admitted = module.admit()?;
    let bound =
        admitted.analysis().entry(EntryPoint::Packet).map_or(Linear::UNBOUNDED, |found| found.usage.fuel);
    let mut mint = Mint::new(how.seed, admitted.bytes(), admitted.values(), recorded.to_vec());
    let none = Cost::default();
    let mut found =
        WorstOutcome { bound, worst: none, worst_on_ethernet: none, closest: none, packets: 0, over: None };
    let mut kept: Vec<Crafted> = Vec::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut costs = Vec::new();
    for _ in 0..how.times {
        let weather = Weather::any(mint.random());
        let mut gauge = counted.start()?;
        for _ in 0..how.batches {
            let packets: Vec<Crafted> =
                (0..BATCH_PACKETS).map(|_| next(&mut mint, &weather, &kept)).collect();
            gauge.measure(&packets, &mut costs)?;
            for (packet, fuel) in packets.into_iter().zip(&costs) {
                let cost = Cost { len: u64::try_from(packet.bytes.len()).unwrap_or(0), fuel: *fuel };
                found.take(cost, &packet);
                if seen.insert(*fuel) {
                    if kept.len() < KEPT {
                        kept.push(packet);
                    } else {
                        let place = mint.random().below(KEPT);
                        kept[place] = packet;
                    }
                }
            }
        }
    }
    Ok(found)
}

fn next(mint: &mut Mint, weather: &Weather, kept: &[Crafted]) -> Crafted {
    // What was found last is the most promising.
    let place = |mint: &mut Mint| {
        let recent = kept.len().min(64);
        if mint.random().once_in(2) {
            kept.len() - 1 - mint.random().below(recent)
        } else {
            mint.random().below(kept.len())
        }
    };
    let changed = if weather.is_replayed() { mint.random().once_in(8) } else { mint.random().once_in(2) };
    if kept.is_empty() || !changed {
        return mint.packet(weather);
    }
    let (one, other) = (place(mint), place(mint));
    if mint.random().once_in(4) {
        return kept[one].clone();
    }
    mint.mutate(&kept[one], &kept[other])
}

impl WorstOutcome {
    fn take(&mut self, cost: Cost, packet: &Crafted) {
        self.packets += 1;
        if cost.fuel > self.worst.fuel {
            self.worst = cost;
        }
        if cost.fuel > self.worst_on_ethernet.fuel && packet.bytes.len() <= ETHERNET {
            self.worst_on_ethernet = cost;
        }
        if self.bound.is_bounded() {
            if self.closest.fuel == 0 || self.ratio(cost) < self.ratio(self.closest) {
                self.closest = cost;
            }
            if cost.fuel > self.bound.at(cost.len) && self.over.is_none() {
                self.over = Some((cost, packet.clone()));
            }
        }
    }
}
