//! Tests of `weir run --profile`: the limits decide whether a module runs and in which tier, and the operator is told.

#![forbid(unsafe_code)]

use crate::run;
use crate::run::module::{answering, write, write_as};
use crate::run::packets::{pcap, read_pcap, traffic};
use crate::run::process::{Ended, finish, module, number};
use crate::run::{root, run, weir};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PACKETS: u64 = 500;
const MONITORS: [&str; 7] =
    ["trajectory", "rtt", "worm", "lrd", "syn-flood", "port-count", "payload-match,needle=/bin/sh"];
/// Loops until a word in memory is zero: it ends at once, but the analysis cannot prove that.
const UNBOUNDED: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (loop $again (br_if $again (i32.load (i32.const 64))))
    (i32.const 0))"#;
/// Loops forever in every packet.
const ENDLESS: &str = r#"(func (export "weir_packet") (param $d i32) (result i32)
    (loop $again (br $again)) (i32.const 0))"#;
/// Loops at most 1,000 times per packet by its bound, and once in fact.
const CAUTIOUS: &str = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $i i32)
    (block $done
        (loop $again
            (br_if $done (i32.eqz (i32.load (i32.const 64))))
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))))
    (i32.const 0))"#;
/// Loops 1,000 times per packet.
const THOUSAND: &str = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $i i32)
    (loop $again
        (i32.store (i32.const 64) (local.get $i))
        (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000))))
    (i32.const 0))"#;

