//! `IPRateMonitor`: measures the rates of networks and hosts.

use super::RateAverage;
use crate::ipv4::Ipv4Header;
use crate::values::BinaryFraction;
use core::net::Ipv4Addr;
use std::fmt::Write as _;
use weir_graph::arguments::WordArgument;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, FWD_RATE,
    GraphPacket, OrderDependence, REV_RATE, Reason, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPRateMonitor",
    ports: "1-2/1-2",
    processing: "a/a",
    flow: "#/#",
    cost: ElementCost::E7,
    effects: Effects::CLOCK.and(Effects::RANDOM),
    order: OrderDependence::Ordered,
    manual: "\
measures the rates of networks and hosts

IPRateMonitor(TYPE, RATIO, THRESH [, MEMORY, ANNO])

IPRateMonitor measures the rates of packets from source addresses at input 0, and to destination addresses at input 1, which \
it passes to outputs 0 and 1. At first it measures each network of 8 bits. If one of its rates reaches THRESH, it measures \
the networks of 16 bits in it, and so on up to single hosts. Each second it folds networks whose rates are below an eighth of \
THRESH. Packets without a complete IPv4 header are passed on.

Arguments:
  TYPE    PACKETS or BYTES
  RATIO   the part of the packets that is measured, from 0 to 1
  THRESH  the rate per second at which a network is divided
  MEMORY  the most kilobytes, from 100 to 1048576; 0 for 65536. Default 0. Above it, no more networks are measured.
  ANNO    true: sets the annotations FWD_RATE and REV_RATE to the rates of the smallest measured network. Default true.

Handlers:
  thresh      r  the rate at which a network is divided, times RATIO
  look        r  the steps of 8 ms since the latest reset, then the networks with both rates
  mem         r  the bytes of all networks
  memmax      rw the most bytes; to be written in kilobytes
  anno_level  w  IPADDRESS LEVEL SECONDS: the network of 8 * (LEVEL + 1) bits around the address is not divided for so long
  reset       w  forgets all rates",
    build: |cx| {
        let mut args = cx.arguments();
        let kind: WordArgument = args.either("TYPE").required();
        let ratio: Ratio = args.either("RATIO").checked(Ratio::check_probability).required();
        let threshold: u32 = args.either("THRESH").required();
        let memory: u32 = args.either("MEMORY").within(0..=MEMORY_KILOBYTES_MAX).or(0);
        let annotates = args.either("ANNO").or(true);
        let counts_packets = kind.0.eq_ignore_ascii_case("PACKETS");
        if !counts_packets && !kind.0.eq_ignore_ascii_case("BYTES") {
            args.error("TYPE", "monitor type should be \"PACKETS\" or \"BYTES\"");
        }
        args.end()?;
        Ok(BuiltElement::routing(IpRateMonitor {
            counts_packets,
            ratio,
            annotates,
            networks: RatedNetworks {
                base: Box::default(),
                threshold: (u64::from(threshold) * ratio.0) >> RATIO_BITS,
                used: LEVEL_BYTES,
                most: memory_bytes(memory),
            },
            reset_at: None,
            folded_at: 0,
        }))
    },
};

const RATIO_BITS: u32 = 16;
type Ratio = BinaryFraction<RATIO_BITS>;

/// The nanoseconds of an epoch.
const EPOCH: u64 = 8_000_000;
const EPOCHS_PER_SECOND: u64 = 1_000_000_000 / EPOCH;

/// The average of a rate: an epoch has the weight 1/32.
type MonitorAverage = RateAverage<10, 5, EPOCH>;

/// The least kilobytes, except for 0.
const MEMORY_KILOBYTES_MIN: u32 = 100;
const MEMORY_KILOBYTES_MAX: u32 = 1 << 20;
/// The kilobytes that 0 stands for.
const MEMORY_KILOBYTES_DEFAULT: u32 = 65_536;

/// Bits of an address for each level.
const LEVEL_BITS: u32 = 8;
/// The bits behind the first level.
const FIRST_SHIFT: u32 = 24;

