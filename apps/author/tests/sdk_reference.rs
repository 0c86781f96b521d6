//! The reference of the SDK for C follows from its headers: docs/reference/SDK.md. With WEIR_WRITE=1 the test writes it.

use std::fmt::Write as _;
use std::path::Path;

const HEADERS: [(&str, &str); 3] = [
    ("weir.h", include_str!("../../../guest/sdk-c/weir.h")),
    ("weir_containers.h", include_str!("../../../guest/sdk-c/weir_containers.h")),
    ("weir_parse.h", include_str!("../../../guest/sdk-c/weir_parse.h")),
];

const INTRODUCTION: &str = "# SDK for C

For authors of modules. Made from the headers in [guest/sdk-c](../../guest/sdk-c), which `weir build` writes into a
module's folder `.weir`; changes here are lost. The host functions behind these are in
[MODULE.md](MODULE.md#functions), with their prices. The SDK for Rust has the same, documented by rustdoc: `make docs`
writes it to `out/docs/weir_guest`.
";

/// A comment, and the declarations right behind it.
#[derive(Debug, Default, PartialEq)]
struct Item {
    text: Vec<String>,
    declarations: Vec<String>,
}

/// Returns the lines of a comment that begins in the first of `lines`, without its marks, and the number of lines.
fn comment(lines: &[&str]) -> Option<(Vec<String>, usize)> {
    let first = lines.first()?.strip_prefix("/*")?;
    let mut text = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let (line, is_last) = match (if index == 0 { first } else { line }).split_once("*/") {
            Some((line, _)) => (line, true),
            None => (if index == 0 { first } else { line }, false),
        };
        let line = if index == 0 { line } else { line.trim_start().strip_prefix('*').unwrap_or("") };
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        if !(line.is_empty() && (index == 0 || is_last)) {
            text.push(line.to_owned());
        }
        if is_last {
            return Some((text, index + 1));
        }
    }
    None
}

/// Returns the declaration that begins in the first of `lines`, for readers, and the number of lines with its body.
fn declaration(lines: &[&str]) -> Option<(String, usize)> {
    let line = lines.first()?;
    if let Some(rest) = line.strip_prefix("#define ") {
        let len = 1 + lines.iter().take_while(|line| line.ends_with('\\')).count();
        let end = rest.find(')').filter(|_| rest.split(' ').next().is_some_and(|name| name.contains('(')));
        return end.map(|end| (rest[..=end].to_owned(), len));
    }
    if line.starts_with("enum {") || (line.starts_with("struct ") && line.contains('{')) {
        let is_one_line = line.matches('{').count() == line.matches('}').count();
        let len =
            if is_one_line { 1 } else { 1 + lines.iter().take_while(|line| !line.starts_with('}')).count() };
        return Some((lines.get(..len)?.join("\n"), len));
    }
    let is_function = line.starts_with("WEIR_INLINE ") || line.starts_with("static inline ");
    if !is_function {
        return None;
    }
    let mut head = String::new();
    let mut len = 0;
    for line in lines {
        len += 1;
        let part = line.split('{').next().unwrap_or_default().trim();
        _ = write!(head, "{}{part}", if head.is_empty() { "" } else { " " });
        if line.contains('{') || part.ends_with(')') {
            break;
        }
    }
    let is_one_line = lines[len - 1].contains('{') && lines[len - 1].trim_end().ends_with('}');
    if !is_one_line {
        len += 1 + lines[len..].iter().take_while(|line| !line.starts_with('}')).count();
    }
    for mark in
        ["WEIR_INLINE ", "static inline ", "__attribute__((noinline, unused)) ", "__attribute__((unused)) "]
    {
        head = head.replace(mark, "");
    }
    Some((format!("{};", head.trim()), len))
}

/// Returns the sections of a header: titles, and the documented items.
fn sections(header: &str) -> Vec<(String, Vec<Item>)> {
    let lines: Vec<&str> = header.lines().collect();
    let mut sections: Vec<(String, Vec<Item>)> = Vec::new();
    let mut at = 0;
    let mut is_documented = false;
    while let Some(rest) = lines.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(title) = rest[0].strip_prefix("/* ---- ") {
            let title = title.trim_end_matches("*/").trim_end().trim_end_matches('-').trim_end();
            sections.push((title.to_owned(), Vec::new()));
            (at, is_documented) = (at + 1, false);
        } else if let (Some((text, len)), Some((_, items))) = (comment(rest), sections.last_mut()) {
            // Marks of the parts that are generated.
            if !matches!(text.as_slice(), [line] if line.ends_with(": begin") || line.ends_with(": end")) {
                items.push(Item { text, declarations: Vec::new() });
            }
            (at, is_documented) = (at + len, true);
        } else if let (Some((declaration, len)), Some((_, items))) = (declaration(rest), sections.last_mut())
        {
            if let Some(item) = items.last_mut().filter(|_| is_documented) {
                item.declarations.push(declaration);
            }
            at += len;
        } else {
            // A blank line, or another kind of declaration, ends the part to which a comment belongs.
            (at, is_documented) = (at + 1, is_documented && rest[0].starts_with('#'));
        }
    }
    sections
}

