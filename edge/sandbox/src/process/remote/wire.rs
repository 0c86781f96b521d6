//! What a node and a ward say to each other: numbers, lowest byte first, and bytes behind their lengths.
//!
//! What a node says is trusted by the ward. What a ward says is a stranger's: [`CallReport::read`] takes nothing that a module could not have done in the node
//! itself, and makes what it takes anew.

use crate::run::host::{LogLine, Patch};
use crate::run::instance::{BatchInput, FAULTS_DESCRIBED, InstanceCounters};
use crate::run::suspend::Call;
use crate::{Cycles, FuelSlice, News};
use std::fmt;
use weir_abi::entry::ENTRY_POINTS;
use weir_abi::{BATCH_PACKETS, limit};
use weir_units::{Bytes, Timestamp};
use weir_wire::WriteFields;
use {
    weir_admission::{Manifest, ParameterSetting, Profile, is_plain},
    weir_session::{RecordOrder, Records},
};

/// What was said is nothing that is ever said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what it says is nothing that a sandbox says")]
pub(crate) struct Nonsense;

/// The longest description of a fault, and the longest line of a log, with what was escaped.
const TEXT_MAX: usize = 4096;
/// Bytes in front of a row: where, whether for a packet, which stream, and two lengths.
const ROW_HEAD: usize = 17;
/// The longest report, of which there are two kinds: of a batch, with its patches, and of a call without packets; with lines and faults, each with its head.
pub(crate) const REPORT_BYTES_MAX: usize = {
    const fn rows(number: u32, bytes: u32) -> usize {
        number as usize * ROW_HEAD + bytes as usize
    }
    let batch = BATCH_PACKETS
        * (rows(limit::RECORDS_PER_PACKET, limit::RECORD_BYTES_PER_PACKET)
            + rows(limit::FRAMES_PER_PACKET, limit::FRAME_BYTES_PER_PACKET)
            + limit::PATCHES_PER_PACKET as usize * (limit::PATCH_BYTES as usize + 12));
    let call = rows(limit::RECORDS_PER_CALL, limit::RECORD_BYTES_PER_CALL)
        + rows(limit::FRAMES_PER_CALL, limit::FRAME_BYTES_PER_CALL);
    let texts = (limit::LOG_MESSAGES as usize + FAULTS_DESCRIBED) * (TEXT_MAX + 8);
    (if batch > call { batch } else { call }) + texts + 1024
};

/// Puts values behind each other.
#[derive(Debug, Default)]
pub(crate) struct WireWriter(pub(crate) Vec<u8>);

impl WireWriter {
    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn flag(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn short(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.short(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }
}

/// Takes values apart.
#[derive(Debug)]
pub(crate) struct WireReader<'a>(pub(crate) &'a [u8]);

impl<'a> WireReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Nonsense> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Nonsense)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Nonsense> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Nonsense> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Nonsense),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, Nonsense> {
        self.take().map(u64::from_le_bytes)
    }

    fn short(&mut self) -> Result<u32, Nonsense> {
        self.take().map(u32::from_le_bytes)
    }

    /// How many follow, of which there are no more than that.
    fn count(&mut self, most: usize) -> Result<usize, Nonsense> {
        usize::try_from(self.short()?).ok().filter(|count| *count <= most).ok_or(Nonsense)
    }

    pub(crate) fn bytes(&mut self, most: usize) -> Result<&'a [u8], Nonsense> {
        let len = self.count(most)?;
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Nonsense)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn text(&mut self, most: usize) -> Result<&'a str, Nonsense> {
        std::str::from_utf8(self.bytes(most)?).map_err(|_| Nonsense)
    }

    pub(crate) fn end(self) -> Result<(), Nonsense> {
        if self.0.is_empty() { Ok(()) } else { Err(Nonsense) }
    }
}

/// What a ward is to do.
#[derive(Debug)]
pub(crate) enum SandboxRequest {
    /// To map the memory of the descriptor that follows: of packets, or of their descriptors.
    Map { is_packets: bool, offset: u64, len: u64 },
    /// To call the module, after it has heard this.
    Begin(Notes, Call, FuelSlice),
    /// To go on with the call that is suspended.
    Resume(FuelSlice),
    /// To give that up.
    Abandon,
}

