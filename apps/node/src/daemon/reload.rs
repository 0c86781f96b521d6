//! What changes of a node itself while it runs: its configuration, and the rates of its links.

use super::{Books, Daemon, DaemonError, load, lock};
use crate::config::Config;
use crate::error::NodeError;
use crate::link::{self, LinkConfig};
use crate::log::{self, say, warn};
use crate::protocol::Rate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_session::ledger::{Closed, Event, Text, Unloaded};

/// What of `[remote]` cannot change.
#[derive(PartialEq, Eq)]
struct Reached<'a> {
    at: Option<(std::net::SocketAddr, &'a std::path::Path)>,
}

impl<'a> Reached<'a> {
    fn of(config: &'a Config) -> Self {
        Self { at: config.remote.as_ref().map(|remote| (remote.listen, remote.key.as_path())) }
    }
}

impl Books {
    /// Enters those of these links that were different before.
    fn enter_links(&mut self, links: &[LinkConfig], before: &[LinkConfig]) {
        for link in links.iter().filter(|link| !before.contains(link)) {
            let (rate, reservable) = (link.rate, link.reservable);
            self.enter(Event::LinkChanged { link: Text::new(&link.interface), rate, reservable });
        }
    }
}

impl Daemon {
    /// Another rate for a link, until the configuration says yet another one. Says how it is then.
    pub(crate) fn change_rate(&self, change: &Rate) -> Result<String, NodeError> {
        // The books first, as at the end of an interval: so the ledger has all changes in their order.
        let mut books = lock(&self.books);
        let (link, before) = lock(&self.node).change_rate(change)?;
        books.enter_links(std::slice::from_ref(&link), &before);
        drop(books);
        let note = link::note(&link);
        say(&note);
        Ok(note)
    }

    /// Gives links other rates, all of them or none. How they were before.
    fn set_rates(&self, links: &[LinkConfig]) -> Result<Vec<LinkConfig>, NodeError> {
        let mut books = lock(&self.books);
        let before = lock(&self.node).set_rates(links)?;
        books.enter_links(links, &before);
        Ok(before)
    }

    /// Reads the configuration again and does what it says, or nothing. Sessions that are not from it stay as they are.
    pub(crate) fn reload(&self) -> Result<Vec<String>, DaemonError> {
        // It can take long to close and create sessions: what was taken back meanwhile is noticed by the files of the configuration before.
        let _alone = lock(&self.reloading);
        let loaded = lock(&self.loaded).clone();
        let mut new = load(&self.setup.config, &self.setup.calibration, self.setup.shipped)?;
        let path = || self.setup.config.clone();
        for (part, differs) in [
            ("node", new.config.node != loaded.config.node),
            ("isolation", new.config.isolation != loaded.config.isolation),
            ("cpu", new.config.cpu != loaded.config.cpu),
            ("remote", Reached::of(&new.config) != Reached::of(&loaded.config)),
            ("interface", new.config.interfaces != loaded.config.interfaces),
            ("link", !link::can_become(&loaded.config.links, &new.config.links)),
        ] {
            if differs {
                return Err(DaemonError::Restart { path: path(), part });
            }
        }
        // What has been taken back stays so, whatever the files say now.
        new.trust = self.remembered(new.trust.take())?;
        let old = loaded.config.sessions.clone();
        let gone = old.iter().filter(|old| !new.config.sessions.contains(old));
        let come = new.config.sessions.iter().filter(|new| !old.contains(new));
        let (gone, come): (Vec<_>, Vec<_>) = (gone.cloned().collect(), come.cloned().collect());
        let links = link::changed(&loaded.config.links, &new.config.links);
        lock(&self.node).set_profiles(new.default.clone(), new.profiles.clone());
        let mut notes = Vec::new();
        for session in &gone {
            // It may have been closed by hand.
            if self.close_now(&session.name, Closed::Node, Unloaded::SessionClosed).is_ok() {
                notes.push(format!("session {} is closed", session.name));
            }
        }
        // After sessions have gone, as a lower rate may need what they gave back; before others come, as they may need a higher one.
        let (links_before, mut created) = match self.set_rates(&links) {
            Ok(before) => (Some(before), Ok(())),
            Err(error) => (None, Err(DaemonError::Node(error))),
        };
        let shelf = Arc::clone(&lock(&self.node).workshop.shelf);
        let mut tables_before = Vec::new();
        if created.is_ok() {
            match shelf.configure(&loaded.tables, std::mem::take(&mut new.tables)) {
                Ok(configured) => {
                    (new.tables, tables_before) = (configured.sheets, configured.before);
                    notes.extend(configured.notes);
                }
                Err(error) => created = Err(NodeError::from(error).into()),
            }
        }
        let mut done = 0;
        while let (Ok(()), Some(session)) = (&created, come.get(done)) {
            created = self
                .create_configured(session.clone())
                .map_err(|error| self.of_configuration(session.name.clone(), error));
            done += usize::from(created.is_ok());
        }
        if let Err(error) = created {
            // As it was before: there was room for it a moment ago.
            lock(&self.node).set_profiles(loaded.default.clone(), loaded.profiles.clone());
            for session in &come[..done] {
                _ = self.close_now(&session.name, Closed::Node, Unloaded::SessionClosed);
            }
            if let Some(Err(error)) = links_before.map(|links| self.set_rates(&links)) {
                warn(&error);
            }
            shelf.restore(tables_before);
            for session in gone {
                let name = session.name.clone();
                if let Err(error) = self.create_configured(session) {
                    log::session(&name).warn(&format_args!("session {name} could not be restored: {error}"));
                }
            }
            return Err(error);
        }
        notes.extend(links.iter().map(link::note));
        notes.extend(come.iter().map(|session| format!("session {} is created", session.name)));
        new.trust = self.trust_anew(new.trust.take());
        self.is_limited_anew.store(true, Ordering::Release);
        let configuration = new.digest;
        *lock(&self.loaded) = new;
        lock(&self.books).enter(Event::NodeReconfigured { configuration });
        if notes.is_empty() {
            notes.push("the sessions are as they were".to_owned());
        }
        Ok(notes)
    }
}
