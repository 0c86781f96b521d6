//! Every damage to a ledger is found, and located.

use crate::ledger::make::{encode_line, head, idle, joined, ledger, name, session, verify};
use weir_ledger::{
    ChainStart, CloseReason, Damage, Decision, DecisionOutcome, Digest, FORMAT, LINE_BYTES_MAX, LedgerEntry,
    LedgerEvent, LedgerHead, LedgerLine, LedgerLineError, LedgerProblem, LinePosition, Verifier,
    VerifyOptions, parse_line,
};
use weir_units::{Nanos, Timestamp};

type Lines = Vec<Vec<Vec<u8>>>;

fn wrong(segments: &Lines) -> LedgerProblem {
    verify(&joined(segments), VerifyOptions::default()).0.unwrap_err()
}

fn parsed(line: &[u8]) -> LedgerLine {
    parse_line(line.strip_suffix(b"\n").unwrap()).unwrap()
}

/// The position of a line of an undamaged ledger.
fn place(segments: &Lines, segment: usize, line: usize) -> LinePosition {
    let offset = segments[segment][..line].iter().map(Vec::len).sum::<usize>();
    LinePosition { segment: segment as u64 + 1, line: line as u64 + 1, offset: offset as u64 }
}

/// All positions except the first line.
fn lines(segments: &Lines) -> Vec<(usize, usize)> {
    (0..segments.len())
        .flat_map(|segment| (0..segments[segment].len()).map(move |line| (segment, line)))
        .collect()
}

#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let original = ledger();
    let mut flips = 0;
    for (segment, line) in lines(&original) {
        let expected = place(&original, segment, line);
        for at in 0..original[segment][line].len() {
            for bit in 0..8 {
                let mut segments = original.clone();
                segments[segment][line][at] ^= 1 << bit;
                // The lines before this one are unchanged: it is enough to verify these two segments from here on.
                let mut verifier =
                    Verifier::new(VerifyOptions { start: ChainStart::Anywhere, kept_head: None });
                verifier.begin_segment(segment as u64 + 1);
                let bytes = segments[segment].concat();
                for text in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if verifier.feed(text).is_err() {
                        break;
                    }
                }
                let found = verifier.finish().unwrap_err();
                assert_eq!(found.position, expected, "byte {at}, bit {bit}: {found}");
                assert!(matches!(found.damage, Damage::Changed(_)), "{found}");
                flips += 1;
            }
        }
    }
    assert!(flips > 50_000, "{flips}");
}

#[test]
fn removed_lines_are_missing_where_they_were() {
    let original = ledger();
    let last = head(&original).sequence;
    let mut sequence = 0;
    for (segment, line) in lines(&original) {
        sequence += 1;
        let mut segments = original.clone();
        segments[segment].remove(line);
        if sequence == last {
            // Only a head kept elsewhere shows that lines at the end are missing.
            assert!(verify(&joined(&segments), VerifyOptions::default()).0.is_ok());
            let kept = head(&original);
            let check = VerifyOptions { kept_head: Some(kept), ..VerifyOptions::default() };
            let found = verify(&joined(&segments), check).0.unwrap_err();
            assert_eq!(found.damage, Damage::Truncated { last: last - 1, kept });
            continue;
        }
        let found = wrong(&segments);
        // After a segment's last line, the next line is the next segment's first.
        let at = if line + 1 == original[segment].len() { (segment + 1, 0) } else { (segment, line) };
        assert_eq!(found.position, place(&original, at.0, at.1));
        assert_eq!(found.damage, Damage::Missing { from: sequence, to: sequence });
    }
    let mut segments = original.clone();
    segments[0].drain(3..7);
    assert_eq!(wrong(&segments).damage, Damage::Missing { from: 4, to: 7 });
}

#[test]
fn a_missing_segment_is_found_and_the_rest_can_be_verified_after_its_head() {
    let original = ledger();
    let first = original[..1].to_vec();
    let kept = head(&first);
    let verify_second = |from| {
        let mut verifier = Verifier::new(VerifyOptions { start: from, kept_head: Some(head(&original)) });
        verifier.begin_segment(2);
        original[1].iter().for_each(|line| drop(verifier.feed(line)));
        verifier.finish()
    };
    assert_eq!(verify_second(ChainStart::Beginning).unwrap_err().damage, Damage::Missing { from: 1, to: 25 });
    assert_eq!(verify_second(ChainStart::After(kept)).unwrap().first, 26);
    assert_eq!(verify_second(ChainStart::Anywhere).unwrap().entries, 25);
    let other = LedgerHead { hash: Digest::of_bytes(b"other"), ..kept };
    assert_eq!(verify_second(ChainStart::After(other)).unwrap_err().damage, Damage::Unlinked);
    // The file of another segment under its name.
    let swapped = vec![original[1].concat()];
    let found =
        verify(&swapped, VerifyOptions { start: ChainStart::Anywhere, kept_head: None }).0.unwrap_err();
    assert_eq!(found.damage, Damage::Segment { expected: 1 });
}