/// What has changed for a module since it was called last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Another block begins.
    pub(crate) begins_block: bool,
    /// Which of its outputs lead somewhere.
    pub(crate) open: Option<u8>,
    /// Nobody wants its patches.
    pub(crate) ignores_patches: bool,
    /// The fields that it may write.
    pub(crate) writes: WriteFields,
}

impl Default for Notes {
    /// Nothing has, and it may write what can be written.
    fn default() -> Self {
        Self { begins_block: false, open: None, ignores_patches: false, writes: WriteFields::ALL }
    }
}

fn put_budget(writer: &mut WireWriter, budget: FuelSlice) {
    writer.number(budget.fuel);
    writer.flag(budget.until.is_some());
    writer.number(budget.until.map_or(0, |until| until.0));
}

fn take_budget(reader: &mut WireReader<'_>) -> Result<FuelSlice, Nonsense> {
    let (fuel, is_timed, until) = (reader.number()?, reader.flag()?, reader.number()?);
    Ok(FuelSlice { fuel, until: is_timed.then_some(Cycles(until)) })
}

impl SandboxRequest {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = WireWriter::default();
        match self {
            Self::Map { is_packets, offset, len } => {
                writer.byte(0);
                writer.flag(*is_packets);
                writer.number(*offset);
                writer.number(*len);
            }
            Self::Begin(notes, call, budget) => {
                writer.byte(1);
                writer.flag(notes.begins_block);
                writer.flag(notes.open.is_some());
                writer.byte(notes.open.unwrap_or_default());
                writer.flag(notes.ignores_patches);
                writer.short(notes.writes.bits());
                put_budget(&mut writer, *budget);
                put_call(&mut writer, *call);
            }
            Self::Resume(budget) => {
                writer.byte(2);
                put_budget(&mut writer, *budget);
            }
            Self::Abandon => writer.byte(3),
        }
        writer.0
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Nonsense> {
        let mut reader = WireReader(bytes);
        let request = match reader.byte()? {
            0 => Self::Map { is_packets: reader.flag()?, offset: reader.number()?, len: reader.number()? },
            1 => {
                let begins_block = reader.flag()?;
                let (is_open, open) = (reader.flag()?, reader.byte()?);
                let ignores_patches = reader.flag()?;
                let writes = WriteFields::from_bits(reader.short()?);
                let notes = Notes { begins_block, open: is_open.then_some(open), ignores_patches, writes };
                let budget = take_budget(&mut reader)?;
                Self::Begin(notes, take_call(&mut reader)?, budget)
            }
            2 => Self::Resume(take_budget(&mut reader)?),
            3 => Self::Abandon,
            _ => return Err(Nonsense),
        };
        reader.end()?;
        Ok(request)
    }
}

/// The kind of a call for news, and the place of its entry point is added.
const NEWS: u8 = 4;

fn put_call(writer: &mut WireWriter, call: Call) {
    let (kind, values) = match call {
        Call::Start => (0, [0; 3]),
        Call::Batch(batch) => (1, [batch.descriptors.into(), batch.mask, batch.first.into()]),
        Call::Tick { now, periods, before } => (2, [now.0, periods, before.into()]),
        Call::Stop { now } => (3, [now.0, 0, 0]),
        Call::News(news) => {
            let [first, second] = news.numbers();
            (NEWS + news.entry() as u8, [first, second, 0])
        }
    };
    writer.byte(kind);
    values.into_iter().for_each(|value| writer.number(value));
}

fn take_call(reader: &mut WireReader<'_>) -> Result<Call, Nonsense> {
    let kind = reader.byte()?;
    let values = [reader.number()?, reader.number()?, reader.number()?];
    let short = |value: u64| u32::try_from(value).map_err(|_| Nonsense);
    let [first, second, third] = values;
    Ok(match kind {
        0 => Call::Start,
        1 => Call::Batch(BatchInput { descriptors: short(first)?, mask: second, first: short(third)? }),
        2 => Call::Tick { now: Timestamp(first), periods: second, before: short(third)? },
        3 => Call::Stop { now: Timestamp(first) },
        kind => {
            let known = kind.checked_sub(NEWS).and_then(|place| ENTRY_POINTS.get(usize::from(place)));
            let news = known.and_then(|known| News::of(known.entry, [first, second]));
            // The node sends no messages to a sandbox process.
            Call::News(news.filter(|news| !news.has_message()).ok_or(Nonsense)?)
        }
    })
}

