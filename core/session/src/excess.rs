//! Why a module is over its limits, in words.

use crate::compare::round;
use crate::{Calibration, Comparison, Resource, Standing, Tier};
use std::fmt;
use weir_bounds::{Reason, Step, What};

/// What a module may use more of than its profile allows, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// What is furthest over its limit.
    pub comparison: Comparison,
    /// Why there is no bound, at the first place that has none.
    pub reason: Option<Reason>,
    /// The way to what contributes most, from the entry point inwards.
    pub hottest: Vec<Step>,
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
            Standing::Within => Tier::Proved,
            Standing::Over => Tier::Supervised,
            Standing::Beyond | Standing::Unbounded => Tier::Metered,
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
                Resource::Fuel => write!(f, "{name} takes up to {bound}")?,
                Resource::Stack | Resource::ShadowStack | Resource::Memory => {
                    write!(f, "{name} uses up to {bound} of {what}")?;
                }
                Resource::Records | Resource::Patches | Resource::Pages => {
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
        if *resource == Resource::Fuel && !self.calibration.is_measured() {
            f.write_str(" (this node is not calibrated)")?;
        }
        Ok(())
    }
}

impl Excess {
    /// What contributes most, where it is time that is exceeded: the last step on the way that is a place where work is done, not only a call on
    /// the way to it.
    pub fn contributor(&self) -> Option<&Step> {
        let is_time = self.comparison.resource == Resource::Fuel && self.comparison.bound.is_bounded();
        let is_work = |step: &&Step| !matches!(step.what, What::Call(_));
        self.hottest.iter().rev().find(is_work).or(self.hottest.last()).filter(|_| is_time)
    }
}

/// A step in words.
struct Shown<'a>(&'a Step);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.0.place;
        match &self.0.what {
            What::Loop(trips) => write!(f, "the loop in {place}, at most {trips} times"),
            What::Call(name) => write!(f, "the call of {} in {place}", crate::shown(name)),
            What::Host(name) => write!(f, "the call of `{name}` in {place}"),
            What::Bulk => write!(f, "the copy or fill of memory in {place}"),
        }
    }
}
