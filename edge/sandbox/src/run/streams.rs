//! The TCP streams of an instance: the host function that gives a module the next event, and the window in which the
//! module reads the event.
//!
//! The window is shared memory of this process, mapped twice: for the host to write, and read-only in the sandbox. The
//! analyser relies on a module that cannot change its events.

use crate::load::rewrite::NEXT_EVENT;
use crate::run::fault::FaultKind;
use crate::run::guest_memory::{packet_descriptor, read_packet};
use crate::run::host::{HostPhase, HostState};
use crate::run::space::move_into_space;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;
use wasmtime::{Caller, Linker};
use weir_abi::stream::{EVENT_BYTES, TcpStreamEvent, cause, kind, reply};
use weir_abi::{BATCH_PACKETS, DESCRIPTOR_BYTES, Descriptor, STREAMS_BASE, STREAMS_WINDOW, host};
use weir_admission::TcpSettings;
use weir_units::Timestamp;
use weir_wire::stream::{
    TCP_EVENT_BYTES_MAX, TcpEndCause, TcpEvent, TcpEventBytes, TcpEventKind, TcpReply, TcpSegment,
    TcpStreamCounters, TcpStreams,
};
use weir_wire::verify;

/// The length of the window in bytes.
const WINDOW_BYTES: usize = STREAMS_WINDOW as usize;
/// The offset in the window of bytes that are not in a packet.
const BYTES_AT: u32 = STREAMS_WINDOW / 2;
/// The most events of one call without a packet. Further ones are given in the next call, whose output has limits of its
/// own.
const EVENTS_MAX: u32 = 512;

const _: () = assert!(EVENT_BYTES <= BYTES_AT as usize);
const _: () = assert!(BYTES_AT as usize + TCP_EVENT_BYTES_MAX <= WINDOW_BYTES);

/// The window of events, as the host sees it.
#[derive(Debug)]
struct StreamWindow {
    base: *mut u8,
}

// SAFETY: the pointer is to a mapping that this value owns; nothing about it is bound to a thread.
unsafe impl Send for StreamWindow {}
// SAFETY: through a shared reference no byte is read or written.
unsafe impl Sync for StreamWindow {}

impl StreamWindow {
    /// Makes a window, and maps it into a sandbox. Returns it with the host addresses at which the module sees it.
    ///
    /// # Safety
    /// `space` is the beginning of a sandbox's live address space, and no window has been mapped there.
    unsafe fn new(space: *mut u8) -> io::Result<(Self, Range<usize>)> {
        // SAFETY: a new shared mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                WINDOW_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let window = Self { base: base.cast() };
        // SAFETY: the place is that of the window in the space of the caller, and `base` is the shared mapping above.
        let seen = unsafe { move_into_space(space, STREAMS_BASE, window.base, WINDOW_BYTES)? };
        Ok((window, seen))
    }

    /// Writes an event, and bytes that are not in a packet.
    fn write(&mut self, event: &TcpStreamEvent, bytes: &[u8]) {
        let len = bytes.len().min(TCP_EVENT_BYTES_MAX);
        // SAFETY: event and bytes fit into the window, whose memory only this value writes. No code of the sandbox runs
        // during a host function. The event has no padding.
        unsafe {
            self.base.cast::<TcpStreamEvent>().write(*event);
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(BYTES_AT as usize), len);
        }
    }
}

impl Drop for StreamWindow {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value. The sandbox's own mapping of the memory stays.
        unsafe { libc::munmap(self.base.cast(), WINDOW_BYTES) };
    }
}

/// The TCP streams of an instance.
#[derive(Debug)]
pub(crate) struct InstanceStreams {
    table: TcpStreams,
    settings: TcpSettings,
    window: StreamWindow,
    /// The guest address of the descriptor of the packet whose events are given; 0 for none.
    current: u32,
    /// True before the first packet of a batch.
    is_new_batch: bool,
    /// The guest address of the batch's descriptors.
    batch: u32,
    /// The packets of the batch that may have a segment whose ports the module asks for.
    wanted: u64,
    /// The guest address of that packet's data.
    data: u32,
    /// A buffer for the packet whose checksum is verified.
    packet: Vec<u8>,
    /// The number of events that the present call without a packet may still give.
    events_left: u32,
}

