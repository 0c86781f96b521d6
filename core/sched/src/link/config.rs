//! The configuration of a link, and the terms of an output channel: reservation, cap, weight and queue limits.

use super::clock::ByteTime;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The longest frame on the wire that a link supports, in bytes: 1 MiB.
pub const FRAME_MAX: u32 = 1 << 20;

/// The largest limit of packets in a channel's queue.
pub const QUEUE_PACKETS_MAX: u32 = 1 << 16;

/// The most channels of a link.
pub const CHANNELS_MAX: u32 = 1 << 16;

/// The cost of a frame on the wire beside its own bytes. Rates, limits and counters are all in bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Bytes added to every frame.
    pub overhead: u32,
    /// The minimum length; shorter frames are padded to it before the overhead is added.
    pub least: u32,
}

impl Framing {
    /// Ethernet, for frames without their check sequence: 8 bytes of preamble and start delimiter, 4 of check
    /// sequence, 12 of gap, and a minimum of 60 bytes (IEEE 802.3, 3.1.1 and 4.4.2).
    pub const ETHERNET: Framing = Framing { overhead: 24, least: 60 };
    /// Frames without overhead or minimum.
    pub const NONE: Framing = Framing { overhead: 0, least: 1 };

    /// The length on the wire of a frame of `length` bytes; at least 1.
    pub fn on_wire(self, length: u32) -> u32 {
        length.max(self.least).max(1).saturating_add(self.overhead)
    }
}

/// The side that limits the rate at which frames are sent: the scheduler or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The scheduler limits the rate: a frame occupies the link for its length / the link's rate.
    Link {
        /// The most time that a late caller may make up for by sending back to back. With zero, no frame starts
        /// before the previous one has ended.
        catch_up: Nanos,
    },
    /// The device limits the rate: the caller asks for a frame whenever the device has space for one.
    Device,
}

/// The configuration of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSchedulerConfig {
    /// The rate in bits on the wire per second.
    pub rate: BitsPerSecond,
    /// The part of the rate that can be reserved.
    pub reservable: BitsPerSecond,
    /// The cost of a frame beside its bytes.
    pub framing: Framing,
    /// The longest frame, without framing, in bytes. While it is sent, it blocks other channels for its length / rate,
    /// so every guarantee allows for one such frame.
    pub frame_max: u32,
    /// The side that limits the rate at which frames are sent.
    pub pacing: Pacing,
    /// The most channels that can be open.
    pub channels_max: u32,
}

impl LinkSchedulerConfig {
    /// An Ethernet link that the scheduler paces, fully reservable, for frames of up to 1,514 bytes and up to 1,024
    /// channels.
    pub fn ethernet(rate: BitsPerSecond) -> LinkSchedulerConfig {
        LinkSchedulerConfig {
            rate,
            reservable: rate,
            framing: Framing::ETHERNET,
            frame_max: 1_514,
            pacing: Pacing::Link { catch_up: Nanos(0) },
            channels_max: 1_024,
        }
    }
}

/// A reservation guarantees a channel a rate: `limit` bytes in each `period`. *Limit* is Piglet's word for the bytes
/// that are guaranteed in a period; a channel's upper limit is its [`Cap`]. Piglet schedules the links of SQoSH, and
/// its `set_vclock` takes a period and a limit (Alexander et al., SQoSH, IEEE Communications Magazine, 2000, section
/// 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReservation {
    pace: ByteTime,
    rate: BitsPerSecond,
    period: Nanos,
}

impl LinkReservation {
    /// Reserves `limit` bytes on the wire in each `period`. The channel may send up to `limit` bytes back to back. They
    /// precede all excess traffic, which is what channels send without or beyond a reservation. `None` if `limit` or
    /// `period` is zero, the period over 10 s, the limit over 2^60 bytes, or the rate over 2^64 - 1 bits per second.
    pub fn per_period(limit: Bytes, period: Nanos) -> Option<LinkReservation> {
        let pace = ByteTime::of_period(limit, period)?;
        Some(LinkReservation { pace, rate: pace.rate()?, period })
    }

