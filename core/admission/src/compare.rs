//! Bounds held against limits: the only place where that is done.

use crate::{Calibration, FuelLimits, Manifest, ModuleInfo, Profile, STACK_MAX};
use std::fmt;
use weir_abi::entry::WorkLimit;
use weir_abi::host::CallPhase;
use weir_abi::limit;
use weir_bounds::{Analysis, EntryBound, EntryPoint, Linear};
use weir_units::Bytes;

const KIB: u128 = 1024;
const WASM_PAGE: u64 = 65_536;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitedResource {
    /// Work, in fuel; limits are given in time.
    Fuel,
    /// Bytes of stack.
    Stack,
    /// Bytes of the shadow stack, in the module's own memory.
    ShadowStack,
    /// Records.
    Records,
    /// Changes of output packets.
    Patches,
    /// Frames that are sent.
    Frames,
    /// Pages of memory that are asked for.
    Pages,
    /// Bytes of private memory.
    Memory,
}

impl LimitedResource {
    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fuel => "time",
            Self::Stack => "stack",
            Self::ShadowStack => "shadow stack",
            Self::Records => "records",
            Self::Patches => "patches",
            Self::Frames => "frames",
            Self::Pages => "pages",
            Self::Memory => "memory",
        }
    }
}

/// How a bound compares with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitStatus {
    /// Within it, for packets of every length.
    Within,
    /// Over it, but within the factor that the profile has for supervised modules.
    Over,
    /// Beyond that factor.
    Beyond,
    /// There is no bound.
    Unbounded,
}

/// A bound and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Of a call of this entry point; of the whole module where there is none.
    pub entry: Option<EntryPoint>,
    /// Of what.
    pub resource: LimitedResource,
    /// The bound: what the analysis found, or what weir lets nobody exceed, whichever is less. In fuel, bytes, or as a number.
    pub bound: Linear,
    /// The limit, in the same unit.
    pub limit: Linear,
    /// A bound may be so many times its limit for the module to be supervised.
    pub factor: u32,
}

impl Comparison {
    /// How the bound compares with the limit.
    pub fn standing(&self) -> LimitStatus {
        match () {
            () if !self.bound.is_bounded() => LimitStatus::Unbounded,
            () if self.is_within(1) => LimitStatus::Within,
            () if self.is_within(self.factor) => LimitStatus::Over,
            () => LimitStatus::Beyond,
        }
    }

    /// Whether the bound is at most so many times the limit. Both are straight lines, so what holds at both ends holds between them.
    fn is_within(&self, times: u32) -> bool {
        !self.limit.is_bounded()
            || self.ends().iter().all(|(bound, limit)| *bound <= limit.saturating_mul(times.into()))
    }

    /// Bound and limit for a packet without a captured byte, and for the longest, in 1024ths.
    fn ends(&self) -> [(u128, u128); 2] {
        let at = |line: Linear, bytes: u32| {
            u128::from(line.constant) * KIB + u128::from(line.per_kib) * u128::from(bytes)
        };
        [0, limit::PACKET_BYTES].map(|bytes| (at(self.bound, bytes), at(self.limit, bytes)))
    }

    /// How many times the limit the bound is, where that is most; infinite where there is no bound, or nothing is allowed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub fn times(&self) -> f64 {
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

