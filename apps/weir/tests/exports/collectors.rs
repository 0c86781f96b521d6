//! Export to collectors on this machine: nfcapd over UDP, and a listener over TCP whose messages tshark reads.

use super::ipfix::{check_flows, has_tshark};
use super::{captures, json_rows, rows_of, sum};
use crate::run::net::{interrupt, wait_for};
use crate::run::{outside, run, sample};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running nfcapd, which ends with the test.
struct Nfcapd(Child);

impl Drop for Nfcapd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn send(capture: &Path, address: &str) -> Value {
    let arguments =
        ["run", "-q", "--json", "-m", "flows", "--collector", address, "-r", capture.to_str().unwrap()];
    run(arguments).succeeds().json()["collector"].clone()
}

/// Prints packets and bytes of both directions, and the number of flows with each protocol, of the files in a folder.
fn nfdump(folder: &Path) -> Vec<Value> {
    let mut command = Command::new("nfdump");
    let text = outside::output(command.arg("-q").arg("-R").arg(folder).args(["-o", "json"]));
    // Version 1.7.1 writes no brackets with -q.
    let objects = text.trim().trim_matches(['[', ']', ',', '\n']);
    serde_json::from_str(&format!("[{objects}]")).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn nfcapd_receives_the_flows_over_udp_and_nfdump_shows_their_amounts() {
    if Command::new("nfcapd").arg("-V").output().is_err() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: nfcapd is not installed");
        return;
    }
    for capture in captures() {
        let folder = tempfile::tempdir().unwrap();
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("nfcapd");
        command.args(["-b", "127.0.0.1", "-B", "4000000", "-p", &port.to_string(), "-w"]).arg(folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut collector = Nfcapd(child);
        wait_for(|| fs::read_to_string("/proc/net/udp").unwrap().contains(&format!("0100007F:{port:04X} ")));
        let json = json_rows(&capture);
        let flows = rows_of(&json, "flows", "closed");
        let sent = send(&capture, &format!("udp://127.0.0.1:{port}"));
        assert_eq!((sent["records"].as_u64(), &sent["lost"]), (Some(flows.len() as u64), &Value::from(0)));
        // nfcapd writes its file when it ends.
        interrupt(&collector.0);
        collector.0.wait().unwrap();
        let received = nfdump(folder.path());
        assert_eq!(received.len(), flows.len(), "{}", capture.display());
        let received: Vec<&Value> = received.iter().collect();
        for (field, member) in [
            ("source_packets", "in_packets"),
            ("source_bytes", "in_bytes"),
            ("destination_packets", "out_packets"),
            ("destination_bytes", "out_bytes"),
            ("protocol", "proto"),
        ] {
            assert_eq!(sum(&received, member), sum(&flows, field), "{member}");
        }
        for (flow, shown) in flows.iter().zip(&received) {
            let [shown_address, expected] =
                [shown.get("src4_addr").or(shown.get("src6_addr")).unwrap(), &flow["src"]];
            assert_eq!(shown_address, expected);
            // nfdump has milliseconds, in local time.
            let millis = |time: &Value| time.as_str().unwrap().get(17..23).unwrap().to_owned();
            assert_eq!(millis(&shown["first"]), millis(&flow["start_time"]));
        }
    }
}

#[test]
fn messages_over_tcp_are_those_of_a_file_and_a_missing_collector_is_an_error() {
    let capture = sample();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = format!("tcp://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let received = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let json = json_rows(&capture);
    let flows = rows_of(&json, "flows", "closed");
    let sent = send(&capture, &address);
    assert_eq!(sent["records"].as_u64(), Some(flows.len() as u64));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("received.ipfix");
    fs::write(&file, received.join().unwrap()).unwrap();
    if has_tshark() {
        check_flows(&file, &flows);
    }
    // The listener is gone.
    let arguments = ["run", "-q", "-m", "flows", "-r", capture.to_str().unwrap(), "--collector", &address];
    run(arguments).fails(1, &[&address, "start the collector, or name another one"]);
}

#[test]
fn datagrams_that_no_collector_takes_are_reported() {
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let address = format!("udp://127.0.0.1:{port}");
    let sent = send(&sample(), &address);
    assert!(sent["refused_datagrams"].as_u64().unwrap() > 0, "{sent}");
    let capture = sample();
    let arguments = ["run", "-q", "-m", "flows", "-r", capture.to_str().unwrap(), "--collector", &address];
    run(arguments).succeeds().reports("no collector listened there");
}
