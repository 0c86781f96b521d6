//! Views in a running node: what is hidden is nowhere, whoever shares what is shown, and nobody sees more by asking.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, sealed, udp};
use crate::remote::{Net, Person, modest};
use crate::wards::wards;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::{Bytes, Timestamp};
use weir_wire::{LinkType, Meta, classify};

/// Everything but the link layer's type, where nothing else is said.
const ETHERNET: [u8; 12] = [2, 0xaa, 0xee, 0xdd, 0xcc, 1, 2, 0xaa, 0xee, 0xdd, 0xcc, 1];

/// What is searched for, and where it stands.
struct Hidden {
    what: &'static str,
    bytes: [u8; 4],
}

const fn hidden(what: &'static str, bytes: [u8; 4]) -> Hidden {
    Hidden { what, bytes }
}

const SOURCE: [u8; 4] = [198, 18, 7, 77];
const DESTINATION: [u8; 4] = [198, 18, 9, 99];
const ARP: [u8; 4] = [198, 18, 55, 11];
const QUOTED: [u8; 4] = [198, 18, 66, 12];
const TUNNELLED: [u8; 4] = [198, 18, 88, 13];
const IN_VXLAN: [u8; 4] = [198, 18, 89, 14];
const IN_V6: [u8; 4] = [0xfe, 0xed, 0xfa, 0xce];
const PAYLOAD: [u8; 4] = [0x5e, 0xc2, 0xe7, 0x5a];
const FRAGMENT: [u8; 4] = [0x6f, 0xd1, 0xb3, 0x95];
const NOT_GRANTED: [u8; 4] = [0x11, 0x99, 0x77, 0xee];

/// By their numbers. The one that can be seen comes last: it shows that the search finds what is there.
fn patterns() -> Vec<Hidden> {
    let checksum: [u8; 2] = plain()[24..26].try_into().unwrap();
    vec![
        hidden("source address", SOURCE),
        hidden("destination address", DESTINATION),
        hidden("address in ARP", ARP),
        hidden("address in what an error quotes", QUOTED),
        hidden("address in a tunnel", TUNNELLED),
        hidden("address in VXLAN", IN_VXLAN),
        hidden("IPv6 address", IN_V6),
        hidden("hardware address", [0xee, 0xdd, 0xcc, 1]),
        hidden("payload", PAYLOAD),
        hidden("data of a later fragment", FRAGMENT),
        hidden("a packet that was not granted", NOT_GRANTED),
        hidden("IPv4 checksum, behind time to live and protocol", [61, 17, checksum[0], checksum[1]]),
        hidden("UDP checksum, behind the length", [0, 40, 0xbe, 0xef]),
        hidden("ports", [3, 232, 0, 53]),
    ]
}

/// The identification of all packets but fragments.
const ID: u16 = 0x7711;

/// An IPv4 packet with its checksum, on Ethernet.
fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, above: &[u8]) -> Vec<u8> {
    fragment(source, destination, protocol, (ID, 0), above)
}

