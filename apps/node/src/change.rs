//! Sessions that change while they run.

use crate::error::NodeError;
use crate::filters::Compiled;
use crate::log::warn;
use crate::node::{Channel, Node, Session, Vp};
use crate::protocol::Change;
use crate::spec::{ChannelSpec, PARTS_MAX, ProcessorSpec, SessionSpec, SpecError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_datapath::egress::Outlet;
use weir_session::{MemoryReservation, MemoryState, Name};

/// What was done of a change, to be taken back where the rest is refused.
struct Done {
    session: Name,
    reservation: Arc<MemoryReservation>,
    /// What was reserved of it before.
    memory: MemoryState,
    /// Virtual processors as they are now, and what those that have changed were.
    vps: BTreeMap<Name, Vp>,
    vps_before: Vec<(Name, Option<Vp>)>,
    /// Those that channels took the place of.
    channels_before: Vec<(Name, Option<Channel>)>,
}

impl Node {
    /// Changes what a session has reserved, and what it may do. Nothing of it is done where a part cannot be.
    pub(crate) fn change(&mut self, change: &Change, compiled: &Compiled) -> Result<(), NodeError> {
        let changed = self.make_change(change, compiled);
        // Those that have gone, or that were made and are not to come.
        self.forget_selections();
        changed
    }

    fn make_change(&mut self, change: &Change, compiled: &Compiled) -> Result<(), NodeError> {
        let name = &change.session;
        let there = self.sessions.get(name).ok_or_else(|| NodeError::NoSession(name.clone()))?;
        // Nothing more comes to it or goes out of it.
        if there.is_closing && !(change.channels.is_empty() && change.output.is_empty()) {
            return Err(NodeError::Closing(name.clone()));
        }
        // Its modules may have changed what is reserved.
        let (reservation, memory) = (Arc::clone(&there.memory), there.memory.state());
        let limits = Arc::clone(&there.limits);
        let mut present = there.spec.clone();
        if present.memory != memory.reserved {
            (present.memory, present.memory_max_before) = (memory.reserved, Some(memory.ceiling));
        }
        let spec = present.changed(change)?;
        self.check(&spec)?;
        self.hold(there.owner.as_ref(), &spec)?;
        change.cpu.iter().try_for_each(|cpu| self.check_tiers(there, cpu))?;
        change.channels.iter().try_for_each(|channel| check_idle(there, channel))?;
        // Given back with this, where something else is refused.
        let claims = there.claims.more(&spec)?;
        let (vps, vps_before) = (there.vps.clone(), Vec::new());
        let mut channels = Vec::new();
        for channel in &change.channels {
            channels.push(self.channel(name, &reservation, channel, compiled)?);
        }
        reservation
            .change(spec.memory, spec.memory_ceiling())
            .map_err(|error| NodeError::of_memory(name, error))?;
        let (session, channels_before) = (name.clone(), Vec::new());
        let mut done = Done { session, reservation, memory, vps, vps_before, channels_before };
        let still_kept = |error| NodeError::StillKept { session: name.clone(), error };
        let rest = self
            .change_processors(&change.cpu, &mut done)
            .and_then(|()| self.change_channels(channels, &mut done))
            .and_then(|()| limits.narrow(&present, &spec).map_err(still_kept))
            .and_then(|()| self.change_outputs(name, &change.output, compiled));
        if let Err(error) = rest {
            // No fewer than before: no more can be kept than that.
            _ = limits.narrow(&present, &present);
            self.take_back(done);
            return Err(error);
        }
        if let Some(session) = self.sessions.get_mut(name) {
            session.priority.store(spec.priority, Ordering::Relaxed);
            session.limits.become_those_of(&spec);
            (session.spec, session.vps) = (spec, done.vps);
            // What its modules publish is theirs no longer before it is anybody else's.
            session.modules.values().for_each(|module| module.tables.change(&session.spec));
            session.claims.become_those_of(&session.spec, claims);
            // They are on its bill still.
            for before in done.channels_before.iter().filter_map(|(_, before)| before.as_ref()) {
                crate::bill::add_channel(&mut session.gone, before);
            }
        }
        self.tell_services(name)?;
        if !change.output.is_empty() {
            self.tell_outputs(name)?;
        }
        // Their priority may have changed, and where their packets go on.
        self.route_all(name)
    }

    fn change_processors(&self, changes: &[ProcessorSpec], done: &mut Done) -> Result<(), NodeError> {
        for cpu in changes {
            let before = done.vps.get(&cpu.name).cloned();
            let now = match &before {
                Some(vp) => self.give(vp, cpu)?,
                None => self.place(cpu)?,
            };
            done.vps_before.push((cpu.name.clone(), before));
            done.vps.insert(cpu.name.clone(), now);
        }
        Ok(())
    }

    /// Puts these in the place of those of their names, and has packets go there.
    fn change_channels(&mut self, channels: Vec<Channel>, done: &mut Done) -> Result<(), NodeError> {
        let Some(session) = self.sessions.get_mut(&done.session) else { return Ok(()) };
        for channel in channels {
            let name = channel.spec.name.clone();
            done.channels_before.push((name.clone(), session.channels.insert(name, channel)));
        }
        let Some(session) = self.sessions.get(&done.session) else { return Ok(()) };
        for (name, before) in &done.channels_before {
            let now = session.channels.get(name);
            for channel in now.into_iter().chain(before) {
                let failed = |error| NodeError::Channel { channel: name.clone(), error };
                self.route(&channel.spec.interface).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// It is as if nothing had been changed.
    fn take_back(&mut self, done: Done) {
        let Done { session, reservation, memory, vps, vps_before, channels_before } = done;
        if !channels_before.is_empty() {
            if let Some(there) = self.sessions.get_mut(&session) {
                for (name, before) in channels_before.into_iter().rev() {
                    match before {
                        Some(before) => _ = there.channels.insert(name, before),
                        None => _ = there.channels.remove(&name),
                    }
                }
            }
            // As many filters as before fit.
            if let Err(error) = self.route_everything() {
                warn(&error);
            }
        }
        self.undo(vps_before, &vps);
        // What a module has taken meanwhile stays reserved.
        _ = reservation.change(memory.reserved, memory.ceiling);
    }

    /// Has what the modules of a session send go out through the outputs that it has now. Calls that begin after this see them.
    fn tell_outputs(&self, session: &Name) -> Result<(), NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        let ways = self.outlets(session);
        for module in there.modules.values().filter(|module| !module.outputs.is_empty()) {
            let (guest, outlets) = (module.guest, leading(&module.outputs, &ways));
            if let Some(core) = there.vps.get(&module.spec.cpu).and_then(|vp| self.cores.get(vp.core)) {
                core.ask(move |runner| runner.lead(guest, outlets))?;
            }
        }
        Ok(())
    }
}

/// Where the outputs of a module lead, by their places in its manifest: to those of its session with their names.
pub(crate) fn leading(outputs: &[Name], ways: &[(Name, Outlet)]) -> Vec<Option<Outlet>> {
    let way = |name: &Name| ways.iter().find(|(known, _)| known == name).map(|(_, outlet)| outlet.clone());
    outputs.iter().map(way).collect()
}

/// Whether no module has the memory of a channel's packets, if there is one of that name.
fn check_idle(session: &Session, channel: &ChannelSpec) -> Result<(), NodeError> {
    let mut modules = session.modules.values().chain(session.leaving.values());
    match modules.find(|module| module.spec.channel == channel.name) {
        None => Ok(()),
        Some(module) => Err(NodeError::ChannelInUse {
            session: session.spec.name.clone(),
            channel: channel.name.clone(),
            module: module.title.clone(),
        }),
    }
}

impl SessionSpec {
    /// What it is with this change.
    ///
    /// # Errors
    ///
    /// Something that is to go is not there, or there is too much of something.
    pub(crate) fn changed(&self, change: &Change) -> Result<Self, SpecError> {
        let mut spec = self.clone();
        if let Some(memory) = change.memory {
            (spec.memory, spec.memory_max_before) = (memory, None);
        }
        spec.memory_max = change.memory_max.or(spec.memory_max);
        spec.writes = change.writes.or(spec.writes);
        spec.limits = change.limits.or(spec.limits);
        spec.priority = change.priority.unwrap_or(spec.priority);
        spec.profile = change.profile.clone().or(spec.profile);
        spec.change_services(change)?;
        spec.change_tables(change)?;
        spec.change_shares(change)?;
        spec.processors = spec.all_processors();
        let session = &spec.name;
        exchange(session, "virtual processor", &mut spec.processors, &[], &change.cpu, |cpu| &cpu.name)?;
        exchange(session, "channel", &mut spec.channels, &[], &change.channels, |channel| &channel.name)?;
        exchange(session, "output channel", &mut spec.outputs, &[], &change.output, |output| &output.name)?;
        Ok(spec)
    }
}

/// Takes out of a list what is to go, and puts into it what is to come, in the place of what has its name. Each is compared with each, so there is a bounded number of them.
///
/// # Errors
///
/// What is to go is not there, or there are too many.
pub(crate) fn exchange<T: Clone>(
    session: &Name,
    what: &'static str,
    list: &mut Vec<T>,
    gone: &[Name],
    come: &[T],
    name: fn(&T) -> &Name,
) -> Result<(), SpecError> {
    let count = gone.len().max(come.len());
    if count > PARTS_MAX {
        return Err(SpecError::TooMany { session: session.clone(), what, count });
    }
    for gone in gone {
        let Some(at) = list.iter().position(|there| name(there) == gone) else {
            return Err(SpecError::Missing {
                session: session.clone(),
                what: "change",
                name: session.to_string(),
                missing: what,
                given: gone.to_string(),
                known: list.iter().map(|there| name(there).to_string()).collect(),
            });
        };
        list.remove(at);
    }
    for new in come {
        match list.iter_mut().find(|there| name(there) == name(new)) {
            Some(there) => *there = new.clone(),
            None => list.push(new.clone()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Change {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_comes_and_goes_at_once_is_counted_before_it_is_compared() {
        let spec: SessionSpec = toml::from_str("name = \"a\"").unwrap();
        let channel: ChannelSpec = toml::from_str("interface = \"e\"").unwrap();
        let channels = |count: u32| -> Vec<ChannelSpec> {
            let name = |number| Name::new(&format!("c{number}")).unwrap();
            (0..count).map(|number| ChannelSpec { name: name(number), ..channel.clone() }).collect()
        };
        let with = |count| Change { channels: channels(count), ..change(r#"{"session": "a"}"#) };
        assert_eq!(spec.changed(&with(64)).unwrap().channels.len(), 64);
        let error = spec.changed(&with(65)).unwrap_err().to_string();
        assert_eq!(error, "session `a` has 65 channels; 64 is the most");
        let gone = Change {
            withdraw: channels(65).into_iter().map(|channel| channel.name).collect(),
            ..change(r#"{"session": "a"}"#)
        };
        let error = spec.changed(&gone).unwrap_err().to_string();
        assert_eq!(error, "session `a` has 65 offers; 64 is the most");
    }

    #[test]
    fn what_is_not_said_stays_and_what_goes_has_to_be_there() {
        let text =
            "name = \"a\"\nmemory = \"8 MiB\"\npriority = 3\nread = [\"geo\", \"t=old\"]\npublish = [\"p\"]";
        let spec: SessionSpec = toml::from_str(text).unwrap();
        let same = spec.changed(&change(r#"{"session": "a"}"#)).unwrap();
        assert_eq!(same, SessionSpec { processors: spec.all_processors(), ..spec.clone() });
        let grants = |spec: &SessionSpec| {
            let text = |grants: &[crate::tables::TableGrant]| {
                grants.iter().map(ToString::to_string).collect::<Vec<_>>()
            };
            (text(&spec.read), text(&spec.publish))
        };
        // By the names that its modules have for them; what goes does so before what comes.
        let other = change(
            r#"{"session": "a", "read": ["t=new", "more"], "revoke_read": ["geo"], "publish": ["q"], "revoke_publish": ["p"],
                "profile": "strict", "priority": 9}"#,
        );
        let now = spec.changed(&other).unwrap();
        assert_eq!(grants(&now), (vec!["t=new".to_owned(), "more".to_owned()], vec!["q".to_owned()]));
        assert_eq!((now.priority, now.profile.as_ref().map(Name::as_str)), (9, Some("strict")));
        for (revoked, says) in [
            ("\"revoke_read\": [\"old\"]", "there is no readable table `old`; there is geo, t"),
            ("\"revoke_publish\": [\"geo\"]", "there is no own table `geo`; there is p"),
            ("\"withdraw\": [\"s\"]", "there is no offer `s`; there are none"),
        ] {
            let error = spec.changed(&change(&format!("{{\"session\": \"a\", {revoked}}}"))).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
