//! Built modules run on the sample capture in the sandbox.

use crate::toolchain::{has_c, has_rust, options, rust_options};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_abi::DESCRIPTORS_BASE;
use weir_author::{ModuleLanguage, build, new};
use weir_netio::{Capture, CaptureInput, CaptureNext, Totals};
use weir_sandbox::{Area, BatchInput, Engine, Instance, InstanceCounters, LogLine, Patch};
use weir_units::Timestamp;
use {
    weir_admission::{Admitted, ParameterSetting},
    weir_session::Records,
};

const HEAD: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n";

/// The results of a module on the sample capture.
pub(crate) struct ModuleRun {
    /// Stream, row, and the row's variable-length data.
    pub(crate) records: Vec<(u16, Vec<u8>, Vec<u8>)>,
    pub(crate) log: Vec<LogLine>,
    patches: Vec<Patch>,
    dropped: u32,
    pub(crate) counters: InstanceCounters,
    totals: Totals,
}

/// Builds the module of these files and runs it, without ticks.
fn run(lang: ModuleLanguage, files: &[(&str, &str)], settings: &[ParameterSetting]) -> ModuleRun {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap");
    run_on(&sample, lang, files, settings)
}

/// Builds the module of these files and runs it on a capture, without ticks.
pub(crate) fn run_on(
    capture: &Path,
    lang: ModuleLanguage,
    files: &[(&str, &str)],
    settings: &[ParameterSetting],
) -> ModuleRun {
    // The tests share cargo's target folder, where packages of the same name would overwrite each other.
    static BUILT: AtomicU32 = AtomicU32::new(0);
    let home = tempfile::tempdir().unwrap();
    let name = match lang {
        ModuleLanguage::C => "m".to_owned(),
        ModuleLanguage::Rust => format!("m{}", BUILT.fetch_add(1, Ordering::Relaxed)),
    };
    let dir = home.path().join(name);
    new(&dir, lang).unwrap();
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let built = build(&dir, &if lang == ModuleLanguage::C { options() } else { rust_options() }).unwrap();
    assert_eq!(built.messages, "");
    run_built(capture, std::fs::read(built.path).unwrap(), settings)
}

/// Runs a module on a capture, with its ticks left out.
pub(crate) fn run_built(capture: &Path, module: Vec<u8>, settings: &[ParameterSetting]) -> ModuleRun {
    let admitted = Admitted::admit(module, settings).unwrap();
    let engine = Engine::new(weir_sandbox::EngineOptions::default(), None).unwrap();
    let mut instance = Instance::start(&engine, &engine.load(admitted).unwrap()).unwrap();
    let mut capture = Capture::open(CaptureInput::File(capture.to_owned())).unwrap();
    let ring = capture.descriptors();
    let ring_area =
        Area { fd: ring.fd(), offset: 0, len: usize::try_from(ring.len().0).unwrap(), is_fixed: false };
    instance.map_descriptors(ring_area).unwrap();
    let (mut dropped, mut window_id, mut last) = (0, None, Timestamp(0));
    while let CaptureNext::Block(block) = capture.next_block().unwrap() {
        let window = block.window();
        if window_id.replace(window.id()) != Some(window.id()) {
            let len = usize::try_from(window.len().0).unwrap();
            instance
                .map_packets(Area {
                    fd: window.parts().next().unwrap().fd,
                    offset: window.file_offset(),
                    len,
                    is_fixed: false,
                })
                .unwrap();
        }
        for batch in block.batches() {
            assert!(batch.guest_address >= DESCRIPTORS_BASE);
            let first = u32::try_from(batch.first).unwrap();
            let drops =
                instance.run(BatchInput { descriptors: batch.guest_address, mask: batch.mask, first });
            dropped += drops.count_ones();
            last = batch.latest;
        }
    }
    instance.stop(last);
    let records = instance.take_records(Records::default());
    ModuleRun {
        records: records.iter().map(|r| (r.stream, r.row.to_vec(), r.tail.to_vec())).collect(),
        log: instance.take_log(),
        patches: instance.take_patches(),
        dropped,
        counters: instance.counters(),
        totals: capture.totals(),
    }
}

fn u64_at(row: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(row[offset..offset + 8].try_into().unwrap())
}

