//! Runs several builds of one module over the same packets in turn, and checks that all of them do the same.

use crate::error::LabError;
use crate::module::Module;
use crate::native::thread_time;
use crate::packets::{BLOCK_BATCHES, Packets, Ready, Tick, packets_of};
use crate::statistics::Sample;
use std::hash::Hasher;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_sandbox::{BatchInput, ClockCheck, Patch};
use weir_units::Timestamp;
use xxhash_rust::xxh3::Xxh3;
use {weir_admission::StreamField, weir_session::Records};

/// A build of a module that can be given packets.
pub trait Contestant {
    /// Processes a batch; returns the mask of the packets that it drops.
    fn run(&mut self, batch: BatchInput) -> u64;
    /// Advances packet time.
    fn tick(&mut self, tick: Tick);
    /// Ends the packets.
    fn stop(&mut self, now: Timestamp);
    /// Begins a block of packets. The limits of ticks count for each block.
    fn begin_block(&mut self);
    /// Takes the results since the last call. `empty` is used for records from now on.
    fn take(&mut self, empty: Records) -> PassResult;
    /// The first fault.
    fn fault(&self) -> Option<String>;
}

/// Results of a build.
#[derive(Default)]
pub struct PassResult {
    /// Emitted records.
    pub records: Records,
    /// Sent frames, whose stream is their output.
    pub frames: Records,
    /// Patched packets.
    pub patches: Vec<Patch>,
    /// Published tables, with their places.
    pub published: Vec<(u32, Vec<u8>)>,
}

/// The results of a build in a round: counts and hashes.
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
    /// Appends later results.
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

/// An odd number with many bits, so that joined hashes stay distinguishable.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The length of a cycle of the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// In nanoseconds.
    pub nanos_per_cycle: f64,
}

impl Clock {
    /// Compares the counter with the clock, for a twentieth of a second.
    pub fn calibrate() -> Self {
        let calibration = ClockCheck::begin();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { nanos_per_cycle: calibration.nanos_per_cycle() }
    }
}

/// A build with its name and its measured times.
pub struct Entry<'a> {
    /// The way of building.
    pub name: String,
    /// The running build.
    pub build: Box<dyn Contestant + 'a>,
    packets: &'a Packets,
    /// Nanoseconds of processor time a packet, one number for each round.
    pub nanos: Sample,
    /// The places of fields in each stream's rows. Bytes between them are padding.
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
    /// An entry without measurements.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        packets: &'a Packets,
        build: Box<dyn Contestant + 'a>,
    ) -> Self {
        let place = |field: &StreamField| field.offset..field.offset + field.ty.size();
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

    /// Leaves out the hashes of records, which take instructions too.
    pub fn without_comparison(self) -> Self {
        Self { compared: false, ..self }
    }

    /// Runs once over all batches. Returns the processor time of the build.
    ///
    /// Records are taken after each block, as in a run. They are hashed after the pass, which is not measured, and neither is writing descriptors.
    // Instructions are counted in the function of this name.
    #[inline(never)]
    pub fn pass(&mut self, batches: &[Ready], ticks: &[Tick]) -> Result<(Duration, Deeds), LabError> {
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

    /// Takes all results.
    fn take(&mut self) {
        let PassResult { records, frames, patches, mut published } =
            self.build.take(self.spare.pop().unwrap_or_default());
        self.taken.push(records);
        if !frames.is_empty() {
            self.frames.push(frames);
        }
        self.published.append(&mut published);
        for patch in patches {
            self.patches += 1;
            self.patched.extend_from_slice(&patch.packet.to_le_bytes());
            self.patched.extend_from_slice(&patch.offset.to_le_bytes());
            self.patched.extend_from_slice(&patch.bytes);
        }
    }

    /// Counts and hashes the taken results, and leaves the buffers for the next ones.
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

/// The repetitions of a contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Turns of each build; a number is measured in each.
    pub rounds: usize,
    /// Each turn begins with a pass that is not measured, so that packets and the module's tables are in the processor's cache again.
    pub warm: bool,
    /// Measured passes over the packets in each turn.
    pub passes: u32,
}

impl Effort {
    /// For packets that stay in the processor's cache.
    pub fn cached(rounds: usize) -> Self {
        Self { rounds, warm: true, passes: 4 }
    }

    /// For more packets, in fewer rounds.
    pub fn streamed(rounds: usize) -> Self {
        Self { rounds: rounds / 4 + 2, warm: false, passes: 1 }
    }
}

/// Runs all builds over the packets in turn, in each round beginning with another one, and ends them. A first round is not measured. Returns the results
/// of all passes, which must be the same for all builds.
pub fn contest(
    module: &str,
    entries: &mut [Entry<'_>],
    batches: &[Ready],
    ticks: &[Tick],
    effort: Effort,
) -> Result<Deeds, LabError> {
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
) -> Result<(), LabError> {
    if let Some(fault) = entry.build.fault() {
        return Err(LabError::failed(format_args!("{module}, {}", entry.name), fault));
    }
    let (expected, one) = first.get_or_insert_with(|| (deeds, entry.name.clone()));
    if *expected == deeds {
        return Ok(());
    }
    Err(LabError::Differ {
        module: module.to_owned(),
        round,
        one: one.clone(),
        other: entry.name.clone(),
        details: format!("{expected:?} and {deeds:?}"),
    })
}
