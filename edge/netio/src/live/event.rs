//! Events of an open interface, and the monitor that receives them.

use super::error::LiveError;
use super::netlink::{self, KernelInterface, LinkMessage, Netlink};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use weir_units::Escape as _;

/// An event of an interface.
#[derive(Debug)]
pub enum LiveEvent {
    /// The interface was set down, or has lost its carrier. No packets arrive until [`Up`](Self::Up).
    Down {
        /// The interface.
        interface: String,
    },
    /// The interface is up and has a carrier.
    Up {
        /// The interface.
        interface: String,
    },
    /// The interface was removed. Packets that arrived before may still follow.
    Removed {
        /// The interface.
        interface: String,
    },
    /// A new interface of the same name appeared and was opened.
    Reopened {
        /// The interface.
        interface: String,
    },
    /// A new interface of the same name appeared and could not be opened. Opening is tried again when the interface
    /// changes.
    NotReopened {
        /// The error.
        error: LiveError,
    },
    /// The interface was renamed; packets arrive as before.
    Renamed {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// The interface's MTU has changed.
    Mtu {
        /// The interface.
        interface: String,
        /// The old MTU: the longest packet without its link header, in bytes.
        from: u32,
        /// The new MTU.
        to: u32,
    },
}

impl fmt::Display for LiveEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down { interface } => write!(f, "{} is down", interface.escaped()),
            Self::Up { interface } => write!(f, "{} is up", interface.escaped()),
            Self::Removed { interface } => write!(f, "{} was removed", interface.escaped()),
            Self::Reopened { interface } => write!(f, "{} exists again and was opened", interface.escaped()),
            Self::NotReopened { error } => {
                write!(f, "an interface appeared again and cannot be opened: {error}")
            }
            Self::Renamed { from, to } => write!(f, "{} is now called {}", from.escaped(), to.escaped()),
            Self::Mtu { interface, from, to } => {
                write!(f, "{}: the MTU was {from} and is {to}", interface.escaped())
            }
        }
    }
}

/// The presence of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfacePresence {
    /// The interface exists.
    Present,
    /// The interface was removed.
    Removed,
    /// An interface of the awaited name has appeared or changed.
    Reappeared,
}

/// The monitor of one interface.
#[derive(Debug)]
pub(crate) struct InterfaceMonitor {
    netlink: Netlink,
    /// The name by which the interface was opened.
    name: String,
    pub(crate) link: KernelInterface,
    pub(crate) presence: InterfacePresence,
    pub(crate) events: VecDeque<LiveEvent>,
}

/// The most events that are kept. A caller that polls too rarely misses the oldest events, but learns the state.
const EVENTS_MAX: usize = 256;

impl InterfaceMonitor {
    /// Finds an interface by name and monitors it from then on.
    pub(crate) fn new(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        // The socket is opened before the interface is looked up, so that no change in between is missed.
        let netlink = Netlink::watching().map_err(system)?;
        let link = find_interface(name)?;
        let (name, events) = (name.to_owned(), VecDeque::new());
        Ok(Self { netlink, name, link, presence: InterfacePresence::Present, events })
    }

    /// Creates a monitor of an interface that does not exist yet, as if it had been removed.
    pub(crate) fn for_absent(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        let netlink = Netlink::watching().map_err(system)?;
        // The interface may have appeared before the socket was opened.
        let presence = if find_interface(name).is_ok() {
            InterfacePresence::Reappeared
        } else {
            InterfacePresence::Removed
        };
        let hardware = libc::ARPHRD_ETHER;
        let link = KernelInterface {
            index: 0,
            name: name.to_owned(),
            mtu: 0,
            hardware,
            running: false,
            tx_dropped: 0,
        };
        Ok(Self { netlink, name: name.to_owned(), link, presence, events: VecDeque::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.netlink.fd()
    }

    /// Reads the pending changes.
    pub(crate) fn check_events(&mut self) -> io::Result<()> {
        let mut messages = Vec::new();
        let is_complete = self.netlink.changes(|message| messages.push(message))?;
        for message in messages {
            self.handle_message(message);
        }
        if !is_complete {
            let all = netlink::interfaces()?;
            if self.presence == InterfacePresence::Present
                && !all.iter().any(|link| link.index == self.link.index)
            {
                self.handle_message(LinkMessage::Removed(self.link.index));
            }
            all.into_iter().for_each(|link| self.handle_message(LinkMessage::Present(link)));
        }
        Ok(())
    }

    fn push_event(&mut self, event: LiveEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn handle_message(&mut self, message: LinkMessage) {
        let old = self.link.clone();
        match message {
            LinkMessage::Removed(index)
                if index == old.index && self.presence == InterfacePresence::Present =>
            {
                self.presence = InterfacePresence::Removed;
                self.link.running = false;
                self.push_event(LiveEvent::Removed { interface: old.name });
            }
            LinkMessage::Present(link)
                if self.presence == InterfacePresence::Present && link.index == old.index =>
            {
                self.link = link.clone();
                if link.name != old.name {
                    self.push_event(LiveEvent::Renamed { from: old.name, to: link.name.clone() });
                }
                if link.mtu != old.mtu {
                    let interface = link.name.clone();
                    self.push_event(LiveEvent::Mtu { interface, from: old.mtu, to: link.mtu });
                }
                self.report_running(&link, old.running);
            }
            LinkMessage::Present(link)
                if self.presence != InterfacePresence::Present
                    && (link.name == self.name || link.name == self.link.name) =>
            {
                self.presence = InterfacePresence::Reappeared;
            }
            _ => {}
        }
    }

    /// Reports whether the interface has come up or gone down.
    fn report_running(&mut self, link: &KernelInterface, before: bool) {
        let interface = link.name.clone();
        match (before, link.running) {
            (false, true) => self.push_event(LiveEvent::Up { interface }),
            (true, false) => self.push_event(LiveEvent::Down { interface }),
            _ => {}
        }
    }

    /// Finds the interface that has appeared again: by its last name, or by the name under which it was opened.
    pub(crate) fn find_reappeared(&self) -> Option<KernelInterface> {
        find_interface(&self.link.name).or_else(|_| find_interface(&self.name)).ok()
    }

    /// Monitors this interface from now on.
    pub(crate) fn follow(&mut self, link: KernelInterface) {
        self.presence = InterfacePresence::Present;
        self.push_event(LiveEvent::Reopened { interface: link.name.clone() });
        self.report_running(&link, false);
        self.link = link;
    }

    /// Records that the interface that appeared cannot be opened.
    pub(crate) fn record_failure(&mut self, error: LiveError) {
        self.presence = InterfacePresence::Removed;
        self.push_event(LiveEvent::NotReopened { error });
    }
}

/// Finds an interface by its name.
pub(crate) fn find_interface(name: &str) -> Result<KernelInterface, LiveError> {
    let all = netlink::interfaces().map_err(LiveError::system(name, "asking for interfaces"))?;
    match all.iter().find(|link| link.name == name) {
        Some(link) => Ok(link.clone()),
        None => Err(LiveError::NoSuchInterface {
            interface: name.to_owned(),
            existing: all.into_iter().map(|link| link.name).collect(),
        }),
    }
}