/// What a ward was started with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) module: Vec<u8>,
    pub(crate) settings: Vec<ParameterSetting>,
    /// As TOML.
    pub(crate) profile: String,
    pub(crate) calibration: String,
    pub(crate) is_suspendable: bool,
    /// How many functions the module imports and has, and whether the loader's own comes between.
    pub(crate) imported: u64,
    pub(crate) functions: u64,
    pub(crate) is_shifted: bool,
    /// Nanoseconds.
    pub(crate) call_limit: u64,
    pub(crate) code: Vec<u8>,
}

impl Job {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = WireWriter(Vec::with_capacity(self.module.len() + self.code.len() + (1 << 16)));
        writer.bytes(&self.module);
        writer.short(u32::try_from(self.settings.len()).unwrap_or(u32::MAX));
        for (name, words) in &self.settings {
            writer.bytes(name.as_bytes());
            writer.short(u32::try_from(words.len()).unwrap_or(u32::MAX));
            words.iter().for_each(|word| writer.bytes(word.as_bytes()));
        }
        writer.bytes(self.profile.as_bytes());
        writer.bytes(self.calibration.as_bytes());
        writer.flag(self.is_suspendable);
        writer.number(self.imported);
        writer.number(self.functions);
        writer.flag(self.is_shifted);
        writer.number(self.call_limit);
        writer.bytes(&self.code);
        writer.0
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Nonsense> {
        let (mut reader, most) = (WireReader(bytes), bytes.len());
        let module = reader.bytes(most)?.to_vec();
        let mut settings = Vec::new();
        for _ in 0..reader.count(most)? {
            let name = reader.text(most)?.to_owned();
            let words = (0..reader.count(most)?).map(|_| reader.text(most).map(str::to_owned));
            settings.push((name, words.collect::<Result<_, _>>()?));
        }
        let job = Self {
            module,
            settings,
            profile: reader.text(most)?.to_owned(),
            calibration: reader.text(most)?.to_owned(),
            is_suspendable: reader.flag()?,
            imported: reader.number()?,
            functions: reader.number()?,
            is_shifted: reader.flag()?,
            call_limit: reader.number()?,
            code: reader.bytes(most)?.to_vec(),
        };
        reader.end()?;
        Ok(job)
    }
}

/// What has become of a call.
#[derive(Debug, Default)]
pub(crate) struct CallReport {
    /// It is not at its end.
    pub(crate) is_suspended: bool,
    /// The module gets no more packets.
    pub(crate) has_ended: bool,
    /// Packets of the batch that are dropped, and that it has not seen to their end.
    pub(crate) drops: u64,
    pub(crate) unserved: u64,
    /// Its private memory.
    pub(crate) memory: Bytes,
    pub(crate) counters: InstanceCounters,
    /// Patches that were refused, since its start, because of fields that it may not write.
    pub(crate) refused: u64,
    pub(crate) records: Records,
    pub(crate) frames: Records,
    pub(crate) patches: Vec<Patch>,
    pub(crate) log: Vec<LogLine>,
    /// What went wrong since the last report, in words.
    pub(crate) faults: Vec<String>,
}

/// What a report is about: whatever else it says is nonsense.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) manifest: &'a Manifest,
    /// The packets of the call, by their places from this one of the block on; none of a call without packets.
    pub(crate) mask: u64,
    pub(crate) first: u32,
    /// Where in the block a call without packets is.
    pub(crate) before: u32,
    pub(crate) most: OutputLimits,
    /// The most memory that the module has.
    pub(crate) memory: Bytes,
    pub(crate) frame_bytes: usize,
    /// The fields that the module may write.
    pub(crate) writes: WriteFields,
}

/// So many of something, with so many bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountAndBytes {
    number: usize,
    bytes: usize,
}

impl CountAndBytes {
    fn times(number: u32, bytes: u32, times: usize) -> Self {
        Self { number: number as usize * times, bytes: bytes as usize * times }
    }
}

/// What a call may leave behind: what the host would let it have in the node, by the operator's profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    records: CountAndBytes,
    frames: CountAndBytes,
    patches: usize,
    /// Of those that there may be in a module's life.
    lines: usize,
    faults: usize,
}

