//! Descriptions of links and output channels, for the node's configuration and for requests, with the checks that need
//! no node.

use crate::control::config::NodeConfigError;
use crate::control::quantity;
use crate::control::spec::{FILTER_BYTES_MAX, SpecError};
use serde::{Deserialize, Serialize};
use weir_admission::Name;
use weir_sched::link::{
    Cap, ChannelTerms, FRAME_MAX, Framing, LinkReservation, LinkSchedulerConfig as Scheduled, Pacing,
    QUEUE_PACKETS_MAX, QueueLimit,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// Maximum number of output channels on one link.
const CHANNELS_MAX: u32 = 4096;
/// The lowest and the highest rate of a link.
const RATES: std::ops::RangeInclusive<BitsPerSecond> = BitsPerSecond(8_000)..=BitsPerSecond(1 << 44);
/// The shortest and the longest period of a reservation.
const PERIODS: std::ops::RangeInclusive<Nanos> = Nanos(100_000)..=Nanos(10 * Nanos::SECOND.0);
/// The default weight of a channel without a reservation.
const WEIGHT: u16 = 100;
/// The longest name of an interface.
const INTERFACE_NAME_MAX: usize = 15;

/// A link: an interface and its rate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Interface to send on, which names the link.
    pub interface: String,
    /// Rate on the wire, in bits per second.
    #[serde(with = "quantity::text")]
    pub rate: BitsPerSecond,
    /// Share of the rate that sessions can reserve together, in percent.
    #[serde(default = "reservable_default")]
    pub reservable: u8,
    /// Bytes on the wire for each frame in addition to the frame, such as preamble and gap.
    #[serde(default = "overhead_default")]
    pub overhead: u32,
    /// Maximum length of a frame with its link header, in bytes. The time to send a frame of this length bounds the
    /// wait of another frame for a transmission that has begun.
    #[serde(default = "frame_default")]
    pub frame_max: u32,
    /// Maximum delay of the link thread that is made up: if the thread wakes late by at most this time, it sends the
    /// delayed frames back to back.
    #[serde(with = "quantity::text", default = "catch_up_default")]
    pub catch_up: Nanos,
}

/// A change of a link's rate. Keys that are left out do not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRateChange {
    /// Name of the link: its interface.
    pub link: String,
    /// Rate on the wire, in bits per second.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitsPerSecond>,
    /// Reservable share of the rate, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservable: Option<u8>,
}

fn reservable_default() -> u8 {
    90
}

fn overhead_default() -> u32 {
    Framing::ETHERNET.overhead
}

fn frame_default() -> u32 {
    // The longest Ethernet frame without tags has 1514 bytes; one VLAN tag has 4.
    1518
}

fn catch_up_default() -> Nanos {
    Nanos(2 * Nanos::MILLISECOND.0)
}

impl LinkConfig {
    /// Returns the reservable part of a rate.
    pub fn reservable_of(rate: BitsPerSecond, percent: u8) -> BitsPerSecond {
        let part = u128::from(rate.0) * u128::from(percent.min(100)) / 100;
        BitsPerSecond(u64::try_from(part).unwrap_or(rate.0))
    }

    /// Returns the configuration of the link's scheduler.
    pub(crate) fn scheduled(&self) -> Scheduled {
        let least = if self.overhead == 0 { Framing::NONE.least } else { Framing::ETHERNET.least };
        Scheduled {
            rate: self.rate,
            reservable: Self::reservable_of(self.rate, self.reservable),
            framing: Framing { overhead: self.overhead, least },
            frame_max: self.frame_max,
            pacing: Pacing::Link { catch_up: self.catch_up },
            channels_max: CHANNELS_MAX,
        }
    }

    /// Returns true if a running link can change to `other`: only the rate and its reservable share may differ.
    pub(crate) fn can_become(&self, other: &Self) -> bool {
        let Self { interface, rate: _, reservable: _, overhead, frame_max, catch_up } = self;
        (interface, overhead, frame_max, catch_up)
            == (&other.interface, &other.overhead, &other.frame_max, &other.catch_up)
    }

