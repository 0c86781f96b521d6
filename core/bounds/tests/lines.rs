//! Names of code locations: the author's names and lines, and none where the tables are broken.

use proptest::prelude::*;
use std::io::Write;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use wasmparser::{Operator, Parser, Payload};
use weir_bounds::{Lines, ParsedModule, SourceLine};

const SOURCE: &str = "\
#define EXPORT(name) __attribute__((export_name(#name))) name
unsigned char table[4096];
static inline unsigned sum(unsigned n)
{
    unsigned total = 0;
    for (unsigned i = 0; i < n; i++)
        total += table[i * 7 & 4095];
    return total;
}
static int never(int x) { return x / 3; }
int EXPORT(twice)(int x)
{
    for (int i = 0; i < x; i++)
        table[i & 4095] ^= 1;
    return x + x;
}
int EXPORT(all)(int x)
{
    if (x < 0) return never(x);
    return (int)sum(x & 1023);
}
";

/// The module that clang makes of [`SOURCE`], with line tables; `None`, with a note, if clang is missing.
fn compiled() -> Option<&'static [u8]> {
    static BYTES: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    BYTES
        .get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("of.c"), SOURCE).unwrap();
            let arguments = "--target=wasm32 -O2 -gline-tables-only -ffile-compilation-dir=. -nostdlib -ffreestanding -fuse-ld=lld -Wl,--no-entry -Wl,--gc-sections of.c -o of.wasm";
            let mut clang = Command::new("clang-19");
            let output = clang.args(arguments.split(' ')).current_dir(dir.path()).output();
            match output {
                Ok(output) if output.status.success() => Some(std::fs::read(dir.path().join("of.wasm")).unwrap()),
                other => {
                    let _ = writeln!(std::io::stderr(), "SKIPPED: line tables of clang-19: {other:?}");
                    None
                }
            }
        })
        .as_deref()
}

/// The offsets of all loops, function by function.
fn loops(bytes: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CodeSectionEntry(body) = payload.unwrap() {
            for operator in body.get_operators_reader().unwrap().into_iter_with_offsets() {
                let (operator, offset) = operator.unwrap();
                if matches!(operator, Operator::Loop { .. }) {
                    found.push(offset);
                }
            }
        }
    }
    found
}

fn at(line: u32) -> Option<SourceLine> {
    Some(SourceLine { file: "of.c".to_owned(), line })
}

#[test]
fn loops_have_their_source_lines_also_when_inlined() {
    let Some(bytes) = compiled() else { return };
    let module = ParsedModule::parse(bytes.to_vec()).unwrap();
    let lines = Lines::new(&module);
    let mut found: Vec<_> = loops(bytes).into_iter().map(|offset| lines.line(offset)).collect();
    // Clang unrolls the loops; the remainder loop has the same line.
    found.dedup();
    let lines_of_for: Vec<_> = (1..)
        .zip(SOURCE.lines())
        .filter(|(_, text)| text.contains("for ("))
        .map(|(line, _)| at(line))
        .collect();
    assert_eq!(found, [lines_of_for[1].clone(), lines_of_for[0].clone()], "`twice` stands before `all`");
    assert_eq!(lines.line(0), None);
    assert_eq!(lines.line(bytes.len() as u64), None);
}

#[test]
fn functions_have_the_authors_names_or_their_export_names() {
    let bytes = wat::parse_str(
        r#"(module (import "weir" "log" (func (param i32 i32 i32) (result i32))) (func $own) (func (export "weir_stop")) (func)
           (func $"_ZN4core3fmt5write17h0123456789abcdefE") (func $"_RNvC6_123foo3bar") (func $"a\1b[31mb"))"#,
    )
    .unwrap();
    let module = ParsedModule::parse(bytes).unwrap();
    let lines = Lines::new(&module);
    let names: Vec<_> = (0..8).map(|function| lines.name(function)).collect();
    let expected = [
        Some("log"),
        Some("own"),
        Some("weir_stop"),
        None,
        Some("core::fmt::write"),
        Some("123foo::bar"),
        Some(r"a\u{1b}[31mb"),
        None,
    ];
    assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
    assert_eq!(lines.line(40), None);
}

#[test]
fn terminal_control_characters_in_a_path_are_escaped() {
    let Some(bytes) = compiled() else { return };
    let mut bytes = bytes.to_vec();
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"of.c\0")).collect();
    places.iter().for_each(|at| bytes[*at] = 0x1b);
    let first = loops(&bytes)[0];
    let module = ParsedModule::parse(bytes).unwrap();
    assert_eq!(Lines::new(&module).line(first).unwrap().file, r"\u{1b}f.c");
}

