//! The messages between a node and a sandbox process: [`StartRequest`] and [`SandboxRequest`] to the process, and
//! [`CallReport`] to the node. Numbers are little-endian, and the length of a byte string precedes the string.
//!
//! The sandbox process trusts the node's requests. The node does not trust reports: [`CallReport::read`] accepts only
//! results that the module could have produced inside the node.

use crate::run::call_usage::{CountBytesMax, OutputAllowance};
use crate::run::host::LogLine;
use crate::run::instance::{BatchInput, FAULTS_DESCRIBED, InstanceCounters};
use crate::run::patching::{Patch, PatchBytes};
use crate::run::suspend::Call;
use crate::{Cycles, FuelSlice, ModuleEvent};
use std::fmt;
use weir_abi::entry::ENTRY_POINTS;
use weir_abi::{BATCH_PACKETS, limit};
use weir_units::{Bytes, Timestamp};
use weir_wire::WriteFields;
use {
    weir_admission::{Manifest, ParameterSetting, Profile, is_plain},
    weir_session::{RecordOrder, Records},
};

/// The error of an invalid message. In the text, "its" is the sender's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its message is invalid")]
pub(crate) struct InvalidMessage;

/// The longest fault description or log line, escapes included, in bytes.
const TEXT_MAX: usize = 4096;
/// The bytes in front of a row: its position in the block, a flag which is 1 for the position of a packet, the record
/// stream, and two lengths.
const ROW_HEAD_BYTES: usize = 17;
/// The length limit of a report, in bytes: the longest report of a batch or of a call without packets, with all log lines
/// and faults.
pub(crate) const REPORT_BYTES_MAX: usize = {
    const fn rows(number: u32, bytes: u32) -> usize {
        number as usize * ROW_HEAD_BYTES + bytes as usize
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

/// Encodes values one after the other.
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

    fn number32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(bytes);
    }
}

/// Decodes values one after the other.
#[derive(Debug)]
pub(crate) struct WireReader<'a>(pub(crate) &'a [u8]);

impl<'a> WireReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidMessage> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(InvalidMessage)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, InvalidMessage> {
        self.take().map(|[byte]| byte)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, InvalidMessage> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(InvalidMessage),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, InvalidMessage> {
        self.take().map(u64::from_le_bytes)
    }

    fn number32(&mut self) -> Result<u32, InvalidMessage> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads the number of items that follow, which is at most `count_max`.
    fn count(&mut self, count_max: usize) -> Result<usize, InvalidMessage> {
        usize::try_from(self.number32()?).ok().filter(|count| *count <= count_max).ok_or(InvalidMessage)
    }

    pub(crate) fn bytes(&mut self, len_max: usize) -> Result<&'a [u8], InvalidMessage> {
        let len = self.count(len_max)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(InvalidMessage)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self, len_max: usize) -> Result<&'a str, InvalidMessage> {
        std::str::from_utf8(self.bytes(len_max)?).map_err(|_| InvalidMessage)
    }

    pub(crate) fn end(self) -> Result<(), InvalidMessage> {
        if self.0.is_empty() { Ok(()) } else { Err(InvalidMessage) }
    }
}

/// A request of the node to a sandbox process.
#[derive(Debug)]
pub(crate) enum SandboxRequest {
    /// Map packets, or packet descriptors: areas of memory, one behind the other. The file descriptor of each area's memory
    /// follows the request.
    Map { is_packets: bool, areas: Vec<AreaRange>, is_fixed: bool },
    /// Call the module, after applying the changes.
    Begin(PendingChanges, Call, FuelSlice),
    /// Continue the suspended call.
    Resume(FuelSlice),
    /// Abort the suspended call.
    Abort,
    /// Send the contents of the blocks of state: [`read_blocks`] instead of a report.
    ReadState,
    /// Set the contents of the blocks of state.
    SetState(Vec<Vec<u8>>),
}

/// The most areas of a [`SandboxRequest::Map`].
const AREAS_MAX: usize = 256;

/// The range of an area in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AreaRange {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Changes of a module's environment since its last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingChanges {
    /// True if a new block begins.
    pub(crate) begins_block: bool,
    /// The mask of connected outputs, if it has changed.
    pub(crate) open: Option<u8>,
    /// True if the node does not need patches any more.
    pub(crate) ignores_patches: bool,
    /// True if the module's verified code was withdrawn.
    pub(crate) is_withdrawn: bool,
    /// The fields that the module may write.
    pub(crate) writes: WriteFields,
}

