//! Record files of sessions in the formats of other tools: written, rotated, fetched, and completed after a crash.

use crate::module::{assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PACKETS: u16 = 300;

/// Emits the first two bytes of the payload of each packet, with the addresses ::.
fn emitter() -> Vec<u8> {
    let manifest = "name = 'emitter'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
        [[stream]]\nname = 'rows'\nfield = [\n\
        { name = 'src', type = 'ip', semantic = 'source.ip' },\n\
        { name = 'dst', type = 'ip', semantic = 'destination.ip' },\n\
        { name = 'status', type = 'u16', semantic = 'http.response.status_code' },\n]\n\
        [[stream]]\nname = 'counts'\nfield = [{ name = 'n', type = 'u64' }]\n";
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.store16 (i32.const 96) (i32.load16_u offset=42 (i32.load offset=8 (local.get $d))))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 34)))
        (i32.const 0))"#;
    assemble(&text(body), Some(manifest.as_bytes()))
}

const FORMATS: [(&str, &str); 3] = [("zeek", "rows.log"), ("eve", "eve.json"), ("ipfix", "rows.ipfix")];

/// A node with a session for each format, whose module has emitted a row for each packet.
fn testbed_with_rows() -> Testbed {
    let session = |(format, _): &(&str, &str)| {
        format!(
            "[[session]]\nname = \"{format}\"\nrecord_format = \"{format}\"\nmemory = \"64 MiB\"\n\
             channel = [{{ interface = \"b\", filter = \"udp port 53\", queue = 1000 }}]\n"
        )
    };
    let mut testbed = Testbed::new(&FORMATS.iter().map(session).collect::<String>());
    for (format, _) in FORMATS {
        let reply = testbed.load(format, json!({"module": "emitter.wasm"}), &emitter());
        assert!(reply.get("done").is_some(), "{reply}");
    }
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|i| udp(53, &i.to_le_bytes())).collect();
    testbed.send(&frames);
    testbed.until("all modules have received all packets", |testbed| {
        FORMATS.iter().all(|(format, _)| testbed.count(format, "emitter", "records") == u64::from(PACKETS))
    });
    testbed
}

fn file(testbed: &Testbed, (format, name): (&str, &str)) -> PathBuf {
    testbed.path().join("state/records").join(format).join("emitter-0").join(name)
}

/// The values of the field `status` in a file, in its order; empty without the file. A broken end is left out.
fn statuses(format: &str, path: &Path) -> Vec<u16> {
    let bytes = fs::read(path).unwrap_or_default();
    let lines =
        || std::str::from_utf8(&bytes).unwrap().split_inclusive('\n').filter(|line| line.ends_with('\n'));
    match format {
        "zeek" => {
            let rows = lines().filter(|line| !line.starts_with('#'));
            rows.map(|line| line.trim_end().rsplit('\t').next().unwrap().parse().unwrap()).collect()
        }
        "eve" => {
            let status = |line: &str| {
                let event: Value = serde_json::from_str(line).unwrap();
                assert_eq!(event["event_type"], "emitter_rows");
                u16::try_from(event["metadata"]["flowints"]["status"].as_u64().unwrap()).unwrap()
            };
            lines().map(status).collect()
        }
        _ => {
            // Messages with one data set, whose records are two addresses and the status.
            let (mut found, mut rest) = (Vec::new(), &bytes[..]);
            let number = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            while rest.len() >= 20 && rest.len() >= number(&rest[2..]) {
                let message = &rest[..number(&rest[2..])];
                if number(&message[16..]) >= 256 {
                    found.extend(
                        message[20..].chunks(34).map(|record| u16::from_be_bytes([record[32], record[33]])),
                    );
                }
                rest = &rest[message.len()..];
            }
            found
        }
    }
}

fn local(testbed: &Testbed, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("--socket").arg(testbed.path().join("node.sock")).output().unwrap()
}

#[test]
fn sessions_write_the_formats_of_other_tools_which_clients_list_and_fetch() {
    if !is_inside("record_formats::sessions_write_the_formats_of_other_tools_which_clients_list_and_fetch") {
        return;
    }
    let mut testbed = testbed_with_rows();
    let out = testbed.path().join("fetched");
    for (format, name) in FORMATS {
        testbed.request(json!({"unload": {"session": format, "module": "emitter"}}));
        let path = file(&testbed, (format, name));
        testbed.until("the file is complete", |_| path.exists());
        assert_eq!(statuses(format, &path), (0..PACKETS).collect::<Vec<u16>>(), "{format}");
        let listed = local(&testbed, &["records", "--session", format, "--json"]);
        let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        let found = listed.iter().find(|file| file["file"].as_str().unwrap().ends_with(name));
        let found = found.unwrap_or_else(|| panic!("{listed:?}"));
        assert_eq!(found["bytes"].as_u64().unwrap(), fs::metadata(&path).unwrap().len());
        let fetched = local(&testbed, &["records", "--session", format, "--out", out.to_str().unwrap()]);
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        let copy = out.join(format).join("emitter-0").join(name);
        assert_eq!(fs::read(copy).unwrap(), fs::read(&path).unwrap());
        // The session has no other files than those of its format, and they count for its storage.
        let names = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        let expected = match format {
            "zeek" => &["counts.log", "rows.log"][..],
            "eve" => &["eve.json"],
            _ => &["rows.ipfix"],
        };
        assert_eq!(names, expected);
    }
    assert!(testbed.stop().success());
}

#[test]
fn rows_of_a_killed_node_are_complete_in_these_formats_after_the_next_start() {
    if !is_inside("record_formats::rows_of_a_killed_node_are_complete_in_these_formats_after_the_next_start")
    {
        return;
    }
    let mut testbed = testbed_with_rows();
    let part =
        |path: &Path| path.with_file_name(format!("{}.part", path.file_name().unwrap().to_str().unwrap()));
    for (format, name) in FORMATS {
        let path = part(&file(&testbed, (format, name)));
        testbed.until("all rows are in the file", |_| statuses(format, &path).len() == usize::from(PACKETS));
    }
    testbed.kill();
    testbed.start();
    for (format, name) in FORMATS {
        let path = file(&testbed, (format, name));
        testbed.until("the file is complete", |_| path.exists());
        assert!(!part(&path).exists());
        assert_eq!(statuses(format, &path), (0..PACKETS).collect::<Vec<u16>>(), "{format}");
    }
    testbed.until("the log says so", |testbed| testbed.log().contains("its rows are complete in "));
    assert!(testbed.stop().success());
}
