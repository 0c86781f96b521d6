//! Scanners of the module `scan`, and hosts that are flooded of the module `syn-flood`.

use super::facts::EventSpan;
use crate::series::float;
use crate::summaries::{StreamFields, stream_fields};
use crate::top::TopKeys;
use crate::value;
use std::net::Ipv6Addr;
use {weir_admission::Manifest, weir_session::Record};

/// Scans that are kept of a host.
const SCANS_MAX: usize = 4;

/// Aggregates of the stream `scan.scans`.
#[derive(Debug)]
pub(super) struct ScanFacts {
    scans: StreamFields<12>,
    pub(super) scanners: TopKeys<Ipv6Addr, Scanner>,
}

/// The scans of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// The first scans, each with the counts of its last row.
    pub(super) scans: Vec<HostScan>,
    /// Rows of further scans.
    pub(super) further_rows: u64,
}

/// A scan, with the counts since its begin.
#[derive(Clone, Debug)]
pub(super) struct HostScan {
    pub(super) method: ScanMethod,
    pub(super) protocol: u8,
    pub(super) span: EventSpan,
    /// The scanned host, if it is one.
    pub(super) host: Option<Ipv6Addr>,
    /// The scanned port, if it is one.
    pub(super) port: Option<u64>,
    pub(super) hosts: u64,
    pub(super) ports: u64,
    pub(super) services: u64,
    pub(super) answered: u64,
    pub(super) refused: u64,
}

/// The packets of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanMethod {
    Echo,
    Fin,
    Null,
    Syn,
    Udp,
    Xmas,
}

impl ScanMethod {
    fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"echo" => Self::Echo,
            b"fin" => Self::Fin,
            b"null" => Self::Null,
            b"syn" => Self::Syn,
            b"udp" => Self::Udp,
            b"xmas" => Self::Xmas,
            _ => return None,
        })
    }

    /// The method in a sentence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Echo => "ICMP echo",
            Self::Fin => "TCP FIN",
            Self::Null => "TCP without flags",
            Self::Syn => "TCP SYN",
            Self::Udp => "UDP",
            Self::Xmas => "TCP Xmas",
        }
    }
}

impl ScanFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        let names = [
            "first_time",
            "last_time",
            "src",
            "dst",
            "dst_port",
            "protocol",
            "method",
            "hosts",
            "ports",
            "services",
            "answered",
            "refused",
        ];
        Some(Self { scans: stream_fields(manifest, "scans", names)?, scanners: TopKeys::default() })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.scans.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [first, last, src, dst, dst_port, protocol, method, hosts, ports, services, answered, refused] =
            &self.scans.fields;
        let number = |field| value::unsigned(field, record);
        let scan = HostScan {
            method: ScanMethod::from_name(value::bytes(method, record)?)?,
            protocol: u8::try_from(number(protocol)?).ok()?,
            span: EventSpan { first: number(first)?, last: number(last)? },
            host: value::address(dst, record),
            port: number(dst_port),
            hosts: number(hosts)?,
            ports: number(ports)?,
            services: number(services)?,
            answered: number(answered)?,
            refused: number(refused)?,
        };
        let scanner = self.scanners.add(value::address(src, record)?, 1);
        // Further rows of a scan have the counts since its begin.
        let is_same = |known: &&mut HostScan| {
            (known.protocol, known.method, known.span.first) == (scan.protocol, scan.method, scan.span.first)
        };
        let has_room = scanner.scans.len() < SCANS_MAX;
        match scanner.scans.iter_mut().find(is_same) {
            Some(known) => *known = scan,
            None if has_room => scanner.scans.push(scan),
            None => scanner.further_rows += 1,
        }
        Some(())
    }
}

/// Aggregates of the streams of `syn-flood`.
#[derive(Debug)]
pub(super) struct FloodFacts {
    intervals: StreamFields<5>,
    top: StreamFields<4>,
    /// The time and the SYN packets of the last interval, if it is one of a flood. The rows of `top` follow it.
    flood: Option<(u64, u64)>,
    pub(super) victims: TopKeys<Ipv6Addr, FloodVictim>,
}

/// A destination of most SYN packets in intervals of a flood.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FloodVictim {
    pub(super) syn_packets: u64,
    pub(super) intervals: u64,
    /// The most SYN packets in an interval.
    pub(super) most: u64,
    pub(super) span: EventSpan,
}

impl FloodFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        Some(Self {
            intervals: stream_fields(
                manifest,
                "intervals",
                ["time", "syn_packets", "statistic", "alarm", "scan"],
            )?,
            top: stream_fields(manifest, "top", ["time", "dst", "syn_packets", "error_packets"])?,
            flood: None,
            victims: TopKeys::default(),
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.intervals.stream {
            self.flood = self.flood_of(record);
        } else if record.stream == self.top.stream {
            self.add(record);
        }
    }

    /// Returns time and SYN packets of an interval with an alarm in which more connections were opened than closed. Few
    /// sources that try many services are a scan, which the module `scan` reports.
    fn flood_of(&self, record: &Record<'_>) -> Option<(u64, u64)> {
        let [time, syn, statistic, alarm, scan] = &self.intervals.fields;
        let is_flood = value::unsigned(alarm, record)? != 0
            && value::unsigned(scan, record)? == 0
            && value::number(statistic, record)? > 0.0;
        is_flood.then_some((value::unsigned(time, record)?, value::unsigned(syn, record)?))
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, dst, syn, error] = &self.top.fields;
        let (time, syn) = (value::unsigned(time, record)?, value::unsigned(syn, record)?);
        let (_, all) = self.flood.filter(|(interval, _)| *interval == time)?;
        let certain = syn.saturating_sub(value::unsigned(error, record)?);
        if float(certain) <= float(all) / 2.0 {
            return None;
        }
        let victim = self.victims.add(value::address(dst, record)?, certain);
        victim.syn_packets = victim.syn_packets.saturating_add(certain);
        victim.intervals += 1;
        victim.most = victim.most.max(certain);
        victim.span.add(time);
        Some(())
    }
}

/// Aggregates of the streams of `talkers`.
#[derive(Debug)]
pub(super) struct TalkerFacts {
    top: StreamFields<4>,
    intervals: StreamFields<1>,
    /// Hosts by bytes in the intervals in which they have a row.
    pub(super) hosts: TopKeys<Ipv6Addr, ()>,
    /// All bytes.
    pub(super) bytes: u64,
}

impl TalkerFacts {
    pub(super) fn new(manifest: &Manifest) -> Option<Self> {
        Some(Self {
            top: stream_fields(manifest, "top", ["kind", "src", "bytes", "error_bytes"])?,
            intervals: stream_fields(manifest, "intervals", ["bytes"])?,
            hosts: TopKeys::default(),
            bytes: 0,
        })
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.intervals.stream {
            let [bytes] = &self.intervals.fields;
            self.bytes = self.bytes.saturating_add(value::unsigned(bytes, record).unwrap_or(0));
        } else if record.stream == self.top.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [kind, src, bytes, error] = &self.top.fields;
        if value::bytes(kind, record)? == b"host" {
            let certain = value::unsigned(bytes, record)?.saturating_sub(value::unsigned(error, record)?);
            self.hosts.add(value::address(src, record)?, certain);
        }
        Some(())
    }
}
