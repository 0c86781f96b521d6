//! Comparison of the bounds that the analysis found with the limits of a profile.

use crate::environment::own_memory;
use crate::{Calibration, FuelLimits, Manifest, ModuleInfo, Profile, STACK_MAX, TcpSettings};
use std::fmt;
use weir_abi::entry::WorkLimit;
use weir_abi::host::CallPhase;
use weir_abi::limit;
use weir_bounds::{Analysis, EntryBound, EntryPoint, Linear};
use weir_units::Bytes;

const KIB: u128 = 1024;
const WASM_PAGE: u64 = 65_536;

/// A resource that a profile limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitedResource {
    /// Work, in fuel; profiles give its limits in time.
    Fuel,
    /// Stack, in bytes.
    Stack,
    /// The shadow stack in the module's own memory, in bytes.
    ShadowStack,
    /// Records that are emitted.
    Records,
    /// Changes of output packets.
    Patches,
    /// Frames that are sent.
    SentFrames,
    /// Pages of memory that are requested by `memory.grow`.
    GrownPages,
    /// Private memory, in bytes.
    Memory,
}

impl LimitedResource {
    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fuel => "time",
            Self::Stack => "stack",
            Self::ShadowStack => "shadow stack",
            Self::Records => "records",
            Self::Patches => "patches",
            Self::SentFrames => "frames",
            Self::GrownPages => "pages",
            Self::Memory => "memory",
        }
    }
}

/// The relation of a bound to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitStatus {
    /// Within the limit, for packets of every length.
    Within,
    /// Over the limit, but within the profile's factor for supervised modules.
    OverWithinFactor,
    /// Over the limit by more than the profile's factor for supervised modules.
    OverFactor,
    /// There is no bound.
    Unbounded,
}

/// A bound and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The entry point to whose calls the bound applies; `None` for the whole module.
    pub entry: Option<EntryPoint>,
    /// The resource.
    pub resource: LimitedResource,
    /// The bound that the analysis found; or the maximum that the host gives to a module, if this is less. Its unit is
    /// that of the resource.
    pub bound: Linear,
    /// The limit, in the same unit.
    pub limit: Linear,
    /// The factor by which a bound may exceed its limit for the module to be supervised.
    pub factor: u32,
}

impl Comparison {
    /// Returns the relation of the bound to the limit.
    pub fn status(&self) -> LimitStatus {
        match () {
            () if !self.bound.is_bounded() => LimitStatus::Unbounded,
            () if self.is_within(1) => LimitStatus::Within,
            () if self.is_within(self.factor) => LimitStatus::OverWithinFactor,
            () => LimitStatus::OverFactor,
        }
    }

    /// Returns true if the bound is at most `times` the limit. Bound and limit are linear in the packet's length, so the
    /// comparison for the shortest and for the longest packet is enough.
    fn is_within(&self, times: u32) -> bool {
        !self.limit.is_bounded()
            || self.ends().iter().all(|(bound, limit)| *bound <= limit.saturating_mul(times.into()))
    }

    /// Returns bound and limit for a packet without a captured byte, and for the longest packet. Both are in 1/1024 of
    /// the resource's unit.
    fn ends(&self) -> [(u128, u128); 2] {
        [0, limit::PACKET_BYTES].map(|bytes| (value_at(self.bound, bytes), value_at(self.limit, bytes)))
    }

