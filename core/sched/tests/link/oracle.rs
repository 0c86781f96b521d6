//! Checks a log against the guarantees. It shares only the log with the scheduler: rates are exact fractions here
//! too, but all sums are recomputed.

use crate::link::simulator::Sent;

/// Times in the log are whole nanoseconds, and an interval has two of them.
const ROUNDING: i128 = 2;

/// A rate of `bytes` per `nanos`.
#[derive(Clone, Copy, Debug)]
pub struct Fraction {
    pub bytes: u64,
    pub nanos: u64,
}

impl Fraction {
    pub fn of_rate(bits_per_second: u64) -> Fraction {
        Fraction { bytes: bits_per_second, nanos: 8_000_000_000 }
    }

    /// The bytes in `time`, times `nanos`, so that the result is exact.
    fn scaled(self, time: i128) -> i128 {
        i128::from(self.bytes) * time
    }

    fn bytes(self, bytes: i128) -> i128 {
        i128::from(self.nanos) * bytes
    }
}

fn sent_by(sent: &[Sent], who: usize) -> impl Iterator<Item = &Sent> {
    sent.iter().filter(move |sent| sent.who == who)
}

/// From any instant at which the channel begins to have packets, it has begun to send at least rate x time -
/// `longest` - its lead over its clock then. Over any interval with packets: at least rate x interval - `longest` -
/// `ahead`. The clock counts packets sent by the reservation.
pub fn lag(sent: &[Sent], who: usize, rate: Fraction, longest: u32, ahead: u64) -> Result<(), String> {
    let mut begun: i128 = 0;
    let mut last_begin: Option<u64> = None;
    let (mut floor, mut best, mut clock) = (0, 0, 0);
    for packet in sent_by(sent, who) {
        let is_new = last_begin.is_none_or(|last| packet.arrived > last);
        // Bytes beyond the rate at this packet's start, without the packet; and at its arrival, if that starts a
        // backlog.
        let at = |time: u64| rate.bytes(begun) - rate.scaled(i128::from(time));
        if is_new {
            best = at(packet.arrived);
            floor = best - (clock - rate.scaled(i128::from(packet.arrived))).max(0);
        }
        let surplus = at(packet.begin) + rate.scaled(ROUNDING) + rate.bytes(i128::from(longest));
        if surplus < floor {
            return Err(format!(
                "{who} lags {} bytes at {packet:?}",
                (floor - surplus) / i128::from(rate.nanos)
            ));
        }
        best = best.max(at(packet.begin));
        if surplus + rate.bytes(i128::from(ahead)) < best {
            return Err(format!("{who} lags over an interval that ends at {packet:?}"));
        }
        if packet.reserved {
            clock =
                clock.max(rate.scaled(i128::from(packet.arrived))) + rate.bytes(i128::from(packet.length));
        }
        begun += i128::from(packet.length);
        last_begin = Some(packet.begin);
    }
    Ok(())
}

/// In any interval the channel begins to send at most cap x interval + `burst` + one packet.
pub fn cap(sent: &[Sent], who: usize, cap: Fraction, burst: u64) -> Result<(), String> {
    let mut begun: i128 = 0;
    let mut least: Option<i128> = None;
    for packet in sent_by(sent, who) {
        // The packet itself is that one packet.
        let at = cap.bytes(begun) - cap.scaled(i128::from(packet.begin));
        let lowest = *least.insert(least.map_or(at, |least| least.min(at)));
        let over = at - lowest - cap.bytes(i128::from(burst)) - cap.scaled(ROUNDING);
        if over > 0 {
            return Err(format!(
                "{who} is {} bytes over its cap at {packet:?}",
                over / i128::from(cap.nanos)
            ));
        }
        begun += i128::from(packet.length);
    }
    Ok(())
}

/// Every packet has left by its guaranteed-rate clock value (max(arrival, value of the packet before) + length /
/// rate) plus the time of the longest frame.
pub fn delay(sent: &[Sent], who: usize, rate: Fraction, link: Fraction, longest: u32) -> Result<(), String> {
    // In units of 2^-32 nanoseconds, rounded down, in favour of the channel.
    let time = |length: u32, rate: Fraction| {
        i128::from(length) * i128::from(rate.nanos) * (1 << 32) / i128::from(rate.bytes)
    };
    let mut finish = 0;
    for packet in sent_by(sent, who) {
        finish = finish.max(i128::from(packet.arrived) << 32) + time(packet.length, rate);
        let left = (i128::from(packet.begin) << 32) + time(packet.length, link);
        if left > finish + time(longest, link) + (ROUNDING << 32) {
            return Err(format!("{packet:?} leaves {} ns late", (left - finish) >> 32));
        }
    }
    Ok(())
}

