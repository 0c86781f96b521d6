//! What a credential limits beside processor time and memory: each limit is held, and whoever got the right from one and the same holder shares it.

use crate::limits::{arrived, flood, on_disk, shown, teller, writer, written};
use crate::links;
use crate::module::{MANIFEST, assemble, text};
use crate::place::{is_inside, udp};
use crate::remote::{Net, Person, modest};
use weir_trust::grant::{BytesPerSecond, Ceilings, CpuShare, Grant};
use weir_units::{BitsPerSecond, Bytes};

/// A module's file, for the program that sends it.
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
fn delegates_share_records_and_none_has_more_taken() {
    if !is_inside("remote_limits::delegates_share_records_and_none_has_more_taken") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        records_per_second: Some(10),
        sessions: Some(5),
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let students: Vec<Person> =
        (0..3).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    net.refused(
        &researcher,
        &create(&["--records", "11"]),
        "records per second: asked for 11; of the 10 given",
    );
    net.done(&students[0], &create(&["--records", "0"]));
    net.done(&students[1], &create(&["--records", "4"]));
    // Where nothing is said it is all that was granted, of which a part is taken.
    net.refused(&students[2], &create(&[]), "records per second: asked for 10; of the 10 given to");
    net.done(&students[2], &create(&["--records", "6"]));
    // Nor can one be changed beyond what is left; and who says nothing keeps what he has.
    let change = |records: &'static str| ["session", "change", "s", "--records", records];
    net.refused(&students[1], &change("5"), "asked for 5; of the 10 given to");
    net.done(&students[1], &["session", "change", "s", "--memory", "2 MiB"]);
    let name = students[0].name_of("s");
    let module = file(&net, "teller.wasm", &teller("teller"));
    net.done(&students[0], &["load", "s", &module]);
    net.place.send(&vec![udp(7, b"x"); 100]);
    net.place.until("all are lost", |place| place.count(&name, "teller", "records_lost") == 100);
    assert_eq!(shown(&net.place, &name)["limits"]["records_over_rate"], 100);
    let told = net.done(&students[0], &["session", "show", "s"]);
    assert!(told.contains("limits: 0 records a second (100 lost)"), "{told}");
    // What one gives back another can have, and one alone has the whole.
    net.done(&students[1], &change("1"));
    for student in &students {
        net.done(student, &["session", "close", "s"]);
    }
    net.done(&students[2], &create(&[]));
    assert_eq!(shown(&net.place, &students[2].name_of("s"))["limits"]["records_per_second"], 10);
    assert!(net.place.stop().success());
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
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let students: Vec<Person> =
        (0..2).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    for (more, says) in [
        (["--record-bytes", "200kB/s"], "bytes of records: asked for 200 kB/s; of the 100 kB/s given"),
        (["--record-storage", "4GB"], "kept records: asked for 4 GB; of the 3 GB given"),
        (["--record-storage", "unlimited"], "give it `record_storage`"),
    ] {
        net.refused(&researcher, &create(&more), says);
    }
    // Where nothing is said it is what is granted, and no more than is usual.
    net.done(&students[0], &create(&[]));
    let of = shown(&net.place, &students[0].name_of("s"))["limits"].clone();
    assert_eq!((&of["record_bytes"], &of["record_storage"]), (&100_000.into(), &1_000_000_000.into()));
    net.refused(&students[1], &create(&[]), "bytes of records: asked for 100 kB/s; of the 100 kB/s given");
    net.done(&students[0], &["session", "change", "s", "--record-bytes", "40kB/s"]);
    net.done(&students[1], &create(&["--record-bytes", "60kB/s", "--record-storage", "2GB"]));
    let told = net.done(&students[1], &["session", "show", "s"]);
    assert!(told.contains("limits: 60 kB/s of records; 2 GB of kept records, 0 B now"), "{told}");
    assert!(net.place.stop().success());
}

