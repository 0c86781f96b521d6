//! Live sources: open interfaces, and the filling of their blocks.

use super::error::LiveError;
use super::event::{InterfaceMonitor, InterfacePresence, LiveEvent};
use super::group::{GroupPlace, SourceGroup};
use super::options::{LiveOptions, SocketKind};
use super::pace::Pace;
use super::port::{self, LivePort, ReceiveStatus};
use super::sink::LiveSink;
use super::sys::{self, Waiter, WakeCause};
use super::tap::TapPort;
use super::totals::{LiveTotals, ReceiveDrops};
use crate::block::{Block, MemoryHold};
use crate::reader::UnfinishedBlock;
use crate::ring::{DescriptorRing, Slot};
use crate::totals::{CaptureInterface, PacketCounts};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use weir_units::Nanos;
use weir_wire::LinkType;

/// The result of [`LiveSource::next_block`].
#[derive(Debug)]
pub enum LivePoll {
    /// A block of packets.
    Block(Block),
    /// An event of the interface.
    Event(LiveEvent),
    /// Blocks in use hold all memory, so the caller has to drop some of them first. Packets that arrive meanwhile are
    /// lost, and counted.
    Full,
    /// No packet arrived within the time that the caller is willing to wait.
    Quiet,
    /// The interface was removed, and is not to be opened again.
    End,
}

/// A source of packets of an interface. Like [`crate::Capture`], it provides blocks with windows and descriptors.
/// Blocks can be dropped in any order and on any thread; that returns their memory to the kernel.
///
/// A source belongs to the network namespace of the thread that opens it, and must be used on threads of that namespace.
///
/// - VLAN tags that the kernel has removed are put back, so that packets are as on the link. (With AF_XDP a card can
///   remove them unnoticed; turn that off with `ethtool -K IFACE rxvlan off`.)
/// - Checksums of packets that the host sends, or that come from another interface of the host, are as handed to the
///   driver: often not computed yet. Such packets, and packets that a card has merged, can be longer than the MTU.
/// - Packets longer than the snapshot length, or for AF_PACKET than a block of the ring (a 64th of it), are
///   truncated. Packets that do not fit a frame of AF_XDP (1792 bytes, or 3840 with a larger MTU) are lost and
///   counted.
/// - Time stamps are the kernel's, taken at arrival in ns, or the card's ([`LiveOptions::hardware_time`]). AF_XDP,
///   TAP and TUN have none; there it is the time at which packets are read.
/// - Remains of earlier packets, beyond `cap_len` or in memory not reused yet, are visible in the window. So a window
///   must only be mapped for modules that may see every packet of the source. Two sources never share memory, and
///   packets that are sent are in the memory of none.
/// - Blocks in use hold memory that the kernel needs. The ring of AF_PACKET is filled in order, so a block that is
///   still held when the kernel comes to it again stops reception. With AF_XDP only the packets' own frames are held.
#[derive(Debug)]
pub struct LiveSource {
    options: LiveOptions,
    monitor: InterfaceMonitor,
    waiter: Waiter,
    port: Option<LivePort>,
    /// True once the interface has been open.
    was_open: bool,
    link_type: LinkType,
    place: GroupPlace,
    filling: Option<UnfinishedBlock<MemoryHold>>,
    /// The slot that the next block continues, and the number of descriptors filled.
    open_slot: Option<(Slot, usize)>,
    counts: PacketCounts,
    /// The packets lost at ports that were closed.
    drops: ReceiveDrops,
    reopened: u64,
    /// The next time to check for events of the interface, in ns of the coarse clock.
    next_event_check: u64,
    /// The time at which the port of a removed interface is closed.
    close_at: u64,
    /// True if no packet was left to read at the last attempt.
    drained: bool,
    /// The most packets to gather; 0 if each is to be delivered as soon as it arrives.
    gathered_max: u64,
    round: GatherRound,
    pace: Pace,
}

/// The packets that have arrived since packets were last waited for.
#[derive(Debug)]
struct GatherRound {
    /// The time at which the wait began, by the monotonic clock in ns.
    begin: u64,
    /// The number of packets returned before.
    packets_before: u64,
    /// The time for which packets are gathered after the first one.
    after_first: Duration,
}

/// The interval at which the source checks for interface events while packets arrive without a pause, in ns.
const EVENT_INTERVAL: u64 = 10_000_000;

/// The longest time for which packets are gathered after the first one, if the kernel wakes the program for each. A
/// wake-up costs more than all other work on a packet.
const GATHER_MAX: Duration = Duration::from_micros(200);