    /// Returns the highest ratio of bound to limit; infinite without a bound, or if the limit is zero.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub fn ratio(&self) -> f64 {
        if !self.bound.is_bounded() {
            return f64::INFINITY;
        }
        let ratio = |(bound, limit): &(u128, u128)| match (bound, limit) {
            (0, _) => 0.0,
            (_, 0) => f64::INFINITY,
            (bound, limit) => *bound as f64 / *limit as f64,
        };
        self.ends().iter().map(ratio).fold(0.0, f64::max)
    }

    /// Returns the most iterations of a loop with which the bound would be within its limit, if all other parts of the bound stay.
    /// `amount` is the part of the loop, for `trips` iterations. `None` if the other parts alone exceed the limit, if not even
    /// one iteration fits, or if there is no bound.
    pub fn fitting_trips(&self, amount: Linear, trips: Linear) -> Option<u64> {
        if ![self.bound, self.limit, amount, trips].iter().all(|linear| linear.is_bounded()) {
            return None;
        }
        let longest = [amount, trips].map(|line| value_at(line, limit::PACKET_BYTES));
        let fits = |bytes: u32| {
            let [amount, trips] = [amount, trips].map(|line| value_at(line, bytes));
            let others = value_at(self.bound, bytes).saturating_sub(amount);
            let left = value_at(self.limit, bytes).checked_sub(others)?;
            // An empty packet has no iteration of a loop over its bytes.
            let [cost, trips] = if trips == 0 { longest } else { [amount, trips] };
            left.checked_mul(trips)?.checked_div(cost.checked_mul(KIB)?)
        };
        let most = fits(0)?.min(fits(limit::PACKET_BYTES)?);
        u64::try_from(most).ok().filter(|most| *most > 0)
    }

    /// Returns the keys of a profile that set this limit.
    pub fn profile_keys(&self) -> &'static str {
        let is_packet = self.entry.is_some_and(|entry| entry.packets() > 0);
        match (self.resource, self.entry.map(|entry| entry.definition().work_limit)) {
            (LimitedResource::Fuel, Some(WorkLimit::Packet)) => "`packet` and `per-byte`",
            (LimitedResource::Fuel, Some(WorkLimit::LostPacket)) => "`packet`",
            (LimitedResource::Fuel, Some(WorkLimit::Tick)) => "`tick`",
            (LimitedResource::Fuel, Some(WorkLimit::Stop)) => "`stop`",
            (LimitedResource::Fuel, Some(WorkLimit::Start) | None) => "`start`",
            (LimitedResource::Stack, _) => "`stack`",
            (LimitedResource::ShadowStack, _) => "`shadow-stack`",
            (LimitedResource::Records, _) if is_packet => "`records`",
            (LimitedResource::Records, _) => "`call-records`",
            (LimitedResource::Patches, _) => "`patches`",
            (LimitedResource::SentFrames, _) if is_packet => "`frames`",
            (LimitedResource::SentFrames, _) => "`call-frames`",
            (LimitedResource::GrownPages, _) => "`pages`",
            (LimitedResource::Memory, _) => "`memory`",
        }
    }

    /// Returns an amount of the resource as text for people: time and fuel, bytes, or a number.
    pub fn amount_text(&self, amount: Linear, calibration: &Calibration) -> String {
        match self.resource {
            _ if !amount.is_bounded() => "unbounded".to_owned(),
            LimitedResource::Fuel => format!("{} ({amount} fuel)", calibration.time_bound(amount)),
            LimitedResource::Stack | LimitedResource::ShadowStack | LimitedResource::Memory
                if amount.per_kib == 0 =>
            {
                Bytes(amount.constant).to_string()
            }
            _ => amount.to_string(),
        }
    }
}

/// Returns the value of a line for a packet with this many bytes, in 1/1024 of its unit.
fn value_at(line: Linear, bytes: u32) -> u128 {
    u128::from(line.constant) * KIB + u128::from(line.per_kib) * u128::from(bytes)
}

impl fmt::Display for Comparison {
    /// Writes the comparison in a few words: "weir_packet: 3.1 x its time".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.resource.name();
        let ratio = self.ratio();
        match self.entry {
            Some(entry) if !self.bound.is_bounded() => write!(f, "{entry}: no bound on its {what}"),
            Some(entry) if ratio.is_finite() => write!(f, "{entry}: {} x its {what}", round(ratio)),
            Some(entry) => write!(f, "{entry}: {what}, where none may be used"),
            None => write!(f, "{} x its {what}", round(ratio)),
        }
    }
}

/// Returns a ratio as text: with one decimal below 10, else as a whole number.
pub(crate) fn round(ratio: f64) -> String {
    // Rounded up, so that a bound slightly over its limit is not shown as equal to the limit.
    let up = |steps_per_unit: f64| (ratio * steps_per_unit).ceil() / steps_per_unit;
    if ratio < 10.0 { format!("{:.1}", up(10.0)) } else { format!("{:.0}", up(1.0)) }
}

