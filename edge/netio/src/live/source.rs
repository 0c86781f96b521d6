//! An open interface, and how its packets get into blocks.

use super::error::LiveError;
use super::event::{InterfaceMonitor, InterfaceState, LiveEvent};
use super::options::{LiveOptions, SocketKind};
use super::port::{self, Got, LivePort};
use super::sink::LiveSink;
use super::sys::{self, Waiter, Waked};
use super::tap::TapPort;
use super::totals::{LiveTotals, ReceiveDrops};
use crate::block::{Block, Keep};
use crate::reader::Filling;
use crate::ring::{DescriptorRing, Slot};
use crate::totals::{CaptureInterface, PacketCounts};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use weir_units::Nanos;
use weir_wire::LinkType;

/// What [`LiveSource::next_block`] finds.
#[derive(Debug)]
pub enum LivePoll {
    /// Packets.
    Block(Block),
    /// Something happened to the interface.
    Event(LiveEvent),
    /// All room is taken by blocks in use: drop some first. Packets that arrive meanwhile are lost, and counted.
    Full,
    /// Nothing came within the time given.
    Quiet,
    /// The interface was removed, and is not to be opened again.
    End,
}

/// An interface from which packets are received, as [`crate::Capture`] reads them from a file: the same blocks, windows and
/// descriptors. Dropping a block, in any order and on any thread, gives its packets' room back to the kernel.
///
/// It belongs to the network namespace of the thread that opens it, and is used on threads of that namespace.
///
/// - VLAN tags that the kernel has taken off are put back, so that packets are as on the link. (AF_XDP: a card that takes
///   them off does so unseen; turn that off with `ethtool -K IFACE rxvlan off`.)
/// - Checksums of packets that the host sends, or that come from another interface of it, are as they were handed to the
///   driver: often not yet computed. Such packets, and those that a card has merged, can be longer than the MTU.
/// - Of packets longer than the snapshot length, or for AF_PACKET a block of the ring (a 64th of it), the rest is cut. Those that
///   do not fit a frame of AF_XDP (1792 bytes, or 3840 where the MTU is larger) are lost and counted.
/// - Packets' times are the kernel's when they arrive, in ns, or the card's ([`LiveOptions::hardware_time`]). AF_XDP, TAP and
///   TUN have none: there it is the time at which they are found.
/// - What is left of packets that were there before, in memory beyond `cap_len` or not yet used again, can be seen by
///   whoever maps a window. So a window is only for those that may see every packet of the source. No memory is ever part
///   of two sources, and what is sent is in none of them.
/// - Blocks in use keep room from the kernel. A ring of AF_PACKET is used in turn: one block that is kept for a whole turn stops
///   it. With AF_XDP only the packets' own frames are kept.
#[derive(Debug)]
pub struct LiveSource {
    options: LiveOptions,
    monitor: InterfaceMonitor,
    waiter: Waiter,
    port: Option<LivePort>,
    /// It has been open before.
    was_there: bool,
    link_type: LinkType,
    ring: DescriptorRing,
    filling: Option<Filling<Keep>>,
    /// The slot that the next block goes on with, and how far it is filled.
    open: Option<(Slot, usize)>,
    counts: PacketCounts,
    blocks: u64,
    /// Of ports that are closed.
    drops: ReceiveDrops,
    reopened: u64,
    /// When news of the interface are looked for, in ns of the coarse clock.
    next_look: u64,
    /// When the port of an interface that is gone is closed.
    close_at: u64,
    /// There was nothing more to read at the last look.
    drained: bool,
    /// Packets come so close together that it is as well to gather on as to wait for the first.
    steady: bool,
}

/// How often news are looked for while packets come without a pause.
const LOOK_EVERY: u64 = 10_000_000;

/// How long packets are gathered at most, after the first, where the kernel wakes us for each. To be woken up takes longer than
/// all the rest that is done for a packet.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// Where so many have come while packets were gathered, the next ones are gathered at once: that is one sleep where waiting for the first would be two,
/// and none of them lies there for longer.
const STEADY: usize = 2;

impl LiveSource {
    /// Opens an interface.
    ///
    /// # Errors
    ///
    /// [`LiveError`]: there is none of that name, the process may not, or it is nothing that weir reads.
    pub fn open(interface: &str, options: LiveOptions) -> Result<Self, LiveError> {
        let made = match options.kind {
            SocketKind::Tap | SocketKind::Tun => Some(TapPort::open(interface, &options)?),
            _ => None,
        };
        let monitor = InterfaceMonitor::new(made.as_ref().map_or(interface, TapPort::name))?;
        Self::with(interface, options, monitor, |monitor| match made {
            Some(port) => Ok(Some(LivePort::Tap(port))),
            None => LivePort::open(&monitor.link, &options).map(Some),
        })
    }

    /// The same where the interface may come later, as if it had gone. Until it is there its packets are taken to be Ethernet's; one of another kind is not opened.
    ///
    /// # Errors
    ///
    /// [`LiveError`], but not that there is none of that name.
    pub fn open_or_wait(interface: &str, options: LiveOptions) -> Result<Self, LiveError> {
        let waits = options.reopen && !matches!(options.kind, SocketKind::Tap | SocketKind::Tun);
        match Self::open(interface, options) {
            Err(LiveError::NoSuchInterface { .. }) if waits => {
                Self::with(interface, options, InterfaceMonitor::waiting(interface)?, |_| Ok(None))
            }
            opened => opened,
        }
    }

