//! The TCP streams of an instance: the host function that gives a module the next event, and the window in which the
//! module reads the event.
//!
//! The window is shared memory of this process, mapped twice: for the host to write, and read-only in the sandbox. The
//! analyser relies on a module that cannot change its events.

use crate::load::batch::answer;
use crate::load::rewrite::NEXT_EVENT;
use crate::run::fault::FaultKind;
use crate::run::guest_memory::{packet_descriptor, read_packet};
use crate::run::host::HostState;
use crate::run::space::map_shared;
use crate::run::trace::trace_event;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;
use wasmtime::{Caller, Linker};
use weir_abi::stream::{EVENT_BYTES, TcpStreamEvent, cause, kind, reply};
use weir_abi::{BATCH_PACKETS, DESCRIPTOR_BYTES, Descriptor, STREAMS_BASE, STREAMS_WINDOW, host};
use weir_admission::TcpSettings;
use weir_os::memory::prefetch;
use weir_units::Timestamp;
use weir_wire::stream::{
    StreamKey, TCP_EVENT_BYTES_MAX, TcpEndCause, TcpEvent, TcpEventBytes, TcpEventKind, TcpReply, TcpSegment,
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
        let seen = unsafe { map_shared(space, STREAMS_BASE, window.base, WINDOW_BYTES)? };
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
    /// The guest address of the batch's descriptors.
    batch: u32,
    /// The packets of the batch that may have events.
    wanted: u64,
    /// The segments of these packets and the keys of their streams, by the packet's index in the batch.
    segments: Box<[(StreamKey, TcpSegment); BATCH_PACKETS]>,
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
            batch: 0,
            wanted: 0,
            segments: Box::new([Default::default(); BATCH_PACKETS]),
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

    /// Begins a call of the module without packets.
    #[inline]
    pub(crate) fn begin_call(&mut self) {
        (self.current, self.wanted, self.events_left) = (0, 0, EVENTS_MAX);
    }

    /// Begins the search for streams that have timed out.
    pub(crate) fn sweep(&mut self, now: Timestamp, periods: u64) {
        self.table.sweep(now, periods);
    }

    /// Begins the end of the streams in a part of the table.
    pub(crate) fn stop(&mut self, now: Timestamp, part: u8) {
        self.table.stop(now, part);
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

    /// Begins a batch: prefetches the entries of its packets' streams, reads the segments, and finds the packets that may
    /// have events.
    #[inline(never)]
    pub(crate) fn begin_batch(&mut self, host: &HostState, descriptors: u32, mask: u64) {
        (self.current, self.batch, self.wanted) = (0, descriptors, 0);
        let descriptor_at = |index: u32| {
            packet_descriptor(host, descriptors.saturating_add(index << DESCRIPTOR_BYTES.trailing_zeros()))
        };
        let layer = self.settings.layer;
        let mut candidates = 0;
        for index in bits(mask) {
            let Some(descriptor) = descriptor_at(index) else { return };
            if TcpSegment::may_have(descriptor, layer) && self.is_wanted(descriptor) {
                candidates |= 1 << index;
                let lines = self.table.set_lines(layer.flow_hash(descriptor));
                lines.into_iter().flatten().for_each(|line| prefetch(ptr::from_ref(line).cast()));
            }
        }
        for index in bits(candidates) {
            let Some(descriptor) = descriptor_at(index) else { return };
            match TcpSegment::read(descriptor, layer, |at, out| fetch(host, descriptor, at, out)) {
                Ok(segment) => {
                    self.wanted |= 1 << index;
                    if let Some(place) = self.segments.get_mut(index as usize) {
                        *place = (self.table.key_of(&segment), segment);
                    }
                }
                Err(reason) => self.table.count_unusable(reason),
            }
        }
        if self.settings.checks_sums {
            return;
        }
        // A bit for each group of sets with an earlier packet that may change a stream. All other packets are independent
        // of the earlier ones, and so those of ignored streams are taken at once.
        let mut changed = 0_u64;
        for index in bits(self.wanted) {
            let Some((key, segment)) = self.segments.get(index as usize) else { return };
            let group = 1 << (self.table.set_of(segment.flow_hash) % 64);
            if changed & group == 0 && self.table.take_ignored(*key, segment) {
                self.wanted &= !(1 << index);
                continue;
            }
            changed |= group;
            let line = self.table.stream_line(*key, segment.flow_hash);
            line.into_iter().for_each(|line| prefetch(ptr::from_ref(line).cast()));
        }
    }

    /// Returns the packets of the batch that may have events. The others have no segment, no port that the module asks for,
    /// or a stream that the module ignores.
    #[inline]
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Takes the packet with the descriptor at `address`, whose events are given next. Returns false for a packet without
    /// events.
    fn begin_packet(&mut self, host: &HostState, address: u32) -> bool {
        let index = address.wrapping_sub(self.batch) >> DESCRIPTOR_BYTES.trailing_zeros();
        if self.wanted.checked_shr(index).is_none_or(|wanted| wanted & 1 == 0) {
            return false;
        }
        let Some(descriptor) = packet_descriptor(host, address) else { return false };
        let Some((key, segment)) = self.segments.get(index as usize) else { return false };
        (self.current, self.data) = (address, 0);
        if self.settings.checks_sums && segment.tunnel == 0 {
            self.packet.resize(descriptor.cap_len as usize, 0);
            if fetch(host, descriptor, 0, &mut self.packet) && verify(&self.packet, descriptor).is_err() {
                self.table.count_bad_checksum();
                return true;
            }
        }
        self.data = descriptor.data.checked_add(segment.data).unwrap_or(0);
        self.table.push(*key, segment, &mut |from, len, bytes| {
            let at = (segment.data as usize).saturating_add(from as usize);
            let before = bytes.len();
            bytes.resize(before + len as usize, 0);
            if !bytes.get_mut(before..).is_some_and(|out| fetch(host, descriptor, at, out)) {
                bytes.truncate(before);
            }
        });
        true
    }

    /// Writes the next event to the window. Returns an [`answer`].
    fn give_next(&mut self, given: TcpReply) -> i32 {
        if self.current == 0 {
            if self.events_left == 0 {
                return answer::NONE;
            }
            self.events_left -= 1;
        }
        let data = self.data;
        let Some(event) = self.table.next(given) else { return answer::NONE };
        let (address, bytes): (u32, &[u8]) = match event.bytes {
            TcpEventBytes::None => (0, &[]),
            TcpEventBytes::InPacket { from, .. } => (data.wrapping_add(from), &[]),
            TcpEventBytes::Waiting(bytes) => (STREAMS_BASE + BYTES_AT, bytes),
        };
        self.window.write(&to_abi(&event, address), bytes);
        if self.table.is_idle() { answer::LAST_EVENT } else { answer::EVENT }
    }
}

/// Returns the places of the bits of a mask, in order.
#[inline(always)]
fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (index < u64::BITS).then_some(index)
    })
}