#[test]
fn swapped_lines_are_reordered_where_the_first_of_them_stood() {
    let original = ledger();
    for line in 1..original[0].len() - 1 {
        for other in line + 1..original[0].len() {
            let mut segments = original.clone();
            segments[0].swap(line, other);
            let found = wrong(&segments);
            assert_eq!(found.position, place(&original, 0, line));
            let (expected, stands) = (line as u64 + 1, other as u64 + 1);
            assert_eq!(found.damage, Damage::Reordered { expected, found: stands }, "{found}");
        }
    }
}

#[test]
fn inserted_lines_are_found() {
    let original = ledger();
    for (segment, line) in lines(&original).into_iter().skip(1) {
        // The same line twice.
        let mut segments = original.clone();
        let copy = segments[segment][line].clone();
        segments[segment].insert(line, copy);
        let found = wrong(&segments);
        let sequence = parsed(&original[segment][line]).entry.sequence;
        assert_eq!((found.position.line, found.damage), (line as u64 + 2, Damage::Duplicate { sequence }));

        // Another line, which follows the one before as it should: then the one after it does not.
        if line == 0 {
            continue;
        }
        let mut segments = original.clone();
        let before = parsed(&original[segment][line - 1]);
        let event = LedgerEvent::SessionClosed { session: session(9), reason: CloseReason::Requested };
        let entry = LedgerEntry { sequence: before.entry.sequence + 1, event, ..before.entry };
        segments[segment].insert(line, encode_line(&entry, before.hash).line);
        let found = wrong(&segments);
        assert_eq!((found.position.line, found.damage), (line as u64 + 2, Damage::Duplicate { sequence }));
    }
}

#[test]
fn a_line_whose_hash_was_computed_anew_does_not_fit_to_the_next_one() {
    let original = ledger();
    let all = lines(&original);
    let kept = VerifyOptions { kept_head: Some(head(&original)), ..VerifyOptions::default() };
    for (at, (segment, line)) in all.iter().copied().enumerate() {
        let mut segments = original.clone();
        let LedgerLine { mut entry, prev, .. } = parsed(&original[segment][line]);
        entry.node = name("forged");
        segments[segment][line] = encode_line(&entry, prev).line;
        match all.get(at + 1) {
            Some((segment, line)) => {
                let found = wrong(&segments);
                let offset = segments[*segment][..*line].iter().map(Vec::len).sum::<usize>() as u64;
                let expected = LinePosition { offset, ..place(&original, *segment, *line) };
                assert_eq!((found.position, found.damage), (expected, Damage::Unlinked));
            }
            None => assert!(verify(&joined(&segments), VerifyOptions::default()).0.is_ok()),
        }
        assert!(verify(&joined(&segments), kept).0.is_err());

        // All hashes from there on are recomputed: only a head kept elsewhere shows the change.
        let mut prev = prev;
        for (segment, line) in &all[at..] {
            let LedgerLine { mut entry, .. } = parsed(&segments[*segment][*line]);
            entry.node = name("forged");
            let encoded = encode_line(&entry, prev);
            prev = encoded.hash;
            segments[*segment][*line] = encoded.line;
        }
        assert!(verify(&joined(&segments), VerifyOptions::default()).0.is_ok());
        let found = verify(&joined(&segments), kept).0.unwrap_err();
        assert!(matches!(found.damage, Damage::OtherHead { .. }), "{found}");
    }
}

#[test]
fn a_ledger_that_is_cut_off_anywhere_is_intact_up_to_there() {
    let original = ledger();
    let bytes = original[1].concat();
    let kept = head(&original);
    let check = VerifyOptions { start: ChainStart::Anywhere, kept_head: Some(kept) };
    for len in 0..bytes.len() {
        let run = |check| {
            let mut verifier = Verifier::new(check);
            verifier.begin_segment(2);
            bytes[..len].split_inclusive(|byte| *byte == b'\n').for_each(|line| drop(verifier.feed(line)));
            verifier.finish()
        };
        let verified = run(VerifyOptions { start: ChainStart::Anywhere, kept_head: None }).unwrap();
        let whole: usize = original[1]
            .iter()
            .map(Vec::len)
            .scan(0, |sum, len| {
                *sum += len;
                Some(*sum)
            })
            .filter(|end| *end <= len)
            .count();
        assert_eq!(verified.entries, whole as u64);
        let torn = len - original[1][..whole].iter().map(Vec::len).sum::<usize>();
        assert_eq!(verified.torn.map_or(0, |torn| torn.bytes), torn as u64);
        assert!(matches!(run(check).unwrap_err().damage, Damage::Truncated { .. }));
    }
    // Cut off in the middle, with lines after it.
    let mut segments = original.clone();
    let last = segments[0].len() - 1;
    segments[0][last].pop();
    let found = wrong(&segments);
    assert_eq!((found.position, found.damage), (place(&original, 0, last), Damage::Cut));
}

