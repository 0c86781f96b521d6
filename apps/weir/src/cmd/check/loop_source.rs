//! The loop statement in the author's source around a line, and a form of it that has a bound.
//!
//! Debug information names the line of some instruction of a loop, often within its body. Authors look for the line with `for`,
//! `while` or `do`.

use super::source::Sources;
use weir_bounds::{CodeLocation, UnboundedCause, UnboundedReason};

/// The loop statement around a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatement {
    /// The line of the statement, from 1.
    pub line: u32,
    /// The statement's first line in a form that has a bound, or words about it.
    pub bounded: String,
}

/// The most lines of the head of a loop.
const HEAD_LINES_MAX: usize = 8;

/// The functions of Rust's iterators that contain a loop.
const CONSUMERS: [&str; 22] = [
    ".all(",
    ".any(",
    ".count()",
    ".eq(",
    ".find(",
    ".find_map(",
    ".fold(",
    ".for_each(",
    ".last()",
    ".max()",
    ".max_by(",
    ".max_by_key(",
    ".min()",
    ".min_by(",
    ".min_by_key(",
    ".nth(",
    ".position(",
    ".product()",
    ".reduce(",
    ".sum()",
    ".sum::<",
    ".try_fold(",
];

/// The most lines between a loop statement and a line of its body.
const LINES_MAX: usize = 200;

/// The language of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Rust,
}

impl Language {
    fn of(file: &str) -> Self {
        if file.ends_with(".rs") { Self::Rust } else { Self::C }
    }
}

/// Returns the statement of a loop without a bound, or the loop that can stand for a function that calls itself, if its source is
/// there and is not newer than the module.
pub fn statement_of(reason: &UnboundedReason, sources: &Sources) -> Option<LoopStatement> {
    if let UnboundedCause::Recursion(cycle) = &reason.cause {
        let line = reason.place.line.as_ref()?;
        let bounded = loop_of_calls(Language::of(&line.file), cycle.first()?)?;
        return Some(LoopStatement { line: line.line, bounded });
    }
    if reason.cause.is_of_loop() { statement_at(&reason.place, sources) } else { None }
}

/// Returns the innermost loop statement around a place, if its source is there and is not newer than the module.
pub fn statement_at(place: &CodeLocation, sources: &Sources) -> Option<LoopStatement> {
    let line = place.line.as_ref()?;
    let source = sources.read(&line.file).filter(|source| !source.is_newer)?;
    loop_around(&line.file, &source.text, line.line)
}

/// Returns the head of a loop over a stack with the arguments of a function's calls; `None` for a name that no function of a source
/// has. Names come from the module.
fn loop_of_calls(language: Language, function: &str) -> Option<String> {
    let name = function.rsplit("::").next().unwrap_or(function);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_plain) {
        return None;
    }
    Some(match language {
        Language::C => format!("WEIR_WHILE(MAX, {name}_calls_pop(&call)) {{"),
        Language::Rust => format!(
            "for _ in (0u32..).bounded::<MAX>() {{ let Some(call) = {name}_calls.pop() else {{ break }};"
        ),
    })
}

/// Returns the innermost loop statement of a source file that contains a line, from 1. `None` if no line above begins a loop,
/// as with a loop that the compiler made of recursive calls.
fn loop_around(file: &str, text: &str, line: u32) -> Option<LoopStatement> {
    let language = Language::of(file);
    let lines: Vec<&str> = text.lines().collect();
    let at = usize::try_from(line).ok()?.checked_sub(1)?;
    lines.get(at)?;
    let first = at.saturating_sub(LINES_MAX);
    (first..=at).rev().find_map(|start| {
        let bounded = bounded_form(language, &lines, start)?;
        let contains = start == at || at <= last_line(&lines, start);
        contains.then(|| LoopStatement { line: u32::try_from(start + 1).unwrap_or(line), bounded })
    })
}

/// Returns the last line of the statement that begins at a line: the lines after it that are indented further, and the line
/// that closes its braces.
fn last_line(lines: &[&str], start: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = lines.get(start).map_or(0, |line| indent(line));
    let is_inside = |line: &&&str| line.trim().is_empty() || indent(line) > own;
    let label = lines.get(start).and_then(|line| line.trim().split_once(':')).map(|(label, _)| label);
    if let Some(end) = label.and_then(|label| last_jump(lines, start, label)) {
        return end;
    }
    let after = start + lines.iter().skip(start + 1).take_while(is_inside).count();
    let closes =
        lines.get(after + 1).is_some_and(|line| indent(line) == own && line.trim_start().starts_with('}'));
    after + usize::from(closes)
}

