//! Events of Suricata's eve.json.

use super::rows::{FLOW, Given, REQUEST, flow, hostile_texts, request, row, stream};
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_admission::DeclaredStream;
use weir_exports::EveRows;

fn event(stream: &DeclaredStream, given: &[Given<'_>]) -> Value {
    let mut out = Vec::new();
    EveRows::new("m", stream).push(&mut out, &row(stream, given).record());
    let line = std::str::from_utf8(&out).unwrap().strip_suffix('\n').unwrap();
    assert!(line.chars().all(weir_units::is_plain), "{line:?}");
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_flow_has_the_members_of_suricata_and_the_rest_in_metadata() {
    let stream = stream("flows", FLOW);
    let tcp =
        flow(6, ["192.0.2.1", "192.0.2.2"], [Given::Number(40_000), Given::Number(443)], Given::Text(b"SF"));
    let mut found = event(&stream, &tcp);
    let flow_id = found.as_object_mut().unwrap().remove("flow_id").unwrap();
    assert!(flow_id.as_u64().unwrap() < 1 << 51);
    assert_eq!(
        found,
        json!({
            "timestamp": "2023-11-14T22:13:22.623456+0000",
            "event_type": "flow",
            "src_ip": "192.0.2.1", "src_port": 40_000, "dest_ip": "192.0.2.2", "dest_port": 443, "proto": "TCP",
            "flow": {
                "start": "2023-11-14T22:13:20.123456+0000", "age": 2,
                "pkts_toserver": 7, "bytes_toserver": 700, "pkts_toclient": 5, "bytes_toclient": 5_000_000_000u64,
            },
            "metadata": { "flowvars": [{ "state": "SF" }, { "reason": "end" }] },
        })
    );
}

#[test]
fn a_message_of_icmp_has_a_type_and_no_ports() {
    let stream = stream("flows", FLOW);
    let mut icmp = flow(1, ["192.0.2.1", "192.0.2.2"], [Given::Number(8), Given::Number(0)], Given::Null);
    icmp[8] = Given::Number(20);
    let found = event(&stream, &icmp);
    assert_eq!(
        (&found["proto"], &found["icmp_type"], &found["vlan"]),
        (&json!("ICMP"), &json!(8), &json!([20]))
    );
    assert!(found.get("src_port").is_none() && found.get("dest_port").is_none());
    assert_eq!(found["metadata"]["flowints"], json!({ "dport": 0 }));
}

#[test]
fn a_finding_is_an_alert_of_its_module() {
    let stream = {
        let text = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 'findings'\n";
        weir_admission::Manifest::parse(text.as_bytes()).unwrap().streams.remove(0)
    };
    use Given::{Number, Text};
    let finding = [Number(0), Number(5), Text(b"a scan"), Text(b"host 192.0.2.1"), Text(b"scans")];
    assert_eq!(
        event(&stream, &finding),
        json!({
            "timestamp": "1970-01-01T00:00:00.000000+0000",
            "event_type": "alert",
            "alert": { "severity": 1, "signature": "a scan", "action": "allowed", "category": "m" },
            "metadata": { "flowvars": [{ "filter": "host 192.0.2.1" }, { "evidence": "scans" }] },
        })
    );
}

fn check_text(text: &[u8]) {
    let stream = stream("requests", REQUEST);
    let found = event(&stream, &request(text, b"host", text));
    let shown = String::from_utf8_lossy(text);
    assert_eq!((&found["http"]["http_method"], &found["http"]["hostname"]), (&json!(shown), &json!("host")));
    assert_eq!(found["metadata"]["flowvars"], json!([{ "note": shown }]));
    assert_eq!(found["event_type"], "http");
}

#[test]
fn hostile_texts_are_values_and_nothing_else() {
    hostile_texts().iter().for_each(|text| check_text(text));
}

proptest! {
    #[test]
    fn any_text_is_read_back_with_bytes_that_are_no_text_replaced(text in prop::collection::vec(any::<u8>(), 0..40)) {
        check_text(&text);
    }
}
