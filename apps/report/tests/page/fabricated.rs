//! A fabricated run, with records that fit the manifests of the shipped modules.

use weir_abi::{Descriptor, flag};
use weir_report::{CaptureInfo, RunModuleInfo, RunReport, StreamInfo};
use weir_units::{Nanos, Timestamp};
use {
    weir_admission::Manifest,
    weir_session::{Record, RecordOrder},
};

pub const START: u64 = 1_741_600_000_123_456_789;
const SECOND: u64 = 1_000_000_000;

/// A value of a field.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Int(u64),
    Float(f64),
    Ip([u8; 4]),
    Text(&'a [u8]),
}

/// A module added to a report.
pub struct Module {
    pub manifest: Manifest,
    pub index: usize,
    pub rows: Vec<u64>,
}

pub fn manifest(name: &str) -> Manifest {
    let path = format!("{}/../../guest/modules/{name}/weir.toml", env!("CARGO_MANIFEST_DIR"));
    Manifest::parse(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))).unwrap()
}

pub fn add_module(report: &mut RunReport, label: &str, manifest: Manifest) -> Module {
    let rows = vec![0; manifest.streams.len()];
    Module { index: report.add_module(label, &manifest), manifest, rows }
}

impl Module {
    /// Emits a row; fields without a value are 0, or null if they are optional.
    pub fn emit(&mut self, report: &mut RunReport, stream: &str, values: &[(&str, Value<'_>)]) {
        let index = self.manifest.streams.iter().position(|s| s.name.as_str() == stream).unwrap();
        let layout = &self.manifest.streams[index];
        let (mut row, mut tail) = (vec![0; layout.row_bytes()], Vec::new());
        for (name, value) in values {
            let field =
                layout.fields.iter().find(|f| f.name.as_str() == *name).unwrap_or_else(|| panic!("{name}"));
            let place = &mut row[field.offset..field.offset + field.ty.size()];
            match value {
                Value::Int(v) => place.copy_from_slice(&v.to_le_bytes()[..place.len()]),
                Value::Float(v) => place.copy_from_slice(&v.to_le_bytes()),
                Value::Ip(v4) => {
                    place[10..12].copy_from_slice(&[0xff, 0xff]);
                    place[12..].copy_from_slice(v4);
                }
                Value::Text(text) => {
                    place[..4].copy_from_slice(&u32::try_from(tail.len()).unwrap().to_le_bytes());
                    place[4..].copy_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
                    tail.extend_from_slice(text);
                }
            }
        }
        for (name, _) in values {
            let field = layout.fields.iter().find(|f| f.name.as_str() == *name).unwrap();
            if let Some(presence) = field.presence {
                row[presence] = 1;
            }
        }
        self.rows[index] += 1;
        let stream = u16::try_from(index).unwrap();
        report.add_record(
            self.index,
            &Record { order: RecordOrder::packet(0), stream, row: &row, tail: &tail },
        );
    }

    pub fn facts(&self, label: &str, packets: u64, ns: f64) -> RunModuleInfo {
        let streams = self.manifest.streams.iter().zip(&self.rows).map(|(stream, rows)| StreamInfo {
            name: stream.name.to_string(),
            rows: *rows,
            path: Some(format!("out/{label}/{}.parquet", stream.name)),
        });
        RunModuleInfo {
            label: label.to_owned(),
            version: self.manifest.version.clone(),
            summary: self.manifest.summary.clone(),
            tier: "proved".to_owned(),
            packets,
            records: self.rows.iter().sum(),
            ns_per_packet: Some(ns),
            cycles_per_packet: Some(ns * 3.7),
            memory: self.manifest.memory,
            streams: streams.collect(),
            ..RunModuleInfo::default()
        }
    }
}

/// Adds a TCP packet over IPv4 on port 443 to a report.
pub fn add_packet(report: &mut RunReport, ts: u64, from: [u8; 4], to: [u8; 4], wire_len: u32) {
    let descriptor = Descriptor {
        ts_ns: ts,
        wire_len,
        flags: flag::IPV4 | flag::TCP | flag::L4,
        ether_type: 0x0800,
        ip_proto: 6,
        src_port: 443,
        dst_port: 40_000,
        ..Descriptor::default()
    };
    let mut head = [0; 20];
    head[12..16].copy_from_slice(&from);
    head[16..].copy_from_slice(&to);
    report.add_packet(&descriptor, &head);
}

/// The manifest of a module with findings and a stream `rows` as their evidence.
pub fn manifest_with_findings(name: &str) -> Manifest {
    let field = |name: &str, ty: &str| {
        format!("[[stream.field]]\nname='{name}'\ntype='{ty}'\nunit='-'\nsummary='a field'\n")
    };
    let text = format!(
        "name='{name}'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='finds things'\n\
         [[stream]]\nname='rows'\nsummary='the evidence'\n{}\
         [[stream]]\nname='findings'\nsummary='the findings'\n",
        field("n", "u8"),
    );
    Manifest::parse(text.as_bytes()).unwrap()
}

/// The values of a finding.
pub fn finding<'a>(
    time: u64,
    severity: u64,
    text: &'a str,
    filter: &'a str,
    evidence: &'a str,
) -> [(&'static str, Value<'a>); 5] {
    let string = |text: &'a str| Value::Text(text.as_bytes());
    [
        ("time", Value::Int(time)),
        ("severity", Value::Int(severity)),
        ("text", string(text)),
        ("filter", string(filter)),
        ("evidence", string(evidence)),
    ]
}

/// A generator of random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 >> 13)
    }

    pub fn uniform(&mut self) -> f64 {
        (self.bits() & 0xff_ffff) as f64 / f64::from(0x100_0000)
    }

    /// An approximately normal number with mean 0 and deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// A run of ten minutes with a flood in the middle, which fills every part of the page.
