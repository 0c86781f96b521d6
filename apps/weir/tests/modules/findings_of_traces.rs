//! The findings of `weir run -r CAPTURE`, without options, on captures whose truth is known: the services, the slow ones, and the
//! suspicious hosts. docs/COOKBOOK.md has the same captures in a table for operators.

#![expect(clippy::cast_possible_truncation, reason = "small numbers of generated packets")]

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, repository, trace};
use super::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use super::syn_flood::{connections, flood};
use std::path::Path;

/// The parts that a run of a capture prints, and those that it does not print. Words in a part may have any number of spaces
/// between them, as columns have.
struct Expected {
    prints: &'static [&'static str],
    not: &'static [&'static str],
}

/// A capture that the test makes, with its name in the documentation.
struct GeneratedCapture {
    name: &'static str,
    make: fn() -> Capture,
    expected: Expected,
}

/// A capture beside the repository.
struct SharedTrace {
    name: &'static str,
    expected: Expected,
}

const GENERATED: [GeneratedCapture; 6] = [
    GeneratedCapture {
        name: "a quiet web server",
        make: quiet,
        expected: Expected {
            prints: &[
                "nothing suspicious: ",
                "slow services: none; the slowest is www.example (192.0.2.10), 80/tcp: nine of ten HTTP responses within",
                "www.example 192.0.2.10 80/tcp HTTP 40 ",
                "– 192.0.2.53 53/udp DNS 40 ",
                "192.0.2.10 86 %",
            ],
            not: &["findings", "suspicious hosts", "problems"],
        },
    },
    GeneratedCapture {
        name: "a scan of 200 hosts",
        make: scan,
        expected: Expected {
            prints: &[
                "scan: Horizontal SYN scan from 203.0.113.7",
                "2023-11-14 22:13:25 to 22:13:44 MEDIUM 203.0.113.7 scanned about ",
                "hosts on TCP port 22 (TCP SYN): 3 answered, ",
                "www.example 192.0.2.10 80/tcp HTTP 40 ",
            ],
            not: &["nothing suspicious", "flooded", "failed in"],
        },
    },
    GeneratedCapture {
        name: "a SYN flood from forged addresses",
        make: forged_flood,
        expected: Expected {
            prints: &[
                "HIGH syn-flood: SYN flood on 198.51.100.9",
                "HIGH 198.51.100.9 was flooded with ",
                "; 0 of 1,740 connections succeeded",
                "– 192.0.2.10 80/tcp http 8,000 ",
            ],
            not: &["nothing suspicious", "192.0.2.10 was", "scanned"],
        },
    },
    GeneratedCapture {
        name: "a slow web server",
        make: slow,
        expected: Expected {
            prints: &[
                "slow services (half of the answers take half a second or longer; of ten or more, a tenth suffices):",
                "shop.example (192.0.2.20), 80/tcp HTTP response 20 9",
                "shop.example 192.0.2.20 80/tcp HTTP 20 ",
            ],
            not: &[
                "nothing suspicious",
                "suspicious hosts",
                "problems",
                "www.example (192.0.2.10), 80/tcp HTTP response",
            ],
        },
    },
    GeneratedCapture {
        name: "DNS failures",
        make: dns_failures,
        expected: Expected {
            prints: &[
                "MEDIUM 10.0.0.66 asked DNS for names that do not exist in 60 of 60 queries, such as x0.invalid",
                "192.0.2.54, 53/udp of 40 DNS queries, 20 were not answered, and 10 were refused or failed (SERVFAIL)",
            ],
            not: &["nothing suspicious", "scanned", "10.0.0.67"],
        },
    },
    GeneratedCapture {
        name: "a service that refuses",
        make: refusing,
        expected: Expected {
            prints: &["192.0.2.80, 8443/tcp 30 of 30 connections failed: 0 without answer, 30 refused"],
            not: &["nothing suspicious", "suspicious hosts", "8443/tcp –"],
        },
    },
];

