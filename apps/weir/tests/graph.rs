//! Tests of `weir graph`.

mod control;
mod live;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn graph(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(folder)
        .arg("graph")
        .args(arguments)
        .env_remove("CLICKPATH")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn flatten(folder: &Path, arguments: &[&str], input: &str) -> Result<String, (Option<i32>, String)> {
    let output = graph(folder, &[&["flatten"], arguments].concat(), input);
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err((output.status.code(), String::from_utf8(output.stderr).unwrap())),
    }
}

const ROUTER: &str =
    "define($DEVICE eth0);\nelementclass B { -> Queue -> }\n\nFromDevice($DEVICE) -> b :: B -> Discard;\n";

#[test]
fn configurations_of_files_expressions_and_standard_input_are_flattened() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("r.click"), ROUTER).unwrap();
    let plain = |device: &str| {
        format!(
            "FromDevice@1 :: FromDevice({device});\nDiscard@3 :: Discard;\nb/Queue@1 :: Queue;\n\n\
             FromDevice@1 -> b/Queue@1\n    -> Discard@3;\n"
        )
    };
    assert_eq!(flatten(at, &["r.click", "--plain"], ""), Ok(plain("eth0")));
    assert_eq!(flatten(at, &["DEVICE=eth7", "r.click", "--plain"], ""), Ok(plain("eth7")));
    assert_eq!(flatten(at, &["--plain", "-e", ROUTER], ""), Ok(plain("eth0")));
    assert_eq!(flatten(at, &["--plain", "-"], ROUTER), Ok(plain("eth0")));
    assert_eq!(flatten(at, &["--plain"], ROUTER), Ok(plain("eth0")));

    let directives = "# 4 \"r.click\"\nFromDevice@1 :: FromDevice(eth0);\n# 4 \"r.click\"\nDiscard@3 :: Discard;\n\
                      # 2 \"r.click\"\nb/Queue@1 :: Queue;\n# 8 \"\"\nFromDevice@1 -> b/Queue@1\n    -> Discard@3;\n";
    assert_eq!(flatten(at, &["r.click"], ""), Ok(directives.to_owned()));
    assert_eq!(flatten(at, &["r.click", "-o", "flat.click"], ""), Ok(String::new()));
    assert_eq!(std::fs::read_to_string(at.join("flat.click")).unwrap(), directives);
    // What is flat stays the same, line directives included.
    assert_eq!(flatten(at, &["flat.click"], ""), Ok(directives.to_owned()));
}

#[test]
fn libraries_are_found_beside_the_configuration_and_in_clickpath() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::create_dir_all(at.join("lib/conf")).unwrap();
    std::fs::create_dir_all(at.join("sub")).unwrap();
    std::fs::write(at.join("lib/conf/one.click"), "elementclass One { x :: X }").unwrap();
    std::fs::write(at.join("sub/two.click"), "elementclass Two { y :: Y }").unwrap();
    std::fs::write(
        at.join("sub/r.click"),
        "require(library one.click, library two.click) a :: One; b :: Two",
    )
    .unwrap();
    let flat = "a/x :: X;\nb/y :: Y;\n\n";
    assert_eq!(flatten(at, &["--plain", "-C", "/nothing:lib", "sub/r.click"], ""), Ok(flat.to_owned()));
    let (status, message) = flatten(at, &["sub/r.click"], "").unwrap_err();
    assert_eq!(status, Some(1));
    assert!(message.starts_with("sub/r.click:1: library 'one.click' not found"), "{message}");
}

