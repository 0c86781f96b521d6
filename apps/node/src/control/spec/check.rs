//! Checks of a session's description that need no node.

use super::{
    ChannelSpec, FILTER_BYTES_MAX, LIST_ENTRIES_MAX, PERIOD, ProcessorSpec, QUEUE_MAX, SessionSpec, SpecError,
};
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_sched::cpu::{WEIGHT_MAX, Weight};

impl SessionSpec {
    /// Checks that names are unique, values are in range, and references are to existing parts of the session, to
    /// `interfaces` and to `profiles`.
    pub fn check(&self, interfaces: &[String], profiles: &[Name]) -> Result<(), SpecError> {
        let session = &self.name;
        let processors = self.all_processors();
        distinct(session, "virtual CPU", processors.iter().map(|cpu| &cpu.name))?;
        distinct(session, "channel", self.channels.iter().map(|channel| &channel.name))?;
        distinct(session, "output channel", self.outputs.iter().map(|output| &output.name))?;
        self.outputs.iter().try_for_each(|output| output.check(session))?;
        self.channels.iter().try_for_each(|channel| self.check_forward(channel))?;
        distinct(session, "module", self.modules.iter().filter_map(|module| module.name.as_ref()))?;
        if self.modules.len() > LIST_ENTRIES_MAX {
            return Err(SpecError::TooMany {
                session: session.clone(),
                what: "module",
                count: self.modules.len(),
            });
        }
        distinct(session, "offer", self.offers.iter().map(|offer| &offer.service))?;
        distinct(session, "use", self.uses.iter().map(|used| &used.service))?;
        self.offers.iter().try_for_each(|offer| offer.check(session))?;
        self.check_tables()?;
        self.check_share_count()?;
        self.check_process()?;
        if let Some(most) = self.memory_max.filter(|most| *most < self.memory) {
            return Err(SpecError::MemoryCeiling { session: session.clone(), most, memory: self.memory });
        }
        processors.iter().try_for_each(|cpu| cpu.check(session))?;
        self.channels.iter().try_for_each(|channel| channel.check(session, interfaces))?;
        let missing = |what, name: String, missing, given: String, known| SpecError::Missing {
            session: session.clone(),
            what,
            name,
            missing,
            given,
            known,
        };
        if let Some(profile) = self.profile.as_ref().filter(|profile| !profiles.contains(profile)) {
            let known = profiles.iter().map(Name::to_string).collect();
            return Err(missing("session", session.to_string(), "profile", profile.to_string(), known));
        }
        for module in &self.modules {
            let name = || module.name.as_ref().map_or_else(|| module.module.clone(), Name::to_string);
            if !self.channels.iter().any(|channel| channel.name == module.channel) {
                let known = self.channels.iter().map(|channel| channel.name.to_string()).collect();
                return Err(missing("module", name(), "channel", module.channel.to_string(), known));
            }
            if !processors.iter().any(|cpu| cpu.name == module.cpu) {
                let known = processors.iter().map(|cpu| cpu.name.to_string()).collect();
                return Err(missing("module", name(), "virtual CPU", module.cpu.to_string(), known));
            }
        }
        Ok(())
    }
}

impl SessionSpec {
    /// Checks that a forwarding channel has a known destination on another interface, and at most one module, which
    /// decides about each packet.
    fn check_forward(&self, channel: &ChannelSpec) -> Result<(), SpecError> {
        let Some(target) = &channel.forward else { return Ok(()) };
        let range = |key, given: String, wanted: &str| SpecError::Range {
            session: self.name.clone(),
            what: "channel",
            name: channel.name.clone(),
            key,
            given,
            wanted: wanted.to_owned(),
        };
        let output = self.outputs.iter().find(|output| output.name.as_str() == target);
        let is_tap = self.outputs.iter().any(|output| output.tap.as_ref() == Some(target));
        if output.is_none() && !is_tap {
            let taps = self.outputs.iter().filter_map(|output| output.tap.clone());
            return Err(SpecError::Missing {
                session: self.name.clone(),
                what: "channel",
                name: channel.name.to_string(),
                missing: "output channel or TAP device",
                given: target.clone(),
                known: self.outputs.iter().map(|output| output.name.to_string()).chain(taps).collect(),
            });
        }
        if output.is_some_and(|output| output.link == channel.interface) {
            let wanted = "an output channel of another link than the interface that the packets come from";
            return Err(range("forward", target.clone(), wanted));
        }
        let module_count = self.modules.iter().filter(|module| module.channel == channel.name).count();
        if module_count > 1 {
            let wanted = "left out where a channel has more than one module: one module decides which packets are forwarded";
            return Err(range("forward", target.clone(), wanted));
        }
        Ok(())
    }