const SHARED: [SharedTrace; 8] = [
    SharedTrace {
        name: "attack/synscan.pcap",
        expected: Expected {
            prints: &[
                "MEDIUM 172.16.0.8 scanned about 9",
                "ports of 64.13.134.52 (TCP SYN): 3 answered",
                "64.13.134.52 22/tcp ssh 1 ",
            ],
            not: &["flooded", "nothing suspicious"],
        },
    },
    SharedTrace {
        name: "attack/synflood-spoofed.pcap",
        expected: Expected {
            prints: &["HIGH 10.10.10.10 was flooded with 37,841 SYN packets", "; 0 of ", "10.10.10.10 100 %"],
            not: &["scanned", "nothing suspicious", "services, by bytes"],
        },
    },
    SharedTrace {
        name: "attack/isakmp-amplification.pcap",
        expected: Expected {
            prints: &[
                "MEDIUM",
                "10.10.10.10 received 3,9",
                "that it had not asked for, many from port 4500 of different hosts",
            ],
            not: &["scanned", "nothing suspicious"],
        },
    },
    SharedTrace {
        name: "attack/dns-amplification-fragmented.pcap",
        expected: Expected {
            prints: &[
                "HIGH dns: DNS amplification: 10.10.10.10 gets large answers without queries for pizzaseo.com",
            ],
            not: &["nothing suspicious"],
        },
    },
    SharedTrace {
        name: "attack/dns-tunnel-iodine.pcap",
        expected: Expected {
            prints: &["HIGH dns: Suspected DNS tunnel under pirate.sea: 10.0.2.30 asked 10.0.2.20"],
            not: &["nothing suspicious", "scanned"],
        },
    },
    SharedTrace {
        name: "attack/web-rce-scan.pcap",
        expected: Expected {
            prints: &[
                "MEDIUM http: Suspicious HTTP request from 127.0.0.1 to 127.0.0.1, port 8080",
                " more with this filter",
                "127.0.0.1 100 %",
            ],
            not: &["nothing suspicious", "scanned"],
        },
    },
    SharedTrace {
        name: "tcp/alexa-app.pcapng",
        expected: Expected {
            prints: &[
                "pitangui.amazon.com (52.94.232.134), 443/tcp obsolete version TLS 1.0 in 39 TLS handshakes",
                "pitangui.amazon.com 52.94.232.134 +1 443/tcp TLS 1.0 49 ",
                "www.amazon.com 52.85.209.216 +2 443/tcp TLS 1.2 8 ",
                "ecx.images-amazon.com (52.84.63.56), 80/tcp HTTP response 15 196 ms",
                "172.16.42.216 99.9 %",
            ],
            not: &["nothing suspicious", "suspicious hosts"],
        },
    },
    SharedTrace {
        name: "mixed/composite-mixed-a.pcap",
        expected: Expected {
            prints: &[
                "api.dch.dlink.com (52.58.68.165), 443/tcp certificate expired on 2017-11-12 in 34 TLS handshakes; obsolete version TLS 1.0",
                "wdcp.microsoft.com (40.113.10.47), 443/tcp certificate not yet valid in 8 TLS handshakes",
                "s3-us-west-2.amazonaws.com 54.231.176.168 +14 80/tcp HTTP 16 3.5 MiB",
                "other services",
            ],
            not: &["nothing suspicious", "flooded"],
        },
    },
];

/// Adds a web request over a connection of its own, whose response begins `answer_ms` after the request.
fn request(capture: &mut Capture, at: u64, client: &str, server: &str, host: &str, answer_ms: u64) {
    let get = format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let body = "x".repeat(400);
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{body}");
    let (asked, said) = (1 + get.len() as u32, 1 + response.len() as u32);
    let end = 6 + answer_ms;
    let data = ACK | PSH;
    for (ms, from, to, flags, seq, ack, payload) in [
        (0, client, server, SYN, 0, 0, ""),
        (1, server, client, SYN | ACK, 0, 1, ""),
        (2, client, server, ACK, 1, 1, ""),
        (3, client, server, data, 1, 1, get.as_str()),
        (4, server, client, ACK, 1, asked, ""),
        (3 + answer_ms, server, client, data, 1, asked, response.as_str()),
        (end, client, server, FIN | ACK, asked, said, ""),
        (end + 1, server, client, FIN | ACK, said, asked + 1, ""),
        (end + 2, client, server, ACK, asked + 1, said + 1, ""),
    ] {
        let packet = Packet::tcp(from, to, flags).numbers(seq, ack).payload(payload);
        capture.push(at + ms * MILLISECOND, packet.ethernet());
    }
}

