//! Tests of the command line: help, usage errors, and the steps of a new user from `weir new` to records.

use crate::run;
use crate::run::process::{counts, finish, module, number};
use crate::run::{outside, run, sample, weir};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The modules that run without -m.
const DEFAULT: [&str; 9] = ["flows", "dns", "tls", "http", "quic", "talkers", "scan", "latency", "syn-flood"];

/// The other modules.
const OTHERS: [&str; 15] = [
    "loss",
    "rtt",
    "trajectory",
    "beacon",
    "worm",
    "entropy",
    "lrd",
    "port-count",
    "payload-match",
    "dscp-mark",
    "arm",
    "spin",
    "flood",
    "hog",
    "packets",
];

fn capture() -> String {
    sample().to_str().unwrap().to_owned()
}

#[test]
fn every_command_has_help_and_the_program_has_a_version() {
    for command in ["run", "modules", "check", "compile", "calibrate", "new", "build"] {
        let ended = run([command, "--help"]).succeeds();
        assert!(ended.text().contains(&format!("Usage: weir {command}")), "{}", ended.text());
        assert_eq!(ended.stderr, "");
        assert!(run(["--help"]).succeeds().text().contains(&format!("  {command} ")));
    }
    let help = run(["run", "--help"]).succeeds();
    for option in
        ["-r, --read", "-m, --module", "-w, --write", "--out", "--json", "--report", "--jobs", "FILTER"]
    {
        assert!(help.text().contains(option), "{option}");
    }
    assert!(help.text().contains("Exit status:\n") && help.text().contains("Examples:"));
    for status in ["0", "1", "2", "3", "70"] {
        assert!(help.text().lines().any(|line| line.starts_with(&format!("  {status:<3}"))), "{status}");
    }
    assert_eq!(run(["--version"]).succeeds().text(), concat!("weir ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn usage_errors_exit_with_2_and_a_message() {
    let capture = capture();
    let wrong = |arguments: &[&str], says: &[&str]| {
        let ended = run(arguments).fails(2, says);
        assert_eq!(ended.text(), "");
    };
    wrong(&[], &["Usage: weir"]);
    wrong(&["fly"], &["fly"]);
    wrong(&["run"], &["--read <FILE>"]);
    wrong(&["run", "-r"], &["--read <FILE>"]);
    wrong(&["run", "-r", &capture, "--jsom"], &["--jsom", "--json"]);
    wrong(&["run", "-r", &capture, "-Z"], &["-Z"]);
    wrong(&["run", "-r", &capture, "--jobs", "0"], &["--jobs"]);
    wrong(&["run", "-r", &capture, "--jobs", "many"], &["--jobs"]);
    wrong(&["run", "-r", &capture, "--call-limit", "soon"], &["`soon` is not a duration"]);
    wrong(&["run", "-r", &capture, "-m", "nothing"], &["there is no module `nothing`", "port-count"]);
    wrong(&["run", "-r", &capture, "-m", "rrt"], &["there is no module `rrt` (did you mean `rtt`?)"]);
    wrong(&["run", "-r", &capture, "-m", "sin-flood"], &["did you mean `syn-flood`?"]);
    wrong(&[&capture, "-m", "rtt"], &[&format!("did you mean `weir run -r {capture}`?")]);
    wrong(&["theirs.wasm"], &["did you mean `weir check theirs.wasm`?"]);
    wrong(&["run", "-r", &capture, "tcp prot 80"], &["\n  tcp prot 80\n      ^^^^\n"]);
    wrong(&["run", "-r", &capture, "-m", ""], &["`-m ` names no module", "port-count"]);
    wrong(&["run", "-r", &capture, "-m", "rtt,"], &["`-m rtt,`", "nothing after a comma"]);
    wrong(&["run", "-r", &capture, "-m", "port-count,ports=53,x"], &["`x` is not an unsigned integer"]);
    wrong(
        &["run", "-r", &capture, "-m", "port-count,ports="],
        &["an empty value is not an unsigned integer"],
    );
    wrong(&["run", &capture], &["--read <FILE>", &format!("did you mean `-r {capture}`?")]);
    wrong(&["run", "-r", &capture, "tcp", "--json"], &["`--json`", "come before the filter"]);
    wrong(&["run", "-r", &capture, "tcp", "prot", "80"], &["`tcp prot 80`", "syntax error", "pcap-filter"]);
    wrong(&["run", "-r", &capture, "host no.such.host.invalid"], &["no.such.host.invalid"]);
    wrong(&["run", "-r", &capture, "-m", "rtt,table-size=3"], &["`table-size`", "3 is outside 256 to"]);
    wrong(&["check", "rtt,table-size"], &["`table-size`", "KEY=VALUE"]);
    wrong(&["check"], &["MODULE"]);
    wrong(&["check", "nothing"], &["there is no module `nothing`"]);
    wrong(&["modules", "nothing"], &["there is no module `nothing`"]);
    wrong(&["new", "x", "--lang", "cobol"], &["cobol", "c, rust"]);
    // A missing capture is not a usage error, and usage errors are reported first.
    run(["run", "-r", "/no/such/file"]).fails(1, &["/no/such/file"]);
}

#[test]
fn options_are_written_as_in_tcpdump() {
    let capture = capture();
    let all = run(["run", "-r", &capture, "-m", "port-count", "--json"]).succeeds().json();
    let short = run(["run", &format!("-r{capture}"), "-mport-count", "-j1", "--json"]).succeeds().json();
    assert_eq!(counts(&all), counts(&short));
    // The filter follows the options, as one argument or several, and may have minus signs.
    let udp = counts(&all)[2];
    for filter in [
        &["udp"][..],
        &["udp", "and", "ip[2:2]", "-", "1", "<", "70000"],
        &["udp and len - 1 > 0"],
        &["--", "udp"],
    ] {
        let begin = ["run", "-r", &capture, "-m", "port-count", "--json", "-j", "2"];
        let document = run(begin.iter().chain(filter)).succeeds().json();
        let packets = number(module(&document, "port-count"), "packets");
        assert!(packets > udp / 2 && packets < counts(&all)[0] / 2, "{filter:?}: {packets} of {udp}");
        assert_eq!(counts(&document), counts(&all), "a filter hides nothing");
    }
}

#[test]
fn a_filter_that_does_not_fit_the_capture_is_a_usage_error_and_writes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, out) = (folder.path().join("raw.pcap"), folder.path().join("out"));
    // A capture of raw IP without packets.
    let header: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 101];
    fs::write(&raw, header.map(u32::to_le_bytes).concat()).unwrap();
    let arguments = |filter: &'static str| {
        let begin = [Path::new("run"), Path::new("-r"), &raw, Path::new("-mrtt"), Path::new("--out"), &out];
        begin.into_iter().map(Path::to_owned).chain([filter.into()]).collect::<Vec<_>>()
    };
    run(arguments("ether host 02:00:00:00:00:01")).fails(2, &["ether host", "link type 101 (raw IP)"]);
    assert!(!out.exists());
    run(arguments("tcp")).succeeds();
    assert!(out.is_dir());
}

