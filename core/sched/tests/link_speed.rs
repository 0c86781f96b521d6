//! The time of a link decision. By hand: `cargo test --release -p weir-sched --test sched link_speed -- --ignored
//! --nocapture`.

use std::time::Instant;
use weir_sched::link::{
    ChannelTerms, LinkDecision, LinkReservation, LinkScheduler, LinkSchedulerConfig, Pacing, QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// Packets in a round.
const PACKETS: u64 = 20_000;
/// The fastest round counts, as other rounds were disturbed.
const ROUNDS: usize = 50;

/// One packet is queued and one sent, with all channels backlogged, half of them with a reservation, on a saturated
/// link.
#[test]
#[ignore = "measures time: wants a quiet machine"]
fn a_decision_is_quick() {
    for channels in [10u32, 100, 1_000] {
        let rate = BitsPerSecond(10_000_000_000);
        let pacing = Pacing::Link { catch_up: Nanos(0) };
        let mut link =
            LinkScheduler::new(LinkSchedulerConfig { pacing, ..LinkSchedulerConfig::ethernet(rate) })
                .expect("a link");
        let ids: Vec<_> = (0..channels)
            .map(|channel| {
                let limit = Bytes(1_250_000 / u64::from(channels) * u64::from(1 - channel % 2));
                let terms = ChannelTerms {
                    reservation: LinkReservation::per_period(
                        limit,
                        Nanos(1_000_000 + u64::from(channel) * 1_000),
                    ),
                    cap: None,
                    weight: 1,
                    queue: QueueLimit { packets: 16, bytes: Bytes(1 << 20) },
                };
                link.open(terms, Nanos(0)).expect("half of the link is reserved")
            })
            .collect();
        for id in ids.iter().cycle().take(ids.len() * 2) {
            link.enqueue(*id, 0u64, 1_514, Nanos(0)).expect("room");
        }
        let mut now = Nanos(0);
        let mut round = || {
            let begin = Instant::now();
            let mut sent = 0;
            while sent < PACKETS {
                match link.next(now) {
                    LinkDecision::Send { channel, packet, .. } => {
                        sent += 1;
                        link.enqueue(channel, packet + 1, 1_514, now).expect("room");
                    }
                    LinkDecision::Wait { until } => now = until,
                    LinkDecision::Idle => unreachable!("something always waits"),
                }
            }
            begin.elapsed().as_nanos() / u128::from(PACKETS)
        };
        let each = (0..ROUNDS).map(|_| round()).min().expect("rounds");
        println!("{channels} channels: {each} ns for a packet (enqueue, next that sends, next that waits)");
        assert!(each < if channels <= 10 { 200 } else { 1_000 }, "{each} ns with {channels} channels");
    }
}
