//! What a node and a ward say to each other: numbers, lowest byte first, and bytes behind their lengths.
//!
//! What a node says is trusted by the ward. What a ward says is a stranger's: [`Report::read`] takes nothing that a module could not have done in the node
//! itself, and makes what it takes anew.

use crate::host::{LogLine, Patch};
use crate::instance::{Batch, Counters};
use crate::suspend::Call;
use crate::{Budget, Cycles, News};
use std::fmt;
use weir_abi::{BATCH_PACKETS, limit};
use weir_session::{Manifest, Order, Records, Setting, is_plain};
use weir_units::{Bytes, Timestamp};
use weir_wire::WriteFields;

/// What was said is nothing that is ever said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what it says is nothing that a sandbox says")]
pub(crate) struct Nonsense;

/// Records or frames of one report at most: those of a batch, or of a tick.
const ROWS_MAX: usize = 65_536;
/// Their bytes.
const ROW_BYTES_MAX: usize = (limit::RECORD_BYTES_PER_CALL as usize) + BATCH_PACKETS * ROW_SLACK;
const ROW_SLACK: usize = limit::FRAME_BYTES_PER_PACKET as usize;
/// Patches of one report.
const PATCHES_MAX: usize = BATCH_PACKETS * limit::PATCHES_PER_PACKET as usize;
/// Faults that are described in one report, and the longest description.
const FAULTS_MAX: usize = 64;
const TEXT_MAX: usize = 4096;
/// The longest report: records, frames, patches, lines and faults, each with its head.
pub(crate) const REPORT_BYTES_MAX: usize = 2 * (ROW_BYTES_MAX + 16 * ROWS_MAX)
    + PATCHES_MAX * (limit::PATCH_BYTES as usize + 16)
    + (limit::LOG_MESSAGES as usize + FAULTS_MAX) * (TEXT_MAX + 16)
    + 1024;

/// Puts values behind each other.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
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
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
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
pub(crate) enum Request {
    /// To map the memory of the descriptor that follows: of packets, or of their descriptors.
    Map { is_packets: bool, offset: u64, len: u64 },
    /// To call the module, after it has heard this.
    Begin(Notes, Call, Budget),
    /// To go on with the call that is suspended.
    Resume(Budget),
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

fn put_budget(writer: &mut Writer, budget: Budget) {
    writer.number(budget.fuel);
    writer.flag(budget.until.is_some());
    writer.number(budget.until.map_or(0, |until| until.0));
}

fn take_budget(reader: &mut Reader<'_>) -> Result<Budget, Nonsense> {
    let (fuel, is_timed, until) = (reader.number()?, reader.flag()?, reader.number()?);
    Ok(Budget { fuel, until: is_timed.then_some(Cycles(until)) })
}

impl Request {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
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
        let mut reader = Reader(bytes);
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

fn put_call(writer: &mut Writer, call: Call) {
    let (kind, values) = match call {
        Call::Start => (0, [0; 3]),
        Call::Batch(batch) => (1, [batch.descriptors.into(), batch.mask, batch.first.into()]),
        Call::Tick { now, periods, before } => (2, [now.0, periods, before.into()]),
        Call::Stop { now } => (3, [now.0, 0, 0]),
        Call::News(News::LowMemory { left }) => (4, [left.0, 0, 0]),
        // They have messages, which nobody sends to a ward.
        Call::News(News::Serve { call, service }) => (5, [call, service.into(), 0]),
        Call::News(News::Answer { ticket, status }) => (6, [ticket, u64::from(status.cast_unsigned()), 0]),
    };
    writer.byte(kind);
    values.into_iter().for_each(|value| writer.number(value));
}

fn take_call(reader: &mut Reader<'_>) -> Result<Call, Nonsense> {
    let kind = reader.byte()?;
    let values = [reader.number()?, reader.number()?, reader.number()?];
    let short = |value: u64| u32::try_from(value).map_err(|_| Nonsense);
    let [first, second, third] = values;
    Ok(match kind {
        0 => Call::Start,
        1 => Call::Batch(Batch { descriptors: short(first)?, mask: second, first: short(third)? }),
        2 => Call::Tick { now: Timestamp(first), periods: second, before: short(third)? },
        3 => Call::Stop { now: Timestamp(first) },
        4 => Call::News(News::LowMemory { left: Bytes(first) }),
        _ => return Err(Nonsense),
    })
}

/// What a ward was started with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) module: Vec<u8>,
    pub(crate) settings: Vec<Setting>,
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
        let mut writer = Writer(Vec::with_capacity(self.module.len() + self.code.len() + (1 << 16)));
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
        let (mut reader, most) = (Reader(bytes), bytes.len());
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
pub(crate) struct Report {
    /// It is not at its end.
    pub(crate) is_suspended: bool,
    /// The module gets no more packets.
    pub(crate) has_ended: bool,
    /// Packets of the batch that are dropped, and that it has not seen to their end.
    pub(crate) drops: u64,
    pub(crate) unserved: u64,
    /// Its private memory.
    pub(crate) memory: Bytes,
    pub(crate) counters: Counters,
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
    /// The packets of the call, by their places from this one of the block on.
    pub(crate) mask: u64,
    pub(crate) first: u32,
    /// The most memory that the module has.
    pub(crate) memory: Bytes,
    pub(crate) frame_bytes: usize,
    /// The fields that the module may write.
    pub(crate) writes: WriteFields,
}

impl fmt::Debug for Expected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expected")
            .field("mask", &self.mask)
            .field("first", &self.first)
            .finish_non_exhaustive()
    }
}

