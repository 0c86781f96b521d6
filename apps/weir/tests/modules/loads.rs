//! The load-generating modules: spin uses CPU time, flood sends frames, hog allocates memory.

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND};
use super::packet::Packet;
use super::weir::run;

/// A capture with one packet per millisecond.
fn packets(count: u64) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for i in 0..count {
        capture.push(BEGIN + i * MILLISECOND, Packet::udp("10.0.0.1:1", "10.0.0.2:2").ethernet());
    }
    capture
}

#[test]
fn spin_does_the_configured_number_of_rounds() {
    let run = run(&packets(11), &["-m", "spin,per-packet=10,per-tick=1000,interval=1ms"]);
    assert_eq!(run.summary["modules"][0]["tier"], "metered", "{}", run.summary);
    let row = run.rows("spin", "totals").pop().unwrap();
    let numbers = ["packets", "ticks", "rounds", "lost"].map(|name| row.number(name));
    assert_eq!(numbers, [11, 10, 11 * 10 + 10 * 1000, 0]);
    // Xorshift, as in the module's source.
    let state = (0..10_110).fold(0x9E37_79B9_7F4A_7C15u64, |state, _| {
        let state = state ^ state << 13;
        let state = state ^ state >> 7;
        state ^ state << 17
    });
    assert_eq!(row.number("state"), i128::from(state));
}

#[test]
fn flood_sends_the_configured_number_of_frames() {
    let run = run(&packets(3), &["-m", "flood,size=100,per-packet=2,per-tick=5,interval=1ms,mark=77"]);
    let sent = run.sent("flood", "flood").frames;
    let marks = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, 0, 0, 0, 0, 0, 0, 0, 77];
    for (number, frame) in (0u64..).zip(&sent) {
        assert_eq!((frame.bytes.len(), &frame.bytes[..22]), (100, &marks[..]));
        assert_eq!(frame.bytes[22..30], number.to_be_bytes());
    }
    assert_eq!(sent.len(), 3 * 2 + 2 * 5);
    let totals = |run: &super::weir::Run| {
        let row = run.rows("flood", "totals").pop().unwrap();
        ["sent", "full", "denied", "other"].map(|name| row.number(name))
    };
    assert_eq!(totals(&run), [16, 0, 0, 0]);
}

#[test]
fn flood_counts_frames_over_its_limit() {
    // The ticks within a block share one limit of 4 MiB, which holds 455 of these frames.
    let run = run(&packets(6), &["-m", "flood,size=9216,interval=1ms"]);
    assert_eq!(run.sent("flood", "flood").frames.len(), 455);
    let row = run.rows("flood", "totals").pop().unwrap();
    assert_eq!((row.number("sent"), row.number("full")), (455, 5));
}

#[test]
fn hog_allocates_objects_and_its_memory_stays_bounded() {
    let memory = |ticks: u64| {
        let run = run(
            &packets(ticks + 1),
            &["-m", "hog,per-packet=3,per-tick=500,live=1000,size=200,interval=1ms"],
        );
        assert_eq!(run.summary["modules"][0]["tier"], "metered", "{}", run.summary);
        let row = run.rows("hog", "totals").pop().unwrap();
        let numbers = ["packets", "ticks", "made", "lost"].map(|name| row.number(name));
        let (packets, ticks) = (i128::from(ticks + 1), i128::from(ticks));
        assert_eq!(numbers, [packets, ticks, packets * 3 + ticks * 500, 0]);
        run.summary["modules"][0]["memory_bytes"].as_u64().unwrap()
    };
    // 1000 objects of 200 bytes are alive, and 1000 times as many are allocated.
    let (few, many) = (memory(100), memory(2000));
    assert!((200_000..2_000_000).contains(&few), "{few}");
    assert!(many <= 2 * few, "{few} and {many}: its garbage is collected");
}