impl Default for PendingChanges {
    /// No changes; all writable fields may be written.
    fn default() -> Self {
        Self {
            begins_block: false,
            open: None,
            ignores_patches: false,
            is_withdrawn: false,
            writes: WriteFields::ALL,
        }
    }
}

fn put_slice(writer: &mut WireWriter, slice: FuelSlice) {
    writer.number(slice.fuel);
    writer.flag(slice.until.is_some());
    writer.number(slice.until.map_or(0, |until| until.0));
}

fn take_slice(reader: &mut WireReader<'_>) -> Result<FuelSlice, InvalidMessage> {
    let (fuel, is_timed, until) = (reader.number()?, reader.flag()?, reader.number()?);
    Ok(FuelSlice { fuel, until: is_timed.then_some(Cycles(until)) })
}

impl SandboxRequest {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = WireWriter::default();
        match self {
            Self::Map { is_packets, areas, is_fixed } => {
                writer.byte(0);
                writer.flag(*is_packets);
                writer.number32(u32::try_from(areas.len()).unwrap_or(u32::MAX));
                for AreaRange { offset, len } in areas {
                    writer.number(*offset);
                    writer.number(*len);
                }
                writer.flag(*is_fixed);
            }
            Self::Begin(changes, call, slice) => {
                writer.byte(1);
                writer.flag(changes.begins_block);
                writer.flag(changes.open.is_some());
                writer.byte(changes.open.unwrap_or_default());
                writer.flag(changes.ignores_patches);
                writer.flag(changes.is_withdrawn);
                writer.number32(changes.writes.bits());
                put_slice(&mut writer, *slice);
                put_call(&mut writer, *call);
            }
            Self::Resume(slice) => {
                writer.byte(2);
                put_slice(&mut writer, *slice);
            }
            Self::Abort => writer.byte(3),
            Self::ReadState => writer.byte(4),
            Self::SetState(blocks) => {
                writer.byte(5);
                put_blocks(&mut writer, blocks);
            }
        }
        writer.0
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let mut reader = WireReader(bytes);
        let request = match reader.byte()? {
            0 => Self::Map {
                is_packets: reader.flag()?,
                areas: (0..reader.count(AREAS_MAX)?)
                    .map(|_| Ok(AreaRange { offset: reader.number()?, len: reader.number()? }))
                    .collect::<Result<_, InvalidMessage>>()?,
                is_fixed: reader.flag()?,
            },
            1 => {
                let begins_block = reader.flag()?;
                let (is_open, open) = (reader.flag()?, reader.byte()?);
                let ignores_patches = reader.flag()?;
                let is_withdrawn = reader.flag()?;
                let writes = WriteFields::from_bits(reader.number32()?);
                let changes = PendingChanges {
                    begins_block,
                    open: is_open.then_some(open),
                    ignores_patches,
                    is_withdrawn,
                    writes,
                };
                let slice = take_slice(&mut reader)?;
                Self::Begin(changes, take_call(&mut reader)?, slice)
            }
            2 => Self::Resume(take_slice(&mut reader)?),
            3 => Self::Abort,
            4 => Self::ReadState,
            5 => Self::SetState(take_blocks(&mut reader)?),
            _ => return Err(InvalidMessage),
        };
        reader.end()?;
        Ok(request)
    }
}

/// Returns the length of the answer to [`SandboxRequest::ReadState`] for blocks of these sizes, in bytes.
pub(crate) fn blocks_len(sizes: &[usize]) -> usize {
    4 + sizes.iter().map(|size| 4 + size).sum::<usize>()
}

fn put_blocks(writer: &mut WireWriter, blocks: &[Vec<u8>]) {
    writer.number32(u32::try_from(blocks.len()).unwrap_or(u32::MAX));
    blocks.iter().for_each(|block| writer.bytes(block));
}

fn take_blocks(reader: &mut WireReader<'_>) -> Result<Vec<Vec<u8>>, InvalidMessage> {
    let count = reader.count(limit::STATES as usize)?;
    (0..count).map(|_| Ok(reader.bytes(limit::STATE_BYTES as usize)?.to_vec())).collect()
}