#[test]
fn a_new_module_in_either_language_counts_the_packets_of_the_capture() {
    let ran: Vec<ModuleRun> = [(ModuleLanguage::C, has_c()), (ModuleLanguage::Rust, has_rust())]
        .into_iter()
        .filter(|(_, present)| *present)
        .map(|(lang, _)| run(lang, &[], &[]))
        .collect();
    for ran in &ran {
        assert_eq!(ran.counters.faults, 0);
        let packets_of = |protocol: u8| -> u64 {
            ran.records
                .iter()
                .filter(|(_, row, _)| row[8] == protocol)
                .map(|(_, row, _)| u64_at(row, 16))
                .sum()
        };
        // No TCP in the sample is fragmented; of fragmented UDP, netio counts the first part only.
        assert_eq!(packets_of(6), ran.totals.tcp);
        assert!(packets_of(17) >= ran.totals.udp && ran.totals.udp > 0);
    }
    if let [c, rust] = ran.as_slice() {
        // time u64, protocol u8 and padding, packets u64, bytes u64
        let fields = |ran: &ModuleRun| -> Vec<_> {
            ran.records
                .iter()
                .map(|(_, row, _)| (u64_at(row, 0), row[8], u64_at(row, 16), u64_at(row, 24)))
                .collect()
        };
        assert_eq!(fields(c), fields(rust));
    }
}

#[test]
fn all_c_files_share_one_heap() {
    if !has_c() {
        return;
    }
    let first = "#include \"weir.h\"\nuint8_t *other(void);\nstatic uint8_t *mine, *theirs;\n\
        WEIR_EXPORT(weir_start) int32_t weir_start(void) { mine = weir_alloc(100); theirs = other(); return 0; }\n\
        WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p) { (void)p; return theirs - mine < 100; }\n";
    let second =
        "#include \"weir.h\"\nuint8_t *other(void);\nuint8_t *other(void) { return weir_alloc(100); }\n";
    let ran = run(ModuleLanguage::C, &[("weir.toml", HEAD), ("m.c", first), ("second.c", second)], &[]);
    assert_eq!((ran.dropped, ran.counters.faults), (0, 0), "a packet is dropped where the two overlap");
}

