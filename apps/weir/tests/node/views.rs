//! Views: hidden data is nowhere in a module's memory, even if sessions share views, and requests cannot reveal it.

use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, Person, modest_grant};
use crate::sandbox_processes::sandbox_processes;
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp, with_ip_checksum};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::{Bytes, Timestamp};
use weir_wire::{LinkType, Meta, classify};

/// Addresses of the Ethernet header: the first 12 bytes of each frame unless stated otherwise.
const ETHERNET: [u8; 12] = [2, 0xaa, 0xee, 0xdd, 0xcc, 1, 2, 0xaa, 0xee, 0xdd, 0xcc, 1];

/// A pattern that is searched for, and its description.
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

/// The description of the pattern of [`shows_hidden_checksum`].
const CHECKSUM: &str = "IPv4 checksum, behind time to live and protocol";
/// The offset of these bytes in a frame.
const CHECKSUM_AT: u32 = 22;
/// The time to live of [`plain_datagram`] only. With varying addresses, visible checksums of other packets take on most
/// values.
const PLAIN_TTL: u8 = 61;

/// All patterns, by number. The last one is visible, which shows that the search works.
fn patterns() -> Vec<Hidden> {
    let checksum: [u8; 2] = plain_datagram()[24..26].try_into().unwrap();
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
        hidden(CHECKSUM, [PLAIN_TTL, 17, checksum[0], checksum[1]]),
        hidden("UDP checksum, behind the length", [0, 40, 0xbe, 0xef]),
        hidden("ports", [3, 232, 0, 53]),
    ]
}

/// The IPv4 identification of all packets that are no fragments.
const ID: u16 = 0x7711;

/// An IPv4 packet on Ethernet, with its checksum.
fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, above: &[u8]) -> Vec<u8> {
    fragment(source, destination, protocol, (ID, 0), above)
}