/// Encodes the answer to [`SandboxRequest::ReadState`].
pub(crate) fn write_blocks(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut writer = WireWriter::default();
    put_blocks(&mut writer, blocks);
    writer.0
}

/// Decodes the answer to [`SandboxRequest::ReadState`]: blocks of these sizes.
pub(crate) fn read_blocks(bytes: &[u8], sizes: &[usize]) -> Result<Vec<Vec<u8>>, InvalidMessage> {
    let mut reader = WireReader(bytes);
    let blocks = take_blocks(&mut reader)?;
    reader.end()?;
    if blocks.iter().map(Vec::len).eq(sizes.iter().copied()) { Ok(blocks) } else { Err(InvalidMessage) }
}

/// The number of a call's kind is, for an event, this number plus the index of the event's entry point.
const FIRST_EVENT_KIND: u8 = 5;

fn put_call(writer: &mut WireWriter, call: Call) {
    let (kind, values) = match call {
        Call::Start => (0, [0; 3]),
        Call::Batch(batch) => (1, [batch.descriptors.into(), batch.mask, batch.first.into()]),
        Call::Tick { now, periods, before } => (2, [now.0, periods, before.into()]),
        Call::Stop { now } => (3, [now.0, 0, 0]),
        Call::Sweep { now, periods, before } => (4, [now.0, periods, before.into()]),
        Call::Event(event) => {
            let [first, second] = event.arguments_without_length();
            (FIRST_EVENT_KIND + event.entry() as u8, [first, second, 0])
        }
    };
    writer.byte(kind);
    values.into_iter().for_each(|value| writer.number(value));
}

fn take_call(reader: &mut WireReader<'_>) -> Result<Call, InvalidMessage> {
    let kind = reader.byte()?;
    let values = [reader.number()?, reader.number()?, reader.number()?];
    let to_u32 = |value: u64| u32::try_from(value).map_err(|_| InvalidMessage);
    let [first, second, third] = values;
    Ok(match kind {
        0 => Call::Start,
        1 => Call::Batch(BatchInput { descriptors: to_u32(first)?, mask: second, first: to_u32(third)? }),
        2 => Call::Tick { now: Timestamp(first), periods: second, before: to_u32(third)? },
        3 => Call::Stop { now: Timestamp(first) },
        4 => Call::Sweep { now: Timestamp(first), periods: second, before: to_u32(third)? },
        kind => {
            let entry_point =
                kind.checked_sub(FIRST_EVENT_KIND).and_then(|place| ENTRY_POINTS.get(usize::from(place)));
            let event =
                entry_point.and_then(|found| ModuleEvent::from_arguments(found.entry, [first, second]));
            // There are no services in a sandbox process, so no event has a message.
            Call::Event(event.filter(|event| !event.has_message()).ok_or(InvalidMessage)?)
        }
    })
}

/// The first request to a sandbox process: the module, its code, and the facts needed to start it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StartRequest {
    pub(crate) module: Vec<u8>,
    pub(crate) settings: Vec<ParameterSetting>,
    /// The profile, as TOML.
    pub(crate) profile: String,
    /// The calibration of the profile, as TOML.
    pub(crate) calibration: String,
    pub(crate) is_suspendable: bool,
    /// [`FunctionIndices::imported`](crate::run::fault::FunctionIndices) of the code.
    pub(crate) imported: u64,
    /// [`FunctionIndices::functions`](crate::run::fault::FunctionIndices) of the code.
    pub(crate) functions: u64,
    /// [`FunctionIndices::added`](crate::run::fault::FunctionIndices) of the code.
    pub(crate) added: u64,
    /// The limit of the processor time of a call, in nanoseconds.
    pub(crate) call_limit: u64,
    /// True if the module runs without a meter.
    pub(crate) is_unmetered: bool,
    /// True if the object file is that of others, so that its code can be withdrawn.
    pub(crate) is_given: bool,
    pub(crate) code: Vec<u8>,
    /// The object file of the module's code by LLVM; empty if there is none.
    pub(crate) object: Vec<u8>,
}

