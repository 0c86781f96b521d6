//! Optional fields, texts of addresses and Community IDs, as modules in both languages emit them in the sandbox.

use crate::in_the_sandbox::run_on;
use crate::toolchain::{has_c, has_rust};
use std::net::IpAddr;
use std::path::PathBuf;
use weir_abi::finding::Severity;
use weir_admission::{FieldValue, Manifest};
use weir_author::ModuleLanguage;

/// Protocol, source, destination, ports, and Community IDs with the seeds 0 and 1.
type Flow = (u8, &'static str, &'static str, [u16; 2], &'static str, &'static str);

/// Flows with their Community IDs, with the seeds 0 and 1: the baseline of
/// <https://github.com/corelight/community-id-spec>. For ICMP, the ports are the type, and the type of the answer or the
/// code.
const FLOWS: [Flow; 23] = [
    (
        58,
        "fe80::200:86ff:fe05:80da",
        "fe80::260:97ff:fe07:69ea",
        [135, 136],
        "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=",
        "1:kHa1FhMYIT6Ym2Vm2AOtoOARDzY=",
    ),
    (
        58,
        "fe80::260:97ff:fe07:69ea",
        "fe80::200:86ff:fe05:80da",
        [136, 135],
        "1:dGHyGvjMfljg6Bppwm3bg0LO8TY=",
        "1:kHa1FhMYIT6Ym2Vm2AOtoOARDzY=",
    ),
    (
        58,
        "fe80::260:97ff:fe07:69ea",
        "fe80::200:86ff:fe05:80da",
        [135, 136],
        "1:zavyT/cezQr1fmImYCwYnMXbgck=",
        "1:2hSqmsDZ2kdcY9kbiUzOEBic0iM=",
    ),
    (
        58,
        "fe80::200:86ff:fe05:80da",
        "fe80::260:97ff:fe07:69ea",
        [136, 135],
        "1:zavyT/cezQr1fmImYCwYnMXbgck=",
        "1:2hSqmsDZ2kdcY9kbiUzOEBic0iM=",
    ),
    (
        58,
        "3ffe:501:1800:2345::2",
        "3ffe:507:0:1:200:86ff:fe05:80da",
        [3, 0],
        "1:2ObVBgIn28oZvibYZhZMBgh7WdQ=",
        "1:lVEtCZpYu84Xqaa++3lXFyuu2n4=",
    ),
    (
        58,
        "3ffe:501:410:0:2c0:dfff:fe47:33e",
        "3ffe:507:0:1:200:86ff:fe05:80da",
        [1, 4],
        "1:hLZd0XGWojozrvxqE0dWB1iM6R0=",
        "1:W8MHwXpWzpoSTD+cGcaJr4u0ys8=",
    ),
    (
        58,
        "3ffe:507:0:1:200:86ff:fe05:80da",
        "3ffe:501:0:1001::2",
        [128, 129],
        "1:+TW+HtLHvV1xnGhV1lv7XoJrqQg=",
        "1:GfZxjAkDk2MkegpBYHV6tadtFXQ=",
    ),
    (
        58,
        "3ffe:501:0:1001::2",
        "3ffe:507:0:1:200:86ff:fe05:80da",
        [129, 128],
        "1:+TW+HtLHvV1xnGhV1lv7XoJrqQg=",
        "1:GfZxjAkDk2MkegpBYHV6tadtFXQ=",
    ),
    (
        58,
        "fe80::200:86ff:fe05:80da",
        "ff02::2",
        [133, 134],
        "1:hO+sN4H+MG5MY/8hIrXPqc4ZQz0=",
        "1:L7Ka0ZMYu+J3bL4ulW2PrqyXNo8=",
    ),
    (
        58,
        "fe80::260:97ff:fe07:69ea",
        "ff02::1",
        [134, 133],
        "1:pkvHqCL88/tg1k4cPigmZXUtL00=",
        "1:K/ee5UCqAMAQXDorP5nSa2CGLjc=",
    ),
    (
        1,
        "192.168.0.89",
        "192.168.0.1",
        [8, 0],
        "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=",
        "1:03g6IloqVBdcZlPyX8r0hgoE7kA=",
    ),
    (
        1,
        "192.168.0.1",
        "192.168.0.89",
        [0, 8],
        "1:X0snYXpgwiv9TZtqg64sgzUn6Dk=",
        "1:03g6IloqVBdcZlPyX8r0hgoE7kA=",
    ),
    (1, "10.0.0.1", "10.0.0.2", [11, 0], "1:YHxtAirCG//0OzkcVAukqKQN9xM=", "1:XjUibYHaafLQ3pxQeiMI8g25q20="),
    (
        6,
        "2001:470:e5bf:dead:4957:2174:e82c:4887",
        "2607:f8b0:400c:c03::1a",
        [63943, 25],
        "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=",
        "1:eJYTW6AOzFLlSUoESovMjnu7rMw=",
    ),
    (
        6,
        "2607:f8b0:400c:c03::1a",
        "2001:470:e5bf:dead:4957:2174:e82c:4887",
        [25, 63943],
        "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4=",
        "1:eJYTW6AOzFLlSUoESovMjnu7rMw=",
    ),
    (
        132,
        "192.168.170.8",
        "192.168.170.56",
        [7, 7],
        "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=",
        "1:5w3ZRjeKBzqT3zsaEECDGjUbYeg=",
    ),
    (
        132,
        "192.168.170.56",
        "192.168.170.8",
        [7, 7],
        "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs=",
        "1:5w3ZRjeKBzqT3zsaEECDGjUbYeg=",
    ),
    (
        6,
        "128.232.110.120",
        "66.35.250.204",
        [34855, 80],
        "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        "1:3V71V58M3Ksw/yuFALMcW0LAHvc=",
    ),
    (
        6,
        "66.35.250.204",
        "128.232.110.120",
        [80, 34855],
        "1:LQU9qZlK+B5F3KDmev6m5PMibrg=",
        "1:3V71V58M3Ksw/yuFALMcW0LAHvc=",
    ),
    (
        17,
        "192.168.1.52",
        "8.8.8.8",
        [54585, 53],
        "1:d/FP5EW3wiY1vCndhwleRRKHowQ=",
        "1:Q9We8WO3piVF8yEQBNJF4uiSVrI=",
    ),
    (
        17,
        "8.8.8.8",
        "192.168.1.52",
        [53, 54585],
        "1:d/FP5EW3wiY1vCndhwleRRKHowQ=",
        "1:Q9We8WO3piVF8yEQBNJF4uiSVrI=",
    ),
    (
        46,
        "10.1.12.1",
        "10.1.12.2",
        [0, 0],
        "1:KHlLkgoJW7ifUTyTSgyVfkFHzKw=",
        "1:rYir8gphR31noO9iDRQmF/BteEI=",
    ),
    (
        46,
        "10.1.12.2",
        "10.1.12.1",
        [0, 0],
        "1:KHlLkgoJW7ifUTyTSgyVfkFHzKw=",
        "1:rYir8gphR31noO9iDRQmF/BteEI=",
    ),
];