    fn with(
        interface: &str,
        options: LiveOptions,
        monitor: InterfaceMonitor,
        port: impl FnOnce(&InterfaceMonitor) -> Result<Option<LivePort>, LiveError>,
    ) -> Result<Self, LiveError> {
        let link_type = port::link_type(&monitor.link)?;
        let system = |what| LiveError::system(interface, what);
        let waiter = Waiter::new().map_err(system("preparing to wait for packets"))?;
        waiter.add(monitor.fd(), Waked::NEWS).map_err(system("preparing to wait for news"))?;
        let ring = DescriptorRing::live().map_err(|error| LiveError::Memory {
            interface: interface.to_owned(),
            size: DescriptorRing::SIZE_LIVE,
            error,
        })?;
        let port = port(&monitor)?;
        if let Some(port) = &port {
            waiter.add(port.fd(), Waked::PACKETS).map_err(system("preparing to wait for packets"))?;
        }
        let was_there = port.is_some();
        Ok(Self {
            options,
            monitor,
            waiter,
            port,
            was_there,
            link_type,
            ring,
            filling: None,
            open: None,
            counts: PacketCounts::new(),
            blocks: 0,
            drops: ReceiveDrops::default(),
            reopened: 0,
            next_look: 0,
            close_at: u64::MAX,
            drained: false,
            steady: false,
        })
    }

    /// Its name; after a change the new one.
    pub fn name(&self) -> &str {
        &self.monitor.link.name
    }

    /// What its packets begin with.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The longest packet that it takes, without the link header, in bytes.
    pub fn mtu(&self) -> u32 {
        self.monitor.link.mtu
    }

    /// Whether it is up and has a carrier, as far as the events tell that were handed out.
    pub fn is_up(&self) -> bool {
        self.monitor.link.running
    }

    /// Whether packets come into memory that the kernel fills in turn: there only the oldest block in use makes room.
    pub fn is_filled_in_turn(&self) -> bool {
        match &self.port {
            Some(port) => matches!(port, LivePort::Packet(_)),
            // It will be.
            None => matches!(self.options.kind, SocketKind::Auto | SocketKind::Packet),
        }
    }

    /// Whether a block in use is among those that the kernel fills soon, in turn: drop the oldest, or packets will be lost.
    pub fn is_running_out(&self) -> bool {
        matches!(&self.port, Some(LivePort::Packet(port)) if port.is_running_out())
    }

