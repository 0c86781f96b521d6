//! Changes of the rates of running links.

use super::UnknownLink;
use crate::control::link_spec::{LinkConfig, LinkRateChange, OutputSpec};
use crate::sessions::error::NodeError;
use crate::sessions::node::Node;
use weir_units::BitsPerSecond;

/// Returns true if running links can change from the configurations `old` to `new`: only rates and reservable shares may
/// differ.
pub(crate) fn can_become(old: &[LinkConfig], new: &[LinkConfig]) -> bool {
    let is_same = |link: &LinkConfig| new.iter().any(|other| link.can_become(other));
    old.len() == new.len() && old.iter().all(is_same)
}

/// Returns the new configurations that differ from the old ones.
pub(crate) fn changed(old: &[LinkConfig], new: &[LinkConfig]) -> Vec<LinkConfig> {
    new.iter().filter(|link| !old.contains(link)).cloned().collect()
}

/// Returns the rate that an output channel reserves, in bits per second.
pub(super) fn reserved_rate(spec: &OutputSpec) -> u64 {
    spec.reservation().map_or(0, |reservation| reservation.bits_per_second().0)
}

/// Returns a note for the operator about the new rate of a link.
pub(crate) fn note(link: &LinkConfig) -> String {
    format!("link {} now has {}, of which {} % can be reserved", link.interface, link.rate, link.reservable)
}

impl Node {
    /// Changes the rate of a link, if the reservations on it still fit. Returns the link's new configuration, and its
    /// earlier one.
    pub(crate) fn change_rate(
        &mut self,
        change: &LinkRateChange,
    ) -> Result<(LinkConfig, Vec<LinkConfig>), NodeError> {
        let Some(link) = self.links.get(&change.link) else {
            let (given, known) = (change.link.clone(), self.links.keys().cloned().collect());
            return Err(UnknownLink { given, known }.into());
        };
        let mut config = link.config().clone();
        config.rate = change.rate.unwrap_or(config.rate);
        config.reservable = change.reservable.unwrap_or(config.reservable);
        config.check()?;
        let before = self.set_rates(std::slice::from_ref(&config))?;
        Ok((config, before))
    }

    /// Changes the rates of links: all of them, or none. Returns the earlier configurations.
    pub(crate) fn set_rates(&mut self, links: &[LinkConfig]) -> Result<Vec<LinkConfig>, NodeError> {
        let mut before = Vec::new();
        for link in links {
            let earlier = self.links.get(&link.interface).map(|present| present.config().clone());
            match self.set_rate(&link.interface, link.rate, link.reservable) {
                Ok(()) => before.extend(earlier),
                Err(error) => {
                    for link in before {
                        // The reservations fit the earlier rate, so the rate is not refused.
                        if let Err(error) = self.set_rate(&link.interface, link.rate, link.reservable) {
                            crate::log::warn(&error);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(before)
    }

    fn set_rate(&mut self, name: &str, rate: BitsPerSecond, reservable: u8) -> Result<(), NodeError> {
        let Some(link) = self.links.get_mut(name) else { return Ok(()) };
        link.set_rate(rate, reservable).map_err(|refused| NodeError::Rate { link: name.to_owned(), refused })
    }
}