pub fn run() -> (RunReport, CaptureInfo, Vec<RunModuleInfo>) {
    use Value::{Float, Int, Ip, Text};
    let mut report = RunReport::new();
    let mut random = Random(7);
    let (mut packets, mut bytes) = (0, 0);
    for tick in 0..6_000u64 {
        let flood = (2_900..3_800).contains(&tick);
        let n = (90.0 + 25.0 * (tick as f64 / 700.0).sin() + 14.0 * random.normal()).max(1.0) as u64;
        let n = n + if flood { 140 } else { 0 };
        let size = n * 620;
        for _ in 0..n {
            let client = (random.uniform() * random.uniform() * 200.0) as u8;
            let ends = [[192, 0, 2, 10], [10, 0, client % 3, client]];
            let [from, to] = if flood { [ends[1], ends[0]] } else { ends };
            add_packet(&mut report, START + tick * SECOND / 10, from, to, 620);
        }
        (packets, bytes) = (packets + n, bytes + size);
    }

    let mut rtt = add_module(&mut report, "rtt", manifest("rtt"));
    for n in 0..24_000u64 {
        let center = if random.uniform() < 0.35 { 3e6f64 } else { 42e6 };
        let ns = center * (0.45 * random.normal()).exp();
        let time = Int(START + n * SECOND / 40);
        let syns = Int(if n % 400 == 0 { 2 } else { 1 });
        let client = Ip([10, 0, (n % 7) as u8, (n % 251) as u8]);
        let values = [
            ("time", time),
            ("src", client),
            ("src_port", Int(40_000 + n % 9_000)),
            ("dst", Ip([192, 0, 2, 10])),
            ("dst_port", Int(443)),
            ("rtt_ns", Int(ns as u64)),
            ("server_rtt_ns", Int(ns as u64 / 2)),
            ("syn_packets", syns),
        ];
        rtt.emit(&mut report, "rtts", &values);
    }

    let mut flood = add_module(&mut report, "syn-flood", manifest("syn-flood"));
    let mut cusum = 0.0f64;
    for second in 0..600u64 {
        let on = (290..380).contains(&second);
        let open = (60.0 + 9.0 * random.normal()).max(0.0);
        let syn = open + if on { 1_400.0 } else { 0.0 };
        let x = (syn - open * 0.98) / 60.0;
        cusum = (cusum + x - 0.35).clamp(0.0, 400.0);
        if !on {
            cusum = (cusum - 12.0).max(0.0);
        }
        let time = Int(START + second * SECOND);
        let alarm = cusum >= 1.05;
        let values = [
            ("time", time),
            ("syn_packets", Int(syn as u64)),
            ("synack_packets", Int(open as u64)),
            ("fin_packets", Int((open * 0.9) as u64)),
            ("rst_packets", Int((open * 0.1) as u64)),
            ("mean_packets", Float(60.0)),
            ("statistic", Float(x)),
            ("cusum", Float(cusum)),
            ("alarm", Int(alarm.into())),
        ];
        flood.emit(&mut report, "intervals", &values);
        if alarm {
            for rank in 1..=4u64 {
                let values = [
                    ("time", time),
                    ("rank", Int(rank)),
                    ("dst", Ip([203, 0, 113, rank as u8])),
                    ("syn_packets", Int(1_400 / rank / rank)),
                ];
                flood.emit(&mut report, "top", &values);
            }
        }
    }

    let mut lrd = add_module(&mut report, "lrd", manifest("lrd"));
    for minute in 1..=10u64 {
        let time = Int(START + minute * 60 * SECOND);
        for octave in 1..=(9 + minute / 3) {
            let j = octave as f64;
            let y = 3.0 + 0.66 * j + if octave < 4 { (4.0 - j) * 0.4 } else { 0.08 * random.normal() };
            let ci = 0.05 * 2f64.powf(j / 2.6) / (minute as f64).sqrt();
            let values = [
                ("time", time),
                ("octave", Int(octave)),
                ("coefficients", Int(60_000 >> octave)),
                ("energy", Float(y.exp2())),
                ("log2_energy", Float(y)),
                ("lower", Float(y - ci)),
                ("upper", Float(y + ci)),
            ];
            lrd.emit(&mut report, "scales", &values);
        }
        let h = 0.83 + 0.03 * random.normal() / (minute as f64).sqrt();
        let ci = 0.09 / (minute as f64).sqrt();
        let values = [
            ("time", time),
            ("hurst", Float(h)),
            ("lower", Float(h - ci)),
            ("upper", Float(h + ci)),
            ("first_octave", Int(4)),
            ("last_octave", Int(9 + minute / 3)),
            ("bins", Int(60_000)),
        ];
        lrd.emit(&mut report, "estimate", &values);
    }

    let mut trajectory = add_module(&mut report, "trajectory", manifest("trajectory"));
    for n in 0..6_000u64 {
        let flow = (random.uniform().powi(3) * 60.0) as u64;
        let begin = (flow * 37) % 500;
        let time = START + begin * SECOND + (random.uniform() * (40.0 + flow as f64 * 1.3) * 1e9) as u64;
        let label = Int(flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        if n < 60 {
            let label = Int(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let values = [
                ("time", Int(time)),
                ("flow", label),
                ("src", Ip([10, 0, 0, n as u8])),
                ("src_port", Int(40_000 + n)),
                ("dst", Ip([198, 51, 100, 7])),
                ("dst_port", Int(443)),
                ("protocol", Int(if n % 5 == 0 { 17 } else { 6 })),
            ];
            trajectory.emit(&mut report, "flows", &values);
        }
        let values = [
            ("time", Int(time)),
            ("packet", Int(random.bits())),
            ("flow", label),
            ("wire_bytes", Int(64 + random.bits() % 1_400)),
        ];
        trajectory.emit(&mut report, "samples", &values);
    }

    let mut ports = add_module(&mut report, "port-count", manifest("port-count"));
    for (port, to) in [(53u64, 18_230u64), (123, 1_204), (443, 9_800), (666, 3)] {
        let values = [
            ("port", Int(port)),
            ("to_packets", Int(to)),
            ("to_bytes", Int(to * 80)),
            ("from_packets", Int(to - 2)),
            ("from_bytes", Int(to * 210)),
        ];
        ports.emit(&mut report, "totals", &values);
    }

    let mut worm = add_module(&mut report, "worm", manifest("worm"));
    for n in 0..70u64 {
        let values = [
            ("time", Int(START + n * 7 * SECOND)),
            ("src", Ip([198, 51, 100, (n % 9) as u8])),
            ("src_port", Int(3_000 + n)),
            ("dst", Ip([192, 0, 2, n as u8])),
            ("dst_port", Int(80)),
            ("text", Text(b"GET /default.ida?NNNNNNNN")),
            ("offset_bytes", Int(0)),
        ];
        worm.emit(&mut report, "hits", &values);
    }
    let payload = add_module(&mut report, "payload-match", manifest("payload-match"));

    let mut detector = add_module(&mut report, "detector", manifest_with_findings("detector"));
    for n in 0..20 {
        detector.emit(&mut report, "rows", &[("n", Int(n))]);
    }
    for (after, severity, text, filter) in [
        (310, 1, "scan of 60 ports by 198.51.100.7", "src host 198.51.100.7"),
        (290, 5, "SYN flood of 203.0.113.1", "dst host 203.0.113.1 and tcp[tcpflags] & tcp-syn != 0"),
        (10, 3, "signature of Code Red from 198.51.100.3", "src host 198.51.100.3 and tcp dst port 80"),
    ] {
        let values = finding(START + after * SECOND, severity, text, filter, "rows");
        detector.emit(&mut report, "findings", &values);
    }

    let modules = [
        (&rtt, "rtt", 9.1),
        (&flood, "syn-flood", 6.4),
        (&lrd, "lrd", 4.9),
        (&trajectory, "trajectory", 31.7),
        (&ports, "port-count", 7.7),
        (&worm, "worm", 118.2),
        (&payload, "payload-match", 22.5),
        (&detector, "detector", 1.5),
    ];
    let mut facts: Vec<RunModuleInfo> =
        modules.iter().map(|(module, label, ns)| module.facts(label, packets, *ns)).collect();
    facts[1].parameters = vec![("interval".into(), "1s".into()), ("threshold".into(), "1.05".into())];
    facts[5].faults = 1;
    facts[5].tier = "metered".into();
    facts[5].tier_reason = Some("weir_packet: no bound on its time".into());
    facts[5].messages =
        vec!["packet 1 000: out of bounds memory access in weir_packet (lost that packet)".into()];
    let capture = CaptureInfo {
        name: "campus-uplink-2025-03-10.pcapng".into(),
        packets,
        wire_bytes: bytes,
        start: Some(Timestamp(START)),
        duration: Nanos(600 * SECOND),
        truncated: Some(
            "It ends inside a record at offset 431 224 104; what comes before was processed.".into(),
        ),
        warnings: Vec::new(),
        filter: Some("not port 22".into()),
        tcp: packets * 8 / 10,
        udp: packets * 15 / 100,
        ipv6: packets / 9,
        tcp_syn: 171_000,
        elapsed: Nanos(212_000_000),
        jobs: 2,
    };
    (report, capture, facts)
}
