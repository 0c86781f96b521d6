//! Binary records of IP packets: written and read again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_elements::AllElements;
use weir_graph::engine::{
    CaptureReader, CaptureWriter, NoFiles, Router, RunOptions, SimulatedClock, System, TextOutput,
};
use weir_graph::language::{ConfigurationSource, parse};

/// Files in memory, and the messages.
#[derive(Clone, Default)]
struct Files(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl System for Files {
    fn open_capture(&mut self, name: &str) -> Result<Box<dyn CaptureReader>, String> {
        Err(name.to_owned())
    }

    fn create_capture(&mut self, _: &str, _: u32, _: u32) -> Result<Box<dyn CaptureWriter>, String> {
        Ok(Box::new(NoFiles))
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        self.0.borrow().get(name).cloned().ok_or_else(|| format!("{name}: no such file"))
    }

    fn write_file(&mut self, name: &str, bytes: &[u8], is_new: bool) -> Result<(), String> {
        let mut files = self.0.borrow_mut();
        let file = files.entry(name.to_owned()).or_default();
        if is_new {
            file.clear();
        }
        file.extend_from_slice(bytes);
        Ok(())
    }

    fn write_text(&mut self, _: TextOutput, text: &str) {
        self.0.borrow_mut().entry("messages".to_owned()).or_default().extend_from_slice(text.as_bytes());
    }
}

impl Files {
    /// Runs a graph, and returns the errors of incomplete results.
    fn run(&self, text: &str) -> Vec<String> {
        let source = ConfigurationSource { name: "graph", bytes: text.as_bytes() };
        let flat = parse(&source, &[], &AllElements).unwrap();
        let clock = Box::<SimulatedClock>::default();
        let router = Router::new(flat, &AllElements, Box::new(self.clone()), clock, RunOptions::default());
        let mut router = match router {
            Ok(router) => router,
            Err(errors) => return errors.iter().map(ToString::to_string).collect(),
        };
        router.run();
        router.finish().err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.0.borrow().get(name).map_or(&[], Vec::as_slice)).into_owned()
    }
}

const LINES: &str = "\
!IPSummaryDump 1.3
!data timestamp ip_src sport ip_dst dport ip_proto ip_len ip_id ip_ttl ip_fragoff ip_opt tcp_seq tcp_flags tcp_opt count
1.000002 10.0.0.1 1000 10.0.0.2 80 T 60 7 64 0! . 305419896 SA mss1460;wscale7 1
2.500000 10.0.0.3 53 10.0.0.4 5353 U 100 8 63 0 rr{1.2.3.4}+1 0 . . 3
";

/// A packet of UDP has no sequence number: the binary form of none is zero.
const AGAIN: &str = "\
1.000002 10.0.0.1 1000 10.0.0.2 80 T 60 7 64 0! . 305419896 SA mss1460;wscale7 1
2.500000 10.0.0.3 53 10.0.0.4 5353 U 100 8 63 0 rr{1.2.3.4}+1 - - - 3
";

#[test]
fn binary_records_have_the_values_of_the_lines() {
    let files = Files::default();
    files.0.borrow_mut().insert("lines".to_owned(), LINES.into());
    let fields = LINES.lines().nth(1).unwrap().strip_prefix("!data ").unwrap();
    let write = format!(
        "FromIPSummaryDump(lines, STOP true) -> ToIPSummaryDump(binary, BINARY true, FIELDS {fields});"
    );
    assert!(files.run(&write).is_empty());
    let binary = files.0.borrow()["binary"].clone();
    let header = format!("!IPSummaryDump 1.3\n!data {fields}\n!binary\n");
    let records = binary.strip_prefix(header.as_bytes()).unwrap();
    let expected = [
        &[0, 0, 0, 53][..],
        &[0, 0, 0, 1, 0, 0, 0, 2],
        &[10, 0, 0, 1, 0x03, 0xe8, 10, 0, 0, 2, 0, 80, 6],
        &[0, 0, 0, 60, 0, 7, 64, 0x40, 0, 0],
        &[0x12, 0x34, 0x56, 0x78, 0x12],
        // Options are padded to whole words.
        &[8, 2, 4, 0x05, 0xb4, 3, 3, 7, 0],
        &[0, 0, 0, 1],
    ]
    .concat();
    assert_eq!(records[..expected.len()], expected);
    let read = format!(
        "FromIPSummaryDump(binary, STOP true) -> ToIPSummaryDump(again, HEADER false, CAREFUL_TRUNC false, FIELDS {fields});"
    );
    assert!(files.run(&read).is_empty());
    assert_eq!(files.text("again"), AGAIN);
    assert_eq!(files.text("messages"), "");
}

#[test]
fn lines_within_binary_records_count_for_those_behind_them() {
    let files = Files::default();
    let line = |text: &str| {
        let length = u32::try_from(text.len() + 4).unwrap() | 1 << 31;
        [&length.to_be_bytes()[..], text.as_bytes()].concat()
    };
    let record = |bytes: &[u8]| [&u32::try_from(bytes.len() + 4).unwrap().to_be_bytes()[..], bytes].concat();
    let bytes = [
        b"!data ip_ttl\n!binary\n".to_vec(),
        record(&[9]),
        line("!bad packet\n"),
        record(&[8]),
        line("!data ip_id ip_ttl\n"),
        record(&[1, 0, 7]),
        // Nothing is stated.
        record(&[]),
        record(&[0, 2, 6]),
    ]
    .concat();
    files.0.borrow_mut().insert("binary".to_owned(), bytes);
    let graph =
        "FromIPSummaryDump(binary, STOP true) -> ToIPSummaryDump(out, HEADER false, FIELDS ip_id ip_ttl);";
    assert!(files.run(graph).is_empty());
    assert_eq!(files.text("out"), "0 9\n0 8\n256 7\n2 6\n");
    assert!(files.text("messages").contains("a record without a value"), "{}", files.text("messages"));
}

#[test]
fn wrong_lengths_of_binary_records_end_the_file_with_an_error() {
    for (bytes, error) in [
        (&[0, 0, 0, 3][..], "a length of 3"),
        (&[0, 0, 0, 5, 1, 0, 0, 0, 9, 1], "the file ends in it"),
        (&[0x7f, 0xff, 0xff, 0xff, 1], "a length of 2147483647"),
        (&[0xff, 0xff, 0xff, 0xff, 1], "a length of 2147483647"),
    ] {
        let files = Files::default();
        let file = [b"!data ip_ttl\n!binary\n", bytes].concat();
        files.0.borrow_mut().insert("binary".to_owned(), file);
        let errors = files.run("FromIPSummaryDump(binary, STOP true) -> Discard;");
        assert!(errors.len() == 1 && errors[0].contains("binary was not read to its end"), "{errors:?}");
        assert!(files.text("messages").contains(error), "{}", files.text("messages"));
    }
}

#[test]
fn what_has_no_binary_form_is_an_error() {
    let files = Files::default();
    for (arguments, error) in [
        ("f, BINARY true, FIELDS payload", "the field 'payload' has no binary form"),
        ("-, BINARY true", "standard output gets text"),
    ] {
        let errors = files.run(&format!("Idle -> ToIPSummaryDump({arguments});"));
        assert!(errors.len() == 1 && errors[0].contains(error), "{errors:?}");
    }
}
