//! The module `entropy` on generated packets and on real captures, compared with exact entropies from maps.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, sample};
use super::noise::Random;
use super::packet::{ACK, Packet, SYN};
use super::talkers::{below, each_trace, exact, module, random};
use super::weir::{Row, Run, refusal, run, run_file};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::io::Write;

fn entropy(capture: &Capture, parameters: &str) -> Run {
    run(capture, &["-m", &module("entropy", parameters)])
}

fn unsigned(row: &Row, name: &str) -> u64 {
    u64::try_from(row.number(name)).unwrap()
}

/// Counts of values.
struct Distribution<T>(HashMap<T, u64>);

impl<T: Hash + Eq> Distribution<T> {
    fn add(&mut self, value: T) {
        *self.0.entry(value).or_default() += 1;
    }

    fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// From probabilities, unlike the module.
    fn bits(&self) -> f64 {
        let total = self.total() as f64;
        let shares = self.0.values().map(|count| *count as f64 / total);
        shares.map(|share| -share * share.log2()).sum::<f64>().max(0.0)
    }
}

/// The exact distributions of an interval.
struct Interval {
    src: Distribution<std::net::IpAddr>,
    dst: Distribution<std::net::IpAddr>,
    src_port: Distribution<u16>,
    dst_port: Distribution<u16>,
}

fn count(capture: &Capture, interval: u64) -> BTreeMap<u64, Interval> {
    let mut intervals: BTreeMap<u64, Interval> = BTreeMap::new();
    exact::each(capture, interval, |begin, seen, _| {
        let at = intervals.entry(begin).or_insert_with(|| Interval {
            src: Distribution(HashMap::new()),
            dst: Distribution(HashMap::new()),
            src_port: Distribution(HashMap::new()),
            dst_port: Distribution(HashMap::new()),
        });
        at.src.add(seen.src);
        at.dst.add(seen.dst);
        if let Some((_, src, dst)) = seen.ports {
            at.src_port.add(src);
            at.dst_port.add(dst);
        }
    });
    intervals
}

/// Rounding errors of sums of many terms.
const ROUNDING: f64 = 1e-9;

#[derive(Debug, Default)]
struct Compared {
    intervals: usize,
    inexact: usize,
    /// The largest distance of an estimate from the exact entropy, and of the bounds from each other, in bits.
    worst: f64,
    widest: f64,
}

/// Asserts that all entropies are within their bounds, and that the bounds meet where the tables are large enough.
fn assert_sound(intervals: &BTreeMap<u64, Interval>, run: &Run, place: &str) -> Compared {
    let rows = run.rows("entropy", "intervals");
    let times: Vec<u64> = rows.iter().map(|row| unsigned(row, "time")).collect();
    assert_eq!(times, intervals.keys().copied().collect::<Vec<_>>(), "{place}");
    let mut compared = Compared { intervals: rows.len(), ..Compared::default() };
    for (row, (time, truth)) in rows.iter().zip(intervals) {
        let place = format!("{place}, interval {time}");
        let packets = truth.src.total();
        assert_eq!(unsigned(row, "packets"), packets, "{place}");
        assert_eq!(unsigned(row, "port_packets"), truth.src_port.total(), "{place}");
        for (name, bits) in [("src", truth.src.bits()), ("dst", truth.dst.bits())] {
            let [estimate, lower, upper] = ["entropy", "entropy_lower", "entropy_upper"]
                .map(|part| row.float(&format!("{name}_{part}")));
            assert!(lower - ROUNDING <= bits && bits <= upper + ROUNDING, "{place}: {name} {bits}, {row:?}");
            assert!(lower <= estimate && estimate <= upper, "{place}: {row:?}");
            compared.inexact += usize::from(lower != upper);
            compared.worst = compared.worst.max((estimate - bits).abs());
            compared.widest = compared.widest.max(upper - lower);
            let normalised = if packets > 1 { estimate / (packets as f64).log2() } else { 0.0 };
            assert!(
                (row.float(&format!("{name}_normalised")) - normalised).abs() < ROUNDING,
                "{place}: {row:?}"
            );
        }
        for (name, ports) in [("src_port", &truth.src_port), ("dst_port", &truth.dst_port)] {
            let bits = row.float(&format!("{name}_entropy"));
            assert!((bits - ports.bits()).abs() < ROUNDING, "{place}: {name} {}, {row:?}", ports.bits());
            let values = ports.total().min(65_536);
            let normalised = if values > 1 { bits / (values as f64).log2() } else { 0.0 };
            assert!(
                (row.float(&format!("{name}_normalised")) - normalised).abs() < ROUNDING,
                "{place}: {row:?}"
            );
            let most = ports.0.values().max().copied().unwrap_or(0);
            assert_eq!(unsigned(row, &format!("{name}_packets")), most, "{place}: {row:?}");
            let top = row.optional_number(name).map(|port| ports.0[&u16::try_from(port).unwrap()]);
            assert_eq!(top, (most != 0).then_some(most), "{place}: {row:?}");
        }
        for (name, ends) in [("src", &truth.src), ("dst", &truth.dst)] {
            let ip: std::net::IpAddr = row.text(name).parse().unwrap();
            assert_eq!(unsigned(row, &format!("{name}_packets")), ends.0[&ip], "{place}: {row:?}");
        }
    }
    compared
}

