//! Tests of `weir check`, which shows operators and authors a module's tier and bounds before it runs.

use crate::run;
use crate::run::module::{MANIFEST, answering, assemble, text};
use crate::run::process::finish;
use crate::run::{outside, run, weir};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes a module with this body, and returns its path.
fn file(folder: &Path, name: &str, body: &str) -> String {
    let path = folder.join(name).with_extension("wasm");
    fs::write(&path, assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Writes a profile that admits only modules with small proved bounds.
fn strict(folder: &Path) -> String {
    let path = folder.join("strict.toml");
    fs::write(&path, "tiers = ['proved']\npacket = '20us'\nper-byte = '4ns'\npages = 0\n").unwrap();
    path.to_str().unwrap().to_owned()
}

/// Creates and builds a module with this source; `None` if there is no compiler.
pub fn built(folder: &Path, source: Option<&str>) -> Option<String> {
    if !["clang-19", "clang"].into_iter().any(outside::has) {
        return None;
    }
    let there = |arguments: &[&str]| finish(weir().args(arguments).current_dir(folder), None).succeeds();
    there(&["new", "mine", "--lang", "c"]);
    if let Some(source) = source {
        fs::write(folder.join("mine/mine.c"), source).unwrap();
    }
    there(&["build", "mine"]);
    Some(folder.join("mine/mine.wasm").to_str().unwrap().to_owned())
}

/// A module with a loop that has no end.
pub const ENDLESS: &str = "#include \"weir.h\"
static volatile uint32_t table[64];
WEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 500; i++)
        table[i & 63] += 3;
    if (p->flags & WEIR_TCP)
        for (;;)
            table[sum++ & 63]++;
    return 0;
}
";

fn line_of(source: &str, part: &str) -> usize {
    1 + source.lines().position(|line| line.contains(part)).unwrap()
}

#[test]
fn check_shows_a_shipped_modules_tier_and_the_origin_of_its_bounds() {
    let ended = run(["check", "rtt"]).succeeds();
    let printed = ended.text();
    for part in [
        "rtt 1.",
        "Tier: proved: ",
        "CALL OF",
        "weir_start",
        "weir_packet",
        "Memory: 64 KiB at the start, at most ",
    ] {
        assert!(printed.contains(part), "`{part}` is not in:\n{printed}");
    }
    assert!(printed.contains("Hottest path of weir_packet") && printed.contains("`emit`, in "), "{printed}");
    assert!(
        printed.contains("Set:  table-size=65536")
            && printed.contains("Back end: Cranelift")
            && printed.contains("Admitted; compiled in "),
        "{printed}"
    );
    assert!(printed.contains("ESTIMATED TIME") && printed.contains("Times: estimates, "), "{printed}");
    // Lines are wrapped.
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("not calibrated, `weir calibrate` measures it"), "{printed}");
    assert!(!printed.contains("\n  limit") && !printed.contains('\u{1b}'), "{printed}");
    assert_eq!(ended.stderr, "");
}

#[test]
fn with_a_profile_limits_are_shown_and_a_refusal_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let strict = strict(folder.path());
    let ended = run(["check", "rtt", "--profile", &strict]).succeeds();
    let lines: Vec<&str> = ended.text().lines().collect();
    let packet = lines.iter().position(|line| line.starts_with("weir_packet")).unwrap();
    assert!(lines[packet + 1].starts_with("  limit") && lines[packet + 1].contains("20 us + 4 ns/byte"));
    assert!(ended.text().contains(&format!("By:   the profile {strict}")), "{}", ended.text());

    // It grows its memory at every packet.
    let grows = file(folder.path(), "grows", &answering("(drop (memory.grow (i32.const 3))) (i32.const 0)"));
    run(["check", &grows]).succeeds();
    let refused = run(["check", &grows, "--profile", &strict])
        .fails(1, &["grows.wasm: weir_packet uses up to 3 pages", "the profile allows 0 by `pages`"]);
    for part in [
        "Tier: refused: ",
        "Why:  weir_packet: pages, where none may be used",
        "bound       3\n",
        "limit       0, by `pages` in the profile",
        "the profile's `tiers` are proved; with metered among them it would run",
        "Refused: weir_packet: pages",
    ] {
        assert!(refused.text().contains(part), "`{part}` is not in:\n{}", refused.text());
    }
    let missing = folder.path().join("none.toml");
    run(["check", "rtt", "--profile", missing.to_str().unwrap()]).fails(2, &["none.toml"]);
    fs::write(&missing, "packet = 'soon'").unwrap();
    run(["check", "rtt", "--profile", missing.to_str().unwrap()]).fails(2, &["line 1", "`packet`"]);
}