/// Addresses whose texts have all the cases of RFC 5952.
const ADDRESSES: [&str; 9] = [
    "::",
    "::1",
    "1::",
    "1:0:0:2::3",
    "1::2:0:0:3:0",
    "2001:db8:0:1:1:1:1:1",
    "1:2:3:4:5:6:7:8",
    "0:0:1::",
    "ffff::abcd:0:1",
];

/// Returns an Ethernet frame of one packet. Frames with odd numbers have a VLAN tag with the number as its identifier.
fn frame(number: u16, protocol: u8, from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    let mut header = vec![0; 20];
    let [first, second] = ports.map(u16::to_be_bytes);
    match protocol {
        1 | 58 => {
            header.truncate(8);
            // An answer's type comes from the message's type; only the code of a message without an answer is given.
            let is_answered = !matches!((protocol, ports[0]), (1, 11) | (58, 1 | 3));
            header[..2].copy_from_slice(&[first[1], if is_answered { 0 } else { second[1] }]);
        }
        _ => {
            header[..2].copy_from_slice(&first);
            header[2..4].copy_from_slice(&second);
        }
    }
    match protocol {
        6 => header[12] = 5 << 4,
        17 => {
            header.truncate(8);
            header[5] = 8;
        }
        _ => {}
    }
    let length = u16::try_from(header.len()).unwrap();
    let mut frame = vec![2; 12];
    if number % 2 == 1 {
        frame.extend([0x81, 0x00]);
        frame.extend((0x3000 | number).to_be_bytes());
    }
    match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + length).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => panic!("{from} and {to} are of different families"),
    }
    frame.extend(header);
    frame
}

