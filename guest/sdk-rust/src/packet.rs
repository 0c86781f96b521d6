//! Packets, read in place.

use crate::bytes::{at, be32};
use crate::host::{self, Error};
use crate::{flag, tunnel, Descriptor, Ip};
use core::marker::PhantomData;
use core::ops::Deref;

/// One packet, and through [`Deref`] the fields of its [`Descriptor`]: `packet.ts_ns`, `packet.dst_port`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Packet<'a> {
    descriptor: &'a Descriptor,
    // The bytes belong to weir for the duration of one call.
    only_here: PhantomData<*const u8>,
}

impl Deref for Packet<'_> {
    type Target = Descriptor;

    #[inline(always)]
    fn deref(&self) -> &Descriptor {
        self.descriptor
    }
}

impl<'a> Packet<'a> {
    /// # Safety
    ///
    /// `descriptor` must be the address of a descriptor that weir wrote, for the duration of `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(descriptor: *const Descriptor) -> Self {
        // SAFETY: weir keeps descriptors aligned, whole and unchanged for the duration of a call.
        Self { descriptor: unsafe { &*descriptor }, only_here: PhantomData }
    }

    /// Returns all captured bytes, from the link header on.
    #[inline(always)]
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: only weir writes the descriptor, with the address and length of the packet. The packet is mapped for
        // reading for the duration of the call. (If another program overwrites the file that packets come from, bytes
        // can change. A reader may then see either value, and the sandbox contains the effects.)
        unsafe {
            core::slice::from_raw_parts(
                self.descriptor.data as usize as *const u8,
                self.descriptor.cap_len as usize,
            )
        }
    }

    /// Returns the bytes from the outermost IP header to the end of the capture; `None` without IP.
    #[inline(always)]
    pub fn l3(&self) -> Option<&'a [u8]> {
        if self.is_ip() {
            self.bytes().get(usize::from(self.l3_offset)..)
        } else {
            None
        }
    }

    /// Returns the bytes from the TCP, UDP, ICMP or other header above IP to the end of the capture; `None` without
    /// `L4`.
    #[inline(always)]
    pub fn l4(&self) -> Option<&'a [u8]> {
        if self.has(flag::L4) {
            self.bytes().get(usize::from(self.l4_offset)..)
        } else {
            None
        }
    }

    /// Returns the bytes from the innermost IP header in tunnels to the end of the capture; `None` for a packet without
    /// a tunnel.
    #[inline(always)]
    pub fn inner(&self) -> Option<&'a [u8]> {
        if self.tunnel != tunnel::NONE {
            self.bytes().get(usize::from(self.inner_offset)..)
        } else {
            None
        }
    }

    /// Returns the bytes above the TCP, UDP or ICMP header, without link-layer padding; empty without such a header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        if !self.has(flag::L4) {
            return &[];
        }
        let rest = self.bytes().get(usize::from(self.payload_offset)..).unwrap_or_default();
        rest.get(..self.payload_len as usize).unwrap_or_default()
    }

    /// Returns true if all of these bits of [`flag`] are set.
    #[inline(always)]
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Returns true if there is an IP header, of either version.
    #[inline(always)]
    pub fn is_ip(&self) -> bool {
        self.flags & (flag::IPV4 | flag::IPV6) != 0
    }

    /// Returns the source address.
    #[inline(always)]
    pub fn src(&self) -> Option<Ip> {
        self.address(12, 8)
    }

    /// Returns the destination address.
    #[inline(always)]
    pub fn dst(&self) -> Option<Ip> {
        self.address(16, 24)
    }

    #[inline(always)]
    fn address(&self, in_v4: usize, in_v6: usize) -> Option<Ip> {
        let header = self.l3()?;
        if self.has(flag::IPV4) {
            at(header, in_v4).map(Ip::v4)
        } else {
            at(header, in_v6).map(Ip::v6)
        }
    }

    /// Returns TCP's sequence number.
    #[inline(always)]
    pub fn tcp_seq(&self) -> Option<u32> {
        self.l4().filter(|_| self.has(flag::TCP)).and_then(|header| be32(header, 4))
    }

    /// Returns TCP's acknowledgement number.
    #[inline(always)]
    pub fn tcp_ack(&self) -> Option<u32> {
        self.l4().filter(|_| self.has(flag::TCP)).and_then(|header| be32(header, 8))
    }

    /// Changes bytes from `offset` on, in a private copy of the packet, which goes to the output. weir updates the
    /// checksums. [`bytes`](Self::bytes) still returns the captured bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] outside the captured bytes, [`Error::Denied`] for a field that affects parsing or a checksum,
    /// [`Error::Full`] beyond [`limit`](crate::limit).
    pub fn patch(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let offset = u32::try_from(offset).map_err(|_| Error::Range)?;
        // SAFETY: the host reads the descriptor and the slice, and writes neither.
        Error::check(unsafe { host::patch(self.descriptor, offset, bytes.as_ptr(), bytes.len() as u32) })
            .map(|_| ())
    }
}

/// The packets of one call of a batch function, in the order of the capture.
#[derive(Clone)]
pub struct Batch<'a> {
    descriptors: *const Descriptor,
    left: u64,
    packets: PhantomData<&'a Descriptor>,
}

impl<'a> Batch<'a> {
    /// # Safety
    ///
    /// `descriptors` must be the address of 64 descriptors of which weir wrote those whose bit is set in `mask`, for
    /// the duration of `'a`.
    #[inline(always)]
    pub(crate) unsafe fn new(descriptors: *const Descriptor, mask: u64) -> Self {
        Self { descriptors, left: mask, packets: PhantomData }
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Packet<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet<'a>> {
        if self.left == 0 {
            return None;
        }
        let index = self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        // SAFETY: `index` is the index of a bit of the mask, so weir wrote this descriptor.
        Some(unsafe { Packet::new(self.descriptors.add(index)) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.count_ones() as usize;
        (left, Some(left))
    }
}

/// The packets of a batch that are not written to the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops(pub(crate) u64);

impl Drops {
    /// No packets.
    pub const NONE: Drops = Drops(0);

    /// Adds a packet.
    #[inline(always)]
    pub fn add(&mut self, packet: &Packet<'_>) {
        // The 64 descriptors of a batch begin at a multiple of their length.
        let address = core::ptr::from_ref(packet.descriptor) as usize;
        self.0 |= 1 << (address / core::mem::size_of::<Descriptor>() % crate::limit::BATCH_PACKETS);
    }
}