#[test]
fn entropies_of_known_distributions() {
    let mut capture = Capture::new(ETHERNET);
    // Four sources, equally often: 2 bits. Destinations 1/2, 1/4, 1/4: 1.5 bits. Eight source ports: 3 bits. One destination port.
    for i in 0..16 {
        let to = ["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::1]", "[2001:db8::3]"][i % 4];
        let from = format!("[2001:db8:1::{}]:{}", i / 4, 1000 + i % 8);
        capture.push(BEGIN, Packet::tcp(&from, &format!("{to}:80"), ACK).ethernet());
    }
    let run = entropy(&capture, "");
    let row = &run.rows("entropy", "intervals")[0];
    for (name, bits) in [("src", 2.0), ("dst", 1.5), ("src_port", 3.0), ("dst_port", 0.0)] {
        let found = row.float(&format!("{name}_entropy"));
        assert!((found - bits).abs() < ROUNDING, "{name}: {found}");
    }
    assert!((row.float("src_normalised") - 0.5).abs() < ROUNDING);
    assert_eq!((row.text("dst"), row.number("dst_packets")), ("2001:db8::1", 8));
    assert_eq!((row.number("dst_port"), row.number("dst_port_packets")), (80, 16));
    assert_eq!((row.flag("alarm"), row.text("change")), (false, ""));
    assert!(row.is_null("src_change") && row.is_null("dst_port_change"));
    assert_sound(&count(&capture, 10 * SECOND), &run, "known distributions");
}

#[test]
fn packets_without_ports_and_without_ip() {
    let mut capture = Capture::new(ETHERNET);
    let plain = Packet::udp("10.0.0.1:5000", "10.0.0.2:53").payload([0; 40]).ethernet();
    let mut fragment = plain.clone();
    fragment[20..22].copy_from_slice(&0x2000u16.to_be_bytes());
    let mut icmp = plain.clone();
    icmp[23] = 1;
    capture.push(BEGIN, vec![0xFF; 60]);
    assert!(entropy(&capture, "").rows("entropy", "intervals").is_empty());
    capture.push(BEGIN + 30 * SECOND, fragment);
    capture.push(BEGIN + 12 * SECOND, icmp);
    let run = entropy(&capture, "");
    assert_sound(&count(&capture, 10 * SECOND), &run, "no ports");
    let row = &run.rows("entropy", "intervals")[0];
    assert_eq!((row.number("packets"), row.number("port_packets")), (2, 0));
    assert!(row.is_null("src_port") && row.is_null("dst_port"));
}

