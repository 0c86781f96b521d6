//! The findings of modules on the page.

use super::fabricated::{START, Value, add_module, finding, manifest, manifest_with_findings, run};
use super::html::{Element, elements};
use super::{HOSTILE, assert_harmless, assert_sound};
use weir_report::{CaptureInfo, RunModuleInfo, RunReport, StreamInfo};

const SECOND: u64 = 1_000_000_000;

fn texts(page: &str) -> Vec<String> {
    let in_list = |e: &&Element| e.tag == "li" && e.around.last().is_some_and(|tag| tag == "ol");
    elements(page).iter().filter(in_list).map(|e| e.text.clone()).collect()
}

#[test]
fn findings_are_first_and_sorted_by_severity_then_time() {
    let mut report = RunReport::new();
    let mut one = add_module(&mut report, "one", manifest_with_findings("one"));
    let mut two = add_module(&mut report, "two", manifest_with_findings("two"));
    for (module, time, severity, text) in [
        (1, 5, 2, "e"),
        (2, 9, 5, "b"),
        (1, 7, 5, "a"),
        (2, 1, 3, "c"),
        (1, 3, 3, "d"),
        (2, 0, 1, "f"),
        (1, 1, 0, "g"),
        (1, 10, 99, "h"),
    ] {
        let module = if module == 1 { &mut one } else { &mut two };
        let filter = if text == "a" { "tcp".to_owned() } else { format!("port {time}") };
        module.emit(
            &mut report,
            "findings",
            &finding(START + time * SECOND, severity, text, &filter, "rows"),
        );
    }
    one.emit(&mut report, "rows", &[("n", Value::Int(1))]);
    let facts = RunModuleInfo {
        streams: vec![StreamInfo { name: "rows".into(), rows: 1, path: Some("out/one/rows.parquet".into()) }],
        ..one.facts("one", 1, 1.0)
    };
    let page = report.render(&CaptureInfo::default(), &[facts]);
    assert_sound(&page);
    let texts = texts(&page);
    let expected = [
        "critical 2025-03-10 09:46:47.123 UTC onea",
        "critical 2025-03-10 09:46:49.123 UTC twob",
        "critical 2025-03-10 09:46:50.123 UTC oneh",
        "medium 2025-03-10 09:46:41.123 UTC twoc",
        "medium 2025-03-10 09:46:43.123 UTC oned",
        "low 2025-03-10 09:46:45.123 UTC onee",
        "informational 2025-03-10 09:46:40.123 UTC twof",
        "informational 2025-03-10 09:46:41.123 UTC oneg",
    ];
    let begins = |(text, expected): (&String, &str)| text.starts_with(expected);
    assert!(texts.len() == 8 && texts.iter().zip(expected).all(begins), "{texts:#?}");
    assert!(texts[0].ends_with("Filter: tcpFirst rows of rows, all in out/one/rows.parquet"), "{}", texts[0]);
    assert!(page.contains("3 critical, 2 medium, 1 low, 2 informational."));
    assert!(page.contains("<code class=\"copy\">tcp</code>"));
    assert!(page.contains("<a href=\"#rows-0-0\">") && page.contains("<div id=\"rows-0-0\">"));
    // Findings, then talkers, then the modules' sections, then records.
    let page = {
        let (report, capture, modules) = run();
        report.render(&capture, &modules)
    };
    let order = ["findings", "talkers", "protocols", "conversations", "module-0", "modules", "records"];
    let places: Vec<_> =
        order.iter().map(|id| page.find(&format!("<section id=\"{id}\"")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn findings_with_the_same_filter_are_one_item_with_their_number() {
    let mut report = RunReport::new();
    let mut module = add_module(&mut report, "m", manifest_with_findings("m"));
    for n in 0..1_000 {
        let filter = ["tcp", "udp"][n % 2];
        module.emit(&mut report, "findings", &finding(START + n as u64 * SECOND, 3, "text", filter, "rows"));
    }
    let page = report.render(&CaptureInfo::default(), &[]);
    let texts = texts(&page);
    assert_eq!(texts.len(), 2);
    let further = "text (and 499 more with this filter, the last at 2025-03-10 10:03:18.123)Filter: tcp";
    assert!(texts[0].contains(further), "{texts:?}");
    assert!(page.contains("1\u{202f}000 medium.") && !page.contains("more findings"));
}

#[test]
fn modules_without_findings_have_one_line_each() {
    let (report, capture, mut modules) = run();
    modules[1].faults = 3;
    let elements = elements(&report.render(&capture, &modules));
    let of_findings =
        |e: &&Element| e.tag == "summary" && e.around.iter().filter(|tag| *tag == "section").count() == 1;
    let lines: Vec<&str> = elements
        .iter()
        .filter(of_findings)
        .take_while(|e| !e.text.contains("rows"))
        .map(|e| e.text.as_str())
        .collect();
    assert!(lines.contains(&"lrd measures, and reports no findings"), "{lines:?}");
    assert!(lines.contains(&"syn-flood no findings · faults: 3"), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("detector")), "{lines:?}");

    let mut report = RunReport::new();
    add_module(&mut report, "quiet", manifest_with_findings("quiet"));
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.contains("No module reported a finding.") && page.contains("</code> no findings</summary>"));
}

/// The module of this test calls everything critical, and its texts are as hostile as they can be.
#[test]
fn a_flood_of_hostile_findings_is_bounded_harmless_and_hides_no_other_module() {
    let mut report = RunReport::new();
    let mut honest = add_module(&mut report, "honest", manifest_with_findings("honest"));
    let mut hostile = add_module(&mut report, "hostile", manifest_with_findings("hostile"));
    let long = format!("{}\u{202e}\u{7}\u{0}", HOSTILE).repeat(2_000);
    for n in 0..20_000u64 {
        let text = format!("{n} {long}");
        let values = finding(START - n, 5, &text, &long, &long);
        hostile.emit(&mut report, "findings", &values);
    }
    let invalid = b"\xff\xfe<script>\xc3";
    let bytes =
        [("severity", Value::Int(5)), ("text", Value::Text(invalid)), ("filter", Value::Text(invalid))];
    hostile.emit(&mut report, "findings", &bytes);
    honest.emit(&mut report, "findings", &finding(START, 2, "something small", "udp", "rows"));
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.len() < 512 << 10, "{} bytes", page.len());
    assert!(page.contains("20\u{202f}001 critical, 1 low.") && page.contains("something small"));
    assert!(page.contains("\u{fffd}\u{fffd}&lt;script&gt;"));
    assert!(page.contains("19\u{202f}951 more findings"), "{:?}", page.find("more findings"));
    assert_harmless(&page);
}

