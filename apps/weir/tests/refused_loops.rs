//! `weir check` about loops without a bound (`apps/author/tests/loops`): it names the line of the loop statement, and the form of it
//! that it prints has a bound.

use crate::run::{root, run};
use std::fs;
use std::path::Path;

/// Functions that call themselves. The printed form is the head of a loop over a stack; what the function does in it is the author's,
/// and is in the file's rewriting.
const RECURSIVE: [&str; 3] = ["mutual_recursion", "recursion", "tree"];
/// Loops in C of which the compiler ends the second form by another counter than `rounds`, which has no limit (CHECK.md).
const COUNTER_REPLACED: [&str; 2] = ["entries_of_a_length_field", "ring_buffer"];
/// The most loops of one module that are refused one after the other: an outer loop is named once the inner one has a bound.
const ROUNDS_MAX: usize = 3;
/// The bound that the test states.
const MAX: &str = "128";

/// Around a loop in Rust.
const RUST_BEFORE: &str = "#![cfg_attr(target_arch = \"wasm32\", no_std)]\n#![forbid(unsafe_code)]\n#![allow(dead_code, unused_imports)]\n\
     #[path = \"../.weir/module.rs\"]\nmod module;\nuse weir_guest::{BoundedIterator, Packet, Verdict};\n\
     struct Loop { sum: u64, nodes: [[u8; 2]; 256] }\n";
const RUST_AFTER: &str = "impl Loop {\n    fn stop(&mut self, now: u64) { if self.sum == now { self.nodes[(now & 255) as usize][0] = 1; weir_guest::log(weir_guest::Level::Info, \"x\"); } }\n}\n\
     weir_guest::module! { state: Loop = Loop { sum: 0, nodes: [[0; 2]; 256] }; packet: Loop::packet; stop: Loop::stop; }\n";

/// The source of a module with one loop.
struct Source {
    name: String,
    is_rust: bool,
    lines: Vec<String>,
}

impl Source {
    /// The name of its file, as messages have it.
    fn file(&self) -> String {
        if self.is_rust { "src/lib.rs".to_owned() } else { format!("{}.c", self.name) }
    }

    /// Builds the module in a folder, and returns what `weir check` prints; `None` without a compiler.
    fn checked(&self, home: &Path) -> Option<String> {
        let dir = home.join(&self.name);
        if !dir.exists() {
            let lang = if self.is_rust { "rust" } else { "c" };
            run(["new", dir.to_str().unwrap(), "--lang", lang]).succeeds();
        }
        let manifest = format!(
            "name = '{}'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n",
            self.name
        );
        fs::write(dir.join("weir.toml"), manifest).unwrap();
        fs::write(dir.join(self.file()), self.lines.join("\n")).unwrap();
        let built = run(["build", dir.to_str().unwrap()]);
        if self.is_rust && built.stderr.contains("no Rust compiler for WebAssembly") {
            return None;
        }
        built.succeeds();
        let module = dir.join(format!("{}.wasm", self.name));
        let printed = run(["check", module.to_str().unwrap()]).succeeds().text().to_owned();
        // The document has the same statement.
        let document = run(["check", "--json", module.to_str().unwrap()]).succeeds().json();
        let entries = document["entry_points"].as_array().unwrap().iter();
        let reasons = entries.flat_map(|entry| entry["unbounded"].as_array().unwrap());
        let mut statements = reasons.filter_map(|reason| reason["statement"]["bounded"].as_str()).peekable();
        let form = form_of(&printed);
        assert_eq!(form.is_some(), statements.peek().is_some(), "{}: {printed}", self.name);
        assert!(
            form.is_none_or(|form| statements.any(|bounded| bounded == form)),
            "{}: {document}",
            self.name
        );
        Some(printed)
    }

    /// Replaces a line by the printed form.
    fn write(&mut self, line: usize, form: &str) {
        let is_do = self.lines[line].trim_start().starts_with("do");
        self.lines[line] = form.replace("MAX", MAX);
        if is_do {
            // The condition of the last line is in the first one now.
            let closes = |line: &String| line.trim_start().starts_with("} while");
            let end = line + self.lines[line..].iter().position(closes).unwrap();
            self.lines[end] = "}".to_owned();
        }
    }
}

/// Returns the first statement that `weir check` prints.
fn form_of(printed: &str) -> Option<&str> {
    printed.split_once("Write: ").map(|(_, rest)| rest.lines().next().unwrap())
}