/// Adds a DNS query for the addresses of a name, and its answer 10 ms later; `None` for no answer. An answer without an error
/// has this address.
fn lookup(
    capture: &mut Capture,
    at: u64,
    client: &str,
    server: &str,
    name: &str,
    answer: Option<(u8, [u8; 4])>,
) {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8][..], label.as_bytes()].concat());
    let question: Vec<u8> = labels.chain([0, 0, 1, 0, 1]).collect();
    let id = (at / MILLISECOND) as u16;
    let message = |flags: [u8; 2], answers: u8, record: &[u8]| {
        let head = [&id.to_be_bytes()[..], &flags, &[0, 1, 0, answers, 0, 0, 0, 0]].concat();
        [&head[..], &question, record].concat()
    };
    capture.push(at, Packet::udp(client, server).payload(message([1, 0], 0, &[])).ethernet());
    if let Some((code, address)) = answer {
        let record = [&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4][..], &address].concat();
        let (answers, record) = if code == 0 { (1, &record[..]) } else { (0, &[][..]) };
        let reply = Packet::udp(server, client).payload(message([0x81, 0x80 | code], answers, record));
        capture.push(at + 10 * MILLISECOND, reply.ethernet());
    }
}

/// Five clients that look up www.example, and get 40 pages in 40 s.
fn web(capture: &mut Capture) {
    for n in 0..40u64 {
        let at = BEGIN + n * SECOND;
        let client = |port: u64| format!("10.0.0.{}:{}", 1 + n % 5, port + n);
        lookup(capture, at, &client(50_000), "192.0.2.53:53", "www.example", Some((0, [192, 0, 2, 10])));
        request(capture, at + 20 * MILLISECOND, &client(40_000), "192.0.2.10:80", "www.example", 25);
    }
}

fn captured(fill: impl FnOnce(&mut Capture)) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    fill(&mut capture);
    capture.frames.sort_by_key(|frame| frame.ts);
    capture
}

fn quiet() -> Capture {
    captured(web)
}

/// Beside the web traffic, a host tries port 22 of 200 hosts, ten a second: half refuse, and of the later ones 3 accept.
fn scan() -> Capture {
    captured(|capture| {
        web(capture);
        for n in 0..200u64 {
            let at = BEGIN + 5 * SECOND + n * 100 * MILLISECOND;
            let (from, to) = (format!("203.0.113.7:{}", 30_000 + n), format!("192.0.2.{}:22", 20 + n));
            capture.push(at, Packet::tcp(&from, &to, SYN).numbers(9, 0).ethernet());
            let reply = |flags| Packet::tcp(&to, &from, flags).numbers(0, 10).ethernet();
            match n {
                100..103 => capture.push(at + MILLISECOND, reply(SYN | ACK)),
                _ if n % 2 == 0 => capture.push(at + MILLISECOND, reply(RST | ACK)),
                _ => {}
            }
        }
    })
}

fn forged_flood() -> Capture {
    captured(|capture| {
        connections(capture, 0..40, 200);
        flood(capture, 15..21, 290, "198.51.100.9:443");
    })
}

/// Beside the web traffic, a shop whose responses take 900 ms.
fn slow() -> Capture {
    captured(|capture| {
        web(capture);
        for n in 0..20u64 {
            let client = format!("10.0.0.{}:{}", 1 + n % 5, 45_000 + n);
            request(capture, BEGIN + n * 2 * SECOND, &client, "192.0.2.20:80", "shop.example", 900);
        }
    })
}