#[test]
fn the_innermost_or_the_outermost_ip_header_counts() {
    let mut capture = Capture::new(ETHERNET);
    for i in 0..4 {
        let inner = Packet::tcp(&format!("192.168.7.{i}:1000"), "192.168.8.1:80", ACK).ip();
        let mut bytes = Packet::udp("10.0.0.1:0", "10.0.0.2:0").ethernet();
        bytes.truncate(34);
        bytes[23] = 4;
        bytes[16..18].copy_from_slice(&(20 + u16::try_from(inner.len()).unwrap()).to_be_bytes());
        bytes.extend_from_slice(&inner);
        capture.push(BEGIN, bytes);
    }
    for (parameters, bits, ports) in [("", 2.0, 4), (",layer=outer", 0.0, 0)] {
        let row = &entropy(&capture, parameters).rows("entropy", "intervals")[0];
        assert!((row.float("src_entropy") - bits).abs() < ROUNDING, "{parameters}: {row:?}");
        assert_eq!(row.number("port_packets"), ports);
    }
    let said = refusal(&capture, &["-m", &module("entropy", ",layer=")]);
    assert!(said.contains("an empty value is none of inner, outer"), "{said}");
}

#[test]
fn bounds_hold_where_the_table_is_too_small_and_for_broken_packets() {
    let mut random = random();
    let mut inexact = 0;
    for sources in [200, 2_000, 50_000] {
        let mut capture = Capture::new(ETHERNET);
        for i in 0..30_000u64 {
            // Squares: some sources have many packets, most have few.
            let draw = random.word() % sources;
            let from = format!("10.1.{}.{}:5000", draw * draw / sources / 250, draw * draw / sources % 250);
            let to = format!("172.{}.{}.2:53", random.word() % 4, random.word() % 250);
            let mut bytes = Packet::udp(&from, &to).ethernet();
            if below(&mut random, 8) == 0 {
                let at = below(&mut random, bytes.len());
                bytes[at] = random.word().to_le_bytes()[0];
                bytes.truncate(below(&mut random, 43));
            }
            capture.push(BEGIN + i * MILLISECOND, bytes);
            capture.frames.last_mut().unwrap().wire_len = 42;
        }
        let intervals = count(&capture, 10 * SECOND);
        for size in [256, 1024, 131_072] {
            let run = entropy(&capture, &format!(",table-size={size},layer=outer"));
            let one = assert_sound(&intervals, &run, &format!("{sources} sources, table-size={size}"));
            let _ = writeln!(std::io::stderr(), "{sources} sources, table-size={size}: {one:?}");
            // A set of a large table is rarely full by chance; then a bound is a little wider than the value.
            let is_almost_exact = sources == 50_000 && one.inexact == 1 && one.widest < 0.001;
            assert!(size < 131_072 || one.inexact == 0 || is_almost_exact, "{one:?}");
            inexact += one.inexact;
        }
    }
    assert!(inexact > 0, "no table was too small");
}

#[test]
fn entropies_of_traces_are_within_their_bounds() {
    let mut sum = Compared::default();
    each_trace(|path, capture| {
        for (parameters, interval) in
            [(",interval=1s", SECOND), (",interval=1h,table-size=256", 3600 * SECOND)]
        {
            let run = run_file(path, &["-m", &module("entropy", &format!("{parameters},layer=outer"))]);
            let one =
                assert_sound(&count(capture, interval), &run, &format!("{} {parameters}", path.display()));
            sum.intervals += one.intervals;
            sum.inexact += one.inexact;
            sum.worst = sum.worst.max(one.worst);
            sum.widest = sum.widest.max(one.widest);
        }
    });
    let _ = writeln!(std::io::stderr(), "{sum:?}");
    assert!(sum.intervals > 0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    Flood,
    Reflection,
    PortScan,
    HostScan,
}

impl Attack {
    const ALL: [Self; 4] = [Self::Flood, Self::Reflection, Self::PortScan, Self::HostScan];

    fn text(self) -> &'static str {
        match self {
            Self::Flood => "Flood from many addresses to ",
            Self::Reflection => "Reflection attack on ",
            Self::PortScan => "Port scan ",
            Self::HostScan => "Scan of many addresses by ",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Reflection => "reflection",
            Self::PortScan => "port-scan",
            Self::HostScan => "host-scan",
        }
    }
}

