//! What it costs to say which channels want a packet: all filters joined, beside each of them run by libpcap.

use crate::native::thread_time;
use crate::random::Random;
use crate::statistics::Sample;
use crate::table::{Table, yes_or_no};
use crate::{BenchError, place};
use pcap::{BpfProgram, Linktype};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_demux::{ChannelSet, Demux, Limits, Packet, Program};
use weir_netio::{Capture, Input, Next, compile_filter};
use weir_units::Timestamp;
use weir_wire::{LinkType, Meta, PEEK, classify_into};

/// How many times as much a hundred channels may cost as one.
const PROMISE: f64 = 3.0;
/// Packets that stay in the processor's cache.
const PACKETS: usize = 4096;
/// Numbers of channels.
const CHANNELS: [usize; 3] = [10, 100, 1000];
/// So many channels are measured alone, and their mean taken for one channel: they are two of each kind.
const ALONE: usize = 12;

/// A packet's first bytes, as the source copies them.
struct Head {
    bytes: [u8; PEEK],
    len: usize,
    meta: Meta,
}

impl Head {
    fn packet(&self) -> Packet<'_> {
        let Meta { cap_len, wire_len, .. } = self.meta;
        Packet { head: self.bytes.get(..self.len).unwrap_or_default(), cap_len, wire_len }
    }
}

/// A filter, compiled by weir and by libpcap.
struct Filter {
    expression: String,
    program: Program,
    libpcap: BpfProgram,
}

/// A number of channels, measured.
struct Contender {
    filters: Vec<Filter>,
    demux: Demux,
    alone: Sample,
    classified: Sample,
    libpcap: Sample,
    joining: Sample,
}

/// Nanoseconds a packet by the number of channels.
///
/// # Errors
/// Where the capture cannot be read, or the joined filters and libpcap differ.
pub fn tables(trace: &Path, rounds: usize) -> Result<String, BenchError> {
    let (heads, descriptors) = read(trace)?;
    let expressions = mix(&heads, &descriptors, CHANNELS[CHANNELS.len() - 1]);
    let filters =
        |expressions: &[String]| expressions.iter().map(|e| compile(e)).collect::<Result<Vec<_>, _>>();
    let mut singles = Vec::new();
    for expression in expressions.iter().take(ALONE) {
        singles.push(Contender::new(filters(std::slice::from_ref(expression))?, &heads)?);
    }
    let mut many = Vec::new();
    for channels in CHANNELS {
        many.push(Contender::new(filters(&expressions[..channels])?, &heads)?);
    }
    let (mut classify, mut one, mut one_classified, mut one_libpcap) =
        <(Sample, Sample, Sample, Sample)>::default();
    for _ in 0..rounds {
        classify.push(per_packet(&heads, only_classify));
        singles.iter_mut().try_for_each(|single| single.round(&heads))?;
        many.iter_mut().try_for_each(|contender| contender.round(&heads))?;
        one.push(mean(&singles, |single| single.alone.last()));
        one_classified.push(mean(&singles, |single| single.classified.last()));
        one_libpcap.push(mean(&singles, |single| single.libpcap.last()));
    }
    let hundred = &many[1];
    let mut promises = Table::new(&["promise", "at most", "measured", "kept"]);
    for (what, ratio) in [
        ("100 channels ÷ 1, demultiplexing", hundred.alone.over(&one).median()),
        (
            "100 channels ÷ 1, classifying and demultiplexing",
            hundred.classified.over(&one_classified).median(),
        ),
    ] {
        let kept = yes_or_no(ratio <= PROMISE);
        promises.row([what.to_owned(), format!("{PROMISE:.2}"), format!("{ratio:.2}"), kept]);
    }
    let mut table = Table::new(&[
        "channels",
        "ns",
        "quartiles",
        "with classifying, ns",
        "libpcap, ns",
        "wanted by",
        "tables, KiB",
        "joining, ms",
        "interpreted",
    ]);
    let ns = |sample: &Sample| format!("{:.1}", sample.median());
    let spread = |sample: &Sample| sample.quartiles().spread(1);
    table.row([
        "none".to_owned(),
        String::new(),
        String::new(),
        ns(&classify),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ]);
    table.row([
        format!("1 (mean of {ALONE})"),
        ns(&one),
        spread(&one),
        ns(&one_classified),
        ns(&one_libpcap),
        format!("{:.2}", mean(&singles, |single| single.wanted(&heads))),
        format!("{:.0}", mean(&singles, |single| kib(single.demux.memory()))),
        format!("{:.2}", mean(&singles, |single| single.joining.median())),
        "0".to_owned(),
    ]);
    for contender in &many {
        table.row([
            contender.filters.len().to_string(),
            ns(&contender.alone),
            spread(&contender.alone),
            ns(&contender.classified),
            ns(&contender.libpcap),
            format!("{:.2}", contender.wanted(&heads)),
            format!("{:.0}", kib(contender.demux.memory())),
            format!("{:.2}", contender.joining.median()),
            contender.demux.interpreted().count().to_string(),
        ]);
    }
    Ok(format!(
        "{promises}\nThe first {} packets of `{}`, in the processor's cache; medians of {rounds} rounds in turn.\n\n{table}",
        heads.len(),
        place::shown(trace)
    ))
}