#[test]
fn check_of_a_hostile_module_names_its_functions_and_gives_hints() {
    let folder = tempfile::tempdir().unwrap();
    let recursive = file(
        folder.path(),
        "recursive",
        &format!(
            r#"(func $deep (param i32) (result i32) (call $deep (i32.load (local.get 0)))) {}"#,
            answering("(call $deep (local.get $d))")
        ),
    );
    let ended = run(["check", &recursive]).succeeds();
    let printed = ended.text();
    assert!(
        printed.contains("Tier: metered: ") && printed.contains("Why:  weir_packet: no bound on its time"),
        "{printed}"
    );
    assert!(printed.contains("deep calls itself: write it as a loop over a stack"), "{printed}");
    run(["check", &recursive, "--profile", &strict(folder.path())])
        .fails(1, &["weir_packet has no bound on its time", "only proved modules"]);

    let endless = file(folder.path(), "endless", &answering("(loop (br 0)) (i32.const 0)"));
    let annotated = run(["check", &endless, "--annotate"]).succeeds();
    let printed = annotated.text();
    assert!(printed.contains("this loop has no way out: add one, remove the loop"), "{printed}");
    // Without debug information, positions are offsets into the module.
    assert!(printed.contains("WebAssembly text, by byte offset"), "{printed}");
    let line = printed.lines().find(|line| line.contains("│") && line.contains("loop")).unwrap();
    assert!(line.trim_start().starts_with("unbounded") && line.contains("0x"), "{line}");
}

#[test]
fn an_invalid_module_is_refused_with_its_reason_in_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.wasm");
    fs::write(&path, b"\0asm\x01\0\0\0\x01\xff").unwrap();
    let path = path.to_str().unwrap();
    run(["check", path]).fails(1, &["broken.wasm: the module is not valid WebAssembly at byte"]);
    let refused = run(["check", path]).fails(1, &["broken.wasm"]);
    assert!(
        refused.text().contains("Why:  the module is not valid WebAssembly at byte"),
        "{}",
        refused.text()
    );
    let document = run(["check", path, "--json"]).fails(1, &["broken.wasm"]).json();
    assert_eq!(document["admitted"], Value::Bool(false));
    assert!(document["refusal"].as_str().unwrap().contains("not valid WebAssembly at byte"), "{document}");
    run(["check", "rtt", "--json", "--annotate"]).fails(2, &["--json", "--annotate"]);
}

#[test]
fn json_has_the_values_of_the_table() {
    for name in ["rtt", "lrd", "worm"] {
        let printed = run(["check", name]).succeeds();
        let document = run(["check", name, "--json"]).succeeds().json();
        assert_eq!((&document["module"], &document["admitted"]), (&Value::from(name), &Value::Bool(true)));
        let tier = document["tier"].as_str().unwrap();
        assert!(printed.text().contains(&format!("Tier: {tier}: ")), "{}", printed.text());
        let entries = document["entry_points"].as_array().unwrap();
        for entry in entries {
            let row = printed
                .text()
                .lines()
                .find(|line| line.starts_with(entry["name"].as_str().unwrap()))
                .unwrap();
            let class = entry["class"].as_str().unwrap();
            assert!(row.contains(if class == "constant" { "nothing" } else { class }), "{row}");
            let time =
                entry["bounds"].as_array().unwrap().iter().find(|bound| bound["resource"] == "time").unwrap();
            let fuel = time["bound"]["constant"].as_u64().unwrap();
            assert!(row.contains(&format!(" {fuel}")), "{row}: {time}");
            assert!(
                time["bound_ns"]["constant"].as_u64().unwrap() >= fuel / 4 && time["limit_ns"].is_object()
            );
            assert_eq!((&time["unit"], &time["ns_estimated"]), (&Value::from("fuel"), &Value::Bool(true)));
        }
        let rows = printed.text().lines().filter(|line| line.starts_with("weir_")).count();
        assert_eq!(rows, entries.len());
        let calls = document["host_calls"].as_array().unwrap();
        let own = calls
            .iter()
            .filter(|call| call["at"]["file"].as_str().is_some_and(|file| file.starts_with(name)));
        assert!(own.count() > 0, "{document}");
        assert!(document["memory"]["bound"]["constant"].as_u64().unwrap() >= 65_536);
        assert!(document["compiled_ns"].as_u64().unwrap() > 0);
        assert_eq!(document["back_ends"][0], "Cranelift");
        // Each shipped module can run in both back ends, or the machine has no clang 19.
        match document["llvm_refusal"].as_str() {
            None => assert_eq!(document["back_ends"][1], "LLVM"),
            Some(why) => {
                assert!(why.contains("clang 19 is not installed") || why.contains("FSGSBASE"), "{why}")
            }
        }
        assert_eq!(document["calibration"]["measured"], Value::Bool(false));
    }
}