#[derive(Debug)]
struct Event {
    attack: Attack,
    begin: u64,
    end: u64,
    packets: u64,
}

/// Traffic between clients and servers, with attacks in it.
struct Generator<'a> {
    random: &'a mut Random,
    capture: Capture,
    is_v6: bool,
    clients: u64,
    servers: u64,
}

impl Generator<'_> {
    fn below(&mut self, most: u64) -> u64 {
        self.random.word() % most
    }

    fn add(&mut self, ts: u64, from: (u64, u64), to: (u64, u64)) {
        let end = |(host, port): (u64, u64)| {
            if self.is_v6 {
                format!("[2001:db8:{:x}::{:x}]:{port}", host >> 16 & 0xFFFF, host & 0xFFFF)
            } else {
                format!("{}.{}.{}.{}:{port}", host >> 24 & 255, host >> 16 & 255, host >> 8 & 255, host & 255)
            }
        };
        let bytes = Packet::tcp(&end(from), &end(to), SYN).ethernet();
        self.capture.push(ts, bytes);
    }

    /// The lower of two draws: low numbers are more frequent.
    fn skewed(&mut self, most: u64) -> u64 {
        self.below(most).min(self.below(most))
    }

    fn normal(&mut self, second: u64, packets: u64) {
        for _ in 0..packets {
            let ts = BEGIN + second * SECOND + self.below(SECOND);
            let (clients, servers) = (self.clients, self.servers);
            let client = (0x0A00_0000 + 7 * self.skewed(clients), 1024 + self.below(64_000));
            let port =
                [80, 443, 53, 22, 25, 993, 8080, 123][below(self.random, 8).min(below(self.random, 8))];
            let server = (0xC0A8_0000 + self.skewed(servers), port);
            if self.below(2) == 0 { self.add(ts, client, server) } else { self.add(ts, server, client) }
        }
    }

    fn attack(&mut self, event: &Event) {
        let servers = self.servers;
        let victim = 0xC0A8_0000 + self.below(servers);
        let attacker = 0x5000_0000 + self.below(1 << 20);
        let reflectors = 50 + self.below(1000);
        let port = [53, 123, 389, 11211][below(self.random, 4)];
        for _ in 0..event.packets {
            let ts = event.begin + self.below(event.end - event.begin);
            let any_port = 1 + self.below(65_535);
            let (from, to) = match event.attack {
                Attack::Flood => ((self.below(1 << 32), any_port), (victim, 80)),
                Attack::Reflection => ((0x6000_0000 + 77 * self.below(reflectors), port), (victim, any_port)),
                Attack::PortScan => ((attacker, 40_000), (victim, any_port)),
                Attack::HostScan => ((attacker, any_port), (0x0A00_0000 + self.below(1 << 16), 445)),
            };
            self.add(ts, from, to);
        }
    }
}

/// A capture of 70 s with some attacks, of 30 to 250 % of the other packets; from second 13 on, when the detector has learnt.
fn random_capture(random: &mut Random) -> (Capture, Vec<Event>) {
    let (clients, servers) = (100 + random.word() % 3000, 10 + random.word() % 200);
    let is_v6 = below(random, 2) == 0;
    let mut all = Generator { random, capture: Capture::new(ETHERNET), is_v6, clients, servers };
    let per_second = 500 + all.below(1500);
    for second in 0..70 {
        // A tenth more or less.
        let packets = per_second * (900 + all.below(200)) / 1000;
        all.normal(second, packets);
    }
    let mut events = Vec::new();
    let mut at = 13 * SECOND + all.below(5 * SECOND);
    while at < 60 * SECOND {
        let len = (2 + all.below(5)) * SECOND + all.below(SECOND);
        let attack = Attack::ALL[below(all.random, 4)];
        let packets = per_second * len / SECOND * (30 + all.below(220)) / 100;
        let event = Event { attack, begin: BEGIN + at, end: BEGIN + at + len, packets };
        all.attack(&event);
        events.push(event);
        at += len + 6 * SECOND + all.below(8 * SECOND);
    }
    let mut capture = all.capture;
    capture.frames.sort_by_key(|frame| frame.ts);
    (capture, events)
}