const PROBE_TOML: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
    [[parameter]]\nname = 'words'\ntype = 'string-list'\ndefault = ['HTTP/1', 'example']\n\
    [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'four'\n\
    [[parameter]]\nname = 'ports'\ntype = 'u64-list'\ndefault = [80, 53]\n\
    [[parameter]]\nname = 'net'\ntype = 'prefix'\ndefault = '10.0.0.0/8'\n\
    [[parameter]]\nname = 'wait'\ntype = 'duration'\ndefault = '1.5s'\n\
    [[parameter]]\nname = 'ratio'\ntype = 'f64'\ndefault = 0.25\n\
    [[parameter]]\nname = 'negative'\ntype = 'i64'\ndefault = -3\n\
    [[stream]]\nname = 'hits'\nfield = [{ name = 'number', type = 'u32' }, { name = 'text', type = 'string' }]\n\
    [[stream]]\nname = 'end'\nfield = [{ name = 'searched', type = 'u64' }, { name = 'found', type = 'u64' }, { name = 'disagree', type = 'u64' }]\n";

const PROBE: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::{param, End, Hits};
use weir_guest::*;

struct Probe {
    patterns: Patterns,
    own: Patterns,
    seen: &'static mut [u64],
    end: End,
}

impl Probe {
    const fn new() -> Self {
        Self { patterns: Patterns::NONE, own: Patterns::NONE, seen: &mut [], end: End { searched: 0, found: 0, disagree: 0 } }
    }

    fn start(&mut self) -> bool {
        let (mut words, mut text, mut small, mut ports) = ([0; 64], [0; 64], [0; 3], [0; 4]);
        assert!(param::text(&mut text) == Ok(b"four") && param::text(&mut small) == Err(TooLong { len: 4 }));
        assert!(param::ports(&mut ports) == Ok(&[80, 53]) && param::wait() == 1_500_000_000);
        assert!(param::ratio() == 0.25 && param::negative() == -3);
        assert!(param::net().contains(Ip::v4([10, 9, 8, 7])) && !param::net().contains(Ip::v4([11, 9, 8, 7])));
        let Ok(words) = param::words(&mut words) else { return false };
        assert!(words.iter().eq([b"HTTP/1".as_slice(), b"example"]));
        self.patterns = Patterns::compile(words, Case::Exact).unwrap();
        self.own = Patterns::of(&[b"HTTP/1", b"example"], Case::Exact).unwrap();
        assert!(matches!(Patterns::of(&[], Case::Exact), Err(Error::Range)));
        self.seen = alloc(4, 0u64).unwrap();
        log!(Level::Info, "{} places", self.seen.len())
    }

    fn packet(&mut self, packet: &Packet) -> Verdict {
        if packet.number == 7 {
            let beyond = packet.bytes()[packet.cap_len as usize];
            self.seen[0] = u64::from(beyond);
        }
        let payload = packet.payload();
        self.end.searched += 1;
        let found = self.patterns.find(payload);
        let short = [find_short(payload, b"HTTP/1"), find_short(payload, b"example")];
        let first = short.into_iter().flatten().min();
        if found != self.own.find(payload) || found.map(|found| found.offset) != first {
            self.end.disagree += 1;
        }
        if let Some(found) = found {
            self.end.found += 1;
            let line = payload.get(found.offset..).unwrap_or_default();
            emit(&Hits { number: packet.number, text: Str::new(line.get(..6).unwrap_or_default()) });
        }
        if packet.has(flag::IPV4) {
            let at = usize::from(packet.l3_offset);
            assert!(packet.patch(at, &[0x60]) == Err(Error::Denied));
            assert!(packet.patch(packet.cap_len as usize, &[0]) == Err(Error::Range));
            assert!(packet.patch(at + 8, &[9]) == Ok(()));
            let ip = packet.l3().unwrap();
            assert!(packet.src().unwrap().to_v4() == ip.get(12..16).and_then(|a| a.try_into().ok()));
            assert!(packet.dst().unwrap().to_v4() == ip.get(16..20).and_then(|a| a.try_into().ok()));
        }
        if packet.has(flag::TCP | flag::L4) {
            assert!(packet.tcp_seq() == be32(packet.l4().unwrap(), 4) && packet.tcp_seq().is_some());
        } else {
            assert!(packet.tcp_seq().is_none());
        }
        if packet.has(flag::UDP) { Verdict::Drop } else { Verdict::Pass }
    }

    fn stop(&mut self, _now: u64) {
        emit(&self.end);
    }
}

module! {
    state: Probe = Probe::new();
    start: Probe::start;
    packet: Probe::packet;
    stop: Probe::stop;
}
"#;

#[test]
fn the_rust_sdk_works_in_the_sandbox() {
    if !has_rust() {
        return;
    }
    let ran = run(ModuleLanguage::Rust, &[("weir.toml", PROBE_TOML), ("src/lib.rs", PROBE)], &[]);
    let line = PROBE.lines().position(|line| line.contains("packet.bytes()[")).unwrap() + 1;
    let texts: Vec<&str> = ran.log.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(texts, ["4 places", &format!("panicked at src/lib.rs:{line}")]);
    // Reading past the end lost packet 7, and no other.
    assert_eq!((ran.counters.faults, ran.counters.lost), (1, 1));
    assert_eq!(u64::from(ran.dropped), ran.totals.udp);
    assert!(!ran.patches.is_empty() && ran.patches.iter().all(|patch| patch.bytes.as_slice() == [9]));
    let (_, end, _) = ran.records.last().unwrap();
    assert_eq!(u64_at(end, 0), ran.totals.packets - 1);
    assert_eq!(u64_at(end, 16), 0, "weir's search and the sandbox's own disagree");
    let hits: Vec<_> = ran.records.iter().filter(|(stream, ..)| *stream == 0).collect();
    assert!(!hits.is_empty() && u64_at(end, 8) == hits.len() as u64);
    assert!(hits.iter().all(|(_, _, text)| text == b"HTTP/1" || text == b"exampl"), "{hits:?}");
}

#[test]
fn a_batch_module_in_rust_drops_the_chosen_packets() {
    if !has_rust() {
        return;
    }
    let source = "#![cfg_attr(target_arch = \"wasm32\", no_std)]\n#![forbid(unsafe_code)]\nuse weir_guest::*;\nstruct S;\n\
        fn batch(_: &mut S, batch: Batch) -> Drops {\nlet mut drops = Drops::NONE;\nfor p in batch {\nif p.has(flag::TCP) { drops.add(&p); }\n}\ndrops\n}\n\
        module! {\nstate: S = S;\nbatch: batch;\n}\n";
    let ran = run(ModuleLanguage::Rust, &[("weir.toml", HEAD), ("src/lib.rs", source)], &[]);
    assert_eq!((u64::from(ran.dropped), ran.counters.faults), (ran.totals.tcp, 0));
}

/// A module whose bounded loops run 64 times for every packet, and 65 times for packet 7. It also records lost calls.
const BOUNDED_TOML: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
    [[stream]]\nname = 'end'\nfield = [{ name = 'packets', type = 'u64' }, { name = 'begun', type = 'u64' }, { name = 'trips', type = 'u64' }, { name = 'lost', type = 'i64' }]\n";

const BOUNDED_C: &str = r#"
#include "weir.h"
#include "module.h"

static struct end_row end;

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    const uint32_t most = p->number == 7 ? 65 : 64;
    end.begun++;
    WEIR_FOR(64, uint32_t i = 0; i < most; i++)
        end.trips++;
    uint32_t left = 64;
    WEIR_WHILE(64, left != 0)
        left--;
    end.packets++;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_lost) void weir_lost(int32_t cause)
{
    end.lost = end.lost * 10 + cause;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    emit_end(&end);
}
"#;