#[test]
fn a_filter_that_selects_nothing_and_a_module_that_changes_nothing_are_reported() {
    let capture = capture();
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("marked.pcap");
    let ended = run(["run", "-r", &capture, "-m", "rtt", "--json", "tcp port 9"]).succeeds();
    ended.reports("the filter `tcp port 9` selects none of the").json();
    let mark = |source: &str| {
        let module = format!("dscp-mark,source={source},dscp=46");
        run(["run", "-r", &capture, "-m", &module, "-w", written.to_str().unwrap()]).succeeds().stderr
    };
    assert!(mark("233.252.0.0/24").contains("dscp-mark: it changed and dropped none of the packets"));
    assert_eq!(mark("0.0.0.0/0"), "");
}

#[test]
fn shipped_modules_are_listed_shown_and_checked() {
    let list = run(["modules"]).succeeds();
    for name in DEFAULT.into_iter().chain(OTHERS) {
        let mark = if DEFAULT.contains(&name) { '*' } else { ' ' };
        assert!(list.text().lines().any(|line| line.starts_with(&format!("{mark} {name} "))), "{name}");
        let shown = run(["modules", name]).succeeds();
        assert!(shown.text().starts_with(&format!("{name} 1.")), "{}", shown.text());
        assert!(shown.text().contains("Streams:") && shown.text().contains("licence Apache-2.0 OR MIT"));
        let checked = run(["check", name]).succeeds();
        assert!(
            checked.text().contains("Admitted") && checked.text().contains("Tier: "),
            "{}",
            checked.text()
        );
    }
    let rtt = run(["modules", "rtt"]).succeeds();
    assert!(
        rtt.text().contains("table-size (u64, entries, 256 to 1048576; default 65536)"),
        "{}",
        rtt.text()
    );
    let set = run(["check", "port-count,ports=1,2,3,interval=2s"]).succeeds();
    assert!(set.text().contains("Set:  ports=1,2,3 interval=2s"), "{}", set.text());
    // Without -m the default modules run.
    let document = run(["run", "-r", &capture(), "--json"]).succeeds().json();
    let names: Vec<_> =
        document["modules"].as_array().unwrap().iter().map(|module| &module["name"]).collect();
    assert_eq!(names, DEFAULT);
}