/// Writes a capture of these frames.
pub(crate) fn capture(folder: &tempfile::TempDir, frames: &[Vec<u8>]) -> PathBuf {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        for word in [1_700_000_000, 0, len, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    let path = folder.path().join("flows.pcap");
    std::fs::write(&path, bytes).unwrap();
    path
}

const TOML: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
    [[parameter]]\nname = 'seed'\ntype = 'u64'\ndefault = 0\n\
    [[stream]]\nname = 'ids'\n\
    field = [{ name = 'id', type = 'string', optional = true }, { name = 'address', type = 'string' }, \
    { name = 'vlan', type = 'u16', optional = true }, { name = 'number', type = 'u32' }]\n\
    [[stream]]\nname = 'findings'\n";

const C: &str = r#"
#include "weir.h"
#include "module.h"

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint8_t id[WEIR_COMMUNITY_ID_BYTES];
    const uint32_t len = weir_community_id(p, (uint16_t)param_seed(), id);
    struct weir_text text = WEIR_TEXT;
    if (weir_is_ip(p))
        weir_add_ip(&text, weir_src(p));
    struct ids_row row = {
        .id = weir_string(id, len),
        .has_id = len != 0,
        .address = weir_text_string(&text),
        .vlan = weir_vlan(p),
        .has_vlan = (p->flags & WEIR_VLAN) != 0,
        .number = p->number,
    };
    if (len == 0)
        row.id = (struct weir_str){ 0xFFFFFFF0, 0xFFFFFFFF }; /* null, so never read */
    emit_ids(&row);
    const struct findings_row finding = { p->ts_ns, WEIR_HIGH, row.address, row.address, weir_string("ids", 3) };
    emit_findings(&finding);
    return WEIR_PASS;
}
"#;

const RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use core::fmt::Write;
use module::{Findings, Ids, param};
use weir_guest::{community_id, emit, flag, severity, Line, Packet, Str, Verdict};

struct State;

impl State {
    fn packet(&mut self, p: &Packet) -> Verdict {
        let id = community_id(p, param::seed() as u16);
        let mut text = Line::new();
        if let Some(source) = p.src() {
            _ = write!(text, "{source}");
        }
        let address = Str::new(text.text());
        emit(&Ids {
            id: id.as_ref().map(Str::new),
            address,
            vlan: p.has(flag::VLAN).then_some(p.vlan_tci & 0xFFF),
            number: p.number,
        });
        emit(&Findings { time: p.ts_ns, severity: severity::HIGH, text: address, filter: address, evidence: Str::new("ids") });
        Verdict::Pass
    }
}

weir_guest::module! {
    state: State = State;
    packet: State::packet;
}
"#;

/// A row of the modules: Community ID, text of the source address, VLAN.
type IdRow = (Option<String>, String, Option<u64>);

/// Runs the module in a language on the frames, and reads its rows and findings.
fn rows(lang: ModuleLanguage, frames: &[Vec<u8>], seed: &str) -> (Vec<IdRow>, Vec<(u64, String)>) {
    let folder = tempfile::tempdir().unwrap();
    let path = capture(&folder, frames);
    let source = if lang == ModuleLanguage::C { ("m.c", C) } else { ("src/lib.rs", RUST) };
    let setting = ("seed".to_owned(), vec![seed.to_owned()]);
    let ran = run_on(&path, lang, &[("weir.toml", TOML), source], &[setting]);
    assert_eq!(ran.counters.faults, 0, "{lang:?}");
    let manifest = Manifest::parse(TOML.as_bytes()).unwrap();
    let mut ids = Vec::new();
    let mut findings = Vec::new();
    for (stream, row, tail) in &ran.records {
        let fields = &manifest.streams[usize::from(*stream)].fields;
        let value = |index: usize| fields[index].read(row, tail).unwrap();
        let text = |index: usize| match value(index) {
            FieldValue::Bytes(bytes) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
            FieldValue::Null => None,
            other => panic!("{other:?}"),
        };
        let number = |index: usize| match value(index) {
            FieldValue::Unsigned(number) => Some(number),
            FieldValue::Null => None,
            other => panic!("{other:?}"),
        };
        if *stream == 0 {
            ids.push((text(0), text(1).unwrap(), number(2)));
        } else {
            findings.push((number(1).unwrap(), text(4).unwrap()));
        }
    }
    (ids, findings)
}