impl Report {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = Writer(Vec::with_capacity(256 + self.records.bytes() + self.frames.bytes()));
        writer.flag(self.is_suspended);
        writer.flag(self.has_ended);
        let Counters {
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
        let mut reader = Reader(bytes);
        let (is_suspended, has_ended) = (reader.flag()?, reader.flag()?);
        let drops = reader.number()? & expected.mask;
        let unserved = reader.number()? & expected.mask;
        let memory = Bytes(reader.number()?);
        if memory > expected.memory {
            return Err(Nonsense);
        }
        let counters = Counters {
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
        for _ in 0..reader.count(PATCHES_MAX)? {
            let (packet, offset) = (reader.short()?, reader.short()?);
            let bytes = reader.bytes(limit::PATCH_BYTES as usize)?.to_vec();
            let place = packet.checked_sub(expected.first).ok_or(Nonsense)?;
            if expected.mask.checked_shr(place).unwrap_or(0) & 1 == 0 {
                return Err(Nonsense);
            }
            // Where in the packet it is, and whether it may be there, is looked at when it is made.
            // By what it may write now, whatever its process takes for that.
            patches.push(Patch { packet, offset, bytes, fields: expected.writes });
        }
        let mut log = Vec::new();
        for _ in 0..reader.count(limit::LOG_MESSAGES as usize)? {
            let level = reader.byte()?;
            let text = plain(reader.text(TEXT_MAX)?);
            if level > 2 {
                return Err(Nonsense);
            }
            log.push(LogLine { level, text });
        }
        let faults = (0..reader.count(FAULTS_MAX)?).map(|_| reader.text(TEXT_MAX).map(plain));
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

fn put_rows(writer: &mut Writer, rows: &Records) {
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
    order: Order,
    stream: u16,
    row: &'a [u8],
    tail: &'a [u8],
}

fn take_row<'a>(
    reader: &mut Reader<'a>,
    expected: Expected<'_>,
    left: &mut usize,
) -> Result<Row<'a>, Nonsense> {
    let (place, is_packet) = (reader.short()?, reader.flag()?);
    let stream = u16::try_from(reader.short()?).map_err(|_| Nonsense)?;
    let most = expected.first.saturating_add(64);
    if place > most {
        return Err(Nonsense);
    }
    let order = if is_packet { Order::packet(place) } else { Order::tick(place) };
    let (row, tail) = (reader.bytes(*left)?, reader.bytes(*left)?);
    *left = left.checked_sub(row.len() + tail.len()).ok_or(Nonsense)?;
    Ok(Row { order, stream, row, tail })
}

/// Records as the host makes them of what a module emits: rows of the stream's length, without what lies between its fields, and with strings of their own.
fn take_records(reader: &mut Reader<'_>, expected: Expected<'_>) -> Result<Records, Nonsense> {
    let (mut records, mut left) = (Records::default(), ROW_BYTES_MAX);
    for _ in 0..reader.count(ROWS_MAX)? {
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

fn take_frames(reader: &mut Reader<'_>, expected: Expected<'_>) -> Result<Records, Nonsense> {
    let (mut frames, mut left) = (Records::default(), ROW_BYTES_MAX);
    for _ in 0..reader.count(ROWS_MAX)? {
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
mod tests {
    use super::*;
    use weir_session::manifest_of;

    const MANIFEST: &str = "name='m'\nversion='1'\nabi=1\nlicense='MIT'\nsummary='s'\nkind='active'\n\
        [[stream]]\nname='rows'\n[[stream.field]]\nname='a'\ntype='u8'\n[[stream.field]]\nname='b'\ntype='u64'\n\
        [[stream]]\nname='texts'\n[[stream.field]]\nname='x'\ntype='string'\n[[stream.field]]\nname='y'\ntype='string'\n\
        [[output]]\nname='up'\n";

    fn manifest() -> Manifest {
        let text = r#"(module (memory (export "memory") 1) (func (export "weir_packet") (param i32) (result i32) i32.const 0))"#;
        let mut bytes = wat::parse_str(text).unwrap();
        let mut section = b"\x0dweir.manifest".to_vec();
        section.extend_from_slice(MANIFEST.as_bytes());
        bytes.push(0);
        bytes.push(u8::try_from(section.len() & 0x7f).unwrap() | 0x80);
        bytes.push(u8::try_from(section.len() >> 7).unwrap());
        bytes.extend(section);
        manifest_of(&bytes).unwrap().0
    }

    fn expected(manifest: &Manifest) -> Expected<'_> {
        Expected {
            manifest,
            mask: 0b1011,
            first: 64,
            memory: Bytes(1 << 20),
            frame_bytes: 1500,
            writes: WriteFields::ALL,
        }
    }

    /// What an honest ward could say.
    fn report() -> Report {
        let mut records = Records::default();
        records.begin(Order::packet(65), 0, &[7; 16]);
        records.begin(Order::tick(66), 1, &[0; 16]);
        records.tail(0, b"first");
        records.tail(8, b"second");
        let mut frames = Records::default();
        frames.begin(Order::packet(67), 0, &[9; 60]);
        Report {
            drops: 0b10,
            unserved: 0b1,
            memory: Bytes(65_536),
            counters: Counters { packets: 2, lost: 1, faults: 1, ..Counters::default() },
            records,
            frames,
            patches: vec![Patch { packet: 67, offset: 15, bytes: vec![1, 2], fields: WriteFields::ALL }],
            log: vec![LogLine { level: 2, text: "hello".to_owned() }],
            faults: vec!["`unreachable` executed".to_owned()],
            ..Report::default()
        }
    }

    fn shown(records: &Records) -> Vec<(Order, u16, Vec<u8>, Vec<u8>)> {
        records.iter().map(|r| (r.order, r.stream, r.row.to_vec(), r.tail.to_vec())).collect()
    }

    #[test]
    fn what_an_honest_ward_says_is_taken_as_it_is() {
        let manifest = manifest();
        let read = Report::read(&report().write(), expected(&manifest)).unwrap();
        let honest = report();
        assert_eq!(
            (read.drops, read.unserved, read.memory, read.counters),
            (honest.drops, honest.unserved, honest.memory, honest.counters)
        );
        // What lies between two fields is nobody's.
        let mut row = [7; 16];
        row[1..8].fill(0);
        let records = shown(&read.records);
        assert_eq!(records[0], (Order::packet(65), 0, row.to_vec(), Vec::new()));
        assert_eq!(records[1].3, b"firstsecond");
        assert_eq!(records[1].2, shown(&honest.records)[1].2);
        assert_eq!(shown(&read.frames), shown(&honest.frames));
        assert_eq!((read.patches, read.log, read.faults), (honest.patches, honest.log, honest.faults));
        let all = Request::Begin(
            Notes {
                begins_block: true,
                open: Some(3),
                ignores_patches: true,
                writes: WriteFields::from_bits(3),
            },
            Call::Batch(Batch { descriptors: 0xE000_0040, mask: u64::MAX, first: 960 }),
            Budget { fuel: 12, until: Some(Cycles(u64::MAX)) },
        );
        for request in [
            all,
            Request::Begin(Notes::default(), Call::News(News::LowMemory { left: Bytes(5) }), Budget::WHOLE),
            Request::Begin(
                Notes::default(),
                Call::Tick { now: Timestamp(1), periods: 2, before: 3 },
                Budget::WHOLE,
            ),
            Request::Map { is_packets: true, offset: 4096, len: 1 << 26 },
            Request::Resume(Budget { fuel: 1, until: None }),
            Request::Abandon,
        ] {
            let bytes = request.write();
            assert_eq!(format!("{:?}", Request::read(&bytes).unwrap()), format!("{request:?}"));
        }
        let job = Job {
            module: vec![1; 300],
            settings: vec![("ports".to_owned(), vec!["53".to_owned(), "99".to_owned()])],
            profile: "p".to_owned(),
            calibration: "c".to_owned(),
            is_suspendable: true,
            imported: 1,
            functions: 2,
            is_shifted: true,
            call_limit: 3,
            code: vec![4; 1000],
        };
        assert_eq!(Job::read(&job.write()).unwrap(), job);
    }

    #[test]
    fn what_no_module_could_have_done_is_nonsense() {
        let manifest = manifest();
        let refused = |change: fn(&mut Report)| {
            let mut report = report();
            change(&mut report);
            Report::read(&report.write(), expected(&manifest)).is_err()
        };
        assert!(!refused(|_| {}));
        assert!(refused(|report| report.memory = Bytes((1 << 20) + 1)));
        // Another stream or output than there are, rows of another length, places beyond the batch.
        assert!(refused(|report| report.records.begin(Order::packet(65), 2, &[0; 16])));
        assert!(refused(|report| report.records.begin(Order::packet(65), 0, &[0; 15])));
        assert!(refused(|report| report.records.begin(Order::packet(129), 0, &[0; 16])));
        assert!(refused(|report| report.frames.begin(Order::packet(65), 1, &[0; 60])));
        assert!(refused(|report| report.frames.begin(Order::packet(65), 0, &[0; 13])));
        assert!(refused(|report| report.frames.begin(Order::packet(65), 0, &[0; 1501])));
        // Strings that are not there, or that nobody has.
        assert!(refused(|report| report.records.begin(Order::packet(65), 1, &[1; 16])));
        assert!(refused(|report| {
            report.records.begin(Order::packet(65), 0, &[0; 16]);
            report.records.tail(8, b"nobody's");
        }));
        // A packet that it was not called for, and one that is none.
        for packet in [0, 63, 66, 64 + 64, u32::MAX] {
            let mut report = report();
            report.patches.push(Patch { packet, offset: 0, bytes: Vec::new(), fields: WriteFields::ALL });
            assert!(Report::read(&report.write(), expected(&manifest)).is_err(), "{packet}");
        }
        assert!(refused(|report| report.patches[0].bytes = vec![0; 257]));
        assert!(refused(|report| report.log[0].level = 3));
        assert!(refused(|report| report.log = vec![report.log[0].clone(); 101]));
        // Nobody writes more than he may by saying so.
        let few = Expected { writes: WriteFields::from_bits(1), ..expected(&manifest) };
        let read = Report::read(&report().write(), few).unwrap();
        assert_eq!(read.patches[0].fields, WriteFields::from_bits(1));
        // Packets that it was not called for are none that it drops; and what it says forges no line.
        let mut forged = report();
        (forged.drops, forged.unserved) = (u64::MAX, u64::MAX);
        forged.faults = vec!["a\nb\u{1b}[2J".to_owned()];
        let read = Report::read(&forged.write(), expected(&manifest)).unwrap();
        assert_eq!((read.drops, read.unserved), (0b1011, 0b1011));
        assert!(!read.faults[0].contains(['\n', '\u{1b}']));
    }

    #[test]
    fn whatever_bytes_come_are_read_or_refused() {
        let manifest = manifest();
        let honest = report().write();
        // Cut anywhere; longer than it is; each byte another one; and lengths that are as large as can be.
        for end in 0..honest.len() {
            assert!(Report::read(&honest[..end], expected(&manifest)).is_err(), "{end}");
        }
        assert!(Report::read(&[honest.as_slice(), &[0]].concat(), expected(&manifest)).is_err());
        let check = |bytes: &[u8]| {
            let Ok(read) = Report::read(bytes, expected(&manifest)) else { return };
            assert!(read.records.iter().all(|row| {
                let stream = &manifest.streams[usize::from(row.stream)];
                row.row.len() == stream.row_bytes()
                    && stream.fields.iter().all(|field| field.read(row.row, row.tail).is_some())
            }));
            assert!(
                read.frames.iter().all(|frame| frame.stream == 0 && (14..=1500).contains(&frame.row.len()))
            );
            assert!(read.patches.iter().all(|patch| [64, 65, 67].contains(&patch.packet)));
            assert!(read.drops & !0b1011 == 0 && read.unserved & !0b1011 == 0 && read.memory.0 <= 1 << 20);
        };
        for at in 0..honest.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, honest[at] ^ 1] {
                let mut bytes = honest.clone();
                bytes[at] = value;
                check(&bytes);
                if let Some(word) = bytes.get_mut(at..at + 4) {
                    word.fill(0xff);
                    check(&bytes);
                }
            }
        }
        // The same for what the node says: a ward that reads nonsense ends, and does nothing else.
        let request =
            Request::Begin(Notes::default(), Call::Stop { now: Timestamp(1) }, Budget::WHOLE).write();
        for end in 0..request.len() {
            assert!(Request::read(&request[..end]).is_err(), "{end}");
        }
    }
}