#[test]
fn a_new_module_is_built_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let weir_there = |arguments: &[&str]| finish(weir().args(arguments).current_dir(folder.path()), None);
    let made = weir_there(&["new", "mine", "--lang", "c"]).succeeds();
    assert!(made.text().contains("Next: weir build mine"), "{}", made.text());
    weir_there(&["new", "mine"]).fails(1, &["mine"]);
    weir_there(&["new", "Not A Name"]).fails(1, &["is not a name"]);
    weir_there(&["build", "nowhere"]).fails(1, &["nowhere", "weir.toml"]);
    if !["clang-19", "clang"].into_iter().any(outside::has) {
        return;
    }
    let built = weir_there(&["build", "mine"]).succeeds();
    assert!(built.text().contains("mine/mine.wasm: mine 0.1.0"), "{}", built.text());
    weir_there(&["check", "mine"]).fails(2, &["mine is a folder", "did you mean mine/mine.wasm?"]);
    weir_there(&["check", "mine/mine.wasm"]).succeeds();
    let ended = weir_there(&["run", "-r", &capture(), "-m", "mine/mine.wasm", "--json", "--out", "records"])
        .succeeds();
    let mine = module(&ended.json(), "mine").clone();
    assert_eq!((number(&mine, "packets"), number(&mine, "faults")), (counts(&ended.json())[0], 0));
    assert!(number(&mine, "records") > 0);
    assert!(folder.path().join(mine["streams"][0]["path"].as_str().unwrap()).is_file());
    // An error in the source is reported with its line.
    let source = folder.path().join("mine/mine.c");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(&source, format!("{text}\nint broken(void) {{ return nothing; }}\n")).unwrap();
    let line = text.lines().count() + 2;
    weir_there(&["build", "mine"]).fails(1, &[&format!("mine.c:{line}"), "nothing"]);
}

#[test]
fn manuals_and_completions_are_generated_from_the_command_definitions() {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("man");
    run([Path::new("man"), &man]).succeeds();
    let commands = ["run", "modules", "check", "compile", "calibrate", "new", "build"];
    for page in ["weir".to_owned()].into_iter().chain(commands.map(|command| format!("weir-{command}"))) {
        let text = fs::read_to_string(man.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".TH") && text.contains(".SH NAME"), "{page}");
    }
    run(["man", "/proc/nowhere"]).fails(1, &["/proc/nowhere", "manual pages"]);
    let page = fs::read_to_string(man.join("weir-run.1")).unwrap();
    assert!(
        page.contains("\\-\\-report") && page.contains("\\-\\-call\\-limit") && page.contains("Exit status"),
        "{page}"
    );
    for (shell, needs) in
        [("bash", "complete -F _weir"), ("zsh", "#compdef weir"), ("fish", "complete -c weir")]
    {
        let ended = run(["completions", shell]).succeeds();
        assert!(ended.text().contains(needs) && ended.text().contains("call-limit"), "{shell}");
    }
    if outside::has("bash") {
        let script = folder.path().join("weir.bash");
        fs::write(&script, run(["completions", "bash"]).succeeds().stdout).unwrap();
        let complete = r#"source "$1"; COMP_WORDS=(weir run --rep); COMP_CWORD=2; _weir weir --rep run; echo "${COMPREPLY[@]}""#;
        let offered = outside::output(Command::new("bash").args(["-c", complete, "bash"]).arg(&script));
        assert_eq!(offered.trim(), "--report");
    }
}

#[test]
fn there_is_no_progress_bar_without_a_terminal() {
    let ended = run(["run", "-r", &capture()]).succeeds();
    assert_eq!(ended.stderr, "");
    assert!(!ended.text().contains('\x1b') && !ended.text().contains('\r'));
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    for arguments in [
        &["run", "--json", "-r", &capture()][..],
        &["modules"],
        &["modules", "rtt"],
        &["check", "rtt", "--annotate"],
        &["compile", "rtt", "--explain"],
        &["completions", "bash"],
    ] {
        // The reading end is closed before the program writes.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = weir().args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
    // For packets it is an error, as the reader gets fewer than there are.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output =
        weir().args(["run", "-m", "rtt", "-w", "-", "-r", &capture()]).stdout(writer).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("Broken pipe"), "{stderr}");
}

