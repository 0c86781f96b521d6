//! Packet sockets that share the packets of an interface by flow, for as many receive threads.
//!
//! The kernel chooses the socket by a hash of addresses and ports that is the same for both directions (PACKET_FANOUT_HASH).
//! It hashes fragments by addresses only, so all fragments of a datagram arrive at one socket. Two flags of the kernel are
//! not used:
//!
//! - PACKET_FANOUT_FLAG_DEFRAG would replace the fragments of IPv4 by whole datagrams, which are not on the link, would hold
//!   them in the kernel until they are complete, and would do nothing for IPv6.
//! - PACKET_FANOUT_FLAG_ROLLOVER would send packets of a full ring to another socket. Packets of a flow would lose their
//!   order, and one flow's burst would take the memory of all other flows.
//!
//! A process with CAP_NET_RAW in the network namespace could join the sockets by their number, and take packets away.

use super::error::LiveError;
use super::group::GroupPlace;
use super::netlink::KernelInterface;
use super::options::LiveOptions;
use super::packet::PacketPort;
use super::sys;
use crate::window::PacketWindow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_units::Bytes;

/// The most sockets that share an interface. Each sandbox needs a mapping for each of them.
pub(crate) const SOCKETS_MAX: usize = 64;
/// The least memory of a socket. Less has no room for the frames of an interface with the longest MTU.
pub(crate) const SOCKET_BYTES_MIN: Bytes = Bytes(1 << 20);
/// The limits of sockets, for messages.
pub(crate) const SOCKETS_LIMIT: &str =
    "at most 64 receive threads for a packet socket, each with at least 1 MiB of memory";
const _: () = assert!(SOCKETS_MAX == 64 && SOCKET_BYTES_MIN.0 == 1 << 20);
/// The number of times that the kernel can refuse the first socket of an interface that is up. The kernel reports the
/// interface as up shortly before sockets can join.
const REFUSALS_MAX: u32 = 100;

/// The sockets that share the packets of an interface. They receive packets once all of them have joined, so that no packet
/// is received twice and no flow changes its socket.
#[derive(Debug)]
pub(super) struct Fanout {
    /// The window whose parts are the sockets.
    window: Arc<PacketWindow>,
    flags: u32,
    snap_len: u32,
    is_complete: AtomicBool,
    state: Mutex<JoinState>,
}

#[derive(Debug, Default)]
struct JoinState {
    /// The number of sockets that have joined.
    joined: usize,
    /// The kernel's number and flags of the group.
    group: u32,
    refusals: u32,
}

impl Fanout {
    pub(super) fn new(window: Arc<PacketWindow>, flags: u32, snap_len: u32) -> Self {
        Self { window, flags, snap_len, is_complete: AtomicBool::new(false), state: Mutex::default() }
    }

    /// Joins the sockets, and lets them receive packets. Does nothing if this is done already. Kernels before 6.13 refuse
    /// sockets of an interface that is down; the caller tries again later. `is_up` is true if the interface is up.
    pub(super) fn join(&self, interface: &str, is_up: bool) -> Result<(), LiveError> {
        if self.is_complete.load(Ordering::Relaxed) {
            return Ok(());
        }
        let system = LiveError::system(interface, "sharing the interface's packets among packet sockets");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.join_rest(&mut state) {
            Ok(()) => self.is_complete.store(true, Ordering::Relaxed),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                state.refusals += u32::from(is_up);
                if state.refusals > REFUSALS_MAX {
                    return Err(system(error));
                }
            }
            Err(error) => return Err(system(error)),
        }
        Ok(())
    }

    /// Joins the sockets that have not joined yet.
    fn join_rest(&self, state: &mut JoinState) -> std::io::Result<()> {
        for part in self.window.parts().skip(state.joined) {
            if state.joined == 0 {
                // The kernel chooses a number, so that no other program's sockets have it.
                let mode = libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID | self.flags;
                sys::set_option(part.fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &(mode << 16))?;
                state.group = sys::get_option(part.fd, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
            } else {
                sys::set_option(part.fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &state.group)?;
            }
            state.joined += 1;
        }
        for part in self.window.parts() {
            sys::truncate_packets(part.fd, self.snap_len)?;
        }
        Ok(())
    }
}

/// The opened sockets of an interface that the sources of a group have not taken yet.
#[derive(Debug, Default)]
pub(crate) struct OpenedSockets(Mutex<Vec<Option<PacketPort>>>);

impl OpenedSockets {
    /// Opens the socket of a source. The first source of a group opens the sockets of all, as their rings are one window.
    pub(super) fn open(
        &self,
        link: &KernelInterface,
        options: &LiveOptions,
        place: &GroupPlace,
    ) -> Result<PacketPort, LiveError> {
        // Held during the setup, so that the sources of a group do not all open sockets.
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = opened.get_mut(place.place).and_then(Option::take);
        // If the interface was removed and exists again, the sockets may be those of the removed one.
        if let Some(port) = waiting.filter(|port| port.is_bound_to(link.index)) {
            return Ok(port);
        }
        let mut ports: Vec<_> =
            PacketPort::open(link, options, place.group.sources)?.into_iter().map(Some).collect();
        let own = ports.get_mut(place.place).and_then(Option::take);
        *opened = ports;
        own.ok_or_else(|| LiveError::Option {
            interface: link.name.clone(),
            what: "this source has no packet socket, because the group has fewer sources",
        })
    }
}