/// As [`ipv4`], with this identification, and the offset and flags of a fragment.
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
    frame.extend([62, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(above);
    frame = with_ip_checksum(frame);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A UDP header with a wrong checksum, and data.
fn datagram(port: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = 1000u16.to_be_bytes().to_vec();
    bytes.extend(port.to_be_bytes());
    bytes.extend(u16::try_from(8 + data.len()).unwrap().to_be_bytes());
    bytes.extend([0xbe, 0xef]);
    bytes.extend(data);
    bytes
}

/// The datagram that most patterns are from.
fn plain_datagram() -> Vec<u8> {
    let mut frame = ipv4(SOURCE, DESTINATION, 17, &datagram(53, &PAYLOAD.repeat(8)));
    frame[22] = PLAIN_TTL;
    with_ip_checksum(frame)
}

/// The part of an Ethernet frame after its header.
fn inner(frame: &[u8]) -> &[u8] {
    &frame[14..]
}

/// One packet of each kind. The last one is not granted. The two before it are fragments of a datagram with this
/// identification, which reassembly joins into one packet.
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
        plain_datagram(),
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

/// The mask of the patterns in the module's own memory, so that the search does not find them there.
const MASK: u32 = 0x5a17_c3e9;

/// A perfect hash table of these words with 256 slots. Returns the factor of the hash function, and the table.
fn table(words: &[u32]) -> (u32, [u32; 256]) {
    let slot_of = |factor: u32, word: u32| usize::try_from(word.wrapping_mul(factor) >> 24).unwrap();
    for factor in (0x9e37_79b1..).step_by(2) {
        let mut table = [0; 256];
        let mut is_free = true;
        for word in words {
            let slot = &mut table[slot_of(factor, *word)];
            is_free &= *slot == 0;
            *slot = word ^ MASK;
        }
        if is_free {
            return (factor, table);
        }
    }
    unreachable!("few words have places of their own by many a factor")
}

/// A module that searches its whole address space, 32 KiB with each packet, at every second address. It traps where
/// nothing is mapped. It emits each
/// finding once: the number of a pattern, then that of the flow hash, then that of a gap in its packet numbers.
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
    // A record of a call that traps is lost, so findings are emitted in a later call.
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

/// The flow hash of the packets of `plain`.
fn flow_hash() -> u64 {
    let frame = plain_datagram();
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

/// A module that emits the word at offset `at` of each packet.
fn reader(at: u32) -> Vec<u8> {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) (i64.load32_u (i32.add (i32.load offset=8 (local.get $d)) (i32.const {at}))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", "m").as_bytes()))
}

/// Returns true if the visible checksum of [`plain_datagram`] is the hidden one by accident. Its view has other addresses,
/// whose sum is the same with one key in 65,535.
fn shows_hidden_checksum(net: &mut Net, who: &Person) -> bool {
    let path = write_file(net.folder.path(), "checksum.wasm", &reader(CHECKSUM_AT));
    let cpu = "period=50ms,slice=100us";
    let session = create_study(net, who, "shown", cpu, "interface=b,filter=udp", &path);
    let mut rows = follow(&net.testbed, &session, "m");
    net.testbed.send(&[plain_datagram()]);
    let shown = u32::try_from(next_value(&mut rows)).unwrap();
    net.run(who, &["session", "close", "shown"]);
    let hidden = patterns().into_iter().find(|pattern| pattern.what == CHECKSUM).unwrap();
    shown.to_le_bytes() == hidden.bytes
}

/// The rows of a module, as they arrive.
fn follow(testbed: &Testbed, session: &str, module: &str) -> FollowedReplies {
    FollowedReplies::new(testbed, session, module, "rows")
}

fn next_value(rows: &mut FollowedReplies) -> u64 {
    let row = rows.next().unwrap();
    row["record"]["value"].as_u64().unwrap_or_else(|| panic!("{row}"))
}

/// A grant with the resources for a search, and the packets of this view, except for those of port 9.
fn searching(view: &str) -> Grant {
    let ceilings = Ceilings {
        cpu: Some(CpuShare(600_000)),
        memory: Some(Bytes(64 << 20)),
        sessions: Some(8),
        ..Ceilings::default()
    };
    let filters = ["not udp port 9".parse().unwrap()].into();
    Grant { view: Some(view.parse().unwrap()), filters, ceilings, ..modest_grant() }
}

fn write_file(folder: &Path, name: &str, module: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, module).unwrap();
    path
}

/// Creates a session with a module. Returns the node's internal name of the session.
fn create_study(net: &Net, who: &Person, given: &str, cpu: &str, channel: &str, module: &Path) -> String {
    let create = ["session", "create", given, "--memory", "6 MiB", "--cpu", cpu, "--channel", channel];
    net.run(who, &create);
    net.run(who, &["load", given, module.to_str().unwrap()]);
    who.name_of(given)
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The number of packets with which a searcher has searched its whole address space.
const PACKETS_FOR_FULL_SEARCH: u64 = 132_000;

/// The number of packets that a searcher has received.
fn packets_seen(testbed: &Testbed, session: &str, module: &str) -> u64 {
    testbed.count(session, module, "packets") + testbed.count(session, module, "faults")
}

fn views(testbed: &Testbed) -> Vec<Value> {
    testbed.snapshot()["views"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_module_that_searches_its_memory_finds_no_hidden_data() {
    if !is_inside("views::a_module_that_searches_its_memory_finds_no_hidden_data") {
        return;
    }
    let mut net = Net::new();
    let module = searcher(flow_hash());
    let path = write_file(net.folder.path(), "searcher.wasm", &module);

    // The researcher sees anonymised addresses; the student sees no ports either, and reassembled datagrams.
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let narrower = "payload=none,addresses=anonymised,macs=zeroed,ports=zeroed".parse().unwrap();
    let student = net.delegated(&researcher, "student", Grant { view: Some(narrower), ..Grant::default() });
    let mut visible = [vec!["ports"], vec![]];
    for (visible, who) in visible.iter_mut().zip([&researcher, &student]) {
        visible.extend(shows_hidden_checksum(&mut net, who).then_some(CHECKSUM));
    }

    // The operator's session sees everything. It reads only the packets that others may see, so their packet numbers have gaps.
    net.testbed.request(json!({"create": {"name": "all", "cpu": [{"period": "50ms", "slice": "12ms"}],
        "channel": [{"interface": "b", "visibility": "all", "filter": "not udp port 9"}]}}));
    assert!(net.testbed.load("all", json!({"module": "searcher.wasm"}), &module).get("done").is_some());
    let cpu = "period=50ms,slice=12ms";
    let some = create_study(&net, &researcher, "some", cpu, "interface=b", &path);
    let less = create_study(&net, &student, "less", cpu, "interface=b,reassemble=true", &path);
    let mut rows: Vec<_> =
        ["all", &some, &less].iter().map(|session| follow(&net.testbed, session, "searcher")).collect();

    // All of the 4 GiB, with a margin. The operator's session may lose some packets of the packet socket.
    let packets_seen = |testbed: &Testbed, session: &str| packets_seen(testbed, session, "searcher");
    let lost = |testbed: &Testbed, session: &str| {
        let drops = testbed.part(session, "channels", "main")["drops"].clone();
        drops.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    let mut rounds = 0u16;
    while ["all", &some, &less]
        .iter()
        .any(|session| packets_seen(&net.testbed, session) < PACKETS_FOR_FULL_SEARCH)
    {
        net.testbed.send(&(0..100).flat_map(|round| traffic(rounds + round)).collect::<Vec<_>>());
        rounds += 100;
        // All packets but the one that is not granted; the student gets the two fragments as one packet.
        let (of_all, of_less) = (8 * u64::from(rounds), 7 * u64::from(rounds));
        net.testbed.until("all modules have searched them", |testbed| {
            packets_seen(testbed, "all") + lost(testbed, "all") == of_all
                && packets_seen(testbed, &some) == of_all
                && packets_seen(testbed, &less) == of_less
        });
    }

    // The session that may see everything finds all patterns.
    let patterns = patterns();
    let all: Vec<u64> = (0..patterns.len() as u64 + 2).collect();
    net.testbed.until("all patterns are found", |testbed| {
        testbed.count("all", "searcher", "records") == all.len() as u64
    });
    let mut found: Vec<u64> = all.iter().map(|_| next_value(&mut rows[0])).collect();
    found.sort_unstable();
    assert_eq!(found, all);
    // The researcher's module finds only the ports, which are visible; the student's finds nothing.
    let what =
        |number: u64| patterns.get(usize::try_from(number).unwrap()).map_or("flow hash or gap", |it| it.what);
    for ((session, rows), mut expected) in [&some, &less].into_iter().zip(&mut rows[1..]).zip(visible) {
        let mut found: Vec<&str> = expected.iter().map(|_| what(next_value(rows))).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{session}");
        let records = net.testbed.count(session, "searcher", "records");
        if records > expected.len() as u64 {
            panic!("{session} found {}", what(next_value(rows)));
        }
        assert_eq!(
            (records, net.testbed.count(session, "searcher", "records_lost")),
            (expected.len() as u64, 0)
        );
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_module_that_searches_its_sandbox_process_finds_no_hidden_data() {
    if !is_inside("views::a_module_that_searches_its_sandbox_process_finds_no_hidden_data") {
        return;
    }
    let mut net = Net::new();
    let module = searcher(flow_hash());
    let path = write_file(net.folder.path(), "searcher.wasm", &module);
    // The operator's session sees original packets; the researcher's two modules in one session see anonymised addresses.
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let mut visible = vec!["ports"];
    visible.extend(shows_hidden_checksum(&mut net, &researcher).then_some(CHECKSUM));
    visible.sort_unstable();
    let cpu = json!([{"period": "50ms", "slice": "12ms"}]);
    let channel = json!([{"interface": "b", "filter": "not udp port 9"}]);
    net.testbed.request(json!({"create": {"name": "all", "process": "own", "cpu": cpu, "channel": channel}}));
    assert!(net.testbed.load("all", json!({"module": "searcher.wasm"}), &module).get("done").is_some());
    let create = ["session", "create", "some", "--process", "own", "--memory", "24 MiB"];
    let sees = ["--cpu", "period=50ms,slice=12ms", "--channel", "interface=b"];
    net.run(&researcher, &[&create[..], &sees].concat());
    let searcher = path.to_str().unwrap();
    net.run(&researcher, &["load", "some", searcher]);
    net.run(&researcher, &["load", "some", searcher, "--name", "second"]);
    let some = researcher.name_of("some");
    let each = [("all", "searcher"), (some.as_str(), "searcher"), (some.as_str(), "second")];
    let mut rows = each.map(|(session, module)| follow(&net.testbed, session, module));
    assert_eq!(sandbox_processes(net.testbed.process()).len(), 3);

    let mut rounds = 0u16;
    while u64::from(rounds) * 8 < PACKETS_FOR_FULL_SEARCH {
        net.testbed.send(&(0..100).flat_map(|round| traffic(rounds + round)).collect::<Vec<_>>());
        rounds += 100;
        // Each gets all packets but the one that is not granted.
        net.testbed.until("all modules have searched them", |testbed| {
            each.iter()
                .all(|(session, module)| packets_seen(testbed, session, module) == 8 * u64::from(rounds))
        });
    }
    // Each process is still the first one, and had memory to search: some calls succeeded, and most trapped.
    assert_eq!(sandbox_processes(net.testbed.process()).len(), 3);
    for (session, module) in each {
        let [whole, lost] = ["packets", "faults"].map(|what| net.testbed.count(session, module, what));
        assert!(whole > 64 && lost > whole, "{session}: {whole} and {lost}");
    }

    // The session that sees original packets finds all of its patterns.
    let names: Vec<&str> =
        patterns().iter().map(|pattern| pattern.what).chain(["flow hash", "gap"]).collect();
    let what = |number: u64| names[usize::try_from(number).unwrap()];
    let records = |testbed: &Testbed, session: &str, module: &str| testbed.count(session, module, "records");
    let nowhere = ["a packet that was not granted", "gap"];
    let mut all: Vec<&str> = names.iter().copied().filter(|name| !nowhere.contains(name)).collect();
    net.testbed
        .until("all patterns are found", |testbed| records(testbed, "all", "searcher") >= all.len() as u64);
    let mut found: Vec<&str> = all.iter().map(|_| what(next_value(&mut rows[0]))).collect();
    all.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, all);
    // The researcher's modules find only the ports, which are visible.
    for rows in &mut rows[1..] {
        let mut found: Vec<&str> = visible.iter().map(|_| what(next_value(rows))).collect();
        found.sort_unstable();
        assert_eq!(found, visible);
    }

    // They see the same pseudonym as modules in the node's process, and it is not the address.
    let path = write_file(net.folder.path(), "m.wasm", &reader(26));
    let here =
        create_study(&net, &researcher, "here", "period=50ms,slice=2ms", "interface=b,filter=udp", &path);
    net.run(&researcher, &["load", "some", path.to_str().unwrap()]);
    let mut shown = [&here, &some].map(|session| follow(&net.testbed, session, "m"));
    net.testbed.send(&[plain_datagram()]);
    let [here, apart] = shown.each_mut().map(next_value);
    assert_eq!(here, apart);
    assert_ne!(u32::try_from(apart).unwrap().to_le_bytes(), SOURCE);

    // Nothing else was found meanwhile.
    let expected = [&all, &visible, &visible].map(|found| found.len() as u64);
    for (((session, module), rows), expected) in each.into_iter().zip(&mut rows).zip(expected) {
        if records(&net.testbed, session, module) > expected {
            panic!("{session} found {}, too", what(next_value(rows)));
        }
        assert_eq!(net.testbed.count(session, module, "records_lost"), 0);
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn further_readers_of_a_view_cost_no_second_transformation() {
    if !is_inside("views::further_readers_of_a_view_cost_no_second_transformation") {
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
    let mut testbed = Testbed::new(&sessions.concat());
    let module = reader(26);
    let load = |testbed: &Testbed, session: &str, name: &str| {
        let reply = testbed.load(session, json!({"module": "m.wasm", "name": name}), &module);
        assert!(reply.get("done").is_some(), "{reply}");
    };
    let seen = |testbed: &Testbed, of: &[(&str, &str)], packets: u64| {
        of.iter().all(|(session, module)| testbed.count(session, module, "packets") == packets)
    };
    load(&testbed, "one", "m");
    testbed.send(&vec![plain_datagram(); 500]);
    testbed.until("the module has received all packets", |testbed| seen(testbed, &[("one", "m")], 500));
    let first = views(&testbed);
    let shown = "payload=none,addresses=anonymised,macs=zeroed";
    let is_it = |view: &&Value| view["view"] == shown;
    let found = first.iter().find(is_it).unwrap();
    assert_eq!((&found["packets"], &found["readers"]), (&json!(500), &json!(["one/m"])));

    for (session, name) in [("one", "n"), ("two", "m"), ("two", "n")] {
        load(&testbed, session, name);
    }
    let all = [("one", "n"), ("two", "m"), ("two", "n")];
    testbed.send(&vec![plain_datagram(); 700]);
    testbed.until("all modules have received all packets", |testbed| {
        seen(testbed, &all, 700) && seen(testbed, &[("one", "m")], 1200)
    });
    // Four readers of 700 packets, and 700 transformations.
    let then = views(&testbed);
    let now = then.iter().find(is_it).unwrap();
    assert_eq!(now["number"], found["number"]);
    assert_eq!(
        (&now["packets"], &now["readers"]),
        (&json!(1200), &json!(["one/m", "one/n", "two/m", "two/n"]))
    );
    assert_eq!(then.iter().filter(is_it).count(), 1);
    // Another view is transformed separately, and a view without readers is not transformed.
    let zeroed = then.iter().find(|view| view["view"] == shown.replace("anonymised", "zeroed")).unwrap();
    assert_eq!((&zeroed["packets"], &zeroed["readers"]), (&json!(0), &json!([])));
    let top = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["top", "--once"])
        .env("WEIR_SOCKET", testbed.path().join("node.sock"))
        .output()
        .unwrap();
    let text = String::from_utf8(top.stdout).unwrap();
    assert!(text.contains("VIEW ON") && text.contains("addresses=anonymised"), "{text}");
    assert!(testbed.stop().success());
}

#[test]
fn pseudonyms_are_stable_across_restarts_and_equal_only_for_the_same_view() {
    if !is_inside("views::pseudonyms_are_stable_across_restarts_and_equal_only_for_the_same_view") {
        return;
    }
    let mut net = Net::new();
    let path = write_file(net.folder.path(), "m.wasm", &reader(26));
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let student = net.delegated(&researcher, "student", Grant::default());
    let other = net.granted("other", searching("addresses=anonymised"));
    let cpu = "period=50ms,slice=5ms";
    let source = |net: &mut Net, who: &Person| {
        let name = create_study(net, who, "s", cpu, "interface=b,filter=udp", &path);
        let mut rows = follow(&net.testbed, &name, "m");
        net.testbed.send(&[plain_datagram()]);
        let seen = next_value(&mut rows);
        net.run(who, &["session", "close", "s"]);
        u32::try_from(seen).unwrap()
    };
    let first = source(&mut net, &researcher);
    assert_ne!(first.to_le_bytes(), SOURCE);
    assert_eq!(source(&mut net, &student), first);
    assert_ne!(source(&mut net, &other), first);
    assert!(net.testbed.stop().success());
    net.testbed.start();
    assert_eq!(source(&mut net, &researcher), first);
    assert!(net.testbed.stop().success());

    // Neither start used another method. The state of a version before ipcrypt-pfx has no record of its method, which
    // causes one warning.
    let told = |net: &Net| net.testbed.log().matches("shows other pseudonyms than before").count();
    assert_eq!(told(&net), 0, "{}", net.testbed.log());
    std::fs::remove_file(net.testbed.path().join("state/views.method")).unwrap();
    for _ in 0..2 {
        net.testbed.start();
        assert!(net.testbed.stop().success());
    }
    assert_eq!(told(&net), 1, "{}", net.testbed.log());

    // A secret file that other users can read, or that is damaged, is an error, and is not replaced.
    let secret = net.testbed.path().join("state/views.secret");
    let text = std::fs::read_to_string(&secret).unwrap();
    let refused = |net: &Net| {
        let mut node = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output =
            node.args(["node", "-c"]).arg(net.testbed.config()).stdin(Stdio::null()).output().unwrap();
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
fn a_holders_filter_sees_only_its_view_and_reveals_nothing_hidden() {
    if !is_inside("views::a_holders_filter_sees_only_its_view_and_reveals_nothing_hidden") {
        return;
    }
    let mut net = Net::new();
    let path = write_file(net.folder.path(), "m.wasm", &reader(26));
    let researcher = net.granted("researcher", searching("addresses=anonymised"));
    let cpu = "period=50ms,slice=2ms";
    let payload = "udp[8:4] = 0x5ec2e75a";
    // A holder can filter by visible fields and not by hidden ones, also with reassembly.
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
            (create_study(&net, &researcher, name, cpu, &channel, &path), *is_there)
        })
        .collect();
    let mut rows = follow(&net.testbed, &named[0].0, "m");
    net.testbed.send(&vec![plain_datagram(); 40]);
    for (name, is_there) in &named {
        net.testbed.until(&format!("{name} has seen all or none"), |testbed| {
            let unwanted =
                testbed.part(name, "channels", "main")["findings"]["unmatched"].as_u64().unwrap_or(0);
            let seen = testbed.count(name, "m", "packets");
            (seen, unwanted) == if *is_there { (40, 0) } else { (0, 40) }
        });
    }
    // A filter can use the visible address.
    let [a, b, c, d] = u32::try_from(next_value(&mut rows)).unwrap().to_le_bytes();
    net.run(&researcher, &["session", "close", "port"]);
    let channel = format!("interface=b,filter=src host {a}.{b}.{c}.{d}");
    let name = create_study(&net, &researcher, "pseudonym", cpu, &channel, &path);
    net.testbed.send(&vec![plain_datagram(); 10]);
    net.testbed.until("the researcher's module has received them", |testbed| {
        testbed.count(&name, "m", "packets") == 10
    });
    // A delegate is bound by the same view, and by the filter of its grant; the operator's filters see original packets.
    let filters = ["host 198.18.7.77".parse().unwrap()].into();
    let student = net.delegated(&researcher, "student", Grant { filters, ..Grant::default() });
    let students = create_study(&net, &student, "s", cpu, "interface=b", &path);
    net.testbed
        .request(json!({"create": {"name": "own", "cpu": [{"period": "50ms", "slice": "2ms"}], "channel": [
        {"interface": "b", "filter": "host 198.18.7.77", "view": "addresses=anonymised"}]}}));
    let module = std::fs::read(&path).unwrap();
    assert!(net.testbed.load("own", json!({"module": "m.wasm"}), &module).get("done").is_some());
    net.testbed.send(&vec![plain_datagram(); 10]);
    net.testbed.until("the operator's module has received them", |testbed| {
        testbed.count("own", "m", "packets") == 10
    });
    net.testbed.until("the student's session has not been closed", |testbed| {
        testbed.part(&students, "channels", "main")["findings"]["unmatched"] == 10
    });
    assert_eq!(net.testbed.count(&students, "m", "packets"), 0);
    // A filter does not reveal the number of hidden packets: neither of original ones nor of reassembled ones.
    let whole = create_study(&net, &student, "w", cpu, "interface=b,reassemble=true", &path);
    net.testbed.send(&vec![plain_datagram(); 10]);
    net.testbed.until("no session is the student's", |testbed| {
        testbed.part(&whole, "channels", "main")["findings"]["unmatched"] == 10
    });
    for session in ["s", "w"] {
        let shown = net.run(&student, &["session", "show", session, "--json"]);
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let channel = &shown["channels"][0];
        let counts = [&channel["packets"], &channel["bytes"], &channel["drops"], &channel["findings"]];
        assert_eq!(counts, [&json!(0), &json!(0), &json!({}), &json!({})], "{session}: {shown}");
    }
    net.run(&student, &["session", "close", "w"]);
    // Checksums are verified on the original packets; in the view they are always right.
    let verified = create_study(&net, &researcher, "verified", cpu, "interface=b,checksum=verify", &path);
    net.testbed.send(&[plain_datagram(), traffic(0)[1].clone(), plain_datagram()]);
    net.testbed.until("the wrong packets are dropped", |testbed| {
        let findings = testbed.part(&verified, "channels", "main")["findings"].clone();
        (testbed.count(&verified, "m", "packets"), findings) == (1, json!({"bad-udp": 2}))
    });
    assert!(net.testbed.stop().success());
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
    let refused =
        |who: &Person, arguments: &[String], why: &str| net.run_refused(who, &words(arguments), why);
    for more in ["all", "payload=17", "ports=zeroed,ttl=visible"] {
        refused(&researcher, &create(more), "view: asked for");
    }
    refused(&student, &create("payload=9"), "given is payload=8,ttl=zeroed");
    refused(&researcher, &create("payload=much"), "`payload` cannot be `much`");
    // The interface's whole memory, and an output for hidden data.
    let whole = ["session", "create", "s", "--memory", "1 MiB", "--channel", "interface=b,visibility=all"];
    net.run_refused(&researcher, &whole, "would see all of the interface's packets (`visibility = \"all\"`)");
    let done = |who: &Person, arguments: &[String]| net.run(who, &words(arguments));
    done(&researcher, &create("ports=zeroed"));
    done(&student, &create("payload=4"));
    let shown = |who: &Person| net.run(who, &["session", "show", "s"]);
    let said = shown(&researcher);
    assert!(said.contains("main: shown by the view payload=16,ports=zeroed,ttl=zeroed"), "{said}");
    let said = shown(&student);
    assert!(said.contains("main: shown by the view payload=4,ttl=zeroed"), "{said}");
    // A change cannot show more either: not the owner's, and not that of a delegator who may see more.
    let change = |name: &str, view: &str| {
        ["session", "change", name, "--channel", &format!("interface=b,view=\"{view}\"")].map(str::to_owned)
    };
    refused(&researcher, &change("s", "payload=17"), "view: asked for");
    let students = student.name_of("s");
    refused(&researcher, &change(&students, "payload=6"), "the owner has to share the session");
    let share = format!("manage={}", researcher.identity.public());
    net.run(&student, &["session", "change", "s", "--share", &share]);
    refused(&researcher, &change(&students, "payload=16"), "given is payload=8,ttl=zeroed");
    done(&researcher, &change(&students, "payload=6"));
    let said = shown(&student);
    assert!(said.contains("main: shown by the view payload=6,ttl=zeroed"), "{said}");
    assert!(net.testbed.stop().success());
}

#[test]
fn packets_with_hidden_data_are_not_forwarded_and_the_error_names_the_remedy() {
    if !is_inside("views::packets_with_hidden_data_are_not_forwarded_and_the_error_names_the_remedy") {
        return;
    }
    let mut testbed = Testbed::new("[[link]]\ninterface = \"a\"\nrate = \"10 Mbit/s\"\n");
    let session = |view: &str, sees: &str| {
        json!({"create": {"name": "s", "output": [{"name": "up", "link": "a"}],
            "channel": [{"interface": "b", "view": view, "visibility": sees, "forward": "up"}]}})
    };
    let why = testbed.request_refused(session("payload=none", "selected"));
    assert!(
        why.contains("`forward` is up; it must be left out where its packets are shown by a view"),
        "{why}"
    );
    let why = testbed.request_refused(session("payload=none", "all"));
    assert!(why.contains("`visibility` is \"all\"; it must be \"selected\""), "{why}");
    // Without forwarding, or with packets that a module creates, the view is allowed.
    let view = json!([{"interface": "b", "view": "payload=none"}]);
    testbed
        .request(json!({"create": {"name": "s", "output": [{"name": "up", "link": "a"}], "channel": view}}));
    let datagram = udp(53, b"x");
    testbed.send(&[datagram]);
    assert!(testbed.stop().success());
}