const BOUNDED_RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::End;
use weir_guest::{emit, BoundedIterator, Lost, Packet, Verdict};

struct Loops(End);

impl Loops {
    fn packet(&mut self, packet: &Packet) -> Verdict {
        let most = if packet.number == 7 { 65 } else { 64 };
        self.0.begun += 1;
        for _ in (0..most).bounded::<64>() {
            self.0.trips += 1;
        }
        self.0.packets += 1;
        Verdict::Pass
    }

    fn lost(&mut self, cause: Lost) {
        self.0.lost = self.0.lost * 10 + if cause == Lost::Trap { 1 } else { 9 };
    }

    fn stop(&mut self, _now: u64) {
        emit(&self.0);
    }
}

weir_guest::module! {
    state: Loops = Loops(End { packets: 0, begun: 0, trips: 0, lost: 0 });
    packet: Loops::packet;
    lost: Loops::lost;
    stop: Loops::stop;
}
"#;

#[test]
fn exceeding_a_loop_bound_loses_the_packet_and_calls_weir_lost() {
    let c = [("weir.toml", BOUNDED_TOML), ("m.c", BOUNDED_C)];
    let rust = [("weir.toml", BOUNDED_TOML), ("src/lib.rs", BOUNDED_RUST)];
    for (lang, present, files) in [(ModuleLanguage::C, has_c(), c), (ModuleLanguage::Rust, has_rust(), rust)]
    {
        if !present {
            continue;
        }
        let ran = run(lang, &files, &[]);
        assert_eq!((ran.counters.faults, ran.counters.lost), (1, 1), "{lang:?}");
        let (_, end, _) = ran.records.last().unwrap();
        let all = ran.totals.packets;
        let printed: Vec<u64> = [0, 8, 16, 24].into_iter().map(|offset| u64_at(end, offset)).collect();
        // The 64 trips for the lost packet count: the memory is not rolled back.
        assert_eq!(printed, [all - 1, all, 64 * all, 1], "{lang:?}");
    }
}

/// A module that takes scratch memory, checks that it is zero, and fills it. `begun` counts non-zero bytes, `trips` refusals, `lost`
/// overlapping allocations.
const SCRATCH_C: &str = r#"
#include "weir.h"
#include "module.h"

static struct end_row end;
static uint8_t room[1024];

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    struct weir_scratch scratch = weir_scratch_begin(room, sizeof room);
    uint64_t *first = weir_scratch_take(&scratch, 256), *second = weir_scratch_take(&scratch, 768);
    if (first == NULL || second == NULL)
        return WEIR_DROP;
    for (uint32_t i = 0; i < 32; i++)
        end.begun += first[i] != 0;
    for (uint32_t i = 0; i < 96; i++)
        end.begun += second[i] != 0;
    end.trips += weir_scratch_take(&scratch, 1) == NULL;
    end.lost += (uint8_t *)second - (uint8_t *)first < 256;
    weir_fill(first, 0xFF, 256);
    weir_fill(second, 0xFF, 768);
    end.packets++;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    for (uint32_t i = 0; i < sizeof room; i++)
        end.begun += 1000000 * (room[i] != 0xFF);
    emit_end(&end);
}
"#;

