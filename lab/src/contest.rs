//! Runs several builds of one module over the same packets in turn, and sees to it that they all do the same.

use crate::module::Module;
use crate::packets::{Ready, Tick, packets_of};
use crate::{BenchError, statistics::Sample};
use std::hash::Hasher;
use std::ops::Range;
use weir_sandbox::{Batch, Cycles, Patch};
use weir_session::{Field, Records};
use weir_units::Timestamp;
use xxhash_rust::xxh3::Xxh3;

/// A build of a module that can be given packets.
pub trait Contestant {
    /// Processes a batch; returns the mask of the packets that it drops.
    fn run(&mut self, batch: Batch) -> u64;
    /// Tells it that packet time has passed.
    fn tick(&mut self, tick: Tick);
    /// Tells it that no more packets come.
    fn stop(&mut self, now: Timestamp);
    /// What it emitted since the last call; `empty` is used from then on.
    fn take_records(&mut self, empty: Records) -> Records;
    /// What it patched since the last call.
    fn take_patches(&mut self) -> Vec<Patch>;
    /// The first fault, if it had any.
    fn fault(&self) -> Option<String>;
}

/// What a build did in a round, in a few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// Records emitted.
    pub records: usize,
    /// Hash of their streams, rows and strings, in the order of emission.
    pub rows: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Hash of all verdicts.
    pub verdicts: u64,
    /// Packets patched, counted once for each patch.
    pub patches: usize,
    /// Hash of the patches.
    pub patched: u64,
}

impl Deeds {
    /// Appends what was done later.
    fn add(&mut self, later: Self) {
        let join = |a: u64, b: u64| (a.rotate_left(9) ^ b).wrapping_mul(SPREAD);
        self.records += later.records;
        self.rows = join(self.rows, later.rows);
        self.dropped += later.dropped;
        self.verdicts = join(self.verdicts, later.verdicts);
        self.patches += later.patches;
        self.patched = join(self.patched, later.patched);
    }
}

/// An odd number with many bits, so that what is joined with it stays distinguishable.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// A build with its name and what it took.
pub struct Entry<'a> {
    /// How it was built.
    pub name: String,
    /// The build.
    pub build: Box<dyn Contestant + 'a>,
    /// Cycles a packet, one number for each round.
    pub cycles: Sample,
    /// Where the fields of each stream's rows lie. What is between them is padding, and may be anything.
    fields: Vec<Vec<Range<usize>>>,
    spare: Records,
}

impl<'a> Entry<'a> {
    /// Nothing measured yet.
    pub fn new(name: impl Into<String>, module: &Module, build: Box<dyn Contestant + 'a>) -> Self {
        let place = |field: &Field| field.offset..field.offset + field.ty.size();
        let streams = module.manifest.streams.iter();
        let fields = streams.map(|stream| stream.fields.iter().map(place).collect()).collect();
        Self { name: name.into(), build, cycles: Sample::default(), fields, spare: Records::default() }
    }

    /// Once over all batches.
    pub fn pass(&mut self, batches: &[Ready], ticks: &[Tick]) -> (Cycles, Deeds) {
        let build = self.build.as_mut();
        let mut deeds = Deeds::default();
        let begin = Cycles::now();
        let mut from = 0;
        for tick in ticks {
            run(build, &batches[from..tick.before], &mut deeds);
            build.tick(*tick);
            from = tick.before;
        }
        run(build, &batches[from..], &mut deeds);
        let taken = Cycles::now().since(begin);
        self.account(&mut deeds);
        (taken, deeds)
    }

    /// The end of the packets.
    pub fn stop(&mut self, now: Timestamp) -> Deeds {
        let mut deeds = Deeds::default();
        self.build.stop(now);
        self.account(&mut deeds);
        deeds
    }

