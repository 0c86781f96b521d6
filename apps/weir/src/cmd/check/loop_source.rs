//! The loop statement in the author's source around a line, and forms of it that have a bound.
//!
//! Debug information names the line of some instruction of a loop, often within its body. Authors look for the line with `for`,
//! `while` or `do`.

use super::loop_limit::{LoopLimit, bound_in_rust, limit_in};
use super::source::Sources;
use weir_bounds::{CodeLocation, UnboundedCause, UnboundedReason};

/// The loop statement around a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopStatement {
    /// The line of the statement, from 1.
    pub line: u32,
    /// The statement's first line in forms that have a bound.
    pub forms: LoopForms,
}

/// A loop statement's first line, in forms that have a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopForms {
    /// The form of which one iteration beyond `MAX` traps.
    pub bounded: String,
    /// The form that leaves the loop after `MAX` iterations; in C, with the counter of [`COUNTER`]. `None` if a form on one line
    /// cannot do that.
    pub counted: Option<String>,
    /// The limit that the statement has already.
    pub limit: Option<LoopLimit>,
}

/// The declaration of the counter in C, before the loop.
pub const COUNTER: &str = "uint32_t rounds = 0;";

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
        let forms = LoopForms { bounded, counted: None, limit: None };
        return Some(LoopStatement { line: line.line, forms });
    }
    // A loop with a stated bound is never the one without a bound.
    if reason.cause.is_of_loop() { statement_of_place(&reason.place, sources, false) } else { None }
}

/// Returns the innermost loop statement around a place, if its source is there and is not newer than the module.
pub fn statement_at(place: &CodeLocation, sources: &Sources) -> Option<LoopStatement> {
    statement_of_place(place, sources, true)
}