impl Contender {
    fn new(filters: Vec<Filter>, heads: &[Head]) -> Result<Self, BenchError> {
        let demux = join(&filters)?;
        for (number, head) in heads.iter().enumerate() {
            let mut wanted = ChannelSet::NONE;
            // What looks beyond the first bytes is none of these filters.
            let more = demux.channels(&head.packet(), &mut wanted).is_err();
            let packet = head.packet();
            for (channel, filter) in filters.iter().enumerate() {
                // The first bytes alone: these filters ask for no length.
                let alone = filter.libpcap.filter(packet.head);
                if more || alone != wanted.contains(channel) {
                    return Err(BenchError::Differ {
                        module: filter.expression.clone(),
                        round: 0,
                        one: "joined".to_owned(),
                        other: "libpcap".to_owned(),
                        details: format!("packet {number}: libpcap says {alone}"),
                    });
                }
            }
        }
        let [alone, classified, libpcap, joining] = std::array::from_fn(|_| Sample::default());
        Ok(Self { filters, demux, alone, classified, libpcap, joining })
    }

    fn round(&mut self, heads: &[Head]) -> Result<(), BenchError> {
        let demux = &self.demux;
        let mut wanted = ChannelSet::NONE;
        self.alone.push(per_packet(heads, |_, head| {
            black_box(demux.channels(&black_box(head).packet(), &mut wanted).is_ok());
            black_box(&wanted);
        }));
        let mut ring = [Descriptor::default(); BATCH_PACKETS];
        self.classified.push(per_packet(heads, |number, head| {
            let slot = &mut ring[number % BATCH_PACKETS];
            black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, slot).is_ok());
            black_box(demux.channels(&black_box(head).packet(), &mut wanted).is_ok());
            black_box(&wanted);
        }));
        let filters = &self.filters;
        self.libpcap.push(per_packet(heads, |_, head| {
            let packet = head.packet();
            for filter in filters {
                black_box(filter.libpcap.filter(packet.head));
            }
        }));
        let begin = thread_time();
        black_box(join(filters)?);
        self.joining.push(thread_time().saturating_sub(begin).as_secs_f64() * 1e3);
        Ok(())
    }

    /// How many channels want a packet, on average.
    fn wanted(&self, heads: &[Head]) -> f64 {
        let mut total = 0;
        for head in heads {
            let mut wanted = ChannelSet::NONE;
            if self.demux.channels(&head.packet(), &mut wanted).is_ok() {
                total += wanted.len();
            }
        }
        count(total) / count(heads.len().max(1))
    }
}

fn only_classify(_: usize, head: &Head) {
    let mut descriptor = Descriptor::default();
    black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, &mut descriptor).is_ok());
    black_box(&descriptor);
}

/// The nanoseconds that it takes for a packet.
fn per_packet(heads: &[Head], mut work: impl FnMut(usize, &Head)) -> f64 {
    let begin = thread_time();
    for (number, head) in heads.iter().enumerate() {
        work(number, head);
    }
    let time: Duration = thread_time().saturating_sub(begin);
    time.as_secs_f64() * 1e9 / count(heads.len().max(1))
}