impl OutputLimits {
    /// Of a call with so many packets.
    pub(crate) fn of_batch(profile: &Profile, packets: u32) -> Self {
        let packets = packets as usize;
        let records = profile.records.min(limit::RECORDS_PER_PACKET);
        let frames = profile.frames.min(limit::FRAMES_PER_PACKET);
        Self {
            records: CountAndBytes::times(records, limit::RECORD_BYTES_PER_PACKET, packets),
            frames: CountAndBytes::times(frames, limit::FRAME_BYTES_PER_PACKET, packets),
            patches: profile.patches.min(limit::PATCHES_PER_PACKET) as usize * packets,
            lines: 0,
            faults: 0,
        }
    }

    /// Of a call without packets. None sends anything at its start: its outputs are not open yet.
    pub(crate) fn of_call(profile: &Profile, is_start: bool) -> Self {
        let records = profile.call_records.min(limit::RECORDS_PER_CALL);
        let frames = if is_start { 0 } else { profile.call_frames.min(limit::FRAMES_PER_CALL) };
        Self {
            records: CountAndBytes::times(records, limit::RECORD_BYTES_PER_CALL, 1),
            frames: CountAndBytes::times(frames, limit::FRAME_BYTES_PER_CALL, 1),
            patches: 0,
            lines: 0,
            faults: 0,
        }
    }
}

impl OutputLimits {
    /// With so many lines and faults that are left of those in a module's life.
    pub(crate) fn with_words(self, lines: usize, faults: usize) -> Self {
        Self { lines, faults, ..self }
    }
}

impl Expected<'_> {
    fn has_packet(&self, place: u32) -> bool {
        let at = place.checked_sub(self.first);
        at.is_some_and(|at| self.mask.checked_shr(at).unwrap_or(0) & 1 == 1)
    }
}

impl fmt::Debug for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected")
            .field("mask", &self.mask)
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

impl CallReport {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = WireWriter(Vec::with_capacity(256 + self.records.bytes() + self.frames.bytes()));
        writer.flag(self.is_suspended);
        writer.flag(self.has_ended);
        let InstanceCounters {
            packets,
            lost,
            faults,
            records_dropped,
            frames_dropped,
            log_dropped,
            exceeded,
            strikes,
        } = self.counters;
        for number in [
            self.drops,
            self.unserved,
            self.memory.0,
            packets,
            lost,
            faults,
            records_dropped,
            frames_dropped,
            log_dropped,
            exceeded,
            strikes,
            self.refused,
        ] {
            writer.number(number);
        }
        put_rows(&mut writer, &self.records);
        put_rows(&mut writer, &self.frames);
        writer.short(u32::try_from(self.patches.len()).unwrap_or(u32::MAX));
        for patch in &self.patches {
            writer.short(patch.packet);
            writer.short(patch.offset);
            writer.bytes(&patch.bytes);
        }
        writer.short(u32::try_from(self.log.len()).unwrap_or(u32::MAX));
        for line in &self.log {
            writer.byte(line.level);
            writer.bytes(line.text.as_bytes());
        }
        writer.short(u32::try_from(self.faults.len()).unwrap_or(u32::MAX));
        self.faults.iter().for_each(|fault| writer.bytes(fault.as_bytes()));
        writer.0
    }

    /// Reads what a ward says, whoever may have taken it over.
    pub(crate) fn read(bytes: &[u8], expected: Expected<'_>) -> Result<Self, Nonsense> {
        let mut reader = WireReader(bytes);
        let (is_suspended, has_ended) = (reader.flag()?, reader.flag()?);
        let drops = reader.number()? & expected.mask;
        let unserved = reader.number()? & expected.mask;
        let memory = Bytes(reader.number()?);
        if memory > expected.memory {
            return Err(Nonsense);
        }
        let counters = InstanceCounters {
            packets: reader.number()?,
            lost: reader.number()?,
            faults: reader.number()?,
            records_dropped: reader.number()?,
            frames_dropped: reader.number()?,
            log_dropped: reader.number()?,
            exceeded: reader.number()?,
            strikes: reader.number()?,
        };
        let refused = reader.number()?;
        let records = take_records(&mut reader, expected)?;
        let frames = take_frames(&mut reader, expected)?;
        let mut patches = Vec::new();
        for _ in 0..reader.count(expected.most.patches)? {
            let (packet, offset) = (reader.short()?, reader.short()?);
            let bytes = reader.bytes(limit::PATCH_BYTES as usize)?.to_vec();
            if !expected.has_packet(packet) {
                return Err(Nonsense);
            }
            // Where in the packet it is, and whether it may be there, is looked at when it is made: by what it may write now, whatever its process takes for that.
            patches.push(Patch { packet, offset, bytes, fields: expected.writes });
        }
        let mut log = Vec::new();
        for _ in 0..reader.count(expected.most.lines)? {
            let level = reader.byte()?;
            let text = plain(reader.text(TEXT_MAX)?);
            if level > 2 {
                return Err(Nonsense);
            }
            log.push(LogLine { level, text });
        }
        let faults = (0..reader.count(expected.most.faults)?).map(|_| reader.text(TEXT_MAX).map(plain));
        let faults = faults.collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self {
            is_suspended,
            has_ended,
            drops,
            unserved,
            memory,
            counters,
            refused,
            records,
            frames,
            patches,
            log,
            faults,
        })
    }
}

