//! Limits of a credential other than processor time and memory, which all delegates of one holder share.

use crate::limits::{
    expected_frames, flood_module, on_disk, patching_module, received_frames, row_module, session_status,
};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, Person, modest_grant};
use crate::testbed::{is_inside, udp};
use weir_trust::grant::{BytesPerSecond, Ceilings, CpuShare, Grant};
use weir_units::{BitsPerSecond, Bytes};

/// The path of a new module file.
pub fn file(net: &Net, name: &str, bytes: &[u8]) -> String {
    let path = net.folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn create<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let session = ["session", "create", "s", "--memory", "1 MiB", "--channel", "interface=b"];
    [&session[..], &["--cpu", "period=10ms,slice=1ms"], more].concat()
}

#[test]
fn delegates_share_a_record_rate_and_none_exceeds_it() {
    if !is_inside("remote_limits::delegates_share_a_record_rate_and_none_exceeds_it") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        records_per_second: Some(10),
        sessions: Some(5),
        ..modest_grant().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let students: Vec<Person> =
        (0..3).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    net.run_refused(
        &researcher,
        &create(&["--records-per-second", "11"]),
        "records per second: asked for 11; of the 10 given",
    );
    net.run(&students[0], &create(&["--records-per-second", "0"]));
    net.run(&students[1], &create(&["--records-per-second", "4"]));
    // Without an explicit value the session requests all of the grant, of which a part is used.
    net.run_refused(&students[2], &create(&[]), "records per second: asked for 10; of the 10 given to");
    net.run(&students[2], &create(&["--records-per-second", "6"]));
    // A change cannot exceed the rest either; a change without a value keeps the present one.
    let change = |records: &'static str| ["session", "change", "s", "--records-per-second", records];
    net.run_refused(&students[1], &change("5"), "asked for 5; of the 10 given to");
    net.run(&students[1], &["session", "change", "s", "--memory", "2 MiB"]);
    let name = students[0].name_of("s");
    let module = file(&net, "teller.wasm", &row_module("teller"));
    net.run(&students[0], &["load", "s", &module]);
    net.testbed.send(&vec![udp(7, b"x"); 100]);
    net.testbed.until("all are lost", |testbed| testbed.count(&name, "teller", "records_lost") == 100);
    assert_eq!(session_status(&net.testbed, &name)["limits"]["records_over_rate"], 100);
    let told = net.run(&students[0], &["session", "show", "s"]);
    assert!(told.contains("limits: 0 records a second (100 lost)"), "{told}");
    // Freed records can be used by another session, and one alone can have the whole grant.
    net.run(&students[1], &change("1"));
    for student in &students {
        net.run(student, &["session", "close", "s"]);
    }
    net.until_shares_are_free();
    net.run(&students[2], &create(&[]));
    assert_eq!(session_status(&net.testbed, &students[2].name_of("s"))["limits"]["records_per_second"], 10);
    assert!(net.testbed.stop().success());
}

#[test]
fn delegates_share_bytes_of_records_and_their_storage() {
    if !is_inside("remote_limits::delegates_share_bytes_of_records_and_their_storage") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        record_bytes: Some(BytesPerSecond(100_000)),
        record_storage: Some(Bytes(3_000_000_000)),
        sessions: Some(5),
        ..modest_grant().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let students: Vec<Person> =
        (0..2).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    for (more, says) in [
        (["--record-bytes", "200kB/s"], "bytes of records: asked for 200 kB/s; of the 100 kB/s given"),
        (["--record-storage", "4GB"], "kept records: asked for 4 GB; of the 3 GB given"),
        (["--record-storage", "unlimited"], "give it `record_storage`"),
    ] {
        net.run_refused(&researcher, &create(&more), says);
    }
    // The default is the grant, but at most the usual default.
    net.run(&students[0], &create(&[]));
    let of = session_status(&net.testbed, &students[0].name_of("s"))["limits"].clone();
    assert_eq!((&of["record_bytes"], &of["record_storage"]), (&100_000.into(), &1_000_000_000.into()));
    net.run_refused(
        &students[1],
        &create(&[]),
        "bytes of records: asked for 100 kB/s; of the 100 kB/s given",
    );
    net.run(&students[0], &["session", "change", "s", "--record-bytes", "40kB/s"]);
    net.run(&students[1], &create(&["--record-bytes", "60kB/s", "--record-storage", "2GB"]));
    let told = net.run(&students[1], &["session", "show", "s"]);
    assert!(told.contains("limits: 60 kB/s of records; 2 GB of kept records, 0 B now"), "{told}");
    assert!(net.testbed.stop().success());
}