    /// The keys of a profile that give this limit.
    pub fn keys(&self) -> &'static str {
        let is_packet = self.entry.is_some_and(|entry| entry.packets() > 0);
        match (self.resource, self.entry.map(|entry| entry.definition().allowance)) {
            (LimitedResource::Fuel, Some(WorkLimit::Packet)) => "`packet` and `per-byte`",
            (LimitedResource::Fuel, Some(WorkLimit::EmptyPacket)) => "`packet`",
            (LimitedResource::Fuel, Some(WorkLimit::Tick)) => "`tick`",
            (LimitedResource::Fuel, Some(WorkLimit::Stop)) => "`stop`",
            (LimitedResource::Fuel, Some(WorkLimit::Start) | None) => "`start`",
            (LimitedResource::Stack, _) => "`stack`",
            (LimitedResource::ShadowStack, _) => "`shadow-stack`",
            (LimitedResource::Records, _) if is_packet => "`records`",
            (LimitedResource::Records, _) => "`call-records`",
            (LimitedResource::Patches, _) => "`patches`",
            (LimitedResource::Frames, _) if is_packet => "`frames`",
            (LimitedResource::Frames, _) => "`call-frames`",
            (LimitedResource::Pages, _) => "`pages`",
            (LimitedResource::Memory, _) => "`memory`",
        }
    }

    /// An amount of what is compared: time and fuel, bytes, or a number.
    pub fn shown(&self, amount: Linear, calibration: &Calibration) -> String {
        match self.resource {
            _ if !amount.is_bounded() => "unbounded".to_owned(),
            LimitedResource::Fuel => format!("{} ({amount} fuel)", calibration.shown(amount)),
            LimitedResource::Stack | LimitedResource::ShadowStack | LimitedResource::Memory
                if amount.per_kib == 0 =>
            {
                Bytes(amount.constant).to_string()
            }
            _ => amount.to_string(),
        }
    }
}

impl fmt::Display for Comparison {
    /// In a few words: "weir_packet: 3.1 x its time".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.resource.name();
        let times = self.times();
        match self.entry {
            Some(entry) if !self.bound.is_bounded() => write!(f, "{entry}: no bound on its {what}"),
            Some(entry) if times.is_finite() => write!(f, "{entry}: {} x its {what}", round(times)),
            Some(entry) => write!(f, "{entry}: {what}, where none may be used"),
            None => write!(f, "{} x its {what}", round(times)),
        }
    }
}

/// A ratio with two digits that count, or as a whole number.
pub(crate) fn round(times: f64) -> String {
    // What is over a limit by a little is not shown as if it met it.
    let up = |digits: f64| (times * digits).ceil() / digits;
    if times < 10.0 { format!("{:.1}", up(10.0)) } else { format!("{:.0}", up(1.0)) }
}

/// Every bound of a module beside its limit: by entry point, in the order in which weir calls them, and last for the module as a whole.
pub(crate) fn compare(
    analysis: &Analysis,
    facts: &ModuleInfo,
    manifest: &Manifest,
    profile: &Profile,
    limits: &FuelLimits,
) -> Vec<Comparison> {
    // What it asked for is what the host lets it have, should the profile allow so much.
    let ceiling = manifest.memory;
    let room = ceiling.0.saturating_sub(facts.memory.0) / WASM_PAGE;
    let mut comparisons = Vec::new();
    let mut started = 0u64;
    let mut grows_later = false;
    // The entry points that weir calls: not those that an analysis happens to know.
    for entry in facts.entries.iter() {
        let found = analysis.entry(entry);
        let mut compare = |resource, bound, limit| {
            let factor =
                if resource == LimitedResource::Fuel { profile.cpu_factor } else { profile.other_factor };
            comparisons.push(Comparison { entry: Some(entry), resource, bound, limit, factor });
        };
        let fuel =
            found.filter(|found| found.is_bounded()).map_or(Linear::UNBOUNDED, |found| found.usage.fuel);
        compare(LimitedResource::Fuel, fuel, limits.of(entry));
        let stack = found.and_then(|found| found.stack).unwrap_or(STACK_MAX.0).min(STACK_MAX.0);
        compare(LimitedResource::Stack, Linear::constant(stack), Linear::constant(profile.stack.0));
        let shadow = found.and_then(|found| found.shadow_stack).unwrap_or(ceiling.0).min(ceiling.0);
        compare(
            LimitedResource::ShadowStack,
            Linear::constant(shadow),
            Linear::constant(profile.shadow_stack.0),
        );

        let usage = |of: fn(&EntryBound) -> Linear| found.map_or(Linear::UNBOUNDED, of);
        let packets = Some(u64::from(entry.packets())).filter(|packets| *packets > 0);
        let (records_most, records) = match packets {
            Some(packets) => {
                (u64::from(limit::RECORDS_PER_PACKET) * packets, u64::from(profile.records) * packets)
            }
            None => (limit::RECORDS_PER_CALL.into(), profile.call_records.into()),
        };
        // The host gives no more than it is asked for, and nothing to a module that cannot ask.
        let most = |import: &str, most: u64| if facts.imports.contains(&import) { most } else { 0 };
        let records_most = most("emit", records_most);
        let records_found = capped(usage(|found| found.usage.records), records_most);
        compare(LimitedResource::Records, records_found, Linear::constant(records));
        if let Some(packets) = packets {
            let patches_most = most("patch", u64::from(limit::PATCHES_PER_PACKET) * packets);
            let patches = capped(usage(|found| found.usage.patches), patches_most);
            compare(
                LimitedResource::Patches,
                patches,
                Linear::constant(u64::from(profile.patches) * packets),
            );
        }
        let (frames_most, frames) = match packets {
            Some(packets) => {
                (u64::from(limit::FRAMES_PER_PACKET) * packets, u64::from(profile.frames) * packets)
            }
            None => (limit::FRAMES_PER_CALL.into(), profile.call_frames.into()),
        };
        let is_start = entry.phase() == CallPhase::Start;
        // Nothing is sent before the first packet. Of a module that sends nothing nobody asks for a limit.
        let frames_most = if is_start { 0 } else { most("send", frames_most) };
        if frames_most > 0 {
            let found = capped(usage(|found| found.usage.frames), frames_most);
            compare(LimitedResource::Frames, found, Linear::constant(frames));
        }
        let pages = capped(usage(|found| found.usage.pages), room);
        if is_start {
            started = started.saturating_add(pages.constant);
        } else {
            let pages_limit = u64::from(profile.pages).saturating_mul(packets.unwrap_or(1));
            compare(LimitedResource::Pages, pages, Linear::constant(pages_limit));
            grows_later |= pages != Linear::ZERO;
        }
    }
    // What grows at each packet grows as far as it may.
    let pages = if grows_later { room } else { started.min(room) };
    let memory = facts.memory.0.saturating_add(pages.saturating_mul(WASM_PAGE));
    // What it keeps is memory too, up to what it asked for.
    let keeps = manifest.keep > 0 && facts.imports.contains(&"keep");
    let memory = if keeps { memory.max(ceiling.0) } else { memory };
    comparisons.push(Comparison {
        entry: None,
        resource: LimitedResource::Memory,
        bound: Linear::constant(memory),
        limit: Linear::constant(profile.memory.0),
        factor: profile.other_factor,
    });
    comparisons
}