impl InstanceStreams {
    /// Makes the streams of an instance, and maps their window. Returns them with the host addresses of the window.
    ///
    /// # Safety
    /// As for [`StreamWindow::new`].
    pub(crate) unsafe fn new(settings: &TcpSettings, space: *mut u8) -> io::Result<(Self, Range<usize>)> {
        // SAFETY: by the contract of this function.
        let (window, seen) = unsafe { StreamWindow::new(space)? };
        let table = TcpStreams::new(settings.config);
        let streams = Self {
            table,
            settings: settings.clone(),
            window,
            current: 0,
            is_new_batch: false,
            batch: 0,
            wanted: 0,
            data: 0,
            packet: Vec::new(),
            events_left: 0,
        };
        Ok((streams, seen))
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> TcpStreamCounters {
        self.table.counters()
    }

    /// Begins a call of the module.
    #[inline]
    pub(crate) fn begin_call(&mut self) {
        (self.current, self.events_left, self.is_new_batch) = (0, EVENTS_MAX, true);
    }

    /// Begins the search for streams that have timed out.
    pub(crate) fn sweep(&mut self, now: Timestamp, periods: u64) {
        self.table.sweep(now, periods);
    }

    /// Begins the end of all streams.
    pub(crate) fn stop(&mut self, now: Timestamp) {
        self.table.stop(now);
    }

    /// Returns true if events are left that need no packet.
    pub(crate) fn has_events(&self) -> bool {
        !self.table.is_idle()
    }

    /// Returns false for a packet whose ports the module does not ask for.
    #[inline]
    fn is_wanted(&self, descriptor: &Descriptor) -> bool {
        let ports = self.settings.layer.ports(descriptor);
        self.settings.ports.as_ref().is_none_or(|wanted| ports.iter().any(|port| wanted.has(*port)))
    }

    /// Begins a batch: finds the packets that may have a segment, and reads their headers and the entries of their streams
    /// ahead, so that these reads overlap.
    #[inline(never)]
    fn begin_batch(&mut self, host: &HostState) {
        self.is_new_batch = false;
        (self.batch, self.wanted) = (0, 0);
        let HostPhase::Batch { descriptors, mut mask, .. } = host.phase else { return };
        self.batch = descriptors;
        let mut hashes = [0; BATCH_PACKETS];
        let (mut count, mut read) = (0, 0);
        while mask != 0 {
            let index = mask.trailing_zeros();
            mask &= mask - 1;
            let address = descriptors.saturating_add(index << DESCRIPTOR_BYTES.trailing_zeros());
            let Some(descriptor) = packet_descriptor(host, address) else { return };
            if !TcpSegment::may_have(descriptor, self.settings.layer) || !self.is_wanted(descriptor) {
                continue;
            }
            self.wanted |= 1 << index;
            let hash = self.settings.layer.flow_hash(descriptor);
            if let Some(free) = hashes.get_mut(count) {
                *free = hash;
                count += 1;
            }
            let mut byte = [0];
            let header = descriptor.data.saturating_add(descriptor.l4_offset.into());
            read ^= self.table.read_set_ahead(hash) ^ u64::from(read_packet(host, header, &mut byte));
            read ^= u64::from(byte[0]);
        }
        for hash in hashes.get(..count).unwrap_or_default() {
            read ^= self.table.read_stream_ahead(*hash);
        }
        std::hint::black_box(read);
    }

    /// Returns false for a packet of the batch that has no events, because it has no segment or no port that the module
    /// asks for.
    #[inline]
    fn may_have_events(&self, address: u32) -> bool {
        let index = address.wrapping_sub(self.batch) >> DESCRIPTOR_BYTES.trailing_zeros();
        self.wanted.checked_shr(index).is_some_and(|wanted| wanted & 1 != 0)
    }

    /// Takes a packet whose events are given next.
    fn begin_packet(&mut self, host: &HostState, address: u32, descriptor: &Descriptor) {
        (self.current, self.data) = (address, 0);
        self.table.begin_packet();
        let data = descriptor.data;
        let place = |at: usize| data.checked_add(u32::try_from(at).ok()?);
        let fetch = |at: usize, out: &mut [u8]| {
            let is_captured = at.checked_add(out.len()).is_some_and(|end| end <= descriptor.cap_len as usize);
            is_captured && place(at).is_some_and(|from| read_packet(host, from, out))
        };
        let segment = match TcpSegment::read(descriptor, self.settings.layer, fetch) {
            Ok(segment) => segment,
            Err(reason) => return self.table.count_unusable(reason),
        };
        if self.settings.checks_sums && segment.tunnel == 0 {
            self.packet.resize(descriptor.cap_len as usize, 0);
            if fetch(0, &mut self.packet) && verify(&self.packet, descriptor).is_err() {
                return self.table.count_bad_checksum();
            }
        }
        self.data = place(segment.data as usize).unwrap_or(0);
        self.table.push(&segment, &mut |from, len, bytes| {
            let at = (segment.data as usize).saturating_add(from as usize);
            let before = bytes.len();
            bytes.resize(before + len as usize, 0);
            if !bytes.get_mut(before..).is_some_and(|out| fetch(at, out)) {
                bytes.truncate(before);
            }
        });
    }

    /// Gives the next event. Returns false if there is none.
    fn give_next(&mut self, given: TcpReply) -> bool {
        if self.current == 0 {
            if self.events_left == 0 {
                return false;
            }
            self.events_left -= 1;
        }
        let data = self.data;
        let Some(event) = self.table.next(given) else { return false };
        let (address, bytes): (u32, &[u8]) = match event.bytes {
            TcpEventBytes::None => (0, &[]),
            TcpEventBytes::InPacket { from, .. } => (data.wrapping_add(from), &[]),
            TcpEventBytes::Waiting(bytes) => (STREAMS_BASE + BYTES_AT, bytes),
        };
        self.window.write(&to_abi(&event, address), bytes);
        true
    }
}

/// Converts an event to the layout of the module interface.
fn to_abi(event: &TcpEvent<'_>, data: u32) -> TcpStreamEvent {
    let address = |[high, low]: [u64; 2]| {
        let mut bytes = [0; 16];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&high.to_be_bytes());
        last.copy_from_slice(&low.to_be_bytes());
        bytes
    };
    let ends = &event.endpoints;
    TcpStreamEvent {
        ts_ns: event.ts_ns,
        data,
        len: match event.bytes {
            TcpEventBytes::None => 0,
            TcpEventBytes::InPacket { len, .. } => len,
            TcpEventBytes::Waiting(bytes) => u32::try_from(bytes.len()).unwrap_or(0),
        },
        missing: event.missing,
        stream: event.stream,
        flow_hash: ends.flow_hash,
        offset: event.offset,
        first_ns: ends.first_ns,
        client: address(ends.client),
        server: address(ends.server),
        client_port: ends.client_port,
        server_port: ends.server_port,
        kind: match event.kind {
            TcpEventKind::Open => kind::OPEN,
            TcpEventKind::Bytes => kind::BYTES,
            TcpEventKind::Gap => kind::GAP,
            TcpEventKind::Fin => kind::FIN,
            TcpEventKind::Conflict => kind::CONFLICT,
            TcpEventKind::End => kind::END,
        },
        direction: event.from_server.into(),
        cause: match event.cause {
            None => 0,
            Some(TcpEndCause::Fin) => cause::FIN,
            Some(TcpEndCause::Reset) => cause::RST,
            Some(TcpEndCause::Timeout) => cause::TIMEOUT,
            Some(TcpEndCause::Evicted) => cause::EVICTED,
            Some(TcpEndCause::Stop) => cause::STOP,
            Some(TcpEndCause::Reused) => cause::REUSED,
        },
        state: event.state,
        tunnel: ends.tunnel,
        ip_version: if ends.is_v6 { 6 } else { 4 },
        vlan_tci: ends.vlan_tci,
        spare: [0; 9],
    }
}

