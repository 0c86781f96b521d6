//! A directed search for the packets that cost a module most fuel, for comparison with the module's bound.
//!
//! The search works like a coverage-guided fuzzer, with a packet's fuel in place of the covered branches. A packet with a new
//! fuel value has taken a new path through the module, and is kept for further mutation. Earlier packets matter too,
//! because modules keep tables. So packets come in phases, each with its own traffic profile: few flows or many, flows
//! that collide in a table, time that stands still, jumps or goes backwards.

use crate::crafted::{CraftedPacket, PacketGenerator, TrafficProfile};
use crate::error::LabError;
use crate::fuel_meter::CountedModule;
use crate::module::Module;
use std::collections::HashSet;
use weir_abi::BATCH_PACKETS;
use weir_bounds::{EntryPoint, Linear};

/// The length of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The number of phases, each with its own traffic profile and a new instance of the module.
    pub phases: usize,
    /// The number of batches per phase.
    pub batches: usize,
}

/// Bytes of the longest Ethernet frame that is not a jumbo frame, without its check sequence.
pub const ETHERNET: usize = 1514;
/// The number of packets that are kept for mutation.
const POOL: usize = 2048;

/// The fuel of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCost {
    /// The captured bytes of the packet.
    pub len: u64,
    /// The exact fuel use.
    pub fuel: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchOutcome {
    /// The bound of the packet function.
    pub bound: Linear,
    /// The packet with the most fuel.
    pub worst: PacketCost,
    /// The packet with the most fuel among those of at most [`ETHERNET`] bytes.
    pub worst_on_ethernet: PacketCost,
    /// The packet closest to the bound for its length.
    pub closest: PacketCost,
    /// The number of packets tried.
    pub packets: u64,
    /// A packet that used more than its bound, which proves the bound wrong.
    pub over: Option<(PacketCost, CraftedPacket)>,
}

impl SearchOutcome {
    /// The bound for a packet's length, divided by its fuel.
    pub fn ratio(&self, cost: PacketCost) -> f64 {
        ratio(self.bound.at(cost.len), cost.fuel)
    }

    /// The larger of the ratios of the packet with the most fuel, and of that with the most fuel up to [`ETHERNET`] bytes.
    pub fn worst_ratio(&self) -> f64 {
        self.ratio(self.worst).max(self.ratio(self.worst_on_ethernet))
    }
}

fn ratio(bound: u64, fuel: u64) -> f64 {
    bound as f64 / fuel.max(1) as f64
}

/// Searches for the most expensive packets of a module. `recorded` are packets of a capture.
pub fn search(
    module: &Module,
    counted: &CountedModule<'_>,
    recorded: &[Vec<u8>],
    search_plan: Search,
) -> Result<SearchOutcome, LabError> {
    let admitted = module.admit()?;
    let bound =
        admitted.analysis().entry(EntryPoint::Packet).map_or(Linear::UNBOUNDED, |found| found.usage.fuel);
    let mut generator =
        PacketGenerator::new(search_plan.seed, admitted.bytes(), admitted.values(), recorded.to_vec());
    let none = PacketCost::default();
    let mut found =
        SearchOutcome { bound, worst: none, worst_on_ethernet: none, closest: none, packets: 0, over: None };
    let mut pool: Vec<CraftedPacket> = Vec::new();
    let mut seen: HashSet<u64> = HashSet::new();
    let mut costs = Vec::new();
    for _ in 0..search_plan.phases {
        let profile = TrafficProfile::random(generator.random());
        let mut fuel_meter = counted.start()?;
        for _ in 0..search_plan.batches {
            let packets: Vec<CraftedPacket> =
                (0..BATCH_PACKETS).map(|_| next(&mut generator, &profile, &pool)).collect();
            fuel_meter.measure(&packets, &mut costs)?;
            for (packet, fuel) in packets.into_iter().zip(&costs) {
                let cost = PacketCost { len: u64::try_from(packet.bytes.len()).unwrap_or(0), fuel: *fuel };
                found.record(cost, &packet);
                if seen.insert(*fuel) {
                    if pool.len() < POOL {
                        pool.push(packet);
                    } else {
                        let index = generator.random().below(POOL);
                        pool[index] = packet;
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The next packet to try: a new one, one of the pool, or a mutation of one.
fn next(generator: &mut PacketGenerator, profile: &TrafficProfile, pool: &[CraftedPacket]) -> CraftedPacket {
    // Recently found packets are the most promising.
    let pick = |generator: &mut PacketGenerator| {
        let recent = pool.len().min(64);
        if generator.random().once_in(2) {
            pool.len() - 1 - generator.random().below(recent)
        } else {
            generator.random().below(pool.len())
        }
    };
    let from_pool =
        if profile.is_replayed() { generator.random().once_in(8) } else { generator.random().once_in(2) };
    if pool.is_empty() || !from_pool {
        return generator.packet(profile);
    }
    let (one, other) = (pick(generator), pick(generator));
    if generator.random().once_in(4) {
        return pool[one].clone();
    }
    generator.mutate(&pool[one], &pool[other])
}

impl SearchOutcome {
    /// Takes a tried packet into account.
    fn record(&mut self, cost: PacketCost, packet: &CraftedPacket) {
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
