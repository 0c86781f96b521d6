//! Runs several builds of one module over the same packets in turn, and checks that their outputs are equal.

use crate::error::LabError;
use crate::module::Module;
use crate::native::thread_time;
use crate::packets::{BLOCK_BATCHES, Packets, ReadyBatch, Tick, packets_of};
use crate::statistics::Sample;
use std::hash::Hasher;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_sandbox::{BatchInput, ClockCheck, Patch};
use weir_units::Timestamp;
use xxhash_rust::xxh3::Xxh3;
use {weir_admission::StreamField, weir_session::Records};

/// A running build of a module.
pub trait ModuleBuild {
    /// Processes a batch; returns the mask of the packets that it drops.
    fn run(&mut self, batch: BatchInput) -> u64;
    /// Advances packet time.
    fn tick(&mut self, tick: Tick);
    /// Ends the packets.
    fn stop(&mut self, now: Timestamp);
    /// Begins a block of packets. The limits of a tick apply to each block separately.
    fn begin_block(&mut self);
    /// Takes the output since the last call. Later records go to `empty`.
    fn take(&mut self, empty: Records) -> PassResult;
    /// The first fault.
    fn fault(&self) -> Option<String>;
}

/// The output of a build.
#[derive(Default)]
pub struct PassResult {
    /// Records, in the order of emission.
    pub records: Records,
    /// Sent frames. The stream of each is the number of its output.
    pub frames: Records,
    /// Patches, in the order of the calls.
    pub patches: Vec<Patch>,
    /// Published tables: the index in the manifest, and the contents.
    pub published: Vec<(u32, Vec<u8>)>,
}

/// The number of outputs of one kind, and a hash of them in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedHash {
    /// The number of outputs.
    pub count: usize,
    /// The hash of their contents.
    pub hash: u64,
}

impl CountedHash {
    /// Appends later outputs.
    fn add(&mut self, later: Self) {
        self.count += later.count;
        self.hash = (self.hash.rotate_left(9) ^ later.hash).wrapping_mul(SPREAD);
    }
}

/// The digest of a build's output in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputDigest {
    /// Emitted records: stream, fields and strings.
    pub records: CountedHash,
    /// Dropped packets. The hash is that of all verdicts.
    pub drops: CountedHash,
    /// Patches.
    pub patches: CountedHash,
    /// Sent frames, with their outputs.
    pub frames: CountedHash,
    /// Published versions of tables.
    pub tables: CountedHash,
}

impl OutputDigest {
    /// Appends later output.
    fn add(&mut self, later: Self) {
        self.records.add(later.records);
        self.drops.add(later.drops);
        self.patches.add(later.patches);
        self.frames.add(later.frames);
        self.tables.add(later.tables);
    }
}

/// An odd number with many bits, so that joined hashes stay distinguishable.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The period of the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds of a cycle.
    pub nanos_per_cycle: f64,
}

impl Clock {
    /// Compares the counter with the clock for 50 ms.
    pub fn calibrate() -> Self {
        let calibration = ClockCheck::begin();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { nanos_per_cycle: calibration.nanos_per_cycle() }
    }
}

/// A build with its measured times.
pub struct MeasuredBuild<'a> {
    /// The kind of build, as in tables.
    pub name: String,
    /// The build under measurement.
    pub build: Box<dyn ModuleBuild + 'a>,
    packets: &'a Packets,
    /// Nanoseconds of processor time per packet, one value per round.
    pub nanos: Sample,
    /// The byte ranges of the fields in each stream's rows. Other bytes are padding and are not compared.
    fields: Vec<Vec<Range<usize>>>,
    compared: bool,
    taken: Vec<Records>,
    spare: Vec<Records>,
    patches: usize,
    patched: Vec<u8>,
    frames: Vec<Records>,
    published: Vec<(u32, Vec<u8>)>,
}

impl<'a> MeasuredBuild<'a> {
    /// A build without measurements.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        packets: &'a Packets,
        build: Box<dyn ModuleBuild + 'a>,
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

    /// Disables the hashing of records, so that its instructions are not counted.
    pub fn without_comparison(self) -> Self {
        Self { compared: false, ..self }
    }

    /// Runs the build once over all batches. Returns its processor time, and the digest of its output.
    ///
    /// Records are taken after each block, as in a run. Hashing them and writing descriptors is not measured.
    // `instructions` counts inside the function of this name.
    #[inline(never)]
    pub fn pass(
        &mut self,
        batches: &[ReadyBatch],
        ticks: &[Tick],
    ) -> Result<(Duration, OutputDigest), LabError> {
        let mut digest = OutputDigest::default();
        let mut ticks = ticks.iter().peekable();
        let mut taken = Duration::ZERO;
        for (block, batches) in batches.chunks(BLOCK_BATCHES).enumerate() {
            self.packets.show(block)?;
            let begin = thread_time();
            self.build.begin_block();
            for (i, ready) in batches.iter().enumerate() {
                let drops = self.build.run(ready.batch);
                digest.drops.add(CountedHash { count: drops.count_ones() as usize, hash: drops });
                while let Some(tick) = ticks.next_if(|tick| tick.before <= block * BLOCK_BATCHES + i + 1) {
                    self.build.tick(*tick);
                }
            }
            self.take();
            taken += thread_time().saturating_sub(begin);
        }
        self.account(&mut digest);
        Ok((taken, digest))
    }