/// Returns the line, from 0, that `weir check` names before the first statement.
fn line_of(printed: &str, file: &str) -> Option<usize> {
    let before = printed.split_once("Write: ")?.0;
    let (_, rest) = before.rsplit_once(&format!("({file}:"))?;
    rest.split_once(')')?.0.parse::<usize>().ok()?.checked_sub(1)
}

/// Returns the first form of the first statement that `weir check` prints.
fn bounded_form_of(printed: &str) -> Option<String> {
    form_of(printed).map(str::to_owned)
}

/// Returns the second form of the first statement that `weir check` prints, which ignores the rest, with its counter. Loops
/// without such a form keep the first one.
fn counted_form_of(printed: &str) -> Option<String> {
    let form = form_of(printed)?;
    let (_, rest) = printed.split_once("Write: ")?;
    let own = rest.split("Write: ").next()?;
    let Some((_, counted)) = own.split_once("Or:    ") else { return Some(form.to_owned()) };
    let counted = counted.lines().next()?;
    Some(if counted.contains("rounds++") {
        // The loop can be the body of an `if` without braces, so that no declaration can stand before it.
        format!("for (uint32_t rounds = 0, once = 1; once; once = 0) {counted}")
    } else {
        counted.to_owned()
    })
}

/// Applies the printed forms, one after the other, until the module is proved. Returns what is wrong.
fn follow_messages(
    home: &Path,
    mut source: Source,
    first: usize,
    form_of: fn(&str) -> Option<String>,
) -> Result<(), String> {
    let name = source.name.clone();
    let Some(mut printed) = source.checked(home) else { return Ok(()) };
    let mut written = Vec::new();
    for round in 0..ROUNDS_MAX {
        let Some(form) = form_of(&printed) else {
            return Err(format!("{name}: no form\n{printed}"));
        };
        let line = line_of(&printed, &source.file()).ok_or(format!("{name}: no line\n{printed}"))?;
        if round == 0 && line != first {
            return Err(format!("{name}: not line {}\n{printed}", first + 1));
        }
        if written.contains(&line) {
            return Err(format!("{name}: line {} is named again after `{form}`\n{printed}", line + 1));
        }
        source.write(line, &form);
        written.push(line);
        source.name = format!("{name}-{}", round + 1);
        printed = source.checked(home).unwrap();
        if printed.contains("Tier: proved") {
            return Ok(());
        }
    }
    Err(format!("{name}: not proved\n{printed}"))
}

