//! The cost of finding the channels of a packet: all filters joined, compared with libpcap running each filter. The part
//! `demux` of the benchmark.

use crate::criterion::{self, Criterion};
use crate::error::{Context, LabError};
use crate::packets::copy_packets;
use crate::paths;
use crate::random::Random;
use crate::statistics::{Action, Sample, measure_in_turn, nanos_per_call, processor_time, to_f64};
use crate::table::Table;
use pcap::{BpfProgram, Linktype};
use std::hint::black_box;
use std::path::Path;
use weir_abi::{BATCH_PACKETS, Descriptor, flag};
use weir_demux::{ChannelSet, Demux, FilterProgram, JoinLimits, Packet};
use weir_netio::compile_filter;
use weir_wire::{LinkType, Meta, PEEK, classify_into};

/// The promised limit of the cost of 100 channels, as a multiple of the cost of one channel.
const RATIO_MAX: f64 = 3.0;
/// The number of packets, which stay in the processor's cache.
const PACKETS: usize = 4096;
/// The measured numbers of channels.
const CHANNELS: [usize; 3] = [10, 100, 1000];
/// The number of channels that are measured alone, two for each kind of filter. Their mean is the cost of one channel.
const ALONE: usize = 12;

/// The first bytes of a packet, which a packet source copies and the classifier reads.
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

/// The filters of a number of channels, separately and joined.
struct JoinedFilters {
    filters: Vec<Filter>,
    demux: Demux,
}

/// The measured costs of a set of channels: nanoseconds per packet, and milliseconds for joining the filters.
struct Costs {
    /// Finding the channels.
    demux: Sample,
    /// Classifying the packet, and finding its channels.
    classify_and_demux: Sample,
    /// Running libpcap's program of each filter.
    libpcap: Sample,
    joining: Sample,
}