/// Returns the bytes of a number of kilobytes.
fn memory_bytes(kilobytes: u32) -> usize {
    let kilobytes = match kilobytes {
        0 => MEMORY_KILOBYTES_DEFAULT,
        kilobytes => kilobytes.clamp(MEMORY_KILOBYTES_MIN, MEMORY_KILOBYTES_MAX),
    };
    kilobytes as usize * 1024
}

fn epoch(now: Timestamp) -> u64 {
    now.0 / EPOCH
}

/// A network, and the networks in it if they are measured.
#[derive(Default)]
struct RatedNetwork {
    forward: MonitorAverage,
    reverse: MonitorAverage,
    next: Option<Box<NetworkLevel>>,
    /// The epoch up to which it is not divided.
    whole_until: u64,
}

/// The networks with the same bits before their last byte.
struct NetworkLevel([Option<Box<RatedNetwork>>; 256]);

impl Default for NetworkLevel {
    fn default() -> Self {
        Self([const { None }; 256])
    }
}

const NETWORK_BYTES: usize = size_of::<RatedNetwork>();
const LEVEL_BYTES: usize = size_of::<NetworkLevel>();

impl RatedNetwork {
    fn count(&mut self, is_forward: bool, amount: u64, now: Timestamp) {
        let (forward, reverse) = if is_forward { (amount, 0) } else { (0, amount) };
        self.forward.count(now, forward);
        self.reverse.count(now, reverse);
    }

    /// Returns the bytes of the networks in it.
    fn bytes_within(&self) -> usize {
        self.next.as_ref().map_or(0, |level| LEVEL_BYTES + level.bytes())
    }
}

impl NetworkLevel {
    /// Returns the bytes of its networks.
    fn bytes(&self) -> usize {
        self.0.iter().flatten().map(|network| NETWORK_BYTES + network.bytes_within()).sum()
    }

    /// Folds networks whose scaled averages are below a threshold.
    fn fold(&mut self, threshold: u64, now: Timestamp) {
        for network in self.0.iter_mut().flatten().filter(|network| network.next.is_some()) {
            network.count(true, 0, now);
            if network.forward.scaled() < threshold && network.reverse.scaled() < threshold {
                network.next = None;
            } else if let Some(next) = &mut network.next {
                next.fold(threshold, now);
            }
        }
    }

    /// Writes a line for each network with a rate.
    fn write(&mut self, before: &str, now: Timestamp, text: &mut String) {
        for (byte, network) in self.0.iter_mut().enumerate() {
            let Some(network) = network else { continue };
            if network.forward.scaled() == 0 && network.reverse.scaled() == 0 {
                continue;
            }
            let dot = if before.is_empty() { "" } else { "." };
            let name = format!("{before}{dot}{byte}");
            let (forward, reverse) = (network.forward.text(now, 0), network.reverse.text(now, 0));
            _ = writeln!(text, "{name}\t{forward}\t{reverse}");
            if let Some(next) = &mut network.next {
                next.write(&format!("\t{name}"), now, text);
            }
        }
    }
}

/// All measured networks.
struct RatedNetworks {
    base: Box<NetworkLevel>,
    threshold: u64,
    /// The bytes of all networks.
    used: usize,
    /// The most bytes.
    most: usize,
}

impl RatedNetworks {
    /// Counts a packet of an address, and returns both rates of its smallest measured network.
    fn count(
        &mut self,
        address: u32,
        is_forward: bool,
        amount: Option<u64>,
        now: Timestamp,
    ) -> Option<(u64, u64)> {
        let mut level = &mut *self.base;
        let mut shift = FIRST_SHIFT;
        loop {
            let slot = &mut level.0[(address >> shift & 0xff) as usize];
            if slot.is_none() && self.used + NETWORK_BYTES > self.most {
                return None;
            }
            let network = slot.get_or_insert_with(|| {
                self.used += NETWORK_BYTES;
                Box::default()
            });
            if let Some(amount) = amount {
                network.count(is_forward, amount, now);
            }
            if network.next.is_none() {
                let rates = (network.forward.per_second(), network.reverse.per_second());
                let is_high = rates.0 >= self.threshold || rates.1 >= self.threshold;
                let more = NETWORK_BYTES + LEVEL_BYTES;
                if network.whole_until < epoch(now) && is_high && shift > 0 && self.used + more <= self.most {
                    let mut next = Box::<NetworkLevel>::default();
                    let (forward, reverse) = (network.forward, network.reverse);
                    let first = RatedNetwork { forward, reverse, ..RatedNetwork::default() };
                    next.0[(address >> (shift - LEVEL_BITS) & 0xff) as usize] = Some(Box::new(first));
                    network.next = Some(next);
                    self.used += more;
                }
                return Some(rates);
            }
            level = network.next.as_deref_mut()?;
            shift -= LEVEL_BITS;
        }
    }