#[test]
fn all_errors_are_printed_and_the_status_is_1() {
    let folder = tempfile::tempdir().unwrap();
    let (status, message) = flatten(folder.path(), &["-e", "x -> A;\n\ny -> A ->;"], "").unwrap_err();
    assert_eq!(status, Some(1));
    assert_eq!(
        message,
        "config:1: undeclared element 'x'\nconfig:3: undeclared element 'y'\nconfig:3: syntax error near ';'\nweir: config: 3 errors\n"
    );
    let usage = flatten(folder.path(), &["-e", "A", "r.click"], "").unwrap_err();
    assert_eq!(usage.0, Some(2));
    assert!(usage.1.contains("`r.click` is a second configuration"), "{}", usage.1);
    let missing = flatten(folder.path(), &["r.click"], "").unwrap_err();
    assert_eq!(missing.0, Some(1));
    assert!(missing.1.starts_with("weir: r.click: No such file"), "{}", missing.1);
    let bad = flatten(folder.path(), &["-e", "A($x)", "x=)"], "").unwrap_err();
    assert!(bad.1.contains("after substitution, 'x=)'"), "{}", bad.1);
}

#[test]
fn archives_keep_their_other_members() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("config"), "a :: A -> { -> B -> } -> C").unwrap();
    std::fs::write(at.join("notes"), "odd").unwrap();
    let ar = |arguments: &[&str]| Command::new("ar").args(arguments).current_dir(at).output();
    if !ar(&["rcS", "r.a", "config", "notes"]).is_ok_and(|output| output.status.success()) {
        return;
    }
    assert_eq!(flatten(at, &["r.a", "-o", "flat.a", "--plain"], ""), Ok(String::new()));
    assert_eq!(ar(&["p", "flat.a", "notes"]).unwrap().stdout, b"odd");
    let config = String::from_utf8(ar(&["p", "flat.a", "config"]).unwrap().stdout).unwrap();
    assert!(config.contains("@2/B@1 :: B;\n"), "{config}");
}

#[test]
fn the_help_has_examples_that_work() {
    let folder = tempfile::tempdir().unwrap();
    let help = graph(folder.path(), &["flatten", "--help"], "");
    let help = String::from_utf8(help.stdout).unwrap();
    let example = help.lines().find(|line| line.contains("-e '")).unwrap();
    let text = example.split('\'').nth(1).unwrap();
    assert!(flatten(folder.path(), &["-e", text, "--plain"], "").unwrap().contains(":: Queue;\n"), "{help}");
}

/// Returns the output of a command that ends without an error.
fn ok(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_graph_runs_over_a_capture_and_its_handlers_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap");
    let sample = sample.to_str().unwrap();
    let text = format!("FromDump({sample}, STOP true) -> c :: Counter -> ToDump(out.pcap)");
    let run = |more: &[&str]| graph(at, &[&["run", "-e", &text], more].concat(), "");
    let count = ok(run(&["-h", "c.count"]));
    // The written capture has the same packets.
    assert_eq!(std::fs::read(at.join("out.pcap")).unwrap().len(), std::fs::read(sample).unwrap().len());
    let again = "FromDump(out.pcap) -> c :: Counter -> Discard";
    assert_eq!(ok(graph(at, &["run", "-e", again, "-h", "c.count"], "")), count);
    assert_eq!(ok(run(&["--batch", "1", "--simtime", "-h", "c.count"])), count);
    let named = ok(run(&["-h", "*.count", "-o", "counts"]));
    assert_eq!(named, "");
    let counts = std::fs::read_to_string(at.join("counts")).unwrap();
    assert!(counts.contains(&format!("c.count:\n{count}\n")), "{counts}");
    // Without a run.
    assert_eq!(ok(run(&["-q", "-h", "c.count"])), "0\n");
}

/// In a simulation, each look at the clock takes a nanosecond; here time passes by itself.
#[test]
fn a_run_begins_at_the_time_of_day_and_timers_wait() {
    let folder = tempfile::tempdir().unwrap();
    let before = std::time::Instant::now();
    let text = "TimedSource(0.1s, LIMIT 5, STOP true) -> c :: Counter -> Discard; Idle -> a :: AverageCounter -> Discard;\
                Script(print $(gt $(now) 1600000000))";
    let output = ok(graph(folder.path(), &["run", "-e", text, "-h", "c.count"], ""));
    assert_eq!(output, "true\n5\n");
    assert!(before.elapsed().as_millis() >= 40, "five packets in {:?}", before.elapsed());
}

