//! Comparison with Click, if the variable CLICK names its program.

use super::super::bytes;
use super::*;
use std::fmt::Write as _;
use std::process::Command;

/// Writes packets into a capture of raw IP packets. The time of each is its number in seconds.
fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 12] {
        bytes.extend(word.to_le_bytes());
    }
    for (packet, at) in packets.iter().zip(0_u32..) {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [at, 0, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    bytes
}

/// Returns the output that Click chooses for each packet, `None` for a packet that its FromDump leaves out. Returns `None`
/// if Click aborts.
fn by_click(click: &str, element: &str, outputs: usize, packets: &[Vec<u8>]) -> Option<Vec<Option<u16>>> {
    let folder = std::env::temp_dir().join(format!(
        "weir-classify-{}-{outputs}-{}",
        std::process::id(),
        element.len()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("packets.pcap");
    std::fs::write(&file, capture(packets)).unwrap();
    let (before, element) = match element.split_once(" -> ") {
        Some((before, element)) => (format!("{before} ->"), element),
        None => ("MarkIPHeader(0) ->".to_owned(), element),
    };
    let mut graph = format!(
        "FromDump({}, STOP true) -> Print(all, CONTENTS NONE, TIMESTAMP true) -> {before} c :: {element};\n",
        file.to_str().unwrap()
    );
    for output in 0..outputs {
        _ = writeln!(graph, "c[{output}] -> Print({output}, CONTENTS NONE, TIMESTAMP true) -> Discard;");
    }
    let run = Command::new(click).args(["-e", &graph]).output().expect("CLICK names Click's program");
    let text = String::from_utf8_lossy(&run.stderr);
    // Some rules make Click's optimiser abort.
    run.status.code()?;
    assert!(run.status.success(), "Click refuses {element}: {text}");
    let mut chosen = vec![None; packets.len()];
    for line in text.lines() {
        let mut words = line.split(": ");
        let output = words.next().map(|word| word.trim().parse().unwrap_or(NO_OUTPUT));
        let at = words.next().and_then(|word| word.split_once('.')?.0.trim().parse::<usize>().ok());
        if let (Some(output), Some(at)) = (output, at) {
            chosen[at] = Some(output);
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(chosen.iter().flatten().count() > packets.len() / 2, "Click leaves out most packets: {text}");
    Some(chosen)
}

#[test]
fn filters_decide_as_clicks_do() {
    let Ok(click) = std::env::var("CLICK") else {
        eprintln!("skipped: CLICK does not name Click's program");
        return;
    };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let complete = packets().prop_filter("complete packets", |packet| packet.len() >= 40);
    let inputs = (filters(8), prop::collection::vec(complete, 200));
    let compared = std::cell::Cell::new(0);
    runner
        .run(&inputs, |(rules, packets)| {
            let set = compiled(&rules);
            let Some(expected) = by_click(&click, &format!("IPFilter({})", rules.join(", ")), 3, &packets)
            else {
                return Ok(());
            };
            for (packet, expected) in packets.iter().zip(expected) {
                let found = set.decide(&parts(packet));
                let Some(expected) = expected else { continue };
                prop_assert_eq!(found, expected, "{:?} {:02x?}\n{}", &rules, packet, set.program(256));
            }
            compared.set(compared.get() + 1);
            Ok(())
        })
        .unwrap();
    assert!(compared.get() > 40, "Click aborted in too many of 60 cases: {}", compared.get());
}

#[test]
fn classifiers_decide_as_clicks_do() {
    let Ok(click) = std::env::var("CLICK") else {
        eprintln!("skipped: CLICK does not name Click's program");
        return;
    };
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    // Click's capture reader wants IP headers. They are before the bytes that the patterns are about.
    let packet = prop::collection::vec(0..4_u8, 0..14).prop_map(|bytes| {
        [&[0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &bytes].concat()
    });
    let inputs = (prop::collection::vec(clauses(), 1..6), prop::collection::vec(packet, 200));
    runner
        .run(&inputs, |(patterns, packets)| {
            let rules = patterns
                .iter()
                .zip(0..)
                .map(|(pattern, output)| PatternRule { condition: bytes::parse(pattern).unwrap(), output });
            let set = RuleSet::new(rules.collect());
            let element = format!("Classifier({})", patterns.join(", "));
            let expected = by_click(&click, &format!("Strip(20) -> {element}"), patterns.len(), &packets)
                .ok_or_else(|| TestCaseError::reject("Click aborts"))?;
            for (packet, expected) in packets.iter().zip(expected) {
                let parts = PacketParts { main: &packet[20..], ..PacketParts::default() };
                let Some(expected) = expected else { continue };
                prop_assert_eq!(set.decide(&parts), expected, "{:?} {:02x?}", &patterns, packet);
                prop_assert_eq!(set.decide_by_tests(&parts), expected, "{:?} {:02x?}", &patterns, packet);
            }
            Ok(())
        })
        .unwrap();
}