    fn fold(&mut self, threshold: u64, now: Timestamp) {
        self.base.fold(threshold, now);
        self.used = LEVEL_BYTES + self.base.bytes();
    }

    /// Sets the most bytes, and folds networks until they fit, those with the least rates first.
    fn set_most(&mut self, most: usize, now: Timestamp) {
        self.most = most;
        let mut threshold = self.threshold.max(1);
        while self.used > self.most && threshold < u64::MAX {
            self.fold(threshold, now);
            threshold = threshold.saturating_mul(2);
        }
    }

    /// Does not divide a network up to an epoch.
    fn keep_whole(&mut self, address: u32, level: u32, until: u64) {
        let mut at = &mut *self.base;
        for depth in 0..=level {
            let byte = address >> (FIRST_SHIFT - depth * LEVEL_BITS) & 0xff;
            let Some(network) = &mut at.0[byte as usize] else { return };
            if depth == level {
                network.whole_until = until;
                self.used = self.used.saturating_sub(network.bytes_within());
                network.next = None;
                return;
            }
            let Some(next) = network.next.as_deref_mut() else { return };
            at = next;
        }
    }
}

struct IpRateMonitor {
    counts_packets: bool,
    ratio: Ratio,
    annotates: bool,
    networks: RatedNetworks,
    /// The epoch of the latest reset.
    reset_at: Option<u64>,
    /// The epoch at which networks were folded.
    folded_at: u64,
}

impl IpRateMonitor {
    fn keep_whole(&mut self, value: &str, now: Timestamp) -> Result<(), Reason> {
        let separators = |c: char| c == ',' || c.is_whitespace();
        let words: Vec<&str> = value.split(separators).filter(|word| !word.is_empty()).collect();
        let [address, level, seconds] = words[..] else {
            return Err("expected: IPADDRESS LEVEL SECONDS".to_owned());
        };
        let address: Ipv4Addr = crate::values::read(address)?;
        let level: u32 = crate::values::read(level)?;
        let seconds: u32 = crate::values::read(seconds)?;
        if level > 3 {
            return Err("LEVEL has to be between 0 and 3".to_owned());
        }
        if seconds == 0 {
            return Err("SECONDS has to be above 0".to_owned());
        }
        let until = epoch(now) + u64::from(seconds) * EPOCHS_PER_SECOND;
        self.networks.keep_whole(address.to_bits(), level, until);
        Ok(())
    }
}

impl Element for IpRateMonitor {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.reset_at.get_or_insert(epoch(cx.services.coarse_now()));
        Ok(())
    }

    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        let Some(earlier) = earlier.downcast_mut::<IpRateMonitor>() else { return };
        // Rates of packets are none of bytes, and what needs more memory than there is begins anew.
        if self.counts_packets == earlier.counts_packets && earlier.networks.used <= self.networks.most {
            std::mem::swap(&mut self.networks.base, &mut earlier.networks.base);
            self.networks.used = earlier.networks.used;
            (self.reset_at, self.folded_at) = (earlier.reset_at, earlier.folded_at);
        }
    }

    fn effects(&self) -> Option<Effects> {
        (self.ratio == Ratio::ONE).then_some(Effects::CLOCK)
    }

    handlers! {
        "thresh": "the rate at which a network is divided",
            read |this, _, _| Ok(this.networks.threshold.to_string());
        "look": "the networks with both rates",
            read |this, _, cx| {
                let now = cx.services.now();
                let since = epoch(now).saturating_sub(this.reset_at.unwrap_or(0));
                let mut text = format!("{since}\n");
                this.networks.base.write("", now, &mut text);
                Ok(text)
            };
        "mem": "the bytes of all networks", read |this, _, _| Ok(this.networks.used.to_string());
        "memmax": "the most bytes",
            read |this, _, _| Ok(this.networks.most.to_string()),
            write |this, value, cx| {
                let kilobytes: u32 = crate::values::read(value)?;
                let now = cx.services.now();
                this.networks.set_most(memory_bytes(kilobytes), now);
                Ok(String::new())
            };
        "anno_level": "the smallest network around an address, for a time",
            write |this, value, cx| {
                let now = cx.services.now();
                this.keep_whole(value, now)?;
                Ok(String::new())
            };
        "reset": "forgets all rates",
            write |this, _, cx| {
                *this.networks.base = NetworkLevel::default();
                this.networks.used = LEVEL_BYTES;
                this.reset_at = Some(epoch(cx.services.now()));
                Ok(String::new())
            };
    }
}

