//! Why a module is over its limits, in words.

use crate::compare::round;
use crate::{Calibration, Comparison, LimitStatus, LimitedResource, Tier};
use std::fmt;
use weir_bounds::{Analysis, EntryBound, PathStep, UnboundedReason, What};
use weir_units::Bytes;

/// What a module may use more of than its profile allows, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// What is furthest over its limit.
    pub comparison: Comparison,
    /// Why there is no bound, at the first place that has none.
    pub reason: Option<UnboundedReason>,
    /// What contributes most to it; nothing where the reason says why there is no bound.
    pub most: Option<PathStep>,
    /// The tiers that the profile allows.
    pub tiers: Vec<Tier>,
    /// How long fuel takes.
    pub calibration: Calibration,
}

impl std::error::Error for Excess {}

impl Excess {
    /// The tier that would have to be allowed for the module to run.
    pub fn needs(&self) -> Tier {
        match self.comparison.standing() {
            LimitStatus::Within => Tier::Proved,
            LimitStatus::Over => Tier::Supervised,
            LimitStatus::Beyond | LimitStatus::Unbounded => Tier::Metered,
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { entry, resource, bound, limit, factor } = &self.comparison;
        let name = entry.map_or("the module", weir_bounds::EntryPoint::name);
        let what = resource.name();
        if bound.is_bounded() {
            let bound = self.comparison.shown(*bound, &self.calibration);
            match resource {
                LimitedResource::Fuel => write!(f, "{name} takes up to {bound}")?,
                LimitedResource::Stack | LimitedResource::ShadowStack | LimitedResource::Memory => {
                    write!(f, "{name} uses up to {bound} of {what}")?;
                }
                LimitedResource::Records
                | LimitedResource::Patches
                | LimitedResource::Frames
                | LimitedResource::Pages => {
                    write!(f, "{name} uses up to {bound} {what}")?;
                }
            }
            let times = self.comparison.times();
            if times.is_finite() {
                write!(f, ", {} times its limit", round(times))?;
            }
        } else {
            write!(f, "{name} has no bound on its {what}")?;
            if let Some(reason) = &self.reason {
                write!(f, ": {reason}")?;
            }
        }
        let allowed = self.comparison.shown(*limit, &self.calibration);
        let tiers: Vec<&str> = self.tiers.iter().map(|tier| tier.name()).collect();
        let keys = self.comparison.keys();
        write!(f, "; the profile allows {allowed} by {keys}, and only {} modules", tiers.join(" and "))?;
        if let Some(step) = self.contributor() {
            write!(f, "; most of it is {}", Shown(step))?;
        }
        match self.needs() {
            Tier::Proved => {}
            Tier::Supervised => {
                write!(
                    f,
                    "; with \"supervised\" among its `tiers` the module would run, up to {factor} times the limit"
                )?;
            }
            Tier::Metered => f.write_str("; with \"metered\" among its `tiers` the module would run")?,
        }
        if *resource == LimitedResource::Fuel && !self.calibration.is_measured() {
            f.write_str(" (this node is not calibrated)")?;
        }
        Ok(())
    }
}

impl Excess {
    /// What contributes most to what is exceeded.
    pub fn contributor(&self) -> Option<&PathStep> {
        self.most.as_ref()
    }
}

/// What contributes most to a bound that is over its limit.
pub(crate) fn most(comparison: &Comparison, analysis: &Analysis) -> Option<PathStep> {
    let found = comparison.entry.and_then(|entry| analysis.entry(entry));
    let most = found.map(|found| &found.most);
    match comparison.resource {
        LimitedResource::Fuel => {
            found.and_then(EntryBound::dearest).filter(|_| comparison.bound.is_bounded()).cloned()
        }
        LimitedResource::Stack => most?.stack.clone(),
        LimitedResource::ShadowStack => most?.shadow_stack.clone(),
        LimitedResource::Records => most?.records.clone(),
        LimitedResource::Patches => most?.patches.clone(),
        LimitedResource::Frames => most?.frames.clone(),
        LimitedResource::Pages => most?.pages.clone(),
        // More than a module may begin with is refused before: what it grows by is what is too much.
        LimitedResource::Memory => {
            let all = analysis.entries.iter().filter_map(|entry| entry.most.pages.as_ref());
            all.max_by_key(|step| step.amount.at(weir_abi::limit::PACKET_BYTES.into())).cloned()
        }
    }
}

/// A step in words.
struct Shown<'a>(&'a PathStep);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.0.place;
        match &self.0.what {
            What::Loop(trips) => write!(f, "the loop in {place}, at most {trips} times"),
            What::Call(name) => write!(f, "the call of {} in {place}", crate::shown(name)),
            What::Host(name) => write!(f, "the call of `{name}` in {place}"),
            What::Bulk => write!(f, "the copy or fill of memory in {place}"),
            What::Grow => write!(f, "the `memory.grow` in {place}"),
            What::Frame | What::Locals if self.0.amount.is_bounded() => {
                write!(f, "what {place} takes, {}", Bytes(self.0.amount.constant))
            }
            What::Frame => write!(f, "what {place} calls again and again"),
            What::Locals => write!(f, "what {place} takes, which is only known when it runs"),
        }
    }
}
