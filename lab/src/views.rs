//! What it costs to show a packet as a view allows, beside a plain copy of the same packets.

use crate::native::thread_time;
use crate::random::Random;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, place, pseudonyms};
use std::hint::black_box;
use std::path::Path;
use weir_abi::Descriptor;
use weir_netio::{Capture, Input, Next, Screen, Selection};
use weir_units::Timestamp;
use weir_wire::view::{Transform, ViewKey};
use weir_wire::{LinkType, Meta, View, classify_into};

/// Packets that stay in the processor's cache, as far as their headers go.
const CACHED: usize = 4096;
/// Packets with random addresses: more than are remembered.
const RANDOM: usize = 65_536;
/// The views that are measured, and what is promised of them over the trace, in millions of packets a second.
const VIEWS: [(&str, &str, Option<f64>); 5] = [
    ("headers only", "payload=none", Some(6.0)),
    ("headers only, addresses anonymised", "addresses=anonymised", Some(4.0)),
    ("headers only, addresses by Crypto-PAn", "addresses=crypto-pan", None),
    ("addresses anonymised, payload shown", "addresses=anonymised,payload=all", None),
    ("headers only, addresses zeroed", "addresses=zeroed", None),
];
/// Packets of a capture begin at multiples of this, as they do in an arena.
const ALIGNMENT: usize = 64;

/// Packets one behind the other, with their descriptors.
struct Packets {
    name: &'static str,
    bytes: Vec<u8>,
    places: Vec<(usize, Descriptor)>,
    longest: usize,
}

impl Packets {
    fn new(name: &'static str) -> Self {
        Self { name, bytes: Vec::new(), places: Vec::new(), longest: 0 }
    }

    fn push(&mut self, packet: &[u8], descriptor: Descriptor) {
        self.places.push((self.bytes.len(), descriptor));
        self.bytes.extend_from_slice(packet);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.longest = self.longest.max(packet.len());
    }

    fn first(&self, name: &'static str, count: usize) -> Self {
        let mut first = Self::new(name);
        for (packet, descriptor) in self.iter().take(count) {
            first.push(packet, *descriptor);
        }
        first
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &Descriptor)> {
        self.places.iter().map(|(at, descriptor)| {
            let len = usize::try_from(descriptor.cap_len).unwrap_or(0);
            (self.bytes.get(*at..*at + len).unwrap_or_default(), descriptor)
        })
    }

    /// The whole capture.
    fn of_capture(path: &Path) -> Result<Self, BenchError> {
        let mut capture = Capture::open(Input::File(path.to_owned()))?;
        let mut packets = Self::new("trace");
        let mut bytes = Vec::new();
        while let Next::Block(block) = capture.next_block()? {
            for (i, descriptor) in block.descriptors().iter().enumerate() {
                block.copy_packet(i, &mut bytes);
                packets.push(&bytes, *descriptor);
            }
        }
        Ok(packets)
    }

    /// TCP segments without payload, each with two addresses of its own.
    fn with_random_addresses(name: &'static str, is_v6: bool) -> Result<Self, BenchError> {
        let mut random = Random::new(1);
        let mut packets = Self::new(name);
        for number in 0..RANDOM {
            let mut packet = vec![2; 12];
            if is_v6 {
                packet.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            } else {
                packet.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
            }
            for _ in 0..if is_v6 { 32 } else { 8 } {
                packet.push(random.byte());
            }
            packet.extend([0x9c, 0x40, 1, 187, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 16, 1, 0, 0, 0, 0, 0]);
            let cap_len = u32::try_from(packet.len()).unwrap_or(0);
            let (ts, link_type, interface, data) = (Timestamp(0), LinkType::Ethernet, 0, 0);
            let number = u64::try_from(number).unwrap_or(0);
            let meta = Meta { ts, cap_len, wire_len: cap_len, link_type, interface, number, data };
            let mut descriptor = Descriptor::default();
            classify_into(&packet, &meta, &mut descriptor)
                .map_err(|error| BenchError::Failed { command: name.to_owned(), said: error.to_string() })?;
            packets.push(&packet, descriptor);
        }
        Ok(packets)
    }