const SCRATCH_RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::End;
use weir_guest::{emit, Packet, Scratch, Verdict};

struct State(End, Scratch<1024>);

impl State {
    fn packet(&mut self, _: &Packet) -> Verdict {
        let mut free = self.1.begin();
        let (Some(first), Some(second)) = (free.take(256), free.take(768)) else { return Verdict::Drop };
        for byte in first.iter().chain(second.iter()) {
            self.0.begun += u64::from(*byte != 0);
        }
        self.0.trips += u64::from(free.take(1).is_none());
        first.fill(0xFF);
        second.fill(0xFF);
        self.0.packets += 1;
        Verdict::Pass
    }

    fn stop(&mut self, _now: u64) {
        emit(&self.0);
    }
}

weir_guest::module! {
    state: State = State(End { packets: 0, begun: 0, trips: 0, lost: 0 }, Scratch::new());
    packet: State::packet;
    stop: State::stop;
}
"#;

#[test]
fn scratch_memory_is_cleared_between_packets() {
    let c = [("weir.toml", BOUNDED_TOML), ("m.c", SCRATCH_C)];
    let rust = [("weir.toml", BOUNDED_TOML), ("src/lib.rs", SCRATCH_RUST)];
    for (lang, present, files) in [(ModuleLanguage::C, has_c(), c), (ModuleLanguage::Rust, has_rust(), rust)]
    {
        if !present {
            continue;
        }
        let ran = run(lang, &files, &[]);
        assert_eq!((ran.counters.faults, ran.dropped), (0, 0), "{lang:?}");
        let (_, end, _) = ran.records.last().unwrap();
        let all = ran.totals.packets;
        let printed: Vec<u64> = [0, 8, 16, 24].into_iter().map(|offset| u64_at(end, offset)).collect();
        assert_eq!(printed, [all, 0, all, 0], "{lang:?}");
    }
}

/// A module that computes digests at its stop: of an example of FIPS 180-4, one of RFC 6234, and too many bytes.
const DIGEST_TOML: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
    [[stream]]\nname = 'digests'\nfield = [{ name = 'digest', type = 'bytes' }, { name = 'code', type = 'i64' }]\n";

const DIGEST_C: &str = r#"
#include "weir.h"
#include "module.h"

static uint8_t out[32], many[WEIR_DIGEST_BYTES + 1];