struct Bench {
    folder: TempDir,
    capture: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("capture.pcap");
        fs::write(&capture, pcap(&traffic(PACKETS))).unwrap();
        Self { capture, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn profile(&self, text: &str) -> String {
        let path = self.path().join("profile.toml");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn module(&self, name: &str, body: &str) -> String {
        write(self.path(), name, body).to_str().unwrap().to_owned()
    }

    /// Runs `weir run -r CAPTURE ARGUMENTS`.
    fn run(&self, arguments: &[&str]) -> Ended {
        run(["run", "-r", self.capture.to_str().unwrap()].iter().chain(arguments))
    }
}

fn strict() -> String {
    root().join("docs/profiles/strict.toml").to_str().unwrap().to_owned()
}

#[test]
fn without_a_profile_every_shipped_module_runs() {
    let bench = Bench::new();
    let modules: Vec<&str> = MONITORS.iter().chain(&["dscp-mark"]).flat_map(|name| ["-m", name]).collect();
    let document = bench.run(&[&["--json"], modules.as_slice()].concat()).succeeds().json();
    let mut proved = 0;
    for name in MONITORS.iter().chain(&["dscp-mark"]) {
        let module = module(&document, name.split(',').next().unwrap());
        assert_eq!(number(module, "packets"), PACKETS, "{module:#}");
        assert_eq!(module["tier"] == "proved", module["tier_reason"].is_null(), "{module:#}");
        proved += usize::from(module["tier"] == "proved");
    }
    assert!(proved >= 7, "{document:#}");
}

#[test]
fn the_strict_profile_runs_modules_with_proved_bounds() {
    let bench = Bench::new();
    for name in ["trajectory", "rtt", "syn-flood", "port-count", "payload-match,needle=/bin/sh"] {
        let document = bench.run(&["--json", "-m", name, "--profile", &strict()]).succeeds().json();
        let module = module(&document, name.split(',').next().unwrap());
        assert_eq!((module["tier"].as_str(), number(module, "packets")), (Some("proved"), PACKETS));
    }
}

#[test]
fn a_module_that_the_profile_refuses_fails_the_run() {
    let bench = Bench::new();
    let out = bench.path().join("out");
    let unbounded = bench.module("unbounded", UNBOUNDED);
    let run = |module: &str, profile: &str| {
        let out = out.to_str().unwrap();
        bench.run(&["-m", "port-count", "-m", module, "--profile", profile, "--out", out])
    };
    let ended = run(&unbounded, &strict());
    let ended = ended.fails(1, &[&unbounded, "`weir.patch`", "the profile does not allow"]);
    assert_eq!((ended.text(), ended.stderr.lines().count()), ("", 1));
    let proved = bench.profile("tiers = ['proved', 'supervised']");
    run(&unbounded, &proved).fails(
        1,
        &[
            "weir_packet has no bound on its time",
            "and only proved and supervised modules",
            "\"metered\" among its `tiers`",
        ],
    );
    let small = bench.profile("tiers = ['proved']\npacket = '1us'\nper-byte = '0ns'");
    run(&bench.module("thousand", THOUSAND), &small).fails(
        1,
        &[
            "weir_packet takes up to",
            "times its limit",
            "at most 1000 times",
            "`packet` and `per-byte`",
            "not calibrated",
        ],
    );
    run("dscp-mark", &strict()).fails(1, &["dscp-mark", "`weir.patch`"]);
    run("rtt", &bench.profile("memory = '64 KiB'"))
        .fails(1, &["port-count: the module begins with", "allows 64 KiB (`memory`)"]);
    run("syn-flood,interval=1ms", &bench.profile("tick-period = '10ms'"))
        .fails(1, &["a tick every 1 ms; the profile allows one every 10 ms (`tick-period`)"]);
    assert!(!out.exists(), "nothing ran");
}

#[test]
fn the_tier_and_its_reason_are_in_the_table_the_json_and_the_report() {
    let bench = Bench::new();
    let report = bench.path().join("report.html");
    let profile = bench.profile("packet = '1us'\nper-byte = '0ns'");
    let modules = [
        bench.module("quick", &answering("i32.const 0")),
        bench.module("cautious", CAUTIOUS),
        bench.module("unbounded", UNBOUNDED),
    ];
    let mut arguments = vec!["--profile", &profile, "--report", report.to_str().unwrap()];
    arguments.extend(modules.iter().flat_map(|path| ["-m", path.as_str()]));
    let ended = bench.run(&arguments).succeeds();
    let document = bench.run(&[&["--json"], arguments.as_slice()].concat()).succeeds().json();
    let page = fs::read_to_string(&report).unwrap();
    for (name, tier, reason) in [
        ("quick", "proved", None),
        ("cautious", "supervised", Some("x its time")),
        ("unbounded", "metered", Some("weir_packet: no bound on its time")),
    ] {
        let module = module(&document, name);
        assert_eq!((module["tier"].as_str(), number(module, "packets")), (Some(tier), PACKETS), "{module:#}");
        assert_eq!((number(module, "exceeded"), number(module, "strikes")), (0, 0), "{module:#}");
        let row = ended.text().lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(row.split_whitespace().nth(1), Some(tier), "{}", ended.text());
        assert!(page.contains(&format!("<td>{name}</td><td>{tier}</td>")), "{name}");
        let Some(reason) = reason else {
            assert!(module["tier_reason"].is_null() && !ended.text().contains("quick is "), "{module:#}");
            continue;
        };
        let told = module["tier_reason"].as_str().unwrap();
        assert!(told.contains(reason), "{told}");
        assert!(ended.text().contains(&format!("{name} is {tier}: {told}")), "{}", ended.text());
        assert!(page.contains(&format!("<code>{name}</code> is {tier}: {told}")), "{name}");
    }
}

#[test]
fn a_provable_module_is_metered_if_the_profile_requires_it() {
    let bench = Bench::new();
    for tier in ["proved", "supervised", "metered"] {
        let profile = bench.profile(&format!("tiers = ['{tier}']"));
        let document = bench.run(&["--json", "-m", "port-count", "--profile", &profile]).succeeds().json();
        let module = module(&document, "port-count");
        assert_eq!((module["tier"].as_str(), number(module, "packets")), (Some(tier), PACKETS));
        let reason = (tier != "proved").then_some("the profile asks for it");
        assert_eq!(module["tier_reason"].as_str(), reason);
    }
}

#[test]
fn an_endless_metered_module_is_unloaded_after_its_strikes_and_others_lose_no_packet() {
    let bench = Bench::new();
    let endless = bench.module("endless", ENDLESS);
    let profile = bench.profile("strikes = 2\npacket = '100us'");
    let arguments = ["--json", "-m", "port-count", "-m", &endless, "--profile", &profile];
    let ended = bench.run(&arguments).fails(3, &["not all modules saw all packets: endless was ended"]);
    let document = ended.json();
    let endless = module(&document, "endless");
    assert_eq!((endless["tier"].as_str(), number(endless, "packets")), (Some("metered"), 0));
    assert_eq!((number(endless, "faults"), endless["ended"].as_bool()), (2, Some(true)));
    assert_eq!((number(endless, "exceeded"), number(endless, "strikes")), (2, 2));
    assert_eq!(number(module(&document, "port-count"), "packets"), PACKETS);
    assert!(ended.stderr.contains("endless: the module was ended"), "{}", ended.stderr);
}

#[test]
fn a_supervised_module_that_keeps_exceeding_its_limits_is_unloaded_and_loses_no_packet_before_that() {
    let bench = Bench::new();
    let thousand = bench.module("thousand", THOUSAND);
    let profile = bench.profile("packet = '1us'\nper-byte = '0ns'");
    let ended = bench.run(&["--json", "-m", "port-count", "-m", &thousand, "--profile", &profile]);
    let ended = ended.fails(3, &["not all modules saw all packets: thousand was ended"]);
    let document = ended.json();
    let thousand = module(&document, "thousand");
    assert_eq!((thousand["tier"].as_str(), thousand["ended"].as_bool()), (Some("supervised"), Some(true)));
    assert_eq!(number(thousand, "faults"), 0, "no call was ended");
    let packets = number(thousand, "packets");
    assert!((64..PACKETS).contains(&packets), "unloaded between two batches: {thousand:#}");
    assert_eq!(number(thousand, "exceeded"), packets);
    assert!(number(thousand, "strikes") > 3, "{thousand:#}");
    assert!(ended.stderr.contains("exceeded their limit, and were completed"), "{}", ended.stderr);
    assert_eq!(number(module(&document, "port-count"), "packets"), PACKETS);
    assert!(ended.stderr.contains("thousand: the module was ended"), "{}", ended.stderr);
}

#[test]
fn memory_beyond_the_profiles_limit_is_not_granted() {
    let bench = Bench::new();
    // Grows its memory by twenty pages, one by one, and emits its number of pages.
    let body = r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_stop") (param i64) (local $i i32)
            (loop $again
                (drop (memory.grow (i32.const 1)))
                (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20))))
            (i64.store (i32.const 64) (i64.extend_i32_u (memory.size)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    let growing = bench.module("growing", body);
    let memory = |profile: &str| {
        let profile = bench.profile(profile);
        let document = bench.run(&["--json", "-m", &growing, "--profile", &profile]).succeeds().json();
        let growing = module(&document, "growing");
        (growing["tier"].as_str().unwrap().to_owned(), number(growing, "memory_bytes"))
    };
    assert_eq!(memory("memory = '2 MiB'"), ("proved".to_owned(), 21 << 16));
    // Its manifest requests 2 MiB, more than the limit but less than ten times as much.
    assert_eq!(memory("memory = '256 KiB'"), ("supervised".to_owned(), 256 << 10));
}

/// The lines of a shipped module's source that have this text.
fn lines_of(source: &str, text: &str) -> Vec<usize> {
    let source = fs::read_to_string(root().join("guest/modules").join(source)).unwrap();
    (1..).zip(source.lines()).filter(|(_, line)| line.contains(text)).map(|(number, _)| number).collect()
}

#[test]
fn a_module_writes_only_fields_that_the_profile_allows() {
    let bench = Bench::new();
    let output = bench.path().join("marked.pcap");
    // The number of packets with Expedited Forwarding.
    let marked = |writes: &str| {
        let arguments = ["-m", "dscp-mark,source=0.0.0.0/0", "-w", output.to_str().unwrap()];
        bench.run(&[&arguments[..], &["--profile", &bench.profile(writes)]].concat()).succeeds();
        read_pcap(&fs::read(&output).unwrap()).iter().filter(|packet| packet.bytes[15] == 46 << 2).count()
    };
    let all = usize::try_from(PACKETS).unwrap();
    assert_eq!(marked("writes = 'all'"), all);
    assert_eq!(marked("writes = ['ttl', 'dscp']"), all);
    assert_eq!(marked("writes = ['ttl', 'ecn', 'payload']"), 0);
}

#[test]
fn a_module_that_writes_is_refused_with_its_lines_where_no_field_may_be_written() {
    let bench = Bench::new();
    let profile = bench.profile("writes = []");
    let capture = bench.capture.to_str().unwrap();
    let lines = lines_of("dscp-mark/dscp-mark.c", "weir_patch(");
    let [of_ipv4, of_ipv6] = lines.as_slice() else { panic!("{lines:?}") };
    let places =
        format!("it calls `weir.patch` in mark (dscp-mark.c:{of_ipv4}) and mark (dscp-mark.c:{of_ipv6});");
    for command in [&["check"][..], &["compile"], &["run", "-r", capture, "-m"]] {
        let with = |module: &str| run(command.iter().chain(&[module, "--profile", &profile]));
        with("dscp-mark").fails(1, &["dscp-mark: ", &places, "(`writes`)"]);
    }
    let checked = run(["check", "dscp-mark", "--profile", &profile, "--json"]).fails(1, &[]).json();
    assert!(checked["refusal"].as_str().unwrap().contains(&places), "{checked:#}");
    assert_eq!((&checked["admitted"], &checked["tier"]), (&false.into(), &serde_json::Value::Null));
    // The others do not write.
    for name in MONITORS {
        bench.run(&["-m", name, "--profile", &profile]).succeeds();
    }
}

#[test]
fn an_invalid_profile_is_a_usage_error_with_its_position() {
    let bench = Bench::new();
    let with = |profile: &str| bench.run(&["-m", "port-count", "--profile", profile]);
    for (text, says) in [
        (
            "tiers = ['proved']\npakcet = '1us'\n",
            "line 2: a profile has no key `pakcet`; did you mean `packet`?",
        ),
        ("packet = 20", "line 1: `packet` must be a duration"),
        ("packet = ", "the profile cannot be read: line 1: "),
    ] {
        let path = bench.profile(text);
        let ended = with(&path).fails(2, &[&path, says]);
        assert_eq!((ended.text(), ended.stderr.lines().count()), ("", 1));
    }
    with("/no/such/profile.toml")
        .fails(2, &["/no/such/profile.toml: the profile cannot be read: No such file"]);
    with(bench.path().to_str().unwrap()).fails(2, &["the profile cannot be read: Is a directory"]);
    fs::write(bench.path().join("profile.toml"), [0xff, 0xfe]).unwrap();
    with(bench.path().join("profile.toml").to_str().unwrap())
        .fails(2, &["profile.toml: the profile cannot be read"]);
    with("/dev/zero").fails(2, &["the profile has 65537 bytes; 65536 is the most"]);
}

#[test]
fn the_calibration_decides_how_much_fuel_a_limit_is() {
    let bench = Bench::new();
    let state = bench.path().join("state");
    fs::create_dir_all(state.join("weir")).unwrap();
    let file = state.join("weir/calibration.toml");
    let cautious = bench.module("cautious", CAUTIOUS);
    let profile = bench.profile("packet = '8us'\nper-byte = '0ns'");
    let run = || {
        let capture = bench.capture.to_str().unwrap();
        let arguments = ["run", "-r", capture, "--json", "-m", &cautious, "--profile", &profile];
        let ended = finish(weir().env("XDG_STATE_HOME", &state).args(arguments), None).succeeds();
        let tier = module(&ended.json(), "cautious")["tier"].as_str().unwrap().to_owned();
        (tier, ended.stderr)
    };
    let calibration =
        |max: u64| weir_admission::Calibration::measured(1, 1, max, "a test").unwrap().to_toml();
    // The highest cost counts: 1 ns per unit, not 0.001 ns.
    fs::write(&file, calibration(100)).unwrap();
    assert_eq!(run(), ("proved".to_owned(), String::new()));
    fs::write(&file, calibration(10_000)).unwrap();
    assert_eq!(run(), ("supervised".to_owned(), String::new()));
    // An invalid calibration is reported, and the node counts as not calibrated.
    fs::write(&file, calibration(100).replace("cost-table", "table")).unwrap();
    let (tier, stderr) = run();
    assert_eq!(tier, "proved");
    assert!(
        stderr.contains("calibration.toml: the calibration cannot be read")
            && stderr.contains("weir calibrate")
    );
    fs::write(&file, calibration(10_000)).unwrap();
    let mut permissions = fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o666);
    fs::set_permissions(&file, permissions).unwrap();
    let (tier, stderr) = run();
    assert_eq!(tier, "proved", "a calibration that anybody could have written is not used");
    assert!(stderr.contains("no other user may have write permission"), "{stderr}");
}

#[test]
fn records_beyond_the_profiles_limit_are_dropped() {
    let bench = Bench::new();
    let emit = "(drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))";
    let body = answering(&format!("{} (i32.const 0)", emit.repeat(5)));
    let manifest = run::module::MANIFEST.replace("NAME", "talker");
    let talker = write_as(bench.path(), "talker", &body, &manifest);
    let taken = |profile: &str| {
        let profile = bench.profile(profile);
        let document =
            bench.run(&["--json", "-m", talker.to_str().unwrap(), "--profile", &profile]).succeeds().json();
        let talker = module(&document, "talker");
        (
            talker["tier"].as_str().unwrap().to_owned(),
            number(talker, "records"),
            number(talker, "dropped_records"),
        )
    };
    assert_eq!(taken("records = 5"), ("proved".to_owned(), 5 * PACKETS, 0));
    assert_eq!(taken("records = 2"), ("supervised".to_owned(), 2 * PACKETS, 3 * PACKETS));
    assert_eq!(taken("records = 0"), ("metered".to_owned(), 0, 5 * PACKETS));
}