#[test]
fn attacks_in_random_captures_are_found_and_named() {
    let mut random = random();
    let (mut hits, mut missed, mut wrong, mut named, mut labels) = (0usize, 0usize, 0usize, 0usize, 0usize);
    for round in 0..20 {
        let (capture, events) = random_capture(&mut random);
        let run = entropy(&capture, ",interval=1s");
        let findings = run.rows("entropy", "findings");
        let rows = run.rows("entropy", "intervals");
        // A finding has the begin of an interval as its time; a change of no clear kind comes an interval later.
        let is_of = |event: &Event, time: u64| time + SECOND > event.begin && time <= event.end + SECOND;
        for event in &events {
            let of_event: Vec<&Row> =
                findings.iter().filter(|row| is_of(event, unsigned(row, "time"))).collect();
            match of_event.last() {
                Some(last) => {
                    hits += 1;
                    let is_named = last.text("text").starts_with(event.attack.text());
                    named += usize::from(is_named);
                    if !is_named {
                        let _ = writeln!(std::io::stderr(), "round {round}: {event:?} is {last:?}");
                    }
                    let label = event.attack.label();
                    labels += usize::from(rows.iter().any(|row| {
                        is_of(event, unsigned(row, "time"))
                            && row.flag("alarm")
                            && row.text("change") == label
                    }));
                }
                None => {
                    missed += 1;
                    let _ = writeln!(std::io::stderr(), "round {round}: no finding of {event:?}");
                }
            }
        }
        let others =
            findings.iter().filter(|row| !events.iter().any(|event| is_of(event, unsigned(row, "time"))));
        for other in others {
            wrong += 1;
            let _ = writeln!(std::io::stderr(), "round {round}: no attack at {other:?}");
        }
    }
    let recall = hits as f64 / (hits + missed) as f64;
    let precision = hits as f64 / (hits + wrong) as f64;
    let _ = writeln!(
        std::io::stderr(),
        "{hits} attacks found, {missed} missed, {wrong} findings without one: recall {recall:.4}, precision {precision:.4}; \
         {named} named rightly in the last finding, {labels} in a row"
    );
    assert!(hits + missed > 40);
    assert!(recall >= 0.95 && precision >= 0.95, "recall {recall}, precision {precision}");
    assert!(named as f64 >= 0.9 * hits as f64, "{named} of {hits} have the right name");
}

/// Traffic of 1,000 packets a second, with one attack.
fn one_attack(attack: Attack, seconds: std::ops::Range<u64>, until: u64) -> Capture {
    let mut random = Random(11);
    let mut all = Generator {
        random: &mut random,
        capture: Capture::new(ETHERNET),
        is_v6: false,
        clients: 500,
        servers: 50,
    };
    for second in 0..until {
        all.normal(second, 1000);
    }
    let (begin, end) = (BEGIN + seconds.start * SECOND, BEGIN + seconds.end * SECOND);
    all.attack(&Event { attack, begin, end, packets: 1000 * (seconds.end - seconds.start) });
    let mut capture = all.capture;
    capture.frames.sort_by_key(|frame| frame.ts);
    capture
}