/// Loops as often as its first parameter.
const BY_PARAMETER: &str = r#"(func (export "weir_packet") (param $d i32) (result i32) (local i32)
    (local.set 1 (i32.wrap_i64 (call $param_int (i32.const 0))))
    (if (local.get 1) (then
        (loop $again
            (i32.store (i32.const 64) (local.get 1))
            (br_if $again (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))))
    i32.const 0)"#;

#[test]
fn bounds_without_parameters_hold_for_all_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.wasm");
    let manifest =
        MANIFEST.replace("NAME", "theirs").replace("default = 8\n", "").replace("default = 'abc'\n", "");
    fs::write(&path, assemble(&text(BY_PARAMETER), Some(manifest.as_bytes()))).unwrap();
    let path = path.to_str().unwrap();
    let fuel = |spec: &str| {
        let document = run(["check", spec, "--json"]).succeeds().json();
        document["entry_points"][0]["bounds"][0]["bound"]["constant"].as_u64().unwrap()
    };
    let open = fuel(path);
    assert_eq!(open, fuel(&format!("{path},size=100,text=x")), "the dearest of all values");
    assert!([0, 1, 50, 99].iter().all(|size| fuel(&format!("{path},size={size},text=x")) < open));

    let printed = run(["check", path]).succeeds();
    let words: Vec<&str> = printed.text().split_whitespace().collect();
    for part in [
        "Open: size (u64, up to 100), text (string, up to 64 KiB); the bounds hold for every allowed value",
        "weir_packet configuration value",
        "Admitted, for every value of the open parameters",
    ] {
        assert!(words.join(" ").contains(part), "`{part}` is not in:\n{}", printed.text());
    }
    assert!(!printed.text().contains("Set:"), "{}", printed.text());
    let half = run(["check", &format!("{path},size=7")]).succeeds();
    let note = "Set: size=7 These bounds are for the values in `Set:`. With every allowed value: ";
    let printed = half.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains(note) && printed.contains(" Open: text (string"), "{printed}");

    let document = run(["check", path, "--json"]).succeeds().json();
    let size = &document["parameters"][0];
    assert_eq!((&size["name"], &size["value"], &size["max"]), (&"size".into(), &Value::Null, &"100".into()));
    assert_eq!((&document["admitted"], &document["compiled_ns"]), (&Value::Bool(true), &Value::Null));
    // Given parameters are checked against the manifest, and a run needs all of them.
    run(["check", &format!("{path},size=101")]).fails(2, &["`size`", "101 is outside"]);
    run(["run", "-r", "/dev/null", "-m", path]).fails(2, &["parameter `size` (u64) must be given"]);
}