/// Returns the last line that jumps back to a label.
fn last_jump(lines: &[&str], start: usize, label: &str) -> Option<usize> {
    let jump = format!("goto {label};");
    let end = lines.len().min(start + LINES_MAX);
    (start..end).rev().find(|at| lines[*at].contains(&jump))
}

/// Returns a form with a bound of the loop statement that begins at a line; `None` if no loop begins there.
fn bounded_form(language: Language, lines: &[&str], start: usize) -> Option<String> {
    let joined = joined(lines, start)?;
    let line = joined.as_str();
    // A line of C can end an inner statement before the loop begins, as in `} while (x);` or `else for (;;)`.
    let line = line.strip_prefix("else ").unwrap_or(line).trim_start();
    match language {
        Language::C => {
            if let Some(rest) = after_keyword(line, "for") {
                let (head, tail) = parenthesised(rest)?;
                return Some(format!("WEIR_FOR(MAX, {head}){tail}"));
            }
            if let Some(rest) = after_keyword(line, "while") {
                let (head, tail) = parenthesised(rest)?;
                return Some(format!("WEIR_WHILE(MAX, {head}){tail}"));
            }
            if line == "do" || line.starts_with("do ") || line.starts_with("do{") {
                let end = lines.get(last_line(lines, start)).map_or("", |line| line.trim());
                let condition =
                    end.split_once("while").and_then(|(_, rest)| parenthesised(rest.trim_start()));
                let condition = condition.map_or("CONDITION", |(condition, _)| condition);
                return Some(format!("WEIR_FOR(MAX, bool again = true; again; again = ({condition})) {{"));
            }
            let label = line.strip_suffix(':').or_else(|| line.split_once(": ").map(|(label, _)| label))?;
            let is_label = !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !matches!(label, "default" | "public" | "private");
            (is_label && last_jump(lines, start, label).is_some())
                .then(|| format!("WEIR_LABEL(MAX, {label});"))
        }
        // An iterator that has a bound already contains a loop of its own.
        Language::Rust if line.contains(".bounded::<") => None,
        Language::Rust => {
            let line = line
                .split_once(": ")
                .filter(|(label, _)| label.starts_with('\''))
                .map_or(line, |(_, rest)| rest);
            if let Some(rest) = line.strip_prefix("for ") {
                let (head, body) = before_body(rest)?;
                let (pattern, items) = head.split_once(" in ")?;
                return Some(format!(
                    "for {pattern} in ({}).into_iter().bounded::<MAX>() {{{body}",
                    items.trim()
                ));
            }
            if let Some(rest) = line.strip_prefix("while ") {
                let (condition, body) = before_body(rest)?;
                return Some(match condition.strip_prefix("let ") {
                    Some(pattern) => {
                        format!("for _ in (0u32..).bounded::<MAX>() {{ let {pattern} else {{ break }};{body}")
                    }
                    None => {
                        format!("for _ in (0u32..).bounded::<MAX>() {{ if !({condition}) {{ break }}{body}")
                    }
                });
            }
            if let Some(body) = line.strip_prefix("loop {") {
                return Some(format!("for _ in (0u32..).bounded::<MAX>() {{{body}"));
            }
            // A loop within a function of iterators: the first one that consumes, as those before it are lazy.
            let at = CONSUMERS.iter().filter_map(|consumer| line.find(consumer)).min()?;
            let (items, rest) = line.split_at_checked(at)?;
            (!items.ends_with(".bounded::<MAX>()")).then(|| format!("{items}.bounded::<MAX>(){rest}"))
        }
    }
}

/// Returns the line at which a statement begins, trimmed, with the lines after it until the parentheses of a loop's head are closed.
fn joined(lines: &[&str], start: usize) -> Option<String> {
    let first = lines.get(start)?.trim();
    let begins_head = ["for", "while", "else for", "else while"].iter().any(|word| first.starts_with(word));
    let mut text = first.to_owned();
    for line in lines.iter().skip(start + 1).take(if begins_head { HEAD_LINES_MAX } else { 0 }) {
        let open = text.bytes().filter(|byte| *byte == b'(').count();
        if open <= text.bytes().filter(|byte| *byte == b')').count() {
            break;
        }
        text.push(' ');
        text.push_str(line.trim());
    }
    Some(text)
}

