//! Runs several builds of one module over the same packets in turn, and sees to it that they all do the same.

use crate::module::Module;
use crate::native::thread_time;
use crate::packets::{BLOCK_BATCHES, Packets, Ready, Tick, packets_of};
use crate::{BenchError, statistics::Sample};
use std::hash::Hasher;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_sandbox::{Batch, Calibration, Patch};
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
    /// A block of packets begins: what ticks may ask for is limited for each.
    fn begin_block(&mut self);
    /// What it sent since the last call; the stream of each frame is its output, and `empty` is used from then on.
    fn take_frames(&mut self, empty: Records) -> Records;
    /// What it published since the last call, with the tables' places.
    fn take_published(&mut self) -> Vec<(u32, Vec<u8>)>;
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
    /// Frames sent.
    pub frames: usize,
    /// Hash of their outputs and bytes.
    pub sent: u64,
    /// Versions of tables published.
    pub versions: usize,
    /// Hash of their tables and bytes.
    pub published: u64,
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
        self.frames += later.frames;
        self.sent = join(self.sent, later.sent);
        self.versions += later.versions;
        self.published = join(self.published, later.published);
    }
}

/// An odd number with many bits, so that what is joined with it stays distinguishable.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// How long a cycle of the time stamp counter is.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// In nanoseconds.
    pub nanos_per_cycle: f64,
}

impl Clock {
    /// Holds the counter against the clock, for a twentieth of a second.
    pub fn calibrate() -> Self {
        let calibration = Calibration::begin();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { nanos_per_cycle: calibration.nanos_per_cycle() }
    }
}

/// A build with its name and what it took.
pub struct Entry<'a> {
    /// How it was built.
    pub name: String,
    /// The build.
    pub build: Box<dyn Contestant + 'a>,
    /// Where it sees descriptors.
    packets: &'a Packets,
    /// Nanoseconds of processor time a packet, one number for each round.
    pub nanos: Sample,
    /// Where the fields of each stream's rows lie. What is between them is padding, and may be anything.
    fields: Vec<Vec<Range<usize>>>,
    compared: bool,
    taken: Vec<Records>,
    spare: Vec<Records>,
    patches: usize,
    patched: Vec<u8>,
    frames: Vec<Records>,
    published: Vec<(u32, Vec<u8>)>,
}

impl<'a> Entry<'a> {
    /// Nothing measured yet.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        packets: &'a Packets,
        build: Box<dyn Contestant + 'a>,
    ) -> Self {
        let place = |field: &Field| field.offset..field.offset + field.ty.size();
        let streams = module.manifest.streams.iter();
        let fields = streams.map(|stream| stream.fields.iter().map(place).collect()).collect();
        Self {
            name: name.into(),
            build,
            packets,
            nanos: Sample::default(),
            fields,
            compared: true,
            taken: Vec::new(),
            spare: Vec::new(),
            patches: 0,
            patched: Vec::new(),
            frames: Vec::new(),
            published: Vec::new(),
        }
    }

    /// Does not look at what it emits, which takes instructions too. Passes do not say what was done any more.
    pub fn without_comparison(self) -> Self {
        Self { compared: false, ..self }
    }

    /// Once over all batches. Returns the processor time that the build took.
    ///
    /// What it emits is taken after each block, as a run does, and looked at after the pass, so that this is not measured; nor is writing descriptors.
    ///
    /// # Errors
    /// Where descriptors cannot be written.
    // Instructions are counted in the function of this name.
    #[inline(never)]
    pub fn pass(&mut self, batches: &[Ready], ticks: &[Tick]) -> Result<(Duration, Deeds), BenchError> {
        let mut deeds = Deeds::default();
        let mut ticks = ticks.iter().peekable();
        let mut taken = Duration::ZERO;
        for (block, batches) in batches.chunks(BLOCK_BATCHES).enumerate() {
            self.packets.show(block)?;
            let begin = thread_time();
            self.build.begin_block();
            for (i, ready) in batches.iter().enumerate() {
                let drops = self.build.run(ready.batch);
                deeds.dropped += u64::from(drops.count_ones());
                deeds.verdicts = (deeds.verdicts.rotate_left(7) ^ drops).wrapping_mul(SPREAD);
                while let Some(tick) = ticks.next_if(|tick| tick.before <= block * BLOCK_BATCHES + i + 1) {
                    self.build.tick(*tick);
                }
            }
            self.take();
            taken += thread_time().saturating_sub(begin);
        }
        self.account(&mut deeds);
        Ok((taken, deeds))
    }

    /// The end of the packets.
    pub fn stop(&mut self, now: Timestamp) -> Deeds {
        let mut deeds = Deeds::default();
        self.build.stop(now);
        self.take();
        self.account(&mut deeds);
        deeds
    }

    /// Takes what was emitted and patched.
    fn take(&mut self) {
        let records = self.build.take_records(self.spare.pop().unwrap_or_default());
        self.taken.push(records);
        let frames = self.build.take_frames(Records::default());
        if !frames.is_empty() {
            self.frames.push(frames);
        }
        self.published.append(&mut self.build.take_published());
        for patch in self.build.take_patches() {
            self.patches += 1;
            self.patched.extend_from_slice(&patch.packet.to_le_bytes());
            self.patched.extend_from_slice(&patch.offset.to_le_bytes());
            self.patched.extend_from_slice(&patch.bytes);
        }
    }

    /// Takes what was taken into account, and leaves room for as much again.
    fn account(&mut self, deeds: &mut Deeds) {
        let mut hash = Xxh3::new();
        for mut records in self.taken.drain(..) {
            deeds.records += records.len();
            if self.compared {
                for record in records.iter() {
                    hash.write_u16(record.stream);
                    for field in self.fields.get(usize::from(record.stream)).into_iter().flatten() {
                        hash.write(record.row.get(field.clone()).unwrap_or_default());
                    }
                    hash.write(record.tail);
                }
            }
            records.clear();
            self.spare.push(records);
        }
        deeds.rows = hash.finish();
        (deeds.patches, deeds.patched) = (self.patches, xxhash_rust::xxh3::xxh3_64(&self.patched));
        self.patches = 0;
        self.patched.clear();
        let mut hash = Xxh3::new();
        for frames in self.frames.drain(..) {
            deeds.frames += frames.len();
            for frame in frames.iter() {
                hash.write_u16(frame.stream);
                hash.write(frame.row);
            }
        }
        deeds.sent = hash.finish();
        let mut hash = Xxh3::new();
        for (table, bytes) in self.published.drain(..) {
            deeds.versions += 1;
            hash.write_u32(table);
            hash.write_usize(bytes.len());
            hash.write(&bytes);
        }
        deeds.published = hash.finish();
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
                deeds.add(entry.pass(batches, ticks)?.1);
            }
            let mut all = Duration::ZERO;
            for _ in 0..passes {
                let (taken, pass) = entry.pass(batches, ticks)?;
                deeds.add(pass);
                all += taken;
            }
            if round > 0 {
                entry.nanos.add(all, packets);
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