/// The time for which packets are gathered if they are to be delivered at once and arrive so frequently that waking up
/// for each of them would take most of a core.
const GATHER_AT_ONCE: Duration = Duration::from_micros(20);

/// By how much a sleep may take longer if packets are to be delivered at once.
const TIMER_SLACK_AT_ONCE: Nanos = Nanos(1_000);

/// If at least this many packets arrived since packets were last waited for, the next ones are gathered without waiting
/// for the first of them. That takes one sleep instead of two, and no packet waits longer.
const GATHERS_FIRST_MIN: u64 = 2;

/// The shortest time for which it is worth to gather packets.
const GATHER_MIN: Duration = Duration::from_micros(5);

/// The number of packets that are gathered at most, unless the caller chooses another number.
const GATHERED_MAX: u64 = 1024;

impl LiveSource {
    /// Opens an interface.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if there is no interface of that name, the process lacks a capability, or the interface is not
    /// supported.
    pub fn open(interface: &str, options: LiveOptions) -> Result<Self, LiveError> {
        Self::open_place(interface, options, &single(interface)?)
    }

    /// Opens one of the sources of a group.
    fn open_place(interface: &str, options: LiveOptions, place: &GroupPlace) -> Result<Self, LiveError> {
        let device = match options.kind {
            SocketKind::Tap | SocketKind::Tun => Some(TapPort::open(interface, &options)?),
            _ => None,
        };
        let monitor = InterfaceMonitor::new(device.as_ref().map_or(interface, TapPort::name))?;
        Self::with_port(interface, options, monitor, place, |monitor| match device {
            Some(port) => Ok(Some(LivePort::Tap(port))),
            None => LivePort::open(&monitor.link, &options, place),
        })
    }

    /// Opens an interface that may appear later, as if it had been removed. Until then its packets count as Ethernet;
    /// an interface of another link type is not opened.
    ///
    /// # Errors
    ///
    /// [`LiveError`], except that the interface need not exist.
    pub fn open_or_wait(interface: &str, options: LiveOptions) -> Result<Self, LiveError> {
        Self::open_place_or_wait(interface, options, &single(interface)?)
    }

    /// As [`open_or_wait`](Self::open_or_wait), with `sources` sources that share the interface, for as many threads
    /// (AF_XDP and AF_PACKET). Every source has to be read. All blocks have the same window and the same ring of
    /// descriptors. `options.ring` is the memory of all sources together.
    ///
    /// - With AF_XDP each source has a part of the queues; if there are fewer queues than sources, some sources have no
    ///   packets. Packets of a flow keep their order if they arrive at one queue.
    /// - With AF_PACKET each source has a socket, and the kernel distributes packets by flow. Both directions of a flow,
    ///   and all fragments of a datagram, arrive at one source. A flow can change its source when the interface goes down
    ///   and up again.
    ///
    /// # Errors
    ///
    /// As for [`open_or_wait`](Self::open_or_wait); and for [too many sources](LiveOptions::limit_exceeded_by).
    pub fn open_group(interface: &str, options: LiveOptions, sources: usize) -> Result<Vec<Self>, LiveError> {
        if let Some(what) = options.limit_exceeded_by(sources) {
            return Err(LiveError::Option { interface: interface.to_owned(), what });
        }
        let group = new_group(interface, sources)?;
        let places = (0..sources.max(1)).map(|place| GroupPlace { group: Arc::clone(&group), place });
        places.map(|place| Self::open_place_or_wait(interface, options, &place)).collect()
    }

    fn open_place_or_wait(
        interface: &str,
        options: LiveOptions,
        place: &GroupPlace,
    ) -> Result<Self, LiveError> {
        let waits = options.reopen && !matches!(options.kind, SocketKind::Tap | SocketKind::Tun);
        match Self::open_place(interface, options, place) {
            Err(LiveError::NoSuchInterface { .. }) if waits => {
                let monitor = InterfaceMonitor::for_absent(interface)?;
                Self::with_port(interface, options, monitor, place, |_| Ok(None))
            }
            opened => opened,
        }
    }