fn languages() -> impl Iterator<Item = ModuleLanguage> {
    [(ModuleLanguage::C, has_c()), (ModuleLanguage::Rust, has_rust())]
        .into_iter()
        .filter_map(|(lang, is_present)| is_present.then_some(lang))
}

#[test]
fn community_ids_are_those_of_the_published_baseline() {
    let numbers = 0u16..;
    let frames: Vec<_> = numbers
        .zip(FLOWS)
        .map(|(n, (protocol, from, to, ports, ..))| frame(n, protocol, from, to, ports))
        .collect();
    for lang in languages() {
        for seed in ["0", "1"] {
            let (ids, _) = rows(lang, &frames, seed);
            assert_eq!(ids.len(), FLOWS.len());
            for ((id, address, vlan), ((_, from, _, _, first, second), n)) in
                ids.iter().zip(FLOWS.iter().zip(0u64..))
            {
                let wanted = if seed == "0" { first } else { second };
                assert_eq!(id.as_deref(), Some(*wanted), "{lang:?}: flow {n}");
                assert_eq!(address, from, "{lang:?}");
                assert_eq!(*vlan, (n % 2 == 1).then_some(n), "{lang:?}");
            }
        }
    }
}

#[test]
fn addresses_are_written_as_the_standard_library_writes_them() {
    let frames: Vec<_> =
        ADDRESSES.iter().map(|address| frame(0, 17, address, "2001:db8::1", [1, 2])).collect();
    for lang in languages() {
        let (ids, findings) = rows(lang, &frames, "0");
        let texts: Vec<_> = ids.iter().map(|(_, address, _)| address.as_str()).collect();
        let wanted: Vec<_> = ADDRESSES.iter().map(|a| a.parse::<IpAddr>().unwrap().to_string()).collect();
        assert_eq!(texts, wanted, "{lang:?}");
        assert!(findings.iter().all(|(severity, stream)| {
            Severity::from_number(*severity) == Severity::High && stream == "ids"
        }));
        assert_eq!(findings.len(), ADDRESSES.len());
    }
}

const MAC_TOML: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
    [[stream]]\nname = 'frames'\n\
    field = [{ name = 'source', type = 'bytes' }, { name = 'text', type = 'string' }, { name = 'seen', type = 'u32' }]\n";

const MAC_C: &str = r#"
#include "weir.h"
#include "module.h"
#include "weir_containers.h"

WEIR_MAP(sources, struct weir_mac, uint32_t, 64)

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    if (!weir_is_ethernet(p))
        return WEIR_PASS;
    const struct weir_mac source = weir_mac_src(p);
    struct weir_text text = WEIR_TEXT;
    weir_add_mac(&text, source);
    WEIR_ADD(&text, " to ");
    weir_add_mac(&text, weir_mac_dst(p));
    WEIR_LOGF(WEIR_INFO, "from ", source);
    const struct frames_row row = {
        .source = weir_string(source.bytes, 6),
        .text = weir_text_string(&text),
        .seen = ++*sources_add(source),
    };
    emit_frames(&row);
    return WEIR_PASS;
}
"#;

const MAC_RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::Frames;
use weir_guest::{containers::Map, emit, log, Level, Line, LogValue, Mac, Packet, Str, Verdict};

struct State {
    sources: Map<Mac, u32, 16>,
}