/// Divides the text of a loop of Rust at the brace that begins its body: the head, and what follows the brace. Braces of closures in
/// the head are within parentheses.
fn before_body(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some((text.get(..at)?.trim(), text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// Returns the text after a keyword with a parenthesis.
fn after_keyword<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(keyword)?.trim_start();
    rest.starts_with('(').then_some(rest)
}

/// Divides a text that begins with a parenthesis into what is inside and what follows; `None` if it is not closed on the line.
fn parenthesised(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((text.get(1..at)?, text.get(at + 1..)?));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str, line: u32) -> Option<(u32, String)> {
        loop_around(file, text, line).map(|found| (found.line, found.bounded))
    }

    #[test]
    fn the_statement_around_a_line_is_found_and_written_with_a_bound() {
        let c = "int f(void)\n{\n    for (int i = 0; g(i); i++)\n        h(i);\n    while (x) {\n        y();\n        do {\n            z();\n        } while (w());\n    }\nagain:\n    if (a())\n        goto again;\n    return 0;\n}\n";
        let is =
            |line: u32, at: u32, form: &str| assert_eq!(found("m.c", c, line), Some((at, form.to_owned())));
        is(3, 3, "WEIR_FOR(MAX, int i = 0; g(i); i++)");
        is(4, 3, "WEIR_FOR(MAX, int i = 0; g(i); i++)");
        is(6, 5, "WEIR_WHILE(MAX, x) {");
        is(8, 7, "WEIR_FOR(MAX, bool again = true; again; again = (w())) {");
        is(9, 7, "WEIR_FOR(MAX, bool again = true; again; again = (w())) {");
        is(11, 11, "WEIR_LABEL(MAX, again);");
        is(12, 11, "WEIR_LABEL(MAX, again);");
        assert_eq!(found("m.c", c, 2), None);
        assert_eq!(found("m.c", c, 99), None);
        assert_eq!(found("m.c", c, 0), None);
        let rust = "fn f() {\n    for x in list.iter() {\n        g(x);\n    }\n    while let Some(y) = next() {\n        h(y);\n    }\n    loop {\n        k();\n    }\n    while a < b {\n        a += s;\n    }\n}\n";
        let is = |line: u32, at: u32, form: &str| {
            assert_eq!(found("m.rs", rust, line), Some((at, form.to_owned())))
        };
        is(3, 2, "for x in (list.iter()).into_iter().bounded::<MAX>() {");
        is(6, 5, "for _ in (0u32..).bounded::<MAX>() { let Some(y) = next() else { break };");
        is(9, 8, "for _ in (0u32..).bounded::<MAX>() {");
        is(12, 11, "for _ in (0u32..).bounded::<MAX>() { if !(a < b) { break }");
    }

    #[test]
    fn loops_of_one_line_of_several_lines_and_of_iterators_are_found() {
        let rust = "fn f() {\n    for x in a.iter().map(|x| { x }) { g(x); }\n    while a < b { a += s; }\n    'l: loop { k(); }\n    let at = b.iter().position(|x| x == 1)?;\n    let s: u32 = b.iter().map(|x| x.count()).sum();\n}\n";
        let is = |line: u32, form: &str| assert_eq!(found("m.rs", rust, line), Some((line, form.to_owned())));
        is(2, "for x in (a.iter().map(|x| { x })).into_iter().bounded::<MAX>() { g(x); }");
        is(3, "for _ in (0u32..).bounded::<MAX>() { if !(a < b) { break } a += s; }");
        is(4, "for _ in (0u32..).bounded::<MAX>() { k(); }");
        is(5, "let at = b.iter().bounded::<MAX>().position(|x| x == 1)?;");
        let c =
            "int f(void)\n{\n    for (int i = 0;\n         g(i);\n         i++) {\n        h(i);\n    }\n}\n";
        assert_eq!(found("m.c", c, 6), Some((3, "WEIR_FOR(MAX, int i = 0; g(i); i++) {".to_owned())));
    }

    #[test]
    fn functions_that_call_themselves_become_a_loop_over_a_stack() {
        let c = loop_of_calls(Language::C, "count").unwrap();
        assert_eq!(c, "WEIR_WHILE(MAX, count_calls_pop(&call)) {");
        let rust = loop_of_calls(Language::Rust, "m::tree::count").unwrap();
        assert!(rust.contains("count_calls.pop()"), "{rust}");
        for hostile in ["", "a b", "m::", "x\u{1b}[2J", "é"] {
            assert_eq!(loop_of_calls(Language::C, hostile), None);
        }
    }

    #[test]
    fn texts_that_are_no_source_cause_no_panic() {
        for text in ["", "for", "for (", "while (((", "do", ":", "x:", "é: goto é;", "for (é", "'a: loop {"]
        {
            for file in ["m.c", "m.rs"] {
                for line in 0..3 {
                    let _ = found(file, text, line);
                }
            }
        }
    }
}