    /// Checks the parts that need no node.
    pub(crate) fn check(&self) -> Result<(), NodeConfigError> {
        let range = |is_right: bool, key, given: String, wanted| {
            if is_right {
                Ok(())
            } else {
                Err(NodeConfigError::Range { section: "link", key, given, wanted })
            }
        };
        let interface = self.interface.escape_debug().to_string();
        range(is_interface_name(&self.interface), "interface", interface, "an interface's name")?;
        let wanted = "between 8 kbit/s and 2^44 bit/s";
        range(RATES.contains(&self.rate), "rate", self.rate.to_string(), wanted)?;
        range(
            (0..=100).contains(&self.reservable),
            "reservable",
            self.reservable.to_string(),
            "a percentage",
        )?;
        range(self.overhead <= 256, "overhead", self.overhead.to_string(), "at most 256 bytes")?;
        let frames = 64..=FRAME_MAX / 4;
        let given = self.frame_max.to_string();
        range(frames.contains(&self.frame_max), "frame_max", given, "between 64 and 262144 bytes")?;
        let most = Nanos(100 * Nanos::MILLISECOND.0);
        range(self.catch_up <= most, "catch_up", self.catch_up.to_string(), "at most 100 ms")
    }
}

/// An output channel of a session: a share of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSpec {
    /// Name in the session.
    #[serde(with = "quantity::text", default = "crate::control::spec::main")]
    pub name: Name,
    /// Interface of the link.
    pub link: String,
    /// Guaranteed rate on the wire, in bits per second. With `period`, the bytes of a whole period can be sent at once;
    /// otherwise the rate is evenly spread.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub reserve: Option<BitsPerSecond>,
    /// Period after which the reservation is renewed.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Guaranteed bytes on the wire in each period, as an alternative to `reserve`.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<Bytes>,
    /// Highest rate on the wire, in bits per second.
    #[serde(default, with = "quantity::maybe", skip_serializing_if = "Option::is_none")]
    pub cap: Option<BitsPerSecond>,
    /// Weight in the division of the bandwidth that reservations leave; 0 for no share of it. The default is 0 with a
    /// reservation, and 100 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u16>,
    /// Length of the queue, in frames. The memory of a full queue is taken from the session's reservation.
    #[serde(default = "queue_default")]
    pub queue: u32,
    /// Filter of the frames that may be sent, in the language of pcap-filter(7); empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// TAP device, which is created if it is missing. Frames that programs send into the device are sent through this
    /// channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<String>,
}

fn queue_default() -> u32 {
    256
}

impl OutputSpec {
    /// Returns the reservation; `None` without one, or if it is less than a byte in each period.
    pub fn reservation(&self) -> Option<LinkReservation> {
        match (self.reserve, self.reserve_bytes, self.period) {
            (Some(rate), None, None) => LinkReservation::rate(rate),
            (Some(rate), None, Some(period)) => {
                let bytes = u128::from(rate.0) * u128::from(period.0) / (8 * u128::from(Nanos::SECOND.0));
                LinkReservation::per_period(Bytes(u64::try_from(bytes).ok()?), period)
            }
            (None, Some(limit), Some(period)) => LinkReservation::per_period(limit, period),
            _ => None,
        }
    }

    /// Returns the stated or default weight.
    pub fn effective_weight(&self) -> u16 {
        self.weight.unwrap_or(if self.reservation().is_some() { 0 } else { WEIGHT })
    }

    /// Returns the memory of a full queue.
    pub fn memory(&self, link: &LinkConfig) -> Bytes {
        Bytes(u64::from(self.queue) * u64::from(link.frame_max))
    }

    /// Returns the terms for the scheduler of a link.
    pub(crate) fn terms(&self, link: &Scheduled) -> ChannelTerms {
        // A channel whose reservation equals its cap must be able to reach its rate. So the cap allows a burst: two
        // frames, because frames of other channels are sent in between, and the bytes of the time by which the link
        // thread may be late.
        let frames = 2 * u64::from(link.framing.on_wire(link.frame_max));
        let late = match link.pacing {
            Pacing::Link { catch_up } => catch_up,
            Pacing::Device => Nanos(0),
        };
        let capped = |rate: BitsPerSecond| {
            let bytes = u128::from(rate.0) * u128::from(late.0) / (8 * u128::from(Nanos::SECOND.0));
            Cap::with_burst(rate, Bytes(u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(frames)))
        };
        ChannelTerms {
            reservation: self.reservation(),
            cap: self.cap.and_then(capped),
            weight: self.effective_weight(),
            // The queue's length is limited where frames enter it.
            queue: QueueLimit { packets: QUEUE_PACKETS_MAX, bytes: Bytes(u64::MAX) },
        }
    }