/// A bound on what the host never gives more of than `most`, whatever a module asks for.
fn capped(bound: Linear, most: u64) -> Linear {
    if bound.at(limit::PACKET_BYTES.into()) > most { Linear::constant(most) } else { bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn comparison(bound: Linear, limit: Linear, factor: u32) -> Comparison {
        Comparison { entry: None, resource: LimitedResource::Fuel, bound, limit, factor }
    }

    /// A line at a length, in 1024ths.
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

    proptest! {
        #[test]
        fn what_is_within_its_limit_is_so_for_packets_of_every_length(
            bound in line(), limit in line(), factor in 1u32..100, bytes in 0..=limit::PACKET_BYTES,
        ) {
            let comparison = comparison(bound, limit, factor);
            let standing = comparison.standing();
            let holds = |times: u128, bytes| exact(bound, bytes) <= exact(limit, bytes) * times;
            let holds_at_all = |times| [0, bytes, limit::PACKET_BYTES].iter().all(|bytes| holds(times, *bytes));
            match standing {
                LimitStatus::Within => prop_assert!(!limit.is_bounded() || holds_at_all(1)),
                LimitStatus::Over => prop_assert!(!holds_at_all(1) && holds_at_all(factor.into())),
                LimitStatus::Beyond => prop_assert!(!holds_at_all(factor.into())),
                LimitStatus::Unbounded => prop_assert!(!bound.is_bounded()),
            }
            prop_assert!(standing != LimitStatus::Within || !limit.is_bounded() || comparison.times() <= 1.0);
            prop_assert!(standing <= LimitStatus::Within || comparison.times() >= 1.0);
        }
    }

    #[test]
    fn ratios_are_rounded_up_so_that_none_looks_as_if_it_met_its_limit() {
        assert_eq!([1.000_1, 2.5, 9.91, 9.999, 40.01].map(round), ["1.1", "2.5", "10.0", "10.0", "41"]);
    }
}