/// The link is never idle while a packet of one of `who` waits, and frames do not overlap.
pub fn work(sent: &[Sent], who: &[usize], link: Fraction) -> Result<(), String> {
    // The earliest arrival among the packets still to be sent, at each frame.
    let mut earliest = vec![u64::MAX; sent.len() + 1];
    for (at, packet) in sent.iter().enumerate().rev() {
        earliest[at] =
            earliest[at + 1].min(if who.contains(&packet.who) { packet.arrived } else { u64::MAX });
    }
    // The end of the last idle time and the bytes since, so that rounding errors do not add up.
    let (mut from, mut bytes) = (0u64, 0u64);
    for (at, packet) in sent.iter().enumerate() {
        let free = from
            + u64::try_from(u128::from(bytes) * u128::from(link.nanos) / u128::from(link.bytes))
                .expect("a time");
        if packet.begin < free {
            return Err(format!("{packet:?} begins before the link is free at {free}"));
        }
        if packet.begin > free {
            if earliest[at] < packet.begin && packet.begin > free.max(earliest[at]) {
                return Err(format!(
                    "the link was idle from {free} to {}, a packet waited since {}",
                    packet.begin, earliest[at]
                ));
            }
            (from, bytes) = (packet.begin, 0);
        }
        bytes += u64::from(packet.length);
    }
    Ok(())
}

/// Channels `a` and `b`, given with their weights, always have packets: over any interval their excess per weight
/// differs by at most a longest packet per weight of each.
pub fn fairness(sent: &[Sent], a: (usize, u16), b: (usize, u16), longest: [u32; 2]) -> Result<(), String> {
    let [weight_a, weight_b] = [i128::from(a.1), i128::from(b.1)];
    let bound = i128::from(longest[0]) * weight_b + i128::from(longest[1]) * weight_a;
    // The error of the scheduler's reciprocals of weights is below 2^-24 each.
    let slack = |total: i128| total >> 22;
    let (mut difference, mut total, mut low, mut high) = (0i128, 0i128, 0i128, 0i128);
    for packet in sent.iter().filter(|packet| !packet.reserved) {
        let length = i128::from(packet.length);
        match packet.who {
            who if who == a.0 => difference += length * weight_b,
            who if who == b.0 => difference -= length * weight_a,
            _ => continue,
        }
        total += length * weight_a.max(weight_b);
        (low, high) = (low.min(difference), high.max(difference));
        if high - low > bound + slack(total) {
            return Err(format!("{a:?} and {b:?} are {} apart, {bound} is the bound", high - low));
        }
    }
    Ok(())
}

/// The least and the greatest rate of `who`, in bits per second, over the intervals of `window` that end at a frame's
/// start within `from..to`. A frame's bits count while they are on the wire of `link`.
pub fn rates(sent: &[Sent], who: usize, (from, to): (u64, u64), window: u64, link: u64) -> (f64, f64) {
    let mine: Vec<&Sent> = sent_by(sent, who).collect();
    let time = |length: u32| u64::from(length) * 8_000_000_000 / link;
    // Bits on the wire up to a time: whole frames, and part of the one under way.
    let mut whole = vec![0u64];
    for packet in &mine {
        whole.push(whole[whole.len() - 1] + u64::from(packet.length) * 8);
    }
    let until = |moment: u64| {
        let begun = mine.partition_point(|packet| packet.begin < moment);
        let Some(last) = begun.checked_sub(1).map(|last| mine[last]) else { return 0.0 };
        let part = (moment - last.begin).min(time(last.length)) as f64 / time(last.length) as f64;
        whole[begun - 1] as f64 + part * (whole[begun] - whole[begun - 1]) as f64
    };
    let ends = sent.iter().map(|packet| packet.begin).filter(|end| *end >= from + window && *end <= to);
    ends.map(|end| (until(end) - until(end - window)) / (window as f64 / 1e9))
        .fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)))
}