    /// Opens a source of the monitored interface. `open_port` opens the port, or returns `None` if the interface does not
    /// exist yet.
    fn with_port(
        interface: &str,
        options: LiveOptions,
        monitor: InterfaceMonitor,
        place: &GroupPlace,
        open_port: impl FnOnce(&InterfaceMonitor) -> Result<Option<LivePort>, LiveError>,
    ) -> Result<Self, LiveError> {
        let link_type = port::link_type(&monitor.link)?;
        let system = |what| LiveError::system(interface, what);
        let waiter = Waiter::new().map_err(system("preparing to wait for packets"))?;
        waiter
            .add(monitor.fd(), WakeCause::EVENTS)
            .map_err(system("preparing to wait for interface events"))?;
        let (port, place) = (open_port(&monitor)?, place.clone());
        if let Some(port) = &port {
            watch(&waiter, port).map_err(system("preparing to wait for packets"))?;
        }
        let was_open = port.is_some();
        Ok(Self {
            options,
            monitor,
            waiter,
            port,
            was_open,
            link_type,
            place,
            filling: None,
            open_slot: None,
            counts: PacketCounts::new(),
            drops: ReceiveDrops::default(),
            reopened: 0,
            next_event_check: 0,
            close_at: u64::MAX,
            drained: false,
            gathered_max: GATHERED_MAX,
            pace: Pace::default(),
            round: GatherRound { begin: 0, packets_before: 0, after_first: Duration::ZERO },
        })
    }

    /// The interface's present name.
    pub fn name(&self) -> &str {
        &self.monitor.link.name
    }

    /// The link type of the interface's packets.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The interface's MTU: the longest packet without the link header, in bytes.
    pub fn mtu(&self) -> u32 {
        self.monitor.link.mtu
    }

    /// Returns true if the interface is up and has a carrier, according to the events returned so far.
    pub fn is_up(&self) -> bool {
        self.monitor.link.running
    }

    /// Returns true if the kernel fills the packet memory in ring order. Then only dropping the oldest block in use
    /// frees memory.
    pub fn is_filled_in_turn(&self) -> bool {
        match &self.port {
            Some(port) => matches!(port, LivePort::Packet(_)),
            // The interface is not open yet; this kind will be used.
            None => matches!(self.options.kind, SocketKind::Auto | SocketKind::Packet),
        }
    }

    /// Returns true if a block in use is among those that the kernel fills soon, in ring order. The oldest has to be
    /// dropped, or packets are lost.
    pub fn is_running_out(&self) -> bool {
        matches!(&self.port, Some(LivePort::Packet(port)) if port.is_running_out())
    }

