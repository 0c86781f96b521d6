//! Events of an open interface, and the monitor that receives them.

use super::error::LiveError;
use super::netlink::{self, KernelInterface, LinkMessage, Netlink};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use weir_units::Shown as _;

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
    /// A new interface of the same name appeared and could not be opened. This is tried again when it changes.
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
            Self::Down { interface } => write!(f, "{} is down", interface.shown()),
            Self::Up { interface } => write!(f, "{} is up", interface.shown()),
            Self::Removed { interface } => write!(f, "{} is no longer there", interface.shown()),
            Self::Reopened { interface } => write!(f, "{} is there again, and open", interface.shown()),
            Self::NotReopened { error } => write!(f, "cannot be opened again: {error}"),
            Self::Renamed { from, to } => write!(f, "{} is now called {}", from.shown(), to.shown()),
            Self::Mtu { interface, from, to } => {
                write!(f, "{}: the MTU was {from} and is {to}", interface.shown())
            }
        }
    }
}

/// The presence of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfacePresence {
    There,
    Gone,
    /// An interface of the awaited name has appeared or changed.
    Back,
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

/// The most events that are kept. A caller that does not poll for so long learns the state, but not all changes.
const EVENTS_MAX: usize = 256;

impl InterfaceMonitor {
    /// Finds an interface by name and monitors it from then on.
    pub(crate) fn new(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        // Opened first, so that no change in between is missed.
        let netlink = Netlink::watching().map_err(system)?;
        let link = find(name)?;
        let (name, events) = (name.to_owned(), VecDeque::new());
        Ok(Self { netlink, name, link, presence: InterfacePresence::There, events })
    }

    /// Creates a monitor of an interface that does not exist yet, as if it had been removed.
    pub(crate) fn waiting(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        let netlink = Netlink::watching().map_err(system)?;
        // It may have appeared before the socket was opened.
        let presence = if find(name).is_ok() { InterfacePresence::Back } else { InterfacePresence::Gone };
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
        let whole = self.netlink.changes(|message| messages.push(message))?;
        for message in messages {
            self.handle_message(message);
        }
        if !whole {
            let all = netlink::interfaces()?;
            if self.presence == InterfacePresence::There
                && !all.iter().any(|link| link.index == self.link.index)
            {
                self.handle_message(LinkMessage::Gone(self.link.index));
            }
            all.into_iter().for_each(|link| self.handle_message(LinkMessage::There(link)));
        }
        Ok(())
    }

    fn event(&mut self, event: LiveEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn handle_message(&mut self, message: LinkMessage) {
        let old = self.link.clone();
        match message {
            LinkMessage::Gone(index) if index == old.index && self.presence == InterfacePresence::There => {
                self.presence = InterfacePresence::Gone;
                self.link.running = false;
                self.event(LiveEvent::Removed { interface: old.name });
            }
            LinkMessage::There(link)
                if self.presence == InterfacePresence::There && link.index == old.index =>
            {
                self.link = link.clone();
                if link.name != old.name {
                    self.event(LiveEvent::Renamed { from: old.name, to: link.name.clone() });
                }
                if link.mtu != old.mtu {
                    let interface = link.name.clone();
                    self.event(LiveEvent::Mtu { interface, from: old.mtu, to: link.mtu });
                }
                self.running(&link, old.running);
            }
            LinkMessage::There(link)
                if self.presence != InterfacePresence::There
                    && (link.name == self.name || link.name == self.link.name) =>
            {
                self.presence = InterfacePresence::Back;
            }
            _ => {}
        }
    }

    fn running(&mut self, link: &KernelInterface, before: bool) {
        let interface = link.name.clone();
        match (before, link.running) {
            (false, true) => self.event(LiveEvent::Up { interface }),
            (true, false) => self.event(LiveEvent::Down { interface }),
            _ => {}
        }
    }

    /// The interface that has appeared again, by its last name or else by the name given.
    pub(crate) fn returned(&self) -> Option<KernelInterface> {
        find(&self.link.name).or_else(|_| find(&self.name)).ok()
    }

    /// Monitors this interface from now on.
    pub(crate) fn follow(&mut self, link: KernelInterface) {
        self.presence = InterfacePresence::There;
        self.event(LiveEvent::Reopened { interface: link.name.clone() });
        self.running(&link, false);
        self.link = link;
    }

    /// Records that the interface that appeared cannot be opened.
    pub(crate) fn failed(&mut self, error: LiveError) {
        self.presence = InterfacePresence::Gone;
        self.event(LiveEvent::NotReopened { error });
    }
}

/// Finds an interface by its name.
pub(crate) fn find(name: &str) -> Result<KernelInterface, LiveError> {
    let all = netlink::interfaces().map_err(LiveError::system(name, "asking for interfaces"))?;
    match all.iter().find(|link| link.name == name) {
        Some(link) => Ok(link.clone()),
        None => Err(LiveError::NoSuchInterface {
            interface: name.to_owned(),
            there: all.into_iter().map(|link| link.name).collect(),
        }),
    }
}