#[test]
fn records_of_closed_sessions_count_for_their_holder_and_a_limit_changes_while_a_session_runs() {
    if !is_inside(
        "remote_limits::records_of_closed_sessions_count_for_their_holder_and_a_limit_changes_while_a_session_runs",
    ) {
        return;
    }
    const MB: u64 = 1_000_000;
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        record_bytes: Some(BytesPerSecond(2 * MB)),
        record_storage: Some(Bytes(4 * MB)),
        sessions: Some(5),
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let module = file(&net, "flood.wasm", &flood());
    let begin = |net: &Net, name: &str| {
        let channel = ["--channel", "interface=b", "--cpu", "period=10ms,slice=3ms"];
        net.done(&researcher, &[&["session", "create", name, "--memory", "1 MiB"][..], &channel].concat());
        net.done(&researcher, &["load", name, &module]);
    };
    let [one, two] = ["one", "two"].map(|name| researcher.name_of(name));
    let write = |net: &mut Net, what: &str, is_so: &dyn Fn(&crate::place::Place) -> bool| {
        net.place.until(what, |place| {
            place.send(&vec![udp(7, b"x"); 500]);
            is_so(place)
        });
    };
    begin(&net, "one");
    write(&mut net, "it keeps more than it will", &|place| on_disk(place, &one) > 2 * MB + MB / 2);
    // A lower limit holds for what there is, while the module runs and nothing new comes.
    let deleted = |place: &crate::place::Place| {
        shown(place, &one)["limits"]["record_storage_deleted"].as_u64().unwrap_or(0)
    };
    let before = deleted(&net.place);
    net.done(&researcher, &["session", "change", "one", "--record-storage", "1MB"]);
    net.place.until("it keeps less", |place| deleted(place) > before);
    net.refused(&researcher, &["session", "change", "one", "--record-storage", "5MB"], "of the 4 MB given");
    net.done(&researcher, &["session", "change", "one", "--record-storage", "4MB"]);
    write(&mut net, "it keeps more again", &|place| on_disk(place, &one) > 3 * MB);
    net.done(&researcher, &["session", "close", "one"]);
    // Another session of the same holder: the files of the first one go for its files.
    begin(&net, "two");
    // The limit, what comes between two looks, and files that are being written: of at most 1 MiB of rows, with their log.
    let most = 4 * MB + 2 * MB + 3 * MB;
    write(&mut net, "the rows of the closed session are gone", &|place| {
        let there = on_disk(place, &one) + on_disk(place, &two);
        assert!(there <= most, "{there} bytes are kept");
        // A file of texts without a row is small enough to stay.
        on_disk(place, &one) < MB / 10
    });
    assert!(net.place.stop().success());
    assert!(net.place.billed(&two, "record_files_deleted") > 0, "the session for which they went has them");
}

#[test]
fn delegates_share_kept_packets_and_none_keeps_more() {
    if !is_inside("remote_limits::delegates_share_kept_packets_and_none_keeps_more") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings {
        cpu: Some(CpuShare(500_000)),
        kept_packets: Some(7),
        sessions: Some(5),
        ..modest().ceilings
    };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let less = Ceilings { kept_packets: Some(2), ..Ceilings::default() };
    let student = net.delegated(&researcher, "student", Grant { ceilings: less, ..Grant::default() });
    net.refused(&researcher, &create(&["--kept", "8"]), "kept packets: asked for 8; of the 7 given to");
    net.refused(&student, &create(&["--kept", "3"]), "kept packets: asked for 3; of the 2 given to");
    // Nothing said: all that he has.
    net.done(&student, &create(&[]));
    let shot = shown(&net.place, &student.name_of("s"));
    assert_eq!(shot["limits"]["kept_packets"], 2);
    net.refused(&researcher, &create(&[]), "kept packets: asked for 7; of the 7 given to");
    net.done(&researcher, &create(&["--kept", "5"]));
    net.refused(&researcher, &["session", "change", "s", "--kept", "6"], "asked for 6; of the 7 given to");
    let told = net.done(&researcher, &["session", "show", "s"]);
    assert!(told.contains("; 5 kept packets, 0 now"), "{told}");
    assert!(net.place.stop().success());
}

#[test]
fn fields_that_were_not_granted_are_not_written_whoever_asks_and_however() {
    if !is_inside("remote_limits::fields_that_were_not_granted_are_not_written_whoever_asks_and_however") {
        return;
    }
    links::far_cable();
    let mut net = Net::with("outgoing = false\n[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n");
    let mut far = links::Far::open();
    let writes = |names: &[&str]| Some(names.iter().map(|name| name.parse().unwrap()).collect());
    let ceilings = Ceilings { bandwidth: Some(BitsPerSecond(10_000_000)), ..modest().ceilings };
    let grant = Grant { writes: writes(&["ttl", "payload", "of-a-later-weir"]), ceilings, ..modest() };
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
    net.refused(
        &student,
        &create(&["--write", "ttl,payload"]),
        "fields to write: asked for payload, given is ttl",
    );
    net.refused(&researcher, &create(&["--write", "all"]), "fields to write: asked for macs, vlan");
    net.refused(&researcher, &create(&["--write", "checksum"]), "is no field that can be written");
    let module = file(&net, "writer.wasm", &writer());
    let mut run = |net: &mut Net, who: &Person, more: &[&'static str], ttl: bool, payload: bool| {
        net.done(who, &create(more));
        net.done(who, &["load", "s", &module]);
        net.place.send(&written(50, false, false));
        assert_eq!(arrived(&mut far, 50), written(50, ttl, payload));
        let told = net.done(who, &["session", "show", "s"]);
        net.refused(who, &["session", "change", "s", "--write", "all"], "fields to write");
        net.done(who, &["session", "close", "s"]);
        told
    };
    let told = run(&mut net, &student, &[], true, false);
    assert!(told.contains("; writes ttl (50 refused)"), "{told}");
    let told = run(&mut net, &researcher, &[], true, true);
    assert!(told.contains("; writes ttl,payload"), "{told}");
    let told = run(&mut net, &researcher, &["--write", "none"], false, false);
    assert!(told.contains("; writes none (100 refused)"), "{told}");
    assert!(net.place.stop().success());
}

