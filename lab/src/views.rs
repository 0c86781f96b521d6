//! The cost of rewriting a packet for a view, compared with a plain copy. The part `view` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::packets::copy_packets;
use crate::statistics::{Action, Sample, measure_in_turn, processor_time, to_f64};
use crate::table::Table;
use crate::{anonymised, paths};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;
use weir_abi::Descriptor;
use weir_netio::{Capture, CaptureInput, CaptureNext, Selection, ViewStage};
use weir_wire::view::{Transform, ViewKey};
use weir_wire::{Meta, PacketView, classify_into};

/// The number of packets whose headers stay in the processor's cache.
const CACHED: usize = 4096;
/// The least number of packets of a measurement.
const MEASURED: usize = 65_536;
/// The measured views, with the promised rates over the trace in millions of packets per second.
const VIEWS: [(&str, &str, Option<f64>); 5] = [
    ("headers only", "payload=none", Some(6.0)),
    ("headers only, addresses anonymised", "addresses=anonymised", Some(4.0)),
    ("headers only, addresses by Crypto-PAn", "addresses=crypto-pan", None),
    ("addresses anonymised, payload shown", "addresses=anonymised,payload=all", None),
    ("headers only, addresses zeroed", "addresses=zeroed", None),
];
/// The alignment of packets in bytes, as in an arena.
const ALIGNMENT: usize = 64;

/// A set of packets in contiguous memory, with their descriptors.
struct PacketSet {
    name: &'static str,
    bytes: Vec<u8>,
    /// The offset in `bytes` and the descriptor of each packet.
    packets: Vec<(usize, Descriptor)>,
    /// The length of the longest packet.
    len_max: usize,
}

impl PacketSet {
    fn new(name: &'static str) -> Self {
        Self { name, bytes: Vec::new(), packets: Vec::new(), len_max: 0 }
    }

    /// Adds a packet.
    fn push(&mut self, packet: &[u8], descriptor: Descriptor) {
        self.packets.push((self.bytes.len(), descriptor));
        self.bytes.extend_from_slice(packet);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.len_max = self.len_max.max(packet.len());
    }

    /// A set of the first `count` packets.
    fn first(&self, name: &'static str, count: usize) -> Self {
        let mut first = Self::new(name);
        for (packet, descriptor) in self.iter().take(count) {
            first.push(packet, *descriptor);
        }
        first
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &Descriptor)> {
        self.packets.iter().map(|(at, descriptor)| {
            let len = usize::try_from(descriptor.cap_len).unwrap_or(0);
            (self.bytes.get(*at..*at + len).unwrap_or_default(), descriptor)
        })
    }

    /// The set of all packets of a capture.
    fn of_capture(path: &Path) -> Result<Self, LabError> {
        let mut packets = Self::new("trace");
        for (packet, descriptor) in copy_packets(path, usize::MAX)? {
            packets.push(&packet, descriptor);
        }
        Ok(packets)
    }

    /// Nanoseconds of `work` per packet, after one pass that fills the cache.
    fn time(&self, mut work: impl FnMut(&[u8], &Descriptor)) -> f64 {
        // Several passes over a small set, so that each measurement takes some milliseconds.
        let passes = (MEASURED / self.packets.len().max(1)).max(1);
        let mut pass = || self.iter().for_each(|(packet, descriptor)| work(black_box(packet), descriptor));
        pass();
        let time = processor_time(|| (0..passes).for_each(|_| pass()));
        time.as_secs_f64() * 1e9 / to_f64(passes * self.packets.len().max(1))
    }

    /// Measures a plain copy, a copy with a new descriptor, and each view, in nanoseconds per packet.
    fn measure(&self, rounds: usize, transforms: &[Transform]) -> Result<Vec<Sample>, LabError> {
        let buffer = || vec![0; self.len_max];
        let (mut copied, mut described) = (buffer(), buffer());
        let mut actions: Vec<Action<'_>> = vec![
            Box::new(move || Ok(self.time(|packet, _| copy(&mut copied, packet)))),
            Box::new(move || Ok(self.time(|packet, original| describe(&mut described, packet, original)))),
        ];
        for transform in transforms {
            let (mut transform, mut out) = (transform.clone(), buffer());
            actions.push(Box::new(move || {
                Ok(self.time(|packet, original| {
                    let shown = transform.apply(packet, original, &mut out);
                    let bytes = out.get(..shown.len).unwrap_or_default();
                    black_box(transform.describe(bytes, original));
                    black_box(&mut out);
                }))
            }));
        }
        measure_in_turn(rounds, &mut actions)
    }
}

/// Copies a packet.
fn copy(out: &mut [u8], packet: &[u8]) {
    if let Some(out) = out.get_mut(..packet.len()) {
        out.copy_from_slice(packet);
    }
    black_box(out);
}