impl StartRequest {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut writer = WireWriter(Vec::with_capacity(self.module.len() + self.code.len() + (1 << 16)));
        writer.bytes(&self.module);
        writer.number32(u32::try_from(self.settings.len()).unwrap_or(u32::MAX));
        for (name, words) in &self.settings {
            writer.bytes(name.as_bytes());
            writer.number32(u32::try_from(words.len()).unwrap_or(u32::MAX));
            words.iter().for_each(|word| writer.bytes(word.as_bytes()));
        }
        writer.bytes(self.profile.as_bytes());
        writer.bytes(self.calibration.as_bytes());
        writer.flag(self.is_suspendable);
        writer.number(self.imported);
        writer.number(self.functions);
        writer.number(self.added);
        writer.number(self.call_limit);
        writer.flag(self.is_unmetered);
        writer.flag(self.is_given);
        writer.bytes(&self.code);
        writer.bytes(&self.object);
        writer.0
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, InvalidMessage> {
        let (mut reader, len_max) = (WireReader(bytes), bytes.len());
        let module = reader.bytes(len_max)?.to_vec();
        let mut settings = Vec::new();
        for _ in 0..reader.count(len_max)? {
            let name = reader.text(len_max)?.to_owned();
            let words = (0..reader.count(len_max)?).map(|_| reader.text(len_max).map(str::to_owned));
            settings.push((name, words.collect::<Result<_, _>>()?));
        }
        let request = Self {
            module,
            settings,
            profile: reader.text(len_max)?.to_owned(),
            calibration: reader.text(len_max)?.to_owned(),
            is_suspendable: reader.flag()?,
            imported: reader.number()?,
            functions: reader.number()?,
            added: reader.number()?,
            call_limit: reader.number()?,
            is_unmetered: reader.flag()?,
            is_given: reader.flag()?,
            code: reader.bytes(len_max)?.to_vec(),
            object: reader.bytes(len_max)?.to_vec(),
        };
        reader.end()?;
        Ok(request)
    }
}

/// The report on a call: whether it is complete, the state of the module, and for a complete call its results.
#[derive(Debug, Default)]
pub(crate) struct CallReport {
    /// True if the call is suspended.
    pub(crate) is_suspended: bool,
    /// True if the module gets no more packets.
    pub(crate) has_ended: bool,
    /// True if the module's stop is complete.
    pub(crate) is_stopped: bool,
    /// Mask of packets to drop.
    pub(crate) drops: u64,
    /// Mask of packets that the module has not processed completely.
    pub(crate) unserved: u64,
    /// Size of the private memory.
    pub(crate) memory: Bytes,
    pub(crate) counters: InstanceCounters,
    /// Patches refused since the start because they touched fields that the module may not write.
    pub(crate) refused_patches: u64,
    pub(crate) records: Records,
    pub(crate) frames: Records,
    pub(crate) patches: Vec<Patch>,
    pub(crate) log: Vec<LogLine>,
    /// Descriptions of the faults since the last report.
    pub(crate) faults: Vec<String>,
}

/// The facts about a call with which a report on the call must agree.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) manifest: &'a Manifest,
    /// Mask of the call's packets; bit 0 is the packet with the index `first` in the block. 0 for a call without packets.
    pub(crate) mask: u64,
    pub(crate) first: u32,
    /// The position in the block of a call without packets.
    pub(crate) before: u32,
    pub(crate) limits: OutputLimits,
    /// The most memory that the module can have.
    pub(crate) memory: Bytes,
    pub(crate) frame_bytes: usize,
    /// The fields that the module may write.
    pub(crate) writes: WriteFields,
}

/// The limits on the output of a call. The host functions enforce the same limits on a module inside the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputLimits {
    records: CountBytesMax,
    frames: CountBytesMax,
    patches: usize,
    /// Log lines that the module may still log in its lifetime.
    lines: usize,
    /// Faults that may still be described in the module's lifetime.
    faults: usize,
}

impl OutputLimits {
    /// Returns the limits of a call with `packets` packets.
    pub(crate) fn of_batch(profile: &Profile, packets: u32) -> Self {
        Self {
            records: OutputAllowance::of_records(profile).packet.times(packets),
            frames: OutputAllowance::of_frames(profile).packet.times(packets),
            patches: profile.patches.min(limit::PATCHES_PER_PACKET) as usize * packets as usize,
            lines: 0,
            faults: 0,
        }
    }

