//! `weir check` about fifty loops without a bound (`apps/author/tests/loops`): it names the line of the loop statement, and the form
//! of it that it prints has a bound.

use crate::run::{root, run};
use std::fs;
use std::path::Path;

/// Loops for which there is no one statement to write: functions that call themselves, a loop without an exit, and a loop of
/// `goto`.
const WITHOUT_FORM: [&str; 4] = ["endless", "goto_loop", "mutual_recursion", "recursion"];
/// Loops inside of a loop that has no bound either, and is named once the inner one has a bound.
const INSIDE_ANOTHER: [&str; 1] = ["lines"];

/// Writes a module into a folder, builds it, and returns what `weir check` prints.
fn checked(folder: &Path, name: &str, source: &str) -> String {
    let dir = folder.join(name);
    fs::create_dir_all(&dir).unwrap();
    let manifest =
        format!("name = '{name}'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nkind = 'filter'\n");
    fs::write(dir.join("weir.toml"), manifest).unwrap();
    fs::write(dir.join(format!("{name}.c")), source).unwrap();
    run(["build", dir.to_str().unwrap()]).succeeds();
    let module = dir.join(format!("{name}.wasm"));
    let printed = run(["check", module.to_str().unwrap()]).succeeds().text().to_owned();
    // The document has the same statement.
    let document = run(["check", "--json", module.to_str().unwrap()]).succeeds().json();
    let entries = document["entry_points"].as_array().unwrap().iter();
    let reasons = entries.flat_map(|entry| entry["unbounded"].as_array().unwrap());
    let mut statements = reasons.filter_map(|reason| reason["statement"]["bounded"].as_str()).peekable();
    match printed.split_once("Write: ").map(|(_, rest)| rest.lines().next().unwrap()) {
        Some(form) => assert!(statements.any(|bounded| bounded == form), "{name}: {form}: {document}"),
        None => assert_eq!(statements.peek(), None, "{name}"),
    }
    printed
}

#[test]
fn each_refused_loop_is_named_by_its_statement_and_the_printed_form_has_a_bound() {
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
        let name = stem.replace('_', "-");
        let source = fs::read_to_string(&path).unwrap();
        let printed = checked(home.path(), &name, &source);
        let lines: Vec<&str> = source.lines().collect();
        let marked = lines.iter().position(|line| line.ends_with("// loop"));
        let begin = lines.iter().position(|line| line.trim() == "// refused").unwrap();
        let line = marked.unwrap_or(begin + 1);
        let place = format!("{name}.c:{}", line + 1);
        if !WITHOUT_FORM.contains(&stem.as_str()) {
            let Some(form) = printed.split_once("Write: ").map(|(_, rest)| rest.lines().next().unwrap())
            else {
                wrong.push(format!("{stem}: no form\n{printed}"));
                continue;
            };
            if !printed.contains(&place) {
                wrong.push(format!("{stem}: not {place}\n{printed}"));
                continue;
            }
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            changed[line] = form.replace("MAX", "1024");
            if lines[line].trim_start().starts_with("do") {
                // The condition of the last line is in the first one now.
                let end =
                    (line..lines.len()).find(|at| lines[*at].trim_start().starts_with("} while")).unwrap();
                changed[end] = "}".to_owned();
            }
            let printed = checked(home.path(), &format!("{name}-new"), &changed.join("\n"));
            if printed.contains("Without a bound") != INSIDE_ANOTHER.contains(&stem.as_str()) {
                wrong.push(format!("{stem}: `{form}` has no bound\n{printed}"));
            } else if printed.contains("Without a bound")
                && printed.contains(&format!("-new.c:{}\n", line + 1))
            {
                wrong.push(format!("{stem}: the same line is named again\n{printed}"));
            }
        } else if !printed.contains("Without a bound") {
            wrong.push(format!("{stem}: it has a bound\n{printed}"));
        }
    }
    assert_eq!(loops, 50);
    assert!(wrong.is_empty(), "{} of 50:\n{}", wrong.len(), wrong.join("\n"));
}