fn section(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    let leb = |out: &mut Vec<u8>, mut value: usize| {
        while value >= 0x80 {
            out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        out.push(u8::try_from(value).unwrap());
    };
    out.push(0);
    leb(out, 1 + name.len() + data.len());
    leb(out, name.len());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(data);
}

/// A module with one function and these line tables.
fn with_lines(debug_line: &[u8]) -> Vec<u8> {
    let mut bytes = wat::parse_str("(module (func (loop (br 0))))").unwrap();
    section(&mut bytes, ".debug_line", debug_line);
    bytes
}

/// The header of a line program of version 4 with one file, followed by instructions.
fn unit(instructions: &[u8]) -> Vec<u8> {
    let lengths = [0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    let mut rest = vec![1, 1, 1, 0xfb, 14, 13];
    rest.extend(lengths);
    rest.extend(b"\0f.c\0\0\0\0\0");
    let mut unit = 4u16.to_le_bytes().to_vec();
    unit.extend(u32::try_from(rest.len()).unwrap().to_le_bytes());
    unit.extend(rest);
    unit.extend(instructions);
    let mut whole = u32::try_from(unit.len()).unwrap().to_le_bytes().to_vec();
    whole.extend(unit);
    whole
}

const SET_ADDRESS_1: [u8; 7] = [0, 5, 2, 1, 0, 0, 0];

#[test]
fn the_work_for_a_line_table_is_bounded_whatever_its_contents() {
    let megabyte = |piece: &[u8]| piece.iter().copied().cycle().take(1 << 20).collect::<Vec<u8>>();
    let advance_line_by_the_least_number = [3, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f];
    let cases = [
        // A row for each byte; no rows at all; as many units as fit; a new file for each row; files defined between the
        // rows.
        unit(&[&SET_ADDRESS_1[..], &megabyte(&[13])].concat()),
        unit(&megabyte(&[6])),
        megabyte(&unit(&SET_ADDRESS_1)),
        megabyte(&[0]),
        unit(&[&SET_ADDRESS_1[..], &megabyte(&[4, 1, 13, 4, 2, 13])].concat()),
        unit(&megabyte(&[0, 6, 3, b'x', 0, 0, 0, 0])),
        unit(&megabyte(&advance_line_by_the_least_number)),
        // Version 5: a list of files with an endless length.
        [&[0xff, 0xff, 0x0f, 0, 5, 0, 4, 0, 0xf0, 0xff, 0x0f, 0][..], &megabyte(&[1])].concat(),
    ];
    for (number, case) in cases.iter().enumerate() {
        let module = ParsedModule::parse(with_lines(case)).unwrap();
        let lines = Lines::new(&module);
        let begin = Instant::now();
        for offset in 0..64 {
            let _ = lines.line(offset);
        }
        let took = begin.elapsed();
        // Takes milliseconds on an idle machine; with work for each pair of rows it would take hours.
        assert!(took < Duration::from_secs(60), "case {number} took {took:?}");
    }
}

#[test]
fn a_sequence_ends_at_its_end_row_and_line_0_counts_as_the_line_before() {
    // Line 5 from offset 1, line 0 from 3, line 2 from 5, end at 7: offsets in the contents of the code section.
    let instructions =
        [&SET_ADDRESS_1[..], &[3, 4, 1, 2, 2, 3, 0x7b, 1, 2, 2, 3, 2, 1, 2, 2, 0, 1, 1]].concat();
    let bytes = with_lines(&unit(&instructions));
    let code = (0..bytes.len() - 8).find(|at| bytes[*at..].starts_with(&[10, 9, 1])).unwrap() as u64 + 2;
    let module = ParsedModule::parse(bytes).unwrap();
    let lines = Lines::new(&module);
    let found: Vec<_> = (0..9).map(|at| lines.line(code + at).map(|line| line.line)).collect();
    let expected = [None, Some(5), Some(5), Some(5), Some(5), Some(2), Some(2), None, None];
    assert_eq!(found, expected);
}

#[test]
fn overlapping_sequences_without_a_line_lead_to_no_line() {
    // Line 0 from offset 1, and in another sequence line 0 from offset 3.
    let sequence = |begin: u8| unit(&[0, 5, 2, begin, 0, 0, 0, 3, 0x7f, 1, 2, 7 - begin, 0, 1, 1]);
    let bytes = with_lines(&[sequence(1), sequence(3)].concat());
    let module = ParsedModule::parse(bytes.clone()).unwrap();
    let lines = Lines::new(&module);
    let rows: Vec<_> = lines.rows().map(|(address, line)| (address, line.map(|(_, line)| line))).collect();
    assert_eq!(rows, [(1, Some(0)), (3, Some(0)), (7, None), (7, None)]);
    assert!((0..bytes.len() as u64).all(|offset| lines.line(offset).is_none()));
}

/// The byte ranges of the sections that [`Lines`] reads.
fn tables(bytes: &[u8]) -> impl Iterator<Item = std::ops::Range<usize>> {
    wasmparser::Parser::new(0).parse_all(bytes).filter_map(|payload| match payload.unwrap() {
        wasmparser::Payload::CustomSection(section) => {
            let start = usize::try_from(section.data_offset()).unwrap();
            Some(start..start + section.data().len())
        }
        _ => None,
    })
}

proptest! {
    /// No change of the bytes causes a panic.
    #[test]
    fn broken_line_tables_cause_no_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let Some(bytes) = compiled() else { return Ok(()) };
        let mut bytes = bytes.to_vec();
        // Only line tables and names are changed, so the bytes always remain a module.
        let places: Vec<usize> = tables(&bytes).flatten().collect();
        for (place, value) in changes {
            bytes[places[place.index(places.len())]] = value;
        }
        let length = bytes.len() as u64;
        let module = ParsedModule::parse(bytes).unwrap();
        let lines = Lines::new(&module);
        for offset in 0..length {
            let _ = lines.line(offset);
        }
        for function in 0..10 {
            let _ = lines.name(function);
        }
    }
}
