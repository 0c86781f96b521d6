//! Explanation of a bound that exceeds its limit: the place in the code, and what the profile would have to allow.

use crate::compare::round;
use crate::{Calibration, Comparison, LimitStatus, LimitedResource, Tier};
use std::fmt;
use weir_bounds::{Analysis, EntryBound, PathStep, StepKind, UnboundedReason};
use weir_units::Bytes;

/// A bound that exceeds the profile's limit, and the place in the code that contributes most to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The bound that is furthest over its limit.
    pub comparison: Comparison,
    /// The reason why there is no bound, for the first place in the code without a bound; `None` if there is a bound.
    pub reason: Option<UnboundedReason>,
    /// The largest contribution to the bound; `None` without a bound.
    pub contributor: Option<PathStep>,
    /// The tiers that the profile allows.
    pub tiers: Vec<Tier>,
    /// The time that fuel takes.
    pub calibration: Calibration,
}

impl std::error::Error for Excess {}

impl Excess {
    /// Returns the tier that the profile would have to allow for the module to run.
    pub fn needed_tier(&self) -> Tier {
        match self.comparison.status() {
            LimitStatus::Within => Tier::Proved,
            LimitStatus::OverWithinFactor => Tier::Supervised,
            LimitStatus::OverFactor | LimitStatus::Unbounded => Tier::Metered,
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { entry, resource, bound, limit, factor } = &self.comparison;
        let name = entry.map_or("the module", weir_bounds::EntryPoint::name);
        let what = resource.name();
        if bound.is_bounded() {
            let bound = self.comparison.amount_text(*bound, &self.calibration);
            match resource {
                LimitedResource::Fuel => write!(f, "{name} takes up to {bound}")?,
                LimitedResource::Stack | LimitedResource::ShadowStack | LimitedResource::Memory => {
                    write!(f, "{name} uses up to {bound} of {what}")?;
                }
                LimitedResource::Records
                | LimitedResource::Patches
                | LimitedResource::SentFrames
                | LimitedResource::GrownPages => {
                    write!(f, "{name} uses up to {bound} {what}")?;
                }
            }
            let ratio = self.comparison.ratio();
            if ratio.is_finite() {
                write!(f, ", {} times its limit", round(ratio))?;
            }
        } else {
            write!(f, "{name} has no bound on its {what}")?;
            if let Some(reason) = &self.reason {
                write!(f, ": {reason}")?;
            }
        }
        let allowed = self.comparison.amount_text(*limit, &self.calibration);
        let tiers: Vec<&str> = self.tiers.iter().map(|tier| tier.name()).collect();
        let keys = self.comparison.profile_keys();
        write!(f, "; the profile allows {allowed} by {keys}, and only {} modules", tiers.join(" and "))?;
        if let Some(step) = &self.contributor {
            write!(f, "; most of it is {}", StepText(step))?;
        }
        match self.needed_tier() {
            Tier::Proved => {}
            Tier::Supervised => {
                write!(
                    f,
                    "; with \"supervised\" among its `tiers` the module would run, up to {factor} times the limit"
                )?;
            }
            Tier::Metered | Tier::Unmetered => {
                f.write_str("; with \"metered\" among its `tiers` the module would run")?;
            }
        }
        if *resource == LimitedResource::Fuel && !self.calibration.is_measured() {
            f.write_str(" (this node is not calibrated)")?;
        }
        Ok(())
    }
}

/// Returns the largest contribution to a bound that is over its limit.
pub(crate) fn largest_contribution(comparison: &Comparison, analysis: &Analysis) -> Option<PathStep> {
    let found = comparison.entry.and_then(|entry| analysis.entry(entry));
    let tops = found.map(|found| &found.top);
    match comparison.resource {
        LimitedResource::Fuel => {
            found.and_then(EntryBound::top_contributor).filter(|_| comparison.bound.is_bounded()).cloned()
        }
        LimitedResource::Stack => tops?.stack.clone(),
        LimitedResource::ShadowStack => tops?.shadow_stack.clone(),
        LimitedResource::Records => tops?.records.clone(),
        LimitedResource::Patches => tops?.patches.clone(),
        LimitedResource::SentFrames => tops?.frames.clone(),
        LimitedResource::GrownPages => tops?.pages.clone(),
        // A module with too much initial memory is refused before, so the excess comes from growth.
        LimitedResource::Memory => {
            let all = analysis.entries.iter().filter_map(|entry| entry.top.pages.as_ref());
            all.max_by_key(|step| step.amount.at(weir_abi::limit::PACKET_BYTES.into())).cloned()
        }
    }
}

/// A step of the path to the largest contribution, displayed as text.
struct StepText<'a>(&'a PathStep);

impl fmt::Display for StepText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.0.place;
        match &self.0.kind {
            StepKind::Loop(trips) => write!(f, "the loop in {place}, at most {trips} times"),
            StepKind::Call(name) => write!(f, "the call of {} in {place}", crate::escaped(name)),
            StepKind::Host(name) => write!(f, "the call of `{name}` in {place}"),
            StepKind::Bulk => write!(f, "the copy or fill of memory in {place}"),
            StepKind::Grow => write!(f, "the `memory.grow` in {place}"),
            StepKind::StackFrame | StepKind::ShadowStackFrame if self.0.amount.is_bounded() => {
                write!(f, "what {place} takes, {}", Bytes(self.0.amount.constant))
            }
            StepKind::StackFrame => write!(f, "what {place} calls again and again"),
            StepKind::ShadowStackFrame => write!(f, "what {place} takes, which is only known when it runs"),
        }
    }
}
