//! Runs modules in the sandbox with exact counting of fuel.

use super::generate;
use super::plain::{PACKETS, fill, packet_bytes};
use super::space::{ARENA, DESCRIPTORS, Shown};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use weir_abi::{DESCRIPTORS_BASE, code};
use weir_bounds::{Analysis, EntryPoint};
use weir_sandbox::{
    Area, BackEnd, BatchInput, Call, CallStep, During, Engine, FuelSlice, Instance, InstanceContext,
    LoadError, LoadedModule, TablePublisher, TableVersion,
};
use weir_units::Timestamp;
use weir_wire::stream::TcpStreams;
use {weir_admission::Admitted, weir_session::Records};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);

pub fn map(instance: &mut Instance, shown: &Shown) {
    instance
        .map_descriptors(Area { fd: shown.descriptors.as_fd(), offset: 0, len: DESCRIPTORS, is_fixed: false })
        .unwrap();
    instance.map_packets(Area { fd: shown.arena.as_fd(), offset: 0, len: ARENA, is_fixed: false }).unwrap();
}

/// Shows the module another version of its table: of any length up to the declared one, one that is too long, or
/// none.
pub fn change_table(instance: &mut Instance, seed: u64) {
    let len = usize::try_from(seed.wrapping_mul(2_654_435_761) % 8_200).unwrap_or(0);
    let version = TableVersion::new(1 + seed, &generate::bytes(seed, len)).unwrap();
    let shown = (!seed.is_multiple_of(5)).then_some(&version);
    instance.map_table(0, shown).unwrap();
}

/// A publisher that keeps the versions.
#[derive(Debug, Default)]
pub struct Taken(Mutex<Vec<(u32, Vec<u8>)>>);

impl Taken {
    /// Takes the versions published since the last call.
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

/// Starts a module with a publisher.
pub fn start(engine: &Engine, program: &LoadedModule) -> Result<(Instance, Arc<Taken>), LoadError> {
    let taken: Arc<Taken> = Arc::default();
    let publisher: Arc<dyn TablePublisher> = Arc::clone(&taken) as _;
    let context = InstanceContext { publisher: Some(publisher), ..InstanceContext::default() };
    Ok((Instance::start_with(engine, program, context)?, taken))
}

pub fn batch(mask: u64) -> BatchInput {
    BatchInput { descriptors: DESCRIPTORS_BASE, mask, first: 0 }
}

#[derive(Debug, Default)]
pub struct Tally {
    pub modules: usize,
    /// Modules that ran in verified code of LLVM.
    pub in_llvm: usize,
    pub calls: usize,
    pub bounded: usize,
    /// Calls that used more than half of their bound.
    pub tight: usize,
    /// Published versions of tables.
    pub published: usize,
    /// Published versions of the table with known contents.
    pub with_known_contents: usize,
}

/// A running module, and its bounds.
struct Running<'a> {
    instance: Instance,
    taken: Arc<Taken>,
    /// The declared lengths of the tables that it publishes.
    published: Vec<Option<u32>>,
    seed: u64,
    analysis: Analysis,
    shown: &'a Shown,
    /// Fuel after which the engine aborts a call.
    most: u64,
    faults: u64,
    tally: &'a mut Tally,
}

impl Running<'_> {
    /// Checks the published versions: they belong to a declared table, are not too long, and have the written bytes.
    fn check_published(&mut self, are_loops: bool) -> Result<(), String> {
        for (table, bytes) in self.taken.take() {
            self.tally.published += 1;
            let most = self.published.get(table as usize).copied().flatten();
            let is_told = are_loops && table == generate::loops::PUBLISHED_TABLE;
            self.tally.with_known_contents += usize::from(is_told);
            if most.is_none_or(|most| bytes.len() > most as usize)
                || is_told && !generate::loops::is_published_value(&bytes)
            {
                return Err(format!("as table {table} was published what never was: {bytes:?}"));
            }
        }
        Ok(())
    }

    /// Compares the last call with its bound, for a packet of `packet_bytes` bytes.
    fn compare(&mut self, entry: EntryPoint, packet_bytes: u64) -> Result<(), String> {
        let records = self.instance.take_records(Records::default()).iter().count() as u64;
        let Some(found) = self.analysis.entry(entry) else { return Ok(()) };
        // A module that ended while it was told about a lost call was not called for this.
        let last = self.instance.incidents().last().map(|incident| incident.during);
        if self.instance.has_ended() && last == Some(During::Lost) {
            return Ok(());
        }
        let used = self.instance.fuel_used().ok_or("nothing was counted")?;
        let faults = self.instance.counters().faults;
        let is_lost = faults > std::mem::replace(&mut self.faults, faults);
        self.tally.calls += 1;
        // A block is charged at its beginning, and a trap leaves some of it undone.
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
            let streams = if self.instance.has_streams() { TcpStreams::STOP_PARTS.into() } else { 0 };
            let mut part = 0_u32;
            while !self.instance.is_stopped() {
                let step = self.instance.begin(Call::Stop { now: NOW }, FuelSlice::UNLIMITED);
                assert_eq!(step, CallStep::Done(0), "calls are not suspended");
                if part >= streams {
                    let has_stop = self.analysis.entry(EntryPoint::Stop).is_some();
                    let entry = if part == streams && has_stop { EntryPoint::Stop } else { EntryPoint::Rest };
                    self.compare(entry, 0)?;
                }
                part += 1;
            }
        }
        Ok(())
    }
}

/// Runs a module packet by packet, in an engine with exact counting that aborts calls after this much fuel.
///
/// # Errors
/// The call that exceeded its bound.
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
    tally.in_llvm += usize::from(program.back_end() == BackEnd::Llvm);
    let tables = program.admitted().manifest().tables.iter();
    let published = tables.map(|table| table.window().is_none().then_some(table.bytes)).collect();
    let mut running = Running { instance, taken, published, seed, analysis, shown, most, faults: 0, tally };
    running.packets()?;
    running.check_published(are_loops)
}