impl RoutingElement for IpRateMonitor {
    fn route(&mut self, input: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        let destination = Destination::output(input);
        let Some(header) = packet.network_bytes().and_then(Ipv4Header::read_version_4) else {
            return destination;
        };
        let address = if input == 0 { header.source() } else { header.destination() };
        let amount = if self.counts_packets { 1 } else { header.length() as u64 };
        let is_counted =
            self.ratio == Ratio::ONE || services.random() & ((1 << RATIO_BITS) - 1) <= self.ratio.0;
        let now = services.coarse_now();
        let counted = is_counted.then_some(amount);
        if let Some((forward, reverse)) = self.networks.count(address.to_bits(), input == 0, counted, now)
            && self.annotates
        {
            let rate = |rate: u64| i32::try_from(rate).unwrap_or(i32::MAX).to_ne_bytes();
            packet.annotation_mut(FWD_RATE).copy_from_slice(&rate(forward));
            packet.annotation_mut(REV_RATE).copy_from_slice(&rate(reverse));
        }
        if epoch(now).saturating_sub(self.folded_at) >= EPOCHS_PER_SECOND {
            self.networks.fold(self.networks.threshold, now);
            self.folded_at = epoch(now);
        }
        destination
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(threshold: u64, most: usize) -> RatedNetworks {
        RatedNetworks { base: Box::default(), threshold, used: LEVEL_BYTES, most }
    }

    fn is_consistent(networks: &RatedNetworks) -> bool {
        networks.used == LEVEL_BYTES + networks.base.bytes() && networks.used <= networks.most
    }

    #[test]
    fn addresses_of_a_flood_take_no_more_memory_than_is_allowed() {
        let mut networks = networks(0, 200 << 10);
        let mut refused = 0;
        for packet in 0..100_000_u32 {
            let now = Timestamp(EPOCH * (1 + u64::from(packet / 100)));
            let address = packet.wrapping_mul(2_654_435_761);
            refused += u32::from(networks.count(address, packet % 2 == 0, Some(1), now).is_none());
        }
        assert!(refused > 0 && is_consistent(&networks));
        let now = Timestamp(EPOCH * 2000);
        networks.set_most(100 << 10, now);
        assert!(is_consistent(&networks));
        networks.keep_whole(0, 0, u64::MAX);
        assert!(is_consistent(&networks) && networks.base.0[0].as_ref().is_none_or(|it| it.next.is_none()));
    }

    #[test]
    fn a_network_is_divided_at_its_threshold_and_folded_when_it_is_quiet() {
        let mut networks = networks(100, 1 << 20);
        let address = 0x0a01_0203;
        for packet in 0..1000 {
            networks.count(address, true, Some(1), Timestamp(EPOCH + packet * 1_000_000));
        }
        let mut text = String::new();
        networks.base.write("", Timestamp(EPOCH + 1_000_000_000), &mut text);
        assert!(text.contains("\t10.1.2.3\t") && text.lines().count() == 4, "{text}");
        networks.fold(100, Timestamp(EPOCH + 20_000_000_000));
        assert!(is_consistent(&networks));
        assert_eq!(networks.used, LEVEL_BYTES + NETWORK_BYTES);
    }
}