/// What cannot disturb a terminal or forge another line.
fn plain(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c)).collect()
}

fn put_rows(writer: &mut WireWriter, rows: &Records) {
    writer.short(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    for row in rows.iter() {
        let place = u32::try_from(row.order.index()).unwrap_or(u32::MAX);
        writer.short(place);
        writer.flag(row.order.is_packet());
        writer.short(row.stream.into());
        writer.bytes(row.row);
        writer.bytes(row.tail);
    }
}

/// A row that was allegedly emitted: where, in which stream, and its bytes.
struct Row<'a> {
    order: RecordOrder,
    stream: u16,
    row: &'a [u8],
    tail: &'a [u8],
}

fn take_row<'a>(
    reader: &mut WireReader<'a>,
    expected: Expected<'_>,
    left: &mut usize,
) -> Result<Row<'a>, Nonsense> {
    let (place, is_packet) = (reader.short()?, reader.flag()?);
    let stream = u16::try_from(reader.short()?).map_err(|_| Nonsense)?;
    let order = match is_packet {
        true if expected.has_packet(place) => RecordOrder::packet(place),
        false if expected.mask == 0 && place == expected.before => RecordOrder::tick(place),
        _ => return Err(Nonsense),
    };
    let (row, tail) = (reader.bytes(*left)?, reader.bytes(*left)?);
    *left = left.checked_sub(row.len() + tail.len()).ok_or(Nonsense)?;
    Ok(Row { order, stream, row, tail })
}

/// Records as the host makes them of what a module emits: rows of the stream's length, without what lies between its fields, and with strings of their own.
fn take_records(reader: &mut WireReader<'_>, expected: Expected<'_>) -> Result<Records, Nonsense> {
    let CountAndBytes { number, bytes: mut left } = expected.most.records;
    let mut records = Records::default();
    for _ in 0..reader.count(number)? {
        let Row { order, stream, row, tail } = take_row(reader, expected, &mut left)?;
        let declared = expected.manifest.streams.get(usize::from(stream)).ok_or(Nonsense)?;
        if row.len() != declared.row_bytes() {
            return Err(Nonsense);
        }
        records.begin(order, stream, row);
        records.blank(declared.padding());
        let mut strings = 0;
        for field in declared.fields.iter().filter(|field| field.ty.is_indirect()) {
            let word = |at: usize| {
                let bytes = row.get(at..).and_then(<[u8]>::first_chunk).ok_or(Nonsense)?;
                usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| Nonsense)
            };
            let (from, len) = (word(field.offset)?, word(field.offset + 4)?);
            let to = from.checked_add(len).ok_or(Nonsense)?;
            let bytes = tail.get(from..to).ok_or(Nonsense)?;
            strings += len;
            records.tail(field.offset, bytes);
        }
        // No byte that is nobody's, and none that is two fields'.
        if strings != tail.len() || strings > limit::RECORD_STRING_BYTES as usize {
            return Err(Nonsense);
        }
    }
    Ok(records)
}

fn take_frames(reader: &mut WireReader<'_>, expected: Expected<'_>) -> Result<Records, Nonsense> {
    let CountAndBytes { number, bytes: mut left } = expected.most.frames;
    let mut frames = Records::default();
    for _ in 0..reader.count(number)? {
        let Row { order, stream, row, tail } = take_row(reader, expected, &mut left)?;
        let fits = (limit::FRAME_BYTES_MIN as usize..=expected.frame_bytes).contains(&row.len());
        if !fits || !tail.is_empty() || usize::from(stream) >= expected.manifest.outputs.len() {
            return Err(Nonsense);
        }
        frames.begin(order, stream, row);
    }
    Ok(frames)
}

#[cfg(test)]
mod tests;