#[test]
fn record_files_of_closed_sessions_count_and_the_limit_can_change() {
    if !is_inside("remote_limits::record_files_of_closed_sessions_count_and_the_limit_can_change") {
        return;
    }
    const MB: u64 = 1_000_000;
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        record_bytes: Some(BytesPerSecond(2 * MB)),
        record_storage: Some(Bytes(4 * MB)),
        sessions: Some(5),
        ..modest_grant().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let module = file(&net, "flood.wasm", &flood_module());
    let begin = |net: &mut Net, name: &str| {
        let channel = ["--channel", "interface=b", "--cpu", "period=10ms,slice=3ms"];
        let create = [&["session", "create", name, "--memory", "1 MiB"][..], &channel].concat();
        // The share of a closed session is free when its present period has ended.
        let mut command = net.command(&researcher, &create);
        net.testbed.until("the core has room", |_| command.output().unwrap().status.success());
        net.run(&researcher, &["load", name, &module]);
    };
    let [one, two] = ["one", "two"].map(|name| researcher.name_of(name));
    let write = |net: &mut Net, what: &str, is_so: &dyn Fn(&crate::testbed::Testbed) -> bool| {
        net.testbed.until(what, |testbed| {
            testbed.send(&vec![udp(7, b"x"); 500]);
            is_so(testbed)
        });
    };
    begin(&mut net, "one");
    write(&mut net, "it keeps more than it will", &|testbed| on_disk(testbed, &one) > 2 * MB + MB / 2);
    // A lower limit is applied to existing files, without new records.
    let deleted = |testbed: &crate::testbed::Testbed| {
        session_status(testbed, &one)["limits"]["record_storage_deleted"].as_u64().unwrap_or(0)
    };
    let before = deleted(&net.testbed);
    net.run(&researcher, &["session", "change", "one", "--record-storage", "1MB"]);
    net.testbed.until("files are deleted", |testbed| deleted(testbed) > before);
    net.run_refused(
        &researcher,
        &["session", "change", "one", "--record-storage", "5MB"],
        "of the 4 MB given",
    );
    net.run(&researcher, &["session", "change", "one", "--record-storage", "4MB"]);
    write(&mut net, "it keeps more again", &|testbed| on_disk(testbed, &one) > 3 * MB);
    net.run(&researcher, &["session", "close", "one"]);
    // Another session of the same holder: files of the first one are deleted for its files.
    begin(&mut net, "two");
    // The limit, the records between two checks, and unfinished files: each of at most 1 MiB of rows, with its log.
    let most = 4 * MB + 2 * MB + 3 * MB;
    write(&mut net, "the rows of the closed session are gone", &|testbed| {
        let there = on_disk(testbed, &one) + on_disk(testbed, &two);
        assert!(there <= most, "{there} bytes are kept");
        // A file of log lines without rows is small, and may remain.
        on_disk(testbed, &one) < MB / 10
    });
    assert!(net.testbed.stop().success());
    assert!(
        net.testbed.ledger_usage(&two, "record_files_deleted") > 0,
        "the session for which they went has them"
    );
}

#[test]
fn delegates_share_a_limit_of_kept_packets_and_none_exceeds_it() {
    if !is_inside("remote_limits::delegates_share_a_limit_of_kept_packets_and_none_exceeds_it") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        kept_packets: Some(7),
        sessions: Some(5),
        ..modest_grant().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let less = Ceilings { kept_packets: Some(2), ..Ceilings::default() };
    let student = net.delegated(&researcher, "student", Grant { ceilings: less, ..Grant::default() });
    net.run_refused(
        &researcher,
        &create(&["--kept-packets", "8"]),
        "kept packets: asked for 8; of the 7 given to",
    );
    net.run_refused(
        &student,
        &create(&["--kept-packets", "3"]),
        "kept packets: asked for 3; of the 2 given to",
    );
    // The default is all of the grant.
    net.run(&student, &create(&[]));
    let shot = session_status(&net.testbed, &student.name_of("s"));
    assert_eq!(shot["limits"]["kept_packets"], 2);
    net.run_refused(&researcher, &create(&[]), "kept packets: asked for 7; of the 7 given to");
    net.run(&researcher, &create(&["--kept-packets", "5"]));
    net.run_refused(
        &researcher,
        &["session", "change", "s", "--kept-packets", "6"],
        "asked for 6; of the 7 given to",
    );
    let told = net.run(&researcher, &["session", "show", "s"]);
    assert!(told.contains("; 5 kept packets, 0 now"), "{told}");
    assert!(net.testbed.stop().success());
}