fn mean(singles: &[Contender], value: impl Fn(&Contender) -> f64) -> f64 {
    singles.iter().map(value).sum::<f64>() / count(singles.len().max(1))
}

fn kib(bytes: usize) -> f64 {
    count(bytes) / 1024.0
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn compile(expression: &str) -> Result<Filter, BenchError> {
    let program =
        compile_filter(expression, LinkType::Ethernet).map_err(|error| failed(expression, &error))?;
    let libpcap = pcap::Capture::dead(Linktype::ETHERNET)
        .and_then(|dead| dead.compile(expression, true))
        .map_err(|error| failed(expression, &error))?;
    Ok(Filter { expression: expression.to_owned(), program, libpcap })
}

fn failed(expression: &str, error: &dyn std::error::Error) -> BenchError {
    BenchError::Failed { command: format!("filter `{expression}`"), said: error.to_string() }
}

fn join(filters: &[Filter]) -> Result<Demux, BenchError> {
    let programs: Vec<Option<&Program>> = filters.iter().map(|filter| Some(&filter.program)).collect();
    Demux::new(&programs, &Limits::default()).map_err(|error| failed("all", &error))
}

/// The trace's first packets.
fn read(trace: &Path) -> Result<(Vec<Head>, Vec<Descriptor>), BenchError> {
    let mut capture = Capture::open(Input::File(trace.to_owned()))?;
    let (mut heads, mut descriptors, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    while let Next::Block(block) = capture.next_block()? {
        for (i, descriptor) in block.descriptors().iter().enumerate() {
            if heads.len() == PACKETS {
                return Ok((heads, descriptors));
            }
            if descriptor.link_type != LinkType::Ethernet.number() {
                continue;
            }
            block.copy_packet(i, &mut bytes);
            let len = bytes.len().min(PEEK);
            let mut head = [0; PEEK];
            head[..len].copy_from_slice(&bytes[..len]);
            let meta = Meta {
                ts: Timestamp(descriptor.ts_ns),
                cap_len: descriptor.cap_len,
                wire_len: descriptor.wire_len,
                link_type: LinkType::Ethernet,
                interface: 0,
                number: u64::from(descriptor.number),
                data: descriptor.data,
            };
            heads.push(Head { bytes: head, len, meta });
            descriptors.push(*descriptor);
        }
    }
    Ok((heads, descriptors))
}

/// Filters for hosts, networks and ports of the trace, and once these are used up, for others. Every other one overlaps with those of its kind: nets
/// of two sizes, ranges of ports, and hosts with a port.
fn mix(heads: &[Head], descriptors: &[Descriptor], channels: usize) -> Vec<String> {
    let (mut hosts, mut ports): (Vec<[u8; 4]>, Vec<u16>) = (Vec::new(), Vec::new());
    for (head, descriptor) in heads.iter().zip(descriptors) {
        let at = usize::from(descriptor.l3_offset) + 12;
        if descriptor.flags & flag::IPV4 != 0
            && let Some(&host) = head.bytes.get(at..).and_then(|rest| rest.first_chunk())
            && !hosts.contains(&host)
        {
            hosts.push(host);
        }
        let port = descriptor.src_port.min(descriptor.dst_port);
        if port != 0 && !ports.contains(&port) {
            ports.push(port);
        }
    }
    let mut random = Random::new(100);
    while hosts.len() < channels {
        let [a, b, c, ..] = random.word().to_le_bytes();
        hosts.push([10, a, b, c]);
    }
    while ports.len() < channels {
        ports.push(u16::try_from(random.below(60_000)).unwrap_or(0));
    }
    (0..channels)
        .map(|channel| {
            let number = channel / 6;
            let ([a, b, c, d], port) = (hosts[channel], ports[number]);
            match channel % 6 {
                0 => format!("host {a}.{b}.{c}.{d}"),
                1 if number % 2 == 0 => format!("net {a}.{b}.0.0/16"),
                1 => format!("net {a}.0.0.0/8"),
                2 => format!("net {a}.{b}.{c}.0/24"),
                3 => format!("portrange {port}-{}", port.saturating_add(1000)),
                4 => format!("port {port}"),
                _ => format!("tcp and host {a}.{b}.{c}.{d} and port {port}"),
            }
        })
        .collect()
}
