//! Single cases of a link's scheduler.

use crate::link::disciplines::Weir;
use crate::link::properties::QUEUE;
use crate::link::simulator::{Event, run};
use weir_sched::link::{
    Cap, ChannelTerms, Dropped, Framing, LinkClass, LinkConfigError, LinkDecision, LinkDropCause,
    LinkReservation, LinkScheduler, LinkSchedulerConfig, Pacing, QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// 8 Mbit/s, without framing: a byte is a microsecond.
fn config() -> LinkSchedulerConfig {
    LinkSchedulerConfig {
        framing: Framing::NONE,
        frame_max: 1_000,
        ..LinkSchedulerConfig::ethernet(BitsPerSecond(8_000_000))
    }
}

fn best_effort(weight: u16) -> ChannelTerms {
    ChannelTerms { reservation: None, cap: None, weight, queue: QUEUE }
}

fn reserved(rate: u64) -> ChannelTerms {
    ChannelTerms { reservation: LinkReservation::rate(BitsPerSecond(rate)), ..best_effort(0) }
}

const MICROS: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// A channel with half of the link that was idle for a second gets half of it, and no credit for the idle time.
#[test]
fn an_idle_channel_has_saved_no_credit() {
    let mut weir = Weir::new(config());
    let events = [
        (0, Event::Terms { who: 0, terms: Some(reserved(4_000_000)) }),
        (0, Event::Terms { who: 1, terms: Some(best_effort(1)) }),
        (0, Event::Greedy { who: 1, length: 1_000 }),
        (SECOND, Event::Greedy { who: 0, length: 1_000 }),
    ];
    let log = run(&mut weir, &events, SECOND + 100_000 * MICROS);
    let after: Vec<usize> =
        log.sent.iter().filter(|sent| sent.begin >= SECOND).map(|sent| sent.who).collect();
    let mine = after.iter().filter(|who| **who == 0).count();
    assert!((50..=51).contains(&mine), "{mine} of {}", after.len());
    assert!(after.windows(3).all(|three| three.contains(&1)), "never three in a row: {after:?}");
}

/// Of two best-effort channels, one was idle for a second or was stopped by its cap. Then each gets half.
#[test]
fn an_idle_best_effort_channel_has_saved_no_credit() {
    for cap in [None, Cap::strict(BitsPerSecond(1_000))] {
        let mut weir = Weir::new(config());
        let events = [
            (0, Event::Terms { who: 0, terms: Some(best_effort(1)) }),
            (0, Event::Terms { who: 1, terms: Some(ChannelTerms { cap, ..best_effort(1) }) }),
            (0, Event::Greedy { who: 0, length: 1_000 }),
            (if cap.is_some() { 0 } else { SECOND }, Event::Greedy { who: 1, length: 1_000 }),
            (SECOND, Event::Terms { who: 1, terms: Some(best_effort(1)) }),
        ];
        let log = run(&mut weir, &events, SECOND + 100_000 * MICROS);
        let after: Vec<usize> =
            log.sent.iter().filter(|sent| sent.begin >= SECOND).map(|sent| sent.who).collect();
        assert!(after.windows(2).skip(1).all(|two| two[0] != two[1]), "in turns: {after:?}");
    }
}

/// The known fault of VirtualClock: a channel that used the whole idle link has to wait until real time has caught up
/// with its clock. Here it gets its tenth from the first packet on.
#[test]
fn a_channel_that_used_idle_bandwidth_is_not_punished() {
    let mut weir = Weir::new(config());
    let events = [
        (0, Event::Terms { who: 0, terms: Some(ChannelTerms { weight: 1, ..reserved(800_000) }) }),
        (0, Event::Terms { who: 1, terms: Some(best_effort(60_000)) }),
        (0, Event::Greedy { who: 0, length: 1_000 }),
        (SECOND, Event::Greedy { who: 1, length: 1_000 }),
    ];
    let log = run(&mut weir, &events, 2 * SECOND);
    let mine = |from: u64| {
        log.sent
            .iter()
            .filter(|sent| sent.who == 0 && (from..from + 20_000 * MICROS).contains(&sent.begin))
            .count()
    };
    assert_eq!(mine(SECOND - 20_000 * MICROS), 20, "all of the link");
    assert!((2..=3).contains(&mine(SECOND)), "{} of 20, a tenth and the one of its weight", mine(SECOND));
}

/// Up to its limit, a channel with a period is sent at once, before excess traffic; then at its rate.
#[test]
fn up_to_a_period_s_limit_is_sent_at_once() {
    let reservation = LinkReservation::per_period(Bytes(3_000), Nanos(10_000 * MICROS));
    let mut link = LinkScheduler::new(config()).expect("a link");
    let greedy = link.open(best_effort(1), Nanos(0)).expect("a channel");
    let bursty = link.open(ChannelTerms { reservation, ..best_effort(0) }, Nanos(0)).expect("a channel");
    for _ in 0..5 {
        assert!(link.enqueue(greedy, "greedy", 1_000, Nanos(0)).is_ok());
        assert!(link.enqueue(bursty, "bursty", 1_000, Nanos(0)).is_ok());
    }
    let mut order = Vec::new();
    let mut now = Nanos(0);
    loop {
        match link.next(now) {
            LinkDecision::Send { packet, .. } => order.push((packet, now.0 / (1_000 * MICROS))),
            LinkDecision::Wait { until } => now = until,
            LinkDecision::Idle => break,
        }
    }
    let expected = [
        ("bursty", 0),
        ("bursty", 1),
        ("bursty", 2),
        ("greedy", 3),
        ("bursty", 4),
        ("greedy", 5),
        ("greedy", 6),
    ];
    assert_eq!(
        order[..7],
        expected,
        "the fourth conforms at 10 ms x 4,000 / 3,000 - 10 ms, between the greedy one's"
    );
    let delays = link.counters(bursty).expect("a channel").delays;
    assert_eq!(delays.max, Nanos(7_000 * MICROS), "the fifth conforms at 6.7 ms");
}

#[test]
fn a_queue_is_bounded_and_drops_are_counted() {
    let mut link = LinkScheduler::new(config()).expect("a link");
    let queue = QueueLimit { packets: 2, bytes: Bytes(1_500) };
    let id = link.open(ChannelTerms { queue, ..best_effort(1) }, Nanos(0)).expect("a channel");
    let dropped = |cause, packet| Err(Dropped { cause, packet });
    assert_eq!(link.enqueue(id, 'a', 1_000, Nanos(0)), Ok(()));
    assert_eq!(link.enqueue(id, 'b', 501, Nanos(0)), dropped(LinkDropCause::QueueBytes, 'b'));
    assert_eq!(link.enqueue(id, 'c', 500, Nanos(0)), Ok(()));
    assert_eq!(link.enqueue(id, 'd', 1, Nanos(0)), dropped(LinkDropCause::QueuePackets, 'd'));
    assert_eq!(link.enqueue(id, 'e', 1_001, Nanos(0)), dropped(LinkDropCause::TooLong, 'e'));
    let counters = *link.counters(id).expect("a channel");
    let drops = [counters.dropped_queue_bytes, counters.dropped_queue_packets, counters.dropped_too_long];
    assert_eq!(drops.map(|volume| (volume.packets, volume.bytes.0)), [(1, 501), (1, 1), (1, 1_001)]);
    assert_eq!(link.waiting(id), Some((2, Bytes(1_500))));
    // A longer queue accepts more packets at once.
    let queue = QueueLimit { packets: 3, bytes: Bytes(2_000) };
    assert_eq!(link.change(id, ChannelTerms { queue, ..best_effort(1) }, Nanos(0)), Ok(()));
    assert_eq!(link.enqueue(id, 'f', 500, Nanos(0)), Ok(()));
    let closed = link.close(id, Nanos(0)).expect("a channel");
    assert_eq!(closed.unsent, ['a', 'c', 'f'], "waiting packets are returned");
    assert_eq!(link.next(Nanos(0)), LinkDecision::Idle);
    let again = link.open(best_effort(1), Nanos(0)).expect("a channel");
    assert_ne!(again, id, "the identifier of a closed channel is not reused");
    assert_eq!(link.enqueue(id, 'g', 1, Nanos(0)), dropped(LinkDropCause::NoSuchChannel, 'g'));
    assert!(link.close(id, Nanos(0)).is_none() && link.counters(id).is_none());
}

/// If the device paces, the scheduler adds no waits, except for a cap.
#[test]
fn the_device_may_pace() {
    let mut link =
        LinkScheduler::new(LinkSchedulerConfig { pacing: Pacing::Device, ..config() }).expect("a link");
    let free = link.open(best_effort(1), Nanos(0)).expect("a channel");
    let cap = Cap::strict(BitsPerSecond(800_000));
    let capped = link.open(ChannelTerms { cap, ..best_effort(1) }, Nanos(0)).expect("a channel");
    for id in [free, free, capped, capped] {
        assert!(link.enqueue(id, (), 1_000, Nanos(0)).is_ok());
    }
    for channel in [free, capped, free] {
        let sent = LinkDecision::Send { channel, packet: (), length: 1_000, class: LinkClass::Excess };
        assert_eq!(link.next(Nanos(0)), sent);
    }
    assert_eq!(link.next(Nanos(0)), LinkDecision::Wait { until: Nanos(10_000 * MICROS) });
}

/// A late caller may catch up as far as configured, but not with time in which nothing waited.
#[test]
fn a_late_caller_catches_up() {
    for (catch_up, expected) in [(0, 1), (2_500 * MICROS, 3), (60_000 * MICROS, 5)] {
        let pacing = Pacing::Link { catch_up: Nanos(catch_up) };
        let mut link = LinkScheduler::new(LinkSchedulerConfig { pacing, ..config() }).expect("a link");
        let id = link.open(best_effort(1), Nanos(0)).expect("a channel");
        let start = 100_000 * MICROS;
        for _ in 0..20 {
            assert!(link.enqueue(id, (), 1_000, Nanos(start)).is_ok());
        }
        let mut at = |now| {
            std::iter::from_fn(|| Some(link.next(Nanos(now))))
                .take_while(|decision| matches!(decision, LinkDecision::Send { .. }))
                .count()
        };
        assert_eq!(at(start), 1, "nothing to catch up with");
        assert_eq!(at(start + 5_000 * MICROS), expected, "4 ms late: {catch_up}");
    }
}

#[test]
fn an_invalid_configuration_is_refused() {
    let link = |config: LinkSchedulerConfig| LinkScheduler::<()>::new(config).err();
    assert_eq!(
        link(LinkSchedulerConfig { rate: BitsPerSecond(0), ..config() }),
        Some(LinkConfigError::NoRate)
    );
    let most = 1 << 20;
    assert_eq!(
        link(LinkSchedulerConfig { frame_max: most + 1, ..config() }),
        Some(LinkConfigError::FrameTooLong { given: most + 1, most })
    );
    let most = 1 << 16;
    assert_eq!(
        link(LinkSchedulerConfig { channels_max: 0, ..config() }),
        Some(LinkConfigError::Channels { given: 0, most })
    );
    let (reservable, rate) = (BitsPerSecond(8_000_001), config().rate);
    assert_eq!(
        link(LinkSchedulerConfig { reservable, ..config() }),
        Some(LinkConfigError::ReservableOverRate { reservable, rate })
    );
    let mut one =
        LinkScheduler::<()>::new(LinkSchedulerConfig { channels_max: 1, ..config() }).expect("a link");
    let id = one.open(best_effort(1), Nanos(0)).expect("a channel");
    assert!(one.open(best_effort(1), Nanos(0)).is_err());
    assert!(one.close(id, Nanos(0)).is_some() && one.open(best_effort(1), Nanos(0)).is_ok());
}