static void say(int32_t len)
{
    const struct digests_row row = { .digest = weir_string(out, len < 0 ? 0 : (uint32_t)len), .code = len };
    emit_digests(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    static const char text[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    say(weir_sha1("abc", 3, out));
    say(weir_sha256("abc", 3, out));
    say(weir_sha1(text, sizeof text - 1, out));
    say(weir_sha256(text, sizeof text - 1, out));
    say(weir_sha256(many, sizeof many, out));
}
"#;

const DIGEST_RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::Digests;
use weir_guest::*;

struct S;

static MANY: [u8; 65_537] = [0; 65_537];

fn say(digest: Result<&[u8], Error>) {
    let code = match digest {
        Ok(digest) => digest.len() as i64,
        Err(Error::Range) => -2,
        Err(_) => 0,
    };
    emit(&Digests { digest: Str::new(digest.unwrap_or_default()), code });
}

impl S {
    fn packet(&mut self, _: &Packet) -> Verdict {
        Verdict::Pass
    }

    fn stop(&mut self, _: u64) {
        for text in [&b"abc"[..], b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"] {
            say(sha1(text).as_ref().map(|digest| &digest[..]).map_err(|error| *error));
            say(sha256(text).as_ref().map(|digest| &digest[..]).map_err(|error| *error));
        }
        say(sha256(&MANY).as_ref().map(|digest| &digest[..]).map_err(|error| *error));
    }
}

module! {
    state: S = S;
    packet: S::packet;
    stop: S::stop;
}
"#;

#[test]
fn digests_of_both_sdks_match_the_standards() {
    let wanted = [
        "a9993e364706816aba3e25717850c26c9cd0d89d",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        "",
    ];
    for (lang, is_there, file, text) in [
        (ModuleLanguage::C, has_c(), "m.c", DIGEST_C),
        (ModuleLanguage::Rust, has_rust(), "src/lib.rs", DIGEST_RUST),
    ] {
        if !is_there {
            continue;
        }
        let ran = run(lang, &[("weir.toml", DIGEST_TOML), (file, text)], &[]);
        assert_eq!(ran.counters.faults, 0);
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let printed: Vec<String> = ran.records.iter().map(|(_, _, tail)| hex(tail)).collect();
        assert_eq!(printed, wanted, "{lang:?}");
        let codes: Vec<i64> = ran.records.iter().map(|(_, row, _)| u64_at(row, 8).cast_signed()).collect();
        assert_eq!(codes, [20, 32, 20, 32, -2], "{lang:?}");
    }
}

/// A module that opens the server's Initial packet of RFC 9001, A.3, at its stop, with keys from the connection
/// identifier; then the same packet with another first byte; and it computes the HMAC of RFC 4231, 4.3.
const CRYPTO_C: &str = r#"
#include "weir.h"
#include "module.h"

static const uint8_t salt[] = { 0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a };
static const uint8_t dcid[] = { 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08 };
static uint8_t packet[] = { PACKET };
static uint8_t secret[32], key[16], iv[12], hp[16], mask[16], out[128];

static void say(int32_t len)
{
    const struct digests_row row = { .digest = weir_string(out, len < 0 ? 0 : (uint32_t)len), .code = len };
    emit_digests(&row);
}

WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    (void)p;
    return WEIR_PASS;
}

WEIR_EXPORT(weir_stop) void weir_stop(uint64_t now)
{
    (void)now;
    weir_hkdf_extract(salt, sizeof salt, dcid, sizeof dcid, secret);
    weir_hkdf_expand_label(secret, "server in", 9, secret, 32);
    weir_hkdf_expand_label(secret, "quic key", 8, key, 16);
    weir_hkdf_expand_label(secret, "quic iv", 7, iv, 12);
    weir_hkdf_expand_label(secret, "quic hp", 7, hp, 16);
    weir_aes128_block(hp, packet + 22, mask);
    packet[0] ^= mask[0] & 0x0f;
    packet[18] ^= mask[1];
    packet[19] ^= mask[2];
    iv[11] ^= 1;
    say(weir_aes128_gcm_open(key, iv, packet, 20, packet + 20, sizeof packet - 20, out));
    packet[0] ^= 1;
    say(weir_aes128_gcm_open(key, iv, packet, 20, packet + 20, sizeof packet - 20, out));
    say(weir_aes128_gcm_open(key, iv, packet, UINT32_MAX, packet + 20, 100, out));
    say(weir_hkdf_expand_label(secret, "a label with more than 32 characters", 36, key, 16));
    say(weir_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, out));
}
"#;

const CRYPTO_RUST: &str = r#"
#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]
#[path = "../.weir/module.rs"]
mod module;
use module::Digests;
use weir_guest::*;

struct S;

static SALT: [u8; 20] = [0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a];
static DCID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
static PACKET: [u8; 135] = [PACKET_BYTES];

fn say(digest: Result<&[u8], Error>) {
    let code = match digest {
        Ok(digest) => digest.len() as i64,
        Err(Error::Range) => -2,
        Err(Error::Forged) => -6,
        Err(_) => 0,
    };
    emit(&Digests { digest: Str::new(digest.unwrap_or_default()), code });
}

impl S {
    fn packet(&mut self, _: &Packet) -> Verdict {
        Verdict::Pass
    }