    /// Nanoseconds that `work` takes for a packet.
    fn time(&self, mut work: impl FnMut(&[u8], &Descriptor)) -> f64 {
        let begin = thread_time();
        for (packet, descriptor) in self.iter() {
            work(black_box(packet), descriptor);
        }
        let time = thread_time().saturating_sub(begin);
        time.as_secs_f64() * 1e9 / count(self.places.len().max(1))
    }
}

/// One set of packets, measured.
struct Contender<'a> {
    packets: &'a Packets,
    /// How often they are gone through in a round, so that each takes some milliseconds.
    passes: usize,
    copied: Sample,
    described: Sample,
    views: Vec<(Transform, Sample)>,
}

impl<'a> Contender<'a> {
    fn new(packets: &'a Packets, key: &ViewKey) -> Result<Self, BenchError> {
        let mut views = Vec::new();
        for (_, text, _) in VIEWS {
            let view: View = text.parse().map_err(|error: weir_wire::view::ViewError| {
                BenchError::Failed { command: format!("view `{text}`"), said: error.to_string() }
            })?;
            views.push((Transform::new(view, key), Sample::default()));
        }
        let passes = (RANDOM / packets.places.len().max(1)).max(1);
        Ok(Self { packets, passes, copied: Sample::default(), described: Sample::default(), views })
    }

    fn round(&mut self) {
        let mut out = vec![0; self.packets.longest];
        let passes = self.passes;
        let mean = |mut pass: Box<dyn FnMut() -> f64 + '_>| {
            // The first one brings things into the cache.
            pass();
            (0..passes).map(|_| pass()).sum::<f64>() / count(passes)
        };
        let packets = self.packets;
        let copy = |out: &mut [u8], packet: &[u8]| {
            if let Some(out) = out.get_mut(..packet.len()) {
                out.copy_from_slice(packet);
            }
            black_box(out);
        };
        self.copied.push(mean(Box::new(|| packets.time(|packet, _| copy(&mut out, packet)))));
        self.described.push(mean(Box::new(|| {
            packets.time(|packet, like| {
                copy(&mut out, packet);
                if let Some(meta) = Meta::of(like) {
                    let mut descriptor = Descriptor::default();
                    let copied = out.get(..packet.len()).unwrap_or_default();
                    black_box(classify_into(copied, &meta, &mut descriptor).is_ok());
                    black_box(&descriptor);
                }
            })
        })));
        for (transform, sample) in &mut self.views {
            sample.push(mean(Box::new(|| {
                packets.time(|packet, like| {
                    let shown = transform.apply(packet, like, &mut out);
                    let bytes = out.get(..shown.len).unwrap_or_default();
                    black_box(transform.describe(bytes, like));
                    black_box(&mut out);
                })
            })));
        }
    }
}

/// The same as it is on a node: from a block of the capture to where modules read.
struct Selections {
    /// Packets as they are, and as each of [`VIEWS`] shows them.
    all: Vec<(&'static str, Option<Screen>, Sample)>,
}

impl Selections {
    fn new(contender: &Contender<'_>) -> Self {
        let as_they_are = ("copied for modules", None, Sample::default());
        let shown = VIEWS.into_iter().zip(&contender.views).map(|((_, text, _), (transform, _))| {
            (text, Some(Screen::new(transform.clone(), None)), Sample::default())
        });
        Self { all: std::iter::once(as_they_are).chain(shown).collect() }
    }

    fn round(&mut self, trace: &Path) -> Result<(), BenchError> {
        for (_, screen, sample) in &mut self.all {
            let mut selection = Selection::through(screen.iter().cloned().collect()).map_err(|error| {
                BenchError::Failed { command: "memory for a selection".to_owned(), said: error.to_string() }
            })?;
            // The first one brings things into the cache, and touches all memory.
            for is_measured in [false, true] {
                let nanos = Self::pass(trace, &mut selection)?;
                if is_measured {
                    sample.push(nanos);
                }
            }
        }
        Ok(())
    }

