//! The pace of a source: the times at which its thread looks for packets, where the kernel could wake it for each one.

use std::time::Duration;

/// If at least this many packets arrive in an interval, the next ones are gathered, too.
const GATHERED_MIN: usize = 2;
/// A sleep of less than this part of the interval costs more than it saves.
const WORTHWHILE_PART: u32 = 8;

/// The pace of a source.
///
/// A wake-up costs more than all other work on a packet. So while packets arrive frequently, the thread looks for them
/// only at intervals, even if some have arrived already. Otherwise a few packets would arrive during the work on each
/// block of a few packets, and the thread would never sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The time at which packets were last looked for, in ns of the monotonic clock.
    last: u64,
    /// The number of packets that were there.
    packets: usize,
}

impl Pace {
    /// The time to sleep at time `now` before looking for packets. It is the rest of the interval `time`, which is
    /// shortened so that no more than `packets_max` packets are expected to gather.
    pub(crate) fn pause(self, now: u64, time: Duration, packets_max: usize) -> Option<Duration> {
        if self.packets < GATHERED_MIN {
            return None;
        }
        let to_u32 = |packets: usize| u32::try_from(packets).unwrap_or(u32::MAX);
        let time = if self.packets > packets_max {
            (time * to_u32(packets_max)).checked_div(to_u32(self.packets)).unwrap_or(time)
        } else {
            time
        };
        let since = Duration::from_nanos(now.saturating_sub(self.last));
        time.checked_sub(since).filter(|rest| *rest > time / WORTHWHILE_PART)
    }

    /// Records that packets were looked for at time `now`, and how many there were.
    pub(crate) fn record(&mut self, now: u64, packets: usize) {
        (self.last, self.packets) = (now, packets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(200);

    #[test]
    fn frequent_packets_are_looked_for_at_intervals() {
        let mut pace = Pace::default();
        assert_eq!(pace.pause(1_000_000, TIME, 64), None);
        pace.record(1_000_000, 5);
        assert_eq!(pace.pause(1_050_000, TIME, 64), Some(Duration::from_micros(150)));
        assert_eq!(pace.pause(1_190_000, TIME, 64), None, "not worth a sleep");
        assert_eq!(pace.pause(9_000_000, TIME, 64), None, "the interval is over");
        for packets in [0, 1] {
            pace.record(9_000_000, packets);
            assert_eq!(pace.pause(9_000_000, TIME, 64), None, "packets are rare");
        }
    }

    #[test]
    fn the_interval_is_short_if_more_packets_than_fit_would_gather() {
        let mut pace = Pace::default();
        pace.record(1_000_000, 256);
        assert_eq!(pace.pause(1_000_000, TIME, 64), Some(TIME / 4));
        assert_eq!(pace.pause(1_000_000, TIME, 0), None);
    }
}