    /// Returns the limits of a call without packets. A start cannot send frames, because no output is open yet.
    pub(crate) fn of_call(profile: &Profile, is_start: bool) -> Self {
        let frames = OutputAllowance::of_frames(profile).call;
        Self {
            records: OutputAllowance::of_records(profile).call,
            frames: CountBytesMax { number: if is_start { 0 } else { frames.number }, ..frames },
            patches: 0,
            lines: 0,
            faults: 0,
        }
    }

    /// Sets the most log lines and faults that the module may still have in its lifetime.
    pub(crate) fn with_texts(self, lines: usize, faults: usize) -> Self {
        Self { lines, faults, ..self }
    }
}

impl Expected<'_> {
    /// Returns true if the packet with this index in the block is in the call.
    fn has_packet(&self, index: u32) -> bool {
        let bit = index.checked_sub(self.first);
        bit.is_some_and(|bit| self.mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
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
        writer.flag(self.is_stopped);
        let InstanceCounters {
            packets,
            lost,
            over_limit,
            faults,
            records_dropped,
            records_discarded,
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
            over_limit,
            faults,
            records_dropped,
            records_discarded,
            frames_dropped,
            log_dropped,
            exceeded,
            strikes,
            self.refused_patches,
        ] {
            writer.number(number);
        }
        put_rows(&mut writer, &self.records);
        put_rows(&mut writer, &self.frames);
        writer.number32(u32::try_from(self.patches.len()).unwrap_or(u32::MAX));
        for patch in &self.patches {
            writer.number32(patch.packet);
            writer.number32(patch.offset);
            writer.bytes(&patch.bytes);
        }
        writer.number32(u32::try_from(self.log.len()).unwrap_or(u32::MAX));
        for line in &self.log {
            writer.byte(line.level);
            writer.bytes(line.text.as_bytes());
        }
        writer.number32(u32::try_from(self.faults.len()).unwrap_or(u32::MAX));
        self.faults.iter().for_each(|fault| writer.bytes(fault.as_bytes()));
        writer.0
    }

    /// Decodes and checks the report of a process that an attacker may control.
    pub(crate) fn read(bytes: &[u8], expected: Expected<'_>) -> Result<Self, InvalidMessage> {
        let mut reader = WireReader(bytes);
        let (is_suspended, has_ended, is_stopped) = (reader.flag()?, reader.flag()?, reader.flag()?);
        let drops = reader.number()? & expected.mask;
        let unserved = reader.number()? & expected.mask;
        let memory = Bytes(reader.number()?);
        if memory > expected.memory {
            return Err(InvalidMessage);
        }
        let counters = InstanceCounters {
            packets: reader.number()?,
            lost: reader.number()?,
            over_limit: reader.number()?,
            faults: reader.number()?,
            records_dropped: reader.number()?,
            records_discarded: reader.number()?,
            frames_dropped: reader.number()?,
            log_dropped: reader.number()?,
            exceeded: reader.number()?,
            strikes: reader.number()?,
        };
        let refused_patches = reader.number()?;
        let records = take_records(&mut reader, expected)?;
        let frames = take_frames(&mut reader, expected)?;
        let mut patches = Vec::new();
        for _ in 0..reader.count(expected.limits.patches)? {
            let (packet, offset) = (reader.number32()?, reader.number32()?);
            let bytes = PatchBytes::from_slice(reader.bytes(limit::PATCH_BYTES as usize)?);
            if !expected.has_packet(packet) {
                return Err(InvalidMessage);
            }
            // A patch's offset and fields are checked when the patch is applied. The fields that the module may write come
            // from the node.
            patches.push(Patch { packet, offset, bytes, fields: expected.writes });
        }
        let mut log = Vec::new();
        for _ in 0..reader.count(expected.limits.lines)? {
            let level = reader.byte()?;
            let text = plain(reader.text(TEXT_MAX)?);
            if level > 2 {
                return Err(InvalidMessage);
            }
            log.push(LogLine { level, text });
        }
        let faults = (0..reader.count(expected.limits.faults)?).map(|_| reader.text(TEXT_MAX).map(plain));
        let faults = faults.collect::<Result<_, _>>()?;
        reader.end()?;
        Ok(Self {
            is_suspended,
            has_ended,
            is_stopped,
            drops,
            unserved,
            memory,
            counters,
            refused_patches,
            records,
            frames,
            patches,
            log,
            faults,
        })
    }
}

