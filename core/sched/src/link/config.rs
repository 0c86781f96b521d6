//! What a link is, and what a channel may ask of it.

use super::clock::ByteTime;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The longest frame on the wire that a link can be set up for, in bytes: 1 MiB.
pub const FRAME_MAX: u32 = 1 << 20;

/// The most packets that a channel's queue can be allowed.
pub const QUEUE_PACKETS_MAX: u32 = 1 << 16;

/// The most channels that a link can be set up for.
pub const CHANNELS_MAX: u32 = 1 << 16;

/// What a frame costs on the wire beside its own bytes. Rates, limits and counters all mean bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Added to every frame.
    pub overhead: u32,
    /// Shorter frames count as this, before the overhead is added.
    pub least: u32,
}

impl Framing {
    /// Ethernet, for frames without their check sequence: 8 bytes of preamble and start delimiter, 4 of check sequence, 12 of gap; 60 bytes
    /// at least (IEEE 802.3, 3.1.1 and 4.4.2).
    pub const ETHERNET: Framing = Framing { overhead: 24, least: 60 };
    /// Frames cost what they are long.
    pub const NONE: Framing = Framing { overhead: 0, least: 1 };

    /// The length on the wire of a frame of `length` bytes: at least 1.
    pub fn on_wire(self, length: u32) -> u32 {
        length.max(self.least).max(1).saturating_add(self.overhead)
    }
}

/// Who makes the link wait while a frame is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// The scheduler: a frame keeps the link for its length over the link's rate.
    Link {
        /// A caller that came late may make up for as much time by sending back to back. Zero: a frame never begins before the one before
        /// it has ended.
        catch_up: Nanos,
    },
    /// The device: the caller asks for the next frame only when the device has room for one.
    Device,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSchedulerConfig {
    /// Bits on the wire per second.
    pub rate: BitsPerSecond,
    /// How much of the rate can be reserved.
    pub reservable: BitsPerSecond,
    /// What a frame costs beside its bytes.
    pub framing: Framing,
    /// The longest frame, without framing, in bytes. It blocks the others for its length over the rate: the one packet of every guarantee.
    pub frame_max: u32,
    /// Who paces.
    pub pacing: Pacing,
    /// How many channels can be open.
    pub channels_max: u32,
}

impl LinkSchedulerConfig {
    /// An Ethernet link that paces itself, all of which can be reserved, for frames of up to 1,514 bytes and up to 1,024 channels.
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

/// What a channel is guaranteed: `limit` bytes in each `period` (Piglet's `set_vclock`: SQoSH, 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReservation {
    pace: ByteTime,
    rate: BitsPerSecond,
    period: Nanos,
}

impl LinkReservation {
    /// `limit` bytes on the wire in each `period`. Up to `limit` may go at once, ahead of everybody without a reservation. None if either
    /// is zero, the period over 10 s or the limit over 2^60 bytes.
    pub fn per_period(limit: Bytes, period: Nanos) -> Option<LinkReservation> {
        let pace = ByteTime::of_period(limit, period)?;
        Some(LinkReservation { pace, rate: pace.rate()?, period })
    }

    /// A rate, evenly: a packet every length / rate. None if it is zero or over 2^60.
    pub fn rate(rate: BitsPerSecond) -> Option<LinkReservation> {
        Some(LinkReservation { pace: ByteTime::of_rate(rate)?, rate, period: Nanos(0) })
    }

    /// What a link of `link` transmits in `slice`, in each `period`: "2 ms in 6 ms" (Price of Safety, figure 12). None as in
    /// [`LinkReservation::per_period`].
    pub fn slice(slice: Nanos, period: Nanos, link: BitsPerSecond) -> Option<LinkReservation> {
        let bytes = u128::from(slice.0) * u128::from(link.0) / (8 * u128::from(Nanos::SECOND.0));
        LinkReservation::per_period(Bytes(u64::try_from(bytes).ok()?), period)
    }

    /// Bits on the wire per second, rounded up.
    pub fn bits_per_second(self) -> BitsPerSecond {
        self.rate
    }

    /// The period; zero where the reservation is an even rate.
    pub fn period(self) -> Nanos {
        self.period
    }

    /// How long a byte takes.
    pub(super) fn pace(self) -> ByteTime {
        self.pace
    }

    /// The bytes and the period that it was made from; for an even rate the rate and zero.
    pub(super) fn parts(self) -> (u64, Nanos) {
        (self.pace.parts().0.0, self.period)
    }

    /// From its parts.
    pub(super) fn from_parts(amount: u64, period: Nanos) -> Option<LinkReservation> {
        if period.0 == 0 {
            LinkReservation::rate(BitsPerSecond(amount))
        } else {
            LinkReservation::per_period(Bytes(amount), period)
        }
    }
}

/// What a channel never exceeds: in any interval it begins to send at most `rate` x interval + `burst` + one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    pace: ByteTime,
    rate: BitsPerSecond,
    burst: Bytes,
}

impl Cap {
    /// Never over `rate` by more than one packet, in any interval. Time that the channel loses while the link is busy with another's packet
    /// is lost, so a channel with a reservation of the same rate needs a burst: [`Cap::with_burst`]. None if the rate is zero or over 2^60.
    pub fn strict(rate: BitsPerSecond) -> Option<Cap> {
        Cap::with_burst(rate, Bytes(0))
    }

    /// With a burst that makes up for time lost. Two of the link's longest frames are enough for a channel without a weight to get all of a
    /// reservation of the same rate: its own packet's time, and that of the one that blocks it. (With a weight, excess counts against the
    /// cap too, and may have used it up.) None as in [`Cap::strict`].
    pub fn with_burst(rate: BitsPerSecond, burst: Bytes) -> Option<Cap> {
        Some(Cap { pace: ByteTime::of_rate(rate)?, rate, burst })
    }

    /// Bits on the wire per second.
    pub fn bits_per_second(self) -> BitsPerSecond {
        self.rate
    }

    /// The burst.
    pub fn burst(self) -> Bytes {
        self.burst
    }

    pub(super) fn pace(self) -> ByteTime {
        self.pace
    }

    /// How far the cap's clock may be ahead when a packet begins.
    pub(super) fn tolerance(self) -> Nanos {
        self.pace.time(self.burst)
    }
}

/// How much a channel may have waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// Packets; room for all of them is made when the channel is opened. At most [`QUEUE_PACKETS_MAX`] are given.
    pub packets: u32,
    /// Bytes on the wire.
    pub bytes: Bytes,
}

/// What a channel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    /// What it is guaranteed; None: best effort only.
    pub reservation: Option<LinkReservation>,
    /// What it never exceeds.
    pub cap: Option<Cap>,
    /// Its part of what the reservations leave, against the parts of the others; zero: none, it gets its reservation and no more.
    pub weight: u16,
    /// What may wait.
    pub queue: QueueLimit,
}