fn statement_of_place(place: &CodeLocation, sources: &Sources, with_stated: bool) -> Option<LoopStatement> {
    let line = place.line.as_ref()?;
    let source = sources.read(&line.file).filter(|source| !source.is_newer)?;
    loop_around(&line.file, &source.text, line.line, with_stated)
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

/// Returns the innermost loop statement of a source file that contains a line, from 1; among those that state a bound only if
/// `with_stated`. `None` if no line above begins a loop, as with a loop that the compiler made of recursive calls.
fn loop_around(file: &str, text: &str, line: u32, with_stated: bool) -> Option<LoopStatement> {
    let language = Language::of(file);
    let lines: Vec<&str> = text.lines().collect();
    let at = usize::try_from(line).ok()?.checked_sub(1)?;
    lines.get(at)?;
    let first = at.saturating_sub(LINES_MAX);
    (first..=at).rev().find_map(|start| {
        let stated = || if with_stated { stated_forms(language, &lines, start) } else { None };
        let forms = forms_of(language, &lines, start).or_else(stated)?;
        let contains = start == at || at <= last_line(&lines, start);
        contains.then(|| LoopStatement { line: u32::try_from(start + 1).unwrap_or(line), forms })
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

/// Returns the forms of a loop that states its bound by weir's means, and begins at a line.
fn stated_forms(language: Language, lines: &[&str], start: usize) -> Option<LoopForms> {
    let joined = joined(lines, start)?;
    let line = joined.strip_prefix("else ").unwrap_or(&joined).trim_start();
    if language == Language::Rust {
        let limit = bound_in_rust(line)?;
        return Some(LoopForms { bounded: limit.with_text("MAX"), counted: None, limit: Some(limit) });
    }
    let (keyword, rest) = ["WEIR_FOR", "WEIR_WHILE"]
        .iter()
        .find_map(|keyword| Some((*keyword, after_keyword(line, keyword)?)))?;
    let (head, tail) = parenthesised(rest)?;
    let (most, head) = head.split_once(',')?;
    let limit = LoopLimit::new(format!("{keyword}("), most, format!(",{head}){tail}"));
    let counted =
        if keyword == "WEIR_FOR" { counted_for(head, tail) } else { Some(counted_while(head, tail)) };
    Some(LoopForms { bounded: limit.with_text("MAX"), counted, limit: Some(limit) })
}

/// Returns a `for` of C that leaves the loop after `MAX` iterations.
fn counted_for(head: &str, tail: &str) -> Option<String> {
    let [begin, test, step]: [&str; 3] =
        head.split(';').map(str::trim).collect::<Vec<_>>().try_into().ok()?;
    let test = if test.is_empty() { String::new() } else { format!(" && ({test})") };
    Some(format!("for ({begin}; rounds++ < MAX{test}; {step}){tail}"))
}

/// Returns a `while` of C that leaves the loop after `MAX` iterations.
fn counted_while(condition: &str, tail: &str) -> String {
    format!("while (rounds++ < MAX && ({})){tail}", condition.trim())
}

/// Returns the forms with a bound of the loop statement that begins at a line; `None` if no loop begins there.
fn forms_of(language: Language, lines: &[&str], start: usize) -> Option<LoopForms> {
    let joined = joined(lines, start)?;
    let line = joined.as_str();
    // A line of C can end an inner statement before the loop begins, as in `} while (x);` or `else for (;;)`.
    let line = line.strip_prefix("else ").unwrap_or(line).trim_start();
    match language {
        Language::C => {
            if let Some(rest) = after_keyword(line, "for") {
                let (head, tail) = parenthesised(rest)?;
                let bounded = format!("WEIR_FOR(MAX, {head}){tail}");
                let limit = limit_in(line, head);
                return Some(LoopForms { bounded, counted: counted_for(head, tail), limit });
            }
            if let Some(rest) = after_keyword(line, "while") {
                let (head, tail) = parenthesised(rest)?;
                let bounded = format!("WEIR_WHILE(MAX, {head}){tail}");
                let limit = limit_in(line, head);
                return Some(LoopForms { bounded, counted: Some(counted_while(head, tail)), limit });
            }
            if line == "do" || line.starts_with("do ") || line.starts_with("do{") {
                let end = lines.get(last_line(lines, start)).map_or("", |line| line.trim());
                let condition =
                    end.split_once("while").and_then(|(_, rest)| parenthesised(rest.trim_start()));
                let condition = condition.map_or("CONDITION", |(condition, _)| condition);
                let head = format!("bool again = true; again; again = ({condition})");
                let bounded = format!("WEIR_FOR(MAX, {head}) {{");
                return Some(LoopForms { bounded, counted: counted_for(&head, " {"), limit: None });
            }
            let label = line.strip_suffix(':').or_else(|| line.split_once(": ").map(|(label, _)| label))?;
            let is_label = !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                && !matches!(label, "default" | "public" | "private");
            (is_label && last_jump(lines, start, label).is_some()).then(|| LoopForms {
                bounded: format!("WEIR_LABEL(MAX, {label});"),
                counted: None,
                limit: None,
            })
        }
        // An iterator that has a bound already contains a loop of its own.
        Language::Rust if [".bounded::<", ".at_most::<"].iter().any(|bound| line.contains(bound)) => None,
        Language::Rust => {
            let bounded = bounded_in_rust(line)?;
            let counted = bounded.replace(".bounded::<MAX>()", ".at_most::<MAX>()");
            Some(LoopForms { bounded, counted: Some(counted), limit: bound_in_rust(line) })
        }
    }
}

/// Returns a form with a bound of a loop in Rust, or of a function of iterators that contains one.
fn bounded_in_rust(line: &str) -> Option<String> {
    let line =
        line.split_once(": ").filter(|(label, _)| label.starts_with('\'')).map_or(line, |(_, rest)| rest);
    if let Some(rest) = line.strip_prefix("for ") {
        let (head, body) = before_body(rest)?;
        let (pattern, items) = head.split_once(" in ")?;
        return Some(format!("for {pattern} in ({}).into_iter().bounded::<MAX>() {{{body}", items.trim()));
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

/// Returns the line at which a statement begins, trimmed, with the lines after it until the parentheses of a loop's head are closed.
fn joined(lines: &[&str], start: usize) -> Option<String> {
    let first = lines.get(start)?.trim();
    let begins_head = ["for", "while", "else for", "else while", "WEIR_FOR", "WEIR_WHILE"]
        .iter()
        .any(|word| first.starts_with(word));
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
        loop_around(file, text, line, false).map(|found| (found.line, found.forms.bounded))
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
    fn forms_that_ignore_the_rest_and_limits_of_loops_are_found() {
        let forms = |file: &str, line: &str| {
            let found = loop_around(file, line, 1, true).unwrap_or_else(|| panic!("{line}")).forms;
            let lowered = found.limit.map(|limit| (limit.text().to_owned(), limit.with(16)));
            (found.counted.unwrap_or_default(), lowered.unwrap_or_default())
        };
        let is = |file: &str, line: &str, counted: &str, limit: &str, lowered: &str| {
            let limit = (limit.to_owned(), lowered.to_owned());
            assert_eq!(forms(file, line), (counted.to_owned(), limit), "{line}");
        };
        is(
            "m.c",
            "for (n = 0; n < 512 && at < end; n++) {",
            "for (n = 0; rounds++ < MAX && (n < 512 && at < end); n++) {",
            "512",
            "for (n = 0; n < 16 && at < end; n++) {",
        );
        is("m.c", "for (;;) {", "for (; rounds++ < MAX; ) {", "", "");
        is("m.c", "while (x << 2 < limit)", "while (rounds++ < MAX && (x << 2 < limit))", "", "");
        is("m.c", "while (i <= 31u)", "while (rounds++ < MAX && (i <= 31u))", "31u", "while (i <= 15)");
        is("m.c", "while (i < HOSTS_MAX / 2)", "while (rounds++ < MAX && (i < HOSTS_MAX / 2))", "", "");
        is(
            "m.c",
            "WEIR_FOR(1500, uint32_t i = first; i != 0; i = next[i])",
            "for (uint32_t i = first; rounds++ < MAX && (i != 0); i = next[i])",
            "1500",
            "WEIR_FOR(16, uint32_t i = first; i != 0; i = next[i])",
        );
        is(
            "m.c",
            "else WEIR_WHILE(HOPS_MAX, type == 43) {",
            "while (rounds++ < MAX && (type == 43)) {",
            "HOPS_MAX",
            "WEIR_WHILE(16, type == 43) {",
        );
        is(
            "m.rs",
            "for i in list.iter().bounded::<64>() {",
            "",
            "64",
            "for i in list.iter().bounded::<16>() {",
        );
        is(
            "m.rs",
            "for byte in payload.iter().at_most::<512>() {",
            "",
            "512",
            "for byte in payload.iter().at_most::<16>() {",
        );
        is(
            "m.rs",
            "for byte in payload.iter().take(512) {",
            "for byte in (payload.iter().take(512)).into_iter().at_most::<MAX>() {",
            "512",
            "for byte in payload.iter().take(16) {",
        );
        // A loop with a stated bound is not the one without a bound.
        assert_eq!(loop_around("m.c", "WEIR_WHILE(8, x)", 1, false), None);
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
        let texts = ["", "for", "for (", "while (((", "do", ":", "x:", "é: goto é;", "for (é", "'a: loop {"];
        let stated =
            ["WEIR_FOR(", "WEIR_FOR(é)", "WEIR_WHILE(,)", "while (é < 5é)", "while (a <)", ".bounded::<é"];
        for text in texts.into_iter().chain(stated) {
            for file in ["m.c", "m.rs"] {
                for line in 0..3 {
                    let _ = found(file, text, line);
                    let _ = loop_around(file, text, line, true);
                }
            }
        }
    }
}