#[test]
fn bounds_for_defaults_are_named_as_such_with_the_verdict_for_every_allowed_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "theirs", BY_PARAMETER);
    let profile = folder.path().join("narrow.toml");
    // Eight iterations are within the limit, and a hundred are not.
    fs::write(&profile, "tiers = ['proved']\npacket = '60ns'\nper-byte = '0ns'\n").unwrap();
    let profile = profile.to_str().unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let by_default = run(["check", &path, "--profile", profile]).succeeds();
    let printed = words(by_default.text());
    assert!(printed.contains("Tier: proved"), "{printed}");
    let note = "These bounds are for the values in `Set:`. With every allowed value: refused, weir_packet: ";
    assert!(printed.contains(note), "{printed}");
    // The note has the time that the option finds.
    let refused = run(["check", &path, "--any-value", "--profile", profile]).fails(1, &["weir_packet takes"]);
    let any = words(refused.text());
    let bound = any.split_once("bound ").unwrap().1.split_once(" limit ").unwrap().0;
    assert!(printed.contains(&format!(" x its time ({bound})")), "{bound}: {printed}");
    assert!(any.contains("Open: size (u64, up to 100), text (string") && !any.contains("Set:"), "{any}");
    // A value on the command line stays.
    let given = run(["check", &format!("{path},size=8"), "--any-value", "--profile", profile]).succeeds();
    assert!(given.text().contains("Set:  size=8\n"), "{}", given.text());
    assert!(given.text().contains("Open: text (string"), "{}", given.text());

    let document = run(["check", &path, "--profile", profile, "--json"]).succeeds().json();
    let any = &document["any_value"];
    assert_eq!((&any["same"], &any["tier"]), (&Value::Bool(false), &Value::Null), "{any}");
    assert!(any["reason"].as_str().unwrap().contains(bound), "{any}");
    // No bound of this module depends on a parameter.
    let other = file(folder.path(), "other", &answering("(i32.const 0)"));
    let same = run(["check", &format!("{other},text="), "--profile", profile]).succeeds();
    let printed = words(same.text());
    assert!(
        printed.contains("Set: size=8 text= (empty) The bounds are the same for every allowed value."),
        "{printed}"
    );
}

#[test]
fn a_refusal_shows_the_exceeded_limit_and_its_parts_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let slow = file(folder.path(), "slow", BY_PARAMETER);
    let profile = folder.path().join("tiny.toml");
    fs::write(&profile, "tiers = ['proved']\npacket = '2ns'\nper-byte = '0ns'\n").unwrap();
    let profile = profile.to_str().unwrap();
    let refused = run(["check", &slow, "--profile", profile]).fails(1, &["weir_packet takes up to"]);
    for part in [
        " x its time\n",
        "limit       2 ns (8 fuel), by `packet` and `per-byte` in the profile",
        "most of it  loop, at most 8 times, in weir_packet (byte ",
        "with supervised among them it would run",
    ] {
        assert!(refused.text().contains(part), "`{part}` is not in:\n{}", refused.text());
    }
    let document = run(["check", &slow, "--profile", profile, "--json"]).fails(1, &["slow"]).json();
    let excess = &document["excess"];
    assert!(document["refusal"].as_str().unwrap().starts_with("weir_packet takes up to"), "{document}");
    assert_eq!((&excess["entry_point"], &excess["resource"]), (&"weir_packet".into(), &"time".into()));
    assert_eq!((&excess["limit"]["constant"], &excess["contributor"]["kind"]), (&8.into(), &"loop".into()));
    assert_eq!(
        (&excess["contributor"]["trips"]["constant"], &excess["required_tier"]),
        (&8.into(), &"supervised".into())
    );
    assert!(excess["factor"].as_f64().unwrap() > 1.0 && excess["unbounded"].is_null(), "{excess}");

    let endless = file(folder.path(), "endless", &answering("(loop (br 0)) (i32.const 0)"));
    let refused = run(["check", &endless, "--profile", profile]).fails(1, &["no bound on its time"]);
    assert!(refused.text().contains("place       weir_packet (byte "), "{}", refused.text());
    assert!(refused.text().contains("reason      this loop has no way out"), "{}", refused.text());
    let document = run(["check", &endless, "--profile", profile, "--json"]).fails(1, &["endless"]).json();
    let excess = &document["excess"];
    assert!(excess["unbounded"]["reason"].as_str().unwrap().contains("no way out"), "{excess}");
    assert!(excess["bound"].is_null() && excess["factor"].is_null(), "{excess}");
}