    /// Reserves an even rate: each packet may be sent its length / `rate` after the one before. `None` if the rate is
    /// zero or over 2^60.
    pub fn rate(rate: BitsPerSecond) -> Option<LinkReservation> {
        Some(LinkReservation { pace: ByteTime::of_rate(rate)?, rate, period: Nanos(0) })
    }

    /// Reserves in each `period` the bytes that a link of rate `link` transmits in `slice`, such as "2 ms in 6 ms"
    /// (Price of Safety, figure 12). `None` as in [`LinkReservation::per_period`].
    pub fn slice(slice: Nanos, period: Nanos, link: BitsPerSecond) -> Option<LinkReservation> {
        let bytes = u128::from(slice.0) * u128::from(link.0) / (8 * u128::from(Nanos::SECOND.0));
        LinkReservation::per_period(Bytes(u64::try_from(bytes).ok()?), period)
    }

    /// The rate in bits on the wire per second, rounded up.
    pub fn bits_per_second(self) -> BitsPerSecond {
        self.rate
    }

    /// The period; zero for an even rate.
    pub fn period(self) -> Nanos {
        self.period
    }

    /// The time that a byte takes at the reserved rate.
    pub(super) fn pace(self) -> ByteTime {
        self.pace
    }

    /// The bytes and the period that the reservation was made from; for an even rate the rate and zero.
    pub(super) fn parts(self) -> (u64, Nanos) {
        (self.pace.parts().0.0, self.period)
    }

    /// Recreates a reservation from its parts.
    pub(super) fn from_parts(amount: u64, period: Nanos) -> Option<LinkReservation> {
        if period.0 == 0 {
            LinkReservation::rate(BitsPerSecond(amount))
        } else {
            LinkReservation::per_period(Bytes(amount), period)
        }
    }
}

/// An upper limit of a channel's rate. In any interval, the bytes that the channel begins to send exceed `rate` x
/// interval + `burst` by at most one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    pace: ByteTime,
    rate: BitsPerSecond,
    burst: Bytes,
}

impl Cap {
    /// A cap without burst: `rate` is exceeded by at most one packet in any interval. A channel loses time while the
    /// link sends a packet of another channel. So a channel with a reservation of the same rate needs a burst:
    /// [`Cap::with_burst`]. `None` if the rate is zero or over 2^60.
    pub fn strict(rate: BitsPerSecond) -> Option<Cap> {
        Cap::with_burst(rate, Bytes(0))
    }

    /// A cap with a burst, by which a channel makes up for time in which the link sent packets of other channels.
    /// Suppose that the channel also has a reservation of the same rate. Without a weight, a burst of two of the link's
    /// longest frames lets it use the whole reservation: one frame is for its own packet, the other for the packet that
    /// it waits for. With a weight, its excess traffic counts against the cap, too, and may have used the burst up.
    /// `None` as in [`Cap::strict`].
    pub fn with_burst(rate: BitsPerSecond, burst: Bytes) -> Option<Cap> {
        Some(Cap { pace: ByteTime::of_rate(rate)?, rate, burst })
    }

    /// The rate in bits on the wire per second.
    pub fn bits_per_second(self) -> BitsPerSecond {
        self.rate
    }

    /// The burst in bytes on the wire.
    pub fn burst(self) -> Bytes {
        self.burst
    }

    /// The time that a byte takes at the cap's rate.
    pub(super) fn pace(self) -> ByteTime {
        self.pace
    }

    /// The most time by which the cap's clock may be ahead of real time when the link begins to send a packet of the
    /// channel. The clock advances by length / the cap's rate with each packet of the channel.
    pub(super) fn tolerance(self) -> Nanos {
        self.pace.time(self.burst)
    }
}

/// The limits of a channel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// The most packets. A number above [`QUEUE_PACKETS_MAX`] counts as [`QUEUE_PACKETS_MAX`].
    pub packets: u32,
    /// The most bytes on the wire.
    pub bytes: Bytes,
}

/// The terms of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    /// The guaranteed rate; `None` for best effort only.
    pub reservation: Option<LinkReservation>,
    /// The upper limit of the rate, if any.
    pub cap: Option<Cap>,
    /// The weight for excess traffic. With zero the channel gets its reservation and no more.
    pub weight: u16,
    /// The limits of the queue.
    pub queue: QueueLimit,
}
