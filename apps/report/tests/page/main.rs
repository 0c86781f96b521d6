//! The page: its content, its escaping and its size.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

mod accessibility;
mod fabricated;
mod findings;
mod html;
mod overview;
mod sample;

use fabricated::{Module, START, Value, add_module, add_packet, manifest, run};
use weir_abi::Descriptor;
use weir_report::{CaptureInfo, RunModuleInfo, RunReport, StreamInfo};
use {
    weir_admission::Manifest,
    weir_session::{Record, RecordOrder},
};

#[test]
fn every_part_is_on_the_page_of_a_full_run() {
    let (report, capture, modules) = run();
    let page = report.render(&capture, &modules);
    for wanted in [
        "campus-uplink-2025-03-10.pcapng",
        "begins 2025-03-10 09:46:40.123 UTC",
        "The capture is truncated.",
        "Traffic over time",
        "packets/s",
        "bit/s",
        "TCP round-trip time",
        "Cumulative distribution",
        "SYN flood detection",
        "alarm threshold",
        "203.0.113.1",
        "Log-scale diagram",
        "Estimate over time",
        "Sampled flows",
        "10.0.0.0:40000",
        "UDP traffic by port",
        "Worm signatures",
        "50 of 70 rows",
        "Payload matches",
        "Nothing was found.",
        "Cost per module",
        "ns per packet",
        "out/rtt/rtts.parquet",
        "out of bounds memory access",
        "<td>proved</td>",
        "Talkers",
        "192.0.2.10",
        "443 (https)",
        "Conversations",
        "SYN flood of 203.0.113.1",
        "<code>worm</code> is metered: weir_packet: no bound on its time",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // The flood's 122 alarms and the median match the fabricated data.
    assert!(page.contains("<dd class=\"value\">122</dd>"));
    assert!(page.contains("<dd class=\"value\">29.4\u{202f}ms</dd>"));
    assert_sound(&page);
}

/// Asserts that the page loads nothing and runs no script, has no undefined number, and closes every tag.
fn assert_sound(page: &str) {
    let lower = page.to_lowercase();
    for bad in ["http:", "https:", "//", "<script", "url(", "@import", "src=", "nan", "-inf", "infinity"] {
        assert!(!lower.contains(bad), "{bad}: …{}", around(&lower, bad));
    }
    let targets = lower.split("href=\"").skip(1);
    assert_eq!(targets.filter(|target| !target.starts_with('#')).count(), 1, "only the empty icon");
    assert!(lower.contains("default-src 'none'"));
    // Reading the elements asserts that each one is closed.
    accessibility::assert_accessible(&html::elements(page));
}

fn around(text: &str, what: &str) -> String {
    let at = text.find(what).unwrap_or(0);
    text.chars().skip(text[..at].chars().count().saturating_sub(60)).take(160).collect()
}

#[test]
fn an_empty_run_has_a_page() {
    let page = RunReport::new().render(&CaptureInfo::default(), &[]);
    assert!(page.contains("<dd class=\"value\">0</dd>") && !page.contains("Traffic over time"));
    assert_sound(&page);

    let mut report = RunReport::new();
    for name in ["rtt", "syn-flood", "lrd", "trajectory", "port-count", "worm", "payload-match", "dscp-mark"]
    {
        add_module(&mut report, name, manifest(name));
    }
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.contains("no rows"));
    assert_sound(&page);
}

#[test]
fn a_single_packet_and_a_single_row_of_each_have_a_page() {
    let mut report = RunReport::new();
    add_packet(&mut report, START, [192, 0, 2, 1], [192, 0, 2, 2], 60);
    for name in ["rtt", "syn-flood", "lrd", "trajectory", "port-count", "worm", "payload-match", "dscp-mark"]
    {
        let mut module = add_module(&mut report, name, manifest(name));
        let streams: Vec<String> = module.manifest.streams.iter().map(|s| s.name.to_string()).collect();
        for stream in streams {
            module.emit(&mut report, &stream, &[]);
        }
    }
    assert_sound(&report.render(&CaptureInfo { packets: 1, wire_bytes: 60, ..CaptureInfo::default() }, &[]));
}

const HOSTILE: &str =
    "</code></style><script>alert(1)</script><img src=x onerror='a'>\" style=\"position:fixed\u{202e}";

/// Asserts that hostile text on a page is text: no element or attribute is made of it, and it is shown as it is.
fn assert_harmless(page: &str) {
    assert!(page.contains("&lt;script&gt;"));
    assert!(!page.chars().any(|c| c != '\n' && !weir_admission::is_plain(c)));
    for element in html::elements(page) {
        assert!(!["script", "img", "iframe", "object"].contains(&element.tag.as_str()), "{element:?}");
        for (name, value) in &element.attributes {
            assert!(!name.starts_with("on") && name != "src", "{element:?}");
            let is_plain_style = value.starts_with("width:") || value.starts_with("padding-left:");
            assert!(name != "style" || (is_plain_style && value.len() < 24), "{element:?}");
        }
    }
}

