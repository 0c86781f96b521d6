//! Limits and times of an endpoint.

use crate::gate::GateLimits;
use weir_units::Nanos;

/// The limits and times of a [`super::DatagramEndpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramLimits {
    /// Limits on the work for peers that are not authenticated.
    pub gate: GateLimits,
    /// The most own attempts to open an association at a time.
    pub attempts: usize,
    /// The most associations. Those that replace others come on top, at most four for each peer.
    pub associations: usize,
    /// The time until the first repetition of a message; it doubles with each repetition.
    pub retry_first: Nanos,
    /// The longest time between two repetitions.
    pub retry_max: Nanos,
    /// The time after which an attempt fails.
    pub deadline: Nanos,
    /// The time for which a cookie is made; a cookie is also valid in the next such period.
    pub cookie_period: Nanos,
    /// The time without a sent packet after which a keepalive is sent.
    pub keepalive: Nanos,
    /// The time without a received packet after which an association is over.
    pub silence: Nanos,
    /// The number of packets in one direction after which the initiator makes new keys.
    pub renew_packets: u64,
    /// The number of packets that a key encrypts at most.
    pub packets_max: u64,
    /// The age of keys after which the initiator makes new ones. The responder does so after an eighth more.
    pub renew_age: Nanos,
    /// The age after which keys are not used any more.
    pub age_max: Nanos,
    /// The time for which replaced keys still decrypt packets on their way.
    pub grace: Nanos,
}

impl Default for DatagramLimits {
    /// Returns the limits of a node. With 2^32 packets even of the longest length, AES-GCM stays within its limits for
    /// confidentiality.
    fn default() -> Self {
        let seconds = |count: u64| Nanos(count * Nanos::SECOND.0);
        Self {
            gate: GateLimits::default(),
            attempts: 256,
            associations: 4_096,
            retry_first: Nanos(250 * Nanos::MILLISECOND.0),
            retry_max: seconds(4),
            deadline: seconds(30),
            cookie_period: seconds(10),
            keepalive: seconds(15),
            silence: seconds(60),
            renew_packets: 1 << 31,
            packets_max: 1 << 32,
            renew_age: seconds(3_600),
            age_max: seconds(7_200),
            grace: seconds(60),
        }
    }
}

impl DatagramLimits {
    /// Returns the time until repetition number `tries` + 1.
    pub(super) fn retry(&self, tries: u32) -> Nanos {
        let doubled = self.retry_first.0.saturating_mul(1_u64.checked_shl(tries).unwrap_or(u64::MAX));
        Nanos(doubled.min(self.retry_max.0).max(1))
    }
}

/// Returns the time `later` after `now`.
pub(super) fn after(now: Nanos, later: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(later.0))
}
