//! TCP streams of modules in sessions: what a view hides stays hidden, and hostile connections harm no module.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{FollowedReplies, Testbed, is_inside, with_ip_checksum};
use serde_json::json;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// The port of the client whose connection is checked.
const CLIENT: u16 = 51_000;

/// An Ethernet frame with a TCP segment between a port and port 443.
fn tcp(port: u16, from_client: bool, seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend(u16::try_from(40 + data.len()).unwrap().to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 6, 0, 0]);
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (from, to) = if from_client { (client, server) } else { (server, client) };
    let (src, dst) = if from_client { (port, 443_u16) } else { (443, port) };
    frame.extend(from);
    frame.extend(to);
    frame.extend(src.to_be_bytes());
    frame.extend(dst.to_be_bytes());
    frame.extend(seq.to_be_bytes());
    frame.extend(ack.to_be_bytes());
    frame.extend([0x50, flags]);
    frame.extend(60_000_u16.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(data);
    frame.resize(frame.len().max(60), 0);
    with_ip_checksum(frame)
}

/// A connection with bytes in order, out of order and in both directions.
fn conversation() -> Vec<Vec<u8>> {
    vec![
        tcp(CLIENT, true, 1000, 0, SYN, b""),
        tcp(CLIENT, false, 5000, 1001, SYN | ACK, b""),
        tcp(CLIENT, true, 1001, 5001, ACK, b"first-secret;"),
        tcp(CLIENT, true, 1028, 5001, ACK, b"third-secret;"),
        tcp(CLIENT, true, 1014, 5001, ACK, b"second-secret;"),
        tcp(CLIENT, false, 5001, 1041, ACK, b"answer-secret;"),
        tcp(CLIENT, true, 1041, 5015, FIN | ACK, b""),
        tcp(CLIENT, false, 5015, 1042, FIN | ACK, b""),
    ]
}

/// Hostile segments: overlaps with other bytes, out of order, floods of SYNs, wrong headers.
fn hostile(count: u32) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_u32;
    let mut random = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let small = |value: u32| u8::try_from(value).unwrap();
    let mut frames = Vec::new();
    for number in 0..count {
        let port = 40_000 + u16::try_from(random(16)).unwrap();
        let seq = 0xffff_ff00_u32.wrapping_add(random(2_000));
        let data = format!("secret-{number}-").repeat(random(20) as usize);
        let from_client = random(4) > 0;
        match random(10) {
            0 => frames.push(tcp(20_000 + u16::try_from(random(20_000)).unwrap(), true, seq, 0, SYN, b"")),
            1 => {
                let mut frame = tcp(port, from_client, seq, seq, ACK, data.as_bytes());
                // The data offset, the length of the IP packet, or flags and options.
                let at = [46, 17, 47, 48][random(4) as usize];
                frame[at] = small(random(256));
                frames.push(with_ip_checksum(frame));
            }
            2 => frames.push(tcp(
                port,
                from_client,
                seq,
                random(u32::MAX),
                small(random(256)),
                data.as_bytes(),
            )),
            _ => frames.push(tcp(port, from_client, seq, 0, 0, data.as_bytes())),
        }
    }
    frames
}

/// A module that emits a row for each event, and a text with its bytes.
fn following_module() -> Vec<u8> {
    let body = r#"(func $field (param $value i64) (param $shift i64)
            (i64.store (i32.const 64) (i64.or (i64.load (i32.const 64)) (i64.shl (local.get $value) (local.get $shift)))))
        (func (export "weir_stream") (param $e i32) (result i32)
            (i64.store (i32.const 64) (i64.load8_u offset=84 (local.get $e)))
            (call $field (i64.load8_u offset=85 (local.get $e)) (i64.const 4))
            (call $field (i64.extend_i32_u (i64.ne (i64.load (i32.const 0xF0010000)) (i64.const 0))) (i64.const 5))
            (call $field (i64.load8_u offset=86 (local.get $e)) (i64.const 8))
            (call $field (i64.and (i64.load offset=32 (local.get $e)) (i64.const 0xffff)) (i64.const 16))
            (call $field (i64.and (i64.load32_u offset=16 (local.get $e)) (i64.const 0xffff)) (i64.const 32))
            (call $field (i64.load16_u offset=80 (local.get $e)) (i64.const 48))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (if (i32.load offset=12 (local.get $e)) (then
                (i32.store (i32.const 72) (i32.load offset=8 (local.get $e)))
                (i32.store (i32.const 76) (i32.load offset=12 (local.get $e)))
                (drop (call $emit (i32.const 1) (i32.const 72) (i32.const 8)))))
            (i32.const 0))"#;
    let tcp = "[tcp]\nstreams = 256\nbuffer = '256 KiB'\nconflicts = true\n";
    let manifest = MANIFEST.replace("NAME", "following") + tcp;
    assemble(&text(body), Some(manifest.as_bytes()))
}