    /// Checks the parts that need no node.
    pub(crate) fn check(&self, session: &Name) -> Result<(), SpecError> {
        let range = |key, given: String, wanted: &str| SpecError::Range {
            session: session.clone(),
            what: "output channel",
            name: self.name.clone(),
            key,
            given,
            wanted: wanted.to_owned(),
        };
        let rates = [("reserve", self.reserve), ("cap", self.cap)];
        for (key, rate) in rates.into_iter().filter_map(|(key, rate)| Some((key, rate?))) {
            if rate.0 == 0 || rate > *RATES.end() {
                return Err(range(key, rate.to_string(), "between 1 bit/s and 2^44 bit/s"));
            }
        }
        if let Some(period) = self.period.filter(|period| !PERIODS.contains(period)) {
            return Err(range("period", period.to_string(), "between 100 us and 10 s"));
        }
        let is_consistent = match (self.reserve, self.reserve_bytes, self.period) {
            (None, None, None) | (Some(_), None, _) => true,
            (None, Some(limit), Some(_)) => limit.0 <= 1 << 40,
            _ => false,
        };
        if !is_consistent {
            let wanted = "`reserve`, or `reserve` with `period`, or `reserve_bytes` with `period`, e.g. reserve_bytes = \"25000\", period = \"6ms\"";
            return Err(range(
                "reserve_bytes",
                self.reserve_bytes.map_or("missing".to_owned(), |it| it.to_string()),
                wanted,
            ));
        }
        let is_reserved = self.reserve.is_some() || self.reserve_bytes.is_some();
        let reservation = self.reservation();
        if is_reserved && reservation.is_none() {
            let given = self.reserve_bytes.map_or("too low".to_owned(), |limit| limit.to_string());
            return Err(range("reserve_bytes", given, "at least a byte in each period"));
        }
        if let (Some(reservation), Some(cap)) = (reservation, self.cap)
            && cap < reservation.bits_per_second()
        {
            let wanted = format!("at least the reserved rate, {}", reservation.bits_per_second());
            return Err(range("cap", cap.to_string(), &wanted));
        }
        if reservation.is_none() && self.effective_weight() == 0 {
            return Err(range("weight", "0".to_owned(), "above 0 where nothing is reserved"));
        }
        if !(1..=QUEUE_PACKETS_MAX).contains(&self.queue) {
            return Err(range("queue", self.queue.to_string(), "between 1 and 65536 frames"));
        }
        if self.filter.len() > FILTER_BYTES_MAX {
            return Err(range("filter", format!("{} bytes long", self.filter.len()), "at most 4096"));
        }
        if let Some(tap) = self.tap.as_deref().filter(|tap| !is_interface_name(tap)) {
            let wanted = "an interface's name: 1 to 15 letters, digits, dots, dashes or underscores";
            return Err(range("tap", tap.escape_debug().to_string(), wanted));
        }
        Ok(())
    }
}

