//! The program's end of a TAP or TUN device: the program reads packets that the host sends, and the host receives packets
//! that the program writes.

use super::error::LiveError;
use super::event;
use super::netlink::{self, KernelInterface};
use super::options::{LiveOptions, SocketKind};
use super::port::ReceiveStatus;
use super::sink::SharedBytes;
use super::sys;
use super::totals::ReceiveDrops;
use crate::arena::{ARENA_BYTES, Arena, CHUNK_BYTES, Hold};
use crate::block::MemoryHold;
use crate::format::CaptureRecord;
use crate::mapped_bytes::{MappedBytes, PacketPrefix};
use crate::reader::UnfinishedBlock;
use crate::totals::PacketCounts;
use crate::window::PacketWindow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_units::Bytes;
use weir_wire::{LinkType, PEEK};

/// The greatest length of a packet: without offloads the kernel delivers at most the longest IP packet and a link
/// header.
const PACKET_MAX: usize = 66 << 10;
/// The alignment of packets: a cache line.
const ALIGN: usize = 64;
const CAPABILITY: &str = "cap_net_admin";

/// An open device.
#[derive(Debug)]
pub(crate) struct TapPort {
    device: Arc<File>,
    name: String,
    arena: Arena,
    /// The chunk that is being filled.
    chunk: usize,
    hold: Hold,
    /// The number of used bytes of that chunk.
    filled: usize,
    link_type: LinkType,
    snap_len: u32,
    number: u16,
    /// The device's drop counter when it was opened.
    dropped_before: u64,
    drops: ReceiveDrops,
}

impl TapPort {
    /// Opens the device of that name, or creates it. A `%d` in the name is replaced by a number.
    pub(crate) fn open(name: &str, options: &LiveOptions) -> Result<Self, LiveError> {
        let open =
            || File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
        let device = open().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => LiveError::Unsupported {
                interface: name.to_owned(),
                what: "TAP and TUN",
                error,
                instead: "load the module tun (`modprobe tun`), or make /dev/net/tun visible",
            },
            _ => LiveError::refused(name, "opening /dev/net/tun", CAPABILITY)(error),
        })?;
        let (mode, link_type) = match options.kind {
            SocketKind::Tun => (libc::IFF_TUN, LinkType::Raw),
            _ => (libc::IFF_TAP, LinkType::Ethernet),
        };
        // SAFETY: a request of integers and pointers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        sys::set_interface_name(&mut request, name);
        request.ifr_ifru.ifru_flags = libc::c_short::try_from(mode | libc::IFF_NO_PI).unwrap_or_default();
        let attach = || {
            let request = &raw mut request;
            // SAFETY: the kernel reads and writes the request, which is alive here.
            sys::checked(unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, request) })
        };
        sys::retry_while_busy(attach).map_err(|error| match error.raw_os_error() {
            // An interface of another kind has the name.
            Some(libc::EINVAL) if event::find_interface(name).is_ok() => LiveError::Option {
                interface: name.to_owned(),
                what: "an interface of another kind has this name: remove that interface, or use another name",
            },
            _ => LiveError::refused(name, "attaching to the TAP or TUN device", CAPABILITY)(error),
        })?;
        let name = request.ifr_name.iter().map(|c| c.to_ne_bytes()[0]).take_while(|&byte| byte != 0);
        let name = String::from_utf8_lossy(&name.collect::<Vec<u8>>()).into_owned();
        let size = Bytes(ARENA_BYTES as u64);
        let arena =
            Arena::new().map_err(|error| LiveError::Memory { interface: name.clone(), size, error })?;
        let mut hold = Hold::default();
        arena.hold(0..1, &mut hold);
        Ok(Self {
            device: Arc::new(device),
            arena,
            chunk: 0,
            hold,
            filled: 0,
            link_type,
            snap_len: options.snap_len,
            number: options.number,
            dropped_before: tx_dropped(|link| link.name == name).unwrap_or(0),
            drops: ReceiveDrops::default(),
            name,
        })
    }

    /// The device's name when it was opened.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn window(&self) -> &Arc<PacketWindow> {
        self.arena.window()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    pub(crate) fn device(&self) -> &Arc<File> {
        &self.device
    }

    /// The packets that the device dropped because its queue was full; `index` is its present number.
    pub(crate) fn drops(&mut self, index: u32) -> ReceiveDrops {
        if let Some(now) = tx_dropped(|link| link.index == index) {
            self.drops.ring_full = self.drops.ring_full.max(now.saturating_sub(self.dropped_before));
        }
        self.drops
    }

    /// Adds the packets that have arrived.
    pub(crate) fn receive(
        &mut self,
        filling: &mut UnfinishedBlock<MemoryHold>,
        counts: &mut PacketCounts,
    ) -> ReceiveStatus {
        let mut head = PacketPrefix::<PEEK>::new();
        while !filling.is_full() {
            if CHUNK_BYTES - self.filled < PACKET_MAX {
                let Some(free) = self.arena.find_free(1, &self.hold) else { return ReceiveStatus::NoMemory };
                let mut hold = Hold::default();
                self.arena.hold(free.clone(), &mut hold);
                (self.chunk, self.hold, self.filled) = (free.start, hold, 0);
            }
            let base = self.arena.address(self.chunk);
            // SAFETY: the rest of a chunk, at least PACKET_MAX bytes, which no block refers to yet.
            let read =
                unsafe { libc::read(self.device.as_raw_fd(), base.add(self.filled).cast(), PACKET_MAX) };
            let Ok(len @ 1..) = usize::try_from(read) else { return ReceiveStatus::Empty };
            let packet_len = u32::try_from(len).unwrap_or(u32::MAX);
            let record = CaptureRecord {
                ts: Some(sys::time_of_day()),
                cap_len: packet_len.min(self.snap_len),
                wire_len: packet_len,
                link_type: self.link_type,
                interface: self.number,
                data: self.filled as u64,
                next: 0,
            };
            let guest_offset = u32::try_from(self.chunk * CHUNK_BYTES).unwrap_or(0);
            // SAFETY: the bytes read into the chunk, which stay unchanged while the block being filled holds it.
            let mapped = unsafe {
                MappedBytes::new(base, 0, (self.filled + len) as u64, ARENA_BASE.saturating_add(guest_offset))
            };
            if let MemoryHold::Chunks { hold } = &mut filling.hold {
                self.arena.hold(self.chunk..self.chunk + 1, hold);
            }
            filling.add(&mapped, counts, &record, &mut head);
            self.filled += len.next_multiple_of(ALIGN);
        }
        ReceiveStatus::Full
    }
}

/// The drop counter of the interface that `which` accepts.
fn tx_dropped(which: impl Fn(&KernelInterface) -> bool) -> Option<u64> {
    netlink::interfaces().ok()?.into_iter().find(which).map(|link| link.tx_dropped)
}

/// Writes a packet into the device.
pub(crate) fn write(device: &File, packet: SharedBytes) -> io::Result<()> {
    // SAFETY: the kernel reads the packet's bytes, which are readable during this call by the contract of
    // `SharedBytes`.
    let written = unsafe { libc::write(device.as_raw_fd(), packet.base.cast(), packet.len) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