#[test]
fn each_refused_loop_is_named_by_its_statement_and_the_printed_forms_have_a_bound() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (mut loops, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(root().join("apps/author/tests/loops")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        loops += 1;
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let marked = lines.iter().position(|line| line.ends_with("// loop"));
        let begin = lines.iter().position(|line| line.trim() == "// refused").unwrap();
        let first = marked.unwrap_or(begin + 1);
        let source = Source { name: stem.replace('_', "-"), is_rust: false, lines };
        if !RECURSIVE.contains(&stem.as_str()) {
            let ignoring =
                Source { name: format!("{}-or", source.name), is_rust: false, lines: source.lines.clone() };
            wrong.extend(follow_messages(home.path(), source, first, bounded_form_of).err());
            if !COUNTER_REPLACED.contains(&stem.as_str()) {
                wrong.extend(follow_messages(home.path(), ignoring, first, counted_form_of).err());
            }
            continue;
        }
        // The file's rewriting has the printed form, and is proved (apps/author/tests).
        let printed = source.checked(home.path()).unwrap();
        let form = form_of(&printed)
            .unwrap_or("no form")
            .replace("MAX", if stem == "recursion" { "256" } else { "1024" });
        if line_of(&printed, &source.file()) != Some(first) || !text.contains(&form) {
            wrong.push(format!("{stem}: {printed}"));
        }
    }
    assert!(loops >= 50, "{loops}");
    assert!(wrong.is_empty(), "{} of {loops}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_refused_loop_in_rust_is_proved_as_the_message_says() {
    let home = tempfile::tempdir().unwrap();
    let (mut loops, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(root().join("apps/author/tests/loops/rust")).unwrap() {
        let path = entry.unwrap().path();
        loops += 1;
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = [RUST_BEFORE, &fs::read_to_string(&path).unwrap(), RUST_AFTER].concat();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let first = lines.iter().position(|line| line.ends_with("// loop")).unwrap();
        let source = Source { name: stem.replace('_', "-"), is_rust: true, lines };
        if !RECURSIVE.contains(&stem.as_str()) {
            let ignoring =
                Source { name: format!("{}-or", source.name), is_rust: true, lines: source.lines.clone() };
            wrong.extend(follow_messages(home.path(), source, first, bounded_form_of).err());
            wrong.extend(follow_messages(home.path(), ignoring, first, counted_form_of).err());
            continue;
        }
        let Some(printed) = source.checked(home.path()) else { continue };
        let form = "for _ in (0u32..).bounded::<MAX>() { let Some(call) = count_calls.pop() else { break };";
        if line_of(&printed, &source.file()) != Some(first) || form_of(&printed) != Some(form) {
            wrong.push(format!("{stem}: {printed}"));
        }
    }
    assert!(loops >= 9, "{loops}");
    assert!(wrong.is_empty(), "{} of {loops}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_loop_over_the_limit_is_named_with_a_form_that_is_within_it() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let text = "#include \"weir.h\"\nstatic uint32_t len, sum;\nWEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{\n\
         \x20   const uint8_t *bytes = weir_bytes(p);\n    len += p->wire_len;\n    for (uint32_t i = 0; i < len / 12; i++)\n        sum += bytes[i * 12 & 15];\n\
         \x20   return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;\n}\n";
    let lines = text.lines().map(str::to_owned).collect();
    let mut source = Source { name: "long".to_owned(), is_rust: false, lines };
    let module = home.path().join("long/long.wasm");
    let build = |source: &Source| {
        let dir = home.path().join("long");
        if !dir.exists() {
            run(["new", dir.to_str().unwrap(), "--lang", "c"]).succeeds();
            let manifest =
                "name = 'long'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n";
            fs::write(dir.join("weir.toml"), manifest).unwrap();
        }
        fs::write(dir.join("long.c"), source.lines.join("\n")).unwrap();
        run(["build", dir.to_str().unwrap()]).succeeds();
        run(["check", module.to_str().unwrap()]).succeeds().text().to_owned()
    };
    let printed = build(&source);
    assert!(printed.contains("Over the limit:"), "{printed}");
    assert_eq!(line_of(&printed, "long.c"), Some(6), "{printed}");
    source.write(6, form_of(&printed).unwrap());
    let printed = build(&source);
    assert!(printed.contains("Tier: proved"), "{printed}");
}

#[test]
fn a_loop_with_a_limit_that_is_too_high_is_named_with_the_highest_that_fits() {
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("options");
    run(["new", dir.to_str().unwrap(), "--lang", "c"]).succeeds();
    let manifest =
        "name = 'options'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n";
    fs::write(dir.join("weir.toml"), manifest).unwrap();
    let profile = home.path().join("strict.toml");
    fs::write(&profile, "tiers = ['proved']\npacket = '2us'\nper-byte = '1ns'\n").unwrap();
    let [module, profile] = [dir.join("options.wasm"), profile].map(|path| path.to_str().unwrap().to_owned());
    let body = "{\n        if (bytes[at] == 0)\n            break;\n        sum += bytes[at];\n        at += 1u + bytes[at];\n    }";
    let check = |head: &str| {
        let source = format!(
            "#include \"weir.h\"\nWEIR_EXPORT(weir_packet) int32_t weir_packet(const struct weir_packet *p)\n{{\n\
             \x20   const uint8_t *bytes = weir_bytes(p);\n    const uint32_t end = p->cap_len;\n    uint32_t at = 0, n, sum = 0;\n    \
             {head} {body}\n    return (sum & 1) != 0 ? WEIR_DROP : WEIR_PASS;\n}}\n"
        );
        fs::write(dir.join("options.c"), source).unwrap();
        run(["build", dir.to_str().unwrap()]).succeeds();
        run(["check", &module, "--profile", &profile])
    };
    for (head, begin) in [
        ("for (n = 0; n < 900 && at < end; n++)", "for (n = 0; n < "),
        ("WEIR_WHILE(900, at < end)", "WEIR_WHILE("),
    ] {
        let refused = check(head).fails(1, &["its limit"]);
        let printed = refused.text();
        assert!(printed.contains("Over the limit:\n  weir_packet (options.c:7)\n"), "{printed}");
        let over = printed.split_once("Over the limit:").unwrap().1;
        let fits = over.split_once("at most ").unwrap().1;
        let most: u64 =
            fits.split_once(" iterations fit this limit: lower 900 to ").unwrap().0.parse().unwrap();
        let form = form_of(printed).unwrap().to_owned();
        assert!(form.starts_with(&format!("{begin}{most}")) && most > 20, "{printed}");
        check(form.trim_end_matches(" {")).succeeds();
        // A tenth more does not fit.
        check(&head.replace("900", &(most * 11 / 10).to_string())).fails(1, &["its limit"]);
    }
}
