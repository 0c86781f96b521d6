//! Links that get another rate while they run.

use super::spec::{LinkConfig, OutputSpec};
use crate::control::protocol::LinkRateChange;
use crate::error::NodeError;
use crate::sessions::node::Node;
use weir_units::BitsPerSecond;

/// Whether running links can become these: they are the same, but for their rates and how much of them can be reserved.
pub(crate) fn can_become(old: &[LinkConfig], new: &[LinkConfig]) -> bool {
    let is_same = |link: &LinkConfig| new.iter().any(|other| link.can_become(other));
    old.len() == new.len() && old.iter().all(is_same)
}

/// Those that have changed, as they are to be.
pub(crate) fn changed(old: &[LinkConfig], new: &[LinkConfig]) -> Vec<LinkConfig> {
    new.iter().filter(|link| !old.contains(link)).cloned().collect()
}

/// The rate that an output channel reserves, in bits per second.
pub(super) fn rate_of(spec: &OutputSpec) -> u64 {
    spec.reservation().map_or(0, |reservation| reservation.bits_per_second().0)
}

/// What is said of a change.
pub(crate) fn note(link: &LinkConfig) -> String {
    format!("link {} has {} now, of which {} % can be reserved", link.interface, link.rate, link.reservable)
}

impl Node {
    /// Gives a link another rate, if what is promised of it can still be kept. Says how it is then, and how it was.
    pub(crate) fn change_rate(
        &mut self,
        change: &LinkRateChange,
    ) -> Result<(LinkConfig, Vec<LinkConfig>), NodeError> {
        let Some(port) = self.links.get(&change.link) else {
            let (given, known) = (change.link.clone(), self.links.keys().cloned().collect());
            return Err(NodeError::NoLink { given, known });
        };
        let mut link = port.config().clone();
        link.rate = change.rate.unwrap_or(link.rate);
        link.reservable = change.reservable.unwrap_or(link.reservable);
        link.check()?;
        let before = self.set_rates(std::slice::from_ref(&link))?;
        Ok((link, before))
    }

    /// Gives links other rates, all of them or none. How they were.
    pub(crate) fn set_rates(&mut self, links: &[LinkConfig]) -> Result<Vec<LinkConfig>, NodeError> {
        let mut before = Vec::new();
        for link in links {
            let was = self.links.get(&link.interface).map(|port| port.config().clone());
            match self.set_rate(&link.interface, link.rate, link.reservable) {
                Ok(()) => before.extend(was),
                Err(error) => {
                    for link in before {
                        // What was promised at that rate is promised still.
                        if let Err(error) = self.set_rate(&link.interface, link.rate, link.reservable) {
                            crate::server::log::warn(&error);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(before)
    }

    fn set_rate(&mut self, link: &str, rate: BitsPerSecond, reservable: u8) -> Result<(), NodeError> {
        let Some(port) = self.links.get_mut(link) else { return Ok(()) };
        port.set_rate(rate, reservable).map_err(|refused| NodeError::Rate { link: link.to_owned(), refused })
    }
}