    /// Checks that output channels name known links, and that no channel forwards packets of an interface in
    /// `outgoing`. Such an interface also receives packets that this machine sends, so forwarded packets could be
    /// forwarded again.
    pub fn check_links(&self, links: &[String], outgoing: &[String]) -> Result<(), SpecError> {
        if let Some(output) = self.outputs.iter().find(|output| !links.contains(&output.link)) {
            return Err(SpecError::Missing {
                session: self.name.clone(),
                what: "output channel",
                name: output.name.to_string(),
                missing: "link",
                given: output.link.clone(),
                known: links.to_vec(),
            });
        }
        let could_loop =
            |channel: &&ChannelSpec| channel.forward.is_some() && outgoing.contains(&channel.interface);
        if let Some(channel) = self.channels.iter().find(could_loop) {
            return Err(SpecError::SeesOutgoing {
                session: self.name.clone(),
                channel: channel.name.clone(),
                interface: channel.interface.clone(),
            });
        }
        Ok(())
    }
}

/// Checks that a list has at most [`LIST_ENTRIES_MAX`] names, each only once.
pub(crate) fn distinct<'a>(
    session: &Name,
    what: &'static str,
    names: impl Iterator<Item = &'a Name>,
) -> Result<(), SpecError> {
    let mut seen = BTreeSet::new();
    let mut count = 0;
    for name in names {
        count += 1;
        if !seen.insert(name) {
            return Err(SpecError::Duplicate { session: session.clone(), what, name: name.clone() });
        }
    }
    if count > LIST_ENTRIES_MAX {
        return Err(SpecError::TooMany { session: session.clone(), what, count });
    }
    Ok(())
}

impl ProcessorSpec {
    fn check(&self, session: &Name) -> Result<(), SpecError> {
        let range = |key, given: String, wanted: String| SpecError::Range {
            session: session.clone(),
            what: "virtual CPU",
            name: self.name.clone(),
            key,
            given,
            wanted,
        };
        if self.period.is_some() != self.slice.is_some() {
            return Err(SpecError::IncompleteReservation {
                session: session.clone(),
                name: self.name.clone(),
            });
        }
        if let Some((period, slice)) = self.reservation() {
            if !PERIOD.contains(&period) {
                let wanted = format!("between {} and {}", PERIOD.start(), PERIOD.end());
                return Err(range("period", period.to_string(), wanted));
            }
            if slice.0 == 0 || slice > period {
                return Err(range(
                    "slice",
                    slice.to_string(),
                    format!("above 0 and at most the period, {period}"),
                ));
            }
        }
        if Weight::new(self.weight).is_none() {
            return Err(range("weight", self.weight.to_string(), format!("between 1 and {WEIGHT_MAX}")));
        }
        Ok(())
    }
}

impl ChannelSpec {
    fn check(&self, session: &Name, interfaces: &[String]) -> Result<(), SpecError> {
        let range = |key, given: String, wanted: String| SpecError::Range {
            session: session.clone(),
            what: "channel",
            name: self.name.clone(),
            key,
            given,
            wanted,
        };
        if !interfaces.contains(&self.interface) {
            return Err(SpecError::Missing {
                session: session.clone(),
                what: "channel",
                name: self.name.to_string(),
                missing: "interface",
                given: self.interface.clone(),
                known: interfaces.to_vec(),
            });
        }
        if let Some(queue) = self.queue.filter(|queue| !(1..=QUEUE_MAX).contains(queue)) {
            return Err(range("queue", queue.to_string(), format!("between 1 and {QUEUE_MAX} packets")));
        }
        if self.filter.len() > FILTER_BYTES_MAX {
            let given = format!("{} bytes long", self.filter.len());
            return Err(range("filter", given, format!("at most {FILTER_BYTES_MAX}")));
        }
        self.check_preprocessing().map_err(|(key, given, wanted)| range(key, given, wanted))?;
        Ok(())
    }
}