/// Defines the host function [`NEXT_EVENT`].
pub(crate) fn define(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        host::MODULE,
        NEXT_EVENT,
        |mut caller: Caller<'_, HostState>, packet: i32, given: i32| {
            next_event(caller.data_mut(), packet.cast_unsigned(), given).map_err(wasmtime::Error::from)
        },
    )?;
    Ok(())
}

/// Gives the module the next event of a packet, or of no packet. Returns the event's guest address; 0 if there is none.
fn next_event(host: &mut HostState, packet: u32, given: i32) -> Result<i32, FaultKind> {
    if host.must_interrupt.load(Ordering::Relaxed) {
        return Err(FaultKind::TimeOverrun);
    }
    let Some(mut streams) = host.streams.take() else { return Ok(0) };
    if packet != 0 && packet != streams.current {
        if streams.is_new_batch {
            streams.begin_batch(host);
        }
        let descriptor = packet_descriptor(host, packet).filter(|_| streams.may_have_events(packet));
        let Some(descriptor) = descriptor else {
            host.streams = Some(streams);
            return Ok(0);
        };
        streams.begin_packet(host, packet, descriptor);
    }
    let given = TcpReply { skip: given & reply::SKIP != 0, ignore: given & reply::IGNORE != 0 };
    let is_given = streams.give_next(given);
    if !is_given {
        streams.current = 0;
    }
    host.streams = Some(streams);
    Ok(if is_given { STREAMS_BASE.cast_signed() } else { 0 })
}