    fn run() -> Result<(), Error> {
        let mut packet = PACKET;
        let (mut secret, mut key, mut iv, mut hp, mut out) = ([0; 32], [0; 16], [0; 12], [0; 16], [0; 128]);
        let initial = hkdf_extract(&SALT, &DCID)?;
        hkdf_expand_label(&initial, "server in", &mut secret)?;
        hkdf_expand_label(&secret, "quic key", &mut key)?;
        hkdf_expand_label(&secret, "quic iv", &mut iv)?;
        hkdf_expand_label(&secret, "quic hp", &mut hp)?;
        let mut sample = [0; 16];
        sample.copy_from_slice(&packet[22..38]);
        let mask = aes128_block(&hp, &sample)?;
        packet[0] ^= mask[0] & 0x0f;
        packet[18] ^= mask[1];
        packet[19] ^= mask[2];
        iv[11] ^= 1;
        say(aes128_gcm_open(&key, &iv, &packet[..20], &packet[20..], &mut out).map(|plain| &*plain));
        packet[0] ^= 1;
        say(aes128_gcm_open(&key, &iv, &packet[..20], &packet[20..], &mut out).map(|plain| &*plain));
        say(aes128_gcm_open(&key, &iv, &packet[..20], &packet[20..], &mut out[..9]).map(|plain| &*plain));
        say(hkdf_expand_label(&secret, "a label with more than 32 characters", &mut key).map(|()| &[][..]));
        say(hmac_sha256(b"Jefe", b"what do ya want for nothing?").as_ref().map(|tag| &tag[..]).map_err(|error| *error));
        Ok(())
    }

    fn stop(&mut self, _: u64) {
        let _ = S::run();
    }
}

module! {
    state: S = S;
    packet: S::packet;
    stop: S::stop;
}
"#;

#[test]
fn both_sdks_open_an_initial_packet_of_quic() {
    let packet = "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a9\
        9f5ede4cf73c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77\
        d06edbb7aaf2f58891850abbdca3d20398c276456cbc42158407dd074ee";
    let list: String =
        (0..packet.len()).step_by(2).map(|at| format!("0x{}, ", &packet[at..at + 2])).collect();
    let wanted = [
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc5430b9a045a1200130100002e\
         00330024001d00209d3c940d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00020304",
        "",
        "",
        "",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ];
    for (lang, is_there, file, text) in [
        (ModuleLanguage::C, has_c(), "m.c", CRYPTO_C.replace("{ PACKET }", &format!("{{ {list} }}"))),
        (ModuleLanguage::Rust, has_rust(), "src/lib.rs", CRYPTO_RUST.replace("PACKET_BYTES", &list)),
    ] {
        if !is_there {
            continue;
        }
        let ran = run(lang, &[("weir.toml", DIGEST_TOML), (file, &text)], &[]);
        assert_eq!(ran.counters.faults, 0);
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let printed: Vec<String> = ran.records.iter().map(|(_, _, tail)| hex(tail)).collect();
        assert_eq!(printed, wanted, "{lang:?}");
        let codes: Vec<i64> = ran.records.iter().map(|(_, row, _)| u64_at(row, 8).cast_signed()).collect();
        assert_eq!(codes, [99, -6, -2, -2, 32], "{lang:?}");
    }
}

#[test]
fn a_module_in_c_logs_lines_with_values() {
    if !has_c() {
        return;
    }
    let source = r#"
        #include "weir.h"
        WEIR_EXPORT(weir_start) int32_t weir_start(void)
        {
            static char long_text[600];
            weir_fill(long_text, 'x', sizeof long_text - 1);
            const char *name = "four";
            WEIR_LOGF(WEIR_WARNING, "no ", name, " in ", weir_hex(0xC0FFEE), ", ", weir_hex(0), ", ", (uint8_t)200, '!', (bool)true);
            WEIR_LOGF(WEIR_INFO, INT64_MIN, " ", (int8_t)-1, " ", UINT64_MAX, " ", (int16_t)300);
            const uint8_t address[16] = { 192, 0, 2, 1 };
            WEIR_LOGF(WEIR_ERROR, weir_ip_v4(address), " ", weir_part("a\nbc", 3), " ", weir_ip_v6(address));
            WEIR_LOGF(WEIR_INFO, long_text);
            WEIR_LOGF(WEIR_INFO, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
            return 0;
        }
        WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p) { (void)p; return WEIR_PASS; }
    "#;
    let ran = run(ModuleLanguage::C, &[("weir.toml", HEAD), ("m.c", source)], &[]);
    let lines: Vec<(u8, &str)> = ran.log.iter().map(|line| (line.level, line.text.as_str())).collect();
    let minimum = i64::MIN.to_string() + " -1 " + &u64::MAX.to_string() + " 300";
    assert_eq!(
        lines,
        [
            (1, "no four in c0ffee, 0, 200331"),
            (2, minimum.as_str()),
            (0, "192.0.2.1 a\\nb c000:201::"),
            (2, "x".repeat(256).as_str()),
            (2, "123456789101112"),
        ]
    );
}
