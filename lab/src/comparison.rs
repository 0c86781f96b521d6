//! Runs several builds of one module over the same packets in turn, measures them, and checks that their outputs are
//! equal. Used by [`crate::price`] and the differential tests.

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
    /// Processes a batch. Returns the mask of the packets that the module drops.
    fn run(&mut self, batch: BatchInput) -> u64;
    /// Calls `weir_tick` with a new packet time.
    fn tick(&mut self, tick: Tick);
    /// Calls `weir_stop`: there are no more packets.
    fn stop(&mut self, now: Timestamp);
    /// Begins a block of packets. The limit of the frames that ticks send counts anew in each block.
    fn begin_block(&mut self);
    /// Returns the output since the last call. Later records go to the buffer `empty`.
    fn take_output(&mut self, empty: Records) -> PassResult;
    /// The first fault of the module, if it had any.
    fn fault(&self) -> Option<String>;
}

/// The output of a build since it was last taken.
#[derive(Default)]
pub struct PassResult {
    /// Records, in the order of emission.
    pub records: Records,
    /// Sent frames. The field `stream` of each is the index of its output channel in the manifest.
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
    /// Joins the count and hash of later outputs.
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
    /// Dropped packets. The hash is over the verdicts of all batches.
    pub drops: CountedHash,
    /// Patches.
    pub patches: CountedHash,
    /// Sent frames, each with the index of its output channel.
    pub frames: CountedHash,
    /// Published versions of shared tables.
    pub tables: CountedHash,
}

impl OutputDigest {
    /// Joins the digest of later output.
    fn add(&mut self, later: Self) {
        self.records.add(later.records);
        self.drops.add(later.drops);
        self.patches.add(later.patches);
        self.frames.add(later.frames);
        self.tables.add(later.tables);
    }
}

/// An odd factor with many bits set: multiplying by it mixes the bits of joined hashes.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// The period of the time stamp counter.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Nanoseconds of a cycle.
    pub nanos_per_cycle: f64,
}

impl Clock {
    /// Measures the period against the system clock, for 50 ms.
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
    /// The name of the kind of build in tables.
    pub name: String,
    /// The build under measurement.
    pub build: Box<dyn ModuleBuild + 'a>,
    packets: &'a Packets,
    /// Nanoseconds of processor time per packet, one value per round.
    pub nanos: Sample,
    /// The byte ranges of the fields in each stream's rows. Other bytes are padding and are not compared.
    fields: Vec<Vec<Range<usize>>>,
    hashes_records: bool,
    /// Output that was taken from the build and is not in a digest yet.
    records: Vec<Records>,
    patch_count: usize,
    patch_bytes: Vec<u8>,
    frames: Vec<Records>,
    published: Vec<(u32, Vec<u8>)>,
    /// Empty buffers for later records.
    empty_records: Vec<Records>,
}

impl<'a> MeasuredBuild<'a> {
    /// A build with an empty sample.
    pub fn new(
        name: impl Into<String>,
        module: &Module,
        packets: &'a Packets,
        build: Box<dyn ModuleBuild + 'a>,
    ) -> Self {
        let byte_range = |field: &StreamField| field.offset..field.offset + field.ty.size();
        let streams = module.manifest.streams.iter();
        let fields = streams.map(|stream| stream.fields.iter().map(byte_range).collect()).collect();
        Self {
            name: name.into(),
            build,
            packets,
            nanos: Sample::default(),
            fields,
            hashes_records: true,
            records: Vec::new(),
            patch_count: 0,
            patch_bytes: Vec::new(),
            frames: Vec::new(),
            published: Vec::new(),
            empty_records: Vec::new(),
        }
    }

    /// Disables the hashing of records, so that its instructions are not counted.
    pub fn without_comparison(self) -> Self {
        Self { hashes_records: false, ..self }
    }