#[test]
fn packets_that_wait_for_a_guest_take_so_much_of_the_nodes_memory_and_no_more() {
    if !is_inside("remote_limits::packets_that_wait_for_a_guest_take_so_much_of_the_nodes_memory_and_no_more")
    {
        return;
    }
    let mut net = Net::new();
    assert!(net.place.stop().success());
    // A quarter of it for one party: a mebibyte of packets, those that a queue has copied, and what describes them.
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let config = config.replacen("[cpu]\n", "packet_memory = \"8 MiB\"\n[cpu]\n", 1);
    std::fs::write(net.place.config(), config).unwrap();
    net.place.start();
    let researcher = net.granted("researcher", modest());
    let student = net.delegated(&researcher, "student", Grant::default());
    let slow = ["--cpu", "period=1s,slice=1ms"];
    let session = ["session", "create", "s", "--memory", "1 MiB"];
    let channel = ["--channel", "interface=b,filter=udp port 53"];
    net.done(&researcher, &[&session[..], &channel, &slow].concat());
    let body = "(func (export \"weir_packet\") (param i32) (result i32) (loop $l (br $l)) (i32.const 0))";
    let module = assemble(&text(body), Some(MANIFEST.replace("NAME", "endless").as_bytes()));
    net.done(&researcher, &["load", "s", &file(&net, "endless.wasm", &module)]);
    let name = researcher.name_of("s");
    let lost = |place: &crate::place::Place| {
        place.part(&name, "channels", "main")["drops"]["no-memory"].as_u64().unwrap_or(0)
    };
    net.place.until("there is no more room", |place| {
        place.send(&vec![udp(53, &[0; 1000]); 100]);
        lost(place) > 0
    });
    // In the queue there is room for more; in two mebibytes there is not.
    let waiting = net.place.part(&name, "channels", "main")["waiting"].as_u64().unwrap();
    assert!((500..=2000).contains(&waiting), "{waiting}");
    // Nor does he, or to whom he passed it on, get more by another filter.
    for (who, name) in [(&researcher, "t"), (&student, "u")] {
        let session = ["session", "create", name, "--memory", "1 MiB"];
        let other = ["--channel", "interface=b,filter=udp port 54"];
        net.refused(
            who,
            &[&session[..], &other, &slow].concat(),
            "packets of channel `main` could wait nowhere",
        );
    }
    // Others have theirs.
    let other = net.granted("other", modest());
    net.done(&other, &[&session[..], &["--channel", "interface=b,filter=udp port 55"], &slow].concat());
    assert!(net.place.stop().success());
}

#[test]
fn nobody_takes_all_channels_of_an_interface() {
    if !is_inside("remote_limits::nobody_takes_all_channels_of_an_interface") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: Some(10), ..modest().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let other = net.granted("other", modest());
    let channels: Vec<String> = (0..64).map(|n| format!("name=c{n},interface=b,filter=udp")).collect();
    let session = |name: &'static str, count: usize| {
        let cpu = ["--cpu", "period=10ms,slice=100us"];
        let session = [&["session", "create", name, "--memory", "1 MiB"], &cpu[..]].concat();
        let channels = channels.iter().take(count).flat_map(|channel| ["--channel", channel.as_str()]);
        session.into_iter().chain(channels).collect::<Vec<_>>()
    };
    for name in ["a", "b", "c", "d"] {
        net.done(&researcher, &session(name, 64));
    }
    // Nor by somebody to whom he has passed it on.
    for who in [&researcher, &student] {
        net.refused(who, &session("e", 1), "have 256 channels of an interface together at most");
    }
    net.done(&other, &session("a", 64));
    net.done(&researcher, &["session", "close", "a"]);
    net.done(&student, &session("e", 1));
    assert!(net.place.stop().success());
}
