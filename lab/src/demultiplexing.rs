//! The cost of finding the channels of a packet: all filters joined, compared with libpcap running each filter.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::packets::copies;
use crate::paths;
use crate::random::Random;
use crate::statistics::{Action, Sample, count, in_turn, nanos, processor_time};
use crate::table::Table;
use pcap::{BpfProgram, Linktype};
use std::hint::black_box;
use std::path::Path;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_demux::{ChannelSet, Demux, FilterProgram, JoinLimits, Packet};
use weir_netio::compile_filter;
use weir_wire::{LinkType, Meta, PEEK, classify_into};

/// The promised limit of the cost of 100 channels, as a multiple of the cost of one.
const PROMISE: f64 = 3.0;
/// Packets that stay in the processor's cache.
const PACKETS: usize = 4096;
/// Numbers of channels.
const CHANNELS: [usize; 3] = [10, 100, 1000];
/// Channels that are measured alone, two of each kind. Their mean is the cost of one channel.
const ALONE: usize = 12;

/// The first bytes of a packet, as copied by a packet source.
struct PacketHead {
    bytes: [u8; PEEK],
    len: usize,
    meta: Meta,
}

impl PacketHead {
    fn packet(&self) -> Packet<'_> {
        let Meta { cap_len, wire_len, .. } = self.meta;
        Packet { head: self.bytes.get(..self.len).unwrap_or_default(), cap_len, wire_len }
    }
}

/// A filter, compiled by weir and by libpcap.
struct Filter {
    expression: String,
    program: FilterProgram,
    libpcap: BpfProgram,
}

/// A number of channels, with their filters joined.
struct JoinedFilters {
    filters: Vec<Filter>,
    demux: Demux,
}

/// The measured costs: nanoseconds per packet, and milliseconds of joining.
struct Costs {
    alone: Sample,
    classified: Sample,
    libpcap: Sample,
    joining: Sample,
}

/// The table of nanoseconds per packet by the number of channels. Fails if the joined filters and libpcap disagree.
pub fn tables(trace: &Path, rounds: usize) -> Result<String, LabError> {
    let (heads, descriptors) = read(trace)?;
    let expressions = mix(&heads, &descriptors, CHANNELS[CHANNELS.len() - 1]);
    let mut joined_sets = Vec::new();
    for expression in expressions.iter().take(ALONE) {
        joined_sets.push(JoinedFilters::new(std::slice::from_ref(expression), &heads)?);
    }
    for channels in CHANNELS {
        joined_sets.push(JoinedFilters::new(&expressions[..channels], &heads)?);
    }
    let mut actions: Vec<Action<'_>> = vec![Box::new(|| Ok(per_packet(&heads, only_classify)))];
    joined_sets.iter().for_each(|joined_set| actions.extend(joined_set.actions(&heads)));
    let mut samples = in_turn(rounds, &mut actions)?.into_iter();
    let mut next = || samples.next().unwrap_or_default();
    let classify = next();
    let costs: Vec<Costs> = joined_sets
        .iter()
        .map(|_| Costs { alone: next(), classified: next(), libpcap: next(), joining: next() })
        .collect();
    let (singles, many) = costs.split_at(ALONE);
    let one = Costs {
        alone: mean(singles, |costs| &costs.alone),
        classified: mean(singles, |costs| &costs.classified),
        libpcap: mean(singles, |costs| &costs.libpcap),
        joining: mean(singles, |costs| &costs.joining),
    };
    let hundred = &many[1];
    let criteria = [
        ("100 channels ÷ 1, demultiplexing", hundred.alone.over(&one.alone)),
        ("100 channels ÷ 1, classifying and demultiplexing", hundred.classified.over(&one.classified)),
    ]
    .map(|(what, ratio)| Criterion::at_most(what, ratio.median(), PROMISE, ""));
    let mut table = Table::new(
        "channels | ns | quartiles | with classifying, ns | libpcap, ns | wanted by | tables, KiB | joining, ms | interpreted",
    );
    table.row(format_args!("none | | | {:.1}", classify.median()));
    let mut row = |name: String, costs: &Costs, joined_sets: &[JoinedFilters]| {
        let each = |value: &dyn Fn(&JoinedFilters) -> f64| {
            joined_sets.iter().map(value).sum::<f64>() / count(joined_sets.len().max(1))
        };
        table.row(format_args!(
            "{name} | {} | {:.1} | {:.1} | {:.2} | {:.0} | {:.2} | {}",
            costs.alone.cells(1),
            costs.classified.median(),
            costs.libpcap.median(),
            each(&|joined_set| joined_set.wanted(&heads)),
            each(&|joined_set| count(joined_set.demux.memory()) / 1024.0),
            costs.joining.median(),
            joined_sets.iter().map(|joined_set| joined_set.demux.interpreted().count()).sum::<usize>(),
        ));
    };
    row(format!("1 (mean of {ALONE})"), &one, &joined_sets[..ALONE]);
    for (joined_set, costs) in joined_sets[ALONE..].iter().zip(many) {
        row(joined_set.filters.len().to_string(), costs, std::slice::from_ref(joined_set));
    }
    Ok(format!(
        "{}\nThe first {} packets of `{}`, in the processor's cache; medians of {rounds} rounds in turn.\n\n{table}",
        criterion::table(&criteria),
        heads.len(),
        paths::display(trace)
    ))
}

