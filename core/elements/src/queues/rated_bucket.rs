//! The token bucket of elements with a rate of packets or a bandwidth, with its arguments.

use super::rate::TokenBucket;
use weir_graph::arguments::ElementArguments;
use weir_graph::engine::{GraphPacket, Reason};
use weir_units::{BitsPerSecond, Nanos, Timestamp};

/// The time in which a bucket gets full.
const BURST_DURATION: Nanos = Nanos(20_000_000);

/// The capacity of a bucket.
#[derive(Clone, Copy, Debug)]
enum Burst {
    Duration(Nanos),
    Tokens(u32),
}

impl Burst {
    fn tokens(self, rate: u64) -> u64 {
        match self {
            Burst::Duration(Nanos(nanos)) => {
                let tokens = u128::from(rate) * u128::from(nanos) / u128::from(Nanos::SECOND.0);
                u64::try_from(tokens).unwrap_or(u64::MAX).max(1)
            }
            Burst::Tokens(tokens) => u64::from(tokens).max(1),
        }
    }
}

/// The quantity that a rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RatedQuantity {
    Packets,
    /// A packet needs a bucket that is not empty, and may take more than there is.
    Bytes,
}

impl RatedQuantity {
    /// Returns the amount of a packet.
    pub fn of(self, packet: &GraphPacket) -> u64 {
        match self {
            Self::Packets => 1,
            Self::Bytes => packet.len() as u64,
        }
    }

    /// Reads the argument RATE: packets or bytes per second.
    pub fn read_argument(self, args: &mut ElementArguments<'_, '_>) -> u64 {
        match self {
            Self::Packets => u64::from(args.either::<u32>("RATE").required()),
            Self::Bytes => args.either::<BitsPerSecond>("RATE").required().0 / 8,
        }
    }

    /// Reads the value of the handler `rate`.
    ///
    /// # Errors
    ///
    /// Fails with a reason if it is no rate.
    pub fn read_rate(self, value: &str) -> Result<u64, Reason> {
        Ok(match self {
            Self::Packets => u64::from(crate::values::read::<u32>(value)?),
            Self::Bytes => crate::values::read::<BitsPerSecond>(value)?.0 / 8,
        })
    }

    /// Returns the value of the handler `rate`.
    pub fn rate_text(self, rate: u64) -> String {
        match self {
            Self::Packets => rate.to_string(),
            Self::Bytes => crate::values::bandwidth(rate),
        }
    }
}

/// A token bucket for packets or bytes.
#[derive(Clone, Copy, Debug)]
pub struct RatedBucket {
    quantity: RatedQuantity,
    bucket: TokenBucket,
    burst: Burst,
}

impl RatedBucket {
    /// Reads the arguments RATE, BURST_DURATION, and BURST_SIZE or BURST_BYTES.
    pub fn read(quantity: RatedQuantity, args: &mut ElementArguments<'_, '_>) -> Self {
        let rate = quantity.read_argument(args);
        let duration: Option<Nanos> = args.keyword("BURST_DURATION").optional();
        let size_name = match quantity {
            RatedQuantity::Packets => "BURST_SIZE",
            RatedQuantity::Bytes => "BURST_BYTES",
        };
        let size: Option<u32> = args.keyword(size_name).optional();
        if duration.is_some() && size.is_some() {
            args.error(size_name, "not together with BURST_DURATION");
        }
        let burst = size.map_or(Burst::Duration(duration.unwrap_or(BURST_DURATION)), Burst::Tokens);
        Self { quantity, bucket: TokenBucket::new(rate, burst.tokens(rate)), burst }
    }

    /// Returns the tokens that have to be there for a packet.
    fn needed(&self) -> u64 {
        u64::from(self.quantity == RatedQuantity::Packets)
    }

    /// Adds the tokens since the latest refill.
    pub fn refill(&mut self, now: Timestamp) {
        self.bucket.refill(now);
    }

    /// Returns true if a packet may pass.
    pub fn has_room(&self) -> bool {
        self.bucket.contains(self.needed())
    }

    /// Returns the time from which a packet may pass, after the latest refill; `None` for never.
    pub fn time_of_room(&self) -> Option<Timestamp> {
        self.bucket.time_of(self.needed())
    }

    /// Takes the tokens of a packet.
    pub fn remove(&mut self, packet: &GraphPacket) {
        self.bucket.remove(self.quantity.of(packet));
    }

    /// Returns the value of the handler `rate`.
    pub fn rate_text(&self) -> String {
        self.quantity.rate_text(self.bucket.rate())
    }

    /// Sets the rate by the value of the handler `rate`.
    ///
    /// # Errors
    ///
    /// Fails with a reason if it is no rate.
    pub fn write_rate(&mut self, value: &str) -> Result<String, Reason> {
        let rate = self.quantity.read_rate(value)?;
        self.bucket.set_rate(rate, self.burst.tokens(rate));
        Ok(String::new())
    }
}
