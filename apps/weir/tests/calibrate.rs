//! Tests of `weir calibrate`: its measurements, the stored calibration, and its use.

use crate::run::process::{Ended, finish};
use crate::run::weir;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weir_admission::Calibration;
use weir_bounds::CostTable;
use weir_sandbox::{Engine, EngineOptions, LlvmUse};

fn with_state(state: &Path, arguments: &[&str]) -> Ended {
    finish(weir().args(arguments).env("XDG_STATE_HOME", state), None)
}

fn calibration_path(state: &Path) -> PathBuf {
    state.join("weir/calibration.toml")
}

#[test]
fn measurements_are_shown_stored_and_used() {
    let home = tempfile::tempdir().unwrap();
    let dry = with_state(home.path(), &["calibrate", "--dry-run"]).succeeds();
    assert!(dry.text().contains("KERNEL") && !dry.text().contains("Kept in"), "{}", dry.text());
    assert!(!calibration_path(home.path()).exists());

    let ended = with_state(home.path(), &["calibrate"]).succeeds();
    let printed = ended.text();
    assert_eq!(ended.stderr, "", "no progress bar where nobody looks");
    let engine =
        Engine::new(EngineOptions { llvm: LlvmUse::AtLoad, ..EngineOptions::default() }, None).unwrap();
    let back_ends = match engine.why_not_llvm() {
        None => 2,
        Some(why) => {
            println!("SKIPPED: the measurement of LLVM's code: {why}");
            assert!(printed.contains("Only Cranelift's code was measured."), "{printed}");
            1
        }
    };
    for kernel in
        ["arithmetic", "branches", "read", "table", "vectors", "hash", "emit", "send", "keep", "publish"]
    {
        let row =
            printed.lines().find(|line| line.starts_with(kernel)).unwrap_or_else(|| panic!("{printed}"));
        let figures: Vec<u64> =
            row.split_whitespace().skip(1).map_while(|n| n.parse().ok()).take(6).collect();
        assert_eq!(figures.len(), 3 * back_ends, "{row}");
        for spread in figures.chunks(3) {
            assert!(spread.is_sorted() && spread[0] > 0, "{row}");
        }
    }
    assert!(printed.contains(&format!("Kept in {}", calibration_path(home.path()).display())), "{printed}");
    assert_eq!(calibration_path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let checked = with_state(home.path(), &["check", "rtt"]).succeeds();
    assert!(checked.text().contains("the slowest rate that `weir calibrate` measured"), "{}", checked.text());
    assert_eq!(checked.stderr, "");
    let document = with_state(home.path(), &["check", "rtt", "--json"]).succeeds().json();
    let figure = |name: &str| document["calibration"][name].as_u64().unwrap();
    let calibration =
        Calibration::parse(&fs::read_to_string(calibration_path(home.path())).unwrap()).unwrap();
    assert_eq!(
        ["ns_min", "ns_median", "ns_max"].map(figure),
        calibration.spread(),
        "the slower back end counts"
    );
    assert!(figure("ns_min") <= figure("ns_median") && figure("ns_median") <= figure("ns_max"));
    let packet = &document["entry_points"][1]["bounds"][0];
    let fuel = packet["bound"]["constant"].as_u64().unwrap();
    let nanos = (fuel * figure("ns_max")).div_ceil(1000);
    assert_eq!(packet["bound_ns"]["constant"].as_u64().unwrap(), nanos, "at the slow end, rounded up");
}

#[test]
fn the_profile_decides_which_back_end_counts() {
    let home = tempfile::tempdir().unwrap();
    let path = calibration_path(home.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let both = Calibration::measured(10, 20, 300, "x").unwrap().with_llvm(1, 15, 200).unwrap();
    fs::write(&path, both.to_toml()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for (verified, spread, back_end) in
        [("where-possible", [10, 20, 300], "Cranelift"), ("only", [1, 15, 200], "LLVM")]
    {
        let profile = home.path().join("profile.toml");
        fs::write(&profile, format!("verified = '{verified}'\n")).unwrap();
        let arguments = ["check", "rtt", "--profile", profile.to_str().unwrap()];
        // Without LLVM on this machine, a module under `verified = "only"` is admitted and not compiled.
        let check = |more: &[&str]| with_state(home.path(), &[&arguments, more].concat());
        let text = check(&[]);
        let words = text.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&format!("Times: {} ns for 1000 fuel", spread[2])), "{words}");
        assert!(words.contains(&format!("in code of {back_end}")), "{words}");
        let document = check(&["--json"]).json();
        let figure = |name: &str| document["calibration"][name].as_u64().unwrap();
        assert_eq!(["ns_min", "ns_median", "ns_max"].map(figure), spread);
    }
}

#[test]
fn an_invalid_calibration_is_not_used_and_the_reason_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let path = calibration_path(home.path());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let of_table = |version: u32| {
        format!("cost-table = {version}\nprocessor = 'x'\n[nanoseconds]\nmin = 1\nmedian = 2\nmax = 3\n")
    };
    let good = of_table(CostTable::VERSION);
    let good = good.as_str();
    let write = |text: &str, mode: u32| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let check = || with_state(home.path(), &["check", "rtt"]).succeeds();
    write(good, 0o600);
    assert!(check().text().contains("Times: 3 ns for 1000 fuel"));
    for (text, mode, why) in [
        (good, 0o666, "no other user may have write permission"),
        (&of_table(CostTable::VERSION + 1), 0o600, "run `weir calibrate`"),
        (&good.replace("max = 3", "max = 0"), 0o600, "`weir calibrate`"),
        ("\u{1b}[2J", 0o600, "the calibration cannot be read"),
    ] {
        write(text, mode);
        let ended = check().reports(why);
        assert!(ended.text().contains("Times: estimates, "), "{}", ended.text());
        assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
    }
    // There is no folder for the calibration.
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    with_state(&file, &["calibrate"]).fails(1, &["calibration.toml", "cannot be written"]);
}