    /// Takes what was emitted into account, and leaves room for as much again.
    fn account(&mut self, deeds: &mut Deeds) {
        let mut records = self.build.take_records(std::mem::take(&mut self.spare));
        let mut hash = Xxh3::new();
        for record in records.iter() {
            hash.write_u16(record.stream);
            for field in self.fields.get(usize::from(record.stream)).into_iter().flatten() {
                hash.write(record.row.get(field.clone()).unwrap_or_default());
            }
            hash.write(record.tail);
        }
        (deeds.records, deeds.rows) = (records.len(), hash.finish());
        records.clear();
        self.spare = records;
        let patches = self.build.take_patches();
        let mut hash = Xxh3::new();
        for patch in &patches {
            hash.write_u32(patch.packet);
            hash.write_u32(patch.offset);
            hash.write(&patch.bytes);
        }
        (deeds.patches, deeds.patched) = (patches.len(), hash.finish());
    }
}

fn run(build: &mut dyn Contestant, batches: &[Ready], deeds: &mut Deeds) {
    for ready in batches {
        let drops = build.run(ready.batch);
        deeds.dropped += u64::from(drops.count_ones());
        deeds.verdicts = (deeds.verdicts.rotate_left(7) ^ drops).wrapping_mul(SPREAD);
    }
}

/// How often everything is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Turns of each build; a number is measured in each.
    pub rounds: usize,
    /// Whether each turn begins with a pass over the packets that is not measured, so that they and the module's tables are in the
    /// processor's cache again.
    pub warm: bool,
    /// Passes over the packets that are measured, each turn.
    pub passes: u32,
}

/// Runs all builds over the packets, one after the other, in each round beginning with another one; one round more at the start,
/// which is not measured; and ends them. Returns what each of them did, in all passes.
///
/// # Errors
/// [`BenchError::Differ`] where two do not do the same, [`BenchError::Fault`] where one has a fault.
pub fn contest(
    module: &str,
    entries: &mut [Entry<'_>],
    batches: &[Ready],
    ticks: &[Tick],
    effort: Effort,
) -> Result<Deeds, BenchError> {
    let Effort { rounds, warm, passes } = effort;
    let packets = packets_of(batches) * u64::from(passes);
    let mut total = Deeds::default();
    for round in 0..=rounds {
        let mut first: Option<(Deeds, String)> = None;
        for turn in 0..entries.len() {
            let place = (turn + round) % entries.len();
            let entry = &mut entries[place];
            let mut deeds = Deeds::default();
            if warm {
                deeds.add(entry.pass(batches, ticks).1);
            }
            let mut all = 0;
            for _ in 0..passes {
                let (taken, pass) = entry.pass(batches, ticks);
                deeds.add(pass);
                all += taken.0;
            }
            if round > 0 {
                entry.cycles.add(Cycles(all), packets);
            }
            agree(module, round, &mut first, entry, deeds)?;
        }
        if let Some((deeds, _)) = first {
            total.add(deeds);
        }
    }
    let now = batches.last().map_or(Timestamp(0), |ready| ready.latest);
    let mut first = None;
    for entry in entries {
        let deeds = entry.stop(now);
        agree(module, rounds + 1, &mut first, entry, deeds)?;
    }
    total.add(first.map_or_else(Deeds::default, |(deeds, _)| deeds));
    Ok(total)
}

fn agree(
    module: &str,
    round: usize,
    first: &mut Option<(Deeds, String)>,
    entry: &Entry<'_>,
    deeds: Deeds,
) -> Result<(), BenchError> {
    if let Some(fault) = entry.build.fault() {
        return Err(BenchError::Fault { module: format!("{module}, {}", entry.name), fault });
    }
    let (expected, one) = first.get_or_insert_with(|| (deeds, entry.name.clone()));
    if *expected == deeds {
        return Ok(());
    }
    Err(BenchError::Differ {
        module: module.to_owned(),
        round,
        one: one.clone(),
        other: entry.name.clone(),
        details: format!("{expected:?} and {deeds:?}"),
    })
}