/// Removes the characters that could disturb a terminal or forge a line.
fn plain(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c)).collect()
}

fn put_rows(writer: &mut WireWriter, rows: &Records) {
    writer.number32(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    for row in rows.iter() {
        let place = u32::try_from(row.order.index()).unwrap_or(u32::MAX);
        writer.number32(place);
        writer.flag(row.order.is_packet());
        writer.number32(row.stream.into());
        writer.bytes(row.row);
        writer.bytes(row.tail);
    }
}

/// A row of a report: a record or frame that the module has emitted, as the process claims.
struct Row<'a> {
    order: RecordOrder,
    stream: u16,
    row: &'a [u8],
    tail: &'a [u8],
}

fn take_row<'a>(
    reader: &mut WireReader<'a>,
    expected: Expected<'_>,
    bytes_left: &mut usize,
) -> Result<Row<'a>, InvalidMessage> {
    let (place, is_packet) = (reader.number32()?, reader.flag()?);
    let stream = u16::try_from(reader.number32()?).map_err(|_| InvalidMessage)?;
    let order = match is_packet {
        true if expected.has_packet(place) => RecordOrder::packet(place),
        false if expected.mask == 0 && place == expected.before => RecordOrder::tick(place),
        _ => return Err(InvalidMessage),
    };
    let (row, tail) = (reader.bytes(*bytes_left)?, reader.bytes(*bytes_left)?);
    *bytes_left = bytes_left.checked_sub(row.len() + tail.len()).ok_or(InvalidMessage)?;
    Ok(Row { order, stream, row, tail })
}

/// Decodes and checks records. Builds them as the host function `emit` does: rows have their stream's length, padding is
/// zeroed, and strings are copied.
fn take_records(reader: &mut WireReader<'_>, expected: Expected<'_>) -> Result<Records, InvalidMessage> {
    let (count_max, mut bytes_left) = expected.limits.records.as_sizes();
    let mut records = Records::default();
    for _ in 0..reader.count(count_max)? {
        let Row { order, stream, row, tail } = take_row(reader, expected, &mut bytes_left)?;
        let declared = expected.manifest.streams.get(usize::from(stream)).ok_or(InvalidMessage)?;
        if row.len() != declared.row_bytes() || tail.len() > limit::RECORD_STRING_BYTES as usize {
            return Err(InvalidMessage);
        }
        records.begin(order, stream, row);
        declared.normalise(records.last_row());
        let mut strings = 0_usize;
        for field in declared.fields.iter().filter(|field| field.ty.is_indirect() && !field.is_null(row)) {
            let word = |at: usize| {
                let bytes = row.get(at..).and_then(<[u8]>::first_chunk).ok_or(InvalidMessage)?;
                usize::try_from(u32::from_le_bytes(*bytes)).map_err(|_| InvalidMessage)
            };
            let (from, len) = (word(field.offset)?, word(field.offset + 4)?);
            let to = from.checked_add(len).ok_or(InvalidMessage)?;
            let bytes = tail.get(from..to).ok_or(InvalidMessage)?;
            // Bytes in two overlapping fields would be copied twice. So the sum of the lengths is checked before each copy.
            strings = strings.checked_add(len).filter(|sum| *sum <= tail.len()).ok_or(InvalidMessage)?;
            records.append_tail(field.offset, bytes);
        }
        // Each byte of the strings belongs to exactly one field.
        if strings != tail.len() {
            return Err(InvalidMessage);
        }
    }
    Ok(records)
}

fn take_frames(reader: &mut WireReader<'_>, expected: Expected<'_>) -> Result<Records, InvalidMessage> {
    let (count_max, mut bytes_left) = expected.limits.frames.as_sizes();
    let mut frames = Records::default();
    for _ in 0..reader.count(count_max)? {
        let Row { order, stream, row, tail } = take_row(reader, expected, &mut bytes_left)?;
        let fits = (limit::FRAME_BYTES_MIN as usize..=expected.frame_bytes).contains(&row.len());
        if !fits || !tail.is_empty() || usize::from(stream) >= expected.manifest.outputs.len() {
            return Err(InvalidMessage);
        }
        frames.begin(order, stream, row);
    }
    Ok(frames)
}

#[cfg(test)]
mod tests;