/// Names and arguments with characters that would set a terminal's title, start a new line, ring the bell, set a colour, and change the direction of writing.
#[test]
fn control_characters_in_names_and_arguments_are_escaped_in_messages_and_reports() {
    const EVIL: &str = "\u{1b}]0;title\u{7}\nweir: fine\r\u{9b}31m\u{202e}";
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(EVIL);
    fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let good = fs::read(sample()).unwrap();
    for (name, bytes) in [
        ("ok.pcap", &good[..]),
        ("cut.pcap", &good[..good.len() - 5]),
        ("no.pcap", b"this is no capture"),
        ("m.wasm", b"this is no module"),
        ("text", b"\x1b]0;x\x07 = ["),
    ] {
        fs::write(folder.join(name), bytes).unwrap();
    }
    fs::create_dir(folder.join("sub")).unwrap();
    let config = format!(
        "[node]\nsocket = '{0}/s'\nstate = '{0}'\n[[session]]\nname = 's'\ncpu = [{{ period = '10ms', slice = '1ms' }}]\n\
         channel = [{{ interface = \"e\\u001b[31m\", filter = \"\\u001b[31m\" }}]\nmodule = [{{ module = \"\\u001b[31m\" }}]\n",
        home.path().display()
    );
    fs::write(folder.join("node.toml"), config).unwrap();
    let (capture, evil_word) = (at("ok.pcap"), format!("x{EVIL}"));
    let capture = capture.as_str();
    let with = |option: &str, name: &str| format!("{option}={}", at(name));
    let mut shown = 0;
    let mut look = |code: i32, arguments: &[&str]| {
        let ended = finish(weir().args(arguments).env("XDG_RUNTIME_DIR", home.path()), None);
        let out = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.stderr);
        for text in [&out, &ended.stderr] {
            assert!(!run::process::has_controls(text), "{arguments:?}: {text:?}");
            // A line break in the name could fake a message of weir.
            assert!(!text.lines().any(|line| line.starts_with("weir: fine")), "{arguments:?}: {text}");
        }
        let all = out + &ended.stderr;
        assert!(
            all.contains(r"\u{1b}") || all.contains(r"\u001b"),
            "{arguments:?}: the message names its subject"
        );
        shown += 1;
    };
    let (out, page, written) = (at("out"), at("page.html"), at("w.pcap"));
    look(
        0,
        &["run", "-r", capture, "-m", "port-count", "-w", &written, "--out", &out, "--report", &page, "tcp"],
    );
    look(0, &["run", "-r", &at("cut.pcap"), "-m", "rtt", "--report", &page]);
    let report = fs::read_to_string(&page).unwrap();
    assert!(report.contains(r"\u{1b}]0;title") && !run::process::has_controls(&report));
    for name in ["none.pcap", "no.pcap", "sub"] {
        look(1, &["run", "-r", &at(name)]);
    }
    look(1, &["run", "-r", capture, "-w", capture]);
    look(1, &["run", "-r", capture, "--report", capture]);
    look(2, &["run", "-r", capture, "-w", &page, "--report", &page]);
    look(1, &["run", "-r", capture, "-w", &at("none/w.pcap")]);
    look(1, &["run", "-r", capture, "--out", &at("text")]);
    look(2, &["run", "-r", capture, &evil_word]);
    look(2, &["run", "-r", capture, "tcp", "port", EVIL]);
    look(2, &["run", "-r", capture, &format!("--{evil_word}")]);
    look(2, &["run", "-r", capture, "--jobs", EVIL]);
    look(2, &["run", "-r", capture, "--call-limit", EVIL]);
    look(2, &[&evil_word]);
    look(1, &["run", "-i", &evil_word]);
    look(1, &["run", "-r", capture, "-m", &at("m.wasm")]);
    look(1, &["run", "-r", capture, "-m", &at("none.wasm")]);
    look(2, &["run", "-r", capture, "-m", &at("sub")]);
    look(2, &["run", "-r", capture, "-m", &evil_word]);
    look(2, &["run", "-r", capture, "-m", &format!("lrd,{evil_word}")]);
    look(2, &["run", "-r", capture, "-m", &format!("lrd,bin={evil_word}")]);
    look(2, &["run", "-r", capture, "--table", &evil_word]);
    look(2, &["run", "-r", capture, "--table", &format!("t={}", at("none"))]);
    for name in ["text", "none"] {
        look(2, &["run", "-r", capture, "--profile", &at(name)]);
        look(1, &["config", "check", &at(name)]);
        look(1, &["node", "-c", &at(name)]);
        look(1, &["credential", "show", &at(name)]);
        look(1, &["policy", "check", &at(name)]);
        look(1, &["session", "list", &with("--socket", name)]);
        look(1, &["ledger", "-c", &at(name)]);
    }
    look(1, &["config", "check", &at("node.toml")]);
    for name in ["m.wasm", "none.wasm"] {
        look(1, &["check", &at(name)]);
        look(1, &["check", "--json", &at(name)]);
    }
    look(2, &["modules", &evil_word]);
    look(1, &["build", &at("sub")]);
    look(1, &["new", &evil_word]);
    look(0, &["new", &at("new-one")]);
    fs::write(folder.join("new-one/weir.toml"), EVIL).unwrap();
    look(1, &["build", &at("new-one")]);
    look(1, &["key", "show", &at("none")]);
    look(1, &["sign", &at("m.wasm"), &with("--key", "none")]);
    assert!(shown > 50);
}