impl State {
    fn packet(&mut self, p: &Packet) -> Verdict {
        let (Some(source), Some(destination)) = (p.mac_src(), p.mac_dst()) else { return Verdict::Pass };
        let mut text = Line::new();
        source.write(&mut text, false);
        text.push_str(" to ");
        destination.write(&mut text, false);
        log!(Level::Info, "from {}", source);
        let seen = self.sources.add(source).value;
        *seen += 1;
        emit(&Frames { source: Str::new(&source.0), text: Str::new(text.text()), seen: *seen });
        Verdict::Pass
    }
}

weir_guest::module! {
    state: State = State { sources: Map::new(0) };
    packet: State::packet;
}
"#;

#[test]
fn ethernet_addresses_are_read_written_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let header = |source: [u8; 6]| [&[2, 0, 0, 0, 0, 1][..], &source, &[0x88, 0xb5]].concat();
    let (a, b) = ([0x9a, 0xbc, 0xde, 0xf0, 0x12, 0x34], [2, 0, 0x5e, 0x10, 0, 0xff]);
    // A frame that ends with the header, and one that ends in it.
    let frames = [header(a), header(b), header(a)[..13].to_vec(), header(a)];
    let path = capture(&folder, &frames);
    let manifest = Manifest::parse(MAC_TOML.as_bytes()).unwrap();
    for lang in languages() {
        let source = if lang == ModuleLanguage::C { ("m.c", MAC_C) } else { ("src/lib.rs", MAC_RUST) };
        let ran = run_on(&path, lang, &[("weir.toml", MAC_TOML), source], &[]);
        assert_eq!(ran.counters.faults, 0, "{lang:?}");
        let fields = &manifest.streams[0].fields;
        let rows: Vec<_> = ran
            .records
            .iter()
            .map(|(_, row, tail)| {
                let values: Vec<_> = fields.iter().map(|field| field.read(row, tail).unwrap()).collect();
                match values[..] {
                    [FieldValue::Bytes(source), FieldValue::Bytes(text), FieldValue::Unsigned(seen)] => {
                        (source.to_vec(), String::from_utf8(text.to_vec()).unwrap(), seen)
                    }
                    ref other => panic!("{other:?}"),
                }
            })
            .collect();
        let [from_a, from_b] = ["9a:bc:de:f0:12:34", "02:00:5e:10:00:ff"]
            .map(|source| source.to_owned() + " to 02:00:00:00:00:01");
        let wanted = [(a.to_vec(), from_a.clone(), 1), (b.to_vec(), from_b, 1), (a.to_vec(), from_a, 2)];
        assert_eq!(rows, wanted, "{lang:?}");
        let logged: Vec<_> = ran.log.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(logged[..2], ["from 9a:bc:de:f0:12:34", "from 02:00:5e:10:00:ff"], "{lang:?}");
    }
}

#[test]
fn packets_without_ports_that_should_have_some_have_no_community_id() {
    // ARP, a TCP packet whose header is cut off, and a later fragment.
    let mut arp = vec![2; 12];
    arp.extend([0x08, 0x06]);
    arp.extend([0; 28]);
    let tcp = frame(0, 6, "192.0.2.1", "192.0.2.2", [1, 2]);
    let cut = tcp[..14 + 20].to_vec();
    let mut fragment = tcp;
    fragment[14 + 7] = 1;
    for lang in languages() {
        let (ids, _) = rows(lang, &[arp.clone(), cut.clone(), fragment.clone()], "0");
        assert!(ids.iter().all(|(id, ..)| id.is_none()), "{lang:?}: {ids:?}");
        assert_eq!(ids.len(), 3, "{lang:?}");
    }
}

#[test]
fn severities_of_the_sdks_equal_the_contracts() {
    let c = include_str!("../../../guest/sdk-c/weir.h");
    let rust = include_str!("../../../guest/sdk-rust/src/finding.rs");
    for severity in Severity::ALL {
        let (name, number) = (severity.name().to_uppercase(), *severity as u8);
        assert!(c.contains(&format!("WEIR_{name} = {number},")), "weir.h: {name}");
        assert!(rust.contains(&format!("pub const {name}: u8 = {number};")), "finding.rs: {name}");
    }
}