#[test]
fn only_filters_that_weir_accepts_are_offered_for_copying() {
    let mut report = RunReport::new();
    let mut module = add_module(&mut report, "m", manifest_with_findings("m"));
    let filters = [
        ("dst host 192.0.2.66 and tcp[tcpflags] & tcp-syn != 0", true),
        ("host example.org && reboot", false),
        ("tcp'; reboot; '", false),
        ("tcp $(reboot)", false),
        ("tcp\n", true),
        ("tcp \u{202e}", false),
        ("ip and ip6", false),
    ];
    for (n, (filter, _)) in filters.iter().enumerate() {
        module.emit(&mut report, "findings", &finding(n as u64, 5, "t", filter, ""));
    }
    let long = "tcp or ".repeat(200) + "udp";
    module.emit(&mut report, "findings", &finding(50, 5, "t", &long, "nowhere"));
    let page = report.render(&CaptureInfo::default(), &[]);
    let items = texts(&page);
    for ((filter, is_valid), item) in filters.iter().zip(&items) {
        assert_eq!(item.contains("Filter: "), *is_valid, "{filter:?}: {item}");
        assert_eq!(item.contains("not valid"), !is_valid, "{filter:?}: {item}");
    }
    let last = items.last().unwrap();
    assert!(last.contains("too long") && last.contains("no stream nowhere"), "{last}");
    assert!(!page.contains("tcp\n"), "a line feed would end a command");
}

/// The alarm of the CUSUM statistic alone is a figure. Only the module's findings say that there was a flood.
#[test]
fn alarm_intervals_without_a_finding_are_not_reported_as_a_flood() {
    let mut report = RunReport::new();
    let mut flood = add_module(&mut report, "syn-flood", manifest("syn-flood"));
    flood.emit(&mut report, "intervals", &[("time", Value::Int(START)), ("alarm", Value::Int(1))]);
    let page = report.render(&CaptureInfo::default(), &[]);
    assert!(page.contains("No module reported a finding.") && page.contains("Intervals with a SYN alarm"));
}