    /// Where the descriptors of all blocks are.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// A descriptor to wait for, among others, that becomes readable once for each change: call
    /// [`next_block`](Self::next_block) until it says [`LivePoll::Quiet`] before waiting again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waiter.fd()
    }

    /// What it gave, up to the last block that was handed out, and what was lost up to now.
    pub fn totals(&mut self) -> LiveTotals {
        let counts = self.filling.as_ref().map_or(&self.counts, |filling| &filling.before);
        let interface = CaptureInterface {
            link_type_number: u32::from(self.link_type.number()),
            link_type: Some(self.link_type),
            snap_len: self.options.snap_len,
        };
        let received = counts.totals(&[interface], None);
        let index = self.monitor.link.index;
        let open = self.port.as_mut().map(|port| port.drops(index)).unwrap_or_default();
        LiveTotals { received, drops: self.drops.and(open), reopened: self.reopened }
    }

    /// A way out through the interface, by the same kind. Those of AF_XDP and of devices belong to the source: drop them with
    /// it, and after [`LiveEvent::Reopened`] ask for another.
    ///
    /// # Errors
    ///
    /// [`LiveError`]: the interface is not there, or somebody has the only way out already.
    pub fn sink(&mut self) -> Result<LiveSink, LiveError> {
        let link = &self.monitor.link;
        match &mut self.port {
            Some(port) => port.sink(link),
            None => LiveSink::open(&link.name, SocketKind::Packet),
        }
    }

    /// The next packets or event. Waits for it at most so long (in steps of a millisecond); with 0, and where packets are
    /// there already, it makes hardly any system calls, which is for whoever keeps asking on a core of its own.
    ///
    /// # Errors
    ///
    /// [`LiveError`], where the system fails in a way that is none of [`LiveEvent`].
    pub fn next_block(&mut self, wait: Nanos) -> Result<LivePoll, LiveError> {
        let mut deadline = None;
        loop {
            let now = sys::coarse();
            if now >= self.next_look {
                self.next_look = now.saturating_add(LOOK_EVERY);
                self.look(now)?;
            }
            if let Some(event) = self.monitor.events.pop_front() {
                return Ok(LivePoll::Event(event));
            }
            // Before the look at the memory: this thread may rest after it, and what came meanwhile must not be passed over.
            let has_waited = deadline.is_some_and(|until| sys::monotonic() >= until);
            match self.receive() {
                Received::Block(block) => return Ok(LivePoll::Block(block)),
                Received::Full => return Ok(LivePoll::Full),
                Received::Nothing => {}
            }
            if self.port.is_none() && !self.options.reopen {
                return Ok(LivePoll::End);
            }
            if wait.0 == 0 || has_waited {
                return Ok(LivePoll::Quiet);
            }
            let now = sys::monotonic();
            let until = *deadline.get_or_insert(now.saturating_add(wait.0));
            let mut longest = Nanos(until.saturating_sub(now));
            if self.close_at != u64::MAX {
                longest = longest.min(Nanos::MILLISECOND);
            }
            if std::mem::take(&mut self.steady) && self.close_at == u64::MAX {
                std::thread::sleep(self.gather().min(Duration::from_nanos(longest.0)));
                continue;
            }
            self.wait(longest)?;
        }
    }

    fn wakes_for_each(&self) -> bool {
        self.port.as_ref().is_some_and(LivePort::wakes_for_each)
    }

    /// How long packets are gathered.
    fn gather(&self) -> Duration {
        Duration::from_nanos(self.options.latency.0).min(GATHER_MAX)
    }

    fn wait(&mut self, longest: Nanos) -> Result<(), LiveError> {
        let failed = |error| LiveError::system(&self.monitor.link.name, "waiting for packets")(error);
        let waked = self.waiter.wait(longest).map_err(failed)?;
        if waked.news || waked.error || self.close_at != u64::MAX {
            self.next_look = 0;
        }
        if waked.error
            && let Some(port) = &self.port
            && let Some(error) = port.take_error().map_err(failed)?
            && !matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO))
        {
            return Err(failed(error));
        }
        if waked.packets && self.wakes_for_each() {
            std::thread::sleep(self.gather());
        }
        Ok(())
    }

    /// Adds what has arrived to the present block, and hands it out if there is anything in it.
    fn receive(&mut self) -> Received {
        self.drained = false;
        let Some(port) = &mut self.port else { return Received::Nothing };
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => {
                let open = self.open.take().or_else(|| Some((self.ring.take()?, 0)));
                let Some((slot, start)) = open else { return Received::Full };
                none.insert(Filling::behind(slot, start, port.hold(), self.counts))
            }
        };
        let got = port.receive(filling, &mut self.counts);
        if filling.count == 0 {
            self.drained = true;
            return if got == Got::Held { Received::Full } else { Received::Nothing };
        }
        let block = self.filling.take().and_then(|filling| {
            let is_open = self.options.dense && !filling.is_full();
            self.open = is_open.then(|| (filling.slot.share(), filling.end()));
            filling.into_block(port.window(), self.blocks)
        });
        match block {
            Some(block) => {
                self.blocks += 1;
                self.steady = block.packets() >= STEADY && self.wakes_for_each();
                Received::Block(block)
            }
            None => Received::Nothing,
        }
    }

    /// Looks for news of the interface.
    fn look(&mut self, now: u64) -> Result<(), LiveError> {
        self.monitor
            .look()
            .map_err(|error| LiveError::system(&self.monitor.link.name, "asking for interfaces")(error))?;
        if self.monitor.presence == InterfaceState::There {
            return Ok(());
        }
        if self.port.is_some() {
            // What has arrived is handed over after the time for which the kernel gathers packets.
            if self.close_at == u64::MAX {
                self.close_at =
                    now.saturating_add(self.options.latency.0.saturating_mul(2)).saturating_add(LOOK_EVERY);
            }
            if now < self.close_at || !self.drained {
                return Ok(());
            }
            self.close();
        }
        if self.options.reopen && self.monitor.presence == InterfaceState::Back {
            self.reopen();
        }
        Ok(())
    }

    fn close(&mut self) {
        self.close_at = u64::MAX;
        if let Some(mut port) = self.port.take() {
            self.drops = self.drops.and(port.drops(self.monitor.link.index));
            self.waiter.remove(port.fd());
            // It holds nothing yet: blocks are handed out as soon as there is a packet in them.
            self.filling = None;
        }
    }

    fn reopen(&mut self) {
        let Some(link) = self.monitor.returned() else {
            self.monitor.presence = InterfaceState::Gone;
            return;
        };
        let opened = port::link_type(&link).and_then(|link_type| {
            // All that was made ready for its packets is for the kind that they were taken to be.
            if !self.was_there && link_type != self.link_type {
                let interface = link.name.clone();
                let what = "it came after the start, and its packets are not Ethernet's: start anew while it is there";
                return Err(LiveError::Option { interface, what });
            }
            let port = LivePort::open(&link, &self.options)?;
            self.waiter
                .add(port.fd(), Waked::PACKETS)
                .map_err(LiveError::system(&link.name, "preparing to wait for packets"))?;
            Ok((link_type, port))
        });
        match opened {
            Ok((link_type, port)) => {
                self.link_type = link_type;
                (self.port, self.was_there) = (Some(port), true);
                self.reopened += 1;
                self.monitor.follow(link);
            }
            Err(error) => self.monitor.failed(error),
        }
    }
}

enum Received {
    Block(Block),
    Full,
    Nothing,
}