#[test]
fn fields_without_a_grant_are_never_written() {
    if !is_inside("remote_limits::fields_without_a_grant_are_never_written") {
        return;
    }
    links::far_cable();
    let mut net =
        Net::with_interface_lines("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let mut far = links::FarEnd::open();
    let writes = |names: &[&str]| Some(names.iter().map(|name| name.parse().unwrap()).collect());
    let ceilings = Ceilings { bandwidth: Some(BitsPerSecond(10_000_000)), ..modest_grant().ceilings };
    let grant = Grant { writes: writes(&["ttl", "payload", "of-a-later-weir"]), ceilings, ..modest_grant() };
    let researcher = net.granted("researcher", grant);
    let student =
        net.delegated(&researcher, "student", Grant { writes: writes(&["ttl"]), ..Grant::default() });
    let forwards =
        ["--channel", "interface=b,filter=udp,forward=up", "--output", "name=up,link=c,cap=10 Mbit/s"];
    let create = |more: &[&'static str]| {
        [
            &["session", "create", "s", "--memory", "1 MiB", "--cpu", "period=10ms,slice=1ms"],
            &forwards[..],
            more,
        ]
        .concat()
    };
    net.run_refused(
        &student,
        &create(&["--write", "ttl,payload"]),
        "fields to write: asked for payload, given is ttl",
    );
    net.run_refused(&researcher, &create(&["--write", "all"]), "fields to write: asked for macs, vlan");
    net.run_refused(&researcher, &create(&["--write", "checksum"]), "is no field that can be written");
    let module = file(&net, "writer.wasm", &patching_module());
    let mut run = |net: &mut Net, who: &Person, more: &[&'static str], ttl: bool, payload: bool| {
        net.run(who, &create(more));
        net.run(who, &["load", "s", &module]);
        net.testbed.send(&expected_frames(50, false, false));
        assert_eq!(received_frames(&mut far, 50), expected_frames(50, ttl, payload));
        let told = net.run(who, &["session", "show", "s"]);
        net.run_refused(who, &["session", "change", "s", "--write", "all"], "fields to write");
        net.run(who, &["session", "close", "s"]);
        told
    };
    let told = run(&mut net, &student, &[], true, false);
    assert!(told.contains("; writes ttl (50 refused)"), "{told}");
    let told = run(&mut net, &researcher, &[], true, true);
    assert!(told.contains("; writes ttl,payload"), "{told}");
    let told = run(&mut net, &researcher, &["--write", "none"], false, false);
    assert!(told.contains("; writes none (100 refused)"), "{told}");
    assert!(net.testbed.stop().success());
}

#[test]
fn waiting_packets_of_a_holder_take_a_bounded_part_of_the_nodes_memory() {
    if !is_inside("remote_limits::waiting_packets_of_a_holder_take_a_bounded_part_of_the_nodes_memory") {
        return;
    }
    let mut net = Net::new();
    assert!(net.testbed.stop().success());
    // One root grant can use a quarter: 1 MiB of packets, copies in queues, and descriptors.
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let config = config.replacen("[cpu]\n", "packet_memory = \"8 MiB\"\n[cpu]\n", 1);
    std::fs::write(net.testbed.config(), config).unwrap();
    net.testbed.start();
    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    let slow = ["--cpu", "period=1s,slice=1ms"];
    let session = ["session", "create", "s", "--memory", "1 MiB"];
    let channel = ["--channel", "interface=b,filter=udp port 53"];
    net.run(&researcher, &[&session[..], &channel, &slow].concat());
    let body = "(func (export \"weir_packet\") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))";
    let module = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    net.run(&researcher, &["load", "s", &file(&net, "endless.wasm", &module)]);
    let name = researcher.name_of("s");
    let lost = |testbed: &crate::testbed::Testbed| {
        testbed.part(&name, "channels", "main")["drops"]["no-memory"].as_u64().unwrap_or(0)
    };
    net.testbed.until("there is no more room", |testbed| {
        testbed.send(&vec![udp(53, &[0; 1000]); 100]);
        lost(testbed) > 0
    });
    // The queue has room for more packets, but the 2 MiB have not.
    let waiting = net.testbed.part(&name, "channels", "main")["waiting"].as_u64().unwrap();
    assert!((500..=2000).contains(&waiting), "{waiting}");
    // Another filter gives neither the holder nor a delegate more memory.
    for (who, name) in [(&researcher, "t"), (&student, "u")] {
        let session = ["session", "create", name, "--memory", "1 MiB"];
        let other = ["--channel", "interface=b,filter=udp port 54"];
        net.run_refused(
            who,
            &[&session[..], &other, &slow].concat(),
            "packets of channel `main` have no memory to wait in",
        );
    }
    // Other root grants have memory of their own.
    let other = net.granted("other", modest_grant());
    net.run(&other, &[&session[..], &["--channel", "interface=b,filter=udp port 55"], &slow].concat());
    assert!(net.testbed.stop().success());
}

#[test]
fn no_holder_can_take_all_channels_of_an_interface() {
    if !is_inside("remote_limits::no_holder_can_take_all_channels_of_an_interface") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: Some(10), ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let other = net.granted("other", modest_grant());
    let channels: Vec<String> = (0..64).map(|n| format!("name=c{n},interface=b,filter=udp")).collect();
    let session = |name: &'static str, count: usize| {
        let cpu = ["--cpu", "period=10ms,slice=100us"];
        let session = [&["session", "create", name, "--memory", "1 MiB"], &cpu[..]].concat();
        let channels = channels.iter().take(count).flat_map(|channel| ["--channel", channel.as_str()]);
        session.into_iter().chain(channels).collect::<Vec<_>>()
    };
    for name in ["a", "b", "c", "d"] {
        net.run(&researcher, &session(name, 64));
    }
    // A delegate cannot create more either.
    for who in [&researcher, &student] {
        net.run_refused(who, &session("e", 1), "can have at most 256 channels of an interface");
    }
    net.run(&other, &session("a", 64));
    net.run(&researcher, &["session", "close", "a"]);
    net.run(&student, &session("e", 1));
    assert!(net.testbed.stop().success());
}
