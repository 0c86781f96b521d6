//! Runs modules in the sandbox, where what they use is counted to the unit.

use super::generate;
use super::plain::{PACKETS, fill, packet_bytes};
use super::space::{ARENA, DESCRIPTORS, Shown};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use weir_abi::{DESCRIPTORS_BASE, code};
use weir_bounds::{Analysis, EntryPoint};
use weir_sandbox::{
    Area, BatchInput, During, Engine, Instance, InstanceContext, LoadError, LoadedModule, TablePublisher,
    TableVersion,
};
use weir_units::Timestamp;
use {weir_admission::Admitted, weir_session::Records};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

pub fn map(instance: &mut Instance, shown: &Shown) {
    instance.map_descriptors(Area { fd: shown.descriptors.as_fd(), offset: 0, len: DESCRIPTORS }).unwrap();
    instance.map_packets(Area { fd: shown.arena.as_fd(), offset: 0, len: ARENA }).unwrap();
}

/// Has the module see another version of the table that it reads: of any length up to what it declares, one that is too long, or none.
pub fn change_table(instance: &mut Instance, seed: u64) {
    let len = usize::try_from(seed.wrapping_mul(2_654_435_761) % 8_200).unwrap_or(0);
    let version = TableVersion::new(1 + seed, &generate::bytes(seed, len)).unwrap();
    let shown = (!seed.is_multiple_of(5)).then_some(&version);
    instance.show_table(0, shown).unwrap();
}

/// Takes what is published.
#[derive(Debug, Default)]
pub struct Taken(Mutex<Vec<(u32, Vec<u8>)>>);

impl Taken {
    /// What was published since this was asked last.
    pub fn take(&self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TablePublisher for Taken {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((table, bytes.to_vec()));
        code::OK
    }
}

/// Starts a module whose tables are taken.
pub fn start(engine: &Engine, program: &LoadedModule) -> Result<(Instance, Arc<Taken>), LoadError> {
    let taken: Arc<Taken> = Arc::default();
    let press: Arc<dyn TablePublisher> = Arc::clone(&taken) as _;
    let means = InstanceContext { press: Some(press), ..InstanceContext::default() };
    Ok((Instance::start_with(engine, program, means)?, taken))
}

pub fn batch(mask: u64) -> BatchInput {
    BatchInput { descriptors: DESCRIPTORS_BASE, mask, first: 0 }
}

#[derive(Debug, Default)]
pub struct Tally {
    pub modules: usize,
    pub calls: usize,
    pub bounded: usize,
    /// Calls that used more than half of their bound.
    pub tight: usize,
    /// Versions of tables that were published.
    pub published: usize,
    /// Of these, of the table of which it is known what is in it.
    pub told: usize,
}

/// A module at work, and what it may use.
struct Running<'a> {
    instance: Instance,
    taken: Arc<Taken>,
    /// How long each of its tables can be that it publishes.
    published: Vec<Option<u32>>,
    seed: u64,
    analysis: Analysis,
    shown: &'a Shown,
    /// Fuel after which the engine abandons a call.
    most: u64,
    faults: u64,
    tally: &'a mut Tally,
}

impl Running<'_> {
    /// Looks at what was published: it is of a table that the module publishes, no longer than that is, and what was written.
    fn look_at_published(&mut self, are_loops: bool) -> Result<(), String> {
        for (table, bytes) in self.taken.take() {
            self.tally.published += 1;
            let most = self.published.get(table as usize).copied().flatten();
            let is_told = are_loops && table == generate::loops::TOLD;
            self.tally.told += usize::from(is_told);
            if most.is_none_or(|most| bytes.len() > most as usize)
                || is_told && !generate::loops::is_told(&bytes)
            {
                return Err(format!("as table {table} was published what never was: {bytes:?}"));
            }
        }
        Ok(())
    }

    /// Compares the last call with its bound, for a packet of so many bytes.
    fn compare(&mut self, entry: EntryPoint, packet_bytes: u64) -> Result<(), String> {
        let records = self.instance.take_records(Records::default()).iter().count() as u64;
        let Some(found) = self.analysis.entry(entry) else { return Ok(()) };
        // Whoever was ended while it was told of a lost call has not been called for this.
        let last = self.instance.incidents().last().map(|incident| incident.during);
        if self.instance.has_ended() && last == Some(During::Lost) {
            return Ok(());
        }
        let used = self.instance.fuel_used().ok_or("nothing was counted")?;
        let faults = self.instance.counters().faults;
        let is_lost = faults > std::mem::replace(&mut self.faults, faults);
        self.tally.calls += 1;
        // What a block costs is counted when it begins, and a trap leaves some of it undone.
        if !found.is_bounded() || (is_lost && used < self.most) {
            return Ok(());
        }
        self.tally.bounded += 1;
        let (bound, most) = (found.usage.fuel.at(packet_bytes), found.usage.records.at(packet_bytes));
        self.tally.tight += usize::from(used > bound / 2);
        if used > bound || records > most {
            return Err(format!(
                "{entry}: used {used} of fuel and {records} records, and the bounds are {bound} and {most} for {packet_bytes} bytes"
            ));
        }
        Ok(())
    }

    fn packets(&mut self) -> Result<(), String> {
        self.compare(EntryPoint::Start, 0)?;
        let longest = (0..PACKETS).map(|packet| packet_bytes(self.shown, packet)).max().unwrap_or(0);
        for packet in 0..PACKETS {
            if self.instance.has_ended() {
                return Ok(());
            }
            change_table(&mut self.instance, self.seed.wrapping_add(packet.into()) >> 1);
            self.instance.run(batch(1 << packet));
            if self.analysis.entry(EntryPoint::Batch).is_some() {
                self.compare(EntryPoint::Batch, longest)?;
            } else {
                self.compare(EntryPoint::Packet, packet_bytes(self.shown, packet))?;
            }
            if !self.instance.has_ended() {
                self.instance.begin_block();
                self.instance.tick(NOW, 1, 0);
                self.compare(EntryPoint::Tick, 0)?;
            }
        }
        if !self.instance.has_ended() {
            self.instance.stop(NOW);
            self.compare(EntryPoint::Stop, 0)?;
        }
        Ok(())
    }
}

/// Runs a module packet by packet, in an engine that counts exactly and abandons calls after this much fuel.
///
/// # Errors
/// What used more than it can use at most.
pub fn run(
    (engine, most): (&Engine, u64),
    shown: &Shown,
    (bytes, are_loops): (Vec<u8>, bool),
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let Ok(admitted) = Admitted::admit(bytes, &[]) else { return Ok(()) };
    let analysis = admitted.analysis().clone();
    let Ok(program) = engine.load(admitted) else { return Ok(()) };
    fill(shown, seed);
    let (mut instance, taken) = start(engine, &program).map_err(|error| error.to_string())?;
    map(&mut instance, shown);
    tally.modules += 1;
    let tables = program.admitted().manifest().tables.iter();
    let published = tables.map(|table| table.window().is_none().then_some(table.bytes)).collect();
    let mut running = Running { instance, taken, published, seed, analysis, shown, most, faults: 0, tally };
    running.packets()?;
    running.look_at_published(are_loops)
}