    /// The ring of descriptors that all blocks share.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.place.group.ring
    }

    /// A file descriptor for epoll that becomes readable once for each change. Call [`next_block`](Self::next_block)
    /// until it returns [`LivePoll::Quiet`] before waiting again.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waiter.fd()
    }

    /// Has the next call of [`next_block`](Self::next_block) look for events of the interface, as it does on its own only
    /// at intervals. For a caller that waits for [`fd`](Self::fd).
    pub fn expect_events(&mut self) {
        self.next_event_check = 0;
    }

    /// The totals up to the last block returned, and the drops up to now.
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
        LiveTotals { received, drops: self.drops.plus(open), reopened: self.reopened }
    }

    /// Opens a sink of the same kind. Sinks of AF_XDP and of devices belong to the source: drop them with it, and
    /// open another after [`LiveEvent::Reopened`].
    ///
    /// # Errors
    ///
    /// [`LiveError`] if the interface does not exist, or its only sink is open already.
    pub fn sink(&mut self) -> Result<LiveSink, LiveError> {
        let link = &self.monitor.link;
        match &mut self.port {
            Some(port) => port.sink(link),
            None => LiveSink::open(&link.name, SocketKind::Packet),
        }
    }

    /// Returns the next block or event, and waits for it for at most `wait` (in steps of a millisecond). With 0, or
    /// if packets are there already, it makes hardly any system calls; this is for a thread that polls on a core of
    /// its own.
    ///
    /// # Errors
    ///
    /// [`LiveError`] if the system fails in a way that no [`LiveEvent`] describes.
    pub fn next_block(&mut self, wait: Nanos) -> Result<LivePoll, LiveError> {
        let mut deadline = None;
        loop {
            let now = sys::coarse_time();
            if now >= self.next_event_check {
                self.next_event_check = now.saturating_add(EVENT_INTERVAL);
                self.check_events(now)?;
            }
            if let Some(event) = self.monitor.events.pop_front() {
                return Ok(LivePoll::Event(event));
            }
            // The clock is read before packets are looked for: if the thread is suspended in between, packets that arrive
            // meanwhile must not be missed.
            let has_waited = deadline.is_some_and(|until| sys::monotonic_time() >= until);
            let is_paced = wait.0 > 0 && self.close_at == u64::MAX && self.gathered_max > 0;
            match self.receive_at_pace(wait, is_paced) {
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
            let now = sys::monotonic_time();
            let until = *deadline.get_or_insert(now.saturating_add(wait.0));
            let mut longest = Nanos(until.saturating_sub(now));
            if self.close_at != u64::MAX {
                longest = longest.min(Nanos::MILLISECOND);
            }
            let gather = self.begin_round(now).min(Duration::from_nanos(longest.0));
            if gather >= GATHER_MIN && self.close_at == u64::MAX {
                std::thread::sleep(gather);
                continue;
            }
            self.wait(longest)?;
        }
    }

    /// As [`receive`](Self::receive). If the kernel could wake the program for each packet, and packets are frequent, it
    /// sleeps before, for at most `longest`.
    fn receive_at_pace(&mut self, longest: Nanos, is_paced: bool) -> Received {
        let packets_max = self.port.as_ref().filter(|_| is_paced).and_then(LivePort::paced_max);
        let Some(packets_max) = packets_max else { return self.receive() };
        let packets_max = packets_max.min(usize::try_from(self.gathered_max).unwrap_or(usize::MAX));
        let mut now = sys::monotonic_time();
        if let Some(pause) = self.pace.pause(now, self.gather_max(), packets_max) {
            std::thread::sleep(pause.min(Duration::from_nanos(longest.0)));
            now = sys::monotonic_time();
        }
        let received = self.receive();
        let packets = if let Received::Block(block) = &received { block.packets() } else { 0 };
        self.pace.record(now, packets);
        received
    }

    fn wakes_for_each_packet(&self) -> bool {
        self.port.as_ref().is_some_and(LivePort::wakes_for_each_packet)
    }

    /// The longest time for which packets are gathered.
    fn gather_max(&self) -> Duration {
        let time = Duration::from_nanos(self.options.latency.0);
        match &self.port {
            _ if self.gathered_max == 0 => time.min(GATHER_AT_ONCE),
            Some(LivePort::Packet(_)) => time,
            _ => time.min(GATHER_MAX),
        }
    }

    /// Begins to wait for packets. Returns the time for which they should be gathered without waiting for the first of
    /// them: 0 if few packets have arrived since the last wait, or if the kernel gathers them for that time.
    fn begin_round(&mut self, now: u64) -> Duration {
        let packets = self.counts.packets.saturating_sub(self.round.packets_before);
        let passed = now.saturating_sub(self.round.begin);
        let time = self.gather_max();
        // The time in which as many packets arrive as may be gathered.
        let full = match self.gathered_max {
            0 => Duration::MAX,
            most => {
                Duration::from_nanos(passed.saturating_mul(most).checked_div(packets).unwrap_or(u64::MAX))
            }
        };
        let (is_woken, at_once) = (self.wakes_for_each_packet(), self.gathered_max == 0);
        let after_first = if is_woken && !at_once { time.min(full) } else { Duration::ZERO };
        self.round = GatherRound { begin: now, packets_before: self.counts.packets, after_first };
        let by_kernel = Duration::from_nanos(if is_woken { 0 } else { self.options.retire.0 });
        let time = time.min(full);
        if packets >= GATHERS_FIRST_MIN && time > by_kernel { time } else { Duration::ZERO }
    }

    /// Determines how many packets are gathered at most, for at most the time of [`LiveOptions::latency`]; with 0, each
    /// packet is delivered as soon as it arrives. A packet socket whose ring is not
    /// [`immediate`](LiveOptions::immediate) gathers packets for at least a millisecond in any case.
    ///
    /// The calling thread must be the one that waits for packets: its sleeps become precise with 0.
    pub fn gather(&mut self, packets_max: u32) {
        self.gathered_max = packets_max.into();
        sys::set_timer_slack(if packets_max == 0 { TIMER_SLACK_AT_ONCE } else { Nanos(0) });
    }

    fn wait(&mut self, longest: Nanos) -> Result<(), LiveError> {
        let failed = |error| LiveError::system(&self.monitor.link.name, "waiting for packets")(error);
        let causes = self.waiter.wait(longest).map_err(failed)?;
        if causes.events || causes.error || self.close_at != u64::MAX {
            self.next_event_check = 0;
        }
        if causes.error
            && let Some(port) = &self.port
            && let Some(error) = port.take_error().map_err(failed)?
            && !matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO))
        {
            return Err(failed(error));
        }
        if causes.packets && self.round.after_first >= GATHER_MIN {
            std::thread::sleep(self.round.after_first);
        }
        Ok(())
    }

    /// Adds the packets that have arrived to the present block, and returns the block unless it is empty.
    fn receive(&mut self) -> Received {
        self.drained = false;
        let Some(port) = &mut self.port else { return Received::Nothing };
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => {
                let open = self.open_slot.take().or_else(|| Some((self.place.group.ring.take()?, 0)));
                let Some((slot, start)) = open else { return Received::Full };
                none.insert(UnfinishedBlock::after_others(slot, start, port.hold(), self.counts))
            }
        };
        let status = port.receive(filling, &mut self.counts);
        if filling.count > 0
            && let Some(first) = self.place.first_packet(filling.count as u64)
        {
            filling.renumber(first);
        }
        if filling.count == 0 {
            self.drained = true;
            return if status == ReceiveStatus::NoMemory { Received::Full } else { Received::Nothing };
        }
        let block = self.filling.take().and_then(|filling| {
            let is_open = self.options.dense && !filling.is_full();
            self.open_slot = is_open.then(|| (filling.slot.share(), filling.end()));
            filling.into_block(port.window(), self.place.group.next_block())
        });
        match block {
            Some(block) => Received::Block(block),
            None => Received::Nothing,
        }
    }

    /// Checks for events of the interface.
    fn check_events(&mut self, now: u64) -> Result<(), LiveError> {
        self.monitor
            .check_events()
            .map_err(|error| LiveError::system(&self.monitor.link.name, "asking for interfaces")(error))?;
        if self.monitor.presence == InterfacePresence::Present {
            return self.port.as_ref().map_or(Ok(()), |port| port.complete(&self.monitor.link));
        }
        if self.port.is_some() {
            // Packets that have arrived are delivered once the time for which the kernel gathers them has passed.
            if self.close_at == u64::MAX {
                self.close_at = now
                    .saturating_add(self.options.latency.0.saturating_mul(2))
                    .saturating_add(EVENT_INTERVAL);
            }
            if now < self.close_at || !self.drained {
                return Ok(());
            }
            self.close();
        }
        if self.options.reopen && self.monitor.presence == InterfacePresence::Reappeared {
            self.reopen();
        }
        Ok(())
    }

    fn close(&mut self) {
        self.close_at = u64::MAX;
        if let Some(mut port) = self.port.take() {
            self.drops = self.drops.plus(port.drops(self.monitor.link.index));
            port.fds().into_iter().for_each(|fd| self.waiter.remove(fd));
            // The block is empty: blocks are returned as soon as they have a packet.
            self.filling = None;
        }
    }

    fn reopen(&mut self) {
        let Some(link) = self.monitor.find_reappeared() else {
            self.monitor.presence = InterfacePresence::Removed;
            return;
        };
        let opened = port::link_type(&link).and_then(|link_type| {
            // Until now the source was assumed to have packets of Ethernet, which its users may rely on.
            if !self.was_open && link_type != self.link_type {
                let interface = link.name.clone();
                let what = "the interface appeared after the start and is no Ethernet interface: restart weir while the interface exists";
                return Err(LiveError::Option { interface, what });
            }
            let port = LivePort::open(&link, &self.options, &self.place)?;
            if let Some(port) = &port {
                watch(&self.waiter, port)
                    .map_err(LiveError::system(&link.name, "preparing to wait for packets"))?;
            }
            Ok((link_type, port))
        });
        match opened {
            Ok((link_type, port)) => {
                self.link_type = link_type;
                (self.port, self.was_open) = (port, true);
                self.reopened += 1;
                self.monitor.follow(link);
            }
            Err(error) => self.monitor.record_failure(error),
        }
    }
}

/// A group of sources of an interface.
fn new_group(interface: &str, sources: usize) -> Result<Arc<SourceGroup>, LiveError> {
    let ring = DescriptorRing::live().map_err(|error| LiveError::Memory {
        interface: interface.to_owned(),
        size: DescriptorRing::SIZE_LIVE,
        error,
    })?;
    Ok(Arc::new(SourceGroup::new(sources.max(1), ring)))
}

/// The place of a source that is alone.
fn single(interface: &str) -> Result<GroupPlace, LiveError> {
    Ok(GroupPlace { group: new_group(interface, 1)?, place: 0 })
}

/// Makes packets of this port wake up the waiter.
fn watch(waiter: &Waiter, port: &LivePort) -> std::io::Result<()> {
    port.fds().into_iter().try_for_each(|fd| waiter.add(fd, WakeCause::PACKETS))
}

/// The outcome of an attempt to receive a block.
#[expect(clippy::large_enum_variant, reason = "as for `CaptureNext`")]
enum Received {
    Block(Block),
    Full,
    Nothing,
}