/// Copies captured bytes of a packet, from an offset on. Returns false if they are not captured, or not in the memory of
/// packets.
#[inline(always)]
fn fetch(host: &HostState, descriptor: &Descriptor, at: usize, out: &mut [u8]) -> bool {
    let is_captured = at.checked_add(out.len()).is_some_and(|end| end <= descriptor.cap_len as usize);
    let place = u32::try_from(at).ok().and_then(|at| descriptor.data.checked_add(at));
    is_captured && place.is_some_and(|from| read_packet(host, from, out))
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
            let host = caller.data_mut();
            let answer = next_event(host, packet.cast_unsigned(), given)?;
            trace_event(host, packet.cast_unsigned(), given, answer);
            Ok(answer)
        },
    )?;
    Ok(())
}

/// Gives the module the next event of a packet, or of no packet. Returns an [`answer`].
pub(crate) fn next_event(host: &mut HostState, packet: u32, given: i32) -> Result<i32, FaultKind> {
    if host.must_interrupt.load(Ordering::Relaxed) {
        return Err(FaultKind::TimeOverrun);
    }
    let Some(mut streams) = host.streams.take() else { return Ok(answer::NONE) };
    let given = TcpReply { skip: given & reply::SKIP != 0, ignore: given & reply::IGNORE != 0 };
    let may_have_events = packet == 0 || packet == streams.current || streams.begin_packet(host, packet);
    let answer = if may_have_events { streams.give_next(given) } else { answer::NONE };
    host.streams = Some(streams);
    Ok(answer)
}