#[test]
fn hostile_text_from_modules_and_captures_is_escaped() {
    let mut report = RunReport::new();
    add_packet(&mut report, START, [192, 0, 2, 1], [192, 0, 2, 2], 60);
    let mut worm = add_module(&mut report, HOSTILE, manifest("worm"));
    worm.emit(&mut report, "hits", &[("text", Value::Text(HOSTILE.as_bytes()))]);
    let text = format!(
        "name='own'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='''{0}'''\n[[stream]]\nname='s'\nsummary='''{0}'''\n\
         [[stream.field]]\nname='f'\ntype='bytes'\nunit='''{0}'''\nsummary='''{0}'''\n[[stream.field]]\nname='n'\ntype='u8'\nunit='''{0}'''\n",
        HOSTILE.replace('\'', "`").replace(|c| !weir_admission::is_plain(c), "")
    );
    let mut own = add_module(&mut report, "own", Manifest::parse(text.as_bytes()).unwrap());
    own.emit(&mut report, "s", &[("f", Value::Text(HOSTILE.as_bytes()))]);
    let hostile = || HOSTILE.to_owned();
    let capture = CaptureInfo {
        name: hostile(),
        truncated: Some(hostile()),
        warnings: vec![hostile()],
        filter: Some(hostile()),
        ..CaptureInfo::default()
    };
    let facts = |module: &Module, label: &str| RunModuleInfo {
        version: hostile(),
        summary: hostile(),
        tier: hostile(),
        tier_reason: Some(hostile()),
        parameters: vec![(hostile(), hostile())],
        messages: vec![hostile()],
        streams: module
            .manifest
            .streams
            .iter()
            .map(|s| StreamInfo { name: s.name.to_string(), rows: 1, path: Some(hostile()) })
            .collect(),
        ..module.facts(label, 1, f64::NAN)
    };
    let page = report.render(
        &capture,
        &[facts(&worm, HOSTILE), RunModuleInfo { ns_per_packet: Some(3.0), ..facts(&own, HOSTILE) }],
    );
    assert_harmless(&page);
    assert!(!page.contains("NaN"));
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn a_report_can_be_shared_by_threads_under_a_lock() {
    fn shared(_: &impl Sync) {}
    shared(&std::sync::Mutex::new(RunReport::new()));
}

#[test]
fn rows_of_another_layout_are_ignored() {
    let mut report = RunReport::new();
    let rtt = add_module(&mut report, "rtt", manifest("rtt"));
    for (module, stream, row) in [(rtt.index, 0, &[][..]), (rtt.index, 7, &[0; 64]), (99, 0, &[0; 64])] {
        report.add_record(module, &Record { order: RecordOrder::packet(0), stream, row, tail: &[] });
    }
    assert_sound(&report.render(&CaptureInfo::default(), &[]));
}

#[test]
fn extreme_numbers_from_modules_do_not_break_the_page() {
    let mut report = RunReport::new();
    for (ts_ns, wire_len) in [(u64::MAX, u32::MAX), (0, 1)] {
        report.add_packet(&Descriptor { ts_ns, wire_len, ..Descriptor::default() }, &[]);
    }
    let mut flood = add_module(&mut report, "syn-flood", manifest("syn-flood"));
    let mut lrd = add_module(&mut report, "lrd", manifest("lrd"));
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, -1e308, 0.0];
    for (n, value) in odd.into_iter().enumerate() {
        let (v, t) = (Value::Float(value), Value::Int(u64::MAX / 3 * (n as u64 % 3)));
        flood.emit(
            &mut report,
            "intervals",
            &[
                ("time", t),
                ("syn_packets", Value::Int(u64::MAX)),
                ("fin_packets", Value::Int(u64::MAX)),
                ("rst_packets", Value::Int(u64::MAX)),
                ("statistic", v),
                ("cusum", v),
            ],
        );
        lrd.emit(
            &mut report,
            "scales",
            &[("octave", Value::Int(n as u64)), ("log2_energy", v), ("lower", v), ("upper", v)],
        );
        lrd.emit(
            &mut report,
            "estimate",
            &[("hurst", v), ("lower", v), ("upper", v), ("last_octave", Value::Int(9))],
        );
    }
    let mut rtt = add_module(&mut report, "rtt", manifest("rtt"));
    for ns in [i64::MAX, 1, 0, -1, i64::MIN] {
        rtt.emit(&mut report, "rtts", &[("rtt_ns", Value::Int(ns.cast_unsigned()))]);
    }
    assert_sound(&report.render(&CaptureInfo::default(), &[]));
}

/// Anonymous resident memory of the process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn millions_of_records_take_a_few_mebibytes_and_the_page_stays_small() {
    use Value::{Int, Ip, Text};
    let before = resident();
    let mut report = RunReport::new();
    let names = ["rtt", "syn-flood", "trajectory", "worm"];
    let mut modules = names.map(|name| add_module(&mut report, name, manifest(name)));
    let [rtt, flood, trajectory, worm] = &mut modules;
    for n in 0..500_000u64 {
        let time = Int(START + n * 100_000_000);
        let ip = Ip((n.wrapping_mul(0x9e37_79b9) as u32).to_be_bytes());
        let label = Int(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let [a, b, c, d] = (n.wrapping_mul(0x9e37_79b9) as u32).to_be_bytes();
        add_packet(&mut report, START + n * 100_000_000, [a, b, c, d], [d, c, b, a], 100);
        rtt.emit(&mut report, "rtts", &[("time", time), ("rtt_ns", Int(n * 1_000))]);
        flood.emit(&mut report, "intervals", &[("time", time), ("syn_packets", Int(n)), ("alarm", Int(1))]);
        flood.emit(&mut report, "top", &[("time", time), ("dst", ip), ("syn_packets", Int(n))]);
        trajectory.emit(&mut report, "flows", &[("flow", label), ("src", ip)]);
        trajectory.emit(&mut report, "samples", &[("time", time), ("flow", label)]);
        worm.emit(&mut report, "hits", &[("src", ip), ("text", Text(&[b'x'; 500]))]);
    }
    // The rows themselves would take over 300 MiB. The limit leaves room for other tests in this process.
    let used = resident().saturating_sub(before);
    assert!(used < 64 << 10, "{used} KiB");
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.len() < 2 << 20, "{} bytes", page.len());
    assert_sound(&page);
}