/// Writes a comment as Markdown: indented parts are code, and other lines are joined and wrapped.
fn write_text(out: &mut String, text: &[String]) {
    let mut paragraph = String::new();
    let flush = |out: &mut String, paragraph: &mut String| {
        let mut column = 0;
        for word in paragraph.split_whitespace() {
            let len = word.chars().count();
            if column > 0 && column + 1 + len > 120 {
                out.push('\n');
                column = 0;
            }
            _ = write!(out, "{}{word}", if column > 0 { " " } else { "" });
            column += len + usize::from(column > 0);
        }
        if !paragraph.is_empty() {
            out.push_str("\n\n");
        }
        paragraph.clear();
    };
    let mut code: Vec<&str> = Vec::new();
    let end_code = |out: &mut String, code: &mut Vec<&str>| {
        while code.last().is_some_and(|line| line.trim().is_empty()) {
            code.pop();
        }
        if !code.is_empty() {
            _ = writeln!(out, "```c\n{}\n```\n", code.join("\n"));
        }
        code.clear();
    };
    for line in text {
        match line.strip_prefix("    ") {
            Some(line) => {
                flush(out, &mut paragraph);
                code.push(line);
            }
            None if line.is_empty() && !code.is_empty() => code.push(""),
            None => {
                end_code(out, &mut code);
                if line.is_empty() {
                    flush(out, &mut paragraph);
                } else {
                    // Angle brackets and asterisks would be marks of Markdown.
                    paragraph.push_str(&line.replace('<', "\\<").replace('*', "\\*"));
                    paragraph.push(' ');
                }
            }
        }
    }
    end_code(out, &mut code);
    flush(out, &mut paragraph);
}

fn reference() -> String {
    let mut out = INTRODUCTION.to_owned();
    for (file, header) in HEADERS {
        _ = writeln!(out, "\n## {file}");
        for (title, items) in sections(header) {
            if items.is_empty() {
                continue;
            }
            _ = writeln!(out, "\n### {title}\n");
            for Item { text, declarations } in &items {
                if !declarations.is_empty() {
                    _ = writeln!(out, "```c\n{}\n```\n", declarations.join("\n"));
                }
                write_text(&mut out, text);
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
    out
}

#[test]
fn the_reference_follows_from_the_headers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/SDK.md");
    let wanted = reference();
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == wanted, "docs/reference/SDK.md is old: run this test with WEIR_WRITE=1");
}

#[test]
fn every_function_for_modules_is_in_the_reference() {
    let text = reference();
    // Names that a module calls begin so; helpers of macros have no comment of their own.
    for name in
        ["weir_src(", "weir_ip_store(", "WEIR_MAP(", "WEIR_FOR(", "WEIR_LOGF(", "WEIR_STATE(", "weir_emit("]
    {
        assert!(text.contains(name), "{name}");
    }
    let documented: usize = HEADERS
        .iter()
        .flat_map(|(_, header)| sections(header))
        .flat_map(|(_, items)| items)
        .map(|item| item.declarations.len())
        .sum();
    let declared = HEADERS
        .iter()
        .flat_map(|(_, header)| header.lines())
        .filter(|line| line.starts_with("WEIR_INLINE "))
        .count();
    assert!(documented * 2 > declared, "{documented} of {declared}");
}

#[test]
fn comments_and_declarations_are_read_as_written() {
    let header = "/* ---- Part ---- */\n\n/* Adds `a` to\n * `b`:\n *\n *     add(1, 2) */\nWEIR_INLINE int\nadd(int a, int b)\n{\n    return a + b;\n}\nWEIR_INLINE int twice(int a) { return add(a, a); }\n\nWEIR_INLINE int hidden(void) { return 0; }\n/* Each. */\n#define EACH(a, b) \\\n    for (;;)\n";
    let sections = sections(header);
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(sections[0].0, "Part");
    let wanted = [
        Item {
            text: lines(&["Adds `a` to", "`b`:", "", "    add(1, 2)"]),
            declarations: lines(&["int add(int a, int b);", "int twice(int a);"]),
        },
        Item { text: lines(&["Each."]), declarations: lines(&["EACH(a, b)"]) },
    ];
    assert_eq!(sections[0].1, wanted);
    let mut out = String::new();
    write_text(&mut out, &sections[0].1[0].text);
    assert_eq!(out, "Adds `a` to `b`:\n\n```c\nadd(1, 2)\n```\n\n");
}