    /// Nanoseconds for a packet.
    fn pass(trace: &Path, selection: &mut Selection) -> Result<f64, BenchError> {
        let mut capture = Capture::open(Input::File(trace.to_owned()))?;
        let (mut time, mut packets) = (0.0, 0);
        while let Next::Block(block) = capture.next_block()? {
            let masks: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
            let begin = thread_time();
            let selected = black_box(selection.select(&block, &masks));
            time += thread_time().saturating_sub(begin).as_secs_f64();
            packets += selected.block.map_or(0, |block| block.len());
        }
        Ok(time * 1e9 / count(packets.max(1)))
    }
}

/// Nanoseconds a packet and millions of packets a second, by view and packets.
///
/// # Errors
/// Where the capture cannot be read.
pub fn tables(trace: &Path, rounds: usize) -> Result<String, BenchError> {
    let whole = Packets::of_capture(trace)?;
    let all = [
        whole.first("trace's first", CACHED),
        Packets::with_random_addresses("random IPv4", false)?,
        Packets::with_random_addresses("random IPv6", true)?,
    ];
    let key = ViewKey::derive(&[9; 32], b"bench");
    let mut contenders = vec![Contender::new(&whole, &key)?];
    for packets in &all {
        contenders.push(Contender::new(packets, &key)?);
    }
    let mut selections = Selections::new(&contenders[0]);
    for _ in 0..rounds {
        contenders.iter_mut().for_each(Contender::round);
        selections.round(trace)?;
    }
    let rate = |sample: &Sample| 1000.0 / sample.median();
    let mut promises = Table::new(&["promise, millions of packets a second", "at least", "measured", "kept"]);
    for (i, (name, _, least)) in VIEWS.into_iter().enumerate() {
        let Some(least) = least else { continue };
        let measured = rate(&contenders[0].views[i].1);
        let kept = yes_or_no(measured >= least);
        promises.row([name.to_owned(), format!("{least:.1}"), format!("{measured:.1}"), kept]);
    }
    let mut on_a_node = Table::new(&[
        "on a node, the trace from its blocks to modules' memory",
        "ns",
        "quartiles",
        "millions a second",
    ]);
    for (what, _, sample) in &selections.all {
        let quartiles = sample.quartiles();
        on_a_node.row([
            (*what).to_owned(),
            format!("{:.1}", quartiles.median),
            quartiles.spread(1),
            format!("{:.2}", rate(sample)),
        ]);
    }
    let mut table = Table::new(&[
        "packets",
        "bytes each",
        "what is done",
        "ns",
        "quartiles",
        "millions a second",
        "÷ copied",
    ]);
    for contender in &contenders {
        let mut row = |what: &str, sample: &Sample| {
            let quartiles = sample.quartiles();
            let total: f64 = contender.packets.places.iter().map(|(_, d)| f64::from(d.cap_len)).sum();
            table.row([
                format!("{}, {}", contender.packets.name, contender.packets.places.len()),
                format!("{:.0}", total / count(contender.packets.places.len().max(1))),
                what.to_owned(),
                format!("{:.1}", quartiles.median),
                quartiles.spread(1),
                format!("{:.2}", rate(sample)),
                format!("{:.2}", sample.over(&contender.copied).median()),
            ]);
        };
        row("copied", &contender.copied);
        row("copied and described", &contender.described);
        for ((name, ..), (_, sample)) in VIEWS.iter().zip(&contender.views) {
            row(name, sample);
        }
    }
    let addresses = pseudonyms::tables(rounds)?;
    let memory = contenders[0].views.iter().map(|(transform, _)| transform.memory().0).max().unwrap_or(0);
    Ok(format!(
        "`{}`; medians of {rounds} rounds; a view that anonymises has {} KiB of memory for addresses. What a view shows is described, too.\n\n{promises}\n{on_a_node}\n{table}\n{addresses}",
        place::shown(trace),
        memory / 1024,
    ))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