/// One client asks for 60 names that do not exist. Another one asks a second server, which answers a quarter of 40 queries,
/// states failures for a quarter, and is silent otherwise.
fn dns_failures() -> Capture {
    captured(|capture| {
        web(capture);
        for n in 0..60u64 {
            let (at, client) = (BEGIN + n * 500 * MILLISECOND, format!("10.0.0.66:{}", 51_000 + n));
            lookup(capture, at, &client, "192.0.2.53:53", &format!("x{n}.invalid"), Some((3, [0; 4])));
        }
        for n in 0..40u64 {
            let (at, client) = (BEGIN + n * 700 * MILLISECOND, format!("10.0.0.67:{}", 52_000 + n));
            let answer = [Some((0, [192, 0, 2, 77])), Some((2, [0; 4])), None, None][n as usize % 4];
            lookup(capture, at, &client, "192.0.2.54:53", "files.example", answer);
        }
    })
}

/// Beside the web traffic, a port that refuses 30 connections of five clients.
fn refusing() -> Capture {
    captured(|capture| {
        web(capture);
        for n in 0..30u64 {
            let at = BEGIN + n * SECOND;
            let client = format!("10.0.0.{}:{}", 1 + n % 5, 46_000 + n);
            capture.push(at, Packet::tcp(&client, "192.0.2.80:8443", SYN).numbers(9, 0).ethernet());
            let refusal = Packet::tcp("192.0.2.80:8443", &client, RST | ACK).numbers(0, 10);
            capture.push(at + MILLISECOND, refusal.ethernet());
        }
    })
}

/// Returns what `weir run -r CAPTURE` prints, with single spaces.
fn printed(path: &Path) -> String {
    let ended = crate::run::run([Path::new("run"), Path::new("-r"), path]).succeeds();
    assert!(!crate::run::process::has_controls(ended.text()));
    let lines = ended.text().lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

fn check(name: &str, path: &Path, expected: &Expected) {
    let text = printed(path);
    for part in expected.prints {
        assert!(text.contains(part), "{name}: `{part}` is not in\n{text}");
    }
    for part in expected.not {
        assert!(!text.contains(part), "{name}: `{part}` is in\n{text}");
    }
}

#[test]
fn runs_of_generated_captures_print_the_known_truth() {
    for GeneratedCapture { name, make, expected } in &GENERATED {
        let file = tempfile::Builder::new().suffix(".pcap").tempfile().unwrap();
        std::fs::write(file.path(), make().to_pcap()).unwrap();
        check(name, file.path(), expected);
    }
}

#[test]
fn runs_of_real_captures_print_what_is_known_of_them() {
    for SharedTrace { name, expected } in &SHARED {
        if let Some(path) = trace(name) {
            check(name, &path, expected);
        }
    }
}

#[test]
fn the_json_summary_has_the_overview_and_the_counters_of_tcp_streams() {
    let summary = super::weir::run(&quiet(), &[]).summary;
    let overview = &summary["overview"];
    assert_eq!((&overview["quiet"], &overview["findings"]), (&true.into(), &0.into()), "{overview:#}");
    let service = &overview["services"]["rows"][0];
    assert_eq!((&service["name"], &service["connections"]), (&"www.example".into(), &40.into()), "{service}");
    let http = crate::run::process::module(&summary, "http");
    assert_eq!(
        (&http["tcp_streams"]["opened"], &http["tcp_streams"]["evicted"]),
        (&40.into(), &0.into()),
        "{http}"
    );
    assert!(crate::run::process::module(&summary, "scan").get("tcp_streams").is_none());
    // The overview does not depend on the number of threads.
    let of = |jobs| super::weir::run(&dns_failures(), &["-j", jobs]).summary["overview"].clone();
    assert_eq!(of("1"), of("3"));
}

#[test]
fn the_cookbook_has_every_capture() {
    let page = std::fs::read_to_string(repository().join("docs/COOKBOOK.md")).unwrap();
    for name in GENERATED.iter().map(|case| case.name).chain(SHARED.iter().map(|case| case.name)) {
        assert!(page.contains(&format!("| {name} |")), "{name}");
    }
}