/// Returns every bound with its limit: for each entry point, in the order in which weir calls entry points, and last for
/// the module as a whole.
pub(crate) fn compare(
    analysis: &Analysis,
    info: &ModuleInfo,
    manifest: &Manifest,
    tcp: Option<&TcpSettings>,
    profile: &Profile,
    limits: &FuelLimits,
) -> Vec<Comparison> {
    // The host gives the module at most the memory that its manifest states. The memory of its TCP streams, which the host
    // uses, is part of that; what is left is the maximum of the module's own memory.
    let memory_max = own_memory(manifest, tcp);
    let growable_pages = memory_max.0.saturating_sub(info.memory.0) / WASM_PAGE;
    let mut comparisons = Vec::new();
    let mut start_pages = 0u64;
    let mut grows_later = false;
    // These are all entry points that weir calls. An entry point without a result of the analysis has no bounds.
    for entry in info.entries.iter() {
        let found = analysis.entry(entry);
        let mut add = |resource, bound, limit| {
            let factor =
                if resource == LimitedResource::Fuel { profile.cpu_factor } else { profile.other_factor };
            comparisons.push(Comparison { entry: Some(entry), resource, bound, limit, factor });
        };
        let fuel =
            found.filter(|found| found.is_bounded()).map_or(Linear::UNBOUNDED, |found| found.usage.fuel);
        add(LimitedResource::Fuel, fuel, limits.for_entry(entry));
        let stack = found.and_then(|found| found.stack).unwrap_or(STACK_MAX.0).min(STACK_MAX.0);
        add(LimitedResource::Stack, Linear::constant(stack), Linear::constant(profile.stack.0));
        let shadow_stack =
            found.and_then(|found| found.shadow_stack).unwrap_or(memory_max.0).min(memory_max.0);
        add(
            LimitedResource::ShadowStack,
            Linear::constant(shadow_stack),
            Linear::constant(profile.shadow_stack.0),
        );

        let usage = |read: fn(&EntryBound) -> Linear| found.map_or(Linear::UNBOUNDED, read);
        let packets = Some(u64::from(entry.packets())).filter(|packets| *packets > 0);
        let (records_max, records) = match packets {
            Some(packets) => {
                (u64::from(limit::RECORDS_PER_PACKET) * packets, u64::from(profile.records) * packets)
            }
            None => (limit::RECORDS_PER_CALL.into(), profile.call_records.into()),
        };
        // The host allows no more than its own maximum, and nothing without the import of the function.
        let host_max = |import: &str, maximum: u64| if info.imports.contains(&import) { maximum } else { 0 };
        let records_max = host_max("emit", records_max);
        let records_found = capped(usage(|found| found.usage.records), records_max);
        add(LimitedResource::Records, records_found, Linear::constant(records));
        if let Some(packets) = packets {
            let patches_max = host_max("patch", u64::from(limit::PATCHES_PER_PACKET) * packets);
            let patches = capped(usage(|found| found.usage.patches), patches_max);
            add(LimitedResource::Patches, patches, Linear::constant(u64::from(profile.patches) * packets));
        }
        let (frames_max, frames) = match packets {
            Some(packets) => {
                (u64::from(limit::FRAMES_PER_PACKET) * packets, u64::from(profile.frames) * packets)
            }
            None => (limit::FRAMES_PER_CALL.into(), profile.call_frames.into()),
        };
        let is_start = entry.phase() == CallPhase::Start;
        // No frame is sent before the first packet. A module that cannot send needs no limit on frames.
        let frames_max = if is_start { 0 } else { host_max("send", frames_max) };
        if frames_max > 0 {
            let found = capped(usage(|found| found.usage.frames), frames_max);
            add(LimitedResource::SentFrames, found, Linear::constant(frames));
        }
        let pages = capped(usage(|found| found.usage.pages), growable_pages);
        if is_start {
            start_pages = start_pages.saturating_add(pages.constant);
        } else {
            let pages_limit = u64::from(profile.pages).saturating_mul(packets.unwrap_or(1));
            add(LimitedResource::GrownPages, pages, Linear::constant(pages_limit));
            grows_later |= pages != Linear::ZERO;
        }
    }
    // A module whose memory grows after the start can grow to its maximum.
    let pages = if grows_later { growable_pages } else { start_pages.min(growable_pages) };
    let memory = info.memory.0.saturating_add(pages.saturating_mul(WASM_PAGE));
    // Kept packets count as memory, too, up to the manifest's maximum.
    let keeps = manifest.keep > 0 && info.imports.contains(&"keep");
    let memory = if keeps { memory.max(memory_max.0) } else { memory };
    let memory = memory.saturating_add(tcp.map_or(0, |tcp| tcp.config.memory().0));
    comparisons.push(Comparison {
        entry: None,
        resource: LimitedResource::Memory,
        bound: Linear::constant(memory),
        limit: Linear::constant(profile.memory.0),
        factor: profile.other_factor,
    });
    comparisons
}