/// The same, with this identification, and offset and flags of a fragment.
fn fragment(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    (id, offset): (u16, u16),
    above: &[u8],
) -> Vec<u8> {
    let mut frame = ETHERNET.to_vec();
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(u16::try_from(20 + above.len()).unwrap().to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(offset.to_be_bytes());
    // With ever other identifications the checksum that is shown takes on most values there are, the hidden one of another packet too: with another time to live it is none of those
    // that are searched for.
    frame.extend([if id == ID { 61 } else { 62 }, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(above);
    frame = sealed(frame);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A UDP header, with a checksum that is not right, and data.
fn datagram(port: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = 1000u16.to_be_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
    bytes.extend([0xbe, 0xef]);
    bytes.extend(data);
    bytes
}

/// The datagram that most of it is about.
fn plain() -> Vec<u8> {
    ipv4(SOURCE, DESTINATION, 17, &datagram(53, &PAYLOAD.repeat(8)))
}

/// What of an Ethernet frame is above it.
fn inner(frame: &[u8]) -> &[u8] {
    &frame[14..]
}

/// Each kind of packet once. The last one is not granted; of the two before it, fragments of a datagram with this number, whoever has datagrams put together gets one.
fn traffic(id: u16) -> Vec<Vec<u8>> {
    let router = [198, 18, 60, 1];
    let mut arp = ETHERNET.to_vec();
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0xaa, 0xee, 0xdd, 0xcc, 1]);
    arp.extend(ARP);
    arp.extend([0; 6]);
    arp.extend([198, 18, 55, 12]);
    arp.resize(60, 0);
    let quoted = ipv4(QUOTED, DESTINATION, 17, &datagram(53, &PAYLOAD));
    let error = [&[11, 0, 0xbe, 0xef, 0, 0, 0, 0][..], &inner(&quoted)[..28]].concat();
    let tunnelled = ipv4(TUNNELLED, DESTINATION, 17, &datagram(53, &PAYLOAD));
    let in_vxlan = ipv4(IN_VXLAN, DESTINATION, 17, &datagram(53, &PAYLOAD));
    let vxlan = datagram(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &in_vxlan].concat());
    let mut v6 = ETHERNET.to_vec();
    let above = datagram(53, &PAYLOAD);
    v6.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    v6.extend(u16::try_from(above.len()).unwrap().to_be_bytes());
    v6.extend([17, 61, 0x20, 1, 0xd, 0xb8]);
    v6.extend(IN_V6.repeat(3));
    v6.extend([0x20, 1, 0xd, 0xb8]);
    v6.extend([7; 12]);
    v6.extend(above);
    let whole = datagram(53, &[PAYLOAD.repeat(14), FRAGMENT.repeat(16)].concat());
    vec![
        plain(),
        arp,
        ipv4(router, SOURCE, 1, &error),
        ipv4(router, [198, 18, 61, 2], 4, inner(&tunnelled)),
        ipv4(router, [198, 18, 61, 2], 17, &vxlan),
        v6,
        fragment(SOURCE, DESTINATION, 17, (id, 0x2000), &whole[..64]),
        fragment(SOURCE, DESTINATION, 17, (id, 8), &whole[64..]),
        ipv4(SOURCE, DESTINATION, 17, &datagram(9, &NOT_GRANTED.repeat(8))),
    ]
}

/// What words are stored with in the module's own memory, so that the search does not find them there.
const MASK: u32 = 0x5a17_c3e9;

/// Where each of these words is in a table of 256, and the factor by which a word's place is found.
fn table(words: &[u32]) -> (u32, [u32; 256]) {
    let place = |factor: u32, word: u32| usize::try_from(word.wrapping_mul(factor) >> 24).unwrap();
    for factor in (0x9e37_79b1..).step_by(2) {
        let mut table = [0; 256];
        let mut is_free = true;
        for word in words {
            let slot = &mut table[place(factor, *word)];
            is_free &= *slot == 0;
            *slot = word ^ MASK;
        }
        if is_free {
            return (factor, table);
        }
    }
    unreachable!("few words have places of their own by many a factor")
}

/// A module that goes through its whole address space, 32 KiB with each packet, at every second address; where nothing is mapped, that packet is lost to it. What it finds it emits once:
/// the number of a pattern, then that of the flow hash, then that of a gap in the numbers of its packets.
fn searcher(flow_hash: u64) -> Vec<u8> {
    let mut words: Vec<u32> = patterns().iter().map(|pattern| u32::from_le_bytes(pattern.bytes)).collect();
    let found =
        |number: usize, test: String| format!("(if {test} (then (call $found (i64.const {number}))))\n");
    let mut tests = String::new();
    for (number, word) in words.iter().enumerate() {
        let word = word.cast_signed();
        tests += &found(number, format!("(i32.eq (i32.wrap_i64 (local.get $word)) (i32.const {word}))"));
    }
    let hash = flow_hash.cast_signed();
    tests += &found(words.len(), format!("(i64.eq (local.get $word) (i64.const {hash}))"));
    words.push(u32::try_from(flow_hash & u64::from(u32::MAX)).unwrap());
    // What is emitted in a call that is lost is lost, too: this is said in one that is not.
    let gap = found(words.len(), "(global.get $gap)".to_owned());
    let (factor, table) = table(&words);
    let table: String =
        table.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect();
    let (factor, mask) = (factor.cast_signed(), MASK.cast_signed());
    let body = format!(
        r#"(global $at (mut i32) (i32.const 0))
        (global $expected (mut i32) (i32.const 0))
        (global $known (mut i64) (i64.const 0))
        (global $gap (mut i32) (i32.const 0))
        (data (i32.const 8192) "{table}")
        (func $found (param $what i64)
            (local $bit i64)
            (local.set $bit (i64.shl (i64.const 1) (local.get $what)))
            (if (i64.eqz (i64.and (global.get $known) (local.get $bit))) (then
                (global.set $known (i64.or (global.get $known) (local.get $bit)))
                (i64.store (i32.const 64) (local.get $what))
                (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
                (i64.store (i32.const 64) (i64.const 0)))))
        (func $look (param $word i64) {tests})
        (func (export "weir_packet") (param $d i32) (result i32)
            (local $p i32) (local $end i32) (local $word i32)
            (if (i32.ne (i32.load offset=60 (local.get $d)) (global.get $expected))
                (then (global.set $gap (i32.const 1))))
            (global.set $expected (i32.add (i32.load offset=60 (local.get $d)) (i32.const 1)))
            (local.set $p (global.get $at))
            (global.set $at (i32.add (global.get $at) (i32.const 32768)))
            (local.set $end (i32.add (local.get $p) (i32.const 32760)))
            (loop $next
                (local.set $word (i32.load (local.get $p)))
                (if (i32.eq
                        (i32.xor (local.get $word) (i32.const {mask}))
                        (i32.load offset=8192 (i32.and
                            (i32.shr_u (i32.mul (local.get $word) (i32.const {factor})) (i32.const 22))
                            (i32.const 1020))))
                    (then (call $look (i64.load (local.get $p)))))
                (local.set $p (i32.add (local.get $p) (i32.const 2)))
                (br_if $next (i32.ne (local.get $p) (local.get $end))))
            {gap}
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", "searcher").as_bytes()))
}

/// What the node knows the flow of most of it by.
fn flow_hash() -> u64 {
    let frame = plain();
    let len = u32::try_from(frame.len()).unwrap();
    let meta = Meta {
        ts: Timestamp(0),
        cap_len: len,
        wire_len: len,
        link_type: LinkType::Ethernet,
        interface: 0,
        number: 0,
        data: 0,
    };
    classify(&frame, &meta).unwrap().flow_hash
}

/// A module that emits the word at `at` of each packet.
fn reader(at: u32) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.load32_u (i32.add (i32.load offset=8 (local.get $d)) (i32.const {at}))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", "m").as_bytes()))
}

/// The rows of a module as they come.
fn follow(place: &Place, session: &str, module: &str) -> Lines<BufReader<UnixStream>> {
    let mut stream = place.connect();
    let ask = json!({"weir": 1, "ask": {"follow": {"session": session, "module": module, "stream": "rows"}}});
    writeln!(stream, "{ask}").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next().unwrap().unwrap().contains("done"));
    lines
}

fn next(rows: &mut Lines<BufReader<UnixStream>>) -> u64 {
    let row: Value = serde_json::from_str(&rows.next().unwrap().unwrap()).unwrap();
    row["reply"]["record"]["value"].as_u64().unwrap_or_else(|| panic!("{row}"))
}

/// What a researcher gets: enough to search, and packets as this view shows them, but for those of port 9.
fn searching(view: &str) -> Grant {
    let ceilings = Ceilings {
        cpu: Some(CpuShare(600_000)),
        memory: Some(Bytes(64 << 20)),
        sessions: Some(8),
        ..Ceilings::default()
    };
    let filters = ["not udp port 9".parse().unwrap()].into();
    Grant { view: Some(view.parse().unwrap()), filters, ceilings, ..modest() }
}

fn file(folder: &Path, name: &str, module: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, module).unwrap();
    path
}

/// Creates a session for somebody, with a module. Returns what the node calls it.
fn study(net: &Net, who: &Person, given: &str, cpu: &str, channel: &str, module: &Path) -> String {
    let create = ["session", "create", given, "--memory", "6 MiB", "--cpu", cpu, "--channel", channel];
    net.done(who, &create);
    net.done(who, &["load", given, module.to_str().unwrap()]);
    who.name_of(given)
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// So many packets, and a searcher has gone through its whole address space.
const WHOLE: u64 = 132_000;

/// How many packets a searcher has been called with.
fn gone_through(place: &Place, session: &str, module: &str) -> u64 {
    place.count(session, module, "packets") + place.count(session, module, "faults")
}

fn views(place: &Place) -> Vec<Value> {
    place.snapshot()["views"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_module_that_searches_all_its_memory_finds_nothing_that_its_view_hides() {
    if !is_inside("views::a_module_that_searches_all_its_memory_finds_nothing_that_its_view_hides") {
        return;
    }
    let mut net = Net::new();
    let module = searcher(flow_hash());
    let path = file(net.folder.path(), "searcher.wasm", &module);

    // The operator's own sees everything, and takes what others may see: with what lies between, its packets have gaps.
    net.place.done(json!({"create": {"name": "all", "cpu": [{"period": "50ms", "slice": "12ms"}],
        "channel": [{"interface": "b", "sees": "all", "filter": "not udp port 9"}]}}));
    assert!(net.place.load("all", json!({"module": "searcher.wasm"}), &module).get("done").is_some());
    // The researcher sees addresses anonymised; his student no ports either, and of datagrams in fragments the whole.
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let narrower = "payload=none,addresses=anonymised,macs=zeroed,ports=zeroed".parse().unwrap();
    let student = net.delegated(&researcher, "student", Grant { view: Some(narrower), ..Grant::default() });
    let cpu = "period=50ms,slice=12ms";
    let some = study(&net, &researcher, "some", cpu, "interface=b", &path);
    let less = study(&net, &student, "less", cpu, "interface=b,reassemble=true", &path);
    let mut rows: Vec<_> =
        ["all", &some, &less].iter().map(|session| follow(&net.place, session, "searcher")).collect();

    // All of 4 GiB, with something left over. Of the interface's own memory the operator's may lose some packets: it is filled in turn.
    let gone_through = |place: &Place, session: &str| gone_through(place, session, "searcher");
    let lost = |place: &Place, session: &str| {
        let drops = place.part(session, "channels", "main")["drops"].clone();
        drops.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    let mut rounds = 0u16;
    while ["all", &some, &less].iter().any(|session| gone_through(&net.place, session) < WHOLE) {
        net.place.send(&(0..100).flat_map(|round| traffic(rounds + round)).collect::<Vec<_>>());
        rounds += 100;
        // But for the one that is not granted; and of the two fragments, the student gets one.
        let (of_all, of_less) = (8 * u64::from(rounds), 7 * u64::from(rounds));
        net.place.until("all have gone through them", |place| {
            gone_through(place, "all") + lost(place, "all") == of_all
                && gone_through(place, &some) == of_all
                && gone_through(place, &less) == of_less
        });
    }

    // Who may see everything finds everything.
    let patterns = patterns();
    let all: Vec<u64> = (0..patterns.len() as u64 + 2).collect();
    net.place.until("all is found", |place| place.count("all", "searcher", "records") == all.len() as u64);
    let mut found: Vec<u64> = all.iter().map(|_| next(&mut rows[0])).collect();
    found.sort_unstable();
    assert_eq!(found, all);
    // The researcher's finds the ports, which can be seen, and nothing else; the student's nothing.
    let what =
        |number: u64| patterns.get(usize::try_from(number).unwrap()).map_or("flow hash or gap", |it| it.what);
    assert_eq!(what(next(&mut rows[1])), "ports");
    for (session, expected) in [(&some, 1), (&less, 0)] {
        let records = net.place.count(session, "searcher", "records");
        if records > expected {
            let more = &mut rows[if *session == some { 1 } else { 2 }];
            panic!("{session} found {}", what(next(more)));
        }
        assert_eq!((records, net.place.count(session, "searcher", "records_lost")), (expected, 0));
    }
    assert!(net.place.stop().success());
}

#[test]
fn a_module_that_searches_all_its_memory_in_a_process_of_its_own_finds_nothing_that_its_view_hides_either() {
    if !is_inside(
        "views::a_module_that_searches_all_its_memory_in_a_process_of_its_own_finds_nothing_that_its_view_hides_either",
    ) {
        return;
    }
    let mut net = Net::new();
    let module = searcher(flow_hash());
    let path = file(net.folder.path(), "searcher.wasm", &module);
    // The operator's own sees its packets as they are; the researcher's, of which there are two in a session, see addresses anonymised.
    let cpu = json!([{"period": "50ms", "slice": "12ms"}]);
    let channel = json!([{"interface": "b", "filter": "not udp port 9"}]);
    net.place.done(json!({"create": {"name": "all", "process": "own", "cpu": cpu, "channel": channel}}));
    assert!(net.place.load("all", json!({"module": "searcher.wasm"}), &module).get("done").is_some());
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let create = ["session", "create", "some", "--process", "own", "--memory", "24 MiB"];
    let sees = ["--cpu", "period=50ms,slice=12ms", "--channel", "interface=b"];
    net.done(&researcher, &[&create[..], &sees].concat());
    let searcher = path.to_str().unwrap();
    net.done(&researcher, &["load", "some", searcher]);
    net.done(&researcher, &["load", "some", searcher, "--name", "second"]);
    let some = researcher.name_of("some");
    let each = [("all", "searcher"), (some.as_str(), "searcher"), (some.as_str(), "second")];
    let mut rows = each.map(|(session, module)| follow(&net.place, session, module));
    assert_eq!(wards(net.place.process()).len(), 3);

    let mut rounds = 0u16;
    while u64::from(rounds) * 8 < WHOLE {
        net.place.send(&(0..100).flat_map(|round| traffic(rounds + round)).collect::<Vec<_>>());
        rounds += 100;
        // Each gets all but the one that is not granted.
        net.place.until("all have gone through them", |place| {
            each.iter().all(|(session, module)| gone_through(place, session, module) == 8 * u64::from(rounds))
        });
    }
    // Each still has the process that it began with, and there was memory to be searched in it: some of its calls were whole, and most were not.
    assert_eq!(wards(net.place.process()).len(), 3);
    for (session, module) in each {
        let [whole, lost] = ["packets", "faults"].map(|what| net.place.count(session, module, what));
        assert!(whole > 64 && lost > whole, "{session}: {whole} and {lost}");
    }

    // Who may see his packets as they are finds all that is in them.
    let names: Vec<&str> =
        patterns().iter().map(|pattern| pattern.what).chain(["flow hash", "gap"]).collect();
    let what = |number: u64| names[usize::try_from(number).unwrap()];
    let records = |place: &Place, session: &str, module: &str| place.count(session, module, "records");
    let nowhere = ["a packet that was not granted", "gap"];
    let mut all: Vec<&str> = names.iter().copied().filter(|name| !nowhere.contains(name)).collect();
    net.place.until("all is found", |place| records(place, "all", "searcher") >= all.len() as u64);
    let mut found: Vec<&str> = all.iter().map(|_| what(next(&mut rows[0]))).collect();
    all.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, all);
    // The researcher's find the ports, which can be seen.
    for rows in &mut rows[1..] {
        assert_eq!(what(next(rows)), "ports");
    }

    // What they are shown is what is shown in the node's process: the same pseudonym, which is not the address.
    let path = file(net.folder.path(), "m.wasm", &reader(26));
    let here = study(&net, &researcher, "here", "period=50ms,slice=2ms", "interface=b,filter=udp", &path);
    net.done(&researcher, &["load", "some", path.to_str().unwrap()]);
    let mut shown = [&here, &some].map(|session| follow(&net.place, session, "m"));
    net.place.send(&[plain()]);
    let [here, apart] = shown.each_mut().map(next);
    assert_eq!(here, apart);
    assert_ne!(u32::try_from(apart).unwrap().to_le_bytes(), SOURCE);

    // Nothing else has been found meanwhile.
    for (((session, module), rows), expected) in each.into_iter().zip(&mut rows).zip([all.len() as u64, 1, 1])
    {
        if records(&net.place, session, module) > expected {
            panic!("{session} found {}, too", what(next(rows)));
        }
        assert_eq!(net.place.count(session, module, "records_lost"), 0);
    }
    assert!(net.place.stop().success());
}

#[test]
fn another_module_and_another_session_on_a_view_cost_no_second_transformation() {
    if !is_inside("views::another_module_and_another_session_on_a_view_cost_no_second_transformation") {
        return;
    }
    let channel = "channel = [{ interface = \"b\", filter = \"udp\", view = \"addresses=anonymised\" }]";
    let session = |name: &str, channel: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"50ms\", slice = \"5ms\" }}]\n{channel}\n"
        )
    };
    let other = channel.replace("anonymised", "zeroed");
    let sessions = [session("one", channel), session("two", channel), session("other", &other)];
    let mut place = Place::new(&sessions.concat());
    let module = reader(26);
    let load = |place: &Place, session: &str, name: &str| {
        let reply = place.load(session, json!({"module": "m.wasm", "name": name}), &module);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let seen = |place: &Place, of: &[(&str, &str)], packets: u64| {
        of.iter().all(|(session, module)| place.count(session, module, "packets") == packets)
    };
    load(&place, "one", "m");
    place.send(&vec![plain(); 500]);
    place.until("it has seen all", |place| seen(place, &[("one", "m")], 500));
    let first = views(&place);
    let shown = "payload=none,addresses=anonymised,macs=zeroed";
    let is_it = |view: &&Value| view["view"] == shown;
    let found = first.iter().find(is_it).unwrap();
    assert_eq!((&found["packets"], &found["readers"]), (&json!(500), &json!(["one/m"])));

    for (session, name) in [("one", "n"), ("two", "m"), ("two", "n")] {
        load(&place, session, name);
    }
    let all = [("one", "n"), ("two", "m"), ("two", "n")];
    place.send(&vec![plain(); 700]);
    place.until("all have seen all", |place| seen(place, &all, 700) && seen(place, &[("one", "m")], 1200));
    // Four who see 700 packets, and 700 transformations.
    let then = views(&place);
    let now = then.iter().find(is_it).unwrap();
    assert_eq!(now["number"], found["number"]);
    assert_eq!(
        (&now["packets"], &now["readers"]),
        (&json!(1200), &json!(["one/m", "one/n", "two/m", "two/n"]))
    );
    assert_eq!(then.iter().filter(is_it).count(), 1);
    // Another view is another one, and nothing is done for whom nobody reads.
    let zeroed = then.iter().find(|view| view["view"] == shown.replace("anonymised", "zeroed")).unwrap();
    assert_eq!((&zeroed["packets"], &zeroed["readers"]), (&json!(0), &json!([])));
    let top = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["top", "--once"])
        .env("WEIR_SOCKET", place.path().join("node.sock"))
        .output()
        .unwrap();
    let text = String::from_utf8(top.stdout).unwrap();
    assert!(text.contains("VIEW ON") && text.contains("addresses=anonymised"), "{text}");
    assert!(place.stop().success());
}

#[test]
fn addresses_look_the_same_after_a_restart_and_to_whoever_got_the_same_view_and_to_nobody_else() {
    if !is_inside(
        "views::addresses_look_the_same_after_a_restart_and_to_whoever_got_the_same_view_and_to_nobody_else",
    ) {
        return;
    }
    let mut net = Net::new();
    let path = file(net.folder.path(), "m.wasm", &reader(26));
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let student = net.delegated(&researcher, "student", Grant::default());
    let other = net.granted("other", searching("addresses=anonymised"));
    let cpu = "period=50ms,slice=5ms";
    let source = |net: &mut Net, who: &Person| {
        let name = study(net, who, "s", cpu, "interface=b,filter=udp", &path);
        let mut rows = follow(&net.place, &name, "m");
        net.place.send(&[plain()]);
        let seen = next(&mut rows);
        net.done(who, &["session", "close", "s"]);
        u32::try_from(seen).unwrap()
    };
    let first = source(&mut net, &researcher);
    assert_ne!(first.to_le_bytes(), SOURCE);
    assert_eq!(source(&mut net, &student), first);
    assert_ne!(source(&mut net, &other), first);
    assert!(net.place.stop().success());
    net.place.start();
    assert_eq!(source(&mut net, &researcher), first);
    assert!(net.place.stop().success());

    // Neither start was one with another method. The state of a version before ipcrypt-pfx has no note of it: that is said once.
    let told = |net: &Net| net.place.said().matches("shows other pseudonyms than before").count();
    assert_eq!(told(&net), 0, "{}", net.place.said());
    std::fs::remove_file(net.place.path().join("state/views.method")).unwrap();
    for _ in 0..2 {
        net.place.start();
        assert!(net.place.stop().success());
    }
    assert_eq!(told(&net), 1, "{}", net.place.said());

    // A secret that others can read, and one that is none, is said, and not replaced.
    let secret = net.place.path().join("state/views.secret");
    let text = std::fs::read_to_string(&secret).unwrap();
    let refused = |net: &Net| {
        let mut node = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = node.args(["node", "-c"]).arg(net.place.config()).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = refused(&net);
    assert!(said.contains("views.secret: others than its owner can read it"), "{said}");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&secret, &text[..20]).unwrap();
    let said = refused(&net);
    assert!(said.contains("views.secret: that is no secret of a node's views"), "{said}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), text[..20]);
}

#[test]
fn a_holders_filter_selects_by_what_he_sees_so_it_tells_him_of_nothing_else() {
    if !is_inside("views::a_holders_filter_selects_by_what_he_sees_so_it_tells_him_of_nothing_else") {
        return;
    }
    let mut net = Net::new();
    let path = file(net.folder.path(), "m.wasm", &reader(26));
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let cpu = "period=50ms,slice=2ms";
    let payload = "udp[8:4] = 0x5ec2e75a";
    // What he sees of them he can select by, what he does not see not; with datagrams put together, too.
    let asked = [
        ("port", "dst port 53", "", true),
        ("address", "host 198.18.7.77", "", false),
        ("payload", payload, "", false),
        ("checksum", "ip[10:2] != 0 and udp[6:2] = 0xbeef", "", false),
        ("whole", "host 198.18.7.77", ",reassemble=true", false),
        ("other", "dst port 53", ",reassemble=true", true),
    ];
    let named: Vec<(String, bool)> = asked
        .iter()
        .map(|(name, filter, more, is_there)| {
            let channel = format!("interface=b,filter=\"{filter}\"{more}");
            (study(&net, &researcher, name, cpu, &channel, &path), *is_there)
        })
        .collect();
    let mut rows = follow(&net.place, &named[0].0, "m");
    net.place.send(&vec![plain(); 40]);
    for (name, is_there) in &named {
        net.place.until(&format!("{name} has seen all or none"), |place| {
            let unwanted = place.part(name, "channels", "main")["findings"]["unwanted"].as_u64().unwrap_or(0);
            let seen = place.count(name, "m", "packets");
            (seen, unwanted) == if *is_there { (40, 0) } else { (0, 40) }
        });
    }
    // By the address that he sees he can.
    let [a, b, c, d] = u32::try_from(next(&mut rows)).unwrap().to_le_bytes();
    net.done(&researcher, &["session", "close", "port"]);
    let channel = format!("interface=b,filter=src host {a}.{b}.{c}.{d}");
    let name = study(&net, &researcher, "pseudonym", cpu, &channel, &path);
    net.place.send(&vec![plain(); 10]);
    net.place.until("he has seen them", |place| place.count(&name, "m", "packets") == 10);
    // Somebody to whom he passes it on is bound by the same, and by his filter; the operator's own filters look at packets as they are.
    let filters = ["host 198.18.7.77".parse().unwrap()].into();
    let student = net.delegated(&researcher, "student", Grant { filters, ..Grant::default() });
    let students = study(&net, &student, "s", cpu, "interface=b", &path);
    net.place
        .done(json!({"create": {"name": "own", "cpu": [{"period": "50ms", "slice": "2ms"}], "channel": [
        {"interface": "b", "filter": "host 198.18.7.77", "view": "addresses=anonymised"}]}}));
    let module = std::fs::read(&path).unwrap();
    assert!(net.place.load("own", json!({"module": "m.wasm"}), &module).get("done").is_some());
    net.place.send(&vec![plain(); 10]);
    net.place.until("the operator has seen them", |place| place.count("own", "m", "packets") == 10);
    net.place.until("the student has not", |place| {
        place.part(&students, "channels", "main")["findings"]["unwanted"] == 10
    });
    assert_eq!(net.place.count(&students, "m", "packets"), 0);
    // Nor is he told how many there were: neither of packets as they come, nor of those that are put together first.
    let whole = study(&net, &student, "w", cpu, "interface=b,reassemble=true", &path);
    net.place.send(&vec![plain(); 10]);
    net.place
        .until("none is his", |place| place.part(&whole, "channels", "main")["findings"]["unwanted"] == 10);
    for session in ["s", "w"] {
        let shown = net.done(&student, &["session", "show", session, "--json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let channel = &shown["channels"][0];
        let counts = [&channel["packets"], &channel["bytes"], &channel["drops"], &channel["findings"]];
        assert_eq!(counts, [&json!(0), &json!(0), &json!({}), &json!({})], "{session}: {shown}");
    }
    net.done(&student, &["session", "close", "w"]);
    // Checksums are looked at as they came, not as they are shown: there they are always right.
    let verified = study(&net, &researcher, "verified", cpu, "interface=b,checksum=verify", &path);
    net.place.send(&[plain(), traffic(0)[1].clone(), plain()]);
    net.place.until("the wrong ones are dropped", |place| {
        let findings = place.part(&verified, "channels", "main")["findings"].clone();
        (place.count(&verified, "m", "packets"), findings) == (1, json!({"bad-udp": 2}))
    });
    assert!(net.place.stop().success());
}

#[test]
fn a_request_for_more_than_the_credential_shows_is_refused() {
    if !is_inside("views::a_request_for_more_than_the_credential_shows_is_refused") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", searching("payload=16,ttl=zeroed"));
    let view = "payload=8,ttl=zeroed".parse().unwrap();
    let student = net.delegated(&researcher, "student", Grant { view: Some(view), ..Grant::default() });
    let create = |view: &str| {
        let channel = format!("interface=b,view=\"{view}\"");
        [
            "session",
            "create",
            "s",
            "--memory",
            "1 MiB",
            "--cpu",
            "period=10ms,slice=1ms",
            "--channel",
            &channel,
        ]
        .map(str::to_owned)
    };
    let refused = |who: &Person, arguments: &[String], why: &str| net.refused(who, &words(arguments), why);
    for more in ["all", "payload=17", "ports=zeroed,ttl=visible"] {
        refused(&researcher, &create(more), "view: asked for");
    }
    refused(&student, &create("payload=9"), "given is payload=8,ttl=zeroed");
    refused(&researcher, &create("payload=much"), "`payload` cannot be `much`");
    // The interface's own memory, and a way out for what is hidden.
    let whole = ["session", "create", "s", "--memory", "1 MiB", "--channel", "interface=b,sees=all"];
    net.refused(&researcher, &whole, "would see all of the interface's memory (`sees = \"all\"`)");
    let done = |who: &Person, arguments: &[String]| net.done(who, &words(arguments));
    done(&researcher, &create("ports=zeroed"));
    done(&student, &create("payload=4"));
    let shown = |who: &Person| net.done(who, &["session", "show", "s"]);
    let said = shown(&researcher);
    assert!(said.contains("main: shown by the view payload=16,ports=zeroed,ttl=zeroed"), "{said}");
    let said = shown(&student);
    assert!(said.contains("main: shown by the view payload=4,ttl=zeroed"), "{said}");
    // Nor does a change show more: his own, or that of one who may see more.
    let change = |name: &str, view: &str| {
        ["session", "change", name, "--channel", &format!("interface=b,view=\"{view}\"")].map(str::to_owned)
    };
    refused(&researcher, &change("s", "payload=17"), "view: asked for");
    let students = student.name_of("s");
    refused(&researcher, &change(&students, "payload=6"), "its owner has to share it with you");
    let share = format!("manage={}", researcher.identity.public());
    net.done(&student, &["session", "change", "s", "--share", &share]);
    refused(&researcher, &change(&students, "payload=16"), "given is payload=8,ttl=zeroed");
    done(&researcher, &change(&students, "payload=6"));
    let said = shown(&student);
    assert!(said.contains("main: shown by the view payload=6,ttl=zeroed"), "{said}");
    assert!(net.place.stop().success());
}

#[test]
fn what_is_hidden_is_not_forwarded_and_the_node_says_what_to_do() {
    if !is_inside("views::what_is_hidden_is_not_forwarded_and_the_node_says_what_to_do") {
        return;
    }
    let mut place = Place::new("[[link]]\ninterface = \"a\"\nrate = \"10 Mbit/s\"\n");
    let session = |view: &str, sees: &str| {
        json!({"create": {"name": "s", "output": [{"name": "up", "link": "a"}],
            "channel": [{"interface": "b", "view": view, "sees": sees, "forward": "up"}]}})
    };
    let why = place.refused(session("payload=none", "selected"));
    assert!(
        why.contains("`forward` is up; it must be left out where its packets are shown by a view"),
        "{why}"
    );
    let why = place.refused(session("payload=none", "all"));
    assert!(why.contains("`sees` is \"all\"; it must be \"selected\""), "{why}");
    // What is not forwarded, and what is made by a module, is another matter.
    let view = json!([{"interface": "b", "view": "payload=none"}]);
    place.done(json!({"create": {"name": "s", "output": [{"name": "up", "link": "a"}], "channel": view}}));
    let plain = udp(53, b"x");
    place.send(&[plain]);
    assert!(place.stop().success());
}