    /// Stops the build at the end of the packets.
    pub fn stop(&mut self, now: Timestamp) -> OutputDigest {
        let mut digest = OutputDigest::default();
        self.build.stop(now);
        self.take();
        self.account(&mut digest);
        digest
    }

    /// Collects the output since the last call.
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

    /// Counts and hashes the collected output. The buffers are kept for later output.
    fn account(&mut self, digest: &mut OutputDigest) {
        let mut hash = Xxh3::new();
        for mut records in self.taken.drain(..) {
            digest.records.count += records.len();
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
        digest.records.hash = hash.finish();
        digest.patches = CountedHash { count: self.patches, hash: xxhash_rust::xxh3::xxh3_64(&self.patched) };
        self.patches = 0;
        self.patched.clear();
        let mut hash = Xxh3::new();
        for frames in self.frames.drain(..) {
            digest.frames.count += frames.len();
            for frame in frames.iter() {
                hash.write_u16(frame.stream);
                hash.write(frame.row);
            }
        }
        digest.frames.hash = hash.finish();
        let mut hash = Xxh3::new();
        for (table, bytes) in self.published.drain(..) {
            digest.tables.count += 1;
            hash.write_u32(table);
            hash.write_usize(bytes.len());
            hash.write(&bytes);
        }
        digest.tables.hash = hash.finish();
    }
}

/// The repetitions of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetitions {
    /// Measured values per build.
    pub rounds: usize,
    /// True: each turn begins with an unmeasured pass, which fills the processor's cache.
    pub warm: bool,
    /// Measured passes over the packets per turn.
    pub passes: u32,
}

impl Repetitions {
    /// For packets that stay in the processor's cache.
    pub fn cached(rounds: usize) -> Self {
        Self { rounds, warm: true, passes: 4 }
    }

    /// For packets that exceed the cache: fewer rounds of one pass.
    pub fn streamed(rounds: usize) -> Self {
        Self { rounds: rounds / 4 + 2, warm: false, passes: 1 }
    }
}

/// Runs all builds over the packets in turn, each round starting with another build, and then stops them. The first round is not measured.
/// Returns the digest of the output, which must be the same for all builds.
pub fn compare_builds(
    module: &str,
    entries: &mut [MeasuredBuild<'_>],
    batches: &[ReadyBatch],
    ticks: &[Tick],
    repetitions: Repetitions,
) -> Result<OutputDigest, LabError> {
    let Repetitions { rounds, warm, passes } = repetitions;
    let packets = packets_of(batches) * u64::from(passes);
    let mut total = OutputDigest::default();
    for round in 0..=rounds {
        let mut first: Option<(OutputDigest, String)> = None;
        for turn in 0..entries.len() {
            let place = (turn + round) % entries.len();
            let entry = &mut entries[place];
            let mut digest = OutputDigest::default();
            if warm {
                digest.add(entry.pass(batches, ticks)?.1);
            }
            let mut all = Duration::ZERO;
            for _ in 0..passes {
                let (taken, pass) = entry.pass(batches, ticks)?;
                digest.add(pass);
                all += taken;
            }
            if round > 0 {
                entry.nanos.add(all, packets);
            }
            agree(module, round, &mut first, entry, digest)?;
        }
        if let Some((digest, _)) = first {
            total.add(digest);
        }
    }
    let now = batches.last().map_or(Timestamp(0), |ready| ready.latest);
    let mut first = None;
    for entry in entries {
        let digest = entry.stop(now);
        agree(module, rounds + 1, &mut first, entry, digest)?;
    }
    total.add(first.map_or_else(OutputDigest::default, |(digest, _)| digest));
    Ok(total)
}

fn agree(
    module: &str,
    round: usize,
    first: &mut Option<(OutputDigest, String)>,
    entry: &MeasuredBuild<'_>,
    digest: OutputDigest,
) -> Result<(), LabError> {
    if let Some(fault) = entry.build.fault() {
        return Err(LabError::failed(format_args!("{module}, {}", entry.name), fault));
    }
    let (expected, one) = first.get_or_insert_with(|| (digest, entry.name.clone()));
    if *expected == digest {
        return Ok(());
    }
    Err(LabError::Differ {
        module: module.to_owned(),
        round,
        one: one.clone(),
        other: entry.name.clone(),
        details: format!("{expected:?} and {digest:?}"),
    })
}