/// The table of nanoseconds per packet by the number of channels. Fails if the joined filters and libpcap disagree.
pub fn tables(trace: &Path, rounds: usize) -> Result<String, LabError> {
    let (heads, descriptors) = read(trace)?;
    let expressions = expressions(&heads, &descriptors, CHANNELS[CHANNELS.len() - 1]);
    let mut joined_sets = Vec::new();
    for expression in expressions.iter().take(ALONE) {
        joined_sets.push(JoinedFilters::new(std::slice::from_ref(expression), &heads)?);
    }
    for channels in CHANNELS {
        joined_sets.push(JoinedFilters::new(&expressions[..channels], &heads)?);
    }
    let mut actions: Vec<Action<'_>> = vec![Box::new(|| Ok(per_packet(&heads, only_classify)))];
    joined_sets.iter().for_each(|joined_set| actions.extend(joined_set.actions(&heads)));
    let mut samples = measure_in_turn(rounds, &mut actions)?.into_iter();
    let mut next = || samples.next().unwrap_or_default();
    let classify = next();
    let costs: Vec<Costs> = joined_sets
        .iter()
        .map(|_| Costs { demux: next(), classify_and_demux: next(), libpcap: next(), joining: next() })
        .collect();
    let (singles, many) = costs.split_at(ALONE);
    let one = Costs {
        demux: mean(singles, |costs| &costs.demux),
        classify_and_demux: mean(singles, |costs| &costs.classify_and_demux),
        libpcap: mean(singles, |costs| &costs.libpcap),
        joining: mean(singles, |costs| &costs.joining),
    };
    let hundred = &many[1];
    let criteria = [
        ("100 channels ÷ 1, demultiplexing", hundred.demux.ratio_to(&one.demux)),
        (
            "100 channels ÷ 1, classifying and demultiplexing",
            hundred.classify_and_demux.ratio_to(&one.classify_and_demux),
        ),
    ]
    .map(|(what, ratio)| Criterion::at_most(what, ratio.median(), RATIO_MAX, ""));
    let mut table = Table::new(
        "channels | ns | quartiles | with classifying, ns | libpcap, ns | selected by | tables, KiB | joining, ms | interpreted",
    );
    table.row(format_args!("none | | | {:.1}", classify.median()));
    let mut row = |name: String, costs: &Costs, joined_sets: &[JoinedFilters]| {
        let mean_of = |value: &dyn Fn(&JoinedFilters) -> f64| {
            joined_sets.iter().map(value).sum::<f64>() / to_f64(joined_sets.len().max(1))
        };
        table.row(format_args!(
            "{name} | {} | {:.1} | {:.1} | {:.2} | {:.0} | {:.2} | {}",
            costs.demux.cells(1),
            costs.classify_and_demux.median(),
            costs.libpcap.median(),
            mean_of(&|joined_set| joined_set.mean_selecting(&heads)),
            mean_of(&|joined_set| to_f64(joined_set.demux.memory()) / 1024.0),
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
            let mut selecting = ChannelSet::NONE;
            // None of these filters reads beyond the first bytes, so the demultiplexer must not ask for more.
            let needs_more = demux.channels(&head.packet(), &mut selecting).is_err();
            let packet = head.packet();
            for (channel, filter) in filters.iter().enumerate() {
                // The first bytes suffice: these filters do not test the length.
                let libpcap_selects = filter.libpcap.filter(packet.head);
                if needs_more || libpcap_selects != selecting.contains(channel) {
                    return Err(LabError::Differ {
                        module: filter.expression.clone(),
                        round: 0,
                        one: "joined".to_owned(),
                        other: "libpcap".to_owned(),
                        details: format!("packet {number}: libpcap says {libpcap_selects}"),
                    });
                }
            }
        }
        Ok(Self { filters, demux })
    }

    /// The measurements, in the order of the fields of [`Costs`].
    fn actions<'a>(&'a self, heads: &'a [PacketHead]) -> [Action<'a>; 4] {
        let Self { filters, demux } = self;
        let find = move |head: &PacketHead, selecting: &mut ChannelSet| {
            black_box(demux.channels(&black_box(head).packet(), selecting).is_ok());
            black_box(selecting);
        };
        [
            Box::new(move || {
                let mut selecting = ChannelSet::NONE;
                Ok(per_packet(heads, |_, head| find(head, &mut selecting)))
            }),
            Box::new(move || {
                let mut selecting = ChannelSet::NONE;
                let mut ring = [Descriptor::default(); BATCH_PACKETS];
                Ok(per_packet(heads, |number, head| {
                    let slot = &mut ring[number % BATCH_PACKETS];
                    black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, slot).is_ok());
                    find(head, &mut selecting);
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
                let taken = nanos_per_call(1, || joined = black_box(join(filters)).map(drop));
                joined.map(|()| taken / 1e6)
            }),
        ]
    }

    /// The mean number of channels that select a packet.
    fn mean_selecting(&self, heads: &[PacketHead]) -> f64 {
        let mut total = 0;
        for head in heads {
            let mut selecting = ChannelSet::NONE;
            if self.demux.channels(&head.packet(), &mut selecting).is_ok() {
                total += selecting.len();
            }
        }
        to_f64(total) / to_f64(heads.len().max(1))
    }
}

/// Classifies a packet, for the cost without demultiplexing.
fn only_classify(_: usize, head: &PacketHead) {
    let mut descriptor = Descriptor::default();
    black_box(classify_into(&black_box(head).bytes[..head.len], &head.meta, &mut descriptor).is_ok());
    black_box(&descriptor);
}

/// The nanoseconds of `work` per packet.
fn per_packet(heads: &[PacketHead], mut work: impl FnMut(usize, &PacketHead)) -> f64 {
    let time = processor_time(|| heads.iter().enumerate().for_each(|(number, head)| work(number, head)));
    time.as_secs_f64() * 1e9 / to_f64(heads.len().max(1))
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

/// The first packets of the trace, if they are of Ethernet.
fn read(trace: &Path) -> Result<(Vec<PacketHead>, Vec<Descriptor>), LabError> {
    let (mut heads, mut descriptors) = (Vec::new(), Vec::new());
    for (packet, descriptor) in copy_packets(trace, PACKETS)? {
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

/// The filter expressions of a number of channels, for hosts, networks and ports of the trace, then for random ones. They
/// overlap: networks of three sizes, port ranges, and hosts with a port.
fn expressions(heads: &[PacketHead], descriptors: &[Descriptor], channels: usize) -> Vec<String> {
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