/// Returns the bound on a resource of which the host never gives more than `maximum`.
fn capped(bound: Linear, maximum: u64) -> Linear {
    if bound.at(limit::PACKET_BYTES.into()) > maximum { Linear::constant(maximum) } else { bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn comparison(bound: Linear, limit: Linear, factor: u32) -> Comparison {
        Comparison { entry: None, resource: LimitedResource::Fuel, bound, limit, factor }
    }

    /// The value of a line at a length, in 1024ths.
    fn exact(line: Linear, bytes: u32) -> u128 {
        u128::from(line.constant) * KIB + u128::from(line.per_kib) * u128::from(bytes)
    }

    /// Amounts of every size.
    fn amount() -> impl Strategy<Value = u64> {
        (0u32..64, proptest::num::u64::ANY).prop_map(|(bits, any)| any >> bits)
    }

    fn line() -> impl Strategy<Value = Linear> {
        (amount(), amount()).prop_map(|(constant, per_kib)| Linear { constant, per_kib })
    }

    #[test]
    fn the_fitting_iterations_of_a_loop_fill_its_limit() {
        let of = |bound: Linear, limit: Linear, amount: Linear, trips: Linear| {
            comparison(bound, limit, 10).fitting_trips(amount, trips)
        };
        let number = Linear::constant;
        // 512 iterations of 10, and 80 for the rest: 92 of them are 1,000 with the rest.
        assert_eq!(of(number(5200), number(1000), number(5120), number(512)), Some(92));
        assert_eq!(of(number(5200), number(80), number(5120), number(512)), None);
        assert_eq!(of(number(5200), number(79), number(5120), number(512)), None);
        assert_eq!(of(Linear::UNBOUNDED, number(79), number(5120), number(512)), None);
        // An iteration of 10 for each byte: a constant number of them fits the limit of an empty packet, without the rest of 80.
        let bound = Linear { constant: 80, per_kib: 10 << 10 };
        let limit = Linear { constant: 1000, per_kib: 4 << 10 };
        assert_eq!(of(bound, limit, Linear::per_byte(10), Linear::per_byte(1)), Some(92));
    }

    proptest! {
        #[test]
        fn one_more_than_the_fitting_iterations_is_over_the_limit(
            others in 0u64..1 << 40, cost in 1u64..1 << 20, trips in 1u64..1 << 20, limit in 0u64..1 << 50,
        ) {
            let amount = cost * trips;
            let comparison = comparison(Linear::constant(others + amount), Linear::constant(limit), 10);
            let found = comparison.fitting_trips(Linear::constant(amount), Linear::constant(trips));
            let most = found.unwrap_or(0);
            prop_assert!(found.is_none() || others + most * cost <= limit);
            prop_assert!(others + (most + 1) * cost > limit);
        }

        #[test]
        fn a_bound_within_its_limit_is_so_for_packets_of_every_length(
            bound in line(), limit in line(), factor in 1u32..100, bytes in 0..=limit::PACKET_BYTES,
        ) {
            let comparison = comparison(bound, limit, factor);
            let status = comparison.status();
            let holds = |times: u128, bytes| exact(bound, bytes) <= exact(limit, bytes) * times;
            let holds_at_all = |times| [0, bytes, limit::PACKET_BYTES].iter().all(|bytes| holds(times, *bytes));
            match status {
                LimitStatus::Within => prop_assert!(!limit.is_bounded() || holds_at_all(1)),
                LimitStatus::OverWithinFactor => prop_assert!(!holds_at_all(1) && holds_at_all(factor.into())),
                LimitStatus::OverFactor => prop_assert!(!holds_at_all(factor.into())),
                LimitStatus::Unbounded => prop_assert!(!bound.is_bounded()),
            }
            prop_assert!(status != LimitStatus::Within || !limit.is_bounded() || comparison.ratio() <= 1.0);
            prop_assert!(status <= LimitStatus::Within || comparison.ratio() >= 1.0);
        }
    }

    #[test]
    fn ratios_are_rounded_up_so_that_none_is_shown_as_equal_to_its_limit() {
        assert_eq!([1.000_1, 2.5, 9.91, 9.999, 40.01].map(round), ["1.1", "2.5", "10.0", "10.0", "41"]);
    }
}