/// Returns true for a possible name of an interface without characters that have a special meaning for the kernel,
/// such as `%`.
fn is_interface_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | ':');
    let fits = (1..=INTERFACE_NAME_MAX).contains(&name.len()) && name.chars().all(is_plain);
    fits && !matches!(name, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str) -> Result<OutputSpec, String> {
        let spec: OutputSpec = toml::from_str(&format!("link = \"eth1\"\n{text}"))
            .map_err(|error| error.message().to_owned())?;
        spec.check(&Name::new("alice").unwrap()).map_err(|error| error.to_string())?;
        Ok(spec)
    }

    #[test]
    fn a_reservation_is_a_rate_or_an_amount_in_each_period() {
        let rate = |text| output(text).unwrap().reservation().map(LinkReservation::bits_per_second);
        assert_eq!(rate(""), None);
        assert_eq!(rate("reserve = \"40 Mbit/s\""), Some(BitsPerSecond(40_000_000)));
        let even = output("reserve = \"40 Mbit/s\"").unwrap().reservation().unwrap();
        assert_eq!(even.period(), Nanos(0));
        let bursty = output("reserve = \"40 Mbit/s\"\nperiod = \"5ms\"").unwrap().reservation().unwrap();
        assert_eq!(
            (bursty.bits_per_second(), bursty.period()),
            (BitsPerSecond(40_000_000), Nanos(5_000_000))
        );
        assert_eq!(rate("reserve_bytes = \"25000\"\nperiod = \"6ms\""), Some(BitsPerSecond(33_333_334)));
        assert_eq!(
            [
                output("").unwrap().effective_weight(),
                output("reserve = \"1Mbit/s\"").unwrap().effective_weight()
            ],
            [100, 0]
        );
    }

    #[test]
    fn a_cap_allows_a_burst_for_the_time_that_the_link_catches_up() {
        let link = |text: &str| -> LinkConfig {
            toml::from_str(&format!("interface = \"e\"\nrate = \"100 Mbit/s\"\n{text}")).unwrap()
        };
        let burst = |link: LinkConfig| {
            let terms =
                output("reserve = \"40 Mbit/s\"\ncap = \"40 Mbit/s\"").unwrap().terms(&link.scheduled());
            terms.cap.unwrap().burst()
        };
        // Two frames of 1518 bytes with 24 bytes of framing, and 5,000 bytes for each millisecond.
        assert_eq!(burst(link("catch_up = \"0us\"")), Bytes(3084));
        assert_eq!(burst(link("catch_up = \"2ms\"")), Bytes(13_084));
    }

    #[test]
    fn errors_of_an_output_channel_name_their_place() {
        for (text, says) in [
            ("reserve = \"40\"", "`40` is not a rate"),
            ("reserve = \"0 bit/s\"", "output channel `main`: `reserve` is 0 bit/s"),
            ("reserve_bytes = \"25000\"", "`reserve_bytes` with `period`"),
            ("period = \"6ms\"", "`reserve_bytes` is missing"),
            (
                "reserve = \"1Mbit/s\"\nreserve_bytes = \"25000\"\nperiod = \"6ms\"",
                "`reserve_bytes` is 24.4 KiB",
            ),
            ("reserve = \"8 bit/s\"\nperiod = \"1ms\"", "at least a byte in each period"),
            ("reserve = \"2Mbit/s\"\nperiod = \"11s\"", "`period` is 11 s"),
            ("reserve = \"2Mbit/s\"\ncap = \"1Mbit/s\"", "at least the reserved rate, 2 Mbit/s"),
            ("weight = 0", "`weight` is 0; it must be above 0 where nothing is reserved"),
            ("queue = 0", "`queue` is 0"),
            ("tap = \"a/b\"", "`tap` is a/b; it must be an interface's name"),
            ("tap = \"tap%d\"", "`tap` is tap%d"),
            ("tap = \"..\"", "`tap` is .."),
            ("speed = 1", "unknown field `speed`"),
        ] {
            let error = output(text).unwrap_err();
            assert!(error.contains(says), "{text}\n{error}");
        }
    }

    #[test]
    fn an_output_channel_has_the_same_meaning_in_toml_and_in_json() {
        let spec = output(
            "reserve_bytes = \"25000\"\nperiod = \"6ms\"\ncap = \"50 Mbit/s\"\nfilter = \"udp\"\ntap = \"weir0\"",
        );
        let spec = spec.unwrap();
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<OutputSpec>(&json).unwrap(), spec);
    }

    #[test]
    fn only_the_rate_of_a_running_link_can_change() {
        let link = |text: &str| toml::from_str::<LinkConfig>(&format!("interface = \"e\"\n{text}")).unwrap();
        let now = link("rate = \"100 Mbit/s\"");
        assert_eq!(now.scheduled().reservable, BitsPerSecond(90_000_000));
        assert!(now.can_become(&link("rate = \"50 Mbit/s\"\nreservable = 10")));
        assert!(!now.can_become(&link("rate = \"100 Mbit/s\"\noverhead = 0")));
        assert!(!now.can_become(&link("rate = \"100 Mbit/s\"\nframe_max = 9018")));
    }
}