/// The events that a module emitted up to the end of the checked connection.
struct Followed {
    /// The checked connection's events as text.
    checked: Vec<String>,
    /// Kinds of all events, by the bits of their numbers.
    kinds: u32,
    /// The bytes of all events.
    bytes: String,
    /// True if the window of events had bytes in it.
    has_window: bool,
}

fn follow(replies: &mut FollowedReplies) -> Followed {
    let mut followed = Followed { checked: Vec::new(), kinds: 0, bytes: String::new(), has_window: false };
    let mut is_checked = false;
    for reply in replies {
        let record = &reply["record"];
        if let Some(text) = record["text"].as_str() {
            followed.bytes.push_str(text);
            if is_checked {
                followed.checked.last_mut().unwrap().push_str(text);
            }
            continue;
        }
        let Some(value) = record["value"].as_u64() else { continue };
        let (kind, arrow) = (value & 15, if value & 16 == 0 { '>' } else { '<' });
        followed.kinds |= 1 << kind;
        followed.has_window |= value & 32 != 0;
        is_checked = value >> 48 == u64::from(CLIENT);
        if !is_checked {
            continue;
        }
        let offset = value >> 16 & 0xffff;
        followed.checked.push(match kind {
            1 => "open".to_owned(),
            2 => format!("{arrow}{offset}:"),
            3 => format!("{arrow}{offset}:gap {}", value >> 32 & 0xffff),
            4 => format!("{arrow}fin"),
            6 => format!("end {}", value >> 8 & 255),
            other => format!("kind {other}"),
        });
        if kind == 6 {
            break;
        }
    }
    followed
}

#[test]
fn a_module_follows_the_streams_of_its_view_in_either_kind_of_process() {
    if !is_inside("streams::a_module_follows_the_streams_of_its_view_in_either_kind_of_process") {
        return;
    }
    let names = ["hidden-here", "hidden-apart", "shown-here", "shown-apart"];
    let sessions: String = names
        .iter()
        .map(|name| {
            let process = if name.ends_with("apart") { "process = \"own\"\n" } else { "" };
            let view = if name.starts_with("hidden") { ", view = \"addresses=anonymised\"" } else { "" };
            format!(
                "[[session]]\nname = \"{name}\"\n{process}cpu = [{{ period = \"50ms\", slice = \"5ms\", borrow = true }}]\n\
                 channel = [{{ interface = \"b\", filter = \"tcp\", queue = 20000{view} }}]\n"
            )
        })
        .collect();
    let mut testbed = Testbed::new(&sessions);
    let module = following_module();
    let mut followers = Vec::new();
    for name in names {
        let reply = testbed.load(name, json!({"module": "following.wasm"}), &module);
        assert!(reply.get("done").is_some(), "{reply}");
        let streams = json!({"session": name, "module": "following", "streams": ["rows", "texts"]});
        followers.push(FollowedReplies::of(&testbed, streams));
    }
    let mut sent = 0;
    let mut frames = hostile(1_500);
    frames.extend(conversation());
    for portion in frames.chunks(100) {
        testbed.send(portion);
        // Garbage in the headers can make a frame that the filter does not select.
        sent += portion.len() as u64;
        testbed.until("all modules have received the packets", |testbed| {
            names.iter().all(|name| testbed.count(name, "following", "packets") >= sent / 100 * 90)
        });
    }
    for (name, follower) in names.iter().zip(&mut followers) {
        let followed = follow(follower);
        let expected = if name.starts_with("hidden") {
            // The lengths of the segments are visible, and nothing of their bytes.
            assert_eq!(followed.kinds & (1 << 2 | 1 << 5), 0, "{name}");
            assert_eq!((followed.bytes.as_str(), followed.has_window), ("", false), "{name}");
            "open >0:gap 13 >13:gap 14 >27:gap 13 <0:gap 14 >fin <fin end 1"
        } else {
            assert_ne!(followed.kinds & 1 << 5, 0, "{name}");
            assert!(followed.bytes.contains("secret-") && followed.has_window, "{name}");
            "open >0:first-secret; >13:second-secret; >27:third-secret; <0:answer-secret; >fin <fin end 1"
        };
        assert_eq!(followed.checked.join(" "), expected, "{name}");
        for counter in ["faults", "records_lost"] {
            assert_eq!(testbed.count(name, "following", counter), 0, "{name}: {counter}");
        }
        assert_eq!(testbed.part(name, "channels", "main")["drops"], json!({}), "{name}");
    }
    assert!(testbed.stop().success());
}