#[test]
fn a_finding_names_the_host_and_its_filter_selects_the_packets() {
    for (attack, severity, is_source) in [
        (Attack::Flood, 4, false),
        (Attack::Reflection, 4, false),
        (Attack::PortScan, 3, true),
        (Attack::HostScan, 3, true),
    ] {
        let capture = one_attack(attack, 20..30, 40);
        let run = entropy(&capture, ",interval=1s");
        let findings = run.rows("entropy", "findings");
        assert_eq!(findings.len(), 1, "{attack:?}: {findings:?}");
        let finding = &findings[0];
        assert_eq!(unsigned(finding, "time"), BEGIN + 20 * SECOND, "{attack:?}");
        assert!(finding.text("text").starts_with(attack.text()), "{finding:?}");
        assert_eq!((finding.number("severity"), finding.text("evidence")), (severity, "intervals"));
        let filter = finding.text("filter");
        assert_eq!(filter.contains("src host"), is_source && attack == Attack::HostScan, "{filter}");
        let selected = self::run(&capture, &["-m", &module("entropy", ""), filter]);
        let packets = selected.summary["capture"]["selected"].as_u64().unwrap();
        assert!((10_000..12_000).contains(&packets), "{attack:?}: {filter} selects {packets}");
        let rows = run.rows("entropy", "intervals");
        let alarms: Vec<u64> = rows
            .iter()
            .filter(|row| row.flag("alarm"))
            .map(|row| (unsigned(row, "time") - BEGIN) / SECOND)
            .collect();
        // The change ends with the second normal interval.
        assert_eq!(alarms, (20..31).collect::<Vec<_>>(), "{attack:?}");
        let sign = |row: &Row, name: &str| row.float(&format!("{name}_change"));
        let row = &rows[25];
        match attack {
            Attack::Flood => assert!(sign(row, "src") > 5.0 && sign(row, "dst") < -5.0, "{row:?}"),
            Attack::Reflection => assert!(sign(row, "src_port") < -5.0 && sign(row, "dst") < -5.0, "{row:?}"),
            Attack::PortScan => assert!(sign(row, "dst_port") > 5.0 && sign(row, "dst") < -5.0, "{row:?}"),
            Attack::HostScan => assert!(sign(row, "src") < -5.0 && sign(row, "dst") > 5.0, "{row:?}"),
        }
        // The detector learns from seconds 1 to 8, without the first second, and leaves out the last one.
        let silent: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].is_null("src_change")).collect();
        assert_eq!(silent, (0..9).chain([39]).collect::<Vec<_>>());
    }
}

#[test]
fn steady_traffic_and_a_high_threshold_give_no_alarm() {
    let steady = one_attack(Attack::Flood, 0..1, 60);
    let attacked = one_attack(Attack::Flood, 20..30, 40);
    for (capture, parameters) in [
        (&steady, ",interval=1s"),
        (&steady, ",interval=2s"),
        (&attacked, ",interval=1s,threshold=1000"),
        (&attacked, ",interval=1s,deviation=16"),
        (&attacked, ",interval=1s,drift=100"),
        (&attacked, ",interval=1s,least-packets=5000"),
        (&attacked, ",interval=1s,warmup=1000"),
        (&attacked, ",interval=10s"),
    ] {
        let run = entropy(capture, parameters);
        assert!(run.rows("entropy", "findings").is_empty(), "{parameters}");
        assert!(run.rows("entropy", "intervals").iter().all(|row| !row.flag("alarm")), "{parameters}");
    }
}

#[test]
fn a_change_that_lasts_becomes_the_normal_state() {
    let capture = one_attack(Attack::HostScan, 15..60, 60);
    let run = entropy(&capture, ",interval=1s,hold=10");
    let rows = run.rows("entropy", "intervals");
    let alarms: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].flag("alarm")).collect();
    assert_eq!(alarms, (15..25).collect::<Vec<_>>());
    assert_eq!(run.rows("entropy", "findings").len(), 1);
}

#[test]
fn the_module_is_proved_and_its_rows_do_not_depend_on_the_number_of_threads() {
    for parameters in ["", ",table-size=131072,warmup=1000,interval=100ms"] {
        let module = module("entropy", parameters);
        let files = ["1", "2", "3"].map(|jobs| {
            let run = run_file(&sample(), &["-j", jobs, "-m", &module]);
            assert_eq!(run.summary["modules"][0]["tier"], "proved", "{parameters}: {}", run.summary);
            run.files()
        });
        assert!(files[0] == files[1] && files[0] == files[2], "{parameters}");
    }
}
