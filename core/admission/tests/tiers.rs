//! Tests of tiers: the tier that a module gets by its bytes, its parameters and a profile, and the wording of refusals.

use weir_admission::{
    Admitted, Assessment, CalibratedProfile, Calibration, Comparison, LimitStatus, LimitedResource,
    ModuleRefusal, ParameterSetting, Profile, Tier,
};
use weir_bounds::{EntryPoint, Linear, WorkClass};

const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '1 MiB'\n\
    [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 8\nmax = 1000\n";
const HEAD: &str = r#"(import "weir" "param_int" (func $param_int (param i32) (result i64)))
    (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
    (import "weir" "patch" (func $patch (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)"#;
const NOTHING: &str = r#"(func (export "weir_packet") (param i32) (result i32) i32.const 0)"#;
/// A packet function that loops `size` times, counting down.
const BY_PARAMETER: &str = r#"(func (export "weir_packet") (param i32) (result i32) (local i32)
    (local.set 1 (i32.wrap_i64 (call $param_int (i32.const 0))))
    (if (local.get 1) (then
        (loop $again
            (i32.store (i32.const 64) (local.get 1))
            (br_if $again (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))))
    i32.const 0)"#;
/// A packet function that loops until a cell of memory is set, which has no bound.
const UNBOUNDED: &str = r#"(func $wander (export "weir_packet") (param i32) (result i32)
    (loop $again
        (i32.store (i32.const 64) (i32.mul (i32.load (i32.const 64)) (i32.const 17)))
        (br_if $again (i32.load (i32.const 64))))
    i32.const 0)"#;

fn module(body: &str, manifest: &str) -> Vec<u8> {
    let mut bytes = wat::parse_str(format!("(module {HEAD} {body})")).unwrap();
    let mut section = b"\x0dweir.manifest".to_vec();
    section.extend_from_slice(manifest.as_bytes());
    let len = u16::try_from(section.len()).unwrap();
    // LEB128 in two bytes, whatever the length.
    bytes.extend([0, u8::try_from(len & 0x7f).unwrap() | 0x80, u8::try_from(len >> 7).unwrap()]);
    bytes.extend(section);
    bytes
}

/// The terms of a node on which a unit of fuel takes a nanosecond, so that limits in time are limits in fuel.
fn terms(profile: &str) -> CalibratedProfile {
    let calibration = Calibration::measured(1000, 1000, 1000, "test").unwrap();
    CalibratedProfile::new(Profile::parse(profile).unwrap(), calibration)
}

fn assess(body: &str, settings: &[(&str, &str)], profile: &str) -> Assessment {
    let settings: Vec<ParameterSetting> =
        settings.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect();
    Assessment::assess(module(body, MANIFEST), &settings, &terms(profile)).unwrap()
}

fn tier(body: &str, profile: &str) -> Tier {
    assess(body, &[], profile).admit().unwrap().tier()
}

fn refusal(body: &str, profile: &str) -> String {
    let assessment = assess(body, &[], profile);
    let told = assessment.verdict().unwrap_err().to_string();
    assert_eq!(assessment.admit().unwrap_err().to_string(), told, "admission refuses what the verdict said");
    assert!(told.chars().all(weir_admission::is_plain), "{told}");
    told
}

fn fuel(assessment: &Assessment, entry: EntryPoint) -> Linear {
    assessment.analysis().entry(entry).unwrap().usage.fuel
}

#[test]
fn a_module_is_proved_up_to_its_bound_and_supervised_below_it() {
    let bound = fuel(&assess(BY_PARAMETER, &[], ""), EntryPoint::Packet);
    assert!(bound.is_bounded() && bound.per_kib == 0 && bound.constant > 8, "{bound}");
    let profile = |limit: u64| format!("packet = '{limit}ns'\nper-byte = '0ns'");
    assert_eq!(tier(BY_PARAMETER, &profile(bound.constant)), Tier::Proved);
    assert_eq!(tier(BY_PARAMETER, &profile(bound.constant - 1)), Tier::Supervised);
    let fortieth = bound.constant.div_ceil(40);
    assert_eq!(tier(BY_PARAMETER, &profile(fortieth)), Tier::Supervised);
    assert_eq!(tier(BY_PARAMETER, &profile(fortieth - 1)), Tier::Metered);
    assert_eq!(
        tier(BY_PARAMETER, &format!("{}\ncpu-factor = 1", profile(bound.constant - 1))),
        Tier::Metered
    );
    assert_eq!(tier(UNBOUNDED, ""), Tier::Metered);
    assert_eq!(tier(NOTHING, ""), Tier::Proved);
}

#[test]
fn bounds_follow_the_values_that_were_set_and_not_the_limits_of_the_manifest() {
    let with = |size: &str| fuel(&assess(BY_PARAMETER, &[("size", size)], ""), EntryPoint::Packet).constant;
    let (ten, twenty, thousand) = (with("10"), with("20"), with("1000"));
    assert_eq!((thousand - ten) / 99, twenty - ten, "each iteration costs the same");
    let profile = format!("tiers = ['proved']\npacket = '{ten}ns'\nper-byte = '0ns'");
    assert_eq!(assess(BY_PARAMETER, &[("size", "10")], &profile).verdict(), Ok(Tier::Proved));
    assert!(assess(BY_PARAMETER, &[("size", "11")], &profile).verdict().is_err());
}

#[test]
fn a_parameter_that_is_left_open_is_analysed_with_every_value_that_it_may_have() {
    let required = MANIFEST.replace("default = 8\n", "");
    let of = |size: &str| {
        let bytes = module(BY_PARAMETER, &required);
        Assessment::assess(bytes, &[("size".into(), vec![size.into()])], &CalibratedProfile::default())
            .unwrap()
    };
    let open =
        Assessment::assess_open(module(BY_PARAMETER, &required), &[], &CalibratedProfile::default()).unwrap();
    let names: Vec<&str> = open.open_parameters().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!((names, open.values()), (vec!["size"], &[None][..]));
    assert_eq!(fuel(&open, EntryPoint::Packet), fuel(&of("1000"), EntryPoint::Packet));
    assert!(fuel(&of("999"), EntryPoint::Packet).constant < fuel(&open, EntryPoint::Packet).constant);
    assert_eq!(open.analysis().entry(EntryPoint::Packet).unwrap().class, WorkClass::ConfigurationValue);
    assert_eq!(open.verdict(), Ok(Tier::Proved));
    // An open assessment is not admitted.
    let missing = "parameter `size` (u64) must be given: ";
    assert_eq!(open.admit().unwrap_err().to_string(), missing);
    let strict = Assessment::assess(module(BY_PARAMETER, &required), &[], &CalibratedProfile::default());
    assert_eq!(strict.unwrap_err().to_string(), missing);
    // A given value counts, and is checked against the manifest.
    let given = Assessment::assess_open(
        module(BY_PARAMETER, &required),
        &[("size".into(), vec!["10".into()])],
        &CalibratedProfile::default(),
    );
    assert_eq!(fuel(&given.unwrap(), EntryPoint::Packet), fuel(&of("10"), EntryPoint::Packet));
    let beyond = [("size".into(), vec!["1001".into()])];
    assert!(
        Assessment::assess_open(module(BY_PARAMETER, &required), &beyond, &CalibratedProfile::default())
            .is_err()
    );
}

#[test]
fn a_loop_over_an_open_parameter_without_limits_has_no_small_bound() {
    let required = MANIFEST.replace("default = 8\nmax = 1000\n", "");
    let open =
        Assessment::assess_open(module(BY_PARAMETER, &required), &[], &CalibratedProfile::default()).unwrap();
    assert!(fuel(&open, EntryPoint::Packet).constant >= u64::from(u32::MAX));
    assert_eq!(open.verdict(), Ok(Tier::Metered));
}

#[test]
fn a_tick_whose_period_is_left_open_has_the_shortest_period_of_the_manifest() {
    let text = |limits: &str| {
        let parameter = format!("[[parameter]]\nname = 'every'\ntype = 'duration'\n{limits}");
        format!("tick = {{ parameter = 'every' }}\n{}{parameter}", &MANIFEST[..MANIFEST.find("[[").unwrap()])
    };
    let body = format!("{NOTHING} (func (export \"weir_tick\") (param i64 i64))");
    let open = |limits: &str, profile: &str| {
        Assessment::assess_open(module(&body, &text(limits)), &[], &terms(profile)).unwrap()
    };
    assert_eq!(open("min = '1ms'", "").tick_period().unwrap().0, 1_000_000);
    assert_eq!(open("", "").tick_period().unwrap().0, 1_000);
    assert!(open("min = '1ms'", "tick-period = '1ms'").verdict().is_ok());
    assert!(open("min = '999us'", "tick-period = '1ms'").verdict().is_err());
}

#[test]
fn an_admitted_module_keeps_its_assessment() {
    let bytes = module(BY_PARAMETER, MANIFEST);
    let terms = terms("packet = '100us'\nmemory = '256 KiB'\nstrikes = 5");
    let admitted = Admitted::admit_by(bytes.clone(), &[("size".into(), vec!["9".into()])], &terms).unwrap();
    assert_eq!(admitted.bytes(), bytes);
    assert_eq!(admitted.profile(), terms.profile());
    assert_eq!(admitted.info().imports, ["param_int", "emit", "patch"]);
    assert_eq!(admitted.cost_table_version(), weir_bounds::CostTable::VERSION);
    assert_eq!(admitted.limits(), &terms.limits());
    assert_eq!(admitted.limits().strikes, 5);
    assert_eq!(admitted.memory().0, 256 << 10, "the manifest's amount, limited by the profile");
    assert_eq!((admitted.tier(), admitted.reason_for_tier()), (Tier::Proved, None));
}

#[test]
fn the_slower_of_the_back_ends_that_may_run_a_module_decides_its_tier() {
    let bound = fuel(&assess(BY_PARAMETER, &[], ""), EntryPoint::Packet).constant;
    // Nanoseconds for 1000 units of fuel in Cranelift's and in LLVM's code, and in the code that counts for modules that
    // may run in both, and in LLVM's alone.
    for (cranelift, llvm, both, only) in
        [(1000, Some(500), 1000, 500), (1000, Some(2000), 2000, 2000), (1000, None, 1000, 1000)]
    {
        let measured = Calibration::measured(1, 1, cranelift, "test").unwrap();
        let calibration = match llvm {
            Some(max) => measured.with_llvm(1, 1, max).unwrap(),
            None => measured,
        };
        for (verified, nanos) in [("where-possible", both), ("only", only)] {
            let needed = (bound * nanos).div_ceil(1000);
            for (limit, tier) in [(needed, Tier::Proved), (needed - 1, Tier::Supervised)] {
                let profile = format!("verified = '{verified}'\npacket = '{limit}ns'\nper-byte = '0ns'");
                let terms = CalibratedProfile::new(Profile::parse(&profile).unwrap(), calibration.clone());
                let admitted = Admitted::admit_by(module(BY_PARAMETER, MANIFEST), &[], &terms).unwrap();
                assert_eq!(admitted.tier(), tier, "{calibration:?} {profile}");
                // Times for display agree with the limits.
                let shown = admitted.assessment().calibrated_profile().calibration().time(bound).0;
                assert_eq!(shown, needed, "{calibration:?} {profile}");
            }
        }
    }
}

#[test]
fn each_bound_is_shown_with_its_limit() {
    let body = format!("{BY_PARAMETER} (func (export \"weir_stop\") (param i64))");
    let assessment = assess(&body, &[], "packet = '100ns'\nper-byte = '0ns'\ncpu-factor = 2");
    let find = |entry, resource| {
        let is_it = |c: &&Comparison| c.entry == entry && c.resource == resource;
        *assessment.comparisons().iter().find(is_it).unwrap()
    };
    let packet = find(Some(EntryPoint::Packet), LimitedResource::Fuel);
    assert_eq!(packet.limit, Linear::constant(100));
    assert_eq!(packet.bound, fuel(&assessment, EntryPoint::Packet));
    assert_eq!(
        packet.status(),
        if packet.bound.constant <= 200 { LimitStatus::OverWithinFactor } else { LimitStatus::OverFactor }
    );
    assert_eq!(assessment.worst(), Some(&packet));
    assert_eq!(find(Some(EntryPoint::Stop), LimitedResource::Fuel).status(), LimitStatus::Within);
    assert_eq!(find(None, LimitedResource::Memory).bound, Linear::constant(64 << 10));
    let order: Vec<_> = assessment.comparisons().iter().map(|c| c.entry).collect();
    let mut sorted = order.clone();
    sorted.dedup();
    assert_eq!(sorted, [Some(EntryPoint::Packet), Some(EntryPoint::Stop), None]);
}

#[test]
fn a_refusal_names_the_limit_the_bound_and_the_place() {
    let bound = fuel(&assess(BY_PARAMETER, &[], ""), EntryPoint::Packet).constant;
    let told = refusal(BY_PARAMETER, "tiers = ['proved']\npacket = '50ns'\nper-byte = '0ns'");
    for part in [
        format!("weir_packet takes up to {bound} ns ({bound} fuel), "),
        "the profile allows 50 ns (50 fuel) by `packet` and `per-byte`, and only proved modules".to_owned(),
        "most of it is the loop in ".to_owned(),
        "at most 8 times".to_owned(),
        "with \"supervised\" among its `tiers` the module would run, up to 40 times the limit".to_owned(),
    ] {
        assert!(told.contains(&part), "{told}\n  should say: {part}");
    }
    assert!(!told.contains("not calibrated"), "{told}");
    let told = refusal(UNBOUNDED, "tiers = ['proved', 'supervised']");
    for part in [
        "weir_packet has no bound on its time: ",
        "(byte ",
        "and only proved and supervised modules; with \"metered\" among its `tiers` the module would run",
    ] {
        assert!(told.contains(part), "{told}\n  should say: {part}");
    }
}

#[test]
fn a_violation_that_no_tier_can_limit_is_refused_at_any_bounds() {
    assert_eq!(
        refusal(NOTHING, "imports = ['emit', 'hash']"),
        "the module imports `weir.param_int`, which the profile does not allow: its `imports` are `emit`, `hash`"
    );
    assert_eq!(
        refusal(NOTHING, "imports = []"),
        "the module imports `weir.param_int`, which the profile does not allow: its `imports` are none"
    );
    let two_pages =
        r#"(memory (export "memory") 2) (func (export "weir_packet") (param i32) (result i32) i32.const 0)"#;
    let mut bytes = wat::parse_str(format!("(module {two_pages})")).unwrap();
    bytes.extend(&module("", MANIFEST)[wat::parse_str(format!("(module {HEAD})")).unwrap().len()..]);
    // The memory section: its number, its length, one memory, without a maximum, of two pages.
    let at = bytes.windows(5).position(|part| part == [5, 3, 1, 0, 2]).unwrap() + 3;
    assert_eq!(
        Admitted::admit_by(bytes, &[], &terms("memory = '64 KiB'")).unwrap_err().to_string(),
        format!(
            "the module begins with 128 KiB of memory, declared at byte {at}, for its static variables and its stack; \
             the profile allows 64 KiB (`memory`)"
        )
    );
    let ticking = module(
        &format!("{NOTHING} (func (export \"weir_tick\") (param i64 i64))"),
        &format!("tick = '10us'\n{MANIFEST}"),
    );
    let by = |profile: &str| Admitted::admit_by(ticking.clone(), &[], &terms(profile));
    assert_eq!(
        by("tick-period = '1ms'").unwrap_err().to_string(),
        "the module asks for a tick every 10 us; the profile allows one every 1 ms (`tick-period`)"
    );
    assert_eq!(by("tick-period = '10us'").unwrap().tier(), Tier::Proved);
}

#[test]
fn a_module_gains_nothing_by_a_false_manifest() {
    let of = |body: &str, manifest: &str| {
        Assessment::assess(module(body, manifest), &[], &terms("packet = '1us'\nper-byte = '0ns'")).unwrap()
    };
    // Less memory than it begins with.
    let less = MANIFEST.replace("1 MiB", "4096");
    let refused = Assessment::assess(module(NOTHING, &less), &[], &CalibratedProfile::default()).unwrap_err();
    assert!(matches!(refused, ModuleRefusal::MemorySize { .. }), "{refused}");
    // Less memory than it requests later: the host gives it no more, so the bound is the manifest's amount.
    let growing = r#"(func (export "weir_packet") (param i32) (result i32) (memory.grow (i32.const 9)))"#;
    let memory = |manifest: &str| {
        let assessment = of(growing, manifest);
        let memory = *assessment.comparisons().last().unwrap();
        assert_eq!((memory.entry, memory.resource), (None, LimitedResource::Memory));
        (memory.bound, assessment.memory().0)
    };
    assert_eq!(memory(MANIFEST), (Linear::constant(1 << 20), 1 << 20));
    assert_eq!(memory(&MANIFEST.replace("1 MiB", "128 KiB")), (Linear::constant(128 << 10), 128 << 10));
    // No stream, a stream of numbers, and one of strings, where the code emits into the first: the host reads only
    // declared fields.
    let emitting = r#"(func (export "weir_packet") (param i32) (result i32)
        (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))"#;
    let stream =
        |ty: &str| format!("{MANIFEST}[[stream]]\nname = 's'\n[[stream.field]]\nname = 'f'\ntype = '{ty}'\n");
    let cost = |manifest: &str| fuel(&of(emitting, manifest), EntryPoint::Packet).constant;
    assert!(cost(&stream("string")) > cost(&stream("u64")) + 4096, "strings are charged");
    assert!(cost(MANIFEST) <= cost(&stream("u64")));
    // A limit for a parameter that its own default violates.
    let default = MANIFEST.replace("max = 1000", "max = 4");
    let refused =
        Assessment::assess(module(BY_PARAMETER, &default), &[], &CalibratedProfile::default()).unwrap_err();
    assert!(refused.to_string().contains("8 is outside"), "{refused}");
}

/// A packet function that writes packets in four places.
const WRITING: &str = r#"(func $write (param i32) (result i32)
        (drop (call $patch (local.get 0) (i32.const 22) (i32.const 64) (i32.const 1)))
        (call $patch (local.get 0) (i32.const 22) (i32.const 64) (i32.const 1)))
    (func (export "weir_packet") (param i32) (result i32)
        (drop (call $write (local.get 0)))
        (drop (call $patch (local.get 0) (i32.const 22) (i32.const 64) (i32.const 1)))
        (call $patch (local.get 0) (i32.const 22) (i32.const 64) (i32.const 1)))"#;

#[test]
fn a_module_that_can_write_packets_is_refused_where_no_field_may_be_written() {
    let told = refusal(WRITING, "writes = []");
    let places = told.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(
        places,
        "the module can write packets: it calls `weir.patch` in write (byte ), write (byte ), weir_packet (byte ) and  more place; \
         the profile lets modules write no field (`writes`): name the fields there, or remove the calls"
    );
    assert!(told.contains(" and 1 more place;"), "{told}");
    // No other tier would admit it, and an import without a call is no reason.
    assert_eq!(refusal(WRITING, "writes = []\ntiers = ['metered']"), told);
    assert_eq!(tier(NOTHING, "writes = []"), Tier::Proved);
    // Which field a write is for depends on the packet, so one writable field is enough.
    assert_eq!(tier(WRITING, "writes = ['ttl']"), Tier::Proved);
    let uncalled = format!("{NOTHING} {}", WRITING.replace("(export \"weir_packet\")", ""));
    assert_eq!(tier(&uncalled, "writes = []"), Tier::Proved);
}

#[test]
fn a_modules_names_are_plain_in_a_refusal() {
    let named = UNBOUNDED.replace("$wander", "$\"\\1b[2J\\0aweir: all fine\"");
    let told = refusal(&named, "tiers = ['proved']");
    assert!(told.contains("all fine"), "the name is shown, but escaped: {told}");
}

#[test]
fn the_documented_profiles_do_what_their_comments_say() {
    let default = include_str!("../../../docs/profiles/default.toml");
    assert_eq!(Profile::parse(default), Ok(Profile::default()));
    // The message for an unknown key lists all keys.
    let keys = Profile::parse("nonsense = 1").unwrap_err().to_string();
    let keys: Vec<&str> = keys.split('`').skip(3).step_by(2).collect();
    assert!(keys.len() > 15 && keys.contains(&"tiers") && keys.contains(&"strikes"), "{keys:?}");
    for key in keys {
        assert!(default.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is not explained");
    }
    let strict = Profile::parse(include_str!("../../../docs/profiles/strict.toml")).unwrap();
    assert_eq!((strict.tiers.as_slice(), strict.patches), ([Tier::Proved].as_slice(), 0));
    assert_eq!(strict.writes.to_string(), "none");
    // A limit that equals the default would not make the profile strict.
    let usual = Profile::default();
    assert!(strict.packet < usual.packet && strict.per_byte < usual.per_byte && strict.tick < usual.tick);
    assert!(strict.memory < usual.memory && strict.stack < usual.stack && strict.records < usual.records);
}