#[test]
fn a_call_is_shown_with_its_callee_and_cost() {
    let printed = run(["check", "rtt", "--annotate"]).succeeds();
    let call =
        printed.text().lines().find(|line| line.contains("│") && line.contains("handshake(p")).unwrap();
    let cells: Vec<&str> = call.split_whitespace().collect();
    assert_eq!(cells[0], "handshake", "{call}");
    let document = run(["check", "rtt", "--json"]).succeeds().json();
    let calls = document["calls"].as_array().unwrap();
    // For packets with and without a tunnel there is a call each, with bounds of their own.
    let is_shown = |call: &&Value| call["fuel"]["constant"].as_u64() == cells[1].parse().ok();
    let found = calls.iter().filter(|call| call["name"] == "handshake").find(is_shown).unwrap();
    assert_eq!(found["at"]["line"].as_u64(), cells[2].parse().ok(), "{found}");
}

#[test]
fn a_new_module_is_shown_by_source_lines_with_trip_counts_and_costs() {
    let folder = tempfile::tempdir().unwrap();
    let Some(fresh) = built(folder.path(), None) else { return };
    let printed = run(["check", &fresh, "--annotate"]).succeeds();
    assert!(
        printed.text().contains("Tier: proved: ") && printed.text().contains("\nmine.c\n"),
        "{}",
        printed.text()
    );

    let folder = tempfile::tempdir().unwrap();
    let Some(endless) = built(folder.path(), Some(ENDLESS)) else { return };
    let annotated = run(["check", &endless, "--annotate"]).succeeds();
    let printed = annotated.text();
    let beside = |part: &str| {
        let line = format!(" {} │", line_of(ENDLESS, part));
        printed.lines().find(|shown| shown.contains(&line)).unwrap_or_else(|| panic!("{line}\n{printed}"))
    };
    assert!(beside("for (;;)").trim_start().starts_with("unbounded"), "{printed}");
    assert!(
        beside("table[sum++ & 63]++").trim_start().starts_with(char::is_numeric),
        "no cost of its own: {printed}"
    );
    let counted = beside("i < 500");
    assert!(counted.contains(" x ") && counted.contains("for (uint32_t i = 0"), "{counted}");
    assert!(printed.contains("this loop has no way out") && printed.contains("mine.c:"), "{printed}");

    // A source that was modified since is reported; a missing one is not.
    let source = folder.path().join("mine/mine.c");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().append(true).open(&source).unwrap().set_modified(later).unwrap();
    let moved = run(["check", &endless, "--annotate"]).succeeds();
    assert!(moved.text().contains("mine.c (changed after the module was built"), "{}", moved.text());
    fs::remove_file(&source).unwrap();
    let gone = run(["check", &endless, "--annotate"]).succeeds();
    assert!(gone.text().contains("WebAssembly text") && gone.text().contains("mine.c:"), "{}", gone.text());
}

#[test]
fn control_characters_in_names_of_a_module_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let body = "(func $\"\\1b[2Jgone\" (param i32) (result i32) (loop (br_if 0 (i32.load (local.get 0)))) (i32.const 0))";
    let body = format!("{body} {}", answering("(call $\"\\1b[2Jgone\" (local.get $d))"));
    let path = file(folder.path(), "painter", &body);
    for arguments in [&["check", &path, "--annotate"][..], &["check", &path, "--json"]] {
        let ended = run(arguments).succeeds();
        assert!(!ended.text().contains('\u{1b}') && ended.text().contains("[2Jgone"), "{}", ended.text());
    }
}

#[test]
fn colours_are_only_for_terminals_and_can_be_turned_off() {
    if !outside::has("script") {
        return;
    }
    let on_a_terminal = |environment: &str| {
        let command = format!("{environment} {} check rtt --annotate", env!("CARGO_BIN_EXE_weir"));
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
        script.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
        outside::output(&mut script)
    };
    let coloured = on_a_terminal("");
    assert!(
        coloured.contains("\u{1b}[32mproved\u{1b}[0m") && coloured.contains("\u{1b}[1mrtt.c"),
        "{coloured}"
    );
    for environment in ["NO_COLOR=1", "TERM=dumb"] {
        assert!(!on_a_terminal(environment).contains('\u{1b}'), "{environment}");
    }
}

#[test]
fn a_module_that_is_not_a_regular_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("module.wasm");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let (fifo, sample) = (fifo.to_str().unwrap(), run::sample());
    let sample = sample.to_str().unwrap();
    for module in [fifo, "/dev/zero", "/dev/stdin"] {
        for command in [&["check", module][..], &["run", "-r", sample, "-m", module]] {
            run::run_with(b"", command).fails(1, &[module, "is not a regular file"]);
        }
    }
}
