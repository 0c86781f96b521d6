//! What happens to an interface while it is open, and keeping track of it.

use super::error::LiveError;
use super::netlink::{self, KernelInterface, LinkMessage, Netlink};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use weir_units::Shown as _;

/// Something happened to an interface.
#[derive(Debug)]
pub enum LiveEvent {
    /// It was set down, or has lost its carrier: no packets come until [`Up`](Self::Up).
    Down {
        /// Which.
        interface: String,
    },
    /// It is up, and has a carrier.
    Up {
        /// Which.
        interface: String,
    },
    /// It is no longer there. Packets that arrived before may still follow.
    Removed {
        /// Which.
        interface: String,
    },
    /// One of the same name came, and has been opened.
    Reopened {
        /// Which.
        interface: String,
    },
    /// One of the same name came and could not be opened. It is tried again when it changes.
    NotReopened {
        /// Why.
        error: LiveError,
    },
    /// It has another name; packets come as before.
    Renamed {
        /// Its name before.
        from: String,
        /// Its name now.
        to: String,
    },
    /// It takes packets of another length.
    Mtu {
        /// Which.
        interface: String,
        /// The largest packet before, without its link header, in bytes.
        from: u32,
        /// The largest now.
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

/// Whether there is an interface to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterfaceState {
    There,
    Gone,
    /// One of the name that is waited for has come or changed.
    Back,
}

/// Follows one interface through its changes.
#[derive(Debug)]
pub(crate) struct InterfaceMonitor {
    netlink: Netlink,
    /// The name it was asked for by.
    name: String,
    pub(crate) link: KernelInterface,
    pub(crate) presence: InterfaceState,
    pub(crate) events: VecDeque<LiveEvent>,
}

/// More events than these are not kept: who does not ask for so long learns the state, not the way to it.
const EVENTS_MAX: usize = 256;

impl InterfaceMonitor {
    /// Finds an interface by name, and follows it from then on.
    pub(crate) fn new(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        // First this, so that no change between the two is missed.
        let netlink = Netlink::watching().map_err(system)?;
        let link = find(name)?;
        let (name, events) = (name.to_owned(), VecDeque::new());
        Ok(Self { netlink, name, link, presence: InterfaceState::There, events })
    }

    /// Waits for an interface of this name that is not there yet, as if it had gone.
    pub(crate) fn waiting(name: &str) -> Result<Self, LiveError> {
        let system = |error| LiveError::system(name, "asking for interfaces")(error);
        let netlink = Netlink::watching().map_err(system)?;
        // It may have come before changes were watched.
        let presence = if find(name).is_ok() { InterfaceState::Back } else { InterfaceState::Gone };
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

    /// Looks for news.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        let mut news = Vec::new();
        let whole = self.netlink.changes(|message| news.push(message))?;
        for message in news {
            self.note(message);
        }
        if !whole {
            let all = netlink::interfaces()?;
            if self.presence == InterfaceState::There && !all.iter().any(|link| link.index == self.link.index)
            {
                self.note(LinkMessage::Gone(self.link.index));
            }
            all.into_iter().for_each(|link| self.note(LinkMessage::There(link)));
        }
        Ok(())
    }

    fn event(&mut self, event: LiveEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn note(&mut self, message: LinkMessage) {
        let old = self.link.clone();
        match message {
            LinkMessage::Gone(index) if index == old.index && self.presence == InterfaceState::There => {
                self.presence = InterfaceState::Gone;
                self.link.running = false;
                self.event(LiveEvent::Removed { interface: old.name });
            }
            LinkMessage::There(link) if self.presence == InterfaceState::There && link.index == old.index => {
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
                if self.presence != InterfaceState::There
                    && (link.name == self.name || link.name == self.link.name) =>
            {
                self.presence = InterfaceState::Back;
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

    /// The interface that has come back, by the name it had last or else by that it was asked for.
    pub(crate) fn returned(&self) -> Option<KernelInterface> {
        find(&self.link.name).or_else(|_| find(&self.name)).ok()
    }

    /// Follows this one from now on.
    pub(crate) fn follow(&mut self, link: KernelInterface) {
        self.presence = InterfaceState::There;
        self.event(LiveEvent::Reopened { interface: link.name.clone() });
        self.running(&link, false);
        self.link = link;
    }

    /// The one that has come cannot be opened.
    pub(crate) fn failed(&mut self, error: LiveError) {
        self.presence = InterfaceState::Gone;
        self.event(LiveEvent::NotReopened { error });
    }
}

/// An interface by its name.
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
