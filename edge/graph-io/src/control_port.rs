//! Control sockets that belong to an element: the same server, whose calls the element takes.

use crate::control::{ControlAddress, ControlServer, PendingCall};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use weir_graph::control::HandlerCall;
use weir_graph::engine::{CallAnswer, ControlPlace, ControlPort};

/// An open control socket.
pub struct HostControlPort {
    /// The calls that were taken from the server. They end before it does, so that it waits for none of them.
    waiting: VecDeque<PendingCall>,
    server: ControlServer,
    /// Becomes readable when a call comes.
    bell: Arc<OwnedFd>,
    place: ControlPlace,
}

impl HostControlPort {
    /// Opens a control socket.
    pub fn open(place: &ControlPlace) -> Result<Self, String> {
        let address = match place {
            ControlPlace::Port { port, or_later, is_local: true } => {
                ControlAddress::Port { port: *port, or_later: *or_later }
            }
            ControlPlace::Port { port, or_later, is_local: false } => {
                ControlAddress::PublicPort { port: *port, or_later: *or_later }
            }
            ControlPlace::File(name) => ControlAddress::File(PathBuf::from(name)),
        };
        let server = ControlServer::open_with_news(&[address]).map_err(|error| error.to_string())?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|error| std::io::Error::from(error).to_string())?);
        let rung = Arc::clone(&bell);
        // The graph waits for edges, so the counter needs no reading. A write fails only when it is full.
        let waker = move || _ = rustix::io::write(&rung, &1_u64.to_ne_bytes());
        server.set_waker(Box::new(waker));
        let found = match (server.addresses().next(), place) {
            (
                Some(ControlAddress::Port { port, .. } | ControlAddress::PublicPort { port, .. }),
                ControlPlace::Port { is_local, .. },
            ) => ControlPlace::Port { port: *port, or_later: false, is_local: *is_local },
            _ => place.clone(),
        };
        Ok(Self { waiting: VecDeque::new(), server, bell, place: found })
    }

    /// Returns the descriptor that becomes readable when a call comes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl ControlPort for HostControlPort {
    fn place(&self) -> ControlPlace {
        self.place.clone()
    }

    fn next_call(&mut self) -> Option<(HandlerCall, CallAnswer)> {
        if self.waiting.is_empty() && self.server.is_pending() {
            self.waiting.extend(self.server.pending());
        }
        let PendingCall { call, answer } = self.waiting.pop_front()?;
        // A connection that is gone needs no answer.
        Some((call, Box::new(move |result| _ = answer.send(result))))
    }

    fn has_calls(&self) -> bool {
        !self.waiting.is_empty() || self.server.is_pending()
    }

    fn take_news(&mut self, news: &mut Vec<String>) {
        self.server.take_news(news);
    }
}