/// Copies a packet, and classifies the copy.
fn describe(out: &mut [u8], packet: &[u8], original: &Descriptor) {
    copy(out, packet);
    if let Some(meta) = Meta::from_descriptor(original) {
        let mut descriptor = Descriptor::default();
        let copied = out.get(..packet.len()).unwrap_or_default();
        black_box(classify_into(copied, &meta, &mut descriptor).is_ok());
        black_box(&descriptor);
    }
}

/// The table of the time to select packets on a node, from a block of the capture to modules' memory: unchanged, and under
/// each view.
fn selections(trace: &Path, rounds: usize, transforms: &[Transform]) -> Result<Table, LabError> {
    let view_stages = transforms.iter().map(|transform| Some(ViewStage::new(transform.clone(), None)));
    let mut actions: Vec<Action<'_>> = Vec::new();
    for view_stage in std::iter::once(None).chain(view_stages) {
        actions.push(Box::new(move || {
            let mut selection = Selection::with_views(view_stage.iter().cloned().collect())
                .context("memory for a selection")?;
            // The first pass fills the cache, and touches all memory.
            select(trace, &mut selection)?;
            select(trace, &mut selection)
        }));
    }
    let mut table = Table::new(
        "on a node, the trace from its blocks to modules' memory | ns | quartiles | millions a second",
    );
    let names = std::iter::once("copied for modules").chain(VIEWS.iter().map(|(_, text, _)| *text));
    for (name, sample) in names.zip(measure_in_turn(rounds, &mut actions)?) {
        table.row(format_args!("{name} | {} | {:.2}", sample.cells(1), rate(&sample)));
    }
    Ok(table)
}

/// Selects all packets of the trace. Returns the nanoseconds per packet.
fn select(trace: &Path, selection: &mut Selection) -> Result<f64, LabError> {
    let mut capture = Capture::open(CaptureInput::File(trace.to_owned()))?;
    let (mut time, mut packets) = (Duration::ZERO, 0);
    while let CaptureNext::Block(block) = capture.next_block()? {
        let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
        time += processor_time(|| {
            packets += black_box(selection.select(&block, &masks)).block.map_or(0, |block| block.len());
        });
    }
    Ok(time.as_secs_f64() * 1e9 / to_f64(packets.max(1)))
}

/// The median of a time per packet in nanoseconds, as millions of packets per second.
fn rate(sample: &Sample) -> f64 {
    1000.0 / sample.median()
}

/// The tables of nanoseconds per packet and millions of packets per second, by view and packets.
pub fn tables(trace: &Path, rounds: usize) -> Result<String, LabError> {
    let whole = PacketSet::of_capture(trace)?;
    let cached = whole.first("trace's first", CACHED);
    let all = [whole, cached];
    let key = ViewKey::derive(&[9; 32], b"bench");
    let mut transforms = Vec::new();
    for (_, text, _) in VIEWS {
        let view: PacketView = text.parse().context(format_args!("view `{text}`"))?;
        transforms.push(Transform::new(view, &key));
    }
    let mut criteria = Vec::new();
    let mut table =
        Table::new("packets | bytes each | operation | ns | quartiles | millions a second | ÷ copied");
    for packets in &all {
        let samples = packets.measure(rounds, &transforms)?;
        if criteria.is_empty() {
            let promised = VIEWS.iter().zip(samples.iter().skip(2));
            criteria.extend(promised.filter_map(|((name, _, least), sample)| {
                let what = format!("{name}, millions of packets a second");
                Some(Criterion::at_least(what, rate(sample), (*least)?, ""))
            }));
        }
        let total: f64 = packets.packets.iter().map(|(_, d)| f64::from(d.cap_len)).sum();
        let number = packets.packets.len();
        let what = ["copied", "copied and described"].into_iter().chain(VIEWS.map(|(name, ..)| name));
        for (what, sample) in what.zip(&samples) {
            table.row(format_args!(
                "{}, {number} | {:.0} | {what} | {} | {:.2} | {:.2}",
                packets.name,
                total / to_f64(number.max(1)),
                sample.cells(1),
                rate(sample),
                sample.ratio_to(&samples[0]).median()
            ));
        }
    }
    let on_a_node = selections(trace, rounds, &transforms)?;
    let addresses = anonymised::tables(rounds)?;
    let memory = transforms.iter().map(|transform| transform.memory().0).max().unwrap_or(0);
    Ok(format!(
        "`{}`; medians of {rounds} rounds; a view that anonymises has {} KiB of memory for addresses. The time for a view includes describing the result.\n\n{}\n{on_a_node}\n{table}\n{addresses}",
        paths::display(trace),
        memory / 1024,
        criterion::table(&criteria)
    ))
}