#[test]
fn the_exit_status_tells_a_false_handler_a_missing_one_and_a_wrong_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let run = |text: &str, more: &[&str]| {
        let output = graph(folder.path(), &[&["run", "-e", text], more].concat(), "");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let source = "s :: InfiniteSource(LIMIT 3) -> Discard";
    assert_eq!(run(source, &["-x", "s.active"]).0, Some(0));
    assert_eq!(run("s :: InfiniteSource(ACTIVE false) -> Discard", &["-x", "s.active"]).0, Some(1));
    let (status, error) = run(source, &["-h", "s.cuont"]);
    assert_eq!(status, Some(1));
    assert!(error.contains("no handler named 's.cuont' (did you mean 'count'?)"), "{error}");
    let (status, error) = run("FromDmup(x) -> Discard", &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("FromDmup"), "{error}");
    let (status, error) = run("Idle -> Queue(many) -> Discard", &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("config:1: While configuring 'Queue@2 :: Queue':\n  CAPACITY: "), "{error}");
    let (status, error) = run("FromDump(missing.pcap) -> Discard", &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("missing.pcap"), "{error}");
    let (status, error) = run("Idle -> a :: Queue -> b :: Queue -> Discard", &[]);
    assert_eq!(status, Some(1));
    assert!(error.contains("'a' pull output 0 is connected to 'b' push input 0"), "{error}");
    // Without a source of packets, nothing is ever to do.
    assert_eq!(run("Idle -> Counter -> Unqueue -> Discard", &[]).0, Some(0));
}

#[test]
fn a_check_tells_where_packets_go_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| ok(graph(folder.path(), &["check", "-e", text], ""));
    let all = check("FromDump(x) -> Counter -> t :: Tee -> Discard; t[1] -> ToDump(y)");
    assert!(all.contains("4 of 4 elements get pushed packets in batches: 100 %"), "{all}");
    // Two elements print, so their order can be seen.
    let printing = check("FromDump(x) -> a :: Print -> b :: Print -> Discard");
    assert!(printing.contains("0 of 3 elements"), "{printing}");
    assert!(printing.contains("the effects of a :: Print and b :: Print can be seen"), "{printing}");
}

#[test]
fn the_manual_of_each_element_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let list = ok(graph(folder.path(), &["elements"], ""));
    assert!(list.contains("  Counter "), "{list}");
    let manual = ok(graph(folder.path(), &["elements", "Counter"], ""));
    assert!(
        manual.starts_with("Counter: counts packets and bytes\n") && manual.contains("COUNT_CALL"),
        "{manual}"
    );
    let unknown = graph(folder.path(), &["elements", "Conuter"], "");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("did you mean `Counter`?"));
}

#[test]
fn a_test_of_a_graph_is_passed_or_names_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let test = "Counts.\n--- graph\nFromDump(in) -> c :: Counter -> Discard;\n--- capture in\n1.0 00\n--- handlers\nc.count 1\n";
    std::fs::write(folder.path().join("good.test"), test).unwrap();
    std::fs::write(folder.path().join("bad.test"), test.replace("c.count 1", "c.count 2")).unwrap();
    assert_eq!(ok(graph(folder.path(), &["test", "good.test"], "")), "passed: good.test: Counts.\n");
    let both = graph(folder.path(), &["test", "good.test", "bad.test"], "");
    assert_eq!(both.status.code(), Some(1));
    let text = String::from_utf8(both.stdout).unwrap();
    assert!(
        text.contains("FAILED: bad.test: with batches of 1: c.count\n  expected: 2\n  found:    1"),
        "{text}"
    );
    assert!(String::from_utf8_lossy(&both.stderr).contains("1 of 2 tests are not passed"));
}

/// `WEIR_WRITE=1 cargo test -p weir --test weir graph` writes the picture of docs/CLICK.md.
#[test]
fn the_picture_of_the_manual_is_that_of_its_configuration() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let manual = std::fs::read_to_string(docs.join("CLICK.md")).unwrap();
    let from = manual.find("    elementclass Limited").unwrap();
    let configuration = manual[from..].split("\n\n").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("limited.click"), configuration).unwrap();
    let drawn = ok(graph(folder.path(), &["draw", "limited.click"], ""));
    let path = docs.join("images/limited.svg");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == drawn, "WEIR_WRITE=1 writes {}", path.display());
    // The configuration is one that runs.
    ok(graph(folder.path(), &["check", "limited.click"], ""));
}