    /// Runs the build once over all batches. Returns its processor time, and the digest of its output.
    ///
    /// Records are taken after each block, as in a run. Hashing them and writing descriptors is not measured.
    // The part `instructions` of the benchmark counts the instructions in the function of this name.
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
            self.packets.write_descriptors(block)?;
            let begin = thread_time();
            self.build.begin_block();
            for (i, ready) in batches.iter().enumerate() {
                let drops = self.build.run(ready.batch);
                digest.drops.add(CountedHash { count: drops.count_ones() as usize, hash: drops });
                while let Some(tick) = ticks.next_if(|tick| tick.before <= block * BLOCK_BATCHES + i + 1) {
                    self.build.tick(*tick);
                }
            }
            self.collect_output();
            taken += thread_time().saturating_sub(begin);
        }
        self.digest_output(&mut digest);
        Ok((taken, digest))
    }

    /// Stops the build at the end of the packets.
    pub fn stop(&mut self, now: Timestamp) -> OutputDigest {
        let mut digest = OutputDigest::default();
        self.build.stop(now);
        self.collect_output();
        self.digest_output(&mut digest);
        digest
    }

    /// Takes the output of the build, and collects it for the next digest.
    fn collect_output(&mut self) {
        let PassResult { records, frames, patches, mut published } =
            self.build.take_output(self.empty_records.pop().unwrap_or_default());
        self.records.push(records);
        if !frames.is_empty() {
            self.frames.push(frames);
        }
        self.published.append(&mut published);
        for patch in patches {
            self.patch_count += 1;
            self.patch_bytes.extend_from_slice(&patch.packet.to_le_bytes());
            self.patch_bytes.extend_from_slice(&patch.offset.to_le_bytes());
            self.patch_bytes.extend_from_slice(&patch.bytes);
        }
    }

    /// Counts and hashes the collected output, and empties the buffers for later output.
    fn digest_output(&mut self, digest: &mut OutputDigest) {
        let mut hash = Xxh3::new();
        for mut records in self.records.drain(..) {
            digest.records.count += records.len();
            if self.hashes_records {
                for record in records.iter() {
                    hash.write_u16(record.stream);
                    for field in self.fields.get(usize::from(record.stream)).into_iter().flatten() {
                        hash.write(record.row.get(field.clone()).unwrap_or_default());
                    }
                    hash.write(record.tail);
                }
            }
            records.clear();
            self.empty_records.push(records);
        }
        digest.records.hash = hash.finish();
        digest.patches =
            CountedHash { count: self.patch_count, hash: xxhash_rust::xxh3::xxh3_64(&self.patch_bytes) };
        self.patch_count = 0;
        self.patch_bytes.clear();
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
    /// Begin each turn with an unmeasured pass, which fills the processor's cache.
    pub warm: bool,
    /// Measured passes over the packets per turn.
    pub passes: u32,
}

impl Repetitions {
    /// The repetitions for packets that stay in the processor's cache.
    pub fn cached(rounds: usize) -> Self {
        Self { rounds, warm: true, passes: 4 }
    }

    /// The repetitions for packets that exceed the cache: fewer rounds, of one pass each.
    pub fn streamed(rounds: usize) -> Self {
        Self { rounds: rounds / 4 + 2, warm: false, passes: 1 }
    }
}

/// Runs all builds over the packets in turn, each round starting with another build, and then stops them. The first
/// round is not measured.
/// Returns the digest of the output, which must be the same for all builds.
pub fn compare_builds(
    module: &str,
    builds: &mut [MeasuredBuild<'_>],
    batches: &[ReadyBatch],
    ticks: &[Tick],
    repetitions: Repetitions,
) -> Result<OutputDigest, LabError> {
    let Repetitions { rounds, warm, passes } = repetitions;
    let packets = packets_of(batches) * u64::from(passes);
    let mut total = OutputDigest::default();
    for round in 0..=rounds {
        let mut first: Option<(OutputDigest, String)> = None;
        for turn in 0..builds.len() {
            let index = (turn + round) % builds.len();
            let build = &mut builds[index];
            let mut digest = OutputDigest::default();
            if warm {
                digest.add(build.pass(batches, ticks)?.1);
            }
            let mut all = Duration::ZERO;
            for _ in 0..passes {
                let (taken, pass) = build.pass(batches, ticks)?;
                digest.add(pass);
                all += taken;
            }
            if round > 0 {
                build.nanos.add_time(all, packets);
            }
            check_equal(module, round, &mut first, build, digest)?;
        }
        if let Some((digest, _)) = first {
            total.add(digest);
        }
    }
    let now = batches.last().map_or(Timestamp(0), |ready| ready.latest);
    let mut first = None;
    for build in builds {
        let digest = build.stop(now);
        check_equal(module, rounds + 1, &mut first, build, digest)?;
    }
    total.add(first.map_or_else(OutputDigest::default, |(digest, _)| digest));
    Ok(total)
}

/// Fails if a build had a fault, or if its digest differs from that of the first build in this round.
fn check_equal(
    module: &str,
    round: usize,
    first: &mut Option<(OutputDigest, String)>,
    build: &MeasuredBuild<'_>,
    digest: OutputDigest,
) -> Result<(), LabError> {
    if let Some(fault) = build.build.fault() {
        return Err(LabError::failed(format_args!("{module}, {}", build.name), fault));
    }
    let (expected, one) = first.get_or_insert_with(|| (digest, build.name.clone()));
    if *expected == digest {
        return Ok(());
    }
    Err(LabError::Differ {
        module: module.to_owned(),
        round,
        one: one.clone(),
        other: build.name.clone(),
        details: format!("{expected:?} and {digest:?}"),
    })
}