#[test]
fn time_goes_back_only_where_an_entry_says_so() {
    let encode_all = |events: Vec<(u64, LedgerEvent)>| {
        let (mut prev, mut lines) = (Digest::NONE, Vec::new());
        for (sequence, (at, event)) in (1..).zip(events) {
            let (begin, end) = (Timestamp(at), Timestamp(at));
            let encoded = encode_line(&LedgerEntry { sequence, node: name("n"), begin, end, event }, prev);
            prev = encoded.hash;
            lines.push(encoded.line);
        }
        vec![lines]
    };
    let segment = || LedgerEvent::Segment { format: FORMAT, segment: 1 };
    let set = |before| LedgerEvent::ClockSet { before: Timestamp(before) };
    let said = encode_all(vec![(9, segment()), (5, set(9)), (6, LedgerEvent::NodeStop)]);
    assert!(verify(&joined(&said), VerifyOptions::default()).0.is_ok());
    let time = Damage::Time { before: Timestamp(9), found: Timestamp(5) };
    for events in [vec![(9, segment()), (5, LedgerEvent::NodeStop)], vec![(9, segment()), (5, set(8))]] {
        assert_eq!(wrong(&encode_all(events)).damage, time);
    }
    for format in [0, FORMAT + 1] {
        let segment = LedgerEvent::Segment { format, segment: 1 };
        assert_eq!(wrong(&encode_all(vec![(1, segment)])).damage, Damage::Format(format));
    }
    // An entry that the first format does not have.
    let idle = || LedgerEvent::Idle { idle: idle(&[(1, 1)]) };
    let first = LedgerEvent::Segment { format: 1, segment: 1 };
    assert_eq!(wrong(&encode_all(vec![(1, first), (1, idle())])).damage, Damage::NotInFormat(1));
    // An entry that the second format does not have.
    let second = || LedgerEvent::Segment { format: 2, segment: 1 };
    assert!(
        verify(&joined(&encode_all(vec![(1, second()), (1, idle())])), VerifyOptions::default()).0.is_ok()
    );
    for later in [
        LedgerEvent::Decision(Box::new(Decision::new("show", DecisionOutcome::Allowed))),
        LedgerEvent::Unlisted { allowed: 1, refused: 0, handshakes: 0 },
        LedgerEvent::SessionClosed { session: session(1), reason: CloseReason::Parent },
        LedgerEvent::SessionClosed { session: session(1), reason: CloseReason::Revoked },
    ] {
        assert_eq!(wrong(&encode_all(vec![(1, second()), (1, later)])).damage, Damage::NotInFormat(2));
    }
    let third = LedgerEvent::Segment { format: 3, segment: 1 };
    let requests =
        LedgerEvent::Requests { key: None, credentials: Vec::new(), count: 1, refused: 0, cpu: Nanos(1) };
    assert_eq!(wrong(&encode_all(vec![(1, third), (1, requests)])).damage, Damage::NotInFormat(3));
    assert!(
        verify(&joined(&encode_all(vec![(1, segment()), (1, idle())])), VerifyOptions::default()).0.is_ok()
    );
    assert_eq!(wrong(&encode_all(vec![(1, LedgerEvent::NodeStop)])).damage, Damage::Segment { expected: 1 });
    assert_eq!(wrong(&encode_all(vec![(1, segment()), (1, segment())])).damage, Damage::SegmentInside);
}

#[test]
fn a_line_that_does_not_end_is_not_held_in_memory() {
    let mut verifier = Verifier::new(VerifyOptions::default());
    verifier.begin_segment(1);
    let found = verifier.feed(&vec![b'{'; LINE_BYTES_MAX + 1]).unwrap_err();
    assert_eq!(found.damage, Damage::TooLong);
    // The first damage stays the reported one.
    assert_eq!(verifier.feed(b"x\n"), Err(found));
    assert_eq!(verifier.finish(), Err(found));
    let mut verifier = Verifier::new(VerifyOptions::default());
    verifier.begin_segment(1);
    let found = verifier.feed(b"\n").unwrap_err();
    assert_eq!(
        found.to_string(),
        "segment 1, line 1 (byte 0): the line was changed: it does not end with a hash"
    );
    assert_eq!(found.damage, Damage::Changed(LedgerLineError::NoHash));
}