impl JoinedFilters {
    fn new(expressions: &[String], heads: &[PacketHead]) -> Result<Self, LabError> {
        let filters = expressions.iter().map(|e| compile(e)).collect::<Result<Vec<_>, _>>()?;
        let demux = join(&filters)?;
        for (number, head) in heads.iter().enumerate() {
            let mut wanted = ChannelSet::NONE;
            // None of these filters reads beyond the first bytes.
            let more = demux.channels(&head.packet(), &mut wanted).is_err();
            let packet = head.packet();
            for (channel, filter) in filters.iter().enumerate() {
                // The first bytes suffice: these filters do not test the length.
                let alone = filter.libpcap.filter(packet.head);
                if more || alone != wanted.contains(channel) {
                    return Err(LabError::Differ {
                        module: filter.expression.clone(),
                        round: 0,
                        one: "joined".to_owned(),
                        other: "libpcap".to_owned(),
                        details: format!("packet {number}: libpcap says {alone}"),
                    });
                }
            }
        }
        Ok(Self { filters, demux })
    }

    /// The measurements for the fields of [`Costs`], in their order.
    fn actions<'a>(&'a self, heads: &'a [PacketHead]) -> [Action<'a>; 4] {
        let Self { filters, demux } = self;
        let find = move |head: &PacketHead, wanted: &mut ChannelSet| {
            black_box(demux.channels(&black_box(head).packet(), wanted).is_ok());
            black_box(wanted);
        };
        [
            Box::new(move || {
                let mut wanted = ChannelSet::NONE;
                Ok(per_packet(heads, |_, head| find(head, &mut wanted)))
            }),
            Box::new(move || {
                let mut wanted = ChannelSet::NONE;
                let mut ring = [Descriptor::default(); BATCH_PACKETS];
                Ok(per_packet(heads, |number, head| {
                    let slot = &mut ring[number % BATCH_PACKETS];
                    black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, slot).is_ok());
                    find(head, &mut wanted);
                }))
            }),
            Box::new(move || {
                Ok(per_packet(heads, |_, head| {
                    let packet = head.packet();
                    for filter in filters {
                        black_box(filter.libpcap.filter(packet.head));
                    }
                }))
            }),
            Box::new(move || {
                let mut joined = Ok(());
                let taken = nanos(1, || joined = black_box(join(filters)).map(drop));
                joined.map(|()| taken / 1e6)
            }),
        ]
    }

    /// The mean number of channels per packet.
    fn wanted(&self, heads: &[PacketHead]) -> f64 {
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

fn only_classify(_: usize, head: &PacketHead) {
    let mut descriptor = Descriptor::default();
    black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, &mut descriptor).is_ok());
    black_box(&descriptor);
}

/// The nanoseconds of `work` per packet.
fn per_packet(heads: &[PacketHead], mut work: impl FnMut(usize, &PacketHead)) -> f64 {
    let time = processor_time(|| heads.iter().enumerate().for_each(|(number, head)| work(number, head)));
    time.as_secs_f64() * 1e9 / count(heads.len().max(1))
}

/// The mean of samples, round by round.
fn mean(costs: &[Costs], sample: impl Fn(&Costs) -> &Sample) -> Sample {
    Sample::mean(&costs.iter().map(sample).collect::<Vec<_>>())
}

fn compile(expression: &str) -> Result<Filter, LabError> {
    let what = format!("filter `{expression}`");
    let program = compile_filter(expression, LinkType::Ethernet).context(&what)?;
    let dead = pcap::Capture::dead(Linktype::ETHERNET).context(&what)?;
    let libpcap = dead.compile(expression, true).context(&what)?;
    Ok(Filter { expression: expression.to_owned(), program, libpcap })
}

fn join(filters: &[Filter]) -> Result<Demux, LabError> {
    let programs: Vec<Option<&FilterProgram>> = filters.iter().map(|filter| Some(&filter.program)).collect();
    Demux::new(&programs, &JoinLimits::default()).context("joining all filters")
}

/// The first packets of the trace.
fn read(trace: &Path) -> Result<(Vec<PacketHead>, Vec<Descriptor>), LabError> {
    let (mut heads, mut descriptors) = (Vec::new(), Vec::new());
    for (packet, descriptor) in copies(trace, PACKETS)? {
        let len = packet.len().min(PEEK);
        let mut bytes = [0; PEEK];
        bytes[..len].copy_from_slice(&packet[..len]);
        if descriptor.link_type == LinkType::Ethernet.number()
            && let Some(meta) = Meta::from_descriptor(&descriptor)
        {
            heads.push(PacketHead { bytes, len, meta });
            descriptors.push(descriptor);
        }
    }
    Ok((heads, descriptors))
}

/// Filters for hosts, networks and ports of the trace, then for random ones. They overlap: networks of two sizes, port
/// ranges, hosts with a port.
fn mix(heads: &[PacketHead], descriptors: &[Descriptor], channels: usize) -> Vec<String> {
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