#[test]
fn a_configuration_is_drawn_to_a_file_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = "Idle -> q :: Queue -> Discard; q2 :: NoSuchClass(\"<b>\") -> q";
    assert_eq!(ok(graph(at, &["draw", "-e", text, "-o", "g.svg"], "")), "");
    let svg = std::fs::read_to_string(at.join("g.svg")).unwrap();
    assert!(
        svg.contains("NoSuchClass") && svg.contains("class=\"line pull\"") && !svg.contains("<b>"),
        "{svg}"
    );
    let dot = ok(graph(at, &["draw", "-e", text, "--format", "dot"], ""));
    assert!(dot.contains("style=dashed") && dot.contains("style=solid"), "{dot}");
    let wrong = graph(at, &["draw", "-e", "Idle -> a :: Queue -> b :: Queue -> Discard"], "");
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(error.contains("'a' pull output 0 is connected to 'b' push input 0"), "{error}");
    let large = "Idle -> Discard;".repeat(3_000);
    let error = String::from_utf8(graph(at, &["draw", "-"], &large).stderr).unwrap();
    assert!(error.contains("<stdin>: the picture would have 6000 boxes, and can have 5000"), "{error}");
    // Compound elements are drawn as single boxes.
    let many = format!(
        "elementclass C {{ -> {} Null -> }} Idle -> {} Discard",
        "Null -> ".repeat(99),
        "C -> ".repeat(100)
    );
    let output = graph(at, &["draw", "-"], &many);
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(note.contains("100 compound elements are drawn as single boxes"), "{note}");
    assert_eq!(ok(output).matches(">100 elements<").count(), 100);
}

#[test]
fn a_graph_on_several_threads_has_the_results_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = "a :: InfiniteSource(LIMIT 100) -> c :: Counter; b :: InfiniteSource(LIMIT 50) -> c \
                -> q :: Queue -> u :: Unqueue -> d :: Counter -> Discard; StaticThreadSched(a 1, b 0, u 7);";
    let run = |arguments: &[&str]| {
        let output = graph(folder.path(), &[&["run", "-e", text], arguments].concat(), "");
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let handlers = ["-h", "c.count", "-h", "d.count", "-h", "*.drops"];
    let expected = "c.count:\n150\n\nd.count:\n150\n\nq.drops:\n0\n\n";
    for threads in ["1", "2", "4"] {
        let (values, warnings) = run(&[&["-w", "-j", threads], &handlers[..]].concat());
        assert_eq!((values.as_str(), warnings.as_str()), (expected, ""), "{threads} threads");
    }
    let shares = "a :: InfiniteSource(LIMIT 100) and b :: InfiniteSource(LIMIT 50) share c :: Counter: both run on thread 0\n";
    let beyond = "u :: Unqueue: there is no thread 7 with -j 2; it runs on thread 1\n";
    let (_, warnings) = run(&["-j", "2"]);
    assert_eq!(warnings, format!("warning: {shares}warning: {beyond}"));
    let (values, warnings) = run(&[&["--simtime", "-j", "2"], &handlers[..]].concat());
    assert_eq!(
        (values.as_str(), warnings.as_str()),
        (expected, "simulated time needs one thread: -j 2 has no effect\n")
    );

    let output = graph(folder.path(), &["run", "-e", text, "-o", "-", "-h", "d.count"], "");
    assert_eq!(ok(output), "150\n");
    assert!(!folder.path().join("-").exists());

    let output = graph(folder.path(), &["check", "-j", "2", "-e", text], "");
    let placement = "thread 0: 4 elements; with tasks or timers: a, b\n\
                     thread 1: 4 elements; with tasks or timers: u\n  q takes packets from thread 0 to thread 1\n";
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.ends_with(&format!("{placement}  {shares}  {beyond}")), "{shown}");
}
